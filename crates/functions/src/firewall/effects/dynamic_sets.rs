//! Sets that packets modify, as nftables' `add @floods { ip saddr limit rate over 10/second } drop`, `ct count over 20`
//! and `ip saddr @banned`: a limit, a number of live connections, or membership, for each address or port.
//!
//! Rules of a table that name the same set share it. Elements expire after the set's timeout, if it has one, or after
//! their own. Nothing more goes into a full set, and a rule that would have to add something does not match; both are as
//! in the kernel. Everything is exact over all workers. Elements that the file gives are kept beside those that packets
//! add ([`initial_elements`](super::initial_elements)).

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig, Share, StateError, StateObject, hash};

use super::initial_elements::{Given, Since};
use super::rate_limit::Often;
use crate::config::ConfigError;
use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::fields::Field;
use crate::firewall::conditions::values::number;
use crate::firewall::connection::ends::Ends;
use crate::firewall::rules::Rule;
use crate::parts::tables::aged::Stamp;
use crate::parts::{Aged, Side};
use crate::token_bucket::{Bucket, Limit};

/// The default size of a set that packets modify, in nftables.
pub(in crate::firewall) const SIZE: u32 = 65_535;
/// The maximum number of sets: one word has a bit for each.
const SETS_MAX: usize = 64;

/// A condition that tests or modifies a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Keyed {
    pub(in crate::firewall) set: Arc<Dynamic>,
    pub(in crate::firewall) key: Key,
    pub(in crate::firewall) act: Act,
    /// Whether the lifetime of an existing element starts again: `update`.
    pub(in crate::firewall) refreshes: bool,
    /// Lifetime of the elements that it adds, in seconds; `None`: they do not expire.
    pub(in crate::firewall) timeout_s: Option<u32>,
}

/// A set that packets modify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Dynamic {
    /// Family and name of its table.
    pub(in crate::firewall) table: String,
    pub(in crate::firewall) name: String,
    /// The types of its elements' fields, by their names in nftables; empty for a set that a statement has for itself.
    pub(in crate::firewall) types: Vec<Arc<str>>,
    pub(in crate::firewall) size: u32,
    /// Lifetime of its elements in seconds, unless a statement gives one; `None`: they do not expire.
    pub(in crate::firewall) timeout_s: Option<u32>,
    /// What its declaration has each element asked, unless a rule says it.
    pub(in crate::firewall) act: Option<Act>,
    /// Elements that the file gives.
    pub(in crate::firewall) given: Vec<Given>,
}

impl Dynamic {
    /// Whether both are the same set.
    fn is(&self, other: &Dynamic) -> bool {
        (&self.table, &self.name) == (&other.table, &other.name)
    }
}

/// What a condition does with its element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall) enum Act {
    /// Adds it; always holds.
    Add,
    /// Takes it out; always so, whether it was in there or not, as in the kernel.
    Remove,
    /// Whether it is in there, or is not.
    Has { not: bool },
    /// Tests whether its limit lets one more packet pass.
    Limit(Often),
    /// Tests whether more than `most` live connections have met it, or not more.
    Count { most: u32, over: bool },
}

/// The fields of a packet that make up the element, in their order.
pub(in crate::firewall) type Key = Vec<Part>;

/// The maximum number of fields in a key.
pub(in crate::firewall) const PARTS_MAX: usize = 3;

/// A field of a packet; an address is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) enum Part {
    Source(u128),
    Destination(u128),
    SourcePort,
    DestinationPort,
    Protocol,
    /// A constant that the rule itself gives, the same for all packets.
    Constant(u128),
    /// A field that is not part of the endpoints: an Ethernet address.
    Station(Field),
}

/// The element of a packet; unused parts are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::firewall) struct Element(pub(in crate::firewall) [[u8; 16]; PARTS_MAX]);

impl Element {
    pub(in crate::firewall) fn of(key: &[Part], facts: &Facts<'_>) -> Element {
        let ends = [(facts.source, facts.source_port), (facts.destination, facts.destination_port)];
        let mut element = Element::between(key, ends, facts.protocol);
        for (value, part) in element.0.iter_mut().zip(key) {
            if let Part::Station(field) = part {
                *value = u128::from(facts.fields.of(*field)).to_be_bytes();
            }
        }
        element
    }

