//! Turns: how a worker that keeps aborting gets through.
//!
//! Tickets are served first in, first out. While one is served, update commits of all other workers abort (they see the
//! holder after locking and before validating) and wait before their next attempt; read-only ones run on. At most one commit
//! of each other worker can have passed that check already, so the holder commits after at most as many further attempts
//! as there are other workers.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

pub(crate) struct Turn {
    /// Owner + 1 of the worker whose turn it is, or 0. Read by every update commit, written once per turn: alone on its line.
    holder: CachePadded<AtomicU64>,
    next: CachePadded<AtomicU64>,
    serving: CachePadded<AtomicU64>,
}

impl Turn {
    pub(crate) fn new() -> Turn {
        let zero = || CachePadded::new(AtomicU64::new(0));
        Turn { holder: zero(), next: zero(), serving: zero() }
    }

    /// Takes a ticket.
    pub(crate) fn ask(&self) -> u64 {
        // Relaxed: the order of tickets is the order of this one counter.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether the ticket is served; the caller then holds the turn.
    pub(crate) fn try_enter(&self, ticket: u64, owner: u64) -> bool {
        // Acquire: pairs with the Release in `leave`.
        if self.serving.load(Ordering::Acquire) != ticket {
            return false;
        }
        // SeqCst: pairs with `is_other` after the locking compare-and-swap or the `committing` flag of a commit. Either the
        // commit sees the holder, or the holder sees its flag and its locks.
        self.holder.store(owner + 1, Ordering::SeqCst);
        true
    }

    pub(crate) fn leave(&self, ticket: u64) {
        self.holder.store(0, Ordering::Release);
        // Release: the next holder's Acquire sees everything done in this turn.
        self.serving.store(ticket + 1, Ordering::Release);
    }

    /// Whether someone else's turn forbids a commit.
    #[inline(always)]
    pub(crate) fn is_other(&self, owner: u64) -> Option<usize> {
        // SeqCst: partner in `try_enter`.
        let holder = self.holder.load(Ordering::SeqCst);
        if holder == 0 || holder == owner + 1 { None } else { Some(holder as usize - 1) }
    }
}
