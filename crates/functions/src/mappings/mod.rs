//! Endpoints of many inside hosts on few external ones: what the translators [`nat`](crate::nat) and [`nat64`](crate::nat64) have in common.
//!
//! Mapping is endpoint-independent (RFC 4787 section 4.1): an inside endpoint has one external endpoint for all its peers. That shared
//! state is in `table.rs`, and `new.rs` makes mappings; `ports.rs` knows which ports are taken, `hosts.rs` which ports a host may have (with
//! its blocks in `claim.rs`, `reclaim.rs` and `block_log.rs`), `pool.rs` the external addresses and `roster.rs` their numbers, `fixed.rs` the
//! configured mappings, `networks.rs` the inside networks, `filter.rs` who may send to a mapping, and `flows.rs` and `session.rs` what a
//! packet set remembers of its mapping.

mod block_log;
pub(crate) mod census;
pub(crate) mod config;
pub(crate) mod describe;
pub(crate) mod endpoint;
pub(crate) mod filter;
pub(crate) mod fixed;
pub(crate) mod flows;
pub(crate) mod for_router;
pub(crate) mod hosts;
pub(crate) mod networks;
pub(crate) mod pool;
mod ports;
mod roster;
pub(crate) mod session;
pub(crate) mod table;

pub(crate) use config::Config;
