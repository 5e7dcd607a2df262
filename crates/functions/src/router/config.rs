//! What a plan file may say about `router`.

use std::net::IpAddr;
use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::{IpAddress, MacAddress};
use foldhash::HashSet;
use serde::Deserialize;

use super::fragment::MTU_MAX;
use super::lpm::{Lpm, Prefixed};
use super::spread::Spread;
use crate::bridge::WrittenMac;
use crate::config::{ConfigError, check_port, span_ns};
use crate::parts::Prefix;

/// Configuration of [`Router`](super::Router).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Interfaces, at most one for each port. None at all: 10.0.0.1/8 and fd00::1/8 at port 0, 192.0.2.1/24 and 2001:db8::1/32 at
    /// port 1, and default routes by way of 192.0.2.254 and 2001:db8::fe.
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
    /// Routes beside those to the interfaces' own networks.
    #[serde(rename = "route")]
    pub routes: Vec<RouteConfig>,
    /// Neighbours that are known from the start, and stay.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<NeighbourConfig>,
    /// Most neighbours, static ones included.
    pub neighbours_max: u32,
    /// Seconds after which a neighbour is asked again.
    pub neighbour_lifetime_s: u64,
    /// Most neighbours for which a packet waits until they answer.
    pub waiting_max: u32,
    /// ICMP errors a second at each port.
    pub icmp_errors_per_s: u64,
    /// Whether a packet that goes on has one hop less. Not if a translator before it, in both directions, has counted the hop.
    pub counts_hops: bool,
    /// Whether neighbours are told of nearer routers.
    pub redirects: bool,
    /// By what one of several ways is chosen.
    pub hash: Hash,
    /// What becomes of packets whose sender says by way of whom they go.
    pub source_routes: SourceRoutes,
    /// Whether frames for any Ethernet address are taken, as of a capture that was recorded elsewhere.
    pub promiscuous: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            interfaces: Vec::new(),
            routes: Vec::new(),
            neighbours: Vec::new(),
            neighbours_max: 4096,
            neighbour_lifetime_s: 60,
            waiting_max: 64,
            icmp_errors_per_s: 1000,
            counts_hops: true,
            redirects: true,
            hash: Hash::Addresses,
            source_routes: SourceRoutes::Drop,
            promiscuous: false,
        }
    }
}

/// What becomes of packets with a source route (RFC 7126 sections 4.3 and 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceRoutes {
    /// They are dropped.
    Drop,
    /// They are forwarded as if they did not have one.
    Ignore,
}

braid_nf::plain!(SourceRoutes);

/// By what the way of a packet is chosen where a route has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hash {
    /// Packets between two hosts take one way.
    Addresses,
    /// Packets of a connection take one way; those without ports, and pieces, by their addresses.
    Ports,
}

braid_nf::plain!(Hash);

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its port.
    pub port: Port,
    /// Its Ethernet address; 02:00:00:01:00:00 at port 0, 02:00:00:01:00:01 at port 1 and so on if not given.
    pub mac: Option<WrittenMac>,
    /// Its addresses with the length of their network, such as `192.0.2.1/24`.
    pub addresses: Vec<String>,
    /// Most bytes of an IP packet.
    #[serde(default = "mtu_default")]
    pub mtu: u16,
}

fn mtu_default() -> u16 {
    1500
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Where packets go.
    pub to: Prefix,
    /// By way of this neighbour.
    pub via: Option<IpAddr>,
    /// Or straight out by this port.
    pub port: Option<Port>,
    /// Or by way of several neighbours, each pair of addresses by one of them.
    #[serde(default)]
    pub hops: Vec<HopConfig>,
    /// Or nowhere.
    pub refuse: Option<Refusal>,
}

/// One of several ways to the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopConfig {
    /// The neighbour.
    pub via: IpAddr,
    /// Where it is; none: where an interface has its network.
    pub port: Option<Port>,
    /// Its share, against the sum of all.
    #[serde(default = "weight_default")]
    pub weight: u16,
}

fn weight_default() -> u16 {
    1
}

/// What becomes of packets to where a route leads nowhere (as `ip route add blackhole`, `unreachable`, `prohibit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// They are dropped in silence.
    Blackhole,
    /// Senders are told that there is no such host; of IPv6, no route.
    Unreachable,
    /// Senders are told that it is forbidden.
    Prohibit,
}

/// A neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourConfig {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: WrittenMac,
    /// Where it is.
    pub port: Port,
}

/// An interface, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// Most bytes of an IP packet.
    pub mtu: u16,
    /// Its addresses with the length of their network.
    pub addresses: Vec<(IpAddress, u8)>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out by a port, to a neighbour; none: to the destination itself.
    To(Port, Option<IpAddress>),
    /// By one of the spread's hops.
    Spread(u32),
    /// Nowhere.
    Nowhere(Refusal),
}

braid_nf::plain!(Interface, Way, Refusal);

