//! IGMP and MLD snooping (RFC 4541): learns which ports want which group from what hosts and routers send each other.
//!
//! A port that sends a report (IGMPv1 to v3, MLDv1 and v2) wants the group until the membership time passes without another
//! report, or until shortly after a leave if no other report follows. Queries show where routers are, which want all groups,
//! and make all members report. Without a querier, members that reported long ago stay silent (hosts report once), so groups
//! are then sent everywhere. Times are kept in whole seconds, rounded up. Sources of IGMPv3 and MLDv2 are not distinguished: a
//! host that wants a group from some sources gets it from all.

use std::sync::Arc;
use std::time::Duration;

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion, checksum};
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateBuilder, StateObject, Tx, Visit};
use braid_nf::{Part, Port};
use serde::Deserialize;

use super::vlans::PORTS_MAX;
use crate::config::{ConfigError, span_ns};
use crate::parts::sweep::turn;
use crate::parts::{SECOND, scope};

const IGMP: u8 = 2;
/// How long a port keeps a group after a leave, unless another report follows: the last member query time (RFC 3376 section 8).
const LEAVE_S: u32 = 2;
/// How long after the first query all members have answered: the query response interval (RFC 3376 section 8.3).
const ANSWER_S: u32 = 10;
/// Entries that one sweep examines.
const PIECE: u32 = 64;

/// `[snooping]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnoopingConfig {
    /// Whether snooping is enabled; must be given wherever `[snooping]` is.
    pub enabled: Option<bool>,
    /// The most entries: one for each group in each VLAN, and one for the queriers of each IP version in each VLAN.
    pub groups_max: u32,
    /// Seconds after which a port that does not repeat its report, or a querier that sends no query, is forgotten.
    pub membership_s: u64,
    /// Where frames for a group that no host has reported are sent.
    pub unregistered: Unregistered,
}

impl Default for SnoopingConfig {
    fn default() -> SnoopingConfig {
        // RFC 3376 section 8.4: 2 * 125 s + 10 s.
        SnoopingConfig { enabled: None, groups_max: 1024, membership_s: 260, unregistered: Unregistered::Flood }
    }
}

/// Where frames for a group that no host has reported are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unregistered {
    /// Everywhere.
    Flood,
    /// To routers only.
    Routers,
}

/// A group in a VLAN. The unspecified address of IPv4 or IPv6 stands for the queriers of that family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Group {
    address: IpAddress,
    vlan: u64,
}

/// The time, in seconds, until which each port wants the group or has a querier.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Members {
    until_s: [u32; PORTS_MAX as usize],
    /// When the first of the current members joined.
    since_s: u32,
    unused: u32,
    /// Ports, as bits, whose querier is not a router.
    bridges: u64,
}

impl Members {
    const NONE: Members = Members { until_s: [0; PORTS_MAX as usize], since_s: 0, unused: 0, bridges: 0 };

    /// The ports that want the group; for queriers, only those of routers.
    fn ports(&self, now_s: u32) -> u64 {
        let wants = self.until_s.iter().enumerate().filter(|(_, until_s)| **until_s > now_s);
        wants.fold(0, |ports, (port, _)| ports | 1 << port) & !self.bridges
    }

    fn is_over(&self, now_s: u32) -> bool {
        self.until_s.iter().all(|until_s| *until_s <= now_s)
    }

    /// Whether all members of groups have been queried and have answered.
    fn have_answered(&self, now_s: u32) -> bool {
        !self.is_over(now_s) && now_s >= self.since_s + ANSWER_S
    }
}

/// The address under which queriers of this family are stored.
fn asking(is_v4: bool) -> IpAddress {
    if is_v4 { IpAddress::from_v4([0; 4]) } else { IpAddress::UNSPECIFIED }
}

/// What an IGMP or MLD message says about a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// A query, and whether a router sent it.
    Query(bool),
    /// A host wants the group.
    Joins(IpAddress),
    /// A host no longer wants the group.
    Leaves(IpAddress),
}

