//! The configuration of `bridge` in a plan file.

use std::time::Duration;

use braid_nf::packet::MacAddress;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, MapConfig, VectorConfig};
use braid_nf::{Plain, Port};
use foldhash::HashSet;
use serde::Deserialize;

use super::Events;
use super::quota::VlanConfig;
use super::snooping::SnoopingConfig;
use super::station::{Entry, Station};
use super::storm::StormConfig;
use super::vlans::{PORTS_MAX, Vlans};
use crate::config::{ConfigError, check_port, span_ns};
use crate::parts::WrittenMac;
use crate::parts::headers::tags::VLAN_MAX;

/// Configuration of [`Bridge`](super::Bridge).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The most stations in the table.
    pub capacity: u32,
    /// Seconds after which a station that sends nothing is forgotten.
    pub ageing_s: u64,
    /// Milliseconds between two updates of the time at which a station was last seen; 0: every frame updates it.
    pub refresh_interval_ms: u64,
    /// Whether each VLAN has its own stations.
    pub vlan_aware: bool,
    /// Static stations, which are known from the start and never move.
    #[serde(rename = "static")]
    pub stations: Vec<StationConfig>,
    /// VLANs of ports, and what else they are for. With the VLANs of at least one of them VLANs are filtered; other ports carry VLAN 1 without tags.
    #[serde(rename = "port")]
    pub ports: Vec<PortConfig>,
    /// Limits of individual VLANs.
    #[serde(rename = "vlan")]
    pub vlans: Vec<VlanConfig>,
    /// Limits of flooding.
    pub storm: StormConfig,
    /// Whether frames for groups are sent only to the ports that want them.
    pub snooping: Option<SnoopingConfig>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity: 65_536,
            ageing_s: 300,
            refresh_interval_ms: 1000,
            vlan_aware: true,
            stations: Vec::new(),
            ports: Vec::new(),
            vlans: Vec::new(),
            storm: StormConfig::default(),
            snooping: None,
        }
    }
}

/// The VLANs of a port, and what else it is for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortConfig {
    /// The port.
    pub port: Port,
    /// Its only VLAN, carried untagged.
    pub access: Option<u16>,
    /// The VLANs that it carries tagged: numbers and ranges such as `10`, `20-29`.
    #[serde(default)]
    pub trunk: Vec<WrittenVlans>,
    /// The VLAN of a trunk that is carried untagged; `None`: untagged frames are dropped.
    pub native: Option<u16>,
    /// Whether it sends to no other port of which the same is said.
    pub isolated: Option<bool>,
    /// Whether it is noted who sends by it.
    pub learning: Option<bool>,
    /// Whether frames for stations that are not known are flooded to it.
    pub flood: Option<bool>,
    /// Whether frames for groups are.
    pub mcast_flood: Option<bool>,
    /// Whether frames for all are.
    pub bcast_flood: Option<bool>,
    /// The most stations learnt at it; static ones do not count.
    pub stations_max: Option<u32>,
}

/// VLANs of a trunk: `10`, `"10"` or `"20-29"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "no VLAN: write one such as 10, or a range such as \"20-29\"")]
pub enum WrittenVlans {
    /// A single VLAN.
    One(u32),
    /// A single VLAN or a range, as text.
    Text(String),
}

/// A static station.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StationConfig {
    /// Its address.
    pub mac: WrittenMac,
    /// Its port.
    pub port: Port,
    /// Its VLAN; 0: untagged.
    #[serde(default)]
    pub vlan: u16,
}

/// A static station, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticStation {
    /// Its address and VLAN.
    pub station: Station,
    /// Its port.
    pub port: Port,
}

braid_nf::plain!(StaticStation);

/// IEEE 802.1D table 7-5.
const AGEING: std::ops::RangeInclusive<u64> = 10..=1_000_000;

impl Config {
    /// The refresh interval, and the age at which an entry is no longer trusted. The latter includes one refresh interval: a
    /// station that sends just more often than the ageing time may have been recorded one interval before it was last seen.
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

    /// Creates a state object that holds a single value.
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

    /// The sweep period with which the whole table is swept in a quarter of the ageing time, `entries` at a time.
    pub(super) fn sweep_period(&self, entries: u32) -> Duration {
        let steps = self.capacity.div_ceil(entries).max(1);
        (Duration::from_secs(self.ageing_s) / 4 / steps).max(Duration::from_millis(1))
    }

