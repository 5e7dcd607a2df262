//! A worker's transaction: what it consists of, and going back. It begins in `tx/begin.rs`, reads in `tx/read.rs` and writes in
//! `tx/write.rs`; `tx/order.rs` has what sets an order among workers, `tx/raise.rs` conflicts, and `commit.rs` the end.

use std::panic::Location;
use std::sync::Arc;

use crate::boosted::Boosted;
use crate::conflict::{ConflictReport, ObjectId, Position};
use crate::domain::Domain;
use crate::hooks::{Hooks, YieldPoint};
use crate::log::{ReadEntry, Savepoint, WriteLog};

mod accesses;
mod begin;
mod noted;
mod order;
mod raise;
mod read;
mod write;

pub use accesses::Access;
pub use read::{Alone, Glance, Solitude};

/// Aborts in a row after which a worker asks for its turn, unless [`Tx::set_patience`] says otherwise.
pub const PATIENCE: u32 = 8;

/// Why an access must leave the fast path: bits of `Tx::slow`.
pub(crate) mod slow {
    /// No access yet since the last commit or abort.
    pub(crate) const IDLE: u8 = 1;
    /// A conflict was returned and not yet rolled back.
    pub(crate) const POISONED: u8 = 2;
    /// Recording, replaying or scheduled.
    pub(crate) const HOOKED: u8 = 4;
    /// Something went wrong or a turn is wanted: the next attempt begins slowly.
    pub(crate) const CAREFUL: u8 = 8;
}

/// Counters of one worker, in transactions unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits that changed something.
    pub updates: u64,
    /// Commits that only read.
    pub read_only: u64,
    /// Conflicts returned.
    pub conflicts: u64,
    /// Times the clock was moved and the read log validated again.
    pub extensions: u64,
    /// Turns taken.
    pub turns: u64,
}

pub(crate) struct Deferred {
    pub(crate) object: ObjectId,
    pub(crate) action: u32,
    pub(crate) argument: u64,
    pub(crate) source: &'static Location<'static>,
    /// Taken back by a later action of the same attempt.
    pub(crate) retracted: bool,
    /// The action that this one took back.
    retracts: Option<usize>,
}

/// One worker's transaction, used for all its attempts one after another.
///
/// It begins by itself with the first access; [`commit`](Tx::commit) or [`abort`](Tx::abort) end it. Made on one thread, it
/// may move to its worker's.
pub struct Tx {
    pub(crate) slow: u8,
    /// Every unlocked header below this is at most as new as the snapshot.
    limit: u64,
    pub(crate) owner: u64,
    pub(crate) domain_id: u64,
    pub(crate) reads: Vec<ReadEntry>,
    pub(crate) writes: WriteLog,
    pub(crate) deferred: Vec<Deferred>,
    scratch: Vec<u64>,
    now: u64,
    worker: usize,
    pub(crate) last_version: u64,
    pub(crate) domain: Arc<Domain>,
    pub(crate) hooks: Option<Box<Hooks>>,
    boosted: Vec<Option<Arc<dyn Boosted>>>,
    report: Option<ConflictReport>,
    pub(crate) failures: u32,
    patience: u32,
    wants_turn: bool,
    waits_for_turn: bool,
    ticket: Option<u64>,
    pub(crate) stats: Stats,
}

