//! What a plan file may say about `policer`.

use braid_nf::Port;
use serde::Deserialize;

use crate::config::{ConfigError, check_port};
use crate::token_bucket::Limit;

/// Configuration of [`Policer`](super::Policer).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes a second to one address.
    pub bytes_per_s: u64,
    /// Bytes at once to one address.
    pub burst_bytes: u64,
    /// Police only packets that come in by this port; none: all.
    pub from_port: Option<Port>,
}

impl Default for Config {
    fn default() -> Config {
        Config { bytes_per_s: 12_500_000, burst_bytes: 1_250_000, from_port: None }
    }
}

impl Config {
    pub(super) fn limit(&self) -> Result<Limit, ConfigError> {
        Limit::new("bytes_per_s", self.bytes_per_s, "burst_bytes", self.burst_bytes)
    }

    pub(super) fn checked_port(&self, ports: u16) -> Result<Option<Port>, ConfigError> {
        self.from_port.map(|port| check_port("from_port", port, ports)).transpose()
    }
}
