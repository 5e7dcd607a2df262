//! The configuration of `router` in a plan file.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::IpAddress;
use foldhash::HashMap;
use serde::Deserialize;

use super::advertise::AdvertiseConfig;
use super::interface::Interface;
use super::links::Link;
use super::routing::reverse_path::ReversePath;
use super::routing::rules::{Filling, MAIN, RuleConfig, Tables};
use super::routing::spread::Spread;
use crate::config::{ConfigError, span_ns};
use crate::parts::WrittenMac;
use crate::parts::config::prefix::{self, Prefix};
use crate::parts::headers::scope::is_link_local_v6;

/// Configuration of [`Router`](super::Router).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Interfaces, at most one for each port and one for each VLAN of a port. With neither interfaces nor routes configured:
    /// 10.0.0.1/8 and fd00::1/8 at port 0, 192.0.2.1/24 and 2001:db8::1/32 at port 1, and default routes via 192.0.2.254 and
    /// 2001:db8::fe.
    #[serde(rename = "interface")]
    pub interfaces: Vec<InterfaceConfig>,
    /// Routes, in addition to those to the interfaces' own networks.
    #[serde(rename = "route")]
    pub routes: Vec<RouteConfig>,
    /// Which table of routes applies to a packet; without rules the main one.
    #[serde(rename = "rule")]
    pub rules: Vec<RuleConfig>,
    /// Static neighbours, which are known from the start and never expire.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<NeighbourConfig>,
    /// The most neighbours, including static ones.
    pub neighbours_max: u32,
    /// How many neighbours a source may have this router ask for in a second; `None`: a quarter of the most.
    pub asked_per_source: Option<u32>,
    /// Seconds after which a neighbour is asked again.
    pub neighbour_lifetime_s: u64,
    /// The most packets that wait for neighbours to answer.
    pub waiting_max: u32,
    /// The most kilobytes of fragments, addressed to the router itself, that wait for the rest of their datagrams.
    pub reassembly_max: u32,
    /// ICMP errors per second on each port.
    pub icmp_errors_per_s: u64,
    /// Whether forwarding decrements the hop count. It should not where a translator before the router already does so, in both
    /// directions.
    pub counts_hops: bool,
    /// Whether ICMP redirects are sent to neighbours.
    pub redirects: bool,
    /// Whether the MSS in segments that begin a TCP connection is lowered to what both links can carry (RFC 4459 section 3.2).
    pub clamp_mss: bool,
    /// What decides which of several next hops a packet takes.
    pub hash: Hash,
    /// What happens to packets with a source route.
    pub source_routes: SourceRoutes,
    /// Whether frames for any Ethernet address are accepted, as when replaying a capture recorded elsewhere.
    pub promiscuous: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            interfaces: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            neighbours: Vec::new(),
            neighbours_max: 4096,
            asked_per_source: None,
            neighbour_lifetime_s: 60,
            waiting_max: 256,
            reassembly_max: 512,
            icmp_errors_per_s: 1000,
            counts_hops: true,
            redirects: true,
            clamp_mss: false,
            hash: Hash::Addresses,
            source_routes: SourceRoutes::Drop,
            promiscuous: false,
        }
    }
}

/// What happens to packets with a source route (RFC 7126 sections 4.3 and 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceRoutes {
    /// They are dropped.
    Drop,
    /// They are forwarded as if they had none.
    Ignore,
}

braid_nf::plain!(SourceRoutes);

/// What decides which next hop a packet takes where a route has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hash {
    /// Addresses: all packets between two hosts take the same next hop.
    Addresses,
    /// Addresses and ports: all packets of a connection take the same next hop. For packets without ports and for fragments,
    /// only the addresses count.
    Ports,
}

braid_nf::plain!(Hash);

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its port.
    pub port: Port,
    /// Further ports of its link, which a bridge before this router joins with `port`.
    #[serde(default)]
    pub joined: Vec<Port>,
    /// Its VLAN on those ports; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// Its Ethernet address; by default 02:00:00:01:00:00 at port 0, 02:00:00:01:00:01 at port 1 and so on.
    pub mac: Option<WrittenMac>,
    /// Its addresses with their prefix lengths, such as `192.0.2.1/24`.
    pub addresses: Vec<String>,
    /// The MTU: the most bytes of an IP packet; by default what the interface at its port takes, or 1500 where that is not known.
    pub mtu: Option<u16>,
    /// The reverse-path check for packets that arrive here.
    #[serde(default)]
    pub reverse_path: ReversePath,
    /// What it advertises to IPv6 hosts; nothing by default.
    pub advertise: Option<AdvertiseConfig>,
    /// Addresses there that a translator behind this router, or a balancer before it, has too.
    #[serde(default)]
    pub translated: Vec<Ipv4Addr>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// The destination network.
    #[serde(deserialize_with = "prefix::network")]
    pub to: Prefix,
    /// The neighbour to forward to.
    pub via: Option<IpAddr>,
    /// The port of the interface to leave by; without `via`, destinations are on its link.
    pub port: Option<Port>,
    /// The VLAN of that interface.
    pub vlan: Option<u16>,
    /// Several next hops among which traffic is spread, instead of `via` and `port`.
    #[serde(default)]
    pub hops: Vec<HopConfig>,
    /// Instead of a next hop: packets to this destination are refused in this way.
    pub refuse: Option<Refusal>,
    /// The table that it is in; `None`: the main one.
    pub table: Option<String>,
    /// Of several routes to one destination the one with the least metric counts whose next hop is there.
    #[serde(default)]
    pub metric: u32,
}

