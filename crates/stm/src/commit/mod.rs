//! Commit: lock, draw the version, validate, publish.
//!
//! This order is essential. The version is drawn with all locks held and before validation. A reader whose snapshot is at or
//! above this version began after the objects had been locked; a reader with an older snapshot will extend it and validate.
//! The runtime of NFOS validates first and draws the version afterwards, so that a reader can see the second of two
//! transactions without the first.

use crate::conflict::{Conflict, ConflictKind, Op, Position};
use crate::header::Header;
use crate::hooks::{Mode, YieldPoint};
use crate::raw::object::ObjectRef;
use crate::sync::{Ordering, model_fence};
use crate::tx::{Deferred, Tx, slow};

mod holding;
mod locks;

pub use holding::Holding;

/// A transaction that has committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Position in a serial order of all transactions, from 1; 0 unless recording or replaying.
    pub sequence: u64,
}

impl Tx {
    /// Commits everything since the last commit atomically. On a conflict the attempt is left as it was: roll back to a
    /// savepoint that [`survives`](Tx::survives) the conflict and commit again, or abort.
    #[inline(always)]
    pub fn commit(&mut self) -> Result<Committed, Conflict> {
        if self.settle_if_possible::<false>() || self.commit_one() || self.commit_alone() {
            Ok(Committed { sequence: 0 })
        } else {
            self.commit_touched()
        }
    }

    /// Commits the only packet of a fresh attempt if that cannot fail: nothing was accessed, or only reads were made and
    /// nothing observes them. Otherwise has no effect and returns `false`.
    #[inline(always)]
    pub fn settle(&mut self) -> bool {
        self.settle_if_possible::<true>()
    }

    /// Like [`settle`](Self::settle), for a packet that has changed something, in a domain of one worker. Otherwise has no
    /// effect and returns `false`.
    #[inline]
    pub fn settle_alone(&mut self) -> bool {
        self.domain.workers() == 1 && (self.commit_one() || self.commit_alone())
    }

    /// `PACKET`: a packet has been handled that has not been reported to a time model.
    #[inline(always)]
    fn settle_if_possible<const PACKET: bool>(&mut self) -> bool {
        if self.slow == slow::IDLE {
            return true;
        }
        if self.slow != 0 {
            return self.slow & slow::HOOKED != 0 && self.settle_in_a_model(PACKET);
        }
        if !self.writes.is_empty() || !self.deferred.is_empty() {
            return false;
        }
        // Everything read was true at the snapshot, which is this transaction's position in the serial order.
        self.stats.read_only += 1;
        self.finish();
        true
    }

    /// Like `settle_if_possible`, if nothing but a time model observes the transaction.
    #[cold]
    fn settle_in_a_model(&mut self, packet: bool) -> bool {
        if self.slow & !slow::IDLE != slow::HOOKED || self.mode() != Mode::Free {
            return false;
        }
        if packet {
            self.yield_at(YieldPoint::Packet { logged: 0 });
        }
        if self.slow & slow::IDLE == 0 {
            if !self.writes.is_empty() || !self.deferred.is_empty() {
                return false;
            }
            self.yield_at(YieldPoint::Settle);
            self.stats.read_only += 1;
            self.finish();
        }
        true
    }

    /// Commits an attempt that consists of a single write to an object last written by this worker, if nothing observes it
    /// and no other worker interferes. Otherwise has no effect, and `commit_touched` decides what to do.
    #[inline(never)]
    fn commit_one(&mut self) -> bool {
        let is_plain = self.slow == 0 && self.reads.is_empty() && self.deferred.is_empty() && !self.has_turn();
        let [entry] = self.writes.entries() else { return false };
        let object = entry.object;
        let seen = if entry.is_blind() { object.load() } else { entry.seen };
        if !is_plain || !seen.is_free_of(self.owner) || !object.replace(seen, Header::locked(0, entry.signature())) {
            return false;
        }
        model_fence();
        if self.domain.turn.is_other(self.owner).is_some() {
            object.unlock(seen);
            return false;
        }
        let version = self.draw_version();
        self.publish(version);
        self.stats.updates += 1;
        self.finish();
        true
    }