    pub(super) fn checked_stations(&self, ports: u16) -> Result<Vec<StaticStation>, ConfigError> {
        if self.stations.len() > self.capacity as usize {
            let reason = format!("{} stations do not fit a table of {}", self.stations.len(), self.capacity);
            return Err(ConfigError::new("static", reason, "write a larger `capacity`"));
        }
        let filter = self.filter(ports)?;
        let station = |written: &StationConfig| {
            check_port("static.port", written.port, ports)?;
            let wrong = match written.mac.0 {
                group if group.is_group() => Some(format!("{group} is a group address")),
                none if none == MacAddress::default() => Some(format!("{none} is nobody's address")),
                _ => None,
            };
            if let Some(reason) = wrong {
                return Err(ConfigError::new("static.mac", reason, "write the address of one station"));
            }
            self.check_vlan("static.vlan", written.vlan)?;
            if filter.as_ref().is_some_and(|filter| !filter.has(written.vlan, written.port)) {
                let reason = format!("port {} does not carry VLAN {}", written.port, written.vlan);
                return Err(ConfigError::new("static.vlan", reason, "write a VLAN of its `[[port]]`, or another port"));
            }
            Ok(StaticStation { station: Station::new(written.mac.0, written.vlan), port: written.port })
        };
        let mut known = HashSet::default();
        let mut once = |checked: StaticStation| match known.insert(checked.station) {
            true => Ok(checked),
            false => {
                let reason = format!("{:?} stands there twice", checked.station);
                Err(ConfigError::new("static.mac", reason, "name it once: a station is at one port"))
            }
        };
        let checked = |(number, written)| {
            station(written).and_then(&mut once).map_err(|error: ConfigError| error.of("static", number))
        };
        self.stations.iter().enumerate().map(checked).collect()
    }

    /// Checks that stations of this bridge can be in a VLAN.
    fn check_vlan(&self, key: &str, vlan: u16) -> Result<(), ConfigError> {
        let possible = if self.vlan_aware { u16::from(self.filters_vlans())..=VLAN_MAX } else { 0..=0 };
        if possible.contains(&vlan) {
            return Ok(());
        }
        let instead =
            "write 0 (untagged) to 4094, only 0 with `vlan_aware = false`, and not 0 beside VLANs of a `[[port]]`";
        Err(ConfigError::new(key, format!("VLAN {vlan} is not possible"), instead))
    }

    /// Checks the limits of VLANs: at most one for each, only for VLANs that ports carry, and none above the table's capacity.
    pub(super) fn checked_vlans(&self, ports: u16) -> Result<&[VlanConfig], ConfigError> {
        let filter = self.filter(ports)?;
        let meant = |vlan: &VlanConfig| match &filter {
            Some(filter) if !(0..ports).any(|port| filter.has(vlan.id, port)) => {
                let reason = format!("no port carries VLAN {}", vlan.id);
                Err(ConfigError::new("vlan.id", reason, "write a VLAN of a `[[port]]`, or leave it out"))
            }
            _ if vlan.stations_max > self.capacity => {
                let reason = format!("the table has room for {} of all VLANs", self.capacity);
                let instead = format!("write at most {}, or a larger `capacity`", self.capacity);
                Err(ConfigError::new("vlan.stations_max", reason, instead))
            }
            _ => Ok(()),
        };
        for (number, vlan) in self.vlans.iter().enumerate() {
            let once = match self.vlans.iter().take(number).any(|other| other.id == vlan.id) {
                false => Ok(()),
                true => {
                    let reason = format!("VLAN {} stands there twice", vlan.id);
                    Err(ConfigError::new("vlan.id", reason, "say all of a VLAN in one place"))
                }
            };
            let checked = once.and_then(|()| self.check_vlan("vlan.id", vlan.id)).and_then(|()| meant(vlan));
            checked.map_err(|error| error.of("vlan", number))?;
        }
        Ok(&self.vlans)
    }

    /// The limits of ports, once [`filter`](Self::filter) has checked these: none above the table's capacity.
    pub(super) fn port_limits(&self) -> Result<Vec<(Port, u32)>, ConfigError> {
        let limit = |(number, written): (usize, &PortConfig)| {
            let most = written.stations_max?;
            if most <= self.capacity {
                return Some(Ok((written.port, most)));
            }
            let reason = format!("the table has room for {} of all ports", self.capacity);
            let instead = format!("write at most {}, or a larger `capacity`", self.capacity);
            Some(Err(ConfigError::new("port.stations_max", reason, instead).of("port", number)))
        };
        self.ports.iter().enumerate().filter_map(limit).collect()
    }

    /// Whether VLANs are filtered: some port names one.
    fn filters_vlans(&self) -> bool {
        self.ports.iter().any(PortConfig::names_vlans)
    }

