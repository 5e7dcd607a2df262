//! TL2 (Dice, Shalev, Shavit 2006): a global clock that every update commit increments, versioned locks, invisible reads.

use std::hint::black_box;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU64, fence};

use braid_memory::prefetch_write;
use crossbeam_utils::CachePadded;

use super::raw::Lines;
use super::{Engine, Index, Work};

pub struct Tl2 {
    lines: Lines,
    clock: CachePadded<AtomicU64>,
}

pub struct Worker {
    reads: Vec<u32>,
    writes: Vec<(u32, [u64; 2], u64)>,
    index: Index,
}

impl Tl2 {
    pub fn new(objects: u32) -> Tl2 {
        Tl2 { lines: Lines::new(objects), clock: CachePadded::new(AtomicU64::new(0)) }
    }

    #[inline(always)]
    fn read(&self, worker: &mut Worker, index: u32, snapshot: u64) -> Option<[u64; 2]> {
        if !worker.writes.is_empty()
            && let Some(position) = worker.index.find(index)
        {
            return Some(worker.writes[position].1);
        }
        let line = &self.lines[index as usize];
        let header = line.header.load(Acquire);
        let value = [line.words[0].load(Relaxed), line.words[1].load(Relaxed)];
        fence(Acquire);
        if header & 1 != 0 || header >> 1 > snapshot || line.header.load(Relaxed) != header {
            return None;
        }
        worker.reads.push(index);
        Some(value)
    }

    #[inline(always)]
    fn write(&self, worker: &mut Worker, index: u32, value: [u64; 2]) {
        if !worker.writes.is_empty()
            && let Some(position) = worker.index.find(index)
        {
            worker.writes[position].1 = value;
            return;
        }
        worker.index.insert(index, worker.writes.len());
        worker.writes.push((index, value, 0));
    }

    fn unlock(&self, worker: &Worker, locked: usize) -> bool {
        for (index, _, old) in &worker.writes[..locked] {
            self.lines[*index as usize].header.store(*old, Release);
        }
        false
    }

    #[inline(always)]
    fn commit(&self, worker: &mut Worker, snapshot: u64) -> bool {
        if worker.writes.is_empty() {
            return true;
        }
        for position in 0..worker.writes.len() {
            let header = &self.lines[worker.writes[position].0 as usize].header;
            let seen = header.load(Relaxed);
            if seen & 1 != 0 || header.compare_exchange(seen, seen | 1, SeqCst, Relaxed).is_err() {
                return self.unlock(worker, position);
            }
            worker.writes[position].2 = seen;
        }
        let version = self.clock.fetch_add(1, SeqCst) + 1;
        if version != snapshot + 1 {
            for index in &worker.reads {
                let header = self.lines[*index as usize].header.load(Acquire);
                let own = header & 1 != 0 && worker.index.find(*index).is_some();
                if header >> 1 > snapshot || (header & 1 != 0 && !own) {
                    return self.unlock(worker, worker.writes.len());
                }
            }
        }
        fence(Release);
        for (index, value, _) in &worker.writes {
            let line = &self.lines[*index as usize];
            line.words[0].store(value[0], Relaxed);
            line.words[1].store(value[1], Relaxed);
            line.header.store(version << 1, Release);
        }
        true
    }

    #[inline(always)]
    fn attempt(&self, worker: &mut Worker, indices: &[u32], work: Work) -> bool {
        let snapshot = self.clock.load(SeqCst);
        for index in indices {
            let Some([x, y]) = self.read(worker, *index, snapshot) else { return false };
            if work == Work::Read {
                black_box([x, y]);
            } else {
                self.write(worker, *index, [x + 1, y + x]);
            }
        }
        self.commit(worker, snapshot)
    }
}

impl Engine for Tl2 {
    const NAME: &'static str = "TL2";
    type Worker = Worker;

    fn objects(&self) -> u32 {
        self.lines.len() as u32
    }

    fn worker(&self, _thread: usize) -> Worker {
        Worker { reads: Vec::with_capacity(1024), writes: Vec::with_capacity(1024), index: Index::new() }
    }

    #[inline(always)]
    fn prefetch(&self, index: u32) {
        prefetch_write(&self.lines[index as usize]);
    }

    #[inline(never)]
    fn batch(&self, worker: &mut Worker, indices: &[u32], work: Work) {
        loop {
            let done = self.attempt(worker, indices, work);
            worker.reads.clear();
            if !worker.writes.is_empty() {
                worker.writes.clear();
                worker.index.clear();
            }
            if done {
                return;
            }
        }
    }
}
