//! What tests need: frames, a bench for functions, the Linux kernel as an oracle. Nothing here is part of a program that users run.
#![deny(unsafe_code)]

mod bench;
pub mod captures;
mod frame;
pub mod kernel;
pub mod skip;

pub use bench::{Bench, Outcome};
pub use frame::{Frame, assert_checksums};