/// Where a frame for a group is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// To all ports of its VLAN.
    Everywhere,
    /// To these ports only.
    Only(u64),
    /// Nowhere: it is a message with a wrong checksum.
    Nowhere,
}

/// The members of groups, and the queriers.
pub struct Snooping {
    table: Map<Group, Members>,
    membership_s: u32,
    unregistered: Unregistered,
}

braid_nf::plain!(SnoopingConfig);

impl Snooping {
    /// Creates the state of snooping; `None` if it is not enabled.
    pub fn new(
        config: Option<SnoopingConfig>,
        builder: &mut StateBuilder,
        ports: u16,
    ) -> Result<Option<Snooping>, ConfigError> {
        let Some(config) = config else { return Ok(None) };
        match config.enabled {
            Some(true) => {}
            Some(false) => return Ok(None),
            None => {
                let reason = "nothing says whether groups are looked at";
                let instead = "write `enabled = true`, `enabled = false`, or nothing about snooping";
                return Err(ConfigError::new("snooping", reason, instead));
            }
        }
        if ports > PORTS_MAX {
            let instead = format!("use a plan with at most {PORTS_MAX}");
            return Err(ConfigError::new("snooping", format!("the plan has {ports} ports"), instead));
        }
        let (least, most) = (Duration::from_secs(5), Duration::from_secs(86_400));
        let membership = Duration::from_secs(config.membership_s);
        let membership_ns = span_ns("snooping.membership_s", membership, least, most)?;
        let map = MapConfig { name: "groups".into(), capacity: config.groups_max, ..MapConfig::default() };
        let table = Map::new(builder, &map).map_err(|error| ConfigError::state("snooping.groups_max", &error))?;
        let membership_s = (membership_ns / SECOND) as u32;
        Ok(Some(Snooping { table, membership_s, unregistered: config.unregistered }))
    }

    /// Learns from a frame for a group and returns where it goes, and whether all the groups it reports found room.
    pub(super) fn look(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, vlan: u16) -> Result<(Course, bool), Conflict> {
        let group = packet.dst_ip();
        let Some(version) = packet.ip_version().filter(|_| !packet.is_later_fragment()) else {
            return Ok((Course::Everywhere, true));
        };
        // RFC 4541 section 2.1.1 (5): damaged messages are ignored.
        let is_igmp = packet.protocol() == IGMP && version == IpVersion::V4;
        if (is_igmp || is_mld(packet, version)) && !is_sound(packet, is_igmp) {
            return Ok((Course::Nowhere, true));
        }
        let mut message = Message::of(packet, version).peekable();
        if message.peek().is_some() {
            return self.hear(cx, (packet.port(), vlan), group.is_v4(), message);
        }
        // RFC 4541 section 2.1.1 (3): unknown messages are flooded.
        if is_igmp {
            return Ok((Course::Everywhere, true));
        }
        // RFC 4541 section 2.1.2: link-local groups are flooded; so are frames that are not for an IP group at all.
        if !is_group(group) || is_link_local(group) {
            return Ok((Course::Everywhere, true));
        }
        let now_s = seconds(cx);
        let asking = self.members(cx, asking(group.is_v4()), vlan)?;
        let members = self.members(cx, group, vlan)?.ports(now_s);
        let is_told = members != 0 && asking.have_answered(now_s);
        Ok(match self.unregistered {
            Unregistered::Flood if !is_told => (Course::Everywhere, true),
            _ => (Course::Only(members | asking.ports(now_s)), true),
        })
    }

    /// Processes a message. A query goes everywhere, anything else only to routers, so that no host suppresses its report
    /// because of another's.
    fn hear(
        &self,
        cx: &mut Cx<'_>,
        (port, vlan): (Port, u16),
        is_v4: bool,
        message: impl Iterator<Item = Said>,
    ) -> Result<(Course, bool), Conflict> {
        let mut has_room = true;
        for said in message {
            match said {
                Said::Query(is_routers) => {
                    has_room &= self.note(cx, asking(is_v4), (vlan, port), is_routers)?;
                    return Ok((Course::Everywhere, has_room));
                }
                Said::Joins(group) if is_group(group) && !is_link_local(group) => {
                    has_room &= self.note(cx, group, (vlan, port), true)?
                }
                Said::Leaves(group) => self.leave(cx, group, vlan, port)?,
                Said::Joins(_) => {}
            }
        }
        let routers = self.members(cx, asking(is_v4), vlan)?.ports(seconds(cx));
        Ok((Course::Only(routers), has_room))
    }

