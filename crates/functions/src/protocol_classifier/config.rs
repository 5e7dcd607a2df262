//! The configuration of `protocol_classifier`, as written in a plan file.

use serde::Deserialize;

use crate::config::ConfigError;

/// Configuration of [`ProtocolClassifier`](super::ProtocolClassifier).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Packets with payload to examine before the port decides.
    pub packets_max: u8,
    /// Idle time after which a session ends, in seconds.
    pub idle_timeout_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { packets_max: 8, idle_timeout_s: 120 }
    }
}

impl Config {
    pub(super) fn looks(&self) -> Result<u8, ConfigError> {
        match self.packets_max {
            0 => Err(ConfigError::new("packets_max", "no packet is looked at", "write 1 to 255")),
            looks => Ok(looks),
        }
    }
}
