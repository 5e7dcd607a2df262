//! What a plan file may say about `abacus`.

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use crate::config::ConfigError;
use crate::parts::Prefix;
use crate::parts::prefix::private;

/// What becomes of a repeated segment with other bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It passes, is charged and reported.
    #[default]
    Charge,
    /// It is dropped, besides.
    Drop,
}

/// Configuration of [`Abacus`](super::Abacus).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Addresses of subscribers.
    pub subscribers: Vec<Prefix>,
    /// Subscribers that there is room for.
    pub subscribers_max: u32,
    /// What becomes of a repeated segment with other bytes.
    pub action: Action,
    /// Seconds without a packet after which a session ends and is written to its account.
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
