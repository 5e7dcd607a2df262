//! Turns: how a worker that keeps aborting makes progress.
//!
//! Tickets are served in first-in, first-out order. While one is served, update commits of all other workers abort (they see
//! the holder after locking and before validating) and wait before their next attempt; read-only transactions continue. At
//! most one commit of each other worker can already have passed that check, so the holder commits after at most as many
//! further attempts as there are other workers.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

pub(crate) struct Turn {
    /// Owner + 1 of the worker that holds the turn, or 0. It is read by every update commit and written once per turn, hence
    /// alone on its cache line.
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
        // Relaxed: the order of tickets is the modification order of this one counter.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns whether the ticket is being served; if so, the caller now holds the turn.
    pub(crate) fn try_enter(&self, ticket: u64, owner: u64) -> bool {
        // Acquire: pairs with the Release store in `leave`.
        if self.serving.load(Ordering::Acquire) != ticket {
            return false;
        }
        // SeqCst: pairs with the load in `is_other`, which a commit executes after its locking compare-and-swap or after
        // setting its `committing` flag. Either the commit sees the holder, or the holder sees the commit's flag and locks.
        self.holder.store(owner + 1, Ordering::SeqCst);
        true
    }

    pub(crate) fn leave(&self, ticket: u64) {
        self.holder.store(0, Ordering::Release);
        // Release: the next holder's Acquire load sees everything done in this turn.
        self.serving.store(ticket + 1, Ordering::Release);
    }

    /// Returns the other worker whose turn forbids a commit, if any.
    #[inline(always)]
    pub(crate) fn is_other(&self, owner: u64) -> Option<usize> {
        // SeqCst: pairs with the store in `try_enter`.
        let holder = self.holder.load(Ordering::SeqCst);
        if holder == 0 || holder == owner + 1 { None } else { Some(holder as usize - 1) }
    }
}
