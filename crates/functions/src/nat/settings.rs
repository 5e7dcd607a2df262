//! What the configuration means once it has been checked.

use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;

use super::config::{Allocation, AllocationKind, Config, Others, StaticProtocol};
use super::endpoint::Endpoint;
use super::hosts::BLOCKS_MAX;
use super::session::Timeouts;
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::answer::Router;
use crate::parts::{Prefix, Side, Sides};

/// Most external addresses.
const EXTERNAL_MAX: u64 = 4096;

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) inside: Box<[Prefix]>,
    /// In order.
    pub(super) external: Box<[[u8; 4]]>,
    pub(super) allocation: Allocation,
    /// Inside and external endpoints that belong together always.
    pub(super) fixed: Box<[(Endpoint, Endpoint)]>,
    /// Port of the plan behind which hosts of static mappings are until they send.
    pub(super) home: Port,
    pub(super) exempt: Box<[Prefix]>,
    pub(super) inbound_refresh: bool,
    pub(super) timeouts: Timeouts,
    pub(super) refresh_ns: u64,
    pub(super) rest_ns: u64,
    pub(super) fragment_ns: u64,
    pub(super) ipv6: Others,
    pub(super) non_ip: Others,
    pub(super) router: Router,
    ports: u32,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16) -> Result<Settings, ConfigError> {
        if config.first_port == 0 || config.first_port > config.last_port {
            let reason = format!("{} to {} is no range of ports", config.first_port, config.last_port);
            return Err(ConfigError::new("first_port", reason, "write 1 or more, and at most `last_port`"));
        }
        let external = external(config)?;
        check_ranges(config, &external)?;
        let span = |key, value, least| span_ns(key, Duration::from_secs(value), Duration::from_secs(least), IDLE_MAX);
        let transitory_ns = span("tcp_transitory_s", config.tcp_transitory_s, 1)?;
        let refresh = Duration::from_millis(config.refresh_ms);
        let sides = Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?;
        Ok(Settings {
            sides,
            inside: config.inside.clone().into(),
            allocation: allocation(config, external.len() as u64)?,
            fixed: fixed(config, &external)?,
            home: (0..ports).find(|port| sides.of(*port) == Some(Side::Inside)).unwrap_or(0),
            external,
            exempt: config.exempt.clone().into(),
            inbound_refresh: config.inbound_refresh,
            timeouts: Timeouts {
                transitory_ns,
                established_ns: span("tcp_established_s", config.tcp_established_s, 1)?,
                udp_ns: span("udp_s", config.udp_s, 1)?,
                icmp_ns: span("icmp_s", config.icmp_s, 1)?,
            },
            refresh_ns: span_ns("refresh_ms", refresh, Duration::from_millis(1), Duration::from_secs(60))?,
            rest_ns: span("rest_s", config.rest_s, 0)?,
            fragment_ns: span("fragment_s", config.fragment_s, 1)?,
            ipv6: config.ipv6,
            non_ip: config.non_ip,
            router: Router { v4: config.router.into(), v6: config.router_v6.map(IpAddress::from) },
            ports: u32::from(config.last_port - config.first_port) + 1,
        })
    }

    /// External ports of an address.
    pub(super) fn ports(&self) -> u32 {
        self.ports
    }

    pub(super) fn is_inside(&self, address: IpAddress) -> bool {
        self.inside.iter().any(|range| range.contains(address))
    }

    pub(super) fn is_external(&self, address: IpAddress) -> bool {
        address.v4().is_some_and(|address| self.external.binary_search(&address).is_ok())
    }

    pub(super) fn is_exempt(&self, address: IpAddress) -> bool {
        self.exempt.iter().any(|range| range.contains(address))
    }
}

/// All external addresses, in order.
fn external(config: &Config) -> Result<Box<[[u8; 4]]>, ConfigError> {
    let wrong = |reason: String, instead: &str| Err(ConfigError::new("external", reason, instead));
    let mut external: Vec<[u8; 4]> = Vec::new();
    for range in &config.external {
        match range.len_v4() {
            None => return wrong(format!("{range} is not IPv4"), "name IPv4 addresses or ranges"),
            Some(len) if external.len() as u64 + len > EXTERNAL_MAX => {
                return wrong(
                    format!("{range} makes more than {EXTERNAL_MAX} addresses"),
                    "name fewer or smaller ranges",
                );
            }
            Some(_) => external.extend(range.addresses_v4()),
        }
    }
    external.sort_unstable();
    if external.is_empty() {
        return wrong("names no address".into(), "write for example external = [\"198.51.100.1\"]");
    }
    if let Some(pair) = external.windows(2).find(|pair| pair[0] == pair[1]) {
        return wrong(format!("{} stands there twice", IpAddress::from_v4(pair[0])), "write it once");
    }
    Ok(external.into())
}

