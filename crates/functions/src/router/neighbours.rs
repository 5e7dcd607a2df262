//! The neighbour table: a bounded table of who is where on the links, filled by answers of ARP and neighbour discovery, and the
//! packets that wait for those answers.
//!
//! A neighbour that has not answered is asked once a second, three times. One that has answered is trusted for its lifetime;
//! then it is asked again, and still used until three queries have gone unanswered. The last sixteen packets for a neighbour wait
//! (RFC 1122 section 2.3.2.2 asks for at least one); the senders of those that have waited in vain are told.
//!
//! A host that sends to all addresses of a network makes this router ask for all of them (RFC 6583). Therefore neighbours that
//! have not answered are forgotten soon, and make room for others when the table is full.

use std::iter::once;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::state::{
    DistributedVector, DistributedVectorConfig, Inserted, MapConfig, ROW, Share, StateBuilder, StateError, StateObject,
    VectorConfig, Visit,
};
use braid_nf::{About, Fate, Part, Port, TableEntry};

use super::waiting::Held;
use crate::ConfigError;
use crate::parts::sweep::{Over, Sweep, keys, make_room, take_out};
use crate::parts::{SECOND, fragments};

/// How often a neighbour is asked before it is considered absent.
const TRIES: u8 = 3;
/// How long an absent neighbour is not asked again, and how long a packet waits.
const REST_NS: u64 = 3 * SECOND;
/// The most packets that wait for one neighbour.
const PLACES: u8 = 16;
/// The period at which [`Neighbours::sweep`] must be called.
pub const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// The schedules of sweeps: neighbours are asked again each second if packets wait for them.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(1) };
const SWEEP_WAITING: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_millis(500) };
/// The most neighbours that one sweep forgets.
const MOST: u32 = 1024;

/// A neighbour's address and the interface on which it is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hop {
    /// The address.
    pub address: IpAddress,
    /// The port.
    pub port: Port,
    /// In keys of waiting packets: the index of the packet.
    place: u8,
    zero: u8,
    /// The VLAN on that port; 0: none.
    pub vlan: u16,
    zeros: [u8; 2],
}

impl Hop {
    /// A neighbour at a port, or in a VLAN of it.
    pub fn new(address: IpAddress, (port, vlan): (Port, Option<u16>)) -> Hop {
        Hop { address, port, place: 0, zero: 0, vlan: vlan.unwrap_or(0), zeros: [0; 2] }
    }

    /// The keys of the packets that may wait for it.
    fn places(self) -> impl Iterator<Item = Hop> {
        (0..PLACES).map(move |place| Hop { place, ..self })
    }
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Neighbour {
    /// When it last answered; for ever, if it is static.
    seen_ns: u64,
    asked_ns: u64,
    /// Where it is, if it is known.
    at: Station,
    /// Unanswered queries.
    tries: u8,
    /// 1 if it is known where it is, [`MISSED`] if the neighbour did not answer when it was last asked.
    known: u8,
    unused: [u8; 6],
}

/// Where a neighbour is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Station {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The port by which it was heard.
    pub port: Port,
}

const MISSED: u8 = 2;
const FIXED: u64 = u64::MAX;

/// What a neighbour's message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// It asks for this router; it is added if it is not known.
    Asks,
    /// Where it is; ignored unless this router has asked for it.
    IsHere,
    /// Where it may be, if nothing else is known: an advertisement without the override flag (RFC 4861 section 7.2.5).
    MayBeHere,
}

/// The result of looking up a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    /// Where it is, and the time until which it need not be looked up again.
    At(Station, u64),
    /// It has been asked for, or must be now; the packet has to wait.
    Waits {
        /// Whether the caller must ask for it now.
        ask: bool,
    },
    /// Where it was, and the time as in `At`; the caller must ask for it again now.
    Doubtful(Station, u64),
    /// It does not answer.
    Absent,
    /// There is no room for another neighbour.
    Full,
}

