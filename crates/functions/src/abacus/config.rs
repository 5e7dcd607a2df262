//! The configuration of `abacus`, as written in a plan file.

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use crate::config::ConfigError;
use crate::parts::Prefix;
use crate::parts::config::prefix::private;

/// What happens to a retransmitted segment with different bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It passes, is charged and is reported.
    #[default]
    Charge,
    /// It is dropped, and also charged and reported.
    Drop,
}

/// Configuration of [`Abacus`](super::Abacus).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address ranges of subscribers.
    pub subscribers: Vec<Prefix>,
    /// Capacity of the table of accounts.
    pub subscribers_max: u32,
    /// What happens to a retransmitted segment with different bytes.
    pub action: Action,
    /// Idle time after which a session ends and is added to its account, in seconds.
    pub idle_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { subscribers: private(), subscribers_max: 65_536, action: Action::Charge, idle_timeout_s: 300 }
    }
}

impl Config {
    pub(super) fn drops(&self) -> bool {
        self.action == Action::Drop
    }

    pub(super) fn unaccounted(&self, builder: &mut StateBuilder) -> Result<Distributed<u64>, ConfigError> {
        let config = DistributedConfig { name: "unaccounted".into(), staleness_ns: 0 };
        Distributed::new(builder, &config, 0).map_err(|error| ConfigError::state("subscribers_max", &error))
    }
}
