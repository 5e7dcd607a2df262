//! What tests need: frames, a bench for functions, scenarios as text files, and the Linux kernel as an oracle. Of the user's
//! commands, only `braid scenario`, `braid study cost` and `braid nf firewall` use it.
#![deny(unsafe_code)]

mod bench;
pub mod captures;
mod checksums;
pub mod cost;
mod frame;
pub mod kernel;
pub mod scenario;
pub mod skip;

pub use bench::{Bench, Outcome};
pub use checksums::{assert_checksums, check_checksums};
pub use frame::Frame;
