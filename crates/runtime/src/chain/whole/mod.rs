//! Passes a packet through the whole chain in one transaction (`atomic = "chain"`): the effects of all functions happen at once, or not at all.
//! Packets are handled one after another; a conflict in any function rolls back what the functions before it did.
//!
//! The worker and the replay of a certificate both use this code. A packet's set is looked up when the packet meets the first function of
//! the group, after the edits of earlier functions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_nf::packet::key::Keys;
use braid_nf::{
    Beginning, Found, Interrupted, Logs, Pass, PassSets, Prefetched, SetSlot, SetTables, SetUndo, Verdicts,
};
use braid_packet::{Batch, Lineup, Port};
use braid_state::Tx;

use self::followed::Steps;
use super::course::Direction;
use crate::chain::Chain;

pub(crate) mod followed;

/// Access to the tables, keys and slots of a chain's groups, wherever they are kept.
pub(crate) trait Groups {
    /// The tables, keys and slots of one group.
    fn group(&mut self, number: usize) -> (&mut SetTables, &mut Keys, &mut Found);
}

/// How a packet's passage ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The packet met the last function or was dropped by one, the last of [`Progress::met`].
    Through,
    /// A state operation met a conflict.
    Conflict,
    /// A handler panicked.
    Panic,
}

/// The progress of a packet through the chain.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Positions of the functions that the packet met.
    pub(crate) met: Vec<usize>,
    /// By group: whether the packet's key has been extracted, and the undo log of its tables.
    groups: Vec<(bool, SetUndo)>,
}

/// What a packet's handlers operate on.
pub(crate) struct Whole<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) tx: &'a mut Tx,
    pub(crate) batch: &'a mut Batch,
    pub(crate) verdicts: &'a mut Verdicts,
    pub(crate) now_ns: &'a [u64; 256],
    pub(crate) ports: Port,
    pub(crate) logs: &'a mut Logs,
    pub(crate) progress: &'a mut Progress,
    /// The steps recorded so far, if the packet is traced.
    pub(crate) steps: Option<&'a mut Steps>,
}

impl Whole<'_> {
    /// Runs the handlers that packet `i` meets, without committing.
    pub(crate) fn attempt(&mut self, i: u16, direction: Direction, groups: &mut dyn Groups) -> Way {
        let chain = self.chain;
        self.progress.met.clear();
        self.progress.groups.resize_with(chain.groups().len(), Default::default);
        self.progress.groups.iter_mut().for_each(|(keyed, _)| *keyed = false);
        // A yield point: another worker may run here.
        self.tx.savepoint();
        self.tx.begin_now();
        for position in chain.positions(direction) {
            let record = &self.batch.records()[usize::from(i)];
            if !chain.course().when(position).admits(record.port, self.verdicts.get(i.into())) {
                continue;
            }
            self.progress.met.push(position);
            self.turn_to_group_of(position);
            self.make_key(i, position, groups);
            let before = self.before(i, position, groups);
            let done = catch_unwind(AssertUnwindSafe(|| self.handle(i, position, groups)));
            self.turn_to_group_of(position);
            match done {
                Ok(Ok(())) => self.after(i, position, before, groups),
                Ok(Err(Interrupted { .. })) => return Way::Conflict,
                Err(_) if self.tx.has_conflict() => return Way::Conflict,
                Err(_) => return Way::Panic,
            }
            if self.verdicts.is_drop(i.into()) {
                break;
            }
        }
        Way::Through
    }

    /// Swaps the undo log of the function's group in or out, so that changes of sets are noted with their group.
    fn turn_to_group_of(&mut self, position: usize) {
        if let Some(number) = self.chain.group_of(position) {
            self.logs.turn_to_group(&mut self.progress.groups[number].1);
        }
    }

    /// Extracts the key of a packet that meets the first function of a group.
    fn make_key(&mut self, i: u16, position: usize, groups: &mut dyn Groups) {
        let Some(number) = self.chain.group_of(position) else { return };
        if std::mem::replace(&mut self.progress.groups[number].0, true) {
            return;
        }
        let (_, keys, found) = groups.group(number);
        self.chain.groups()[number].extractor.extract_at(self.batch, i.into(), keys);
        // The handler does the look-up, so that the notes it makes can be rolled back.
        (found.slots[usize::from(i)], found.since_ms[usize::from(i)]) = (SetSlot::MISS, 0);
    }

    /// Runs one function's handler.
    fn handle(&mut self, i: u16, position: usize, groups: &mut dyn Groups) -> Result<(), Interrupted> {
        let sets = self.chain.group_of(position).map(|number| {
            let (tables, keys, found) = groups.group(number);
            PassSets { tables, keys, found }
        });
        self.logs.emitted.begin(position, self.chain.round(position));
        let mut todo = Lineup::new(&[i]);
        let mut pass = Pass {
            tx: self.tx,
            batch: self.batch,
            sets,
            index: None,
            todo: &mut todo,
            verdicts: self.verdicts,
            now_ns: self.now_ns,
            ports: self.ports,
            prefetched: Prefetched::default(),
            logs: self.logs,
            goes_on: true,
            goes_back: false,
            is_logged: false,
            is_timed: false,
        };
        self.chain.stages()[position].execute(&mut pass, 0, 1).map(drop)
    }

    /// Makes the attempt final after its commit.
    pub(crate) fn stands(&mut self) {
        self.logs.commit();
        self.progress.groups.iter_mut().for_each(|(_, undo)| undo.clear());
    }

    /// Rolls the attempt back.
    pub(crate) fn take_back(&mut self, beginning: &Beginning, groups: &mut dyn Groups) {
        self.tx.abort();
        self.logs.take_back_all(beginning, self.batch, self.verdicts);
        for (number, (_, undo)) in self.progress.groups.iter_mut().enumerate() {
            undo.restore(groups.group(number).0, 0);
        }
    }
}
