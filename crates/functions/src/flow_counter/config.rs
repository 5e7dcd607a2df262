//! What a plan file may say about `flow_counter`.

use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use super::Totals;
use crate::config::{ConfigError, IDLE_MAX, span_ns};

/// Configuration of [`FlowCounter`](super::FlowCounter).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Join both directions into one flow.
    pub symmetric: bool,
    /// Seconds without a packet after which a flow ends; 0: never.
    pub idle_timeout_s: u64,
    /// Keep sums over all flows.
    pub totals: bool,
}

impl Config {
    pub(super) fn idle_timeout_ns(&self) -> Result<u64, ConfigError> {
        match self.idle_timeout_s {
            0 => Ok(u64::MAX),
            s => span_ns("idle_timeout_s", Duration::from_secs(s), Duration::from_secs(1), IDLE_MAX),
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
