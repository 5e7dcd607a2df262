//! Sets that packets change, as `add @floods { ip saddr limit rate over 10/second } drop`, `ct count over 20` and `ip saddr @banned` of
//! nftables: a limit, a number of live connections, or a mark for each address or port.
//!
//! Rules that name one set share it. Elements leave a set after its timeout, if it has one; into a full one nothing more goes, and what
//! would have to does not fit. Both are as in the kernel. All of it is exact over all workers.

use std::sync::Arc;

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, StateError, StateObject, hash};

use super::connection::Ends;
use super::often::Often;
use super::rules::{Facts, Rule};
use super::values::number;
use crate::config::ConfigError;
use crate::parts::aged::Stamp;
use crate::parts::{Aged, Side};
use crate::token_bucket::{Bucket, Limit};

/// What nftables takes for the size of a set that packets change.
pub(super) const SIZE: u32 = 65_535;
/// Most sets: their bits stand in one word.
const SETS_MAX: usize = 64;

/// A condition that asks or changes a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keyed {
    pub(super) set: Arc<Dynamic>,
    pub(super) key: Key,
    pub(super) act: Act,
    /// An element that is met lives on from now: `update`.
    pub(super) refreshes: bool,
}

/// A set that packets change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dynamic {
    /// Family and name of its table.
    pub(super) table: String,
    pub(super) name: String,
    pub(super) size: u32,
    /// How long its elements live; none: for ever.
    pub(super) timeout_s: Option<u32>,
}

/// What is asked of the element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Puts it in; always so.
    Add,
    /// Whether it is in there, or is not.
    Has { not: bool },
    /// Whether its limit lets one more pass.
    Limit(Often),
    /// Whether more than so many live connections have met it, or not more.
    Count { most: u32, over: bool },
}

impl Act {
    /// What an element keeps.
    fn evaluated(&self) -> Option<&Act> {
        matches!(self, Act::Limit(_) | Act::Count { .. }).then_some(self)
    }
}

/// Which fields of a packet make the element, one behind the other.
pub(super) type Key = Vec<Part>;

/// Most of them.
pub(super) const PARTS_MAX: usize = 3;

/// A field of a packet; addresses by a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Source(u128),
    Destination(u128),
    SourcePort,
    DestinationPort,
    Protocol,
}

/// The element that a packet makes; what is not of its key is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Element([[u8; 16]; PARTS_MAX]);

impl Element {
    fn of(key: &[Part], facts: &Facts) -> Element {
        let ends = [(facts.source, facts.source_port), (facts.destination, facts.destination_port)];
        Element::between(key, ends, facts.protocol)
    }

    /// Of packets from one end to another.
    fn between(key: &[Part], [source, destination]: [(u128, u16); 2], protocol: u8) -> Element {
        let mut element = Element::default();
        for (value, part) in element.0.iter_mut().zip(key) {
            let number = match part {
                Part::Source(mask) => source.0 & mask,
                Part::Destination(mask) => destination.0 & mask,
                Part::SourcePort => source.1.into(),
                Part::DestinationPort => destination.1.into(),
                Part::Protocol => protocol.into(),
            };
            *value = number.to_be_bytes();
        }
        element
    }
}

/// What is remembered of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Remembered {
    bucket: Bucket,
    /// Live connections that have met it.
    connections: u64,
    /// When it was put in, or met last.
    since_ns: u64,
}

impl Stamp for Remembered {
    fn seen_ns(&self) -> u64 {
        self.since_ns
    }
}

/// The sets that rules name.
pub(super) struct Sets {
    sets: Vec<Set>,
    /// Live connections that sets count, if some do.
    members: Option<Map<Ends, Member>>,
}

/// Where a connection is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Member {
    met: Met,
    /// The [`Side`] that opened it.
    opener: u64,
}

struct Set {
    set: Arc<Dynamic>,
    key: Key,
    /// What its elements have been made with, as in the kernel: a limit or a count.
    evaluated: Option<Act>,
    elements: Aged<Element, Remembered>,
    limit: Option<(Often, Limit)>,
}

/// Sets that a packet has met which count connections, as bits: what is to be counted if it opens one.
pub(super) type Met = u64;