/// One of several next hops of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HopConfig {
    /// The neighbour.
    pub via: IpAddr,
    /// The neighbour's port; by default that of the interface whose network contains the neighbour.
    pub port: Option<Port>,
    /// The neighbour's VLAN on that port; `None` for untagged frames.
    pub vlan: Option<u16>,
    /// Its share of the traffic, relative to the sum of all weights.
    #[serde(default = "weight_default")]
    pub weight: u16,
}

fn weight_default() -> u16 {
    1
}

/// What happens to packets that a route refuses (like `ip route add blackhole`, `unreachable`, `prohibit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// They are dropped silently.
    Blackhole,
    /// Senders are told that the host is unreachable; over IPv6, that there is no route.
    Unreachable,
    /// Senders are told that communication is prohibited.
    Prohibit,
}

/// The table of a route (`None`: the main one), and its destination.
pub(super) type Place<'a> = (Option<&'a str>, IpAddress, u8);

/// A static neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeighbourConfig {
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address.
    pub mac: WrittenMac,
    /// Its port.
    pub port: Port,
    /// Its VLAN on that port; `None` for untagged frames.
    pub vlan: Option<u16>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Out by an interface, to a neighbour; `None`: directly to the destination.
    To(Link, Option<IpAddress>),
    /// To one of the hops of the spread with this number.
    Spread(u32),
    /// Nowhere: packets are refused.
    Nowhere(Refusal),
}

braid_nf::plain!(Way, Refusal);

impl Config {
    /// Returns the configuration with the default interfaces and routes, if neither are given.
    pub(super) fn completed(mut self) -> Config {
        if self.interfaces.is_empty() && self.routes.is_empty() {
            let address = |text: &str| text.to_owned();
            let interface = |port, addresses| InterfaceConfig {
                port,
                joined: Vec::new(),
                vlan: None,
                mac: None,
                addresses,
                mtu: None,
                reverse_path: ReversePath::Any,
                advertise: None,
                translated: Vec::new(),
            };
            self.interfaces = vec![
                interface(0, vec![address("10.0.0.1/8"), address("fd00::1/8")]),
                interface(1, vec![address("192.0.2.1/24"), address("2001:db8::1/32")]),
            ];
            let route = |to: &str, via: &str| {
                Some(RouteConfig {
                    to: to.parse().ok()?,
                    via: via.parse().ok(),
                    port: None,
                    vlan: None,
                    hops: Vec::new(),
                    refuse: None,
                    table: None,
                    metric: 0,
                })
            };
            let defaults = [("0.0.0.0/0", "192.0.2.254"), ("::/0", "2001:db8::fe")];
            self.routes = defaults.iter().filter_map(|(to, via)| route(to, via)).collect();
        }
        self
    }

