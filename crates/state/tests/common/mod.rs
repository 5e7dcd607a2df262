//! What the tests share.
#![allow(dead_code, reason = "each test uses a part")]

pub mod scheduler;

use std::sync::Arc;

use braid_state::{Domain, HugePages, StateBuilder, Tx};

/// A domain and a builder for it.
pub fn builder(workers: usize) -> (Arc<Domain>, StateBuilder) {
    let domain = Domain::new(workers);
    let builder = StateBuilder::new(&domain, HugePages::Never);
    (domain, builder)
}

/// Commits when there is no other worker to conflict with.
pub fn commit(tx: &mut Tx) {
    tx.commit().expect("one worker meets no conflict");
}

/// xorshift64*: reproducible by its seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }
}
