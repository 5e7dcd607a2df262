//! The checked configuration.

use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use braid_nf::packet::{IpAddress, Segments, Tagging};
use braid_nf::state::StateBuilder;
use braid_nf::{Hairpins, Packet, Port};

use super::config::Config;
use super::one_to_one::OneToOne;
use super::only_to::OnlyTo;
use crate::config::{ConfigError, check_port, idle_ns};
use crate::mappings::config::{Allocation, Networks};
use crate::mappings::endpoint::{Endpoint, Inside};
use crate::mappings::fixed::{self, Fixed};
use crate::mappings::for_router::LeftToRouter;
use crate::mappings::networks::{Behind, Nets};
use crate::mappings::pool::Pool;
use crate::mappings::session::Timeouts;
use crate::parts::answers::answer::Router;
use crate::parts::answers::proxy::Proxy;
use crate::parts::config::prefix;
use crate::parts::forwarding::hairpin::Return;
use crate::parts::forwarding::others::{CountsHops, Others};
use crate::parts::headers::segment_size::{HEADERS_V4, Limit};
use crate::parts::{Prefix, PrefixesV4, Side, Sides, WayOut};

/// The MTUs that an interface of `router` may have, in bytes.
const MTUS: RangeInclusive<u16> = 68..=9216;

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) inside: PrefixesV4,
    pub(super) pool: Pool,
    pub(super) networks: Nets,
    pub(super) fixed: Box<[Fixed]>,
    pub(super) one_to_one: OneToOne,
    pub(super) exempt: PrefixesV4,
    pub(super) only_to: OnlyTo,
    pub(super) timeouts: Timeouts,
    pub(super) fragment_ns: u64,
    pub(super) ipv6: Others,
    pub(super) non_ip: Others,
    /// This function's own addresses as a router: inside, outside.
    routers: [Router; 2],
    /// Which packets to its external address outside are left to the router behind it, unless they match a mapping.
    for_router: LeftToRouter,
    /// Which hairpins return through the functions before this one.
    pub(super) hairpins: Hairpins,
    counts_hops: CountsHops,
    /// The maximum length in bytes of IP packets that leave for the inside, and for the outside, if this function has to
    /// check it.
    mtus: [u16; 2],
    /// What segments announce at most that begin a TCP connection.
    pub(super) segments: Limit,
    pub(super) proxy: Option<Proxy>,
    /// The addresses for which it answers neighbour requests inside.
    gateways: Box<[Ipv4Addr]>,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16, builder: &StateBuilder) -> Result<Settings, ConfigError> {
        let (sides, of_mappings) = (sides(config, ports)?, config.of_mappings());
        let networks = Nets::check(&of_mappings, sides, ports)?;
        let pool = Pool::check(&of_mappings, ports, networks.list.clone())?;
        check_ranges(config, &pool.external)?;
        check_meant(config, &pool.external)?;
        let home = (0..ports).find(|port| sides.of(*port) == Some(Side::Inside)).unwrap_or(0);
        let fixed = fixed(config, &pool, (&networks, home))?;
        let mtus = [mtu("inside_mtu", config.inside_mtu)?, mtu("outside_mtu", config.outside_mtu)?];
        let one_to_one = OneToOne::check(config, (&pool, &fixed), (&networks, home))?;
        Ok(Settings {
            sides,
            inside: PrefixesV4::of(&config.inside),
            for_router: for_router(config, &pool)?,
            // With one external address a packet that returns is where packets from outside with its addresses come.
            hairpins: Return::hairpins(
                config.hairpins,
                &WayOut::new(sides, ports, builder),
                (pool.external.len() + one_to_one.addresses() <= 1).then_some(Hairpins::OneAddress),
            ),
            counts_hops: config.counts_hops,
            fixed,
            one_to_one,
            networks,
            exempt: PrefixesV4::of(&config.exempt),
            only_to: OnlyTo::check(config)?,
            timeouts: Timeouts::check(&of_mappings)?,
            fragment_ns: idle_ns("fragment_s", config.fragment_s)?,
            ipv6: config.ipv6,
            non_ip: config.non_ip,
            routers: routers(config)?,
            pool,
            segments: segments(config, mtus)?,
            mtus,
            proxy: Proxy::check(config.mac)?,
            gateways: gateways(config)?,
        })
    }

    /// Whether every network of the other configuration is the same here; if networks determine blocks of ports, also
    /// whether there are no further ones.
    pub(super) fn has_networks_of(&self, other: &Settings) -> bool {
        let is_counted = matches!(self.pool.allocation, Allocation::Deterministic { .. });
        self.networks.has_those_of(&other.networks) && (!is_counted || self.networks.list == other.networks.list)
    }

    /// The inside endpoint that sent a packet.
    pub(super) fn inside(&self, packet: &Packet<'_>, end: Endpoint) -> Inside {
        Inside::new(self.networks.of(packet), end.ip(), end.port, end.protocol)
    }

    /// Where a packet comes from; none if its port is on neither side. Of a port on both sides the tags say it.
    #[inline(always)]
    pub(super) fn side_of(&self, packet: &Packet<'_>) -> Option<Side> {
        match self.sides.of(packet.port()) {
            Some(_) if self.sides.are_shared() && self.networks.is_outside(packet) => Some(Side::Outside),
            side => side,
        }
    }

    /// To which side a packet leaves.
    pub(super) fn towards(&self, to: Port, behind: Behind) -> Side {
        match behind {
            Behind::Outside if self.sides.are_shared() => Side::Outside,
            _ => self.sides.of(to).unwrap_or(Side::Inside),
        }
    }

    /// How many hops this is for a packet.
    pub(super) fn hops(&self, is_translated: bool) -> u8 {
        u8::from(is_translated || self.counts_hops == CountsHops::All)
    }

    /// Whether what is not translated is for no router behind, and has to get the tags of the other side here.
    pub(super) fn retags_all(&self) -> bool {
        self.sides.are_shared() && self.networks.have_next_hop_outside()
    }

    /// What it calls itself to who sent a packet.
    pub(super) fn router(&self, packet: &Packet<'_>) -> Router {
        let [inside, outside] = self.routers;
        if self.side_of(packet) == Some(Side::Outside) { outside } else { inside }
    }

    /// The maximum length in bytes of an IP packet that leaves for a side.
    #[inline(always)]
    pub(super) fn mtu(&self, to: Side) -> u16 {
        self.mtus[to as usize]
    }

    /// Whether a packet is for this function's own address on the side it comes from, so that it goes no further: a
    /// router behind takes it. An external address does not count, because it is shared.
    pub(super) fn is_for_router(&self, packet: &Packet<'_>) -> bool {
        let (to, [inside, outside]) = (packet.dst_ip(), self.routers);
        match self.side_of(packet) {
            Some(Side::Inside) => to == inside.v4 || Some(to) == inside.v6,
            _ => Some(to) == outside.v6 || (to == outside.v4 && !to.v4().is_some_and(|v4| self.is_external(v4))),
        }
    }

    /// Whether a packet to an external endpoint without a mapping is for the router behind.
    pub(super) fn is_left_to_router(&self, packet: &Packet<'_>) -> bool {
        self.for_router.takes(packet, packet.dst_ip())
    }

    /// Whether a neighbour's request for an address is answered: outside for external addresses, inside for gateways,
    /// which every network may have.
    pub(super) fn answers_for(&self, packet: &Packet<'_>, address: IpAddress) -> bool {
        match (self.side_of(packet), address.v4()) {
            (Some(Side::Outside), Some(v4)) => self.is_external(v4) && self.networks.is_outside(packet),
            (Some(Side::Inside), Some(v4)) => {
                self.gateways.contains(&v4.into()) && self.networks.of(packet) != Segments::OTHER
            }
            _ => false,
        }
    }

    #[inline(always)]
    pub(super) fn is_inside(&self, address: [u8; 4]) -> bool {
        self.inside.contains(address)
    }

    #[inline(always)]
    pub(super) fn is_external(&self, address: [u8; 4]) -> bool {
        self.pool.is_external_v4(address) || self.one_to_one.is_external(address)
    }

    #[inline(always)]
    pub(super) fn is_exempt(&self, address: [u8; 4]) -> bool {
        self.exempt.contains(address)
    }
}

