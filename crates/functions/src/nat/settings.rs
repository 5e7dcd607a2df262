//! What the configuration means once it has been checked.

use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::IpAddress;

use super::config::{AllocationKind, Config, Networks, Others};
use super::endpoint::{Endpoint, Inside};
use super::pool::Pool;
use super::session::Timeouts;
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::answer::Router;
use crate::parts::{PrefixesV4, Side, Sides};

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) inside: PrefixesV4,
    pub(super) pool: Pool,
    pub(super) networks: Networks,
    /// Inside and external endpoints that belong together always.
    pub(super) fixed: Box<[(Inside, Endpoint)]>,
    /// Port of the plan behind which hosts of static mappings are until they send.
    pub(super) home: Port,
    pub(super) exempt: PrefixesV4,
    pub(super) timeouts: Timeouts,
    pub(super) fragment_ns: u64,
    pub(super) ipv6: Others,
    pub(super) non_ip: Others,
    pub(super) router: Router,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16) -> Result<Settings, ConfigError> {
        let pool = Pool::check(config, ports)?;
        check_ranges(config, &pool.external)?;
        if config.networks == Networks::ByPort && config.allocation == AllocationKind::Deterministic {
            let reason = "hosts of several networks with one address would have one block";
            return Err(ConfigError::new("networks", reason, "write allocation = \"blocks\""));
        }
        let span = |key, value, least| span_ns(key, Duration::from_secs(value), Duration::from_secs(least), IDLE_MAX);
        let closing_ns = span("tcp_closing_s", config.tcp_closing_s, 1)?;
        let sides = Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?;
        Ok(Settings {
            sides,
            inside: PrefixesV4::of(&config.inside),
            networks: config.networks,
            fixed: fixed(config, &pool, sides)?,
            home: (0..ports).find(|port| sides.of(*port) == Some(Side::Inside)).unwrap_or(0),
            pool,
            exempt: PrefixesV4::of(&config.exempt),
            timeouts: Timeouts {
                tcp_ns: [
                    span("tcp_opening_s", config.tcp_opening_s, 1)?,
                    span("tcp_established_s", config.tcp_established_s, 1)?,
                    closing_ns,
                    closing_ns,
                ],
                udp_ns: span("udp_s", config.udp_s, 1)?,
                icmp_ns: span("icmp_s", config.icmp_s, 1)?,
            },
            fragment_ns: span("fragment_s", config.fragment_s, 1)?,
            ipv6: config.ipv6,
            non_ip: config.non_ip,
            router: Router { v4: config.router.into(), v6: config.router_v6.map(IpAddress::from) },
        })
    }

    /// An inside endpoint that sends by a port.
    pub(super) fn inside(&self, from: Port, end: Endpoint) -> Inside {
        let network = if self.networks == Networks::ByPort { from } else { 0 };
        Inside::new(network, end.ip(), end.port, end.protocol)
    }

    #[inline(always)]
    pub(super) fn is_inside(&self, address: [u8; 4]) -> bool {
        self.inside.contains(address)
    }

    #[inline(always)]
    pub(super) fn is_external(&self, address: [u8; 4]) -> bool {
        self.pool.is_external_v4(address)
    }

    #[inline(always)]
    pub(super) fn is_exempt(&self, address: [u8; 4]) -> bool {
        self.exempt.contains(address)
    }
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

fn fixed(config: &Config, pool: &Pool, sides: Sides) -> Result<Box<[(Inside, Endpoint)]>, ConfigError> {
    let mut fixed: Vec<(Inside, Endpoint)> = Vec::new();
    for entry in &config.fixed {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("static", reason, instead));
        let number = entry.protocol.number();
        pool.check_static(entry.external)?;
        let network = match (config.networks, entry.network) {
            (Networks::One, None) => 0,
            (Networks::One, Some(port)) => {
                return wrong(format!("network {port} is not told from others"), "add networks = \"by_port\"");
            }
            (Networks::ByPort, Some(port)) if sides.of(port) == Some(Side::Inside) => port,
            (Networks::ByPort, _) => {
                return wrong(format!("{} is in no network", entry.inside), "name an inside port: network = 0");
            }
        };
        let inside = Inside::new(network, (*entry.inside.ip()).into(), entry.inside.port(), number);
        let outside = Endpoint::new(entry.external.ip().octets(), entry.external.port(), number);
        if !config.inside.iter().any(|range| range.contains(inside.address)) {
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
