//! How far a run is, as numbers that another thread may draw.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a [`Progress`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes of the input files, as they lie on disk.
    Bytes,
    /// Packets.
    Packets,
}

/// Done, of how much. All accesses are relaxed: the numbers are for people.
#[derive(Debug)]
pub struct Progress {
    unit: Unit,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// Nothing done, of an unknown total.
    pub fn new(unit: Unit) -> Progress {
        Progress { unit, done: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    /// What is counted.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// How much is done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Of how much, if that is known.
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
