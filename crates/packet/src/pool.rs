//! The pool of buffers and each thread's small last-in-first-out stock of it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_memory::{Backing, Error, HugePages};

use crate::raw::slab::{JUMBO, JUMBO_STRIDE, STRIDE, Slab};

/// Free bytes before a packet when it comes in, for headers that functions push in front.
pub const HEADROOM: usize = 128;
/// Largest frame that an ordinary buffer holds.
pub const FRAME_MAX: usize = STRIDE - HEADROOM;
/// Largest frame of all.
pub const JUMBO_FRAME_MAX: usize = JUMBO_STRIDE - HEADROOM;

/// Buffers that move between a thread's stock and the shared list at once.
const CHUNK: usize = 64;

/// How many buffers and on which pages.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Buffers of [`FRAME_MAX`] bytes.
    pub buffers: u32,
    /// Buffers of [`JUMBO_FRAME_MAX`] bytes; they cost memory only when used.
    pub jumbos: u32,
    /// Which pages to ask for.
    pub pages: HugePages,
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
    free: Mutex<Vec<u32>>,
    free_jumbo: Mutex<Vec<u32>>,
    exhausted: AtomicU64,
}

impl Pool {
    /// Maps the buffers.
    pub fn new(config: &PoolConfig) -> Result<Arc<Pool>, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let slab = Slab::new(config.buffers, config.jumbos, config.pages)?;
        Ok(Arc::new(Pool {
            slab,
            // Relaxed: only uniqueness matters.
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            free: Mutex::new((0..config.buffers).rev().collect()),
            free_jumbo: Mutex::new((0..config.jumbos).rev().map(|n| n | JUMBO).collect()),
            exhausted: AtomicU64::new(0),
        }))
    }

    /// Which pages the buffers lie on.
    pub fn backing(&self) -> Backing {
        self.slab.backing()
    }

    /// How often a buffer was wanted and none was free.
    pub fn exhausted(&self) -> u64 {
        self.exhausted.load(Ordering::Relaxed)
    }

    /// Buffers on the shared list (not those in threads' stocks); for tests and reports.
    pub fn shared_free(&self) -> usize {
        lock(&self.free).len() + lock(&self.free_jumbo).len()
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }
}

fn lock(list: &Mutex<Vec<u32>>) -> std::sync::MutexGuard<'_, Vec<u32>> {
    // A panic while the list is held cannot leave it half changed: pushes and drains of plain numbers only.
    list.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One thread's stock of free buffers.
#[derive(Debug)]
pub struct Buffers {
    pool: Arc<Pool>,
    stock: Vec<u32>,
}

impl Buffers {
    /// An empty stock; it fills itself from the pool.
    pub fn new(pool: &Arc<Pool>) -> Buffers {
        Buffers { pool: Arc::clone(pool), stock: Vec::with_capacity(4 * CHUNK) }
    }

    /// The pool behind it.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Takes a buffer for a frame of `len` bytes; none if the pool is used up (counted) or the frame is too long.
    #[inline(always)]
    pub(crate) fn take(&mut self, len: usize) -> Option<u32> {
        if len > FRAME_MAX {
            return self.take_jumbo(len);
        }
        match self.stock.pop() {
            Some(buffer) => Some(buffer),
            None => self.refill(),
        }
    }

    #[cold]
    fn take_jumbo(&mut self, len: usize) -> Option<u32> {
        let buffer = if len <= JUMBO_FRAME_MAX { lock(&self.pool.free_jumbo).pop() } else { None };
        if buffer.is_none() {
            self.pool.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        buffer
    }

    #[cold]
    fn refill(&mut self) -> Option<u32> {
        let mut shared = lock(&self.pool.free);
        let keep = shared.len().saturating_sub(CHUNK);
        self.stock.extend(shared.drain(keep..));
        drop(shared);
        let buffer = self.stock.pop();
        if buffer.is_none() {
            self.pool.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        buffer
    }

    /// Gives a buffer back.
    #[inline(always)]
    pub(crate) fn put(&mut self, buffer: u32) {
        if buffer & JUMBO != 0 {
            lock(&self.pool.free_jumbo).push(buffer);
            return;
        }
        self.stock.push(buffer);
        if self.stock.len() >= 8 * CHUNK {
            self.spill();
        }
    }

    #[cold]
    fn spill(&mut self) {
        // The oldest go: the newest are the ones still in the cache.
        lock(&self.pool.free).extend(self.stock.drain(..4 * CHUNK));
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        lock(&self.pool.free).append(&mut self.stock);
    }
}
