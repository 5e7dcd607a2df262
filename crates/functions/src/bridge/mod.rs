//! A transparent learning bridge (IEEE 802.1D): every frame shows where its source is, and goes where its destination was last
//! seen, or everywhere.
//!
//! All workers share one table of what has been learnt. A packet set remembers the decision made from it, and the number of
//! *changes* at that time: stations that moved or were forgotten. While that number stays the same, so does the decision. It is
//! read for each uninterrupted run of frames, so they follow a moved station at once.

mod config;
mod describe;
mod learn;
mod leave;
mod link;
mod quota;
mod snooping;
mod station;
mod storm;
mod switches;
mod vlans;

pub use config::{Config, PortConfig, StaticStation};
use leave::{flood_vlan, leave, send_to, turn_back};
pub use quota::{Quotas, VlanConfig};
use snooping::Course;
pub use snooping::{Snooping, SnoopingConfig, Unregistered};
use station::FLOOD;
pub use station::{Entry, Known, Station};
pub use storm::{Cause, Storm, StormConfig};
pub use switches::Switches;
pub use vlans::Vlans;

use std::iter::once;
use std::time::Duration;

use braid_nf::packet::MacAddress;
use braid_nf::prelude::*;
use braid_nf::state::Alone;
use braid_nf::{EntryRange, Fate, FieldUse, Relaxation, TableEntry};

use crate::config::READS_WIRE_LEN;
use crate::parts::headers::scope::BAD_SOURCE;
use crate::{ConfigError, FromConfig};

const NOT_ETHERNET: Reason = Reason("not_ethernet");
/// 01:80:c2:00:00:00 to 0f concern the next bridge only (IEEE 802.1D table 7-10).
const RESERVED_ADDRESS: Reason = Reason("reserved_address");
/// The port does not carry the frame's VLAN, or the frame is untagged and the port has no native VLAN.
const NOT_A_MEMBER: Reason = Reason("not_a_member");
/// Frames of an isolated port for a station at another one.
const ISOLATED: Reason = Reason("isolated");
/// Nobody wants the group.
const NO_MEMBER: Reason = Reason("no_member");

/// Entries that one tick examines.
const SWEEP: u32 = 64;
/// The index of the period at which expired groups are forgotten, after that of stations.
const GROUPS: usize = 1;

/// Events of learning; events of every frame are not counted here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Events {
    /// Stations learnt.
    pub learnt: u64,
    /// Stations that changed their port.
    pub moved: u64,
    /// Frames of stations for which the table had no room.
    pub table_full: u64,
    /// Frames of stations for which their VLAN had no room.
    pub vlan_full: u64,
    /// Frames of stations for which their port had no room.
    pub port_full: u64,
    /// Reports of groups for which the table had no room.
    pub groups_full: u64,
}

network_function! {
    /// Bridges its ports; see the README beside this file.
    #[derive(Debug)]
    pub struct Bridge {
        table: Map<Station, Entry>,
        /// How often a station has moved or was forgotten.
        changes: Vector<u64>,
        sweep_at: Vector<u32>,
        events: Distributed<Events>,
        vlan_aware: bool,
        /// The VLANs of the ports, if VLANs are filtered.
        vlans: Option<Vlans>,
        /// Per-port switches, if any differs from its default.
        switches: Option<Switches>,
        quotas: Quotas,
        storm: Option<Storm>,
        snooping: Option<Snooping>,
        refresh_ns: u64,
        age_max_ns: u64,
        sweep_period: Duration,
        stations: Vec<StaticStation>,
    }
}

impl FromConfig for Bridge {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Bridge, ConfigError> {
        let (refresh_ns, age_max_ns) = config.times_ns()?;
        Ok(Bridge {
            table: config.table(builder)?,
            changes: config.word(builder, "changes")?,
            sweep_at: config.word(builder, "sweep")?,
            events: config.events(builder)?,
            vlan_aware: config.vlan_aware,
            vlans: config.filter(ports)?,
            switches: Switches::check(&config.ports, ports, builder.splits_floods())?,
            quotas: Quotas::new(config.checked_vlans(ports)?, (config.port_limits()?, ports), builder)?,
            storm: Storm::new(config.storm, builder, ports)?,
            snooping: Snooping::new(config.snooping.clone(), builder, ports)?,
            refresh_ns,
            age_max_ns,
            sweep_period: config.sweep_period(SWEEP),
            stations: config.checked_stations(ports)?,
        })
    }
}

