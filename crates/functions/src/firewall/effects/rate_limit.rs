//! How often a rule may match: `limit rate 5/second burst 10 packets`, `limit rate over 10 mbytes/second`, as in
//! nftables.
//!
//! This is an exact token bucket: a packet costs as many units as the period has seconds, and each second as many units
//! flow in as packets or bytes are allowed per period. `over` inverts the condition: the rule matches what exceeds the
//! rate.

use serde::Deserialize;

use crate::config::ConfigError;
use crate::token_bucket::{BURST_MAX, Limit};

/// A rate in packets or bytes per period, with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Often {
    amount: u64,
    period_s: u32,
    burst: u64,
    pub(in crate::firewall) over: bool,
    pub(in crate::firewall) in_bytes: bool,
    /// The cost in units of a packet, or of each of its bytes.
    price: u32,
}

/// nftables' default burst, in packets.
const BURST: u64 = 5;
const PERIODS: [(&str, u32); 5] =
    [("second", 1), ("minute", 60), ("hour", 3600), ("day", 24 * 3600), ("week", 7 * 24 * 3600)];
const UNITS: [(&str, u64); 3] = [("bytes", 1), ("kbytes", 1 << 10), ("mbytes", 1 << 20)];

/// Parses a number of bytes, such as `25` and `mbytes`.
pub(in crate::firewall) fn bytes(number: &str, unit: &str) -> Option<u64> {
    let (_, bytes) = UNITS.iter().find(|(known, _)| *known == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*bytes)
}

impl Often {
    /// The cost of a packet of `len` bytes, in units of the bucket.
    pub(in crate::firewall) fn cost(&self, len: u32) -> u32 {
        if self.in_bytes { len.saturating_mul(self.price) } else { self.price }
    }

    /// The limit of the bucket. One for bytes holds the amount of one period plus the burst; of rates from 4 GB a second on,
    /// as much as a bucket may hold.
    pub(in crate::firewall) fn limit(&self) -> Result<Limit, ConfigError> {
        let (rate, burst) = match self.in_bytes {
            false => (self.amount, self.burst.saturating_mul(self.period_s.into())),
            true => {
                let most = self.amount.saturating_add(self.burst).saturating_mul(self.price.into());
                let is_fast = self.period_s == 1 && self.burst <= BURST_MAX;
                (self.amount / u64::from(self.period_s / self.price), if is_fast { most.min(BURST_MAX) } else { most })
            }
        };
        Limit::slow("limit", rate, "limit", burst).map_err(|_| {
            let instead = match self.amount {
                0 => "write a rate of at least 1",
                _ => "write a smaller burst, from 1 on, or the rate by a shorter period: a bucket has no room for that much at once",
            };
            ConfigError::new("limit", format!("`{self}` is not possible"), instead)
        })
    }
}

/// The greatest common divisor of a rate and its period, which is not 0.
fn common(amount: u64, period_s: u32) -> u32 {
    let (mut one, mut other) = (amount, u64::from(period_s));
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one as u32
}

impl std::str::FromStr for Often {
    type Err = String;

    /// Parses `5/second`, `over 10/minute`, `5/second burst 20`, `10 mbytes/second burst 100 kbytes`.
    fn from_str(text: &str) -> Result<Often, String> {
        let wrong = || format!("`{text}` is no rate, expected 5/second, 10/minute burst 20 or 10 mbytes/second");
        let mut words = text.split_whitespace().peekable();
        let over = words.next_if_eq(&"over").is_some();
        let number = words.next().ok_or_else(wrong)?;
        let unit = if number.contains('/') { number } else { words.next().ok_or_else(wrong)? };
        let (unit, period) = unit.split_once('/').ok_or_else(wrong)?;
        let period_s = PERIODS.iter().find(|(name, _)| *name == period).ok_or_else(wrong)?.1;
        let in_bytes = !number.contains('/');
        let amount = if in_bytes { bytes(number, unit) } else { unit.parse().ok() };
        let burst = match (words.next(), in_bytes) {
            (None, in_bytes) => Some(if in_bytes { 0 } else { BURST }),
            (Some("burst"), false) => words.next().and_then(|burst| burst.parse::<u32>().ok()).map(u64::from),
            (Some("burst"), true) => words.next().and_then(|burst| bytes(burst, words.next()?)),
            _ => None,
        };
        if !in_bytes {
            words.next_if_eq(&"packets");
        }
        let (amount, burst) = amount.zip(burst).ok_or_else(wrong)?;
        // For bytes, rate and period are divided by their greatest common divisor, which keeps buckets small.
        let price = if in_bytes { period_s / common(amount, period_s) } else { period_s };
        let often = Often { amount, period_s, burst, over, in_bytes, price };
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
        let Often { amount, burst, .. } = self;
        let period = PERIODS.iter().find(|(_, seconds)| *seconds == self.period_s).map_or("?", |(name, _)| name);
        let over = if self.over { "over " } else { "" };
        match self.in_bytes {
            false => write!(f, "{over}{amount}/{period} burst {burst} packets"),
            true => write!(f, "{over}{amount} bytes/{period} burst {burst} bytes"),
        }
    }
}
