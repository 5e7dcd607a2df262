//! The configuration of `heavy_hitters`, as written in a plan file.

use std::time::Duration;

use serde::Deserialize;

use super::By;
use super::sketch::CELLS;
use crate::config::{ConfigError, span_ns};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// Bytes of whole frames, as on the wire.
    Bytes,
    /// Packets.
    Packets,
}

braid_nf::plain!(Count);

impl Count {
    pub(super) fn name(self) -> &'static str {
        if self == Count::Bytes { "bytes" } else { "packets" }
    }
}

/// Configuration of [`HeavyHitters`](super::HeavyHitters).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The subjects to count.
    pub by: By,
    /// What to count.
    pub count: Count,
    /// The amount in one interval that makes a heavy hitter; 12,500,000 bytes or 10,000 packets by default.
    pub threshold: Option<u64>,
    /// Length of an interval, in milliseconds.
    pub interval_ms: u64,
    /// Rows of the sketch: each makes a large error less likely.
    pub rows: u32,
    /// Columns of the sketch: more columns make the error smaller.
    pub columns: u32,
    /// How many heavy hitters the report has room for.
    pub hitters_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        let (by, count) = (By::Source, Count::Bytes);
        Config { by, count, threshold: None, interval_ms: 1000, rows: 4, columns: 24_576, hitters_max: 4096 }
    }
}

impl Config {
    pub(super) fn threshold(&self) -> Result<u64, ConfigError> {
        let default = if self.count == Count::Bytes { 12_500_000 } else { 10_000 };
        match self.threshold.unwrap_or(default) {
            0 => Err(ConfigError::new("threshold", "everybody reaches 0", "write a number of at least 1")),
            threshold => Ok(threshold),
        }
    }

    pub(super) fn interval_ns(&self) -> Result<u64, ConfigError> {
        let (least, most) = (Duration::from_millis(1), Duration::from_secs(86_400));
        span_ns("interval_ms", Duration::from_millis(self.interval_ms), least, most)
    }

    /// Rows and columns, the latter rounded up to whole lines.
    pub(super) fn size(&self) -> Result<(u32, u32), ConfigError> {
        if !(1..=8).contains(&self.rows) {
            let reason = format!("a sketch of {} rows is not possible", self.rows);
            return Err(ConfigError::new("rows", reason, "write 1 to 8"));
        }
        if !(1..=1 << 26).contains(&self.columns) {
            let reason = format!("a sketch of {} columns is not possible", self.columns);
            return Err(ConfigError::new("columns", reason, format!("write 1 to {}", 1 << 26)));
        }
        Ok((self.rows, self.columns.next_multiple_of(CELLS)))
    }
}
