//! Unsafe code: system calls and prefetch instructions.

pub(crate) mod cycles;
pub(crate) mod region;
mod shared;
