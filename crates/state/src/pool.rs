//! Numbers handed out and taken back without conflicts: the heart of `Allocator` and of a map's free entries.
//!
//! Every worker has a shelf of free numbers. Taking one pops the own shelf at once (undo pushes it back), giving one back
//! waits for commit. An empty shelf borrows from the fullest one. What is popped and not yet committed, or between two
//! shelves, is in *limbo*.
//!
//! Numbers are dealt to the workers in rows, one after another in turn, and what is given back goes to the worker to whom it was
//! dealt, whoever gives it. So each of them uses the same numbers again, low ones before high ones, and a smaller structure can
//! [succeed](crate::Succession) one that was never full.
//!
//! "There is none" must be as exact as if one core ran everything. It is decided by a worker that has its turn: nobody else
//! commits, all limbo has come back, the shelves are still empty, and nobody has popped anything in between (other workers may
//! begin attempts all the time). The answer is then *watched*: a transactional object notes
//! the range that was found empty, every taker reads it (so the next answer costs one read), and a release that would make
//! the answer wrong writes it and so conflicts with exactly those that were told "none".

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_stm::{Arena, Boosted, Conflict, ObjectId, Op, Tx};
use crossbeam_utils::CachePadded;

use crate::causes::POOL_WATCH;
use crate::object::{Named, StateBuilder, StateError};

/// A number was popped. Argument: the number.
pub(crate) const TAKEN: u32 = 0;
/// A number comes back at commit. Argument: the number.
pub(crate) const GIVEN: u32 = 1;
/// A number that this very transaction has given back was handed out again. Argument: that of the action taken back.
pub(crate) const RETAKEN: u32 = 2;

/// Choice "there is none".
const NONE: u64 = u64::MAX;
/// Most numbers in a row: entries side by side, which may share a cache line, are mostly one worker's.
const ROW: u32 = 64;
/// Most numbers that move between shelves at once.
const CHUNK: usize = 32;
/// Ranges that the watch object can note.
const RANGES: usize = 3;
/// Words of the watch object.
const WATCH_WORDS: usize = 1 + RANGES;

struct Shelf {
    free: Mutex<Vec<u32>>,
    /// Length of `free`, for choosing the fullest without locking all.
    available: AtomicU32,
    /// Numbers that this worker has ever popped, and those of them that are in limbo no more; both wrap, and are written by it
    /// alone.
    popped: AtomicU32,
    returned: AtomicU32,
}

/// How a number is given back.
#[derive(Clone, Copy)]
pub(crate) struct Giving {
    /// The operation of the structure: the watch object is read and written by it.
    pub(crate) op: Op,
    /// What the structure's own `apply` passes on as [`GIVEN`].
    pub(crate) action: u32,
    /// With this argument.
    pub(crate) argument: u64,
}

pub(crate) struct Pool {
    object: ObjectId,
    /// The operation of the structure that takes.
    take: Op,
    shelves: Box<[CachePadded<Shelf>]>,
    /// Binary logarithm of the length of a row.
    row_bits: u32,
    /// Per number: 0 if it is on no shelf, else (shelf + 1) << 32 | position. Written under that shelf's lock.
    home: Box<[AtomicU64]>,
    watch: Arena,
}

/// For a structure that is no more than its pool.
impl Boosted for Pool {
    fn apply(&self, worker: usize, action: u32, argument: u64, _sequence: u64) {
        match action {
            TAKEN => self.settle(worker),
            RETAKEN => {}
            _ => self.put_back(argument as u32),
        }
    }

    fn undo(&self, worker: usize, action: u32, argument: u64) {
        // A popped number comes back.
        if action == TAKEN {
            self.push(worker, argument as u32);
            self.settle(worker);
        }
    }
}

