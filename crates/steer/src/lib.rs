//! Steering: which worker processes a packet, so that every packet set stays on one core.
//!
//! Invariant: the worker is a pure function of the packet's bytes, its link kind and the port by which it came in.

#![forbid(unsafe_code)]

pub mod reta;
pub mod toeplitz;
