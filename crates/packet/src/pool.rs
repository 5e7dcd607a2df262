//! The pool of buffers, and each thread's small last-in-first-out stock of buffers.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_memory::{Backing, Error, HugePages, Region};

use crate::batch::BATCH_MAX;
use crate::raw::loan::Loans;
use crate::raw::slab::{Buffer, JUMBO_STRIDE, STRIDE, Slab};

/// Free bytes in front of an arriving packet, for headers that functions prepend.
pub const HEADROOM: usize = 128;
/// Largest frame that fits an ordinary buffer, in bytes.
pub const FRAME_MAX: usize = STRIDE - HEADROOM;
/// Largest frame that fits a jumbo buffer, in bytes.
pub const JUMBO_FRAME_MAX: usize = JUMBO_STRIDE - HEADROOM;

/// Number of buffers that move between a thread's stock and the shared list at once.
const CHUNK: usize = 64;
/// Maximum number of buffers in a thread's stock.
const STOCK_MAX: usize = 8 * CHUNK;

/// Number of buffers and kind of pages.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Number of buffers for frames of up to [`FRAME_MAX`] bytes.
    pub buffers: u32,
    /// Number of buffers for frames of up to [`JUMBO_FRAME_MAX`] bytes; they take memory only once used.
    pub jumbos: u32,
    /// Kind of pages to request.
    pub pages: HugePages,
}

impl PoolConfig {
    /// Size of the ordinary buffers in bytes.
    fn bytes(&self) -> usize {
        self.buffers as usize * STRIDE
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        PoolConfig { buffers: 8192, jumbos: 512, pages: HugePages::Prefer }
    }
}

/// All buffers of a run.
#[derive(Debug)]
pub struct Pool {
    pub(crate) slab: Slab,
    id: u32,
    free: Mutex<Vec<Buffer>>,
    free_jumbo: Mutex<Vec<Buffer>>,
    exhausted: AtomicU64,
}

impl Pool {
    /// Maps the buffers.
    pub fn new(config: &PoolConfig) -> Result<Arc<Pool>, Error> {
        Pool::on(Region::new(config.bytes(), config.pages)?, config.jumbos, &[]).map(|(pool, _)| pool)
    }

    /// Maps the buffers, with the ordinary ones in shared memory that has a descriptor, so that devices can keep using them
    /// when another program takes over from this process ([`continued`](Self::continued)).
    pub fn shared(config: &PoolConfig) -> Result<Arc<Pool>, Error> {
        Pool::on(Region::shared(config.bytes(), config.pages)?, config.jumbos, &[]).map(|(pool, _)| pool)
    }

    /// Takes over the memory of another program's pool with the same number of buffers. `lent` lists, per device, the buffers
    /// that devices still hold ([`Loans::numbers`]); all others are free. Returns an error if a number is invalid or lent twice.
    pub fn continued(
        config: &PoolConfig,
        memory: OwnedFd,
        lent: &[Vec<u32>],
    ) -> Result<(Arc<Pool>, Vec<Loans>), Error> {
        Pool::on(Region::again(memory, config.bytes(), config.pages)?, config.jumbos, lent)
    }

