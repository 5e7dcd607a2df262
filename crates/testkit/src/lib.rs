//! What tests need: oracles, builders, scenarios. Nothing here is part of a program that users run.
#![deny(unsafe_code)]

pub mod kernel;
pub mod skip;
