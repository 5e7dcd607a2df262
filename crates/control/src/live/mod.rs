//! Operates a run while packets pass through: observes it, queries it and changes it.
//!
//! ```text
//!  braid top, stats, sets, trace, apply … ─▶ socket ─▶ Service ─▶ runtime::Live ─▶ workers, between two batches
//!  Prometheus, browser ─────────────────▶ http ──┘
//! ```
//!
//! [`Service`] answers [`Request`]s and knows no transport. [`socket`] carries them as lines of JSON over a
//! Unix socket that only its owner may open. Input from either transport is untrusted: sizes are limited,
//! and invalid input yields an error answer, never a crash.

pub mod apply;
pub mod client;
pub mod configure;
pub mod entries;
pub mod http;
mod interfaces;
pub mod knowledge;
pub mod links;
mod listener;
pub mod metrics;
pub mod protocol;
mod seat;
pub mod service;
pub mod sets;
pub mod snapshot;
pub mod socket;
pub mod stats;
pub mod trace;

pub use apply::{Applied, Current};
pub use client::{Client, ClientError};
pub use configure::Configured;
pub use entries::Entries;
pub use knowledge::{Knowledge, Told};
pub use protocol::{Continued, Refused, Request};
pub use service::{Service, Successor};
pub use sets::Listing;
pub use snapshot::Snapshot;
pub use stats::Stats;
pub use trace::TraceReport;