    fn on(region: Region, jumbos: u32, lent: &[Vec<u32>]) -> Result<(Arc<Pool>, Vec<Loans>), Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let bytes = region.len();
        let (slab, mut free, free_jumbo) = Slab::new(region, jumbos)?;
        let lent = lent.iter().map(|numbers| take_out(&mut free, numbers)).collect::<Option<Vec<_>>>();
        let lent = lent.ok_or(Error::foreign(bytes))?;
        let pool = Arc::new(Pool {
            slab,
            // Relaxed: only uniqueness matters.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            free: Mutex::new(free),
            free_jumbo: Mutex::new(free_jumbo),
            exhausted: AtomicU64::new(0),
        });
        let loans = lent.into_iter().map(|lent| Loans::of(&pool, lent)).collect();
        Ok((pool, loans))
    }

    /// Returns the kind of pages that back the buffers.
    pub fn backing(&self) -> Backing {
        self.slab.region().backing()
    }

    /// Returns the descriptor of the ordinary buffers' memory, if it has one.
    pub fn memory(&self) -> Option<BorrowedFd<'_>> {
        self.slab.region().descriptor()
    }

    /// Returns how often no buffer was free when one was requested.
    pub fn exhausted(&self) -> u64 {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Returns the number of buffers on the shared lists, not counting threads' stocks; for tests and reports.
    pub fn shared_free(&self) -> usize {
        lock(&self.free).len() + lock(&self.free_jumbo).len()
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

/// Removes the buffers with these numbers from a list of all; `None` if one of them is missing.
fn take_out(all: &mut Vec<Buffer>, numbers: &[u32]) -> Option<Vec<Buffer>> {
    let mut wanted = vec![false; all.iter().map(|buffer| buffer.number() + 1).max().unwrap_or(0)];
    numbers.iter().try_for_each(|&number| {
        let place = wanted.get_mut(number as usize)?;
        (!std::mem::replace(place, true)).then_some(())
    })?;
    let taken: Vec<Buffer> = all.extract_if(.., |buffer| wanted[buffer.number()]).collect();
    (taken.len() == numbers.len()).then_some(taken)
}

fn lock(list: &Mutex<Vec<Buffer>>) -> std::sync::MutexGuard<'_, Vec<Buffer>> {
    // A panic while the lock is held cannot leave the list inconsistent: it is only pushed to and drained.
    list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One thread's stock of free buffers.
///
/// Invariant: it holds ordinary buffers of its pool only; jumbo buffers are on the shared list or in use.
#[derive(Debug)]
pub struct Buffers {
    pool: Arc<Pool>,
    stock: Vec<Buffer>,
}

impl Buffers {
    /// Creates an empty stock, which fills itself from the pool.
    pub fn new(pool: &Arc<Pool>) -> Buffers {
        Buffers { pool: Arc::clone(pool), stock: Vec::with_capacity(STOCK_MAX + BATCH_MAX) }
    }

    /// Returns the pool of the buffers.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Takes a buffer for a frame of `len` bytes; `None` (counted) if the pool is exhausted or the frame is too long.
    #[inline(always)]
    pub(crate) fn take(&mut self, len: usize) -> Option<Buffer> {
        if len > FRAME_MAX {
            return self.take_jumbo(len);
        }
        let buffer = self.ready(1).pop();
        if buffer.is_none() {
            self.note_exhausted();
        }
        buffer
    }

    /// Counts a request for which no buffer was free.
    #[cold]
    pub(crate) fn note_exhausted(&self) {
        self.pool.exhausted.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes a jumbo buffer; `None` (counted) if all are in use or the frame is too long for one.
    #[cold]
    pub(crate) fn take_jumbo(&mut self, len: usize) -> Option<Buffer> {
        let buffer = if len <= JUMBO_FRAME_MAX { lock(&self.pool.free_jumbo).pop() } else { None };
        if buffer.is_none() {
            self.note_exhausted();
        }
        buffer
    }

    /// Returns the stock with at least `count` buffers, if the pool has that many.
    #[inline(always)]
    pub(crate) fn ready(&mut self, count: usize) -> &mut Vec<Buffer> {
        if self.stock.len() < count {
            self.refill(count);
        }
        &mut self.stock
    }

    #[cold]
    fn refill(&mut self, count: usize) {
        let mut shared = lock(&self.pool.free);
        let keep = shared.len().saturating_sub(CHUNK.max(count - self.stock.len()));
        self.stock.extend(shared.drain(keep..));
    }

    /// Puts buffers of its pool back into the stock.
    #[inline(always)]
    pub(crate) fn put(&mut self, buffers: impl ExactSizeIterator<Item = Buffer>) {
        let before = self.stock.len();
        // Grow the stock first, so that the loop has no capacity check per buffer.
        self.stock.resize_with(before + buffers.len(), Buffer::default);
        self.stock[before..].iter_mut().zip(buffers).for_each(|(place, buffer)| *place = buffer);
        if self.stock[before..].iter().fold(false, |any, buffer| any | buffer.is_jumbo()) {
            self.put_jumbos(before);
        }
        if self.stock.len() > STOCK_MAX {
            self.spill();
        }
    }

    #[cold]
    fn put_jumbos(&mut self, from: usize) {
        lock(&self.pool.free_jumbo).extend(self.stock.extract_if(from.., |buffer| buffer.is_jumbo()));
    }

    #[cold]
    fn spill(&mut self) {
        // Spill the oldest buffers; the newest are still in the cache.
        lock(&self.pool.free).extend(self.stock.drain(..STOCK_MAX / 2));
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        lock(&self.pool.free).append(&mut self.stock);
    }
}
