//! What the tests share.
#![allow(dead_code)]

use std::sync::Arc;

use braid_state::{Domain, HugePages, StateBuilder, Tx};

/// A domain and a builder for it.
pub fn builder(workers: usize) -> (Arc<Domain>, StateBuilder) {
    let domain = Domain::new(workers);
    let builder = StateBuilder::new(&domain, HugePages::Never);
    (domain, builder)
}

/// Commits; there is nobody to conflict with.
pub fn commit(tx: &mut Tx) {
    tx.commit().expect("one worker meets no conflict");
}