/// Ways, tables by family, spreads.
type Routes = (Vec<Way>, [Lpm; 2], Vec<Spread>);

/// Smallest MTUs (RFC 791, RFC 8200 section 5).
const MTU_MIN: u16 = 68;
const MTU_MIN_V6: u16 = 1280;

impl Config {
    /// The configuration with its interfaces, if none are given.
    pub(super) fn completed(mut self) -> Config {
        if self.interfaces.is_empty() && self.routes.is_empty() {
            let address = |text: &str| text.to_owned();
            let interface = |port, addresses| InterfaceConfig { port, mac: None, addresses, mtu: mtu_default() };
            self.interfaces = vec![
                interface(0, vec![address("10.0.0.1/8"), address("fd00::1/8")]),
                interface(1, vec![address("192.0.2.1/24"), address("2001:db8::1/32")]),
            ];
            let route = |to: &str, via: &str| {
                Some(RouteConfig {
                    to: to.parse().ok()?,
                    via: via.parse().ok(),
                    port: None,
                    hops: Vec::new(),
                    refuse: None,
                })
            };
            let defaults = [("0.0.0.0/0", "192.0.2.254"), ("::/0", "2001:db8::fe")];
            self.routes = defaults.iter().filter_map(|(to, via)| route(to, via)).collect();
        }
        self
    }

    /// The interface of each port.
    pub(super) fn interfaces(&self, ports: u16) -> Result<Vec<Option<Interface>>, ConfigError> {
        let mut interfaces = vec![None; ports.into()];
        for written in &self.interfaces {
            let place = usize::from(check_port("interface.port", written.port, ports)?);
            if interfaces[place].is_some() {
                let reason = format!("port {} has two interfaces", written.port);
                return Err(ConfigError::new("interface.port", reason, "write all `addresses` in one"));
            }
            interfaces[place] = Some(written.checked()?);
        }
        check_networks(&interfaces)?;
        Ok(interfaces)
    }

    /// The ways, for IPv4 and IPv6 which way a destination takes, and the ways that are several.
    pub(super) fn routes(&self, interfaces: &[Option<Interface>]) -> Result<Routes, ConfigError> {
        let mut spreads = Vec::new();
        let mut ways = Vec::new();
        let mut prefixes = [Vec::new(), Vec::new()];
        let mut add = |first: IpAddress, bits: u8, way: Way| {
            let value = ways.len() as u32;
            ways.push(way);
            let family = usize::from(!first.is_v4());
            prefixes[family].push(Prefixed { bits: key(first), len: bits.into(), value });
        };
        let mut known = HashSet::default();
        for route in &self.routes {
            if !known.insert((route.to.first(), route.to.bits())) {
                let reason = format!("{} has two routes", route.to);
                return Err(ConfigError::new("route.to", reason, "keep one: a destination has one way"));
            }
            let way = match route.hops.as_slice() {
                [] => route.way(interfaces)?,
                hops => {
                    spreads.push(route.spread(hops, interfaces)?);
                    Way::Spread(spreads.len() as u32 - 1)
                }
            };
            add(route.to.first(), route.to.bits(), way);
        }
        for (port, interface) in interfaces.iter().enumerate() {
            for (address, bits) in interface.iter().flat_map(|interface| &interface.addresses) {
                add(address.prefix(*bits), *bits, Way::To(port as Port, None));
            }
        }
        Ok((ways, prefixes.map(|prefixes| Lpm::new(&prefixes)), spreads))
    }

    pub(super) fn lifetime_ns(&self) -> Result<u64, ConfigError> {
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(86_400));
        span_ns("neighbour_lifetime_s", Duration::from_secs(self.neighbour_lifetime_s), least, most)
    }
}

/// An address as the routing tables look at it: from the highest bit on.
#[inline(always)]
pub fn key(address: IpAddress) -> u128 {
    match address.v4() {
        Some(v4) => u128::from(u32::from_be_bytes(v4)) << 96,
        None => u128::from_be_bytes(address.octets()),
    }
}

impl InterfaceConfig {
    fn checked(&self) -> Result<Interface, ConfigError> {
        let [high, low] = self.port.to_be_bytes();
        let mac = self.mac.map_or(MacAddress([2, 0, 0, 1, high, low]), |written| written.0);
        if mac.is_group() {
            return Err(ConfigError::new(
                "interface.mac",
                format!("{mac} is a group address"),
                "write one of a station",
            ));
        }
        let mut addresses = Vec::new();
        for text in &self.addresses {
            let wrong = || ConfigError::new("interface.addresses", format!("`{text}` is none"), "write `192.0.2.1/24`");
            let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
            let address: IpAddress = address.parse().map_err(|_| wrong())?;
            let bits = bits.parse().ok().filter(|bits: &u8| *bits <= if address.is_v4() { 32 } else { 128 });
            addresses.push((address, bits.ok_or_else(wrong)?));
        }
        let checked = Interface { mac, mtu: self.mtu, addresses };
        if let Some((own, _)) = checked.addresses.iter().find(|(own, _)| checked.is_broadcast(*own)) {
            let reason = format!("{own} is the network or all of its hosts");
            return Err(ConfigError::new("interface.addresses", reason, "write the address of a host"));
        }
        let least = if checked.addresses.iter().all(|(address, _)| address.is_v4()) { MTU_MIN } else { MTU_MIN_V6 };
        if !(least..=MTU_MAX).contains(&self.mtu) {
            let instead = format!("write {least} to {MTU_MAX}");
            return Err(ConfigError::new("interface.mtu", format!("{} is not possible", self.mtu), instead));
        }
        Ok(checked)
    }
}

