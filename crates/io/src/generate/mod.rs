//! Synthetic traffic: profiles with the figures of real traces, computed from a seed.
//!
//! A flow is a number. Its addresses, ports and protocol are a bijective scramble of that number, its size is a quantile of the
//! profile's distribution, and the lengths of its packets are hashes. So eight million flows cost nothing, and only flows in
//! progress are held in memory. The same seed yields the same packets for any number of queues and in every version: the random
//! numbers are our own, since those of the `rand` crate may change with an update.
//!
//! ```text
//!  sessions (which flow is next) ─▶ flow (who) ─▶ generator (how long, which flags, when) ─▶ frame (bytes)
//! ```
//!
//! Not modelled: answers that depend on what was sent, retransmission, congestion, payloads of real protocols.

mod arrivals;
mod config;
mod flow;
mod frame;
mod generator;
mod profile;
mod sessions;
mod sizes;

pub use arrivals::Arrivals;
pub use config::{Addresses, ConfigError, GenConfig, Order, Protocols, TcpStyle};
pub use generator::{Generator, GeneratorSource};
pub use profile::{Profile, UnknownProfile};
pub use sizes::{FlowSizes, FrameSizes};