    fn members(&self, cx: &mut Cx<'_>, address: IpAddress, vlan: u16) -> Result<Members, Conflict> {
        Ok(self.table.get(cx, &Group { address, vlan: vlan.into() })?.unwrap_or(Members::NONE))
    }

    /// Records for another membership time that a port wants a group, or has a querier, which may or may not be a router.
    /// Returns false if there is no room.
    fn note(
        &self,
        cx: &mut Cx<'_>,
        address: IpAddress,
        (vlan, port): (u16, Port),
        is_wanted: bool,
    ) -> Result<bool, Conflict> {
        let (now_s, before) = (seconds(cx), self.members(cx, address, vlan)?);
        let (bit, mut members) = (1u64.checked_shl(port.into()).unwrap_or(0), before);
        let Some(own) = members.until_s.get_mut(usize::from(port)) else { return Ok(true) };
        // A querying bridge beside a router does not revoke the router's status.
        match (is_wanted, *own > now_s) {
            (true, _) => members.bridges &= !bit,
            (false, false) => members.bridges |= bit,
            (false, true) => {}
        }
        *own = now_s + self.membership_s + 1;
        if before.is_over(now_s) {
            members.since_s = now_s;
        }
        let is_news = members != before;
        Ok(!is_news || self.table.insert(cx, &Group { address, vlan: vlan.into() }, &members)? != Inserted::Full)
    }

    /// Lets a port's membership end soon, unless another report follows.
    fn leave(&self, cx: &mut Cx<'_>, address: IpAddress, vlan: u16, port: Port) -> Result<(), Conflict> {
        let until_s = seconds(cx) + LEAVE_S + 1;
        self.table.update(cx, &Group { address, vlan: vlan.into() }, |members| {
            if let Some(own) = members.until_s.get_mut(usize::from(port)) {
                *own = (*own).min(until_s);
            }
        })?;
        Ok(())
    }

    /// Forgets groups that no port wants any more, a few at a time.
    pub(super) fn sweep(&self, tx: &mut Tx) -> Result<(), Conflict> {
        let now_s = (tx.now() / SECOND) as u32;
        let from = turn(now_s.into(), PIECE, self.table.capacity()).start;
        self.table.for_each(tx, from, PIECE, |_, _, members| {
            Ok(if members.is_over(now_s) { Visit::Remove } else { Visit::Keep })
        })?;
        Ok(())
    }
}

fn seconds(cx: &Cx<'_>) -> u32 {
    (cx.now() / SECOND) as u32
}

fn is_group(address: IpAddress) -> bool {
    match address.v4() {
        Some([first, ..]) => first & 0xf0 == 0xe0,
        None => address.octets()[0] == 0xff,
    }
}

/// Whether a group is in 224.0.0.0/24 (RFC 4541 section 2.1.2) or of link scope: solicited-node groups and the like, which are
/// numerous and small.
fn is_link_local(address: IpAddress) -> bool {
    match (address.v4(), address.octets()) {
        (Some(v4), _) => v4[..3] == [224, 0, 0],
        (None, [_, scope, ..]) => scope & 0x0f <= 2,
    }
}

/// Iterates over what a packet says about groups; empty if it is not a message or is truncated.
struct Message<'p> {
    rest: &'p [u8],
    /// Bytes of an address.
    width: usize,
    /// How the rest is read: as records of a report, or as a single result found already.
    next: Next,
}

enum Next {
    One(Said),
    Records(u16),
    Nothing,
}