    /// Commits an attempt in a domain of one worker, if nothing observes it and all of its deferred actions are permitted. No
    /// other worker can have changed what it read or be about to, so there is no validation and no synchronisation. Otherwise
    /// has no effect, and `commit_touched` decides what to do.
    #[inline(never)]
    fn commit_alone(&mut self) -> bool {
        if self.slow != 0 || self.domain.workers() != 1 || self.find_refused().is_some() {
            return false;
        }
        for (position, entry) in self.writes.entries().iter().enumerate() {
            // For readers outside of transactions.
            entry.object.lock_own(Header::locked(position, entry.signature()));
        }
        let version = self.draw_version();
        self.publish(version);
        self.apply_deferred(0);
        self.stats.updates += 1;
        self.finish();
        true
    }

    #[inline(never)]
    fn commit_touched(&mut self) -> Result<Committed, Conflict> {
        if self.slow & slow::POISONED != 0 {
            return Err(Conflict::TOKEN);
        }
        if self.slow & slow::IDLE != 0 {
            let sequence = self.draw_sequence();
            if let Some(hooks) = &mut self.hooks {
                hooks.settle();
            }
            self.finish();
            return Ok(Committed { sequence });
        }
        let changes = !self.writes.is_empty() || !self.deferred.is_empty();
        let sequence = match changes {
            true => self.commit_update()?,
            false => self.commit_recorded_reads()?,
        };
        if changes {
            self.stats.updates += 1;
        } else {
            self.stats.read_only += 1;
        }
        if let Some(hooks) = &mut self.hooks {
            hooks.settle();
            self.writes.entries().iter().for_each(|entry| hooks.note(entry.object));
        }
        self.finish();
        Ok(Committed { sequence })
    }

    /// Commits a read-only transaction while recording or replaying: its position in the recorded order must be now, rather
    /// than at its snapshot.
    fn commit_recorded_reads(&mut self) -> Result<u64, Conflict> {
        if self.mode() == Mode::Free {
            return Ok(0);
        }
        let sequence = self.draw_sequence();
        self.yield_at(YieldPoint::Validate);
        self.validate()?;
        Ok(sequence)
    }

    fn commit_update(&mut self) -> Result<u64, Conflict> {
        if self.hooks.is_some() {
            self.yield_before_locks();
        }
        let boosted = !self.deferred.is_empty();
        if boosted {
            // SeqCst: ordered before the load of the turn. Pairs with the load in `others_committing`.
            self.domain.cells[self.owner as usize].committing.store(true, Ordering::SeqCst);
        }
        let result = self.commit_locked();
        if boosted {
            // Release: whoever reads `false` sees the effects of the deferred actions.
            self.domain.cells[self.owner as usize].committing.store(false, Ordering::Release);
        }
        result
    }

    #[cold]
    fn yield_before_locks(&mut self) {
        let logged = self.reads.len() + self.writes.len();
        self.yield_at(YieldPoint::Lock { logged });
        for position in 0..self.writes.len() {
            let line = self.writes.entry(position).object.line();
            self.yield_at(YieldPoint::Touch { line, write: true });
        }
    }

    fn commit_locked(&mut self) -> Result<u64, Conflict> {
        self.lock_writes()?;
        // From here to `publish` nothing waits, so locks are held only briefly.
        let (sequence, version) = match self.decide() {
            Ok(drawn) => drawn,
            Err(conflict) => {
                self.unlock_writes(self.writes.len());
                return Err(conflict);
            }
        };
        self.yield_at(YieldPoint::Publish);
        self.publish(version);
        self.apply_deferred(sequence);
        Ok(sequence)
    }

