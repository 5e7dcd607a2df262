//! What a plan file may say about `shaper`.

use braid_nf::Port;
use serde::Deserialize;

use super::wheel::WAIT_MAX_NS;
use crate::config::{ConfigError, check_port};
use crate::parts::SECOND;
use crate::policer::By;
use crate::token_bucket::Limit;

/// Configuration of [`Shaper`](super::Shaper).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bytes a second to one address.
    pub bytes_per_s: u64,
    /// Bytes that pass at once; a tenth of a second's worth, at least 2000, if not given.
    pub burst_bytes: Option<u64>,
    /// Bytes that wait for one address; a tenth of a second's worth, at least 20,000 or seven seconds' worth, if
    /// not given.
    pub queue_bytes: Option<u64>,
    /// Packets that wait, for all addresses together.
    pub queue_packets: u32,
    /// Which address is shaped.
    pub by: By,
    /// Shape only packets that come in by this port; none: all.
    pub from_port: Option<Port>,
    /// What all addresses together may have.
    pub link: Option<Link>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            bytes_per_s: 12_500_000,
            burst_bytes: None,
            queue_bytes: None,
            queue_packets: 4096,
            by: By::Destination,
            from_port: None,
            link: None,
        }
    }
}

/// A rate for all addresses together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Bytes a second.
    pub bytes_per_s: u64,
    /// Bytes at once.
    pub burst_bytes: u64,
}

impl Config {
    pub(super) fn limit(&self) -> Result<Limit, ConfigError> {
        let burst = self.burst_bytes.unwrap_or((self.bytes_per_s / 10).max(2000));
        Limit::new("bytes_per_s", self.bytes_per_s, "burst_bytes", burst)
    }

    pub(super) fn link_limit(&self) -> Result<Option<Limit>, ConfigError> {
        let limit = |link: Link| Limit::new("link.bytes_per_s", link.bytes_per_s, "link.burst_bytes", link.burst_bytes);
        self.link.map(limit).transpose()
    }

    /// How long a packet may have to wait for its address: as long as a full queue takes.
    pub(super) fn wait_max_ns(&self) -> Result<u64, ConfigError> {
        let rate = u128::from(self.bytes_per_s.max(1));
        let default = (self.bytes_per_s / 10).max(20_000).min(self.bytes_per_s.saturating_mul(7));
        let bytes = self.queue_bytes.unwrap_or(default);
        let wait = u128::from(bytes) * u128::from(SECOND) / rate;
        if wait > u128::from(WAIT_MAX_NS) {
            let reason = format!("at {rate} a second a queue of {bytes} bytes takes longer than seven seconds");
            let most = rate * u128::from(WAIT_MAX_NS) / u128::from(SECOND);
            return Err(ConfigError::new("queue_bytes", reason, format!("write at most {most}")));
        }
        Ok(wait as u64)
    }

    pub(super) fn checked_port(&self, ports: u16) -> Result<Option<Port>, ConfigError> {
        self.from_port.map(|port| check_port("from_port", port, ports)).transpose()
    }
}
