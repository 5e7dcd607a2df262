//! The configuration of `flow_counter`, as written in a plan file.

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use super::Totals;
use crate::config::{ConfigError, idle_ns};

/// Configuration of [`FlowCounter`](super::FlowCounter).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Whether both directions are one flow.
    pub symmetric: bool,
    /// Idle time after which a flow ends, in seconds; 0: never.
    pub idle_timeout_s: u64,
    /// Whether to keep sums over all flows.
    pub totals: bool,
}

impl Config {
    pub(super) fn idle_timeout_ns(&self) -> Result<u64, ConfigError> {
        match self.idle_timeout_s {
            0 => Ok(u64::MAX),
            s => idle_ns("idle_timeout_s", s),
        }
    }

    pub(super) fn totals(&self, builder: &mut StateBuilder) -> Result<Option<Distributed<Totals>>, ConfigError> {
        if !self.totals {
            return Ok(None);
        }
        let config = DistributedConfig { name: "totals".into(), staleness_ns: 1_000_000_000 };
        let totals = Distributed::new(builder, &config, Totals::default());
        totals.map(Some).map_err(|error| ConfigError::state("totals", &error))
    }
}
