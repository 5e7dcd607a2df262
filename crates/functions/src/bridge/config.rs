//! What a plan file may say about `bridge`.

use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, MapConfig, VectorConfig};
use braid_nf::{Plain, Port};
use serde::Deserialize;

use super::Events;
use super::station::{Entry, Station, WrittenMac};
use crate::config::{ConfigError, check_port, span_ns};

/// Configuration of [`Bridge`](super::Bridge).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Most stations in the table.
    pub capacity: u32,
    /// Seconds after which a station that sends nothing is forgotten.
    pub ageing_s: u64,
    /// Milliseconds between two notes that a station is still there; 0: every frame is noted.
    pub refresh_interval_ms: u64,
    /// Whether each VLAN has its own stations.
    pub vlan_aware: bool,
    /// Stations that are known from the start, and stay where they are.
    #[serde(rename = "static")]
    pub stations: Vec<StationConfig>,
}

impl Default for Config {
    fn default() -> Config {
        Config { capacity: 65_536, ageing_s: 300, refresh_interval_ms: 1000, vlan_aware: true, stations: Vec::new() }
    }
}

/// A station that is known from the start.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationConfig {
    /// Its address.
    pub mac: WrittenMac,
    /// Where it is.
    pub port: Port,
    /// Its VLAN; 0: untagged.
    #[serde(default)]
    pub vlan: u16,
}

/// The same, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticStation {
    /// Its address and VLAN.
    pub station: Station,
    /// Where it is.
    pub port: Port,
}

braid_nf::plain!(StaticStation);

/// IEEE 802.1D table 7-5.
const AGEING: std::ops::RangeInclusive<u64> = 10..=1_000_000;

impl Config {
    /// The refresh interval, and the age at which an entry is no longer believed: a station that sends just more often than
    /// the ageing time may have been noted one interval before it was last seen.
    pub(super) fn times_ns(&self) -> Result<(u64, u64), ConfigError> {
        let (least, most) = (Duration::from_secs(*AGEING.start()), Duration::from_secs(*AGEING.end()));
        let ageing = Duration::from_secs(self.ageing_s);
        let ageing_ns = span_ns("ageing_s", ageing, least, most)?;
        let refresh = Duration::from_millis(self.refresh_interval_ms);
        let refresh_ns = span_ns("refresh_interval_ms", refresh, Duration::ZERO, ageing)?;
        Ok((refresh_ns, ageing_ns + refresh_ns))
    }

    pub(super) fn table(&self, builder: &mut StateBuilder) -> Result<Map<Station, Entry>, ConfigError> {
        let config = MapConfig { name: "stations".into(), capacity: self.capacity, ..MapConfig::default() };
        Map::new(builder, &config).map_err(|error| ConfigError::state("capacity", &error))
    }

    /// A single shared number.
    pub(super) fn word<T: Plain + Default>(
        &self,
        builder: &mut StateBuilder,
        name: &str,
    ) -> Result<Vector<T>, ConfigError> {
        let config = VectorConfig { name: name.into(), len: 1 };
        Vector::new(builder, &config, T::default()).map_err(|error| ConfigError::state("capacity", &error))
    }

    pub(super) fn events(&self, builder: &mut StateBuilder) -> Result<Distributed<Events>, ConfigError> {
        let config = DistributedConfig { name: "events".into(), staleness_ns: 1_000_000_000 };
        let events = Distributed::new(builder, &config, Events::default());
        events.map_err(|error| ConfigError::state("capacity", &error))
    }

    /// So that the whole table is swept in a quarter of the ageing time, `entries` at a time.
    pub(super) fn sweep_period(&self, entries: u32) -> Duration {
        let steps = self.capacity.div_ceil(entries).max(1);
        (Duration::from_secs(self.ageing_s) / 4 / steps).max(Duration::from_millis(1))
    }

    pub(super) fn checked_stations(&self, ports: u16) -> Result<Vec<StaticStation>, ConfigError> {
        if self.stations.len() > self.capacity as usize {
            let reason = format!("{} stations do not fit a table of {}", self.stations.len(), self.capacity);
            return Err(ConfigError::new("static", reason, "write a larger `capacity`"));
        }
        let checked = self.stations.iter().map(|written| {
            check_port("static.port", written.port, ports)?;
            if written.mac.0.is_group() {
                let reason = format!("{} is a group address", written.mac.0);
                return Err(ConfigError::new("static.mac", reason, "write the address of one station"));
            }
            if written.vlan > 4094 || (written.vlan > 0 && !self.vlan_aware) {
                let reason = format!("VLAN {} is not possible", written.vlan);
                let instead = "write 0 (untagged) to 4094, and only 0 with `vlan_aware = false`";
                return Err(ConfigError::new("static.vlan", reason, instead));
            }
            Ok(StaticStation { station: Station::new(written.mac.0, written.vlan), port: written.port })
        });
        checked.collect()
    }
}
