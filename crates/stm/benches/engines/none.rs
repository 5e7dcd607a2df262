//! No protection at all: the cost of the work itself.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;

use braid_memory::prefetch_write;

use super::raw::Lines;
use super::{Engine, Work};

pub struct None {
    lines: Lines,
}

impl None {
    pub fn new(objects: u32) -> None {
        None { lines: Lines::new(objects) }
    }
}

impl Engine for None {
    const NAME: &'static str = "none";
    type Worker = ();

    fn objects(&self) -> u32 {
        self.lines.len() as u32
    }

    fn worker(&self, _thread: usize) {}

    #[inline(always)]
    fn prefetch(&self, index: u32) {
        prefetch_write(&self.lines[index as usize]);
    }

    #[inline(never)]
    fn batch(&self, _worker: &mut (), indices: &[u32], work: Work) {
        for index in indices {
            let [a, b] = &self.lines[*index as usize].words;
            let (x, y) = (a.load(Relaxed), b.load(Relaxed));
            black_box((x, y));
            if work != Work::Read {
                a.store(x + 1, Relaxed);
                b.store(y + x, Relaxed);
            }
        }
    }
}