    /// Checks the routes and rules. Returns the tables, and the spreads of routes with several next hops.
    pub(super) fn routes(&self, interfaces: &[Option<Interface>]) -> Result<(Tables, Vec<Spread>), ConfigError> {
        let (mut spreads, mut tiers) = (Vec::new(), HashMap::<_, Vec<_>>::default());
        let mut tables = Filling::new(self, interfaces)?;
        let (rivals, nowhere) = (self.rivals(), nowhere());
        for (number, route) in self.routes.iter().enumerate() {
            let wrong = |error: ConfigError| error.of("route", number);
            if route.refuse != Some(Refusal::Blackhole) && nowhere.iter().any(|none| none.covers(&route.to)) {
                let reason = format!(
                    "no packet to {} is forwarded: no host has such an address, or none beyond its link",
                    route.to
                );
                return Err(wrong(ConfigError::new("route.to", reason, "leave the route out")));
            }
            let (table, ..) = route.place();
            let all = &rivals[&route.place()];
            if all.iter().any(|other| *other < number && self.routes[*other].metric == route.metric) {
                let reason = format!("{} has two routes", route.to);
                let instead = "keep one: a destination has one way; or give one a greater `metric`, to stand by";
                return Err(wrong(ConfigError::new("route.to", reason, instead)));
            }
            if route.to == Prefix::new(route.to.first(), 128) && is_own(interfaces, route.to.first(), (None, None)) {
                let reason = format!("{} is this router's own", route.to.first());
                return Err(wrong(ConfigError::new("route.to", reason, "leave the route out: it goes no further")));
            }
            // Those of another table may say otherwise, as of a network that guests do not reach.
            let is_network = |interface: &Interface| interface.has_network(route.to.first(), route.to.bits());
            if table.is_none() && interfaces.iter().flatten().any(is_network) {
                let reason = format!("{} is the network of an interface", route.to);
                return Err(wrong(ConfigError::new(
                    "route.to",
                    reason,
                    "leave the route out: packets go straight there",
                )));
            }
            if all.len() > 1 {
                let tier = route.tier(interfaces, &self.neighbours).map_err(wrong)?;
                tiers.entry(route.place()).or_default().push((route.metric, tier));
                if tiers[&route.place()].len() == all.len() {
                    let ranked = tiers.remove(&route.place()).unwrap_or_default();
                    spreads.push(Spread::ranked(ranked).map_err(wrong)?);
                    tables.add(table, route.to, Way::Spread(spreads.len() as u32 - 1));
                }
                continue;
            }
            let way = match route.hops.as_slice() {
                [] => route.way(interfaces, &self.neighbours).map_err(wrong)?,
                hops => {
                    spreads.push(route.spread(hops, interfaces, &self.neighbours).map_err(wrong)?);
                    Way::Spread(spreads.len() as u32 - 1)
                }
            };
            tables.add(table, route.to, way);
        }
        Ok((tables.build(&self.rules, interfaces)?, spreads))
    }

    /// The routes of each destination in each table, by number.
    fn rivals(&self) -> HashMap<Place<'_>, Vec<usize>> {
        let mut rivals = HashMap::<_, Vec<usize>>::default();
        self.routes
            .iter()
            .enumerate()
            .for_each(|(number, route)| rivals.entry(route.place()).or_default().push(number));
        rivals
    }

    /// The most neighbours, and how many a source may have this router ask for in a second.
    pub(super) fn most(&self) -> Result<(u32, u32), ConfigError> {
        const FEW: u32 = 16;
        let most = self.neighbours_max;
        match self.asked_per_source {
            None => Ok((most, FEW.max(most / 4))),
            Some(0) => {
                let reason = "no packet would reach a neighbour that is not known";
                Err(ConfigError::new("asked_per_source", reason, "write 1 or more, or leave it out"))
            }
            Some(per_source) if per_source > most => {
                let reason = format!("{per_source} are more than `neighbours_max`");
                Err(ConfigError::new("asked_per_source", reason, format!("write 1 to {most}")))
            }
            Some(per_source) => Ok((most, per_source)),
        }
    }

    pub(super) fn lifetime_ns(&self) -> Result<u64, ConfigError> {
        let (least, most) = (Duration::from_secs(1), Duration::from_secs(86_400));
        span_ns("neighbour_lifetime_s", Duration::from_secs(self.neighbour_lifetime_s), least, most)
    }
}

/// An address as a key of the routing tables, from the highest bit on.
#[inline(always)]
pub fn key(address: IpAddress) -> u128 {
    match address.v4() {
        Some(v4) => u128::from(u32::from_be_bytes(v4)) << 96,
        None => u128::from_be_bytes(address.octets()),
    }
}

/// Ranges to which nothing is ever forwarded, because they contain groups, loopback, link-local or unspecified addresses
/// (`objections::to_forwarding`). A blackhole route to one of them, as found in bogon lists, is redundant but accepted.
fn nowhere() -> Vec<Prefix> {
    let ranges =
        ["0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3", "ff00::/8", "fe80::/10", "::/128", "::1/128"];
    ranges.iter().filter_map(|range| range.parse().ok()).collect()
}

/// The number of the interface at a port, or in a VLAN of it.
pub(super) fn link(interfaces: &[Option<Interface>], port: Port, vlan: Option<u16>) -> Option<Link> {
    let is_there = |one: &Option<Interface>| one.as_ref().is_some_and(|one| one.is_at(port, vlan));
    interfaces.iter().position(is_there).map(|link| link as Link)
}

pub(super) fn place(port: Port, vlan: Option<u16>) -> String {
    vlan.map_or_else(|| format!("port {port}"), |vlan| format!("VLAN {vlan} of port {port}"))
}

