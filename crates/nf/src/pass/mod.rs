//! One function's pass over a batch: what handlers run on, and what is needed to take any of it back. The loops in which they
//! run are in `handlers.rs`, `attempts.rs` and `held.rs`.
//!
//! An attempt covers packets `from..to` of the pass. Before each packet a [`Mark`] remembers where every log stands, so a
//! conflict at packet *k* takes back *k* alone, and a failed commit takes back all of them, newest first. Marks are kept from
//! the first packet on that changes aggregate state; those before it stand whatever happens. A function without state
//! objects cannot meet a conflict: its loop keeps no marks and saves nothing.

use braid_packet::key::Keys;
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
mod held;
mod look_up;
mod steady;
mod whole;

pub use held::AHEAD;
pub use whole::Beginning;

/// Nanoseconds in the unit of [`SetMeta::last_seen_ms`].
pub(crate) const MS: u64 = 1_000_000;

/// The sets of a pass's function: tables, keys and places, shared with the other functions of the same group.
#[derive(Debug)]
pub struct PassSets<'a> {
    /// This worker's tables of the group.
    pub tables: &'a mut SetTables,
    /// Keys of the batch's packets.
    pub keys: &'a Keys,
    /// What was found for them.
    pub found: &'a mut Found,
}

/// What a look-up finds for the packets of a batch.
#[derive(Debug)]
pub struct Found {
    /// Where each packet's set is.
    pub slots: [SetSlot; 256],
    /// How long each packet's set had been without a packet ([`SetMeta::since_ms`](braid_state::SetMeta::since_ms)).
    pub since_ms: [u32; 256],
    /// Of which packets no set was found.
    missed: Flagged,
    /// Functions for which all sets that were found were live.
    live: u16,
    /// Whether all packets belong to sets that were found.
    all: bool,
    /// Whether all packets came at one time.
    alike: bool,
    /// At least the longest that any of them had been without a packet, and less than twice that; more than 24 days if time stamps went back.
    longest_ms: u32,
}

impl Found {
    /// Nothing, for no packet.
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

    /// Whether all packets belong to sets that are live for the function and cannot be past their timeout: then it need not be
    /// asked about each. It stays so for the batch: only a function itself ends the lives of its sets meanwhile, those past
    /// their timeout.
    #[inline(always)]
    fn is_steady<N: NetworkFunction>(&self, function: &N, place: Place) -> bool {
        self.all && self.is_steady_if_found(function, place)
    }

    /// The same of those packets whose sets were found.
    #[inline(always)]
    fn is_steady_if_found<N: NetworkFunction>(&self, function: &N, place: Place) -> bool {
        self.live & place.bit != 0 && u64::from(self.longest_ms) * MS <= function.shortest_timeout_ns()
    }
}

/// Everything a pass works on.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The worker's transaction.
    pub tx: &'a mut Tx,
    /// The packets.
    pub batch: &'a mut Batch,
    /// The sets, if the function has any.
    pub sets: Option<PassSets<'a>>,
    /// What the worker knows of where the function's sets are, if it shares them.
    pub index: Option<&'a Index>,
    /// Indices in the batch of the packets that reach this function, in the order in which it handles them: they rise but where packets of
    /// live sets go ahead, or where it is a recorded order that is replayed.
    pub todo: &'a mut Lineup,
    /// What has been decided for each packet of the batch.
    pub verdicts: &'a mut Verdicts,
    /// Each packet's time in nanoseconds.
    pub now_ns: &'a [u64; 256],
    /// Ports of the plan.
    pub ports: u16,
    /// What handlers will touch and was asked for.
    pub prefetched: Prefetched,
    /// Logs of the worker.
    pub logs: &'a mut Logs,
    /// The transaction goes on through other functions: nothing stands before it is committed elsewhere.
    pub goes_on: bool,
    /// The packets are answers that go back ([`NetworkFunction::back`]).
    pub goes_back: bool,
    /// Somebody wants to see in the transaction's log what each packet touches.
    pub is_logged: bool,
    /// Somebody wants to know what attempts and commits take: a packet's changes wait for the pass's commit.
    pub is_timed: bool,
}

/// Positions of a pass up to which what handlers will touch was asked for; 0 before the first of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prefetched {
    /// For packets of sets with records.
    live: usize,
    /// For first ones.
    first: usize,
}

/// First packets for which is asked before their turn. Each needs half a dozen lines, and processors forget requests beyond some
/// twenty under way; what one of them takes to be handled is about what a line takes to come.
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
    /// Position up to which the current attempt stands whatever happens; the marks are those of the packets after it.
    pub(crate) kept: usize,
    marks: Vec<Mark>,
    /// Emitted packets before the stretch that is being handled.
    pub(crate) emitted_before: usize,
    /// Place in the commit order of a recorded packet that had a transaction of its own and stands already.
    pub(crate) stood: Option<u64>,
}

impl Logs {
    /// The attempt is committed: nothing can be taken back any more. Emitted packets stay until they are sent.
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
    /// Where all logs stand before a packet.
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

    /// The same if nothing had been touched before it: all logs were empty.
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

/// A handler met a conflict: the packets before `at` stand, `at` has been taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Position in the pass.
    pub at: usize,
}

/// A commit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenBack {
    /// Position from which on packets have been taken back.
    pub at: usize,
    /// How many of these the conflict did not concern: a commit of them alone would have gone well.
    pub sound: usize,
}

/// Where a function's state lies among its group's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its bit in [`braid_state::SetMeta::live`].
    pub bit: u16,
    /// Byte offset of its state in the record.
    pub offset: usize,
}

impl Pass<'_> {
    /// Has the function ask for the shared state of packets of sets with records among positions `from..to`, each once.
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

    /// Has the function ask for what first packets among the next few from position `at` on will touch, each once. The record that they get has
    /// been asked for by the look-up.
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

    /// Commits what has been attempted. If that fails, the packets are taken back, but for those
    /// that had not touched aggregate state and therefore stood already.
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

    /// Takes the current attempt back and aborts the transaction.
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

    /// After a panic in a handler: the position of its packet, whose attempt has been taken back as far as that is possible.
    #[cold]
    pub fn find_panic(&mut self) -> usize {
        // Either it had touched nothing before, or its mark is the last one.
        let at = self.logs.kept + self.logs.marks.len().saturating_sub(1);
        let i = self.todo[at] as usize;
        self.take_back_last(i, self.set_place(i));
        at
    }

    #[inline(always)]
    fn set_place(&self, i: usize) -> (SetSlot, u32) {
        self.sets.as_ref().map_or((SetSlot::MISS, 0), |sets| (sets.found.slots[i & 255], sets.found.since_ms[i & 255]))
    }

    /// Takes back the packet that is being handled; `set_place` is used if it is the first to touch something.
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