impl Pool {
    /// All of `0..numbers` free and dealt to the workers, for a structure whose operation `take` is.
    pub(crate) fn new(builder: &StateBuilder, of: &Named, take: Op, numbers: u32) -> Result<Pool, StateError> {
        let watch = builder.arena(Arena::new, of, POOL_WATCH, 1, WATCH_WORDS)?;
        let workers = builder.domain().workers();
        let home: Box<[AtomicU64]> = (0..numbers).map(|_| AtomicU64::new(0)).collect();
        let row_bits = (numbers / workers as u32).clamp(1, ROW).ilog2();
        let row = 1 << row_bits;
        let shelf = |worker: usize| {
            // Descending, so that low numbers are handed out first.
            let rows = (worker..numbers.div_ceil(row) as usize).step_by(workers).map(|at| at as u32 * row);
            let free: Vec<u32> =
                rows.rev().flat_map(|from| (from..from.saturating_add(row).min(numbers)).rev()).collect();
            for (position, number) in free.iter().enumerate() {
                home[*number as usize].store(place(worker, position), Ordering::Relaxed);
            }
            let available = AtomicU32::new(free.len() as u32);
            let (popped, returned) = (AtomicU32::new(0), AtomicU32::new(0));
            CachePadded::new(Shelf { free: Mutex::new(free), available, popped, returned })
        };
        let shelves = (0..workers).map(shelf).collect();
        Ok(Pool { object: of.id, take, shelves, row_bits, home, watch })
    }

    pub(crate) fn numbers(&self) -> u32 {
        self.home.len() as u32
    }

