//! An allocator's image: for each resource that was ever leased its number, its generation and the time of its last use.
//!
//! Generations of free resources are kept too, so that an old lease that is still stored somewhere does not become valid again.

use std::sync::atomic::Ordering;

use braid_stm::Tx;

use super::{PER_LINE, Shared};
use crate::image::{Image, ImageError, Reader, put};

impl Image for Shared {
    fn save(&self) -> Vec<u8> {
        let mut image = Vec::new();
        let mut line = [0; PER_LINE as usize];
        for index in 0..self.pool.numbers() {
            if index % PER_LINE == 0 {
                self.leases.snapshot(index / PER_LINE, &mut line);
            }
            let word = line[(index % PER_LINE) as usize];
            if word != 0 {
                let tick = self.stamps[index as usize].load(Ordering::SeqCst);
                put(&mut image, u64::from(index));
                put(&mut image, word);
                put(&mut image, tick.saturating_sub(1) << self.tick_shift);
            }
        }
        image
    }

    /// Restores the leases; resources that no longer exist must have been free.
    fn restore(&self, tx: &mut Tx, image: &[u8]) -> Result<(), ImageError> {
        let mut reader = Reader::new(&self.named.name, image);
        let mut line = [0; PER_LINE as usize];
        while !reader.is_empty() {
            let (index, word, used_ns) = (reader.word()?, reader.word()?, reader.word()?);
            let leased = word & 1 == 1;
            if word >> 33 != 0 {
                return Err(reader.wrong(format!("resource {index} has no possible generation")));
            }
            if index >= u64::from(self.pool.numbers()) {
                if leased {
                    let most = self.pool.numbers();
                    return Err(reader.wrong(format!("resource {index} is leased, and there are only {most} now")));
                }
                continue;
            }
            let index = index as u32;
            if leased {
                if !self.pool.remove(tx.worker(), index) {
                    return Err(reader.wrong(format!("resource {index} is leased twice")));
                }
                self.stamps[index as usize].store(self.tick(used_ns), Ordering::SeqCst);
            }
            self.leases.snapshot(index / PER_LINE, &mut line);
            line[(index % PER_LINE) as usize] = word;
            self.leases.initialise(index / PER_LINE, &line);
        }
        Ok(())
    }
}
