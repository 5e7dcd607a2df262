//! Unsafe code: system calls and prefetch instructions.
#![allow(unsafe_code)]

pub(crate) mod cycles;
pub(crate) mod region;
mod shared;
