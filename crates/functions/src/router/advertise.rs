//! Router advertisements (RFC 4861 section 6.2): IPv6 hosts find this router and their network's prefix by themselves (SLAAC, RFC 4862), and
//! where to ask for names (RFC 8106).

use std::net::Ipv6Addr;
use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::state::hash::mixed;
use braid_nf::state::{StateBuilder, StateObject, VectorConfig};
use serde::Deserialize;

use super::interface::{Interface, LINKS_MAX};
use super::links::{Link, Links};
use crate::config::ConfigError;
use crate::parts::SECOND;
use crate::parts::answers::discovery;
use crate::parts::answers::icmpv6::{self, ALL_NODES, Envelope, Node, to_group};
use crate::parts::headers::scope::is_link_local_v6;

/// A solicitation, which will be answered.
pub(super) const SOLICITATION: Reason = Reason("router_solicitation");

/// ICMPv6 types (RFC 4861 sections 4.1 and 4.2).
const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
/// How long an address made of an advertised prefix is valid, and preferred (RFC 4861 section 6.2.1).
const VALID_S: u32 = 30 * 86_400;
const PREFERRED_S: u32 = 7 * 86_400;
/// Between two advertisements: at least; after each of the first ones; from then on, between these two (RFC 4861 sections 6.2.1, 6.2.4, 10).
const LEAST_NS: u64 = 3 * SECOND;
const FIRST: (u64, u64) = (3, 16 * SECOND);
const LATER_NS: (u64, u64) = (200 * SECOND, 600 * SECOND);
/// How long servers of names may be asked after an advertisement, at least: three of the longest pauses (RFC 8106 section 5.1), so that one
/// advertisement that is lost leaves nobody without names.
const DNS_LIFETIME_S: u16 = 3 * (LATER_NS.1 / SECOND) as u16;
/// The most servers that can be named.
const DNS_MAX: usize = 8;

/// `advertise` of an interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdvertiseConfig {
    /// For how many seconds hosts may use this router as their default router after an advertisement; 0: not at all.
    pub lifetime_s: u16,
    /// Servers that resolve names.
    pub dns: Vec<Ipv6Addr>,
}

impl Default for AdvertiseConfig {
    fn default() -> AdvertiseConfig {
        AdvertiseConfig { lifetime_s: 1800, dns: Vec::new() }
    }
}

impl AdvertiseConfig {
    /// Refuses what no advertisement can say, from an interface with these addresses.
    pub(super) fn check(&self, addresses: &[(IpAddress, u8)]) -> Result<(), ConfigError> {
        let wrong = |key: &str, reason: String, instead: &str| Err(ConfigError::new(key, reason, instead));
        if !addresses.iter().any(|(own, _)| is_link_local_v6(*own)) {
            let reason = "an advertisement comes from a link-local address, and this interface has none".to_owned();
            return wrong("interface.advertise", reason, "add one to its `addresses`: \"fe80::1/64\"");
        }
        if self.lifetime_s > 9000 || (1..600).contains(&self.lifetime_s) {
            let reason = format!("{} is not possible", self.lifetime_s);
            return wrong("interface.advertise.lifetime_s", reason, "write 600 to 9000, or 0");
        }
        if self.dns.len() > DNS_MAX {
            return wrong("interface.advertise.dns", format!("{} servers", self.dns.len()), "write 8 at most");
        }
        Ok(())
    }
}

/// When an interface advertises next, and what it has advertised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Turn {
    due_ns: u64,
    last_ns: u64,
    sent: u64,
}

/// The turns of all interfaces.
pub(super) struct Advertisements {
    turns: Vector<Turn>,
}

impl Advertisements {
    /// `None` if no interface advertises.
    pub fn new(builder: &mut StateBuilder, interfaces: &[Option<Interface>]) -> Result<Option<Self>, ConfigError> {
        if interfaces.iter().flatten().all(|one| one.advertise.is_none()) {
            return Ok(None);
        }
        let config = VectorConfig { name: "advertisements".into(), len: LINKS_MAX as u32 };
        let turns = Vector::new(builder, &config, Turn::default());
        Ok(Some(Advertisements { turns: turns.map_err(|error| ConfigError::state("interface.advertise", &error))? }))
    }

