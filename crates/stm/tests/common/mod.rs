//! Shared parts of the tests.
#![allow(dead_code, reason = "each test uses a part")]

use std::sync::Arc;

use braid_stm::{Arena, ArenaInit, Conflict, Domain, HugePages, ObjectInfo, Part, Tx};

/// Creates an arena that belongs to a structure of its own.
pub fn arena(domain: &Arc<Domain>, objects: u32, payload_words: usize) -> Arena {
    let object = domain.register(ObjectInfo { name: "test".into(), kind: "Test" });
    let init = ArenaInit { object, part: Part(0), objects, payload_words, pages: HugePages::Never };
    Arena::new(domain, init).expect("a small arena fits")
}

/// Runs a body until it commits; returns the number of attempts.
pub fn retry(tx: &mut Tx, mut body: impl FnMut(&mut Tx) -> Result<(), Conflict>) -> u32 {
    let mut attempts = 1;
    while body(tx).and_then(|()| tx.commit().map(drop)).is_err() {
        tx.abort();
        attempts += 1;
    }
    attempts
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
