//! An allocator from outside its operations: stamps and pools at the end of a transaction, and content for reports and snapshots.

use std::sync::atomic::{AtomicU64, Ordering};

use braid_stm::Boosted;
use zerocopy::IntoBytes;

use super::{EXPIRED, Lease, PER_LINE, Shared};
use crate::object::{Named, StateObject};
use crate::pool::{RETAKEN, TAKEN};

impl Boosted for Shared {
    fn check(&self, action: u32, argument: u64) -> bool {
        // SeqCst, with the lease locked: pairs with the SeqCst accesses to the stamp in `refresh`.
        let stamp = || self.stamps[argument as u32 as usize].load(Ordering::SeqCst);
        action != EXPIRED || stamp() as u32 == (argument >> 32) as u32
    }

    fn apply(&self, worker: usize, action: u32, argument: u64, _sequence: u64) {
        let index = argument as u32;
        let stamp = &self.stamps[index as usize];
        if matches!(action, TAKEN | RETAKEN) {
            // Another worker may already have refreshed the lease since it was published.
            stamp.fetch_max(self.tick(self.workers[worker].now_ns.load(Ordering::Relaxed)), Ordering::SeqCst);
            if action == TAKEN {
                self.pool.settle(worker);
            }
            return;
        }
        // Before the resource can be handed out again.
        stamp.store(0, Ordering::SeqCst);
        self.pool.put_back(index);
    }

    fn undo(&self, worker: usize, action: u32, argument: u64) {
        self.pool.undo(worker, action, argument);
    }
}

impl StateObject for Shared {
    fn named(&self) -> &Named {
        &self.named
    }

    fn capacity(&self) -> usize {
        self.pool.numbers() as usize
    }

    fn len(&self) -> usize {
        self.capacity() - self.pool.free()
    }

    fn memory_bytes(&self) -> usize {
        self.leases.bytes() + self.stamps.len() * size_of::<AtomicU64>() + self.pool.memory_bytes()
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut line = [0; PER_LINE as usize];
        for index in 0..self.pool.numbers() {
            if index % PER_LINE == 0 {
                self.leases.snapshot(index / PER_LINE, &mut line);
            }
            let word = line[(index % PER_LINE) as usize];
            if word & 1 == 1 {
                bytes.extend_from_slice(Lease { index, generation: (word >> 1) as u32 }.as_bytes());
            }
        }
        bytes
    }
}
