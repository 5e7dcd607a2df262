//! The workers' shelves: numbers are removed and added here at once, whatever becomes of the transactions that move them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Pool;

/// Maximum number of numbers that move between shelves at once.
const CHUNK: usize = 32;

/// The free numbers of one worker.
pub(super) struct Shelf {
    pub(super) free: Mutex<Vec<u32>>,
    /// Length of `free`, to find the fullest shelf without locking all.
    pub(super) available: AtomicU32,
    /// How many numbers this worker has ever popped, and how many of them have left limbo. Both wrap, and only this worker writes
    /// them.
    pub(super) popped: AtomicU32,
    pub(super) returned: AtomicU32,
}

impl Pool {
    /// How many numbers each worker has popped. Acquire: a worker that has seen that a number is on no shelf sees that it was popped.
    pub(super) fn popped(&self) -> Vec<u32> {
        self.shelves.iter().map(|shelf| shelf.popped.load(Ordering::Acquire)).collect()
    }

    /// Whether all numbers popped by other workers have left limbo. Acquire: a worker that sees this also sees where they are.
    pub(super) fn has_no_limbo(&self, worker: usize, popped: &[u32]) -> bool {
        let others = self.shelves.iter().zip(popped).enumerate().filter(|(n, _)| *n != worker);
        others.into_iter().all(|(_, (shelf, popped))| shelf.returned.load(Ordering::Acquire) == *popped)
    }

    /// Takes a committed number out of limbo.
    pub(crate) fn settle(&self, worker: usize) {
        self.leave_limbo(worker, 1);
    }

    /// Counts numbers as out of limbo. Plain load and store, because only this worker changes its own counters.
    fn leave_limbo(&self, worker: usize, count: u32) {
        let returned = &self.shelves[worker].returned;
        returned.store(returned.load(Ordering::Relaxed).wrapping_add(count), Ordering::Release);
    }

    /// Puts a number on a shelf.
    pub(crate) fn push(&self, worker: usize, number: u32) {
        self.push_all(worker, &[number]);
    }

    /// Takes a number permanently, outside any transaction; returns false if it is not free.
    pub(crate) fn remove(&self, worker: usize, number: u32) -> bool {
        let found = self.pick(worker, number);
        if found {
            self.settle(worker);
        }
        found
    }

    /// Frees a number that was taken permanently, for the worker to which it was dealt.
    pub(crate) fn put_back(&self, number: u32) {
        self.push((number >> self.row_bits) as usize % self.shelves.len(), number);
    }

    /// Takes any free number permanently, outside any transaction.
    pub(crate) fn remove_any(&self, worker: usize) -> Option<u32> {
        let found = self.pop(worker)?;
        self.settle(worker);
        Some(found)
    }

    pub(crate) fn is_free(&self, number: u32) -> bool {
        self.home[number as usize].load(Ordering::Acquire) != 0
    }

    fn push_all(&self, worker: usize, numbers: &[u32]) {
        let mut free = self.lock(worker);
        for number in numbers {
            self.home[*number as usize].store(place(worker, free.len()), Ordering::Release);
            free.push(*number);
        }
        self.shelves[worker].available.store(free.len() as u32, Ordering::Relaxed);
    }

    pub(super) fn pop(&self, worker: usize) -> Option<u32> {
        self.pop_own(worker).or_else(|| self.borrow(worker))
    }

    #[inline(always)]
    fn pop_own(&self, worker: usize) -> Option<u32> {
        let mut free = self.lock(worker);
        let number = free.pop()?;
        self.took(worker, worker, &free, &[number]);
        Some(number)
    }

    /// Takes half of the fullest shelf, at most a chunk: returns one number and puts the rest on the worker's own shelf.
    #[cold]
    fn borrow(&self, worker: usize) -> Option<u32> {
        loop {
            // Acquire, pairs with the Release in `took`.
            let fullness = |n: &usize| self.shelves[*n].available.load(Ordering::Acquire);
            let fullest = (0..self.shelves.len()).max_by_key(fullness)?;
            if fullness(&fullest) == 0 {
                return None;
            }
            let mut free = self.lock(fullest);
            let count = free.len().div_ceil(2).min(CHUNK);
            let keep = free.len() - count;
            let mut moved = free.split_off(keep);
            self.took(worker, fullest, &free, &moved);
            drop(free);
            let Some(number) = moved.pop() else { continue };
            self.push_all(worker, &moved);
            self.leave_limbo(worker, moved.len() as u32);
            return Some(number);
        }
    }

    /// Takes one number from wherever it is; returns false if it is on no shelf.
    pub(super) fn pick(&self, worker: usize, number: u32) -> bool {
        loop {
            let home = self.home[number as usize].load(Ordering::Acquire);
            if home == 0 {
                return false;
            }
            let shelf = (home >> 32) as usize - 1;
            let mut free = self.lock(shelf);
            let home = self.home[number as usize].load(Ordering::Relaxed);
            if home == 0 || (home >> 32) as usize - 1 != shelf {
                // It has moved in the meantime.
                continue;
            }
            let position = (home & u64::from(u32::MAX)) as usize;
            free.swap_remove(position);
            if let Some(moved) = free.get(position) {
                self.home[*moved as usize].store(place(shelf, position), Ordering::Release);
            }
            self.took(worker, shelf, &free, &[number]);
            return true;
        }
    }

    /// Counts numbers that were removed from a locked shelf as being in `worker`'s limbo.
    fn took(&self, worker: usize, shelf: usize, free: &MutexGuard<'_, Vec<u32>>, numbers: &[u32]) {
        // Release, and first: a worker that sees in `home`, in `available` or under the lock that a number is gone also sees that it was popped.
        // Plain load and store, because only this worker changes its own counters.
        let popped = &self.shelves[worker].popped;
        popped.store(popped.load(Ordering::Relaxed).wrapping_add(numbers.len() as u32), Ordering::Release);
        for number in numbers {
            self.home[*number as usize].store(0, Ordering::Release);
        }
        self.shelves[shelf].available.store(free.len() as u32, Ordering::Release);
    }

    fn lock(&self, shelf: usize) -> MutexGuard<'_, Vec<u32>> {
        // The lock protects plain numbers, so a panic cannot leave them half changed.
        self.shelves[shelf].free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The value in `home` of a number at a position of a shelf.
pub(super) fn place(shelf: usize, position: usize) -> u64 {
    (shelf as u64 + 1) << 32 | position as u64
}