    /// The element of packets between two endpoints, whatever their Ethernet addresses.
    fn between(key: &[Part], [source, destination]: [(u128, u16); 2], protocol: u8) -> Element {
        let mut element = Element::default();
        for (value, part) in element.0.iter_mut().zip(key) {
            let number = match part {
                Part::Source(mask) => source.0 & mask,
                Part::Destination(mask) => destination.0 & mask,
                Part::SourcePort => source.1.into(),
                Part::DestinationPort => destination.1.into(),
                Part::Protocol => protocol.into(),
                Part::Constant(number) => *number,
                Part::Station(_) => 0,
            };
            *value = number.to_be_bytes();
        }
        element
    }
}

/// The state of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Remembered {
    bucket: Bucket,
    /// Live connections that have met it.
    connections: u64,
    /// When it expires.
    until_ns: u64,
    /// Since when it exists: connections that were counted before belong to an element that is over.
    since_ns: u64,
}

impl Stamp for Remembered {
    /// Returns the expiry time: with a lifetime of zero after it, the element is then over.
    fn seen_ns(&self) -> u64 {
        self.until_ns
    }
}

/// How long an element for counting stays without a connection: it has been evaluated, and nobody was let in.
const UNUSED_NS: u64 = 1_000_000_000;

/// The expiry time of an element that is added now.
fn until(now_ns: u64, timeout_s: Option<u32>) -> u64 {
    timeout_s.map_or(u64::MAX, |seconds| now_ns.saturating_add(u64::from(seconds) * 1_000_000_000))
}

/// The sets that rules name.
pub(in crate::firewall) struct Sets {
    sets: Vec<Set>,
    /// The connections that sets count, if any set does.
    members: Option<Map<Ends, Member>>,
    /// The times since which elements given by the file are there.
    since: Option<Since>,
}

/// The sets in which a connection is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Member {
    met: Met,
    /// The [`Side`] that opened it.
    opener: u64,
    /// When it was counted.
    since_ns: u64,
}

struct Set {
    set: Arc<Dynamic>,
    elements: Aged<Element, Remembered>,
    /// Whether elements are added with a timeout.
    elements_leave: bool,
    limit: Option<Limit>,
    /// The fields by which it counts connections, and the lifetime of the elements that counting creates.
    counts_by: Option<(Key, Option<u32>)>,
}

/// Sets with connection counts that a packet has met, as bits: it is counted there if it opens a connection.
pub(in crate::firewall) type Met = u64;

impl Sets {
    /// `most`: the maximum number of live connections and queries.
    pub(in crate::firewall) fn new(builder: &mut StateBuilder, rules: &[Rule], most: u32) -> Result<Sets, ConfigError> {
        let mut asked = Vec::<Asked<'_>>::new();
        for keyed in rules.iter().filter_map(|rule| rule.keyed.as_ref()) {
            match asked.iter_mut().find(|known| known.set.is(&keyed.set)) {
                Some(known) => known.join(keyed)?,
                None => asked.push(Asked::by(keyed)),
            }
        }
        if asked.len() > SETS_MAX {
            let reason = format!("packets change more than {SETS_MAX} sets");
            return Err(ConfigError::new("rules_file", reason, "write one set for several rules"));
        }
        // A connection's memberships are indices of sets, so if one of these sets changes all of them restart, as in the
        // kernel.
        let counting = asked.iter().any(|one| one.counts_by.is_some());
        let by: Vec<_> = asked.iter().map(|one| (&one.set.table, &one.set.name, one.counts_by)).collect();
        let all = if counting { hash::mixed(format!("{by:?}").as_bytes(), 0) | 1 } else { 0 };
        let config = MapConfig { name: format!("counted_{all:016x}"), capacity: most, ..MapConfig::default() };
        let members = counting.then(|| Map::new(builder, &config)).transpose();
        let since = Since::of(builder, asked.iter().map(|one| &**one.set))?;
        let sets = asked.into_iter().map(|one| one.made(builder, all)).collect::<Result<_, _>>()?;
        Ok(Sets { sets, members: members.map_err(|error| ConfigError::state("connections_max", &error))?, since })
    }

    /// The index of the set that a condition uses.
    pub(in crate::firewall) fn place(&self, keyed: &Keyed) -> Option<usize> {
        self.sets.iter().position(|known| known.set.is(&keyed.set))
    }