/// The neighbour table and the packets that wait.
pub struct Neighbours {
    table: Map<Hop, Neighbour>,
    waiting: Map<Hop, Held>,
    /// How often a neighbour has moved, was forgotten or has come back.
    changes: Vector<u64>,
    /// Counts of packets that have waited in vain or were replaced by later ones, and of neighbours crowded out.
    ends: DistributedVector<u64>,
    lifetime_ns: u64,
    /// Neighbours that are one of several next hops; it must be known which of them are silent.
    choices: Box<[Hop]>,
}

const IN_VAIN: u32 = 0;
const REPLACED: u32 = 1;
/// Counts not packets but neighbours: those that made room for others.
const CROWDED_OUT: u32 = 2;

/// Matches neighbours that have not answered and were asked at least `age_ns` ago, except those in `but`.
struct Silent<'a> {
    now_ns: u64,
    age_ns: u64,
    but: &'a [Hop],
}

impl Over<Hop, Neighbour> for Silent<'_> {
    fn is_over(&self, hop: &Hop, entry: &Neighbour) -> bool {
        let age_ns = self.now_ns.saturating_sub(entry.asked_ns);
        entry.known != 1 && age_ns >= self.age_ns && !self.but.contains(hop)
    }
}

/// Matches neighbours that have been silent for long or have never answered.
struct Old {
    now_ns: u64,
    lifetime_ns: u64,
    /// How many that had answered were removed.
    known: u64,
}

impl Over<Hop, Neighbour> for Old {
    fn is_over(&self, _: &Hop, entry: &Neighbour) -> bool {
        let kept_ns = 2 * REST_NS + if entry.known == 1 { self.lifetime_ns } else { 0 };
        entry.seen_ns.max(entry.asked_ns).saturating_add(kept_ns) < self.now_ns
    }

    fn ended(&mut self, _: &mut Cx<'_>, _: &Hop, entry: &Neighbour) -> Result<(), Conflict> {
        self.known += u64::from(entry.known == 1);
        Ok(())
    }
}

impl Neighbours {
    /// Creates an empty table.
    pub fn new(
        builder: &mut StateBuilder,
        most: u32,
        waiting: u32,
        lifetime_ns: u64,
        choices: Box<[Hop]>,
    ) -> Result<Neighbours, ConfigError> {
        let map = |name: &str, capacity| MapConfig { name: name.into(), capacity, ..MapConfig::default() };
        let of = |key: &'static str| move |error: StateError| ConfigError::state(key, &error);
        let most_is = of("neighbours_max");
        fragments::room_to_wait("waiting", waiting).map_err(of("waiting_max"))?;
        let changes = VectorConfig { name: "changes".into(), len: 1 };
        let ends = DistributedVectorConfig { name: "waiting_ends".into(), len: 3 };
        Ok(Neighbours {
            table: Map::new(builder, &map("neighbours", most)).map_err(most_is)?,
            waiting: Map::new(builder, &map("waiting", waiting)).map_err(of("waiting_max"))?,
            changes: Vector::new(builder, &changes, 0).map_err(most_is)?,
            ends: DistributedVector::new(builder, &ends, |sum, part| *sum += part).map_err(most_is)?,
            lifetime_ns,
            choices,
        })
    }

    /// Tells of those of so many neighbours (second) from a number (first) on, and forgets those that are to end; returns where to go on.
    /// Packets that wait for one have it asked for again.
    pub fn list(
        &self,
        cx: &mut Cx<'_>,
        (from, count): (u32, u32),
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let (now, mut forgotten) = (cx.now(), 0);
        let next = self.table.for_each(cx, from, count, |_, hop, entry| match tell(self.shown(hop, entry, now)) {
            Fate::Keep => Ok(Visit::Keep),
            Fate::End => {
                forgotten += u64::from(entry.known != 0);
                Ok(Visit::Remove)
            }
        })?;
        if forgotten > 0 {
            self.changes.update(cx, 0, |changes| *changes += forgotten)?;
        }
        Ok(next)
    }