    /// Sends what is due.
    pub fn tick(&self, cx: &mut Cx<'_>, links: &Links) -> Result<(), Conflict> {
        let now = cx.now();
        for (link, one) in links.numbered() {
            let Some(config) = &one.advertise else { continue };
            let turn = self.turns.get(cx, link.into())?.unwrap_or_default();
            if now < turn.due_ns {
                continue;
            }
            let frame = message(one, config);
            one.ports().for_each(|port| one.say(cx, port, &frame));
            let pause_ns = match turn.sent + 1 < FIRST.0 {
                true => FIRST.1,
                false => LATER_NS.0 + mixed(&one.mac.0, now) % (LATER_NS.1 - LATER_NS.0),
            };
            self.turns.set(cx, link.into(), Turn { due_ns: now + pause_ns, last_ns: now, sent: turn.sent + 1 })?;
        }
        Ok(())
    }

    /// Lets an interface advertise with the next tick, but not more often than it may: somebody asks for it, or its link has come up.
    pub fn hasten(&self, cx: &mut Cx<'_>, link: Link) -> Result<(), Conflict> {
        let now = cx.now();
        self.turns.update(cx, link.into(), |turn| {
            let earliest_ns = if turn.sent > 0 { turn.last_ns + LEAST_NS } else { 0 };
            turn.due_ns = turn.due_ns.min(now.max(earliest_ns));
        })?;
        Ok(())
    }
}

/// Whether a packet is a host's question for routers (RFC 4861 section 6.1.1).
pub(super) fn is_solicitation(packet: &Packet<'_>) -> bool {
    packet.icmpv6().is_some_and(|icmp| icmp.kind() == ROUTER_SOLICITATION) && is_valid(packet)
}

/// Whether a solicitation may be believed (RFC 4861 section 6.1.1). Who has no address yet names no link-layer address.
fn is_valid(packet: &Packet<'_>) -> bool {
    const SOURCE_OPTION: u8 = 1;
    let body = packet.ip_payload();
    let source = body.get(8..).and_then(|options| discovery::option(options, SOURCE_OPTION));
    let is_fit = |mac: Option<MacAddress>| mac.is_none() || packet.src_ip() != IpAddress::UNSPECIFIED;
    packet.ttl() == Some(255) && body.get(1) == Some(&0) && source.is_some_and(is_fit) && packet.checksums_ok()
}

/// An advertisement as a frame, to all nodes of the link.
fn message(interface: &Interface, config: &AdvertiseConfig) -> Vec<u8> {
    let (mac, lifetime) = (interface.mac, config.lifetime_s.to_be_bytes());
    let mut body = vec![ROUTER_ADVERTISEMENT, 0, 0, 0, 64, 0, lifetime[0], lifetime[1], 0, 0, 0, 0, 0, 0, 0, 0];
    // Source link-layer address, MTU, prefixes (RFC 4861 section 4.6), servers of names (RFC 8106 section 5.1).
    body.extend([&[1, 1][..], &mac.0].concat());
    body.extend([&[5, 1, 0, 0][..], &u32::from(interface.mtu).to_be_bytes()].concat());
    let prefixes = interface.addresses.iter().filter(|(own, _)| !own.is_v4() && !is_link_local_v6(*own));
    for (own, bits) in prefixes {
        const ON_LINK: u8 = 0x80;
        const AUTONOMOUS: u8 = 0x40;
        let flags = if *bits == 64 { ON_LINK | AUTONOMOUS } else { ON_LINK };
        body.extend([3, 4, *bits, flags]);
        body.extend([VALID_S.to_be_bytes(), PREFERRED_S.to_be_bytes(), [0; 4]].concat());
        body.extend(own.prefix(*bits).octets());
    }
    if !config.dns.is_empty() {
        body.extend([25, 1 + 2 * config.dns.len() as u8, 0, 0]);
        body.extend(u32::from(config.lifetime_s.max(DNS_LIFETIME_S)).to_be_bytes());
        config.dns.iter().for_each(|server| body.extend(server.octets()));
    }
    let own = interface.addresses.iter().map(|(own, _)| *own).find(|own| is_link_local_v6(*own)).unwrap_or_default();
    let from = Node { mac, address: own };
    let envelope = Envelope { to: to_group(ALL_NODES), from, hop_limit: u8::MAX, hop_by_hop: &[] };
    icmpv6::message(&envelope, &body)
}

impl Part for Advertisements {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.turns.objects(into);
    }
}
