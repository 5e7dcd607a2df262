//! One function's pass over a batch: what its handlers work on, and what is needed to roll any of it back. The loops
//! that run the handlers are in `handlers.rs`, `attempts.rs` and `locked.rs`.
//!
//! An attempt covers positions `from..to` of the pass. Before each packet a [`Mark`] records the length of every log,
//! so a conflict at packet *k* rolls back *k* alone, and a failed commit rolls back all marked packets, newest first.
//! Marks are kept only from the first packet that changes aggregate state; the packets before it are final whatever
//! happens. A function without state objects cannot meet a conflict: its loop keeps no marks and saves nothing.

use braid_packet::key::Keys;
use braid_packet::time::NS_PER_MS;
use braid_packet::{Batch, Flagged, Lineup, Undo};
use braid_state::{Savepoint, Tx};

use crate::cx::Emitted;
use crate::index::Index;
use crate::sets::{SetSlot, SetTables, SetUndo};
use crate::shared::Lives;
use crate::verdict::VerdictCode;
use crate::{NetworkFunction, Verdicts};

mod ahead;
mod attempts;
mod back;
pub(crate) mod handlers;
mod locked;
mod look_up;
mod steady;
mod whole;

pub use locked::AHEAD;
pub use whole::Beginning;

/// The sets of a pass's function: tables, keys and look-up results, shared with the other functions of its group.
#[derive(Debug)]
pub struct PassSets<'a> {
    /// This worker's tables of the group.
    pub tables: &'a mut SetTables,
    /// Keys of the batch's packets.
    pub keys: &'a Keys,
    /// Results of looking up the keys.
    pub found: &'a mut Found,
}

/// Results of a look-up for the packets of a batch.
#[derive(Debug)]
pub struct Found {
    /// Place of each packet's set.
    pub slots: [SetSlot; 256],
    /// How long each packet's set had been without a packet ([`SetMeta::since_ms`](braid_state::SetMeta::since_ms)).
    pub since_ms: [u32; 256],
    /// Packets whose set was not found.
    missed: Flagged,
    /// Bits of the functions for which all sets found are live.
    live: u16,
    /// Whether every packet belongs to a set that was found.
    all: bool,
    /// Whether all packets arrived at the same time.
    alike: bool,
    /// Upper bound of the `since_ms` of all packets, less than twice the maximum; more than 24 days if time stamps went
    /// back.
    longest_ms: u32,
}

impl Found {
    /// Creates an empty result.
    pub fn boxed() -> Box<Found> {
        Box::new(Found {
            slots: [SetSlot::MISS; 256],
            since_ms: [0; 256],
            missed: Flagged::default(),
            live: 0,
            all: false,
            alike: false,
            longest_ms: 0,
        })
    }

    /// Returns whether all packets belong to sets that are live for the function and cannot be past their timeout, so
    /// that no packet has to be checked. This holds for the whole batch: during a batch only the function itself ends
    /// the lives of its sets, and only of those past their timeout.
    #[inline(always)]
    fn is_steady<N: NetworkFunction>(&self, function: &N, place: Place) -> bool {
        self.all && self.is_steady_if_found(function, place)
    }

    /// Like [`is_steady`](Self::is_steady), but only for the packets whose sets were found.
    #[inline(always)]
    fn is_steady_if_found<N: NetworkFunction>(&self, function: &N, place: Place) -> bool {
        self.live & place.bit != 0 && u64::from(self.longest_ms) * NS_PER_MS <= function.shortest_timeout_ns()
    }
}