    /// Applies a condition on the set at `place` to a packet, and returns whether it holds. For a first packet, `met`
    /// notes the sets with connection counts, to be incremented if it is let in.
    pub(in crate::firewall) fn meet(
        &self,
        cx: &mut Cx<'_>,
        (packet, facts): (&Packet<'_>, &Facts<'_>),
        (place, keyed): (usize, &Keyed),
        met: Option<&mut Met>,
    ) -> Result<bool, Conflict> {
        let Some(set) = self.sets.get(place) else { return Ok(false) };
        let (element, now, begins) = (Element::of(&keyed.key, facts), cx.now(), met.is_some());
        if keyed.act == Act::Remove {
            return set.elements.remove(cx, &element).map(|_| true);
        }
        let known = set.elements.get(cx, &element)?;
        let full = set.limit.as_ref().map_or_else(Bucket::default, |limit| limit.full(now));
        let fresh = |until_ns| Remembered { bucket: full, connections: 0, until_ns, since_ns: now };
        let known = match (known, &self.since) {
            (None, Some(since)) => since.until(cx, &set.set, &element)?.map(fresh),
            _ => known,
        };
        let mut it = known.unwrap_or_else(|| fresh(until(now, keyed.timeout_s)));
        if keyed.refreshes {
            it.until_ns = until(now, keyed.timeout_s);
        }
        let holds = match &keyed.act {
            Act::Has { not } => return Ok(known.is_some() != *not),
            Act::Add | Act::Remove => true,
            Act::Limit(often) => {
                let mut bucket = it.bucket;
                let cost = often.cost(facts.len_of(packet));
                let within = set.limit.as_ref().is_some_and(|limit| limit.take(&mut bucket, now, cost));
                if within {
                    // An empty bucket is left unchanged, so that a flood causes no conflicts.
                    it.bucket = bucket;
                }
                within != often.over
            }
            Act::Count { most, over } => (it.connections + u64::from(begins) > u64::from(*most)) == *over,
        };
        let is_stored = match (known, &keyed.act) {
            (Some(known), _) => known == it,
            // Only a connection that may begin needs an element to count in. It stays if the connection is let in.
            (None, Act::Count { .. }) => {
                it.until_ns = now.saturating_add(UNUSED_NS);
                !begins
            }
            (None, _) => false,
        };
        let is_there = is_stored || set.elements.insert(cx, &element, &it)?;
        if let (true, Act::Count { .. }, Some(met)) = (is_there, &keyed.act, met) {
            *met |= 1 << place;
        }
        Ok(is_there && holds)
    }

    /// Counts a connection that has been let in, in the sets that its first packet has met.
    #[cold]
    pub(in crate::firewall) fn enter(
        &self,
        cx: &mut Cx<'_>,
        ends: &Ends,
        opener: Side,
        met: Met,
    ) -> Result<(), Conflict> {
        let Some(members) = &self.members else { return Ok(()) };
        let now = cx.now();
        let member = Member { met, opener: opener as u64, since_ns: now };
        if members.insert(cx, ends, &member)? == Inserted::Full {
            return Ok(());
        }
        self.each_met(ends, member, |set, element, timeout_s| {
            let until_ns = until(now, timeout_s);
            let known = set.elements.get(cx, &element)?;
            let mut it = known.unwrap_or(Remembered { until_ns, since_ns: now, ..Remembered::default() });
            if it.connections == 0 {
                it.until_ns = until_ns;
            }
            it.connections += 1;
            // Its condition has found room, or the connection would not have met it.
            set.elements.insert(cx, &element, &it).map(|_| ())
        })
    }

    /// Stops counting a connection that is over.
    pub(in crate::firewall) fn leave(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        let Some(members) = &self.members else { return Ok(()) };
        let Some(member) = members.remove(cx, ends)? else { return Ok(()) };
        self.each_met(ends, member, |set, element, _| {
            let Some(mut it) = set.elements.get(cx, &element)? else { return Ok(()) };
            if it.since_ns > member.since_ns {
                return Ok(());
            }
            it.connections = it.connections.saturating_sub(1);
            match it.connections {
                0 => set.elements.remove(cx, &element).map(|_| ()),
                _ => set.elements.insert(cx, &element, &it).map(|_| ()),
            }
        })
    }

    /// Whether any set counts connections.
    pub(in crate::firewall) fn counts_connections(&self) -> bool {
        self.members.is_some()
    }