impl NetworkFunction for Bridge {
    type Set = Known;
    const NAME: &'static str = "bridge";
    const CONSUMES: &'static [Reason] = &[station::SAME_PORT];

    /// Learned stations are kept; static ones are part of the table.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        if self.vlan_aware != older.vlan_aware {
            return Err("stations are known by address, or by address and VLAN: `vlan_aware` stays".to_owned());
        }
        if self.stations != older.stations {
            return Err("stations that are written down stand in the table: `static` stays".to_owned());
        }
        if self.vlans != older.vlans {
            return Err("packet sets remember with which tags frames leave: VLANs of a `port` stay".to_owned());
        }
        if self.quotas.ports.is_some() != older.quotas.ports.is_some() {
            return Err("with limits of ports stations are counted from the start: `stations_max` of a `port` does not come or go, its limits may change".to_owned());
        }
        if self.quotas.vlans.is_some() != older.quotas.vlans.is_some() {
            return Err("with limits of VLANs stations are counted from the start: `vlan` does not come or go, its limits may change".to_owned());
        }
        Ok(())
    }

    fn link_down(&self, cx: &mut Cx<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict> {
        self.forget_port(cx, port, range)
    }

    const LISTS_ENTRIES: bool = true;

    fn list_entries(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.list(cx, range, tell)
    }

    fn fields(&self) -> Vec<FieldUse> {
        self.snooping.iter().map(|_| READS_WIRE_LEN).collect()
    }

    /// Frames between two stations keep their order.
    fn packet_set(&self) -> Option<SetDef> {
        let mut pair = SetDef::mac_pair();
        pair.fields.extend(self.vlan_aware.then_some(FieldId::VlanId));
        Some(pair)
    }

    /// Tags are rewritten if any port carries a VLAN untagged.
    fn rewrites(&self) -> Rewrites {
        match &self.vlans {
            Some(vlans) if vlans.change_tags() => Rewrites::of(&[FieldId::VlanId, FieldId::Segment]),
            _ => Rewrites::default(),
        }
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let meaning = "a silent station may be forgotten by so many milliseconds earlier";
        let (object, against) = ("stations", &["update", "update_at"] as &[_]);
        vec![Relaxation { key: "refresh_interval_ms", object, against, candidates: &[1, 100, 1000], meaning }]
    }

    fn timeout_ns(&self, _: &Known) -> u64 {
        self.age_max_ns
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.age_max_ns
    }

    fn ticks(&self) -> Vec<Duration> {
        once(self.sweep_period).chain(self.snooping.iter().map(|_| snooping::SWEEP_EVERY)).collect()
    }

    fn start(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        for station in &self.stations {
            self.table.insert(cx, &station.station, &Entry::fixed(station.port))?;
        }
        Ok(())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Known>) -> Handled {
        let mut known = Known::NOTHING;
        let verdict = self.packet(cx, packet, &mut known)?;
        // If there is no room for the set, its frames look both stations up again: slower, but correct.
        let _ = set.register(cx, known);
        Ok(verdict)
    }

    #[inline(always)]
    fn prefetches(&self) -> bool {
        true
    }

    /// Frames that need a new decision read two entries of a table that may be far larger than any cache.
    #[inline(always)]
    fn prefetch(&self, known: &Known, now_ns: u64) {
        if known.is_late(now_ns) {
            self.table.prefetch_at(known.source);
            self.table.prefetch_at(known.destination);
        }
    }

    const PREFETCHES_FIRST: bool = true;

    /// Both stations will be looked up.
    #[inline(always)]
    fn prefetch_first(&self, packet: &Packet<'_>, _now_ns: u64) {
        if let (Some(ethernet), Some(vlan)) = (packet.ethernet(), self.vlan_of(packet)) {
            self.table.prefetch(&Station::new(ethernet.source(), vlan));
            self.table.prefetch(&Station::new(ethernet.destination(), vlan));
        }
    }

    const STEADY: bool = true;

    #[inline(always)]
    fn steady(&self, arrival: Arrival<'_>, packet: &mut Packet<'_>, known: &mut Known) -> Option<Verdict> {
        let holds = arrival.era == Some(known.changes) && self.still_holds(arrival.now_ns, packet, known);
        holds.then(|| self.leave_as_known(packet, known))
    }

    const ERAS: bool = true;

    #[inline(always)]
    fn era(&self, alone: Alone<'_>) -> Option<u64> {
        self.changes.read_alone(alone, 0)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, known: &mut Known) -> Handled {
        if self.still_holds(cx.now(), packet, known) && self.changes.get(cx, 0)? == Some(known.changes) {
            return Ok(self.leave_as_known(packet, known));
        }
        self.decide(cx, packet, known)
    }

    fn orphan(&self, _: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let cut = packet.ethernet().is_some();
        Ok(Verdict::Drop(if cut { Reason::MALFORMED } else { NOT_ETHERNET }))
    }

    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, known: &Known) -> Result<Option<String>, Conflict> {
        let has_changed = known.is_late(cx.now()) || self.changes.get(cx, 0)? != Some(known.changes);
        Ok(Some(known.in_words() + if has_changed && !known.is_for_one_frame() { ", to be decided anew" } else { "" }))
    }

    const TURNS_BACK: bool = true;

    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(self.vlans.as_ref().map_or(cx.pass(), |vlans| turn_back(cx, packet, vlans)))
    }

    /// Forgets expired stations, a few at a time. This only makes room, because an expired entry is not trusted anyway.
    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        if tick.period == GROUPS {
            return self.snooping.iter().try_for_each(|snooping| snooping.sweep(cx));
        }
        let (from, now) = (self.sweep_at.get(cx, 0)?.unwrap_or(0), cx.now());
        let next =
            self.forget(cx, EntryRange { first: from, count: SWEEP }, |_, entry| entry.age_ns(now) > self.age_max_ns)?;
        self.sweep_at.set(cx, 0, next.unwrap_or(0)).map(drop)
    }
}

