//! A function's pass over a batch with traced packets: the batch is split so that each traced packet runs alone.

use std::sync::Arc;

use braid_nf::SetSlot;
use braid_nf::packet::key::KeyClass;

use super::Worker;
use crate::observe::probe::Probe;
use crate::observe::trace::{TracedStep, Tracer, emitted_by, state_of};

impl Worker {
    /// Replaces the tracer; packets that the previous one followed are no longer traced.
    pub fn trace(&mut self, tracer: Option<Box<Tracer>>) {
        self.tracer = tracer;
    }

    /// Selects the packets to trace from a new batch.
    #[cold]
    pub(super) fn select_traced(&mut self) {
        if let Some(tracer) = &mut self.tracer {
            tracer.select(self.parts.id, &self.batch, &self.now_ns);
            if tracer.is_done() {
                self.tracer = None;
            }
        }
    }

    /// Runs the function at `position` over the packets that have reached it, each traced packet on its own.
    #[cold]
    pub(super) fn pass_traced(&mut self, position: usize) {
        let Some(mut tracer) = self.tracer.take() else { unreachable!("called only with a tracer") };
        let todo = std::mem::take(&mut self.todo);
        let mut rest = &todo[..];
        while !rest.is_empty() {
            let others = rest.iter().take_while(|i| !tracer.follows(**i)).count();
            let (stretch, behind) = rest.split_at(others.max(1));
            if others == 0 {
                self.step_traced(position, stretch, &mut tracer);
            } else {
                self.run_stretch(position, stretch);
            }
            rest = behind;
        }
        self.todo = todo;
        self.tracer = Some(tracer);
    }

    fn step_traced(&mut self, position: usize, stretch: &[u16], tracer: &mut Tracer) {
        let i = stretch[0];
        let chain = Arc::clone(&self.parts.chain);
        let stage = &*chain.stages()[position];
        let group = chain.group_of(position);
        let state = |worker: &mut Worker| {
            let sets = &mut worker.sets[group?];
            let at = match sets.found.slots[usize::from(i)] {
                // An earlier packet of the batch may have begun it.
                SetSlot::MISS => sets.tables.find(&sets.keys, i.into()),
                found => found,
            };
            state_of(stage, &mut sets.tables, at)
        };
        let before = self.batch.bytes(i.into()).to_vec();
        let set_before = state(self);
        let (emitted, aborts) = (self.logs.emitted.len(), self.counters.aborts);
        let probe = std::mem::replace(&mut self.probe, Probe::Accesses(Vec::new()));
        self.run_stretch(position, stretch);
        let Probe::Accesses(accesses) = std::mem::replace(&mut self.probe, probe) else {
            unreachable!("put there a moment ago")
        };
        let set_after = state(self);
        let keyed = group.map(|group| &self.sets[group].keys);
        let step = TracedStep {
            stage: position,
            function: stage.name().to_owned(),
            key: keyed.filter(|keys| keys.class[usize::from(i)] != KeyClass::None).map(|keys| keys.key(i.into())),
            set_before,
            set_after,
            before,
            after: self.batch.bytes(i.into()).to_vec(),
            verdict: self.verdicts.get(i.into()),
            accesses,
            aborts: self.counters.aborts - aborts,
            emitted: emitted_by(&self.logs.emitted, emitted, i),
        };
        tracer.note(i, step);
    }
}