fn routers(config: &Config) -> Result<[Router; 2], ConfigError> {
    let inside = Router::check(("router", config.router), ("router_v6", config.router_v6))?;
    let (v4, v6) = (config.outside_router.unwrap_or(config.router), config.outside_router_v6.or(config.router_v6));
    Ok([inside, Router::check(("outside_router", v4), ("outside_router_v6", v6))?])
}

/// Which ports are inside and outside. One that is both carries VLANs, of which the outside has one.
fn sides(config: &Config, ports: u16) -> Result<Sides, ConfigError> {
    let port = match (&config.inside_ports[..], &config.outside_ports[..]) {
        ([inside], [outside]) if inside == outside => check_port("inside_ports", *inside, ports.min(64))?,
        (inside, outside) => return Sides::from_lists(inside, outside, ports),
    };
    let wrong = |key: &str, reason: String, instead: &str| Err(ConfigError::new(key, reason, instead));
    if config.networks != Networks::ByVlan {
        let instead =
            "write it in one list only, or add networks = \"by_vlan\", the inside `vlans`, and `outside_vlan`";
        return wrong(
            "outside_ports",
            format!("port {port} is inside as well, and nothing tells its packets apart"),
            instead,
        );
    }
    if config.vlans.is_empty() {
        let reason = format!("port {port} is outside as well, so its inside VLANs have to be named");
        return wrong("vlans", reason, "write for example vlans = [10]");
    }
    let outside = config.outside_vlan.as_ref().map_or(Some(Tagging::NONE), |range| range.single());
    if let Some(both) = config.vlans.iter().flat_map(|range| range.iter()).find(|vlan| Some(*vlan) == outside) {
        let reason = format!("{both} is one of `vlans`, and port {port} is inside and outside");
        return wrong("outside_vlan", reason, "write another VLAN for the outside");
    }
    if config.outside_next_hop.is_some() && (config.ipv6, config.non_ip) != (Others::Drop, Others::Drop) {
        let reason = format!("ARP and IPv6 that come by port {port} would leave by it as they came");
        return wrong(
            "non_ip",
            reason,
            "write ipv6 = \"drop\" and non_ip = \"drop\": for its own addresses it answers (`mac`)",
        );
    }
    Ok(Sides::shared(port))
}

