//! The algorithms that are compared. TL2 and two-phase locking are written as carefully as ours where it matters: header in
//! the object's line, buffered writes with an index, no allocation per transaction.

mod lazy;
mod locks;
mod none;
mod raw;
mod tl2;

pub use lazy::Lazy;
pub use locks::Locks;
pub use none::None;
pub use tl2::Tl2;

use std::sync::atomic::AtomicU64;

/// Work done per packet.
#[derive(Clone, Copy, PartialEq)]
pub enum Work {
    Read,
    Update,
    UpdateThree,
}

impl Work {
    pub fn objects(self) -> usize {
        if self == Work::UpdateThree { 3 } else { 1 }
    }

    pub fn name(self) -> &'static str {
        match self {
            Work::Read => "read one",
            Work::Update => "update one",
            Work::UpdateThree => "update three",
        }
    }
}

/// An algorithm that runs the packets of a batch as one transaction.
pub trait Engine: Sync {
    const NAME: &'static str;
    type Worker;
    fn objects(&self) -> u32;
    fn worker(&self, thread: usize) -> Self::Worker;
    fn prefetch(&self, index: u32);
    /// Retries until the batch has committed.
    fn batch(&self, worker: &mut Self::Worker, indices: &[u32], work: Work);
}

/// Header and payload, for the engines other than ours.
#[derive(Default)]
#[repr(C, align(64))]
pub struct Line {
    pub header: AtomicU64,
    pub words: [AtomicU64; 2],
}

/// Positions of written objects in a write log, cleared by an epoch.
pub struct Index {
    slots: Vec<(u32, u32, u32)>,
    epoch: u32,
}

impl Index {
    pub fn new() -> Index {
        Index { slots: vec![(0, 0, 0); 1024], epoch: 1 }
    }

    #[inline(always)]
    fn home(object: u32) -> usize {
        (object.wrapping_mul(0x9E37_79B9) >> 22) as usize
    }

    #[inline(always)]
    pub fn find(&self, object: u32) -> Option<usize> {
        let mut at = Index::home(object);
        while self.slots[at].1 == self.epoch {
            if self.slots[at].0 == object {
                return Some(self.slots[at].2 as usize);
            }
            at = (at + 1) & 1023;
        }
        Option::None
    }

    #[inline(always)]
    pub fn insert(&mut self, object: u32, position: usize) {
        let mut at = Index::home(object);
        while self.slots[at].1 == self.epoch {
            at = (at + 1) & 1023;
        }
        self.slots[at] = (object, self.epoch, position as u32);
    }

    #[inline(always)]
    pub fn clear(&mut self) {
        self.epoch += 1;
    }
}