    /// Numbers on the shelves; exact while nothing runs.
    pub(crate) fn free(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.available.load(Ordering::Relaxed) as usize).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.home.len() * (size_of::<AtomicU64>() + size_of::<u32>()) + self.watch.bytes()
    }

    /// Any free number.
    #[track_caller]
    pub(crate) fn take(&self, tx: &mut Tx) -> Result<Option<u32>, Conflict> {
        self.take_by(tx, 0..self.numbers(), |pool, worker| pool.pop(worker))
    }

    /// This number if it is free at this instant, else any.
    #[track_caller]
    pub(crate) fn take_preferring(&self, tx: &mut Tx, wanted: u32) -> Result<Option<u32>, Conflict> {
        if !tx.is_replaying() && self.retake(tx, &(wanted..wanted + 1)).is_some() {
            tx.choice(|| u64::from(wanted));
            return Ok(Some(wanted));
        }
        self.take_by(
            tx,
            0..self.numbers(),
            |pool, worker| {
                if pool.pick(worker, wanted) { Some(wanted) } else { pool.pop(worker) }
            },
        )
    }

    /// Any free number of a range: `wanted` if that is one, else the first from `hint` on.
    #[track_caller]
    pub(crate) fn take_within(
        &self,
        tx: &mut Tx,
        range: std::ops::Range<u32>,
        wanted: Option<u32>,
        hint: u32,
    ) -> Result<Option<u32>, Conflict> {
        let range = range.start..range.end.min(self.numbers());
        if range.is_empty() {
            return Ok(None);
        }
        let hint = if range.contains(&hint) { hint } else { range.start };
        let wanted = wanted.filter(|wanted| range.contains(wanted));
        let order = wanted.into_iter().chain(hint..range.end).chain(range.start..hint);
        self.take_by(tx, range, |pool, worker| order.clone().find(|number| pool.pick(worker, *number)))
    }

    #[inline(always)]
    #[track_caller]
    fn take_by(
        &self,
        tx: &mut Tx,
        range: std::ops::Range<u32>,
        find: impl Fn(&Pool, usize) -> Option<u32>,
    ) -> Result<Option<u32>, Conflict> {
        if tx.is_replaying() {
            return Ok(self.take_recorded(tx, range, find));
        }
        let watched: [u64; WATCH_WORDS] = tx.read(&self.watch, 0, self.take)?;
        if is_any(&watched) && ranges(&watched).any(|empty| empty.start <= range.start && range.end <= empty.end) {
            tx.choice(|| NONE);
            return Ok(None);
        }
        let worker = tx.worker();
        let found = match find(self, worker) {
            Some(number) => self.note(tx, number),
            None => match self.retake(tx, &range) {
                Some(number) => Some(number),
                None => self.decide(tx, &range, find)?,
            },
        };
        tx.choice(|| found.map_or(NONE, u64::from));
        Ok(found)
    }

    fn note(&self, tx: &mut Tx, number: u32) -> Option<u32> {
        tx.defer(self.object, TAKEN, u64::from(number));
        Some(number)
    }

    /// What this attempt itself gives back is free for it, though for nobody else before the commit.
    #[cold]
    fn retake(&self, tx: &mut Tx, range: &std::ops::Range<u32>) -> Option<u32> {
        let given = |action, argument| action != TAKEN && action != RETAKEN && range.contains(&(argument as u32));
        tx.retract(self.object, given, RETAKEN).map(|argument| argument as u32)
    }

    /// Nothing was found in passing: is there really nothing?
    #[cold]
    #[track_caller]
    fn decide(
        &self,
        tx: &mut Tx,
        range: &std::ops::Range<u32>,
        find: impl Fn(&Pool, usize) -> Option<u32>,
    ) -> Result<Option<u32>, Conflict> {
        if !tx.has_turn() {
            return Err(tx.need_turn(self.object, self.take));
        }
        let worker = tx.worker();
        loop {
            // All popped numbers come back, because nobody else can commit.
            tx.wait_until_alone(|| self.has_no_limbo(worker, &self.popped()));
            let popped = self.popped();
            if !self.has_no_limbo(worker, &popped) {
                continue;
            }
            if let Some(number) = find(self, worker) {
                return Ok(self.note(tx, number));
            }
            // Otherwise somebody may just have held what was sought, in an attempt that cannot commit.
            if self.popped() == popped {
                break;
            }
        }
        let watch = tx.update_ref(&self.watch, 0, self.take)?;
        let next = (watch[0] % RANGES as u64) as usize;
        watch[0] += 1;
        watch[1 + next] = u64::from(range.start) << 32 | u64::from(range.end);
        Ok(None)
    }

    /// How many numbers each worker has popped. Acquire: whoever has seen that a number is on no shelf sees who popped it.
    fn popped(&self) -> Vec<u32> {
        self.shelves.iter().map(|shelf| shelf.popped.load(Ordering::Acquire)).collect()
    }

    /// Whether all that the others had popped has come back. Acquire: whoever sees that also sees where it is.
    fn has_no_limbo(&self, worker: usize, popped: &[u32]) -> bool {
        let others = self.shelves.iter().zip(popped).enumerate().filter(|(n, _)| *n != worker);
        others.into_iter().all(|(_, (shelf, popped))| shelf.returned.load(Ordering::Acquire) == *popped)
    }

    /// What the record says, if it is legal in the sequential state.
    fn take_recorded(
        &self,
        tx: &mut Tx,
        range: std::ops::Range<u32>,
        find: impl Fn(&Pool, usize) -> Option<u32>,
    ) -> Option<u32> {
        let worker = tx.worker();
        let fresh = std::cell::Cell::new(false);
        let choice = tx.choice(|| {
            fresh.set(true);
            find(self, worker).map_or(NONE, u64::from)
        });
        if choice == NONE {
            if let Some(free) = range.clone().find(|number| self.is_free(*number)).or_else(|| self.retake(tx, &range)) {
                tx.violate(self.object, format!("nothing free in {range:?} was recorded, but {free} is free"));
            }
            return None;
        }
        let number = choice as u32;
        if fresh.get() || (range.contains(&number) && self.pick(worker, number)) {
            self.note(tx, number);
        } else if !range.contains(&number) || self.retake(tx, &(number..number + 1)).is_none() {
            tx.violate(self.object, format!("{number} was handed out, but it is not free within {range:?}"));
        }
        Some(number)
    }

    /// Gives a number back when the transaction commits.
    #[track_caller]
    pub(crate) fn give(&self, tx: &mut Tx, number: u32, giving: Giving) -> Result<(), Conflict> {
        let Giving { op, action, argument } = giving;
        if !tx.is_replaying() {
            let watched: [u64; WATCH_WORDS] = tx.read(&self.watch, 0, op)?;
            if is_any(&watched) && ranges(&watched).any(|empty| empty.contains(&number)) {
                let watch = tx.update_ref(&self.watch, 0, op)?;
                for word in &mut watch[1..] {
                    if range_of(*word).contains(&number) {
                        *word = 0;
                    }
                }
            }
        }
        tx.defer(self.object, action, argument);
        Ok(())
    }

    /// A popped number was committed.
    pub(crate) fn settle(&self, worker: usize) {
        self.leave_limbo(worker, 1);
    }

    /// Plain load and store: only this worker changes its own counters.
    fn leave_limbo(&self, worker: usize, count: u32) {
        let returned = &self.shelves[worker].returned;
        returned.store(returned.load(Ordering::Relaxed).wrapping_add(count), Ordering::Release);
    }

    /// A number comes back.
    pub(crate) fn push(&self, worker: usize, number: u32) {
        self.push_all(worker, &[number]);
    }

    /// Takes a number for good, outside any transaction; false if it is not free.
    pub(crate) fn remove(&self, worker: usize, number: u32) -> bool {
        let found = self.pick(worker, number);
        if found {
            self.settle(worker);
        }
        found
    }

    /// A number that was taken for good is free again, for the worker to whom it was dealt.
    pub(crate) fn put_back(&self, number: u32) {
        self.push((number >> self.row_bits) as usize % self.shelves.len(), number);
    }

    /// Takes any free number for good, outside any transaction.
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

    fn pop(&self, worker: usize) -> Option<u32> {
        self.pop_own(worker).or_else(|| self.borrow(worker))
    }

    #[inline(always)]
    fn pop_own(&self, worker: usize) -> Option<u32> {
        let mut free = self.lock(worker);
        let number = free.pop()?;
        self.took(worker, worker, &free, &[number]);
        Some(number)
    }

    /// Takes half of the fullest shelf, at most a chunk: one to hand out, the rest for the own shelf.
    #[cold]
    fn borrow(&self, worker: usize) -> Option<u32> {
        loop {
            // Acquire: partner in `took`.
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

    /// Takes one number wherever it lies; false if it is on no shelf.
    fn pick(&self, worker: usize, number: u32) -> bool {
        loop {
            let home = self.home[number as usize].load(Ordering::Acquire);
            if home == 0 {
                return false;
            }
            let shelf = (home >> 32) as usize - 1;
            let mut free = self.lock(shelf);
            let home = self.home[number as usize].load(Ordering::Relaxed);
            if home == 0 || (home >> 32) as usize - 1 != shelf {
                // It moved meanwhile.
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

    /// Books numbers that were removed from a locked shelf as `worker`'s limbo.
    fn took(&self, worker: usize, shelf: usize, free: &MutexGuard<'_, Vec<u32>>, numbers: &[u32]) {
        // Release, and first: whoever sees in `home`, in `available` or under the lock that a number is gone also sees that it
        // was popped. Plain load and store: only this worker changes its own counters.
        let popped = &self.shelves[worker].popped;
        popped.store(popped.load(Ordering::Relaxed).wrapping_add(numbers.len() as u32), Ordering::Release);
        for number in numbers {
            self.home[*number as usize].store(0, Ordering::Release);
        }
        self.shelves[shelf].available.store(free.len() as u32, Ordering::Release);
    }

    fn lock(&self, shelf: usize) -> MutexGuard<'_, Vec<u32>> {
        // Plain numbers move under the lock: a panic cannot leave it half changed.
        self.shelves[shelf].free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(shelf: usize, position: usize) -> u64 {
    (shelf as u64 + 1) << 32 | position as u64
}

fn range_of(word: u64) -> std::ops::Range<u32> {
    (word >> 32) as u32..word as u32
}

/// Whether any range is watched: seldom.
#[inline(always)]
fn is_any(watched: &[u64; WATCH_WORDS]) -> bool {
    watched[1..].iter().fold(0, |all, word| all | word) != 0
}

fn ranges(watched: &[u64; WATCH_WORDS]) -> impl Iterator<Item = std::ops::Range<u32>> {
    watched[1..].iter().map(|word| range_of(*word)).filter(|range| !range.is_empty())
}