impl Bridge {
    /// Whether the decision was made for frames like this one, and is not too old.
    #[inline(always)]
    fn still_holds(&self, now: u64, packet: &Packet<'_>, known: &Known) -> bool {
        let is_other = self.vlans.is_some() && known.is_other_form(vlans::form(vlans::tag_of(packet)));
        !is_other && !known.is_due(packet.port(), now)
    }

    #[inline(always)]
    fn leave_as_known(&self, packet: &mut Packet<'_>, known: &Known) -> Verdict {
        if self.vlans.is_some() { leave(packet, known) } else { known.verdict() }
    }

    /// Learns where the source is, looks up the destination, and records in `known` the decision and how long it is valid.
    #[inline(never)]
    fn decide(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, known: &mut Known) -> Handled {
        let Some(ethernet) = packet.ethernet() else { return Ok(Verdict::Drop(NOT_ETHERNET)) };
        let (from, to, port) = (ethernet.source(), ethernet.destination(), packet.port());
        let Some(vlan) = self.vlan_of(packet) else { return Ok(Verdict::Drop(NOT_A_MEMBER)) };
        if from.is_group() || from == MacAddress::default() {
            return Ok(Verdict::Drop(BAD_SOURCE));
        }
        let due_ns = match self.switches.is_none_or(|switches| switches.learn_at(port)) {
            true => self.learn(cx, Station::new(from, vlan), port, &mut known.source)?,
            false => cx.now().saturating_add(self.refresh_ns),
        };
        if station::is_reserved(to) {
            return Ok(Verdict::Drop(RESERVED_ADDRESS));
        }
        known.changes = self.changes.get(cx, 0)?.unwrap_or(0);
        if to.is_group() {
            return self.send_to_group(cx, packet, vlan, known, due_ns);
        }
        let found = self.look_up(cx, Station::new(to, vlan), &mut known.destination)?;
        match found.ok().filter(|entry| entry.age_ns(cx.now()) <= self.age_max_ns) {
            Some(entry) if self.switches.is_some_and(|switches| !switches.let_through(port, entry.port)) => {
                known.decide(port, FLOOD, 0);
                Ok(Verdict::Drop(ISOLATED))
            }
            Some(entry) => {
                known.decide(port, entry.port, due_ns.min(entry.seen_ns().saturating_add(self.age_max_ns + 1)));
                Ok(self.leave_first(packet, vlan, known))
            }
            // The destination may send at any time, and that would not count as a change.
            None => self.flood(cx, packet, vlan, known, 0),
        }
    }

