//! A packet's whole way through a chain in one transaction (`atomic = "chain"`): what all functions did happens at once, or not at
//! all. Packets go one after another; a conflict in any function takes back what those before it did.
//!
//! The worker and the replay of a certificate both go this way. Sets are looked for when a packet meets the first function of
//! their group, after the edits of the functions before.

use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_nf::packet::key::Keys;
use braid_nf::{
    Beginning, Found, Interrupted, Logs, Pass, PassSets, Prefetched, SetSlot, SetTables, SetUndo, Verdicts,
};
use braid_packet::{Batch, Lineup, Port};
use braid_state::Tx;

use self::followed::Steps;
use crate::chain::Chain;
use crate::course::Direction;

pub(crate) mod followed;

/// Tables, keys and places of the groups of a chain, wherever they are kept.
pub(crate) trait Groups {
    /// Those of one group.
    fn group(&mut self, number: usize) -> (&mut SetTables, &mut Keys, &mut Found);
}

/// How a packet's way ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It met the last function, or one dropped it: the last of [`Progress::met`].
    Through,
    /// A state operation met a conflict.
    Conflict,
    /// A handler panicked.
    Panic,
}

/// What is known of a packet on its way.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Positions of the functions that it met.
    pub(crate) met: Vec<usize>,
    /// By group: whether its key has been made, and what was changed in its tables.
    groups: Vec<(bool, SetUndo)>,
}

/// What a packet's handlers work on.
pub(crate) struct Whole<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) tx: &'a mut Tx,
    pub(crate) batch: &'a mut Batch,
    pub(crate) verdicts: &'a mut Verdicts,
    pub(crate) now_ns: &'a [u64; 256],
    pub(crate) ports: Port,
    pub(crate) logs: &'a mut Logs,
    pub(crate) progress: &'a mut Progress,
    /// Of a packet that somebody follows.
    pub(crate) steps: Option<&'a mut Steps>,
}

impl Whole<'_> {
    /// Runs the handlers that packet `i` meets; nothing is committed.
    pub(crate) fn attempt(&mut self, i: u16, direction: Direction, groups: &mut dyn Groups) -> Way {
        let chain = self.chain;
        self.progress.met.clear();
        self.progress.groups.resize_with(chain.groups().len(), Default::default);
        self.progress.groups.iter_mut().for_each(|(keyed, _)| *keyed = false);
        // Another worker may go on here.
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

    /// Has the changes of sets noted with those of a function's group, or no longer.
    fn turn_to_group_of(&mut self, position: usize) {
        if let Some(number) = self.chain.group_of(position) {
            self.logs.turn_to_group(&mut self.progress.groups[number].1);
        }
    }

    /// The key of a packet that meets the first function of its group.
    fn make_key(&mut self, i: u16, position: usize, groups: &mut dyn Groups) {
        let Some(number) = self.chain.group_of(position) else { return };
        if std::mem::replace(&mut self.progress.groups[number].0, true) {
            return;
        }
        let (_, keys, found) = groups.group(number);
        self.chain.groups()[number].extractor.extract_at(self.batch, i.into(), keys);
        // The handler looks, and what it notes of the look-up can be taken back.
        (found.slots[usize::from(i)], found.since_ms[usize::from(i)]) = (SetSlot::MISS, 0);
    }

    /// One function's handler.
    fn handle(&mut self, i: u16, position: usize, groups: &mut dyn Groups) -> Result<(), Interrupted> {
        let sets = self.chain.group_of(position).map(|number| {
            let (tables, keys, found) = groups.group(number);
            PassSets { tables, keys, found }
        });
        self.logs.emitted.begin(position);
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

    /// The attempt is committed: it cannot be taken back any more.
    pub(crate) fn stands(&mut self) {
        self.logs.commit();
        self.progress.groups.iter_mut().for_each(|(_, undo)| undo.clear());
    }

    /// The attempt has not happened.
    pub(crate) fn take_back(&mut self, beginning: &Beginning, groups: &mut dyn Groups) {
        self.tx.abort();
        self.logs.take_back_all(beginning, self.batch, self.verdicts);
        for (number, (_, undo)) in self.progress.groups.iter_mut().enumerate() {
            undo.restore(groups.group(number).0, 0);
        }
    }
}
