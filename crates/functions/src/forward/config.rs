//! The configuration of `forward`, as written in a plan file.

use serde::Deserialize;

/// Configuration of [`Forward`](super::Forward).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether to exchange Ethernet source and destination.
    pub swap_mac: bool,
    /// Whether to decrement the TTL or hop limit, and drop packets whose limit is exhausted.
    pub ttl: bool,
}
