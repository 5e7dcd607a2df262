//! The configuration of `asset_monitor`, as written in a plan file.

use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use super::Traffic;
use crate::config::{ConfigError, span_ns};
use crate::parts::Prefix;
use crate::parts::config::prefix::private;

/// Configuration of [`AssetMonitor`](super::AssetMonitor).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address ranges of the network whose hosts are listed.
    pub home: Vec<Prefix>,
    /// Capacity of the list of hosts.
    pub hosts_max: u32,
    /// Capacity of the list of services.
    pub services_max: u32,
    /// How far the time of a host's last packet may lag behind, in milliseconds.
    pub refresh_ms: u32,
    /// Idle time after which a session ends, in seconds.
    pub idle_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { home: private(), hosts_max: 65_536, services_max: 65_536, refresh_ms: 1000, idle_timeout_s: 120 }
    }
}

impl Config {
    /// The network whose hosts are listed; it must have at least one range.
    pub(super) fn home(self) -> Result<Vec<Prefix>, ConfigError> {
        match self.home.is_empty() {
            true => Err(ConfigError::new("home", "names no range", "write for example home = [\"10.0.0.0/8\"]")),
            false => Ok(self.home),
        }
    }

    pub(super) fn refresh_ms(&self) -> Result<u32, ConfigError> {
        let refresh = Duration::from_millis(self.refresh_ms.into());
        span_ns("refresh_ms", refresh, Duration::ZERO, Duration::from_secs(3600)).map(|_| self.refresh_ms)
    }

    pub(super) fn traffic(&self, builder: &mut StateBuilder) -> Result<Distributed<Traffic>, ConfigError> {
        let config = DistributedConfig { name: "traffic".into(), staleness_ns: 0 };
        let traffic = Distributed::new(builder, &config, Traffic::default());
        traffic.map_err(|error| ConfigError::state("hosts_max", &error))
    }
}
