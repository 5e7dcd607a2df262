//! A worker's transaction: its parts, savepoints and rollback. `tx/begin.rs` has its beginning, `tx/read.rs` and
//! `tx/write.rs` its accesses, `tx/order.rs` everything that orders workers, `tx/raise.rs` conflicts, and `commit.rs` its end.

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

/// Aborts in a row after which a worker asks for its turn.
pub const PATIENCE: u32 = 8;

/// Reasons why an access must leave the fast path: bits of `Tx::slow`.
pub(crate) mod slow {
    /// There has been no access since the last commit or abort.
    pub(crate) const IDLE: u8 = 1;
    /// A conflict was returned and has not been rolled back yet.
    pub(crate) const POISONED: u8 = 2;
    /// The transaction is recorded, replayed or scheduled, or its changes are noted.
    pub(crate) const HOOKED: u8 = 4;
    /// Something went wrong or a turn is wanted: the next attempt takes the slow path at its start.
    pub(crate) const CAREFUL: u8 = 8;
}

/// Counters of one worker, in transactions unless stated otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Commits that changed something.
    pub updates: u64,
    /// Commits that only read.
    pub read_only: u64,
    /// Conflicts returned.
    pub conflicts: u64,
    /// How often the snapshot was moved and the read log validated again.
    pub extensions: u64,
    /// Turns taken.
    pub turns: u64,
}

pub(crate) struct Deferred {
    pub(crate) object: ObjectId,
    pub(crate) action: u32,
    pub(crate) argument: u64,
    pub(crate) source: &'static Location<'static>,
    /// Whether a later action of the same attempt has retracted this one.
    pub(crate) retracted: bool,
    /// Position of the action that this one retracts.
    retracts: Option<usize>,
}

/// One worker's transaction, reused for all of its attempts one after another.
///
/// It begins implicitly with the first access and ends with [`commit`](Tx::commit) or [`abort`](Tx::abort). It may be created
/// on one thread and moved to that of its worker.
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
    wall_ahead_ns: i64,
    worker: usize,
    pub(crate) last_version: u64,
    pub(crate) domain: Arc<Domain>,
    pub(crate) hooks: Option<Box<Hooks>>,
    boosted: Vec<Option<Arc<dyn Boosted>>>,
    report: Option<ConflictReport>,
    pub(crate) failures: u32,
    wants_turn: bool,
    waits_for_turn: bool,
    ticket: Option<u64>,
    pub(crate) stats: Stats,
}

impl Tx {
    /// Creates the transaction of a worker. Only one can exist per worker and domain at a time; otherwise this panics,
    /// because two would take each other's locks for their own.
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
            wall_ahead_ns: 0,
            worker,
            last_version: 0,
            domain: Arc::clone(domain),
            hooks: None,
            boosted: Vec::new(),
            report: None,
            failures: 0,
            wants_turn: false,
            waits_for_turn: false,
            ticket: None,
            stats: Stats::default(),
        }
    }

    /// Returns the domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the time that handlers see, in nanoseconds; constant while a packet is processed.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Sets the time that handlers see, in nanoseconds.
    #[inline(always)]
    pub fn set_now(&mut self, ns: u64) {
        self.now = ns;
    }

    /// Returns by how many nanoseconds the wall-clock time is ahead of [`now`](Self::now).
    #[inline(always)]
    pub fn wall_ahead_ns(&self) -> i64 {
        self.wall_ahead_ns
    }

    /// Sets by how many nanoseconds the wall-clock time is ahead of [`now`](Self::now).
    pub fn set_wall_ahead(&mut self, ns: i64) {
        self.wall_ahead_ns = ns;
    }

    /// Returns the worker whose parts and pools the structures use.
    #[inline(always)]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// Acts as another worker, for a replay that runs all workers' transactions one after another.
    pub fn set_worker(&mut self, worker: usize) {
        assert!(worker < self.domain.workers(), "worker {worker} of {}", self.domain.workers());
        self.worker = worker;
    }

    /// Returns the counters since the transaction was created.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// No access of shared state since the last commit, abort or roll back to the beginning: committing is free.
    #[inline(always)]
    pub fn is_untouched(&self) -> bool {
        self.slow & slow::IDLE != 0
    }

    /// Returns whether the transaction is [untouched](Tx::is_untouched), nothing observes it and no turn is wanted: a
    /// rollback then goes to the beginning, which is what `Savepoint::default()` stands for.
    #[inline(always)]
    pub fn is_fresh(&self) -> bool {
        self.slow == slow::IDLE || self.is_fresh_in_a_model()
    }

    /// Returns the numbers of reads logged and writes buffered by the attempt so far.
    #[inline]
    pub fn footprint(&self) -> (usize, usize) {
        (self.reads.len(), self.writes.len())
    }

    /// Returns whether a conflict was returned and has not been rolled back: then nothing of the attempt can commit, even if
    /// the caller ignores the conflict.
    pub fn has_conflict(&self) -> bool {
        self.slow & slow::POISONED != 0
    }

    /// Returns the latest conflict of this worker; kept until the next one.
    pub fn last_conflict(&self) -> Option<&ConflictReport> {
        self.report.as_ref()
    }

    /// Creates a savepoint, between two packets of a batch.
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

    /// Undoes everything since a savepoint of this attempt, including a conflict. A conflict that happened before the
    /// savepoint remains, and nothing commits. Savepoints taken later become invalid.
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

    /// Returns whether the latest conflict concerns only what came after a savepoint of this attempt, so that everything
    /// before may still commit.
    pub fn survives(&self, savepoint: &Savepoint) -> bool {
        match self.report.as_ref().map(|report| report.position) {
            _ if savepoint.poisoned => false,
            Some(Position::Read(position)) => position >= savepoint.reads,
            Some(Position::Write(position)) => position >= savepoint.writes,
            Some(Position::End) | None => true,
            Some(Position::All) => false,
        }
    }

    /// Aborts the attempt without a trace. A turn is kept for the next attempt: the caller tries again, or calls
    /// [`abandon`](Self::abandon) instead.
    pub fn abort(&mut self) {
        self.undo(0);
        if let Some(hooks) = &mut self.hooks {
            hooks.made = 0;
        }
        self.clear();
        if self.has_turn() {
            self.end_turn_at_next_commit();
        }
    }

    /// Has the next commit end the turn, even if its attempt has accessed nothing.
    pub(crate) fn end_turn_at_next_commit(&mut self) {
        self.slow |= slow::CAREFUL;
    }

    /// Aborts the attempt and does not try again: a turn ends, and earlier failures do not count for what comes next. For reads
    /// whose result is not committed.
    pub fn abandon(&mut self) {
        self.abort();
        self.leave_turn();
    }

    /// Drops all references to structures (except those whose changes it [notes](Tx::note_changes)), so that
    /// [`Domain::reclaim`] can free memory. Call it between two transactions; inside of one it has no effect.
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
        self.abandon();
        self.domain.release(self.owner as usize, self.last_version);
    }
}

impl std::fmt::Debug for Tx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tx").field("worker", &self.worker).field("stats", &self.stats).finish_non_exhaustive()
    }
}