    fn shown(&self, hop: &Hop, entry: &Neighbour, now: u64) -> TableEntry {
        let is_known = entry.known == 1;
        let left_ns = entry.seen_ns.saturating_add(self.lifetime_ns).saturating_sub(now);
        let detail = match (is_known, entry.tries) {
            (true, _) if entry.seen_ns == FIXED => "static".to_owned(),
            (true, _) if left_ns > 0 => String::new(),
            (true, _) => "to be asked again".to_owned(),
            (false, tries) if tries >= TRIES => "silent".to_owned(),
            (false, tries) => format!("asked {tries} of {TRIES} times"),
        };
        TableEntry {
            kind: "neighbour",
            about: About::OnLink {
                address: Some(hop.address),
                mac: is_known.then_some(MacAddress(entry.at.mac)),
                vlan: Some(hop.vlan).filter(|vlan| *vlan != 0),
                ports: vec![if is_known { entry.at.port } else { hop.port }],
            },
            detail,
            left_ns: (is_known && entry.seen_ns != FIXED && left_ns > 0).then_some(left_ns),
            is_configured: entry.seen_ns == FIXED,
        }
    }

    /// A number that grows whenever a neighbour moves, comes back or is forgotten. While it stays the same, the results of
    /// [`resolve`](Self::resolve) stay valid until the time that they state.
    #[inline(always)]
    pub fn changes(&self, cx: &mut Cx<'_>) -> Result<u64, Conflict> {
        Ok(self.changes.get(cx, 0)?.unwrap_or(0))
    }

    /// Adds a static neighbour.
    pub fn fix(&self, cx: &mut Cx<'_>, hop: Hop, at: Station) -> Result<(), Conflict> {
        let fixed = Neighbour { seen_ns: FIXED, at, known: 1, ..Neighbour::default() };
        self.table.insert(cx, &hop, &fixed).map(drop)
    }

