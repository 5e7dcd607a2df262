//! Two-phase locking: every object is locked at its first access and unlocked at the end. Readers lock too, so a read-only
//! batch writes every line that it reads. Meeting a held lock aborts, since waiting could deadlock.

use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use braid_memory::prefetch_write;

use super::raw::Lines;
use super::{Engine, Work};

pub struct Locks {
    lines: Lines,
}

/// Objects locked, with their earlier values.
pub struct Worker {
    id: u64,
    held: Vec<(u32, [u64; 2])>,
}

impl Locks {
    pub fn new(objects: u32) -> Locks {
        Locks { lines: Lines::new(objects) }
    }

    #[inline(always)]
    fn attempt(&self, worker: &mut Worker, indices: &[u32], work: Work) -> bool {
        for index in indices {
            let line = &self.lines[*index as usize];
            let holder = line.header.load(Relaxed);
            if holder != worker.id {
                if holder != 0 || line.header.compare_exchange(0, worker.id, Acquire, Relaxed).is_err() {
                    return false;
                }
                worker.held.push((*index, [line.words[0].load(Relaxed), line.words[1].load(Relaxed)]));
            }
            let (x, y) = (line.words[0].load(Relaxed), line.words[1].load(Relaxed));
            if work == Work::Read {
                black_box([x, y]);
            } else {
                line.words[0].store(x + 1, Relaxed);
                line.words[1].store(y + x, Relaxed);
            }
        }
        true
    }
}

impl Engine for Locks {
    const NAME: &'static str = "two-phase locks";
    type Worker = Worker;

    fn objects(&self) -> u32 {
        self.lines.len() as u32
    }

    fn worker(&self, thread: usize) -> Worker {
        Worker { id: thread as u64 + 1, held: Vec::with_capacity(1024) }
    }

    #[inline(always)]
    fn prefetch(&self, index: u32) {
        prefetch_write(&self.lines[index as usize]);
    }

    #[inline(never)]
    fn batch(&self, worker: &mut Worker, indices: &[u32], work: Work) {
        loop {
            let done = self.attempt(worker, indices, work);
            for (index, before) in worker.held.drain(..).rev() {
                let line = &self.lines[index as usize];
                if !done {
                    line.words[0].store(before[0], Relaxed);
                    line.words[1].store(before[1], Relaxed);
                }
                line.header.store(0, Release);
            }
            if done {
                return;
            }
        }
    }
}