impl Sets {
    /// `most`: live connections.
    pub(super) fn new(builder: &mut StateBuilder, rules: &[Rule], most: u32) -> Result<Sets, ConfigError> {
        let (counting, mut sets) = (Counting::of_rules(rules), Vec::<Set>::new());
        for keyed in rules.iter().filter_map(|rule| rule.keyed.as_ref()) {
            let often = match &keyed.act {
                Act::Limit(often) => Some(*often),
                _ => None,
            };
            if let Some(known) = sets.iter_mut().find(|known| known.set == keyed.set) {
                let counts = matches!(keyed.act, Act::Count { .. });
                if counts && known.key != keyed.key {
                    let reason =
                        format!("two rules count connections in the set `{}` by different fields", keyed.set.name);
                    return Err(ConfigError::new("rules_file", reason, "write a set for each"));
                }
                let evaluated = keyed.act.evaluated();
                if evaluated.is_some() && known.evaluated.is_some() && evaluated != known.evaluated.as_ref() {
                    let reason = format!("two rules ask elements of the set `{}` for different things", keyed.set.name);
                    return Err(ConfigError::new(
                        "rules_file",
                        reason,
                        "write a set for each limit and for each count",
                    ));
                }
                known.evaluated = known.evaluated.take().or_else(|| evaluated.cloned());
                if let (None, Some(often)) = (&known.limit, often) {
                    let limit = often.limit()?;
                    known.limit = Some((often, limit));
                }
                continue;
            }
            if sets.len() == SETS_MAX {
                let reason = format!("packets change more than {SETS_MAX} sets");
                return Err(ConfigError::new("rules_file", reason, "write one set for several rules"));
            }
            let whose = format!("{} {}", keyed.set.table, keyed.set.name);
            let name = format!("set_{:016x}", hash::mixed(whose.as_bytes(), counting.of(keyed)));
            let lifetime_ns = keyed.set.timeout_s.map_or(u64::MAX, |seconds| u64::from(seconds) * 1_000_000_000);
            let elements = Aged::new(builder, &name, keyed.set.size, lifetime_ns)
                .map_err(|error: StateError| ConfigError::state("rules_file", &error))?;
            let limit = often.map(|often| often.limit().map(|limit| (often, limit))).transpose()?;
            let evaluated = keyed.act.evaluated().cloned();
            sets.push(Set { set: keyed.set.clone(), key: keyed.key.clone(), evaluated, elements, limit });
        }
        let config =
            MapConfig { name: format!("counted_{:016x}", counting.all), capacity: most, ..MapConfig::default() };
        let members = (counting.all != 0).then(|| Map::new(builder, &config)).transpose();
        Ok(Sets { sets, members: members.map_err(|error| ConfigError::state("connections_max", &error))? })
    }

    /// Whether a condition holds for a packet; it does what it says. What a first packet meets that counts connections is noted in `met`, to be
    /// counted if it is let in.
    pub(super) fn meet(
        &self,
        cx: &mut Cx<'_>,
        facts: &Facts,
        keyed: &Keyed,
        met: Option<&mut Met>,
    ) -> Result<bool, Conflict> {
        let Some((number, set)) = self.sets.iter().enumerate().find(|(_, known)| known.set == keyed.set) else {
            return Ok(false);
        };
        let (element, now) = (Element::of(&keyed.key, facts), cx.now());
        let known = set.elements.get(cx, &element)?;
        let full = set.limit.as_ref().map_or_else(Bucket::default, |(_, limit)| limit.full(now));
        let mut it = known.unwrap_or(Remembered { bucket: full, connections: 0, since_ns: now });
        if keyed.refreshes {
            it.since_ns = now;
        }
        let holds = match &keyed.act {
            Act::Has { not } => return Ok(known.is_some() != *not),
            Act::Add => true,
            Act::Limit(often) => {
                let mut bucket = it.bucket;
                let within = set.limit.as_ref().is_some_and(|(_, limit)| limit.take(&mut bucket, now, often.cost()));
                if within {
                    // An empty bucket is left as it is, so that a flood makes no conflicts.
                    it.bucket = bucket;
                }
                within != often.over
            }
            Act::Count { most, over } => {
                // Pings have no connection here.
                let met = met.filter(|_| !matches!(facts.protocol, protocol::ICMP | protocol::ICMPV6));
                let connections = it.connections + u64::from(met.is_some());
                met.into_iter().for_each(|met| *met |= 1 << number);
                (connections > u64::from(*most)) == *over
            }
        };
        let is_same = known.is_some_and(|known| known == it);
        let is_counted = matches!(keyed.act, Act::Count { .. });
        // The elements that count are entered with their connections.
        Ok((is_same || is_counted || set.elements.insert(cx, &element, &it)?) && holds)
    }

