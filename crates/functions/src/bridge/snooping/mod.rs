//! IGMP and MLD snooping (RFC 4541): learns which ports want which group from what hosts and routers send each other.
//!
//! A port that sends a report (IGMPv1 to v3, MLDv1 and v2) wants the group until the membership time passes without another
//! report, or until shortly after a leave, or after the time that a querier allows for answers, if no other report follows. Queries show where routers are, which want all groups,
//! and make all members report; so do hellos of PIM, advertisements ([`routers`]), and the plan. Without a querier, members that reported long ago stay silent (hosts report once), so groups
//! are then sent everywhere. Times are kept in whole seconds, rounded up. Sources of IGMPv3 and MLDv2 are not distinguished: a
//! host that wants a group from some sources gets it from all.

mod message;
mod routers;

use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, ROW, Share, StateBuilder, StateObject, Tx, Visit};
use braid_nf::{About, EntryRange, Fate, Part, Port, TableEntry};
use serde::Deserialize;

use self::message::{IGMP, Message, Said, asking, is_mld};
use super::vlans::PORTS_MAX;
use crate::config::{ConfigError, span_ns};
use crate::parts::SECOND;
use crate::parts::tables::sweep::{Over, Sweep, make_room, take_out};

/// How long a port keeps a group after a leave, unless another report follows: the last member query time (RFC 3376 section 8).
const LEAVE_S: u32 = 2;
/// No time at all.
const NEVER: u32 = u32::MAX;
/// Entries for queriers: of two IP versions in each VLAN.
const QUERIERS_MAX: u32 = 2 * 4096;
/// The period at which [`Snooping::sweep`] must be called.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// All entries have their turn within half a minute.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(32) };
/// The most entries that one sweep removes.
const MOST: u32 = 1024;

/// `[snooping]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnoopingConfig {
    /// Whether snooping is enabled; must be given wherever `[snooping]` is.
    pub enabled: Option<bool>,
    /// The most entries: one for each group in each VLAN.
    pub groups_max: u32,
    /// Seconds after which a port that does not repeat its report, or a querier that sends no query, is forgotten.
    pub membership_s: u64,
    /// Where frames for a group that no host has reported are sent.
    pub unregistered: Unregistered,
    /// Ports with routers, whether or not these say so.
    pub router_ports: Vec<Port>,
}

impl Default for SnoopingConfig {
    fn default() -> SnoopingConfig {
        // RFC 3376 section 8.4: 2 * 125 s + 10 s.
        SnoopingConfig {
            enabled: None,
            groups_max: 1024,
            membership_s: 260,
            unregistered: Unregistered::Flood,
            router_ports: Vec::new(),
        }
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

/// A group in a VLAN. The unspecified address of IPv4 or IPv6 stands for the queriers, or the other routers, of that family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Group {
    address: IpAddress,
    vlan: u64,
}

/// The time, in seconds, until which each port wants the group, or has a querier or another router.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Members {
    until_s: [u32; PORTS_MAX as usize],
    /// Of queriers, when all hosts have answered the first query for all groups; [`NEVER`] if there was none.
    answered_s: u32,
    unused: u32,
    /// Ports, as bits, whose querier is not a router.
    bridges: u64,
}

impl Members {
    const NONE: Members = Members { until_s: [0; PORTS_MAX as usize], answered_s: NEVER, unused: 0, bridges: 0 };

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
        !self.is_over(now_s) && now_s >= self.answered_s
    }
}

/// Matches groups that no port wants any more, and queriers that have fallen silent.
struct Expired {
    now_s: u32,
}

impl Over<Group, Members> for Expired {
    fn is_over(&self, _: &Group, members: &Members) -> bool {
        members.is_over(self.now_s)
    }
}

/// Where a frame for a group is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// To all ports of its VLAN.
    Everywhere,
    /// To these ports only.
    Only(u64),
    /// Nowhere: it is a damaged message.
    Nowhere(Reason),
}

