//! The locks of a commit.
//!
//! An object is locked by a compare-and-swap on the header that the attempt has seen. That is the most expensive step of a
//! small commit, and would be half of a large one. A commit of [`MANY`] objects or more therefore locks those last written by
//! its own worker with plain stores, and any other worker that wants one of these has to check twice:
//!
//! ```text
//!  owner A, locking by stores                  any worker B, locking an object of A by compare-and-swap
//!  1. flag[A] := true          (SeqCst)        1. header: settled by A → locked by B      (SeqCst)
//!  2. header = settled by A?   (SeqCst)        2. wait until flag[A] is false            (SeqCst)
//!     then header := locked by A               3. header still locked by B? else B steps back
//!  3. fence (SeqCst), flag[A] := false
//! ```
//! Suppose both lock the same object. If B reads the flag before A sets it, then A's load of the header comes after B's
//! compare-and-swap and finds the object locked. Otherwise B reads the flag after A has cleared it, hence sees A's store to
//! the header, and steps back without having written anything. So the owner wins, and an object is never held by two workers.
//!
//! No worker waits while its flag is set: whoever finds an object locked or changed clears the flag first.

use crate::conflict::Conflict;
use crate::header::Header;
use crate::raw::object::ObjectRef;
use crate::sync::{Ordering, fence, model_fence};
use crate::tx::Tx;

/// Number of looks at a locked object before a commit gives up.
pub(super) const SPINS: u32 = if cfg!(loom) { 2 } else { 64 };
/// Number of objects from which on a flag and a fence are cheaper than one compare-and-swap per object.
const MANY: usize = if cfg!(loom) { 2 } else { 4 };

/// Progress of locking.
struct Locked {
    /// Number of locked entries, from the beginning.
    entries: usize,
    /// Whether some of them were last written by other workers, which may be about to lock them with a store.
    foreign: bool,
}

impl Tx {
    /// Locks every object of the write log, or none.
    #[inline(always)]
    pub(super) fn lock_writes(&mut self) -> Result<(), Conflict> {
        let alone = self.domain.workers() == 1;
        let Locked { entries, mut foreign } = match alone || self.writes.len() >= MANY {
            false => {
                let locked = self.lock_each::<false>();
                model_fence();
                locked
            }
            true if alone => self.lock_each::<true>(),
            true => self.lock_many(),
        };
        if entries < self.writes.len() {
            self.lock_patiently(entries)?;
            foreign = true;
        }
        if foreign { self.confirm_locks() } else { Ok(()) }
    }

    #[inline(never)]
    fn lock_many(&mut self) -> Locked {
        // SeqCst: ordered before the loads of the headers in `lock_each`. Pairs with the load in `confirm_lock`.
        self.domain.cells[self.owner as usize].locking.swap(true, Ordering::SeqCst);
        model_fence();
        let locked = self.lock_each::<true>();
        // SeqCst: orders the stores of the locks before the loads of turn, clock and validated headers, as the
        // compare-and-swap of each would.
        fence(Ordering::SeqCst);
        // Release: whoever sees the flag cleared sees the locks.
        self.domain.cells[self.owner as usize].locking.store(false, Ordering::Release);
        locked
    }

    /// Locks objects in order until one is found locked or changed. `BY_STORE`: the flag is set, or there is no other worker.
    #[inline(always)]
    fn lock_each<const BY_STORE: bool>(&mut self) -> Locked {
        let (owner, mut foreign) = (self.owner, false);
        for (position, entry) in self.writes.entries_mut().iter_mut().enumerate() {
            let lock = Header::locked(position, entry.signature());
            let seen = match BY_STORE || entry.seen == Header::NONE {
                true => entry.object.load(),
                false => entry.seen,
            };
            let is_expected = !BY_STORE || entry.seen == seen || entry.seen == Header::NONE;
            let is_own = seen.is_free_of(owner);
            if BY_STORE && is_own && is_expected {
                entry.object.lock_own(lock);
            } else if seen.is_locked() || !is_expected || !entry.object.replace(seen, lock) {
                return Locked { entries: position, foreign };
            }
            foreign |= !is_own;
            entry.seen = seen;
        }
        Locked { entries: self.writes.len(), foreign }
    }

    /// Locks the remaining objects after one was found locked or changed: waits briefly for another commit to end; of two
    /// commits that wait for each other, both give up. The worker that holds the turn may wait longer, because no other
    /// worker does.
    #[cold]
    #[inline(never)]
    fn lock_patiently(&mut self, from: usize) -> Result<(), Conflict> {
        for position in from..self.writes.len() {
            let entry = *self.writes.entry(position);
            let lock = Header::locked(position, entry.signature());
            let mut round = 0;
            loop {
                let seen = entry.object.load();
                let expected = entry.seen == Header::NONE || entry.seen == seen;
                if !seen.is_locked() && expected && entry.object.replace(seen, lock) {
                    self.writes.entries_mut()[position].seen = seen;
                    break;
                }
                let is_patient = round < SPINS || self.has_turn();
                if !is_patient || (!seen.is_locked() && !expected) {
                    self.unlock_writes(position);
                    return Err(self.raise_write(position, seen));
                }
                self.wait(&mut round);
            }
        }
        model_fence();
        Ok(())
    }

    /// Checks whether an owner has overtaken one of the locks.
    #[inline(never)]
    fn confirm_locks(&mut self) -> Result<(), Conflict> {
        for position in 0..self.writes.len() {
            let entry = *self.writes.entry(position);
            let lock = Header::locked(position, entry.signature());
            if let Err(found) = self.confirm_lock(entry.object, lock, entry.seen) {
                self.unlock_writes(self.writes.len());
                return Err(self.raise_write(position, found));
            }
        }
        Ok(())
    }

    /// Checks that a lock that replaced `seen` is in place, once the object's owner can no longer be about to overwrite it;
    /// otherwise returns the header found instead.
    pub(super) fn confirm_lock(&mut self, object: ObjectRef, lock: Header, seen: Header) -> Result<(), Header> {
        let owner = seen.owner();
        if owner == self.owner {
            return Ok(());
        }
        let mut round = 0;
        // SeqCst: ordered after the compare-and-swap of the lock. Pairs with the swap in `lock_many`. The flag is never set
        // for long.
        while self.domain.cells.get(owner as usize).is_some_and(|cell| cell.locking.load(Ordering::SeqCst)) {
            if round >= SPINS && !self.has_turn() {
                return Err(Header::locked(0, Header::signature(seen.op(), owner)));
            }
            self.wait(&mut round);
        }
        match object.load() {
            found if found == lock => Ok(()),
            found => Err(found),
        }
    }

    /// Releases the first `locked` locks.
    #[cold]
    pub(super) fn unlock_writes(&mut self, locked: usize) {
        let owner = self.owner;
        for (position, entry) in self.writes.entries_mut()[..locked].iter_mut().enumerate() {
            let lock = Header::locked(position, entry.signature());
            release(entry.object, lock, entry.seen, owner);
            if entry.is_blind() {
                entry.seen = Header::NONE;
            }
        }
    }
}

/// Restores an object's header, unless its owner has overtaken the lock.
pub(super) fn release(object: ObjectRef, lock: Header, seen: Header, owner: u64) {
    if seen.owner() == owner {
        object.unlock(seen);
    } else {
        // If this fails, there is nothing left to restore.
        let _ = object.replace(lock, seen);
    }
}
