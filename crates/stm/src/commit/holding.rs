//! Transactions on a single object that is locked before it is read. Such a transaction cannot fail, so nothing done
//! meanwhile ever has to be rolled back, and it logs nothing: the cheapest way to change an object that every worker changes.
//!
//! Its locks are those of a commit: it acquires one by compare-and-swap, makes sure that the object's last owner has not
//! overtaken it (`locks.rs`), steps back while another worker has its turn, and draws sequence number and version with the
//! lock held. Others wait for the locked object as they do for a commit, so nothing may wait while holding one.

use std::marker::PhantomData;

use super::Committed;
use crate::arena::Arena;
use crate::conflict::Op;
use crate::header::Header;
use crate::hooks::YieldPoint;
use crate::raw::object::ObjectRef;
use crate::sync::model_fence;
use crate::tx::{Tx, slow};

use super::locks::{SPINS, release};

/// Number of looks at a locked object after which a worker requests its turn; from then on, no other worker can acquire the
/// lock again.
const PATIENT_LOOKS: u32 = 16 * SPINS;

/// An object locked by this worker. If it is dropped without [a commit](Tx::commit_holding), the object is unchanged, and the next
/// commit ends a turn that was taken for it. It borrows the arena's handle, hence keeps its memory:
///
/// ```compile_fail,E0505
/// # use braid_stm::{Arena, Op, Tx};
/// fn keep(tx: &mut Tx, arena: Arena) {
///     let holding = tx.begin_holding(&arena, 0, Op::new(1));
///     drop(arena);
///     drop(holding);
/// }
/// ```
#[derive(Debug)]
#[must_use = "others wait for it"]
pub struct Holding<'a> {
    object: ObjectRef,
    words: usize,
    /// Keeps the object's memory alive.
    arena: PhantomData<&'a Arena>,
    seen: Header,
    signature: u16,
}

impl Holding<'_> {
    /// Returns word `k`.
    #[inline(always)]
    pub fn word(&self, k: usize) -> u64 {
        assert!(k < self.words);
        self.object.some_word(k)
    }

    /// Copies words from `first` on.
    #[inline(always)]
    pub fn copy_to(&self, first: usize, out: &mut [u64]) {
        assert!(first.checked_add(out.len()).is_some_and(|end| end <= self.words));
        for (k, word) in (first..).zip(out) {
            *word = self.object.some_word(k);
        }
    }
}

impl Drop for Holding<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // No owner can overtake the lock any more; that was ensured when it was acquired.
        self.object.unlock(self.seen);
    }
}

impl Tx {
    /// Locks an object, to read and change it in a transaction of its own, ordered between two others. Panics if this attempt
    /// has accessed something: two workers that wait for each other's locks would wait for ever.
    #[inline(always)]
    pub fn begin_holding<'a>(&mut self, arena: &'a Arena, index: u32, op: Op) -> Holding<'a> {
        let object = arena.object(index, self.domain_id);
        // Exactly `IDLE`: nothing has been accessed, and nothing observes.
        if self.slow != slow::IDLE {
            self.prepare_to_hold(object);
        }
        let signature = Header::signature(op, self.owner);
        let seen = match self.try_to_hold(object, signature) {
            Some(seen) => seen,
            None => self.hold_patiently(object, signature),
        };
        Holding { object, words: arena.payload_words(), arena: PhantomData, seen, signature }
    }

    /// Writes words from `first` on, unlocks the object and ends the transaction. Panics if something else has been accessed while the
    /// object was held: it would be thrown away.
    #[inline(always)]
    pub fn commit_holding(&mut self, holding: Holding<'_>, first: usize, words: &[u64]) -> Committed {
        assert!(first.checked_add(words.len()).is_some_and(|end| end <= holding.words));
        let is_watched = self.slow != slow::IDLE || self.has_turn();
        assert!(!is_watched || self.is_untouched(), "something was accessed while an object was held");
        let (object, signature) = (holding.object, holding.signature);
        std::mem::forget(holding);
        let sequence = if is_watched { self.draw_sequence() } else { 0 };
        let version = self.draw_version();
        ObjectRef::open();
        object.write(first, words);
        object.unlock(Header::settled(version, signature));
        self.last_version = version;
        self.stats.updates += 1;
        if is_watched {
            self.end_watched();
        }
        Committed { sequence }
    }

    /// Acquires the lock if it is free and no other worker has its turn.
    #[inline(always)]
    fn try_to_hold(&mut self, object: ObjectRef, signature: u16) -> Option<Header> {
        let (seen, lock) = (object.load(), Header::locked(0, signature));
        if self.domain.workers() == 1 {
            object.lock_own(lock);
            return Some(seen);
        }
        if seen.is_locked() || !object.replace(seen, lock) {
            return None;
        }
        model_fence();
        let is_own = seen.owner() == self.owner;
        if (!is_own && self.confirm_lock(object, lock, seen).is_err())
            || self.domain.turn.is_other(self.owner).is_some()
        {
            release(object, lock, seen, self.owner);
            return None;
        }
        Some(seen)
    }

    #[cold]
    #[inline(never)]
    fn hold_patiently(&mut self, object: ObjectRef, signature: u16) -> Header {
        let mut round = 0;
        loop {
            if round == PATIENT_LOOKS && !self.has_turn() {
                self.enter_turn();
                self.end_turn_at_next_commit();
            }
            self.wait(&mut round);
            if let Some(seen) = self.try_to_hold(object, signature) {
                return seen;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn prepare_to_hold(&mut self, object: ObjectRef) {
        assert!(self.is_untouched(), "an object is held inside of a transaction");
        self.yield_at(YieldPoint::Packet { logged: 0 });
        self.make_ready();
        self.yield_at(YieldPoint::Hold { line: object.line() });
        if let Some(hooks) = &mut self.hooks {
            // Noted before the change, which may not happen; the notes are read only between two transactions.
            hooks.note(object);
        }
        if self.has_turn() {
            self.end_turn_at_next_commit();
        }
    }

    #[cold]
    #[inline(never)]
    fn end_watched(&mut self) {
        if let Some(hooks) = &mut self.hooks {
            hooks.settle();
        }
        self.finish();
    }
}