impl<'p> Message<'p> {
    fn of(packet: &'p Packet<'_>, version: IpVersion) -> Message<'p> {
        let bytes = packet.ip_payload();
        let (width, number) = if version == IpVersion::V4 { (4, IGMP) } else { (16, protocol::ICMPV6) };
        let group_at = if version == IpVersion::V4 { 4 } else { 8 };
        let group = bytes.get(group_at..group_at + width).map(address);
        let next = match (bytes.first(), group) {
            _ if packet.protocol() != number => Next::Nothing,
            (Some(0x11 | 130), _) if may_ask(packet.src_ip()) => {
                Next::One(Said::Query(packet.src_ip() != IpAddress::from_v4([0; 4])))
            }
            (Some(0x12 | 0x16 | 131), Some(group)) => Next::One(Said::Joins(group)),
            (Some(0x17 | 132), Some(group)) => Next::One(Said::Leaves(group)),
            (Some(0x22 | 143), _) => match bytes.get(6..8) {
                Some([high, low]) => Next::Records(u16::from_be_bytes([*high, *low])),
                _ => Next::Nothing,
            },
            _ => Next::Nothing,
        };
        Message { rest: bytes.get(8..).unwrap_or_default(), width, next }
    }

    /// Reads a record of IGMPv3 (RFC 3376 section 4.2.4) or MLDv2 (RFC 3810 section 5.2.4), and returns what it says.
    fn record(&mut self) -> Option<Option<Said>> {
        let [kind, auxiliary, high, low] = *self.rest.first_chunk()?;
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let group = address(self.rest.get(4..4 + self.width)?);
        let len = 4 + self.width * (1 + sources) + 4 * usize::from(auxiliary);
        self.rest = self.rest.get(len..)?;
        Some(match (kind, sources) {
            (1 | 3, 0) => Some(Said::Leaves(group)),
            (1..=5, _) => Some(Said::Joins(group)),
            _ => None,
        })
    }
}

impl Iterator for Message<'_> {
    type Item = Said;

    fn next(&mut self) -> Option<Said> {
        loop {
            match self.next {
                Next::Nothing | Next::Records(0) => return None,
                Next::One(said) => {
                    self.next = Next::Nothing;
                    return Some(said);
                }
                Next::Records(left) => {
                    self.next = Next::Records(left - 1);
                    if let Some(said) = self.record()? {
                        return Some(said);
                    }
                }
            }
        }
    }
}

fn address(bytes: &[u8]) -> IpAddress {
    match (bytes.first_chunk::<16>(), bytes.first_chunk::<4>()) {
        (Some(v6), _) => IpAddress::from(std::net::IpAddr::from(*v6)),
        (None, Some(v4)) => IpAddress::from(std::net::IpAddr::from(*v4)),
        (None, None) => IpAddress::UNSPECIFIED,
    }
}

/// Whether a query from this source is accepted. An MLD query must come from a link-local address (RFC 3810 section 5.1.14). An
/// IGMP query without a source comes from a bridge that acts in place of a router (RFC 4541 section 2.1.1 (1) c).
fn may_ask(source: IpAddress) -> bool {
    source.is_v4() || scope::is_link_local_v6(source)
}

/// Whether a packet is an MLD message.
fn is_mld(packet: &Packet<'_>, version: IpVersion) -> bool {
    let is_icmp = packet.protocol() == protocol::ICMPV6 && version == IpVersion::V6;
    is_icmp && matches!(packet.ip_payload().first(), Some(130 | 131 | 132 | 143))
}

/// Whether the checksums of a message, and of the IP header before it, are correct. For truncated packets and fragments this
/// cannot be determined, and they are accepted.
fn is_sound(packet: &Packet<'_>, is_igmp: bool) -> bool {
    let unknown = !is_igmp || packet.is_short() || packet.is_fragment();
    packet.checksums_ok() && (unknown || checksum::ipv4_header_ok(packet.ip_payload()))
}

impl Part for Snooping {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
    }
}

impl std::fmt::Debug for Snooping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snooping").field("membership_s", &self.membership_s).finish_non_exhaustive()
    }
}
