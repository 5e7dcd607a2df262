//! What a plan file may say about `anti_ddos`.

use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use super::Counters;
use crate::config::{ConfigError, IDLE_MAX, span_ns};

/// What becomes of a flow that begins under attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Its first packet is dropped; one that comes again, as an honest client's does, is let in.
    #[default]
    Drop,
    /// It passes, and the attack is only counted.
    Pass,
}

braid_nf::plain!(Action);

/// Configuration of [`AntiDdos`](super::AntiDdos).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Share of flows with a single packet above which there is an attack.
    pub threshold: f64,
    /// Fewer live flows than this are no attack.
    pub flows_min: u32,
    /// What becomes of a flow that begins under attack.
    pub action: Action,
    /// How old other workers' counters may be, in microseconds; 0: the latest.
    pub staleness_us: u64,
    /// Seconds without a packet after which a flow ends.
    pub idle_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { threshold: 0.8, flows_min: 100, action: Action::Drop, staleness_us: 0, idle_timeout_s: 60 }
    }
}

impl Config {
    pub(super) fn threshold(&self) -> Result<f64, ConfigError> {
        if self.threshold > 0.0 && self.threshold < 1.0 {
            return Ok(self.threshold);
        }
        let reason = format!("{} is no share of flows", self.threshold);
        Err(ConfigError::new("threshold", reason, "write a number between 0 and 1, such as 0.8"))
    }

    pub(super) fn counters(&self, builder: &mut StateBuilder) -> Result<Distributed<Counters>, ConfigError> {
        let most = Duration::from_secs(3600);
        let staleness = Duration::from_micros(self.staleness_us);
        let staleness_ns = span_ns("staleness_us", staleness, Duration::ZERO, most)?;
        let config = DistributedConfig { name: "counters".into(), staleness_ns };
        let counters = Distributed::new(builder, &config, Counters::default());
        counters.map_err(|error| ConfigError::state("staleness_us", &error))
    }

    pub(super) fn idle_timeout_ns(&self) -> Result<u64, ConfigError> {
        span_ns("idle_timeout_s", Duration::from_secs(self.idle_timeout_s), Duration::from_secs(1), IDLE_MAX)
    }
}