    /// Checks that the ports exist and that each is configured once.
    fn check_ports(&self, ports: u16) -> Result<(), ConfigError> {
        for (number, written) in self.ports.iter().enumerate() {
            let once = match self.ports.iter().take(number).any(|other| other.port == written.port) {
                false => Ok(()),
                true => {
                    let reason = format!("port {} stands there twice", written.port);
                    Err(ConfigError::new("port.port", reason, "say all of a port in one place"))
                }
            };
            let checked = once.and_then(|()| check_port("port.port", written.port, ports));
            checked.and_then(|_| written.check_meant()).map_err(|error| error.of("port", number))?;
        }
        Ok(())
    }

    /// Which port carries which VLAN; none if VLANs are not filtered.
    pub(super) fn filter(&self, ports: u16) -> Result<Option<Vlans>, ConfigError> {
        self.check_ports(ports)?;
        if !self.filters_vlans() {
            return Ok(None);
        }
        if !self.vlan_aware {
            let instead = "leave it out, or write `vlan_aware = true`";
            return Err(ConfigError::new("port", "this bridge knows no VLANs", instead));
        }
        if ports > PORTS_MAX {
            let instead = format!("use a plan with at most {PORTS_MAX}");
            return Err(ConfigError::new("port", format!("the plan has {ports} ports"), instead));
        }
        let mut vlans = Vlans::new(ports);
        for (number, written) in self.ports.iter().enumerate() {
            written.add_to(&mut vlans).map_err(|error| error.of("port", number))?;
        }
        let named = |port| self.ports.iter().any(|written| written.port == port && written.names_vlans());
        (0..ports).filter(|port| !named(*port)).for_each(|port| vlans.add_native(port, 1));
        Ok(Some(vlans))
    }
}

impl PortConfig {
    /// Whether it says of which VLANs it is.
    fn names_vlans(&self) -> bool {
        self.access.is_some() || self.is_trunk()
    }

    fn is_trunk(&self) -> bool {
        !self.trunk.is_empty() || self.native.is_some()
    }

    /// Checks that it configures something, and not both an access port and a trunk.
    fn check_meant(&self) -> Result<(), ConfigError> {
        let switches = [self.isolated, self.learning, self.flood, self.mcast_flood, self.bcast_flood];
        let says_nothing = !self.names_vlans() && switches.iter().all(Option::is_none) && self.stations_max.is_none();
        if says_nothing || (self.access.is_some() && self.is_trunk()) {
            let reason = format!("port {} is to be an access port or a trunk", self.port);
            return Err(ConfigError::new("port.access", reason, "write `access`, or `trunk` perhaps with `native`"));
        }
        Ok(())
    }

    fn add_to(&self, vlans: &mut Vlans) -> Result<(), ConfigError> {
        for written in &self.trunk {
            for vlan in written.range()? {
                if vlans.has(vlan, self.port) {
                    let reason = format!("VLAN {vlan} stands there twice");
                    return Err(ConfigError::new("port.trunk", reason, "name each VLAN once, alone or in a range"));
                }
                vlans.add_tagged(self.port, vlan);
            }
        }
        for (key, vlan) in [("port.access", self.access), ("port.native", self.native)] {
            let Some(vlan) = vlan else { continue };
            vlans.add_native(self.port, checked_vlan(key, vlan.into())?);
        }
        Ok(())
    }
}

impl WrittenVlans {
    fn range(&self) -> Result<std::ops::RangeInclusive<u16>, ConfigError> {
        const KEY: &str = "port.trunk";
        const RANGE: &str = "write a number or a range as in `20-29`";
        let text = match self {
            WrittenVlans::One(vlan) => return checked_vlan(KEY, *vlan).map(|vlan| vlan..=vlan),
            WrittenVlans::Text(text) => text,
        };
        let vlan = |text: &str| match text.trim().parse::<u32>() {
            Ok(number) => checked_vlan(KEY, number),
            Err(_) => Err(ConfigError::new(KEY, format!("`{text}` is no VLAN"), RANGE)),
        };
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match vlan(first)?..=vlan(last)? {
            range if range.is_empty() => Err(ConfigError::new(KEY, format!("`{text}` ends before it begins"), RANGE)),
            range => Ok(range),
        }
    }
}

fn checked_vlan(key: &str, vlan: u32) -> Result<u16, ConfigError> {
    match u16::try_from(vlan) {
        Ok(vlan @ 1..=VLAN_MAX) => Ok(vlan),
        _ => Err(ConfigError::new(key, format!("there is no VLAN {vlan}"), format!("write 1 to {VLAN_MAX}"))),
    }
}
