//! What tests need: frames, a bench for functions, scenarios as text files, the Linux kernel as an oracle. Of a program that users
//! run, only `braid scenario` is made of it.
#![deny(unsafe_code)]

mod bench;
pub mod captures;
mod checksums;
mod frame;
pub mod kernel;
pub mod scenario;
pub mod skip;

pub use bench::{Bench, Outcome};
pub use checksums::{assert_checksums, check_checksums};
pub use frame::Frame;