/// Without one nothing is too long.
fn mtu(key: &str, mtu: Option<u16>) -> Result<u16, ConfigError> {
    match mtu {
        Some(mtu) if !MTUS.contains(&mtu) => {
            let instead = format!("write {} to {}: that of the link, 1492 over PPPoE", MTUS.start(), MTUS.end());
            Err(ConfigError::new(key, format!("{mtu} is out of range"), instead))
        }
        mtu => Ok(mtu.unwrap_or(u16::MAX)),
    }
}

/// What fits both sides, if either has an MTU.
fn segments(config: &Config, [inside, outside]: [u16; 2]) -> Result<Limit, ConfigError> {
    let least = Some(inside.min(outside)).filter(|mtu| *mtu < u16::MAX);
    config.clamp_mss.limit(least.map(|mtu| mtu - HEADERS_V4), "`outside_mtu` (1492 for PPPoE) or `inside_mtu`")
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
        prefix::apart(key, ranges)?;
    }
    for address in external.iter().map(|address| IpAddress::from_v4(*address)) {
        if let Some(range) = config.inside.iter().find(|range| range.contains(address)) {
            let reason = format!("{address} lies in the inside range {range}");
            let key = if config.draining.iter().any(|range| range.contains(address)) { "draining" } else { "external" };
            return Err(ConfigError::new(key, reason, "write an outside address, or smaller `inside` ranges"));
        }
    }
    Ok(())
}

/// Checks that every key that is set has an effect.
fn check_meant(config: &Config, external: &[[u8; 4]]) -> Result<(), ConfigError> {
    let count = |range: &Prefix| external.iter().filter(|it| range.contains(IpAddress::from_v4(**it))).count();
    let is_external = |range: &&Prefix| range.len_v4() == Some(count(range) as u64);
    if let Some(range) = config.exempt.iter().find(is_external) {
        let reason = format!("{range} is external: what comes for it is for a mapping");
        return Err(ConfigError::new("exempt", reason, "write addresses of others, outside"));
    }
    let routers = [("router_v6", config.router_v6), ("outside_router_v6", config.outside_router_v6)];
    match routers.iter().find(|(_, router)| router.is_some() && config.ipv6 == Others::Drop) {
        Some((key, _)) => {
            let reason = "no sender of IPv6 is told of anything: its packets are dropped";
            Err(ConfigError::new(key, reason, "leave it out, or write ipv6 = \"pass\""))
        }
        None => Ok(()),
    }
}

fn for_router(config: &Config, pool: &Pool) -> Result<LeftToRouter, ConfigError> {
    let outside = config.outside_router.unwrap_or(config.router);
    let is_external = |address: Ipv4Addr| pool.is_external_v4(address.octets());
    LeftToRouter::check(&config.for_router, ("outside_router", outside), &config.for_router_addresses, is_external)
}

fn fixed(config: &Config, pool: &Pool, place: (&Nets, Port)) -> Result<Box<[Fixed]>, ConfigError> {
    let is_inside = |address| config.inside.iter().any(|range| range.contains(address));
    fixed::check((&config.fixed, config.mappings_max), pool, place, is_inside)
}

/// Checks the gateways. Hosts that use one send to its Ethernet address, which must not remain in forwarded frames.
fn gateways(config: &Config) -> Result<Box<[Ipv4Addr]>, ConfigError> {
    let wrong = |reason: &str, instead: &str| Err(ConfigError::new("gateways", reason, instead));
    match (config.gateways.is_empty(), config.mac, config.outside_next_hop) {
        (true, ..) => Ok([].into()),
        (false, None, _) => wrong("it has no Ethernet address to answer with", "add mac = \"02:00:00:00:00:01\""),
        (false, _, None) => wrong(
            "what is sent to it would go on to itself",
            "add networks = \"by_vlan\", perhaps with vlans = [\"untagged\"], and `outside_next_hop`",
        ),
        _ => Ok(config.gateways.clone().into()),
    }
}