impl Tx {
    /// The transaction of a worker. One can exist per worker and domain at a time (panics otherwise: two would take each
    /// other's locks for their own).
    pub fn new(domain: &Arc<Domain>, worker: usize) -> Tx {
        domain.claim(worker);
        Tx {
            slow: slow::IDLE,
            limit: 0,
            owner: worker as u64,
            domain_id: domain.id(),
            reads: Vec::with_capacity(4096),
            writes: WriteLog::new(),
            deferred: Vec::with_capacity(64),
            scratch: vec![0; 64],
            now: 0,
            worker,
            last_version: 0,
            domain: Arc::clone(domain),
            hooks: None,
            boosted: Vec::new(),
            report: None,
            failures: 0,
            patience: PATIENCE,
            wants_turn: false,
            waits_for_turn: false,
            ticket: None,
            stats: Stats::default(),
        }
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The time that handlers see, in nanoseconds; fixed while a packet is processed.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sets the time, in nanoseconds.
    #[inline(always)]
    pub fn set_now(&mut self, ns: u64) {
        self.now = ns;
    }

    /// The worker whose parts and pools the structures use.
    #[inline(always)]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Acts as another worker: a replay runs all workers' transactions, one after another.
    pub fn set_worker(&mut self, worker: usize) {
        assert!(worker < self.domain.workers(), "worker {worker} of {}", self.domain.workers());
        self.worker = worker;
    }

    /// Counters since the beginning.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Aborts in a row after which the worker asks for its turn.
    pub fn set_patience(&mut self, aborts: u32) {
        self.patience = aborts.max(1);
    }

    /// No access of shared state since the last commit, abort or roll back to the beginning: committing is free.
    #[inline(always)]
    pub fn is_untouched(&self) -> bool {
        self.slow & slow::IDLE != 0
    }

    /// [Untouched](Tx::is_untouched), with nobody watching and no turn wanted: the way back is to the beginning, which is
    /// where `Savepoint::default()` goes.
    #[inline(always)]
    pub fn is_fresh(&self) -> bool {
        self.slow == slow::IDLE || self.is_fresh_in_a_model()
    }

    /// Reads logged and writes buffered by the attempt so far.
    #[inline]
    pub fn footprint(&self) -> (usize, usize) {
        (self.reads.len(), self.writes.len())
    }

    /// Whether a conflict was returned that has not been rolled back: nothing of the attempt will commit, whatever its caller makes of it.
    pub fn has_conflict(&self) -> bool {
        self.slow & slow::POISONED != 0
    }

    /// The latest conflict of this worker; kept until the next one.
    pub fn last_conflict(&self) -> Option<&ConflictReport> {
        self.report.as_ref()
    }

    /// The place to go back to, between two packets of a batch.
    pub fn savepoint(&mut self) -> Savepoint {
        let logged = self.reads.len() + self.writes.len();
        self.yield_at(YieldPoint::Packet { logged });
        let (writes, long, replaced) = self.writes.mark();
        Savepoint {
            active: !self.is_untouched(),
            poisoned: self.slow & slow::POISONED != 0,
            reads: self.reads.len(),
            writes,
            long,
            replaced,
            deferred: self.deferred.len(),
            choices: self.hooks.as_ref().map_or(0, |hooks| if hooks.done { 0 } else { hooks.made }),
        }
    }

    /// Forgets everything since a savepoint of this attempt, a conflict included; one that lies before it stays, and nothing commits.
    /// Savepoints taken later are void.
    pub fn rollback(&mut self, to: &Savepoint) {
        self.undo(to.deferred);
        self.reads.truncate(to.reads);
        self.writes.truncate(to);
        if let Some(hooks) = &mut self.hooks {
            hooks.made = to.choices;
        }
        if !to.poisoned {
            self.slow &= !slow::POISONED;
        }
        if !to.active {
            self.slow |= slow::IDLE;
        }
    }

    /// Whether the latest conflict lies behind a savepoint of this attempt: what came before may still commit.
    pub fn survives(&self, savepoint: &Savepoint) -> bool {
        match self.report.as_ref().map(|report| report.position) {
            _ if savepoint.poisoned => false,
            Some(Position::Read(position)) => position >= savepoint.reads,
            Some(Position::Write(position)) => position >= savepoint.writes,
            Some(Position::End) | None => true,
            Some(Position::All) => false,
        }
    }

    /// Ends the attempt as if it had never been. A turn is kept for the next attempt.
    pub fn abort(&mut self) {
        self.undo(0);
        if let Some(hooks) = &mut self.hooks {
            hooks.made = 0;
        }
        self.clear();
    }

    /// Refers to nothing any more (but what it [notes changes](Tx::note_changes) of), so that [`Domain::reclaim`] gives memory back. To be called between two transactions; nothing
    /// happens in the middle of one.
    pub fn let_go(&mut self) {
        if self.reads.is_empty() && self.writes.is_empty() && self.deferred.is_empty() {
            self.boosted.clear();
            self.domain.let_go(self.owner as usize);
        }
    }

    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.slow = (self.slow | slow::IDLE) & !slow::POISONED;
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        self.abort();
        self.leave_turn();
        self.domain.release(self.owner as usize, self.last_version);
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("worker", &self.worker).field("stats", &self.stats).finish_non_exhaustive()
    }
}
