//! Atomics: those of std, or those of loom under `--cfg loom`.
//!
//! The protocol relies on the single total order of `SeqCst` operations. loom treats `SeqCst` loads and stores as acquire and
//! release and honours that order only for fences, so the model adds a fence where the real code relies on its operations.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// Marks where two `SeqCst` operations of one thread must not be reordered; a fence under loom, otherwise nothing.
#[inline(always)]
pub(crate) fn model_fence() {
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// Waits briefly: spins at first, then yields the processor.
pub(crate) fn pause(round: u32) {
    #[cfg(loom)]
    {
        let _ = round;
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    if round < 64 { std::hint::spin_loop() } else { std::thread::yield_now() }
}