/// Everything that a pass works on.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The worker's transaction.
    pub tx: &'a mut Tx,
    /// The packets.
    pub batch: &'a mut Batch,
    /// The sets, if the function has any.
    pub sets: Option<PassSets<'a>>,
    /// The worker's index of the function's shared sets, if it has any.
    pub index: Option<&'a Index>,
    /// Batch indices of the packets that reach this function, in the order of handling. They ascend, except when
    /// packets of live sets go ahead or a recorded order is replayed.
    pub todo: &'a mut Lineup,
    /// The latest decision for each packet of the batch.
    pub verdicts: &'a mut Verdicts,
    /// Time of each packet in nanoseconds.
    pub now_ns: &'a [u64; 256],
    /// Number of ports of the plan.
    pub ports: u16,
    /// How far prefetching has progressed.
    pub prefetched: Prefetched,
    /// The worker's logs.
    pub logs: &'a mut Logs,
    /// The transaction continues through other functions: nothing is final before it is committed elsewhere.
    pub goes_on: bool,
    /// The packets are answers that go back ([`NetworkFunction::back`]).
    pub goes_back: bool,
    /// The transaction's log must show what each packet accesses.
    pub is_logged: bool,
    /// The durations of attempts and commits are measured, so a packet's changes wait for the commit of the pass.
    pub is_timed: bool,
}

/// Positions of a pass up to which data has been prefetched; 0 at the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prefetched {
    /// For packets of sets with records.
    live: usize,
    /// For first packets.
    first: usize,
}

/// Number of first packets for which memory is prefetched before their turn. Each needs about six cache lines, and
/// processors drop prefetches beyond some twenty in flight; handling one such packet takes about as long as one line
/// takes to arrive.
const FIRST_AHEAD: usize = 3;

/// A worker's logs of what the current attempt did.
#[derive(Debug, Default)]
pub struct Logs {
    pub(crate) packets: Undo,
    pub(crate) sets: SetUndo,
    /// Packets that handlers made.
    pub emitted: Emitted,
    /// Shared sets that became live or ended on this worker.
    pub lives: Lives,
    /// Position up to which the current attempt is final; the marks belong to the packets after it.
    pub(crate) kept: usize,
    marks: Vec<Mark>,
    /// Number of emitted packets before the stretch that is being handled.
    pub(crate) emitted_before: usize,
    /// Position in the commit order of a recorded packet that had a transaction of its own and is already final.
    pub(crate) stood: Option<u64>,
}

impl Logs {
    /// Clears the logs after the attempt has committed: nothing can be rolled back any more. Emitted packets stay until
    /// they are sent.
    #[inline(always)]
    pub fn commit(&mut self) {
        self.packets.clear();
        self.sets.clear();
        self.marks.clear();
    }
}

#[derive(Debug)]
struct Mark {
    transaction: Savepoint,
    packets: usize,
    sets: usize,
    emitted: usize,
    lives: Lives,
    verdict: VerdictCode,
    set_place: (SetSlot, u32),
}

impl Mark {
    /// Records the state of all logs before a packet.
    #[inline(always)]
    fn new(tx: &mut Tx, logs: &Logs, verdict: VerdictCode, set_place: (SetSlot, u32)) -> Mark {
        Mark {
            transaction: tx.savepoint(),
            packets: logs.packets.mark(),
            sets: logs.sets.mark(),
            emitted: logs.emitted.len(),
            lives: logs.lives,
            verdict,
            set_place,
        }
    }

    /// Records the state of all logs before a packet when no packet before it has left anything in them.
    #[inline(always)]
    fn first(logs: &Logs, packet: usize, verdict: VerdictCode, set_place: (SetSlot, u32)) -> Mark {
        Mark {
            transaction: Savepoint::default(),
            packets: 0,
            sets: 0,
            emitted: logs.emitted.first_of(packet, logs.emitted_before),
            lives: logs.lives,
            verdict,
            set_place,
        }
    }
}

/// A handler met a conflict: the packets before `at` are kept, and the packet at `at` has been rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Position in the pass.
    pub at: usize,
}

/// A commit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Position from which on packets have been rolled back.
    pub at: usize,
    /// How many of these were not affected by the conflict: a commit of them alone would have succeeded.
    pub sound: usize,
}

/// Where a function's state lies among the states of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Bit of the function in [`braid_state::SetMeta::live`].
    pub bit: u16,
    /// Byte offset of its state in the record.
    pub offset: usize,
}