    /// Looks up a neighbour, and says whether it must be asked for.
    pub fn resolve(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<Resolved, Conflict> {
        let now = cx.now();
        let Some(entry) = self.table.get(cx, &hop)? else {
            let asked = Neighbour { asked_ns: now, tries: 1, ..Neighbour::default() };
            // It may replace only entries that are old enough to be asked again. So there are at most as many queries a second
            // as there is room for neighbours.
            let has_room = self.enter(cx, &hop, &asked, SECOND)?;
            return Ok(if has_room { Resolved::Waits { ask: true } } else { Resolved::Full });
        };
        let (station, known) = (entry.at, entry.known == 1);
        let until = entry.seen_ns.saturating_add(self.lifetime_ns);
        if known && now < until {
            return Ok(Resolved::At(station, until));
        }
        let since = now.saturating_sub(entry.asked_ns);
        // If there was an answer since, the count belongs to an earlier doubt.
        let tries = if entry.asked_ns < entry.seen_ns || since >= REST_NS { 0 } else { entry.tries };
        if tries > 0 && since < SECOND {
            let at = Resolved::At(station, entry.asked_ns + SECOND);
            return Ok(if known { at } else { Resolved::Waits { ask: false } });
        }
        if tries >= TRIES {
            if entry.known != MISSED {
                self.table.update(cx, &hop, |entry| entry.known = MISSED)?;
            }
            // No set remembers a route through a neighbour that has never answered.
            if known {
                self.changes.update(cx, 0, |changes| *changes += 1)?;
            }
            return Ok(Resolved::Absent);
        }
        self.table.update(cx, &hop, |entry| {
            if !known && since >= REST_NS {
                entry.known = MISSED;
            }
            (entry.asked_ns, entry.tries) = (now, tries + 1);
        })?;
        Ok(if known { Resolved::Doubtful(station, now + SECOND) } else { Resolved::Waits { ask: true } })
    }

    /// Whether a neighbour did not answer when it was last asked, so that another next hop of the same route is preferable.
    pub fn is_missed(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<bool, Conflict> {
        Ok(self.table.get(cx, &hop)?.is_some_and(|entry| entry.known == MISSED))
    }

    /// Takes neighbours at a port whose link has gone down for absent, among so many entries (second) from a number (first) on; returns where to
    /// go on. They are asked again after `REST_NS`, like others that do not answer.
    pub fn link_down(&self, cx: &mut Cx<'_>, port: Port, (from, count): (u32, u32)) -> Result<Option<u32>, Conflict> {
        let (now, mut lost) = (cx.now(), 0);
        let next = self.table.for_each(cx, from, count, |_, _, entry| {
            if entry.known != 1 || entry.at.port != port || entry.seen_ns == FIXED {
                return Ok(Visit::Keep);
            }
            lost += 1;
            // As if the last question had gone unanswered for a second.
            let asked_ns = now.saturating_sub(SECOND);
            let seen_ns = entry.seen_ns.min(asked_ns);
            Ok(Visit::Replace(Neighbour { seen_ns, asked_ns, tries: TRIES, known: MISSED, ..*entry }))
        })?;
        if lost > 0 {
            self.changes.update(cx, 0, |changes| *changes += lost)?;
        }
        Ok(next)
    }

    /// Records where a neighbour says it is, and returns the packets that have waited for it, in order.
    pub fn learn(&self, cx: &mut Cx<'_>, hop: Hop, at: Station, says: Says) -> Result<Vec<Held>, Conflict> {
        let now = cx.now();
        let before = self.table.get(cx, &hop)?;
        let is_unknown = before.is_none() && says != Says::Asks;
        if MacAddress(at.mac).is_group() || is_unknown || before.is_some_and(|entry| entry.seen_ns == FIXED) {
            return Ok(Vec::new());
        }
        if says == Says::MayBeHere && before.is_some_and(|entry| entry.known == 1 && entry.at.mac != at.mac) {
            self.doubt(cx, hop)?;
            return Ok(Vec::new());
        }
        let seen_ns = before.map_or(now, |entry| entry.seen_ns.max(now));
        let entry = Neighbour { seen_ns, at, known: 1, ..Neighbour::default() };
        self.enter(cx, &hop, &entry, 0)?;
        let is_news = |entry: Neighbour| match entry.known {
            0 => false,
            known => known == MISSED || entry.at != at,
        };
        if before.is_some_and(is_news) {
            self.changes.update(cx, 0, |changes| *changes += 1)?;
        }
        let mut waited = Vec::new();
        for place in hop.places() {
            waited.extend(self.waiting.remove(cx, &place)?);
        }
        waited.sort_by_key(|held: &Held| held.since_ns);
        Ok(waited)
    }

    /// Moves a known neighbour to another port, if it is the same station.
    pub fn follow(&self, cx: &mut Cx<'_>, hop: Hop, at: Station) -> Result<(), Conflict> {
        let has_moved = |entry: Neighbour| {
            let is_it = entry.known == 1 && entry.at.mac == at.mac && entry.seen_ns != FIXED;
            is_it && entry.at.port != at.port
        };
        if self.table.get(cx, &hop)?.is_some_and(has_moved) {
            self.table.update(cx, &hop, |entry| entry.at = at)?;
            self.changes.update(cx, 0, |changes| *changes += 1)?;
        }
        Ok(())
    }

    /// Adds a neighbour, if necessary in place of one that was asked at least `age_ns` ago and has not answered. Returns false
    /// if there is no room.
    fn enter(&self, cx: &mut Cx<'_>, hop: &Hop, entry: &Neighbour, age_ns: u64) -> Result<bool, Conflict> {
        if self.table.insert(cx, hop, entry)? != Inserted::Full {
            return Ok(true);
        }
        let mut silent = Silent { now_ns: cx.now(), age_ns, but: &self.choices };
        let size = (ROW, self.table.capacity());
        let has_room = make_room(cx, hop, size, |cx, among| take_out(cx, &self.table, once(among), 1, &mut silent))?;
        if has_room {
            self.ends.update(cx, CROWDED_OUT, |count| *count += 1)?;
        }
        Ok(has_room && self.table.insert(cx, hop, entry)? != Inserted::Full)
    }

    /// Expires a neighbour's lifetime early: it is asked again, and used in the meantime.
    fn doubt(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<(), Conflict> {
        let over_ns = cx.now().saturating_sub(self.lifetime_ns);
        let began = self.table.update(cx, &hop, |entry| {
            let begins = entry.seen_ns > over_ns;
            entry.seen_ns = entry.seen_ns.min(over_ns);
            begins
        })?;
        if began == Some(true) {
            self.changes.update(cx, 0, |changes| *changes += 1)?;
        }
        Ok(())
    }

    /// Keeps a packet until the neighbour answers, replacing the earliest one if sixteen are waiting already. Returns false if
    /// there is no room.
    pub fn hold(&self, cx: &mut Cx<'_>, hop: Hop, held: &Held) -> Result<bool, Conflict> {
        let mut earliest = (u64::MAX, hop);
        for place in hop.places() {
            match self.waiting.get(cx, &place)? {
                Some(other) if other.since_ns < earliest.0 => earliest = (other.since_ns, place),
                Some(_) => {}
                None => return Ok(self.waiting.insert(cx, &place, held)? != Inserted::Full),
            }
        }
        self.ends.update(cx, REPLACED, |count| *count += 1)?;
        Ok(self.waiting.insert(cx, &earliest.1, held)? != Inserted::Full)
    }

    /// Reports how many packets waited in vain or were replaced, and how many neighbours made room for others.
    pub fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let ends = [
            (IN_VAIN, "waited_in_vain"),
            (REPLACED, "replaced_while_waiting"),
            (CROWDED_OUT, "silent_neighbours_crowded_out"),
        ];
        for (end, name) in ends {
            let mut sum = 0;
            self.ends.visit(cx, end, |count| sum += count)?;
            if sum > 0 {
                into.add(name, sum);
            }
        }
        Ok(())
    }

    /// Forgets neighbours that have been silent for long or have never answered, one piece of the table at a time.
    pub fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let mut old = Old { now_ns: cx.now(), lifetime_ns: self.lifetime_ns, known: 0 };
        let piece = SWEEP.piece(cx.now(), self.table.capacity(), Share::ALL);
        take_out(cx, &self.table, piece, MOST, &mut old)?;
        if old.known > 0 {
            self.changes.update(cx, 0, |changes| *changes += old.known)?;
        }
        Ok(())
    }

    /// The neighbours for which packets wait, from one piece of the table.
    pub fn waited_for(&self, cx: &mut Cx<'_>) -> Result<Vec<Hop>, Conflict> {
        let piece = SWEEP_WAITING.piece(cx.now(), self.waiting.capacity(), Share::ALL);
        let mut hops = keys(cx, &self.waiting, piece)?;
        hops.iter_mut().for_each(|hop| hop.place = 0);
        hops.sort_unstable_by_key(|hop: &Hop| (hop.address, hop.port, hop.vlan));
        hops.dedup();
        Ok(hops)
    }

    /// Removes the packets that wait for a neighbour: all of them if it is absent, otherwise those that have waited long
    /// enough.
    pub fn give_up(&self, cx: &mut Cx<'_>, hop: Hop, resolved: Resolved) -> Result<Vec<Held>, Conflict> {
        let now = cx.now();
        let mut given_up = Vec::new();
        for place in hop.places() {
            let Some(held) = self.waiting.get(cx, &place)? else { continue };
            if resolved == Resolved::Absent || held.since_ns.saturating_add(REST_NS) <= now {
                self.waiting.remove(cx, &place)?;
                self.ends.update(cx, IN_VAIN, |count| *count += 1)?;
                given_up.push(held);
            }
        }
        Ok(given_up)
    }
}

impl Part for Neighbours {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.waiting.objects(into);
        self.changes.objects(into);
        into.push(self.ends.object());
    }
}
