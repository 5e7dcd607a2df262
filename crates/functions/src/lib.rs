//! Ready-made network functions, one folder each, and the catalogue that names them.
//!
//! A function's folder has `mod.rs`, the handlers, sequential and short; `config.rs`, its configuration as written in a plan
//! file; `tests.rs`, its tests; and `README.md`: what it does, its limits, and what it does not do. Larger functions have more
//! files. `parts` is what several functions share. Plan files and the command line look
//! functions up in the [`catalog()`]. Functions know nothing of workers, queues or files.
#![forbid(unsafe_code)]

pub mod abacus;
pub mod anti_ddos;
pub mod asset_monitor;
pub mod bridge;
pub mod catalog;
mod config;
pub mod connection_limiter;
pub mod dns_tunnel;
pub mod firewall;
pub mod flow_counter;
pub mod forward;
pub mod heavy_hitters;
pub mod load_balancer;
mod mappings;
pub mod nat;
pub mod nat64;
pub mod nptv6;
pub mod parts;
pub mod policer;
pub mod port_scan;
pub mod protocol_classifier;
pub mod rate_limiter;
pub mod router;
pub mod shaper;
pub mod sidejacking;
pub mod token_bucket;

pub use catalog::{Entry, FromConfig, Split, UnknownFunction, catalog, find};
pub use config::{ConfigError, parse};

/// Compiles and runs what the page for authors shows.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-function.md")]
mod writing_a_function {}