    /// With all locks held, returns the position in the serial order and the version, if this commit is permitted.
    #[inline(always)]
    fn decide(&mut self) -> Result<(u64, u64), Conflict> {
        self.check_turn()?;
        self.check_deferred()?;
        // Drawn with the locks held, so that the order of the numbers is the order of conflicting commits.
        let sequence = self.draw_sequence();
        let version = self.draw_version();
        self.yield_at(YieldPoint::Validate);
        self.validate()?;
        Ok((sequence, version))
    }

    #[inline(always)]
    fn check_turn(&mut self) -> Result<(), Conflict> {
        match self.domain.turn.is_other(self.owner) {
            None => Ok(()),
            Some(other) => {
                let theirs = Header::settled(0, Header::signature(Op::new(0), other as u64));
                let source = std::panic::Location::caller();
                Err(self.raise(ConflictKind::Turn, None, theirs, Op::new(0), source, Position::All))
            }
        }
    }

    #[inline(always)]
    fn check_deferred(&mut self) -> Result<(), Conflict> {
        match self.find_refused() {
            None => Ok(()),
            Some(position) => {
                let Deferred { object, source, .. } = self.deferred[position];
                Err(self.raise_refused(object, source))
            }
        }
    }

    /// Returns the position of the first deferred action that is no longer permitted.
    #[inline(always)]
    fn find_refused(&mut self) -> Option<usize> {
        (0..self.deferred.len()).find(|&position| {
            let Deferred { object, action, argument, .. } = self.deferred[position];
            !self.boosted(object).check(action, argument)
        })
    }

    /// Checks that everything read is unchanged, apart from this commit's own locks.
    #[inline(always)]
    fn validate(&mut self) -> Result<(), Conflict> {
        for position in 0..self.reads.len() {
            let entry = &self.reads[position];
            // SeqCst: of two commits that each lock what the other has read, at least one must see the other's lock.
            let now = entry.object.load();
            if now == entry.seen {
                continue;
            }
            let own = now.is_locked()
                && now.owner() == self.owner
                && self.writes.entry(now.version() as usize).seen == entry.seen;
            if !own {
                return Err(self.raise_changed(position, now));
            }
        }
        Ok(())
    }

    #[cold]
    fn raise_changed(&mut self, position: usize, now: Header) -> Conflict {
        let theirs = match now.is_locked() && now.owner() == self.owner {
            // Locked by this commit, but another worker changed it between the read and the lock.
            true => self.writes.entry(now.version() as usize).seen,
            false => now,
        };
        let kind = if theirs.is_locked() { ConflictKind::Locked } else { ConflictKind::Changed };
        self.raise_read(kind, position, theirs)
    }

    #[inline(always)]
    fn publish(&mut self, version: u64) {
        ObjectRef::open();
        for entry in self.writes.entries() {
            let header = Header::settled(version, entry.signature());
            entry.object.store(self.writes.value_to_store(entry), header);
        }
        self.last_version = version;
    }

    #[inline(always)]
    fn apply_deferred(&mut self, sequence: u64) {
        let worker = self.worker();
        for position in 0..self.deferred.len() {
            let deferred = &self.deferred[position];
            let (object, action, argument) = (deferred.object, deferred.action, deferred.argument);
            if deferred.retracted {
                continue;
            }
            self.boosted(object).apply(worker, action, argument, sequence);
        }
        self.deferred.clear();
    }

    /// Must be called with all locks held.
    #[inline(always)]
    fn draw_version(&self) -> u64 {
        // SeqCst: ordered after the locks, see `Tx::begin`. The clock is only read, so no cache line is written by every commit.
        self.domain.clock.load(Ordering::SeqCst).max(self.last_version) + 1
    }

    #[inline(always)]
    fn draw_sequence(&mut self) -> u64 {
        match &self.hooks {
            None => 0,
            Some(hooks) => match hooks.mode {
                Mode::Free => 0,
                Mode::Recording => self.domain.sequence.fetch_add(1, Ordering::SeqCst) + 1,
                Mode::Replaying => hooks.sequence,
            },
        }
    }

    #[inline(always)]
    fn finish(&mut self) {
        self.clear();
        self.failures = 0;
        if self.has_turn() {
            self.leave_turn();
        }
    }
}
