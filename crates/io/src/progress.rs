//! The progress of a run, as numbers that another thread may display.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`Progress`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of the input files, as stored on disk.
    Bytes,
    /// Packets.
    Packets,
}

/// How much is done, and of what total. All accesses are relaxed, because the numbers are only displayed.
#[derive(Debug)]
pub struct Progress {
    unit: Unit,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Starts with nothing done and an unknown total.
    pub fn new(unit: Unit) -> Progress {
        Progress { unit, done: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// The unit of the counts.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// How much is done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// The total, if it is known.
    pub fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Relaxed)).filter(|&total| total != 0)
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    pub(crate) fn add(&self, more: u64) {
        self.done.fetch_add(more, Ordering::Relaxed);
    }
}
