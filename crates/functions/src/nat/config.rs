//! What can be configured, and what it means once it has been checked.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::IpAddress;
use braid_nf::state::{Map, MapConfig, StateBuilder};
use serde::Deserialize;

use super::rewrite::Peer;
use super::session::Timeouts;
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::answer::Router;
use crate::parts::{Prefix, Sides};

/// As it stands in a plan file. The README explains each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    pub inside: Vec<Prefix>,
    pub inside_ports: Vec<Port>,
    pub outside_ports: Vec<Port>,
    pub external: Vec<Ipv4Addr>,
    pub first_port: u16,
    pub last_port: u16,
    pub filtering: Filtering,
    pub tcp_transitory_s: u64,
    pub tcp_established_s: u64,
    pub udp_s: u64,
    pub icmp_s: u64,
    pub refresh_ms: u64,
    pub mappings_max: u32,
    pub fragments_max: u32,
    pub fragment_s: u64,
    pub ipv6: Others,
    pub non_ip: Others,
    pub router: Ipv4Addr,
    pub router_v6: Option<Ipv6Addr>,
}

/// Which outside hosts may send to a mapping (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filtering {
    /// All.
    EndpointIndependent,
    /// Those address and port pairs to which the mapping's owner has sent.
    AddressAndPortDependent,
}

/// What becomes of packets that are not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Others {
    /// They go across.
    Pass,
    /// They are dropped.
    Drop,
}

impl Default for Config {
    fn default() -> Config {
        let inside = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"];
        Config {
            inside: inside.iter().filter_map(|range| range.parse().ok()).collect(),
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            external: vec![Ipv4Addr::new(198, 51, 100, 1)],
            first_port: 1024,
            last_port: u16::MAX,
            filtering: Filtering::EndpointIndependent,
            tcp_transitory_s: 240,
            tcp_established_s: 7440,
            udp_s: 300,
            icmp_s: 60,
            refresh_ms: 1000,
            mappings_max: 1 << 20,
            fragments_max: 4096,
            fragment_s: 30,
            ipv6: Others::Pass,
            non_ip: Others::Pass,
            // The dummy address of RFC 7600 section 4.8, for routers that have none of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
        }
    }
}

impl Config {
    pub(super) fn peers(&self, builder: &mut StateBuilder) -> Result<Map<Peer, u64>, ConfigError> {
        let config = MapConfig { name: "peers".into(), capacity: self.mappings_max, ..MapConfig::default() };
        Map::new(builder, &config).map_err(|error| ConfigError::state("mappings_max", &error))
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) inside: Box<[Prefix]>,
    pub(super) external: Box<[[u8; 4]]>,
    pub(super) timeouts: Timeouts,
    pub(super) refresh_ns: u64,
    pub(super) fragment_ns: u64,
    pub(super) ipv6: Others,
    pub(super) non_ip: Others,
    pub(super) router: Router,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16) -> Result<Settings, ConfigError> {
        check_addresses(config)?;
        if config.first_port == 0 || config.first_port > config.last_port {
            let reason = format!("{} to {} is no range of ports", config.first_port, config.last_port);
            return Err(ConfigError::new("first_port", reason, "write 1 or more, and at most `last_port`"));
        }
        let seconds = |key, value| span_ns(key, Duration::from_secs(value), Duration::from_secs(1), IDLE_MAX);
        let refresh = Duration::from_millis(config.refresh_ms);
        Ok(Settings {
            sides: Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?,
            inside: config.inside.clone().into(),
            external: config.external.iter().map(Ipv4Addr::octets).collect(),
            timeouts: Timeouts {
                transitory_ns: seconds("tcp_transitory_s", config.tcp_transitory_s)?,
                established_ns: seconds("tcp_established_s", config.tcp_established_s)?,
                udp_ns: seconds("udp_s", config.udp_s)?,
                icmp_ns: seconds("icmp_s", config.icmp_s)?,
            },
            refresh_ns: span_ns("refresh_ms", refresh, Duration::from_millis(1), Duration::from_secs(60))?,
            fragment_ns: seconds("fragment_s", config.fragment_s)?,
            ipv6: config.ipv6,
            non_ip: config.non_ip,
            router: Router { v4: config.router.into(), v6: config.router_v6.map(IpAddress::from) },
        })
    }

    pub(super) fn is_inside(&self, address: IpAddress) -> bool {
        self.inside.iter().any(|range| range.contains(address))
    }

    pub(super) fn is_external(&self, address: IpAddress) -> bool {
        address.v4().is_some_and(|address| self.external.contains(&address))
    }
}

fn check_addresses(config: &Config) -> Result<(), ConfigError> {
    if config.inside.is_empty() {
        return Err(ConfigError::new("inside", "names no range", "write for example inside = [\"10.0.0.0/8\"]"));
    }
    if let Some(range) = config.inside.iter().find(|range| !range.is_v4()) {
        let instead = "name IPv4 ranges only; what becomes of IPv6 is said by `ipv6`";
        return Err(ConfigError::new("inside", format!("{range} is not IPv4"), instead));
    }
    if config.external.is_empty() {
        return Err(ConfigError::new(
            "external",
            "names no address",
            "write for example external = [\"198.51.100.1\"]",
        ));
    }
    for (i, address) in config.external.iter().enumerate() {
        if config.external[..i].contains(address) {
            return Err(ConfigError::new("external", format!("{address} stands there twice"), "write it once"));
        }
        if let Some(range) = config.inside.iter().find(|range| range.contains((*address).into())) {
            let reason = format!("{address} lies in the inside range {range}");
            return Err(ConfigError::new("external", reason, "write an outside address, or smaller `inside` ranges"));
        }
    }
    Ok(())
}