    /// Applies `change` to the element of a connection in each set in which it is counted, with the lifetime of elements there.
    fn each_met(
        &self,
        ends: &Ends,
        member: Member,
        mut change: impl FnMut(&Set, Element, Option<u32>) -> Result<(), Conflict>,
    ) -> Result<(), Conflict> {
        let (inside, outside) = ((number(ends.inside), ends.inside_port), (number(ends.outside), ends.outside_port));
        let from_inside = member.opener == Side::Inside as u64;
        let way = if from_inside { [inside, outside] } else { [outside, inside] };
        let is_met = |(at, _): &(usize, &Set)| member.met >> at & 1 != 0;
        for (_, set) in self.sets.iter().enumerate().filter(is_met) {
            let Some((key, timeout_s)) = &set.counts_by else { continue };
            change(set, Element::between(key, way, ends.number()), *timeout_s)?;
        }
        Ok(())
    }

    /// Removes expired elements, piece by piece.
    pub(in crate::firewall) fn sweep(&self, cx: &mut Cx<'_>, share: Share) -> Result<(), Conflict> {
        self.since.iter().try_for_each(|since| since.begin(cx))?;
        self.sets.iter().filter(|set| set.elements_leave).try_for_each(|set| set.elements.sweep(cx, share))
    }
}

/// What all rules together require of a set.
struct Asked<'a> {
    set: &'a Arc<Dynamic>,
    elements_leave: bool,
    /// What its elements are evaluated with: a limit or a count, and only one of them, as in the kernel.
    evaluated: Option<&'a Act>,
    counts_by: Option<(&'a Key, Option<u32>)>,
    /// Whether a rule takes elements out.
    removes: bool,
}

impl<'a> Asked<'a> {
    fn by(keyed: &'a Keyed) -> Asked<'a> {
        let counts = matches!(keyed.act, Act::Count { .. });
        Asked {
            set: &keyed.set,
            elements_leave: counts || !matches!(keyed.act, Act::Has { .. } | Act::Remove) && keyed.timeout_s.is_some(),
            removes: keyed.act == Act::Remove,
            evaluated: matches!(keyed.act, Act::Limit(_) | Act::Count { .. }).then_some(&keyed.act),
            counts_by: counts.then_some((&keyed.key, keyed.timeout_s)),
        }
    }

    /// Adds the requirements of another rule.
    fn join(&mut self, keyed: &'a Keyed) -> Result<(), ConfigError> {
        let (more, name) = (Asked::by(keyed), &keyed.set.name);
        let refuse = |what: String, instead: &str| Err(ConfigError::new("rules_file", what, instead));
        if !agree(&mut self.counts_by, more.counts_by) {
            return refuse(
                format!("two rules count connections in the set `{name}` by different fields or timeouts"),
                "write a set for each",
            );
        }
        if !agree(&mut self.evaluated, more.evaluated) {
            return refuse(
                format!("two rules ask elements of the set `{name}` for different things"),
                "write a set for each limit and for each count",
            );
        }
        self.elements_leave |= more.elements_leave;
        self.removes |= more.removes;
        if self.removes && self.counts_by.is_some() {
            return refuse(
                format!("a rule deletes elements of the set `{name}`, in which live connections are counted"),
                "leave it out: an element goes with its last connection",
            );
        }
        Ok(())
    }

    /// Makes the set. `all` identifies all sets that count connections.
    fn made(self, builder: &mut StateBuilder, all: u64) -> Result<Set, ConfigError> {
        let whose = format!("{} {}", self.set.table, self.set.name);
        let seed = if self.counts_by.is_some() { all } else { 0 };
        let name = format!("elements_{:016x}", hash::mixed(whose.as_bytes(), seed));
        let elements = Aged::new(builder, &name, self.set.size, 0)
            .map_err(|error: StateError| ConfigError::state("rules_file", &error))?;
        let limit = match self.evaluated {
            Some(Act::Limit(often)) => Some(often.limit()?),
            _ => None,
        };
        let counts_by = self.counts_by.map(|(key, timeout_s)| (key.clone(), timeout_s));
        Ok(Set { set: self.set.clone(), elements, elements_leave: self.elements_leave, limit, counts_by })
    }
}

/// Whether two optional values agree: if both are given they must be equal. Keeps the one that is given.
fn agree<T: PartialEq>(one: &mut Option<T>, other: Option<T>) -> bool {
    let agrees = one.is_none() || other.is_none() || *one == other;
    *one = one.take().or(other);
    agrees
}

impl braid_nf::Part for Sets {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.sets.iter().for_each(|set| set.elements.objects(into));
        self.members.iter().for_each(|members| members.objects(into));
        self.since.iter().for_each(|since| since.objects(into));
    }
}