/// Whether an address is the router's; a link-local one, whether it is at that interface, for elsewhere it may be a neighbour's.
pub(super) fn is_own(interfaces: &[Option<Interface>], address: IpAddress, place: (Option<Port>, Option<u16>)) -> bool {
    let may_be_meant = |one: &Interface| place.0.is_none_or(|port| one.is_at(port, place.1));
    let counts = |one: &Interface| !is_link_local_v6(address) || may_be_meant(one);
    interfaces.iter().flatten().any(|interface| interface.owns(address) && counts(interface))
}

impl RouteConfig {
    /// The table and the destination.
    fn place(&self) -> Place<'_> {
        (self.table.as_deref().filter(|table| *table != MAIN), self.to.first(), self.to.bits())
    }

    /// Whether this route can send packets to a static neighbour outside the networks of all interfaces.
    pub(super) fn leads_to(&self, neighbour: &NeighbourConfig) -> bool {
        let NeighbourConfig { address, port, vlan, .. } = *neighbour;
        let there = (Some(port), vlan);
        let straight = self.via.is_none() && self.to.contains(address.into());
        let by_way = straight || self.via == Some(address);
        (by_way && (self.port, self.vlan) == there)
            || self.hops.iter().any(|hop| hop.via == address && (hop.port, hop.vlan) == there)
    }

    /// Checks the route and returns its way. Its interface must have an address from which to ask for neighbours, or the plan a
    /// static neighbour for it.
    pub(super) fn way(
        &self,
        interfaces: &[Option<Interface>],
        neighbours: &[NeighbourConfig],
    ) -> Result<Way, ConfigError> {
        let way = self.leads(interfaces)?;
        let Way::To(link, via) = way else { return Ok(way) };
        let Some(out) = interfaces.get(usize::from(link)).and_then(Option::as_ref) else { return Ok(way) };
        let is_there = |one: &NeighbourConfig| {
            let address = one.address.into();
            out.is_at(one.port, one.vlan) && via.map_or(self.to.contains(address), |via| via == address)
        };
        if out.address_towards(self.to.first()).is_some() || neighbours.iter().any(is_there) {
            return Ok(way);
        }
        let version = if self.to.is_v4() { "IPv4" } else { "IPv6" };
        let reason =
            format!("{} has no address of {version} from which to ask for neighbours", place(out.port, out.vlan));
        let instead = "write one into its `addresses`, or a [[neighbour]] that is there";
        Err(ConfigError::new(if via.is_some() { "route.via" } else { "route.port" }, reason, instead))
    }

    fn leads(&self, interfaces: &[Option<Interface>]) -> Result<Way, ConfigError> {
        let reaching = |via| {
            let reaches = |interface: &Option<Interface>| interface.as_ref().is_some_and(|one| one.reaches(via));
            interfaces.iter().position(reaches).map(|link| link as Link)
        };
        let wrong = |reason: String| {
            ConfigError::new("route.via", reason, "name a neighbour in a network of an interface, or a `port`")
        };
        match (self.port, self.via.map(IpAddress::from), self.refuse) {
            (None, None, Some(refusal)) if self.vlan.is_none() => Ok(Way::Nowhere(refusal)),
            (_, _, Some(_)) => {
                let reason = format!("{} leads somewhere and is refused", self.to);
                Err(ConfigError::new("route.refuse", reason, "keep `via`, `port` and `vlan`, or `refuse`"))
            }
            (_, Some(via), None) if via.is_v4() != self.to.is_v4() => {
                Err(wrong(format!("{via} is of the other family")))
            }
            (port, Some(via), None) if is_own(interfaces, via, (port, self.vlan)) => {
                Err(wrong(format!("{via} is this router's own")))
            }
            (_, Some(via), None) if interfaces.iter().flatten().any(|interface| interface.is_broadcast(via)) => {
                Err(wrong(format!("{via} is a network or all of its hosts")))
            }
            (None, Some(via), None) if is_link_local_v6(via) && interfaces.iter().flatten().nth(1).is_some() => {
                let reason = format!("{via} may be at every interface");
                Err(ConfigError::new("route.via", reason, "write its `port` too"))
            }
            (Some(port), via, None) => match link(interfaces, port, self.vlan) {
                Some(link) => Ok(Way::To(link, via)),
                None => Err(wrong(format!("{} has no interface", place(port, self.vlan)))),
            },
            (None, ..) if self.vlan.is_some() => {
                let reason = format!("{} has a `vlan` without its port", self.to);
                Err(ConfigError::new("route.vlan", reason, "write `port` too"))
            }
            (None, Some(via), None) => match reaching(via) {
                Some(link) => Ok(Way::To(link, Some(via))),
                None => Err(wrong(format!("{via} is in no network of an interface"))),
            },
            (None, None, None) => {
                let reason = format!("nothing is said about where packets to {} go", self.to);
                Err(ConfigError::new("route", reason, "write `via`, `port`, or refuse = \"blackhole\""))
            }
        }
    }
}
