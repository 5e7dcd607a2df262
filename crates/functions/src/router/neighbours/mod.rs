//! The neighbour table: a bounded table of who is where on the links, filled by answers of ARP and neighbour discovery, and the
//! packets that wait for those answers.
//!
//! A neighbour that has not answered is asked once a second, three times. One that has answered is trusted for its lifetime;
//! then it is asked again, the first two times at its own Ethernet address, and still used until three queries, a second apart, have
//! gone unanswered. The last sixteen packets for a neighbour wait
//! (RFC 1122 section 2.3.2.2 asks for at least one); the senders of those that have waited in vain are told.
//!
//! A host that sends to all addresses of a network makes this router ask for all of them (RFC 6583). Therefore neighbours that
//! have not answered are forgotten soon, and make room for others when the table is full.

mod askers;
mod entry;
mod held;
mod lost;

pub use entry::{Hop, Says, Station};

use std::iter::once;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use braid_nf::Part;
use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::state::{
    Distributed, DistributedConfig, Inserted, MapConfig, ROW, Share, StateBuilder, StateError, StateObject,
    VectorConfig, Visit,
};

use super::waiting::WaitingPacket;
use crate::ConfigError;
use crate::parts::tables::sweep::{Sweep, keys, make_room, take_out};
use crate::parts::{SECOND, fragments};
use askers::Askers;
use entry::{FIXED, MISSED, Neighbour, Old, Silent};
use lost::PortLink;

/// How often a neighbour is asked before it is considered absent.
const TRIES: u8 = 3;
/// How long an absent neighbour is not asked again, and how long a packet waits.
const REST_NS: u64 = 3 * SECOND;
/// The period at which [`Neighbours::sweep`] must be called.
pub const SWEEP_EVERY: Duration = Duration::from_millis(100);
/// The schedules of sweeps: neighbours are asked again each second if packets wait for them.
const SWEEP: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_secs(1) };
const SWEEP_WAITING: Sweep = Sweep { every: SWEEP_EVERY, round: Duration::from_millis(500) };
/// The most neighbours that one sweep forgets.
const MOST: u32 = 1024;

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
    /// Where it was, and the time as in `At`; the caller must ask again now.
    Doubtful(Station, u64, Whom),
    /// It does not answer.
    Absent,
    /// There is no room for another neighbour.
    Full,
    /// The source has had this router ask for as many as it may.
    TooMany,
}

/// What follows from what a neighbour has said.
#[derive(Default)]
pub struct Learnt {
    /// The packets that have waited for it, in order.
    pub waited: Vec<WaitingPacket>,
    /// Whether the caller must ask it now.
    pub ask: bool,
}

/// Who is asked for a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The station where it was: nobody else on the link is disturbed, or has occasion to answer.
    Station(Station),
    /// All stations of the link.
    Everybody,
}

/// The neighbour table and the packets that wait.
pub struct Neighbours {
    table: Map<Hop, Neighbour>,
    waiting: Map<Hop, WaitingPacket>,
    /// How often a neighbour has moved, was forgotten or has come back.
    changes: Vector<u64>,
    /// How many neighbours made room for others.
    crowded_out: Distributed<u64>,
    askers: Askers,
    /// The link of each port.
    links: Vector<PortLink>,
    lifetime_ns: u64,
    /// Neighbours that are one of several next hops; it must be known which of them are silent.
    choices: Box<[Hop]>,
}

impl Neighbours {
    /// Creates an empty table.
    pub fn new(
        (builder, ports): (&mut StateBuilder, u16),
        (most, per_source): (u32, u32),
        waiting: u32,
        lifetime_ns: u64,
        choices: Box<[Hop]>,
    ) -> Result<Neighbours, ConfigError> {
        let map = |name: &str, capacity| MapConfig { name: name.into(), capacity, ..MapConfig::default() };
        let of = |key: &'static str| move |error: StateError| ConfigError::state(key, &error);
        let most_is = of("neighbours_max");
        fragments::room_to_wait("waiting", waiting).map_err(of("waiting_max"))?;
        let changes = VectorConfig { name: "changes".into(), len: 1 };
        let links = VectorConfig { name: "links".into(), len: ports.max(1).into() };
        let crowded_out = DistributedConfig { name: "neighbours_crowded_out".into(), staleness_ns: 0 };
        Ok(Neighbours {
            table: Map::new(builder, &map("neighbours", most)).map_err(most_is)?,
            waiting: Map::new(builder, &map("waiting", waiting)).map_err(of("waiting_max"))?,
            changes: Vector::new(builder, &changes, 0).map_err(most_is)?,
            crowded_out: Distributed::new(builder, &crowded_out, 0).map_err(most_is)?,
            askers: Askers::new(builder, per_source).map_err(most_is)?,
            links: Vector::new(builder, &links, PortLink::default()).map_err(most_is)?,
            lifetime_ns,
            choices,
        })
    }

