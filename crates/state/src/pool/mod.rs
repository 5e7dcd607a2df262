//! Numbers handed out and returned without conflicts: the core of `Allocator` and of a map's free entries.
//!
//! Every worker has a shelf of free numbers. Taking one pops it from the worker's own shelf at once (an undo pushes it back); returning one
//! waits for the commit. An empty shelf borrows from the fullest one. A number that has been popped and not yet committed, or that is between
//! two shelves, is in *limbo*.
//!
//! Numbers are dealt to the workers in rows, in turn, and a returned number goes to the worker to which it was dealt, whoever
//! returns it. So each worker reuses the same numbers, low ones before high ones, and a smaller structure can
//! [succeed](crate::Succession) one that was never full.
//!
//! The answer "there is none" must be as exact as on a single core. It is decided by a worker that has its turn: no other worker can commit,
//! all numbers in limbo have returned, the shelves are still empty, and no worker has popped anything in between (other workers may begin
//! attempts at any time). The answer is then *watched*: a transactional object notes the range that was found empty. Every taker reads this
//! object, so that repeating the answer costs one read. A return that would make the answer wrong writes the object, and so conflicts with
//! exactly those that were told "none".

mod shelves;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use braid_stm::{Arena, Boosted, Conflict, ObjectId, Op, Tx};
use crossbeam_utils::CachePadded;

use crate::causes::POOL_WATCH;
use crate::object::{Named, StateBuilder, StateError};
use crate::share::ROW;

use shelves::{Shelf, place};

/// Deferred action: a number was popped. Argument: the number.
pub(crate) const TAKEN: u32 = 0;
/// Deferred action: a number returns at commit. Argument: the number.
pub(crate) const GIVEN: u32 = 1;
/// Deferred action: a number that this very transaction had returned was handed out again. Argument: that of the retracted action.
pub(crate) const RETAKEN: u32 = 2;

/// The recorded choice "there is none".
const NONE: u64 = u64::MAX;
/// Number of ranges that the watch object can note.
const RANGES: usize = 3;
/// Bytes per number: its location, and the number itself on a shelf.
const BYTES: usize = size_of::<AtomicU64>() + size_of::<u32>();
/// Words of the watch object.
const WATCH_WORDS: usize = 1 + RANGES;

/// How a number is returned.
#[derive(Clone, Copy)]
pub(crate) struct Giving {
    /// The operation of the structure with which the watch object is read and written.
    pub(crate) op: Op,
    /// The structure's own action, which its `apply` passes on as [`GIVEN`].
    pub(crate) action: u32,
    /// The argument of that action.
    pub(crate) argument: u64,
}

pub(crate) struct Pool {
    object: ObjectId,
    /// The operation of the structure that takes numbers.
    take: Op,
    shelves: Box<[CachePadded<Shelf>]>,
    /// Binary logarithm of the length of a row.
    row_bits: u32,
    /// Per number: 0 if it is on no shelf, else (shelf + 1) << 32 | position. Written while that shelf is locked.
    home: Box<[AtomicU64]>,
    watch: Arena,
}

/// For a structure that consists of nothing but its pool.
impl Boosted for Pool {
    fn apply(&self, worker: usize, action: u32, argument: u64, _sequence: u64) {
        match action {
            TAKEN => self.settle(worker),
            RETAKEN => {}
            _ => self.put_back(argument as u32),
        }
    }

    fn undo(&self, worker: usize, action: u32, argument: u64) {
        // A popped number returns to the shelf.
        if action == TAKEN {
            self.push(worker, argument as u32);
            self.settle(worker);
        }
    }
}

impl Pool {
    /// Creates a pool with all of `0..numbers` free and dealt to the workers; `take` is the operation of the structure that takes numbers.
    pub(crate) fn new(builder: &StateBuilder, of: &Named, take: Op, numbers: u32) -> Result<Pool, StateError> {
        let watch = builder.arena(Arena::new, of, POOL_WATCH, 1, WATCH_WORDS)?;
        builder.claim(of, numbers as usize * BYTES)?;
        let workers = builder.domain().workers();
        let home: Box<[AtomicU64]> = (0..numbers).map(|_| AtomicU64::new(0)).collect();
        // Adjacent entries, which may share a cache line, mostly belong to one worker.
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

    /// How many numbers are on the shelves; exact while nothing runs.
    pub(crate) fn free(&self) -> usize {
        self.shelves.iter().map(|shelf| shelf.available.load(Ordering::Relaxed) as usize).sum()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.home.len() * BYTES + self.watch.bytes()
    }

    /// Takes any free number.
    #[track_caller]
    pub(crate) fn take(&self, tx: &mut Tx) -> Result<Option<u32>, Conflict> {
        self.take_by(tx, 0..self.numbers(), |pool, worker| pool.pop(worker))
    }

    /// Takes `wanted` if it is free at this instant, otherwise any free number.
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

    /// Takes a free number of a range: `wanted` if it is free, otherwise the first from `hint` on.
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

    /// Takes a number that this attempt itself returns: it is free for this attempt, but for no other before the commit.
    #[cold]
    fn retake(&self, tx: &mut Tx, range: &std::ops::Range<u32>) -> Option<u32> {
        let given = |action, argument| action != TAKEN && action != RETAKEN && range.contains(&(argument as u32));
        tx.retract(self.object, given, RETAKEN).map(|argument| argument as u32)
    }

    /// Decides whether there is really no free number, after a quick search has found none.
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
            // All popped numbers return, because no other worker can commit.
            tx.wait_until_alone(|| self.has_no_limbo(worker, &self.popped()));
            let popped = self.popped();
            if !self.has_no_limbo(worker, &popped) {
                continue;
            }
            if let Some(number) = find(self, worker) {
                return Ok(self.note(tx, number));
            }
            // Otherwise another worker may just have held a matching number, in an attempt that cannot commit.
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

    /// Takes the recorded number, after checking that it is legal in the sequential state.
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

    /// Returns a number when the transaction commits.
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
}

fn range_of(word: u64) -> std::ops::Range<u32> {
    (word >> 32) as u32..word as u32
}

/// Whether any range is watched, which is rare.
#[inline(always)]
fn is_any(watched: &[u64; WATCH_WORDS]) -> bool {
    watched[1..].iter().fold(0, |all, word| all | word) != 0
}

fn ranges(watched: &[u64; WATCH_WORDS]) -> impl Iterator<Item = std::ops::Range<u32>> {
    watched[1..].iter().map(|word| range_of(*word)).filter(|range| !range.is_empty())
}
