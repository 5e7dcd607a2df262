//! Steering: which worker processes a packet, so that every packet set stays on one core.
//!
//! Invariant: the worker is a pure function of the packet's bytes, its link kind and the port by which it came in; so
//! the queues of a source and the rings of a dispatcher distribute packets alike.
//!
//! Not here: devices (this crate configures none), transactions, and what becomes of state that is not local.

#![forbid(unsafe_code)]

pub mod blind;
pub mod checker;
pub mod fields;
pub mod nic;
pub mod pattern;
pub mod planner;
pub mod reta;
pub mod toeplitz;

pub use checker::{Fit, Verdict, check};
pub use fields::Fields;
pub use nic::Nic;
pub use pattern::Pattern;
pub use planner::{Candidate, HashPlan, Locality, Member, plan};
pub use reta::Reta;
pub use toeplitz::{Key, Toeplitz};