fn check_ranges(config: &Config, external: &[[u8; 4]]) -> Result<(), ConfigError> {
    if config.inside.is_empty() {
        return Err(ConfigError::new("inside", "names no range", "write for example inside = [\"10.0.0.0/8\"]"));
    }
    for (key, ranges) in [("inside", &config.inside), ("exempt", &config.exempt)] {
        if let Some(range) = ranges.iter().find(|range| !range.is_v4()) {
            let instead = "name IPv4 ranges only; what becomes of IPv6 is said by `ipv6`";
            return Err(ConfigError::new(key, format!("{range} is not IPv4"), instead));
        }
    }
    for address in external.iter().map(|address| IpAddress::from_v4(*address)) {
        if let Some(range) = config.inside.iter().find(|range| range.contains(address)) {
            let reason = format!("{address} lies in the inside range {range}");
            return Err(ConfigError::new("external", reason, "write an outside address, or smaller `inside` ranges"));
        }
    }
    Ok(())
}

fn allocation(config: &Config, addresses: u64) -> Result<Allocation, ConfigError> {
    let ports = u64::from(config.last_port - config.first_port) + 1;
    let (size, blocks) = (config.block_size, ports / u64::from(config.block_size.max(1)));
    if config.allocation != AllocationKind::Shared && (size == 0 || blocks == 0) {
        let instead = format!("write 1 to {ports}, the ports of an external address");
        return Err(ConfigError::new("block_size", format!("{size} makes no block"), instead));
    }
    match config.allocation {
        AllocationKind::Shared => Ok(Allocation::Shared),
        AllocationKind::Blocks if !(1..=BLOCKS_MAX as u32).contains(&config.blocks_per_host) => {
            let reason = format!("{} is out of range", config.blocks_per_host);
            Err(ConfigError::new("blocks_per_host", reason, format!("write 1 to {BLOCKS_MAX}, and larger blocks")))
        }
        AllocationKind::Blocks => Ok(Allocation::Blocks { size, most: config.blocks_per_host as usize }),
        AllocationKind::Deterministic => {
            let hosts: u64 = config.inside.iter().filter_map(Prefix::len_v4).sum();
            if hosts > blocks * addresses {
                let reason = format!("{hosts} inside addresses, but {} blocks of {size} ports", blocks * addresses);
                let instead = "write smaller blocks, smaller `inside` ranges or more `external` addresses";
                return Err(ConfigError::new("block_size", reason, instead));
            }
            Ok(Allocation::Deterministic { size })
        }
    }
}

fn fixed(config: &Config, external: &[[u8; 4]]) -> Result<Box<[(Endpoint, Endpoint)]>, ConfigError> {
    let mut fixed: Vec<(Endpoint, Endpoint)> = Vec::new();
    for entry in &config.fixed {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("static", reason, instead));
        let number = match entry.protocol {
            StaticProtocol::Tcp => protocol::TCP,
            StaticProtocol::Udp => protocol::UDP,
        };
        let inside = Endpoint::new(entry.inside.ip().octets(), entry.inside.port(), number);
        let outside = Endpoint::new(entry.external.ip().octets(), entry.external.port(), number);
        if external.binary_search(&outside.address).is_err() {
            return wrong(format!("{} is no external address", entry.external.ip()), "write one of `external`");
        }
        if !(config.first_port..=config.last_port).contains(&outside.port) {
            let instead = "write a port from `first_port` to `last_port`, or a lower `first_port`";
            return wrong(format!("{} is no external port", outside.port), instead);
        }
        if !config.inside.iter().any(|range| range.contains(inside.ip())) {
            return wrong(format!("{} is not inside", entry.inside.ip()), "write an address of an `inside` range");
        }
        if fixed.iter().any(|(known, other)| *known == inside || *other == outside) {
            return wrong(format!("{} or {} stands there twice", entry.inside, entry.external), "write it once");
        }
        fixed.push((inside, outside));
    }
    let most = config.mappings_max as usize;
    if fixed.len() > most {
        let instead = format!("write at most {most}, or a larger `mappings_max`");
        return Err(ConfigError::new("static", format!("{} are too many", fixed.len()), instead));
    }
    Ok(fixed.into())
}