impl Pass<'_> {
    /// Lets the function prefetch shared state for the packets at positions `from..to` whose sets have records, once
    /// for each.
    pub(crate) fn prefetch<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) {
        let from = from.max(self.prefetched.live);
        let Some(sets) = self.sets.as_mut().filter(|_| from < to) else { return };
        self.prefetched.live = to;
        let mut states = sets.tables.states_at::<N::Set>(place.offset);
        for &i in &self.todo[from..to] {
            let i = usize::from(i) & 255;
            let slot = sets.found.slots[i];
            if states.has(slot) {
                function.prefetch(states.get(slot).1, self.now_ns[i]);
            }
        }
    }

    /// Lets the function prefetch what the first packets among the next few positions from `at` will access, once for
    /// each. The look-up has already prefetched the record that such a packet will get.
    #[inline(always)]
    fn prefetch_first<N: NetworkFunction>(&mut self, function: &N, place: Place, at: usize, to: usize) {
        let (from, to) = (at.max(self.prefetched.first), to.min(at + 1 + FIRST_AHEAD));
        if N::PREFETCHES_FIRST && from < to {
            self.prefetch_first_of(function, place, from, to);
        }
    }

    #[inline(never)]
    fn prefetch_first_of<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) {
        self.prefetched.first = to;
        let Some(sets) = &self.sets else { return };
        let mut walk = self.batch.walk::<false>(self.todo.part(from..to));
        while let Some(turn) = walk.step() {
            let i = turn.index();
            if sets.is_first(place, i) {
                function.prefetch_first(&turn.packet(None), self.now_ns[i]);
            }
        }
    }

    /// Commits the attempt. If that fails, its packets are rolled back, except those that were already final because no
    /// packet up to them had changed aggregate state.
    #[inline]
    pub fn commit(&mut self) -> Result<u64, TakenBack> {
        if let Some(sequence) = self.logs.stood.take() {
            return Ok(sequence);
        }
        match self.tx.commit() {
            Ok(committed) => {
                self.logs.commit();
                Ok(committed.sequence)
            }
            Err(_) => Err(self.abandon()),
        }
    }

    /// Rolls back the current attempt and aborts the transaction.
    #[cold]
    fn abandon(&mut self) -> TakenBack {
        let kept = self.logs.kept;
        let sound = self.logs.marks.iter().rposition(|mark| self.tx.survives(&mark.transaction)).unwrap_or(0);
        while let Some(mark) = self.logs.marks.pop() {
            self.take_back(self.todo[kept + self.logs.marks.len()] as usize, &mark);
        }
        self.tx.abort();
        TakenBack { at: kept, sound }
    }

    /// After a panic in a handler: returns the position of its packet, whose attempt has been rolled back as far as
    /// possible.
    #[cold]
    pub fn find_panic(&mut self) -> usize {
        // Either the packet had not touched anything before, or its mark is the last one.
        let at = self.logs.kept + self.logs.marks.len().saturating_sub(1);
        let i = self.todo[at] as usize;
        self.take_back_last(i, self.set_place(i));
        at
    }

    #[inline(always)]
    fn set_place(&self, i: usize) -> (SetSlot, u32) {
        self.sets.as_ref().map_or((SetSlot::MISS, 0), |sets| (sets.found.slots[i & 255], sets.found.since_ms[i & 255]))
    }

    /// Rolls back the packet that is being handled; `set_place` is used if it has no mark yet.
    #[cold]
    fn take_back_last(&mut self, i: usize, set_place: (SetSlot, u32)) {
        let mark = self.logs.marks.pop().unwrap_or_else(|| Mark::first(self.logs, i, self.verdicts.code(i), set_place));
        self.take_back(i, &mark);
    }

    fn take_back(&mut self, i: usize, mark: &Mark) {
        self.tx.rollback(&mark.transaction);
        self.batch.restore(i, &mut self.logs.packets, mark.packets);
        self.logs.emitted.truncate(mark.emitted);
        self.logs.lives = mark.lives;
        self.verdicts.restore(i, mark.verdict);
        if let Some(sets) = &mut self.sets {
            self.logs.sets.restore(sets.tables, mark.sets);
            (sets.found.slots[i], sets.found.since_ms[i]) = mark.set_place;
        }
    }
}