    /// A number that grows whenever a neighbour moves, comes back or is forgotten. While it stays the same, the results of
    /// [`resolve`](Self::resolve) stay valid until the time that they state.
    #[inline(always)]
    pub fn changes(&self, cx: &mut Cx<'_>) -> Result<u64, Conflict> {
        Ok(self.changes.get(cx, 0)?.unwrap_or(0))
    }

    /// Adds a static neighbour.
    pub fn fix(&self, cx: &mut Cx<'_>, hop: Hop, at: Station) -> Result<(), Conflict> {
        let fixed = Neighbour { seen_ns: FIXED, at, known: 1, proved: 1, ..Neighbour::default() };
        self.table.insert(cx, &hop, &fixed).map(drop)
    }

    /// Looks up a neighbour, for a packet from a source if there is one, and says whether it must be asked for.
    pub fn resolve(&self, cx: &mut Cx<'_>, hop: Hop, source: Option<IpAddress>) -> Result<Resolved, Conflict> {
        let now = cx.now();
        let Some(entry) = self.table.get(cx, &hop)? else {
            if source.map_or(Ok(false), |source| self.askers.admit(cx, source).map(|admits| !admits))? {
                return Ok(Resolved::TooMany);
            }
            let asked = Neighbour { asked_ns: now, tries: 1, ..Neighbour::default() };
            // It may replace only entries that are old enough to be asked again. So there are at most as many queries a second
            // as there is room for neighbours.
            let has_room = self.enter(cx, &hop, &asked, SECOND)?;
            return Ok(if has_room { Resolved::Waits { ask: true } } else { Resolved::Full });
        };
        let (station, known) = (entry.at, entry.known == 1);
        if known && entry.proved == 0 {
            self.table.update(cx, &hop, |entry| entry.proved = 1)?;
        }
        if self.lacks_link(cx, &entry)? {
            return Ok(Resolved::Absent);
        }
        let until = entry.seen_ns.saturating_add(self.lifetime_ns);
        if known && now < until {
            return Ok(Resolved::At(station, until));
        }
        let since = now.saturating_sub(entry.asked_ns);
        // If there was an answer since, the count belongs to an earlier doubt. Who is absent is asked anew after a rest, or when its
        // link has come up.
        let has_rested = !known && (since >= REST_NS || self.precedes_link(cx, hop, &entry)?);
        let tries = if entry.asked_ns < entry.seen_ns || has_rested { 0 } else { entry.tries };
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
        // Asked last is everybody: it may have another Ethernet address by now.
        let whom = if tries + 1 < TRIES { Whom::Station(station) } else { Whom::Everybody };
        Ok(if known { Resolved::Doubtful(station, now + SECOND, whom) } else { Resolved::Waits { ask: true } })
    }

