//! Traces a packet through a chain that is one transaction: what each function did in the attempt that committed.
//!
//! The transaction's log continues from function to function: an access that repeats one of an earlier function is listed with that
//! function only.

use braid_nf::packet::key::KeyClass;

use super::{Groups, Whole};
use crate::observe::trace::{TracedStep, emitted_by, state_of};

/// What the functions of a chain did with a packet.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<TracedStep>,
    /// For each attempt that was rolled back, the position of the function at which it ended.
    taken_back: Vec<usize>,
}

/// The state before a function ran.
pub(super) struct Before {
    bytes: Vec<u8>,
    set: Option<Vec<u8>>,
    emitted: usize,
    footprint: (usize, usize),
}

impl Steps {
    /// Discards an attempt that was rolled back and that ended at the function at `position`.
    pub(crate) fn take_back(&mut self, position: usize) {
        self.done.clear();
        self.taken_back.push(position);
    }

    /// Returns the steps of the committed attempt, with the aborts of each function.
    pub(crate) fn finish(self) -> Vec<TracedStep> {
        let aborts = |position| self.taken_back.iter().filter(|other| **other == position).count() as u64;
        self.done.into_iter().map(|step| TracedStep { aborts: aborts(step.stage), ..step }).collect()
    }
}

impl Whole<'_> {
    /// Captures the state before a function, if the packet is traced.
    pub(super) fn before(&mut self, i: u16, position: usize, groups: &mut dyn Groups) -> Option<Before> {
        self.steps.as_ref()?;
        Some(Before {
            bytes: self.batch.bytes(i.into()).to_vec(),
            set: self.set_state(i, position, groups),
            emitted: self.logs.emitted.len(),
            footprint: self.tx.footprint(),
        })
    }

    /// Notes what a function did, if the packet is traced.
    pub(super) fn after(&mut self, i: u16, position: usize, before: Option<Before>, groups: &mut dyn Groups) {
        let Some(before) = before else { return };
        let key = self.chain.group_of(position).and_then(|number| {
            let (_, keys, _) = groups.group(number);
            (keys.class[usize::from(i)] != KeyClass::None).then(|| keys.key(i.into()))
        });
        let step = TracedStep {
            stage: position,
            function: self.chain.stages()[position].name().to_owned(),
            key,
            set_before: before.set,
            set_after: self.set_state(i, position, groups),
            before: before.bytes,
            after: self.batch.bytes(i.into()).to_vec(),
            verdict: self.verdicts.get(i.into()),
            accesses: self.tx.accesses_since(before.footprint),
            aborts: 0,
            emitted: emitted_by(&self.logs.emitted, before.emitted, i),
        };
        if let Some(steps) = &mut self.steps {
            steps.done.push(step);
        }
    }

    fn set_state(&self, i: u16, position: usize, groups: &mut dyn Groups) -> Option<Vec<u8>> {
        let (tables, keys, _) = groups.group(self.chain.group_of(position)?);
        let at = tables.find(keys, i.into());
        state_of(&*self.chain.stages()[position], tables, at)
    }
}