/// No network is at two ports, and no address there twice.
fn check_networks(interfaces: &[Option<Interface>]) -> Result<(), ConfigError> {
    let mut known: Vec<(IpAddress, u8)> = Vec::new();
    for (own, bits) in interfaces.iter().flatten().flat_map(|interface| interface.networks()) {
        if known.contains(&(own, bits)) {
            let reason = format!("{own}/{bits} is at two ports");
            let instead = "give each port a network of its own; put a bridge before the router to join them";
            return Err(ConfigError::new("interface.addresses", reason, instead));
        }
        known.push((own, bits));
    }
    Ok(())
}

impl Interface {
    /// The networks of its addresses, each once.
    fn networks(&self) -> Vec<(IpAddress, u8)> {
        let mut networks: Vec<_> = self.addresses.iter().map(|(own, bits)| (own.prefix(*bits), *bits)).collect();
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// Whether it has this address.
    pub fn owns(&self, address: IpAddress) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// Whether an address is in one of its networks; a link-local IPv6 address always is.
    pub fn reaches(&self, address: IpAddress) -> bool {
        let same = |(own, bits): &(IpAddress, u8)| {
            own.is_v4() == address.is_v4() && own.prefix(*bits) == address.prefix(*bits)
        };
        let [a, b, ..] = address.octets();
        (a == 0xfe && b & 0xc0 == 0x80) || self.addresses.iter().any(same)
    }

    /// Whether an IPv4 address is that of all hosts of one of its networks, or of the network itself.
    pub fn is_broadcast(&self, address: IpAddress) -> bool {
        let host = |bits: u8| u32::MAX.checked_shr(bits.into()).unwrap_or(0);
        let of = |v4: [u8; 4]| u32::from_be_bytes(v4);
        let mut networks = self.addresses.iter().filter(|(_, bits)| *bits < 31);
        networks.any(|(own, bits)| match (own.v4(), address.v4()) {
            (Some(own), Some(address)) => {
                let mask = host(*bits);
                (of(own) ^ of(address)) & !mask == 0 && (of(address) & mask == mask || of(address) & mask == 0)
            }
            _ => false,
        })
    }

    /// The address that it speaks with to `to`: of the same network, else the first of the family.
    pub fn address_towards(&self, to: IpAddress) -> Option<IpAddress> {
        let family = || self.addresses.iter().filter(|(own, _)| own.is_v4() == to.is_v4());
        let near = family().find(|(own, bits)| own.prefix(*bits) == to.prefix(*bits));
        near.or_else(|| family().next()).map(|(own, _)| *own)
    }
}

impl RouteConfig {
    pub(super) fn way(&self, interfaces: &[Option<Interface>]) -> Result<Way, ConfigError> {
        let has = |port: Port| interfaces.get(usize::from(port)).is_some_and(Option::is_some);
        let reaching = |via| {
            let reaches = |interface: &Option<Interface>| interface.as_ref().is_some_and(|one| one.reaches(via));
            interfaces.iter().position(reaches).map(|port| port as Port)
        };
        let wrong = |reason: String| {
            ConfigError::new("route.via", reason, "name a neighbour in a network of an interface, or a `port`")
        };
        match (self.port, self.via.map(IpAddress::from), self.refuse) {
            (None, None, Some(refusal)) => Ok(Way::Nowhere(refusal)),
            (_, _, Some(_)) => {
                let reason = format!("{} leads somewhere and is refused", self.to);
                Err(ConfigError::new("route.refuse", reason, "keep `via` and `port`, or `refuse`"))
            }
            (_, Some(via), None) if via.is_v4() != self.to.is_v4() => {
                Err(wrong(format!("{via} is of the other family")))
            }
            (Some(port), via, None) if has(port) => Ok(Way::To(port, via)),
            (Some(port), _, None) => Err(wrong(format!("port {port} has no interface"))),
            (None, Some(via), None) => match reaching(via) {
                Some(port) => Ok(Way::To(port, Some(via))),
                None => Err(wrong(format!("{via} is in no network of an interface"))),
            },
            (None, None, None) => {
                let reason = format!("nothing is said about where packets to {} go", self.to);
                Err(ConfigError::new("route", reason, "write `via`, `port`, or refuse = \"blackhole\""))
            }
        }
    }
}
