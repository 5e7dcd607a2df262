//! How often a rule fits: `limit rate 5/second burst 10 packets`, as nftables has it.
//!
//! A token bucket, exact: a packet costs as many units as the period has seconds, and as many units as packets are allowed in
//! a period flow in every second. `over` turns it round: the rule fits what comes beyond the rate.

use serde::Deserialize;

use crate::config::ConfigError;
use crate::token_bucket::Limit;

/// So many packets in a period, some of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Often {
    packets: u32,
    period_s: u32,
    burst: u32,
    pub(super) over: bool,
}

/// What nftables takes for the burst if none is given.
const BURST: u32 = 5;
const PERIODS: [(&str, u32); 5] =
    [("second", 1), ("minute", 60), ("hour", 3600), ("day", 24 * 3600), ("week", 7 * 24 * 3600)];

impl Often {
    /// What a packet takes out of the bucket.
    pub(super) fn cost(&self) -> u32 {
        self.period_s
    }

    /// The bucket's.
    pub(super) fn limit(&self) -> Result<Limit, ConfigError> {
        let burst = u64::from(self.burst) * u64::from(self.period_s);
        let checked = Limit::slow("limit", self.packets.into(), "limit", burst);
        checked.map_err(|_| {
            let instead = "write a rate of at least 1 and a smaller burst, from 1 on";
            ConfigError::new("limit", format!("`{self}` is not possible"), instead)
        })
    }
}

impl std::str::FromStr for Often {
    type Err = String;

    /// `5/second`, `over 10/minute`, `5/second burst 20`, `5/second burst 20 packets`.
    fn from_str(text: &str) -> Result<Often, String> {
        let wrong = || format!("`{text}` is no rate of packets, expected 5/second or 10/minute burst 20");
        let mut words = text.split_whitespace().peekable();
        let over = words.next_if_eq(&"over").is_some();
        let (packets, period) = words.next().and_then(|rate| rate.split_once('/')).ok_or_else(wrong)?;
        let period = PERIODS.iter().find(|(name, _)| *name == period).ok_or_else(wrong)?;
        let burst = match words.next() {
            Some("burst") => words.next().and_then(|burst| burst.parse().ok()).ok_or_else(wrong)?,
            Some(_) => return Err(wrong()),
            None => BURST,
        };
        words.next_if_eq(&"packets");
        let often = Often { packets: packets.parse().map_err(|_| wrong())?, period_s: period.1, burst, over };
        match (words.next(), often.limit()) {
            (None, Ok(_)) => Ok(often),
            (None, Err(error)) => {
                Err(format!("{}, expected {}", error.reason, error.instead.trim_start_matches("write ")))
            }
            _ => Err(wrong()),
        }
    }
}

impl TryFrom<String> for Often {
    type Error = String;

    fn try_from(text: String) -> Result<Often, String> {
        text.parse()
    }
}

impl std::fmt::Display for Often {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let period = PERIODS.iter().find(|(_, seconds)| *seconds == self.period_s).map_or("?", |(name, _)| name);
        let over = if self.over { "over " } else { "" };
        write!(f, "{over}{}/{period} burst {} packets", self.packets, self.burst)
    }
}
