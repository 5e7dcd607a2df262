//! The configuration of `rate_limiter`, as written in a plan file.

use std::time::Duration;

use serde::Deserialize;

use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::config::counted::Counted;
use crate::parts::config::units;
use crate::token_bucket::Limit;

/// Configuration of [`RateLimiter`](super::RateLimiter).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Rate in bytes per second; 1,250,000 if no rate is given.
    #[serde(deserialize_with = "units::rate")]
    pub bytes_per_s: Option<u64>,
    /// Burst in bytes; by default a tenth of a second's worth, but at least 10,000.
    #[serde(deserialize_with = "units::size")]
    pub burst_bytes: Option<u64>,
    /// Rate in packets per second, instead of bytes.
    pub packets_per_s: Option<u64>,
    /// Burst in packets; by default a tenth of a second's worth, but at least 10.
    pub burst_packets: Option<u64>,
    /// Idle time after which a flow is forgotten, in seconds.
    pub idle_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { bytes_per_s: None, burst_bytes: None, packets_per_s: None, burst_packets: None, idle_timeout_s: 60 }
    }
}

const BYTES_PER_S_DEFAULT: u64 = 1_250_000;

impl Config {
    /// The limit, and whether it counts packets instead of bytes.
    pub(super) fn limit(&self) -> Result<(Limit, bool), ConfigError> {
        let Some(packets) = self.packets_per_s else {
            if self.burst_packets.is_some() {
                let instead = "add `packets_per_s`, or write `burst_bytes`";
                return Err(ConfigError::new("burst_packets", "there is no `packets_per_s`", instead));
            }
            let bytes = self.bytes_per_s.unwrap_or(BYTES_PER_S_DEFAULT);
            let burst = self.burst_bytes.unwrap_or(Limit::usual_burst(bytes, 10_000));
            let limit = Limit::new("bytes_per_s", bytes, "burst_bytes", burst)?;
            return Counted::default().check_burst("burst_bytes", burst).map(|()| (limit, false));
        };
        if self.bytes_per_s.is_some() || self.burst_bytes.is_some() {
            let instead = "keep either the keys with bytes or those with packets; two functions in a row do both";
            return Err(ConfigError::new("packets_per_s", "packets and bytes are limited at once", instead));
        }
        let burst = self.burst_packets.unwrap_or(Limit::usual_burst(packets, 10));
        Ok((Limit::new("packets_per_s", packets, "burst_packets", burst)?, true))
    }

    pub(super) fn idle_timeout_ns(&self, limit: &Limit) -> Result<u64, ConfigError> {
        let least = Duration::from_nanos(limit.timeout_ns());
        span_ns("idle_timeout_s", Duration::from_secs(self.idle_timeout_s), least, IDLE_MAX)
    }
}