    /// The frame's VLAN; `None` if its port does not carry it.
    fn vlan_of(&self, packet: &Packet<'_>) -> Option<u16> {
        match &self.vlans {
            Some(vlans) => vlans.classify(packet.port(), vlans::tag_of(packet)),
            None if self.vlan_aware => Some(packet.vlan().map_or(0, |tag| tag.id())),
            None => Some(0),
        }
    }

    /// Sends a frame out by the port just decided, and remembers the tag it needs.
    fn leave_first(&self, packet: &mut Packet<'_>, vlan: u16, known: &mut Known) -> Verdict {
        let (Some(vlans), Verdict::Forward(to)) = (&self.vlans, known.verdict()) else { return known.verdict() };
        if !vlans.has(vlan, to) {
            known.decide(packet.port(), FLOOD, 0);
            return Verdict::Drop(NOT_A_MEMBER);
        }
        let tag = if vlans.is_untagged(vlan, to) { 0 } else { vlan };
        known.decide_tag(vlans::form(vlans::tag_of(packet)), tag);
        leave(packet, known)
    }

    /// Sends a frame for a group to the ports that want it, if snooping is enabled, and otherwise floods it.
    fn send_to_group(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        vlan: u16,
        known: &mut Known,
        due_ns: u64,
    ) -> Handled {
        // What is sent to all stations is not for a group only, whatever its IP address says.
        let is_for_all = packet.ethernet().is_some_and(|frame| frame.destination() == MacAddress::BROADCAST);
        let Some(snooping) = self.snooping.as_ref().filter(|_| !is_for_all) else {
            return self.flood(cx, packet, vlan, known, due_ns);
        };
        let (course, has_room) = snooping.look(cx, packet, vlan)?;
        if !has_room {
            self.events.update(cx, |events| events.groups_full += 1)?;
        }
        let ports = match course {
            Course::Only(ports) => ports,
            Course::Everywhere => return self.flood(cx, packet, vlan, known, 0),
            Course::Nowhere(objection) => return Ok(Verdict::Drop(objection)),
        };
        known.decide(packet.port(), FLOOD, 0);
        let reach = self.switches.map_or(u64::MAX, |switches| switches.reach(packet.port()));
        let ports = ports & reach & !1u64.checked_shl(packet.port().into()).unwrap_or(0);
        let verdict = match &self.vlans {
            None => send_to(cx, packet, ports),
            Some(vlans) => {
                let (untagged, tagged) = vlans.ports(vlan, packet.port());
                flood_vlan(cx, packet, (untagged & ports, tagged & ports), vlan)
            }
        };
        Ok(if verdict == Verdict::Drop(Reason::NOWHERE_TO_FLOOD) { Verdict::Drop(NO_MEMBER) } else { verdict })
    }

    /// Sends a frame to all other ports of its VLAN, if storm control permits.
    fn flood(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, vlan: u16, known: &mut Known, due_ns: u64) -> Handled {
        let port = packet.port();
        let cause = Cause::of(packet.ethernet().map_or(MacAddress::default(), |ethernet| ethernet.destination()));
        if let Some(storm) = &self.storm {
            known.decide(port, FLOOD, 0);
            if !storm.admits(cx, port, cause)? {
                return Ok(Verdict::Drop(cause.reason()));
            }
        }
        let open = self.switches.map(|switches| switches.flooded(port, cause));
        match (&self.vlans, open) {
            (Some(vlans), open) => {
                known.decide(port, FLOOD, 0);
                let ((untagged, tagged), open) = (vlans.ports(vlan, port), open.unwrap_or(u64::MAX));
                Ok(flood_vlan(cx, packet, (untagged & open, tagged & open), vlan))
            }
            (None, Some(open)) => {
                known.decide(port, FLOOD, 0);
                Ok(send_to(cx, packet, open & !1u64.checked_shl(port.into()).unwrap_or(0)))
            }
            _ if self.storm.is_some() => Ok(Verdict::Flood),
            _ => Ok(known.decide(port, FLOOD, due_ns)),
        }
    }
}

#[cfg(test)]
mod tests;
