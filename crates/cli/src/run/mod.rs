//! What accompanies a run: its operation from outside, saved state, the program that continues it, signals and interfaces.

pub(super) mod hash_seed;
pub(super) mod interfaces;
pub mod notify;
pub mod operate;
pub mod panics;
pub(super) mod saving;
pub(super) mod successor;
pub mod watch;
