//! What runs tell about a chain: certificates of sequential equivalence.
//!
//! Plain data and its rendering; who runs what and compares is in `control`.
#![forbid(unsafe_code)]

pub mod certificate;

pub use certificate::{Certificate, Outcome, PacketDifference, Run, Schedule, Violation};