    /// Counts a connection that has been let in, where its first packet has met a count.
    #[cold]
    pub(super) fn enter(&self, cx: &mut Cx<'_>, ends: &Ends, opener: Side, met: Met) -> Result<(), Conflict> {
        let Some(members) = &self.members else { return Ok(()) };
        let member = Member { met, opener: opener as u64 };
        if members.insert(cx, ends, &member)? == Inserted::Full {
            return Ok(());
        }
        self.count(cx, ends, member, |connections| connections + 1)
    }

    /// Counts a connection out that is over.
    pub(super) fn leave(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        let Some(members) = &self.members else { return Ok(()) };
        match members.remove(cx, ends)? {
            Some(member) => self.count(cx, ends, member, |connections| connections.saturating_sub(1)),
            None => Ok(()),
        }
    }

    /// Whether connections are counted at all.
    pub(super) fn counts_connections(&self) -> bool {
        self.members.is_some()
    }

    fn count(&self, cx: &mut Cx<'_>, ends: &Ends, member: Member, by: impl Fn(u64) -> u64) -> Result<(), Conflict> {
        let (inside, outside) = ((number(ends.inside), ends.inside_port), (number(ends.outside), ends.outside_port));
        let from_inside = member.opener == Side::Inside as u64;
        let way = if from_inside { [inside, outside] } else { [outside, inside] };
        let is_met = |(at, _): &(usize, &Set)| member.met >> at & 1 != 0;
        for (_, set) in self.sets.iter().enumerate().filter(is_met) {
            let (element, now) = (Element::between(&set.key, way, ends.protocol), cx.now());
            let fresh = Remembered { since_ns: now, ..Remembered::default() };
            let mut it = set.elements.get(cx, &element)?.unwrap_or(fresh);
            it.connections = by(it.connections);
            if it.connections == 0 && set.limit.is_none() {
                set.elements.remove(cx, &element)?;
            } else {
                set.elements.insert(cx, &element, &it)?;
            }
        }
        Ok(())
    }

    /// Takes dead elements out, piece by piece.
    pub(super) fn sweep(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.sets.iter().filter(|set| set.set.timeout_s.is_some()).try_for_each(|set| set.elements.sweep(cx))
    }
}

/// Sets that count connections, all together: where a connection is counted is told by their places, so if one of them changes all of
/// them begin anew, as in the kernel.
struct Counting {
    sets: Vec<Arc<Dynamic>>,
    /// Known by them; 0: there is none.
    all: u64,
}

impl Counting {
    fn of_rules(rules: &[Rule]) -> Counting {
        let (mut sets, mut all) = (Vec::new(), 0);
        for keyed in rules.iter().filter_map(|rule| rule.keyed.as_ref()) {
            if matches!(keyed.act, Act::Count { .. }) && !sets.contains(&keyed.set) {
                all = hash::mixed(format!("{:?} {:?}", keyed.set, keyed.key).as_bytes(), all) | 1;
                sets.push(keyed.set.clone());
            }
        }
        // Their places are among all sets.
        let every: Vec<_> = rules.iter().filter_map(|rule| Some(&rule.keyed.as_ref()?.set)).collect();
        let all = if all == 0 { 0 } else { hash::mixed(format!("{every:?}").as_bytes(), all) | 1 };
        Counting { sets, all }
    }

    /// What the name of a set's state depends on besides.
    fn of(&self, keyed: &Keyed) -> u64 {
        if self.sets.contains(&keyed.set) { self.all } else { 0 }
    }
}

impl braid_nf::Part for Sets {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.sets.iter().for_each(|set| set.elements.objects(into));
        self.members.iter().for_each(|members| members.objects(into));
    }
}