/// The members of groups, and the queriers.
pub struct Snooping {
    table: Map<Group, Members>,
    /// The queriers of each VLAN and family, by their unspecified address: no number of groups keeps a router from being known.
    queriers: Map<Group, Members>,
    /// The same of routers that have said so otherwise.
    routers: Map<Group, Members>,
    /// Ports, as bits, with routers whatever these say.
    router_ports: u64,
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
        let router_ports =
            config.router_ports.iter().fold(0, |bits, port| bits | 1u64.checked_shl((*port).into()).unwrap_or(0));
        if let Some(beyond) = config.router_ports.iter().find(|port| **port >= ports) {
            let reason = format!("the plan has no port {beyond}");
            return Err(ConfigError::new("snooping.router_ports", reason, "name ports of the plan"));
        }
        let (least, most) = (Duration::from_secs(5), Duration::from_secs(86_400));
        let membership = Duration::from_secs(config.membership_s);
        let membership_ns = span_ns("snooping.membership_s", membership, least, most)?;
        let mut map = |name: &str, capacity| {
            let map = MapConfig { name: name.into(), capacity, ..MapConfig::default() };
            Map::new(builder, &map).map_err(|error| ConfigError::state("snooping.groups_max", &error))
        };
        let (table, queriers) = (map("groups", config.groups_max)?, map("queriers", QUERIERS_MAX)?);
        let routers = map("routers", QUERIERS_MAX)?;
        let (membership_s, unregistered) = ((membership_ns / SECOND) as u32, config.unregistered);
        Ok(Some(Snooping { table, queriers, routers, router_ports, membership_s, unregistered }))
    }

    /// Learns from a frame for a group and returns where it goes, and whether all the groups it reports found room.
    pub(super) fn look(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, vlan: u16) -> Result<(Course, bool), Conflict> {
        let group = packet.dst_ip();
        let Some(version) = packet.ip_version() else { return Ok((Course::Everywhere, true)) };
        // What a later fragment of a message says is not known.
        if packet.is_later_fragment() && matches!(packet.protocol(), IGMP | protocol::ICMPV6) {
            return Ok((Course::Everywhere, true));
        }
        if let Some(hold_s) = routers::hold_s(packet, version) {
            let has_room = self.note_router(cx, (packet.port(), vlan), group.version(), hold_s)?;
            return Ok((Course::Everywhere, has_room));
        }
        // RFC 4541 section 2.1.1 (5): damaged messages are ignored.
        let is_igmp = packet.protocol() == IGMP && version == IpVersion::V4;
        if (is_igmp || is_mld(packet, version))
            && let Some(objection) = message::objection(packet, is_igmp)
        {
            return Ok((Course::Nowhere(objection), true));
        }
        if let Some(message) = Message::of(packet, version) {
            return self.hear(cx, (packet.port(), vlan), group.version(), message);
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
        let members = self.members(cx, group, vlan)?.ports(now_s);
        let queriers = self.members(cx, asking(group.version()), vlan)?;
        let is_told = members != 0 && queriers.have_answered(now_s);
        Ok(match self.unregistered {
            Unregistered::Flood if !is_told => (Course::Everywhere, true),
            _ => (Course::Only(members | self.routers(cx, group.version(), vlan)?), true),
        })
    }

    /// Processes a message. A query goes everywhere, anything else only to routers, so that no host suppresses its report
    /// because of another's.
    fn hear(
        &self,
        cx: &mut Cx<'_>,
        (port, vlan): (Port, u16),
        version: IpVersion,
        message: impl Iterator<Item = Said>,
    ) -> Result<(Course, bool), Conflict> {
        let mut has_room = true;
        for said in message {
            match said {
                Said::Query { is_routers, answer_s, group } => {
                    if let Some((group, answer_s)) = group {
                        self.ask(cx, group, vlan, answer_s)?;
                    }
                    has_room &= self.note(cx, asking(version), (vlan, port), (is_routers, answer_s))?;
                    return Ok((Course::Everywhere, has_room));
                }
                Said::Joins(group) | Said::Leaves(group) if !is_group(group) || is_link_local(group) => {}
                Said::Joins(group) => has_room &= self.note(cx, group, (vlan, port), (true, None))?,
                Said::Leaves(group) => self.leave(cx, group, vlan, port)?,
            }
        }
        Ok((Course::Only(self.routers(cx, version, vlan)?), has_room))
    }

    /// The ports with routers.
    fn routers(&self, cx: &mut Cx<'_>, version: IpVersion, vlan: u16) -> Result<u64, Conflict> {
        let (now_s, address) = (seconds(cx), asking(version));
        let others = self.routers.get(cx, &Group { address, vlan: vlan.into() })?.map_or(0, |all| all.ports(now_s));
        Ok(self.router_ports | others | self.members(cx, address, vlan)?.ports(now_s))
    }

    /// Records that a port has a router for so many seconds. Returns false if there is no room.
    fn note_router(
        &self,
        cx: &mut Cx<'_>,
        (port, vlan): (Port, u16),
        version: IpVersion,
        hold_s: u32,
    ) -> Result<bool, Conflict> {
        let (now_s, group) = (seconds(cx), Group { address: asking(version), vlan: vlan.into() });
        let before = self.routers.get(cx, &group)?.unwrap_or(Members::NONE);
        let mut members = before;
        let Some(own) = members.until_s.get_mut(usize::from(port)) else { return Ok(true) };
        *own = match hold_s {
            0 => 0,
            hold_s => now_s.saturating_add(hold_s).saturating_add(1),
        };
        Ok(members == before || enter(cx, &self.routers, &group, &members)?)
    }

    fn members(&self, cx: &mut Cx<'_>, address: IpAddress, vlan: u16) -> Result<Members, Conflict> {
        let members = self.table_of(address).get(cx, &Group { address, vlan: vlan.into() })?;
        Ok(members.unwrap_or(Members::NONE))
    }

    /// The table of a group, or of queriers.
    fn table_of(&self, address: IpAddress) -> &Map<Group, Members> {
        if is_group(address) { &self.table } else { &self.queriers }
    }

    /// Records for another membership time that a port wants a group, or has a querier, which may or may not be a router, and
    /// in how many seconds all have answered its query for all groups. Returns false if there is no room.
    fn note(
        &self,
        cx: &mut Cx<'_>,
        address: IpAddress,
        (vlan, port): (u16, Port),
        (is_wanted, answer_s): (bool, Option<u32>),
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
            members.answered_s = NEVER;
        }
        if let Some(answer_s) = answer_s {
            members.answered_s = members.answered_s.min(now_s + answer_s);
        }
        let is_news = members != before;
        let group = Group { address, vlan: vlan.into() };
        Ok(!is_news || enter(cx, self.table_of(address), &group, &members)?)
    }

    /// Lets the membership of all ports of a group end when the time is over that its querier allows for answers, twice: one query may get
    /// lost. That is later than a leave alone says, if the querier allows more (RFC 3376 section 8.9, Linux `br_ip4_multicast_query`).
    fn ask(&self, cx: &mut Cx<'_>, address: IpAddress, vlan: u16, answer_s: u32) -> Result<(), Conflict> {
        let now_s = seconds(cx);
        let until_s = now_s + (2 * answer_s + 1).min(self.membership_s + 1);
        self.table.update(cx, &Group { address, vlan: vlan.into() }, |members| {
            members.until_s.iter_mut().filter(|own| **own > now_s).for_each(|own| *own = until_s);
        })?;
        Ok(())
    }

    /// Lets a port's membership end soon, unless another report follows or a querier asks for the group and allows more time.
    fn leave(&self, cx: &mut Cx<'_>, address: IpAddress, vlan: u16, port: Port) -> Result<(), Conflict> {
        let until_s = seconds(cx) + LEAVE_S + 1;
        self.table.update(cx, &Group { address, vlan: vlan.into() }, |members| {
            if let Some(own) = members.until_s.get_mut(usize::from(port)) {
                *own = (*own).min(until_s);
            }
        })?;
        Ok(())
    }

    /// The tables of groups, of queriers and of other routers.
    fn tables(&self) -> [&Map<Group, Members>; 3] {
        [&self.table, &self.queriers, &self.routers]
    }

    /// Their capacities.
    pub(super) fn capacities(&self) -> [u32; 3] {
        self.tables().map(Map::capacity)
    }

    /// Tells of the groups that some port wants, or of the routers, in this part of a table, and forgets
    /// those that are to end; returns where to go on.
    pub(super) fn list(
        &self,
        tx: &mut Tx,
        table: usize,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let now_s = (tx.now() / SECOND) as u32;
        let are_groups = table == 0;
        let kind = if are_groups { "group" } else { "router" };
        self.tables()[table].for_each(tx, range.first, range.count, |_, group, members| {
            let ports = members.ports(now_s);
            if ports == 0 {
                return Ok(Visit::Keep);
            }
            let until_s = members.until_s.iter().max().copied().unwrap_or(0);
            let detail = match (table, group.address.is_v4()) {
                (0, _) => "",
                (1, true) => "IGMP",
                (1, false) => "MLD",
                (_, true) => "says so, IPv4",
                (_, false) => "says so, IPv6",
            };
            let fate = tell(TableEntry {
                kind,
                about: About::OnLink {
                    address: are_groups.then_some(group.address),
                    mac: None,
                    vlan: u16::try_from(group.vlan).ok().filter(|vlan| *vlan != 0),
                    ports: (0..PORTS_MAX).filter(|port| ports >> port & 1 == 1).collect(),
                },
                detail: detail.to_owned(),
                left_ns: Some(u64::from(until_s.saturating_sub(now_s)) * SECOND),
                is_configured: false,
            });
            Ok(if fate == Fate::End { Visit::Remove } else { Visit::Keep })
        })
    }

    /// Forgets what groups a port wants, or its routers, in this part of a table; returns where to go on.
    pub(super) fn forget_port(
        &self,
        tx: &mut Tx,
        table: usize,
        port: Port,
        range: EntryRange,
    ) -> Result<Option<u32>, Conflict> {
        self.tables()[table].for_each(tx, range.first, range.count, |_, _, members| {
            let mut without = *members;
            let Some(until_s) = without.until_s.get_mut(usize::from(port)) else { return Ok(Visit::Keep) };
            let wanted = std::mem::take(until_s) != 0;
            Ok(if wanted { Visit::Replace(without) } else { Visit::Keep })
        })
    }

    /// Forgets groups that no port wants any more, a few at a time.
    pub(super) fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        for table in self.tables() {
            let piece = SWEEP.piece(cx.now(), table.capacity(), Share::ALL);
            take_out(cx, table, piece, MOST, &mut Expired { now_s: seconds(cx) })?;
        }
        Ok(())
    }
}

/// Sets an entry of a table, if necessary in place of one that has expired. Returns false if there is no room.
fn enter(cx: &mut Cx<'_>, table: &Map<Group, Members>, group: &Group, members: &Members) -> Result<bool, Conflict> {
    if table.insert(cx, group, members)? != Inserted::Full {
        return Ok(true);
    }
    let (mut expired, size) = (Expired { now_s: seconds(cx) }, (ROW, table.capacity()));
    let has_room = make_room(cx, group, size, |cx, among| take_out(cx, table, once(among), 1, &mut expired))?;
    Ok(has_room && table.insert(cx, group, members)? != Inserted::Full)
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

impl Part for Snooping {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.queriers.objects(into);
        self.routers.objects(into);
    }
}

impl std::fmt::Debug for Snooping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snooping").field("membership_s", &self.membership_s).finish_non_exhaustive()
    }
}
