//! The configuration of `anti_ddos`, as written in a plan file.

use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;
use serde::Deserialize;

use super::Sources;
use super::cookies::{CookieConfig, Tally};
use crate::config::{ConfigError, idle_ns, share, span_ns};
use crate::parts::Lengths;
use crate::token_bucket::Limit;

/// The default number of flows that each source may begin per second.
const FLOWS_PER_S: u64 = 1;
const SOURCES_MAX: u32 = 65_536;

/// What happens to a flow that begins under attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Its first packet is dropped, and a repeated one is let in, as an honest client sends it. A flood that repeats each
    /// SYN is let in too.
    #[default]
    Drop,
    /// It passes, and the attack is only counted.
    Pass,
    /// Each source may begin a limited number of flows; the others are dropped.
    Limit,
    /// It passes with another DSCP code point, so that devices behind can give it the lowest priority.
    Mark,
    /// The SYN is answered with a cookie; the connection is opened when the client returns the cookie.
    Cookies,
}

braid_nf::plain!(Action);

/// Configuration of [`AntiDdos`](super::AntiDdos).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The share of flows with a single packet above which there is an attack.
    pub threshold: f64,
    /// The number of live flows below which there is no attack.
    pub flows_min: u32,
    /// What happens to a flow that begins under attack.
    pub action: Action,
    /// For `limit`: the flows that each source may begin per second under attack.
    pub flows_per_s: Option<u64>,
    /// For `limit`: the flows that it may begin at once; by default one second's worth.
    pub flows_burst: Option<u64>,
    /// For `limit`: the capacity of the table of sources; a source that finds no room may begin no flow.
    pub sources_max: Option<u32>,
    /// For `limit`: prefix lengths of the address ranges that are one source.
    pub prefix: Option<Lengths>,
    /// For `mark`: the code point.
    pub dscp: Option<u8>,
    /// For `cookies`: their parameters and the hosts they protect.
    pub cookies: Option<CookieConfig>,
    /// The maximum age of other workers' counters, in microseconds; 0: always current.
    pub staleness_us: u64,
    /// Idle time after which a flow ends, in seconds.
    pub idle_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            threshold: 0.8,
            flows_min: 100,
            action: Action::Drop,
            flows_per_s: None,
            flows_burst: None,
            sources_max: None,
            prefix: None,
            dscp: None,
            cookies: None,
            staleness_us: 0,
            idle_timeout_s: 60,
        }
    }
}

impl Config {
    pub(super) fn threshold(&self) -> Result<f64, ConfigError> {
        share("threshold", self.threshold)
    }

    /// The table of sources, if sources are limited.
    pub(super) fn sources(&self, builder: &mut StateBuilder) -> Result<Option<Sources>, ConfigError> {
        if self.action != Action::Limit {
            let given = [
                ("flows_per_s", self.flows_per_s.is_some()),
                ("flows_burst", self.flows_burst.is_some()),
                ("sources_max", self.sources_max.is_some()),
                ("prefix", self.prefix.is_some()),
            ];
            return match given.iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(ConfigError::new(key, "no source is limited", "write `action = \"limit\"`")),
                None => Ok(None),
            };
        }
        let rate = self.flows_per_s.unwrap_or(FLOWS_PER_S);
        let limit = Limit::new("flows_per_s", rate, "flows_burst", self.flows_burst.unwrap_or(rate))?;
        let lengths = self.prefix.unwrap_or_default().check("prefix")?;
        let sources = Sources::new(builder, (limit, lengths), self.sources_max.unwrap_or(SOURCES_MAX));
        sources.map(Some).map_err(|error| ConfigError::state("sources_max", &error))
    }

    pub(super) fn dscp(&self) -> Result<u8, ConfigError> {
        match (self.action, self.dscp) {
            (Action::Mark, Some(dscp @ 0..=63)) => Ok(dscp),
            (Action::Mark, Some(dscp)) => {
                Err(ConfigError::new("dscp", format!("{dscp} is no code point"), "write 0 to 63"))
            }
            (Action::Mark, None) => {
                Err(ConfigError::new("dscp", "missing for `mark`", "write a code point, such as 8"))
            }
            (_, Some(_)) => Err(ConfigError::new("dscp", "nothing is marked", "write `action = \"mark\"`")),
            (_, None) => Ok(0),
        }
    }

    /// The configuration of cookies, or its defaults.
    pub(super) fn cookies(&self) -> CookieConfig {
        self.cookies.clone().unwrap_or_default()
    }

    /// Checks that `cookies` is not configured if no cookies are sent.
    pub(super) fn without_cookies(&self) -> Result<(), ConfigError> {
        match self.cookies {
            Some(_) => Err(ConfigError::new("cookies", "no cookies are sent", "write `action = \"cookies\"`")),
            None => Ok(()),
        }
    }

    pub(super) fn counters<T: Plain + Default>(
        &self,
        builder: &mut StateBuilder,
    ) -> Result<Distributed<T>, ConfigError> {
        let most = Duration::from_secs(3600);
        let staleness = Duration::from_micros(self.staleness_us);
        let staleness_ns = span_ns("staleness_us", staleness, Duration::ZERO, most)?;
        let config = DistributedConfig { name: "counters".into(), staleness_ns };
        let counters = Distributed::new(builder, &config, T::default());
        counters.map_err(|error| ConfigError::state("staleness_us", &error))
    }

    pub(super) fn tally(&self, builder: &mut StateBuilder) -> Result<Distributed<Tally>, ConfigError> {
        let config = DistributedConfig { name: "cookies".into(), staleness_ns: 0 };
        let tally = Distributed::new(builder, &config, Tally::default());
        tally.map_err(|error| ConfigError::state("action", &error))
    }

    pub(super) fn idle_timeout_ns(&self) -> Result<u64, ConfigError> {
        idle_ns("idle_timeout_s", self.idle_timeout_s)
    }
}
