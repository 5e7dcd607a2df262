//! What a plan file may say about `forward`.

use serde::Deserialize;

/// Configuration of [`Forward`](super::Forward).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Exchange Ethernet source and destination.
    pub swap_mac: bool,
    /// Count one hop off the time to live or hop limit; packets that have none left are dropped.
    pub ttl: bool,
}
