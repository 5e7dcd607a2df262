//! Replaces an allocator by one with another number of resources or another precision: leases keep their resource, generation and the time of
//! their last use.

use std::sync::atomic::Ordering;

use braid_stm::Arena;

use super::{PER_LINE, Shared};
use crate::image::ImageError;
use crate::object::StateObject;
use crate::succession::{Brought, Succeed, check, checked};

impl Succeed for Shared {
    /// The lines of leases.
    fn elements(&self) -> &Arena {
        &self.leases
    }

    fn check(&self, former: &dyn StateObject) -> Result<(), ImageError> {
        check(self, former, |_: &Shared| true)
    }

    fn bring(&self, former: &dyn StateObject, line: u32) -> Brought {
        let former: &Shared = checked(former);
        let (mut words, mut own) = ([0; PER_LINE as usize], [0; PER_LINE as usize]);
        former.leases.snapshot(line, &mut words);
        let first = line * PER_LINE;
        let (here, beyond) = words.split_at(self.pool.numbers().saturating_sub(first).min(PER_LINE) as usize);
        let mut differs = false;
        if !here.is_empty() {
            self.leases.snapshot(line, &mut own);
            for ((resource, word), own) in (first..).zip(here).zip(&mut own) {
                differs |= self.bring_lease(former, resource, (*own, *word));
                *own = *word;
            }
            self.leases.initialise(line, &own);
        }
        match beyond.iter().any(|word| word & 1 == 1) {
            true => Brought::Beyond,
            false if differs => Brought::Whole,
            false => Brought::Nothing,
        }
    }
}

impl Shared {
    /// Updates the free numbers and the time of last use to match a lease's word; returns whether anything differed.
    fn bring_lease(&self, former: &Shared, resource: u32, (before, word): (u64, u64)) -> bool {
        match (before & 1 == 1, word & 1 == 1) {
            (false, true) => {
                let is_free = self.pool.remove(0, resource);
                assert!(is_free, "resource {resource} was free");
            }
            (true, false) => self.pool.put_back(resource),
            _ => {}
        }
        let at = resource as usize;
        // Read after the lease: a worker that refreshes a lease notes the change afterwards and copies it again.
        let used = former.stamps.get(at).map_or(0, |stamp| stamp.load(Ordering::SeqCst));
        let stamp = if word & 1 == 1 { self.tick(used.saturating_sub(1) << former.tick_shift) } else { 0 };
        self.stamps[at].swap(stamp, Ordering::SeqCst) != stamp || before != word
    }
}