    /// Whether another next hop of the same route is preferable: this one is [missed](Self::is_missed), or nobody knows it and its link is down.
    pub fn is_out(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<bool, Conflict> {
        Ok(self.is_missed(cx, hop)? || self.table.get(cx, &hop)?.is_none() && self.is_down(cx, hop.port)?)
    }

    /// Whether a neighbour did not answer when it was last asked, so that it has to be asked again.
    pub fn is_missed(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<bool, Conflict> {
        match self.table.get(cx, &hop)? {
            Some(entry) => Ok(entry.known == MISSED || self.lacks_link(cx, &entry)?),
            None => Ok(false),
        }
    }

    /// The Ethernet address of a neighbour, if it is known.
    pub fn mac(&self, cx: &mut Cx<'_>, hop: Hop) -> Result<Option<[u8; 6]>, Conflict> {
        Ok(self.table.get(cx, &hop)?.filter(|entry| entry.known == 1).map(|entry| entry.at.mac))
    }

    /// Records where a neighbour says it is.
    pub fn learn(&self, cx: &mut Cx<'_>, hop: Hop, at: Station, says: Says) -> Result<Learnt, Conflict> {
        let now = cx.now();
        let before = self.table.get(cx, &hop)?;
        let is_unknown = before.is_none() && says != Says::Asks;
        if MacAddress(at.mac).is_group() || is_unknown || before.is_some_and(|entry| entry.seen_ns == FIXED) {
            return Ok(Learnt::default());
        }
        // That it speaks does not show that it hears this router: it is absent until it answers.
        if let Some(entry) = before.filter(|entry| !says.is_answer() && entry.is_silent_at(at.mac)) {
            let ask = entry.tries >= TRIES && now.saturating_sub(entry.asked_ns) >= SECOND;
            if ask {
                self.table.update(cx, &hop, |entry| entry.asked_ns = now)?;
            }
            return Ok(Learnt { ask, ..Learnt::default() });
        }
        let known = before.filter(|entry| entry.known == 1);
        let has_moved = known.is_some_and(|entry| entry.at.mac != at.mac);
        if has_moved && !says.overrides() {
            self.doubt(cx, hop)?;
            return Ok(Learnt::default());
        }
        let mut waited = Vec::new();
        for place in hop.places() {
            waited.extend(self.waiting.remove(cx, &place)?);
        }
        waited.sort_by_key(|held: &WaitingPacket| held.since_ns);
        let seen = |seen_ns| Neighbour { seen_ns, ..Neighbour::default() };
        let entry = match (says, known.filter(|_| !has_moved)) {
            _ if says.is_answer() => seen(before.map_or(now, |entry| entry.seen_ns.max(now))),
            (_, Some(entry)) => entry,
            (Says::Asks, None) => seen(now),
            // It is used, and asked at once.
            (_, None) => seen(now.saturating_sub(self.lifetime_ns)),
        };
        let is_proved = says.is_answer() || !waited.is_empty() || before.is_some_and(|entry| entry.proved == 1);
        let entry = Neighbour { at, known: 1, proved: is_proved.into(), ..entry };
        self.enter(cx, &hop, &entry, 0)?;
        let is_news = |entry: Neighbour| match entry.known {
            0 => false,
            known => known == MISSED || entry.at != at,
        };
        if before.is_some_and(is_news) {
            self.changes.update(cx, 0, |changes| *changes += 1)?;
        }
        Ok(Learnt { waited, ask: false })
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
        let has_room = has_room || make_room(cx, hop, size, |cx, among| self.thin_out(cx, hop, among))?;
        if has_room {
            self.crowded_out.update(cx, |count| *count += 1)?;
        }
        Ok(has_room && self.table.insert(cx, hop, entry)? != Inserted::Full)
    }

    /// Forgets the neighbour that has been silent the longest of the link that has more than half of these entries, for one of another link: so
    /// no link keeps all others out. Returns how many, at most one.
    fn thin_out(&self, cx: &mut Cx<'_>, hop: &Hop, among: Range<u32>) -> Result<u32, Conflict> {
        let mut all = Vec::with_capacity(among.len());
        self.table.for_each(cx, among.start, among.len() as u32, |_, other, entry| {
            all.push((*other, entry.seen_ns, entry.known));
            Ok(Visit::Keep)
        })?;
        let half = all.len() / 2;
        let is_crowd =
            |of: &Hop| !of.is_beside(hop) && all.iter().filter(|(other, ..)| other.is_beside(of)).count() > half;
        let many = all.iter().map(|(other, ..)| other).find(|other| is_crowd(other));
        let may_go = |(other, seen_ns, _): &&(Hop, u64, u8)| {
            *seen_ns != FIXED && !self.choices.contains(other) && many.is_some_and(|many| many.is_beside(other))
        };
        let Some((oldest, _, known)) = all.iter().filter(may_go).min_by_key(|(_, seen_ns, _)| *seen_ns) else {
            return Ok(0);
        };
        self.table.remove(cx, oldest)?;
        // Packet sets remember where it is.
        if *known == 1 {
            self.changes.update(cx, 0, |changes| *changes += 1)?;
        }
        Ok(1)
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

    /// The neighbours, from one piece of the table, that have been asked a second ago, have not answered, and are still used. They are asked
    /// again whether or not more packets come for them (RFC 4861 section 7.3.3).
    pub fn doubtful(&self, cx: &mut Cx<'_>) -> Result<Vec<Hop>, Conflict> {
        let now = cx.now();
        let piece = SWEEP_WAITING.piece(now, self.table.capacity(), Share::ALL);
        keys(cx, &self.table, piece, |_, entry| entry.is_doubtful(now, SECOND))
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
}

impl Part for Neighbours {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.table.objects(into);
        self.waiting.objects(into);
        self.changes.objects(into);
        self.links.objects(into);
        self.askers.objects(into);
        self.crowded_out.objects(into);
    }
}
