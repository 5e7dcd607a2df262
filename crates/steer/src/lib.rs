//! Steering: which worker processes a packet, so that every packet set stays on one core.
//!
//! The steps from a chain to a worker: what each function's sets consist of ([`pattern`]) · which fields to hash for all of them
//! ([`planner`], [`udp_ports`]) · whether a NIC can do so ([`nic`], [`checker`], [`blind`]) · hash ([`toeplitz`]) and indirection table ([`reta`]) ·
//! all together a [`Steering`], which a source calls to split its queues, or a [`Dispatcher`] to fill the workers' rings ([`ring`]).
//!
//! Invariant: the worker is a pure function of the packet's bytes, its link type and the port on which it arrived. So the queues of a source
//! and the rings of a dispatcher distribute packets in the same way.
//!
//! Not here: devices (this crate configures none), transactions, and the handling of state that is not local.

#![forbid(unsafe_code)]

pub mod blind;
pub mod checker;
pub mod fields;
pub mod nic;
pub mod pattern;
pub mod planner;
pub mod reta;
pub mod ring;
pub mod steering;
pub mod toeplitz;
pub mod udp_ports;

pub use checker::{Fit, Verdict, check};
pub use fields::Fields;
pub use nic::Nic;
pub use pattern::Pattern;
pub use planner::{Candidate, HashPlan, Locality, Member, plan};
pub use reta::Reta;
pub use ring::{DispatchCounters, Dispatcher, Inlet, WhenFull};
pub use steering::{Steering, SteeringError, Symmetry};
pub use toeplitz::{Key, Toeplitz};
pub use udp_ports::{UdpChoice, UdpPorts};
