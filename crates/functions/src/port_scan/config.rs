//! The configuration of `port_scan`, as written in a plan file.

use std::time::Duration;

use serde::Deserialize;

use super::Thresholds;
use crate::config::{ConfigError, IDLE_MAX, idle_ns, share, span_ns};
use crate::parts::NS_PER_MS;

/// What happens to connections that a scanner opens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// They pass, and the scanner is reported.
    #[default]
    Pass,
    /// They are dropped.
    Drop,
}

braid_nf::plain!(Action);

/// Configuration of [`PortScan`](super::PortScan).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Share of an honest host's first contacts that succeed.
    pub honest_success: f64,
    /// Share of a scanner's first contacts that succeed.
    pub scanner_success: f64,
    /// Acceptable share of honest hosts that are taken for scanners.
    pub false_alarms: f64,
    /// Acceptable share of scanners that are missed.
    pub misses: f64,
    /// Time after which an incomplete handshake has failed, in milliseconds.
    pub answer_ms: u32,
    /// Time for which a scanner is taken for one, and time without a packet after which a host is forgotten, in seconds.
    pub forget_s: u64,
    /// Time for which a host that has proved honest is not tested again, in seconds.
    pub honest_s: u64,
    /// What happens to connections that a scanner opens.
    pub action: Action,
    /// How many scanners the report has room for.
    pub alerts_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            honest_success: 0.8,
            scanner_success: 0.2,
            false_alarms: 0.01,
            misses: 0.01,
            answer_ms: 1000,
            forget_s: 3600,
            honest_s: 0,
            action: Action::Pass,
            alerts_max: 4096,
        }
    }
}

impl Config {
    pub(super) fn thresholds(&self) -> Result<Thresholds, ConfigError> {
        for (key, value) in [
            ("honest_success", self.honest_success),
            ("scanner_success", self.scanner_success),
            ("false_alarms", self.false_alarms),
            ("misses", self.misses),
        ] {
            share(key, value)?;
        }
        if self.scanner_success >= self.honest_success {
            let reason = format!("{} is not below `honest_success`", self.scanner_success);
            return Err(ConfigError::new("scanner_success", reason, "write a smaller number, such as 0.2"));
        }
        if !(1..=600_000).contains(&self.answer_ms) {
            let reason = format!("{} is out of range", self.answer_ms);
            return Err(ConfigError::new("answer_ms", reason, "write 1 to 600000"));
        }
        let honest_ns = span_ns("honest_s", Duration::from_secs(self.honest_s), Duration::ZERO, IDLE_MAX)?;
        let thousandths = |ratio: f64| (ratio.ln() * 1000.0).round() as i32;
        Ok(Thresholds {
            up: thousandths((1.0 - self.scanner_success) / (1.0 - self.honest_success)),
            down: thousandths(self.scanner_success / self.honest_success),
            scanner: thousandths((1.0 - self.misses) / self.false_alarms).max(1),
            honest: thousandths(self.misses / (1.0 - self.false_alarms)).min(-1),
            scanner_ms: (idle_ns("forget_s", self.forget_s)? / NS_PER_MS) as u32,
            honest_ms: (honest_ns / NS_PER_MS) as u32,
            answer_ms: self.answer_ms,
        })
    }
}
