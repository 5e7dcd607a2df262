//! Finds the fields to hash: one hash steers a packet, but every network function of the chain has its own sets.
//!
//! A function's sets stay whole on one worker if all packets of a set hash alike. This is the case if
//!
//! - every hashed field is one of its fields (packets of a set agree in all of them), and
//! - if its sets join both directions, the hashed fields are the same in both directions and are hashed symmetrically.
//!
//! Hashing fewer fields than a set has is always correct, it only spreads less, because several sets share a worker. Hashing one field more tears
//! sets apart. So the candidates are the intersections of the functions' fields (reduced to what both directions share). The best one
//! keeps most functions local; among equals, the one with the most different values wins. A candidate with hardly any values (the protocol
//! number, the port of arrival) would put all traffic on a few workers, so it ranks last.
//!
//! State that is not local has to be placed otherwise (indexed, transactional); that is decided by whoever reads the plan.
//!
//! **Rewriting.** A packet is steered as it arrives, but a function may see it after an earlier one has changed it. Changed fields say nothing
//! about where a packet was steered, so they count as missing from the function's sets. A mirrored chain, whose functions packets from outside
//! meet in reverse order, can be steered in one more way: *by sides*, by the fields that the packet would have if it went from
//! inside to outside. The end that a translator does not change is then the same in both directions, and keeps a connection on one worker on
//! both sides of the translator.
//!
//! **Fragments.** Only the first fragment of a datagram carries ports, so its later fragments belong to another set (that of ports 0). The
//! promise holds for both sets, but where their ports are hashed they reach different workers. Functions that need whole datagrams define
//! their sets without ports. For those that let later fragments follow the first one, the ports of UDP are left out of the hash
//! ([`udp_ports`](crate::udp_ports)).

use std::collections::BTreeSet;
use std::fmt;

use braid_packet::PortSet;

use crate::fields::{Fields, spread_bits};
use crate::pattern::Pattern;
use crate::udp_ports::{UdpChoice, UdpPorts};

/// Minimum number of varying bits that a hash should cover; with fewer, a handful of workers would get all packets.
pub(crate) const SPREAD_BITS_MIN: u32 = 4;

/// The packet sets of one network function of the chain.
#[derive(Clone, Debug)]
pub struct Member {
    /// The function's name.
    pub name: String,
    /// The definition of its sets.
    pub pattern: Pattern,
    /// Fields that functions before it change.
    pub changed: Changed,
    /// Whether it lets later fragments of a datagram follow the first one.
    pub follows_fragments: bool,
}

/// Fields that have changed before a function sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// In packets from inside.
    pub from_inside: Fields,
    /// In packets from outside.
    pub from_outside: Fields,
    /// In some packets from outside unless steering is by sides: the outside end of hairpins is the same before and after translation.
    pub unless_by_sides: Fields,
}

impl Changed {
    /// All fields, for a packet of which nothing is known: it may have waited and continued on another worker.
    pub fn everything() -> Changed {
        Changed::of(Fields::ALL, Fields::ALL)
    }

    /// Fields changed in packets from inside, and in packets from outside.
    pub fn of(from_inside: Fields, from_outside: Fields) -> Changed {
        Changed { from_inside, from_outside, unless_by_sides: Fields::NONE }
    }

    /// Fields that are changed in packets from either side.
    pub fn any(self) -> Fields {
        self.from_inside.and(self.from_outside).and(self.unless_by_sides)
    }
}

impl Member {
    /// A function that sees packets as they arrived, and does not follow fragments.
    pub fn new(name: impl Into<String>, pattern: Pattern) -> Member {
        Member { name: name.into(), pattern, changed: Changed::default(), follows_fragments: false }
    }

    /// The fields of its sets that it sees as they arrived.
    fn seen(&self) -> Fields {
        self.pattern.fields.without(self.changed.any())
    }

    /// The fields that it sees as they arrived when steering by sides, as fields of packets from inside to outside.
    fn seen_by_sides(&self) -> Fields {
        let Changed { from_inside, from_outside, .. } = self.changed;
        let own = self.pattern.fields;
        own.without(from_inside).common(own.without(from_outside).swapped()).common(BY_SIDES)
    }
}

/// The fields hashed when steering by sides: addresses alone. The end that remains is mostly a server, whose port spreads hardly anything, and
/// without ports a datagram's later fragments reach the worker of its first one.
const BY_SIDES: Fields = Fields::ADDRESSES;

/// Whether a function's packet-set state stays on one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locality {
    /// Every packet of a set reaches the same worker.
    Local,
    /// The function has no packet sets: nothing has to stay together.
    NoSets,
    /// Packets of a set reach several workers.
    NotLocal {
        /// The reason.
        why: Conflict,
    },
}

/// Why a function's sets are torn apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Fields are hashed in which packets of a set differ.
    HashedButNotInSet(Fields),
    /// Its sets join both directions, and these hashed fields have no counterpart among the hashed ones.
    OneDirectionOnly(Fields),
    /// These hashed fields have changed when the packet reaches the function.
    Changed(Fields),
    /// Ports of UDP are not hashed, those of other protocols are, and a set may have packets of both.
    UdpWithoutPorts,
    /// No field that keeps sets together is hashed.
    NothingHashed,
}

/// The consequences for one function.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The function's name.
    pub name: String,
    /// Whether its state is local.
    pub locality: Locality,
    /// The same in a sentence.
    pub explanation: String,
}

/// A choice of fields to hash, and its consequences.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The fields that are hashed.
    pub fields: Fields,
    /// Whether both directions of a connection hash alike.
    pub symmetric: bool,
    /// When steering by sides, by the fields that the packet would have from inside to outside: the outside ports.
    pub sides: Option<PortSet>,
    /// Whether that includes the ports of UDP.
    pub udp: UdpChoice,
    /// The consequences for each function, in the order of the chain.
    pub outcomes: Vec<Outcome>,
}

/// The chosen candidate, and those it beat, best first.
#[derive(Clone, Debug)]
pub struct HashPlan {
    /// The best candidate.
    pub chosen: Candidate,
    /// The other candidates.
    pub alternatives: Vec<Candidate>,
}

/// Finds the fields that keep most of the chain's packet-set state local.
pub fn plan(members: &[Member]) -> HashPlan {
    plan_with(members, None, None)
}

/// Like [`plan`], for a chain that packets from the ports in `outside` pass in reverse order, and with a wish about the ports of UDP.
pub fn plan_with(members: &[Member], outside: Option<PortSet>, udp: Option<UdpPorts>) -> HashPlan {
    let candidate = |fields, sides| Candidate::new(fields, members, sides, udp);
    let mut candidates: Vec<Candidate> =
        candidates(members).into_iter().map(|fields| candidate(fields, None)).collect();
    if outside.is_some() {
        let seen = members.iter().map(Member::seen_by_sides);
        candidates.extend(intersections(seen).into_iter().map(|fields| candidate(fields, outside)));
    }
    // A stable sort of an ordered set, so the same chain gives the same plan everywhere.
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.rank()));
    let mut candidates = candidates.into_iter();
    let chosen = candidates.next().unwrap_or_else(|| candidate(Fields::FOUR_TUPLE, None));
    HashPlan { chosen, alternatives: candidates.collect() }
}

/// All intersections of the functions' fields. No other subset is better to hash: it keeps the same functions local as the smallest
/// intersection that contains it, and spreads less.
fn candidates(members: &[Member]) -> BTreeSet<Fields> {
    let mut found = BTreeSet::new();
    for member in members {
        let seen = member.seen();
        let both = seen.both_ways();
        let own = if member.pattern.symmetric { both } else { seen };
        let mut new: Vec<Fields> = found.iter().flat_map(|&set: &Fields| [set.common(own), set.common(both)]).collect();
        // A one-way set may have to be hashed symmetrically for the sake of another function.
        new.extend([own, both]);
        new.extend(new.clone().into_iter().map(Fields::both_ways));
        found.extend(new.into_iter().filter(|set| !set.is_empty()));
    }
    found
}

/// All intersections of some sets, except the empty one.
fn intersections(sets: impl Iterator<Item = Fields>) -> BTreeSet<Fields> {
    let mut found = BTreeSet::new();
    for set in sets {
        let mut new: Vec<Fields> = found.iter().map(|&other: &Fields| set.common(other)).collect();
        new.push(set);
        found.extend(new.into_iter().filter(|set| !set.is_empty()));
    }
    found
}

impl Candidate {
    fn new(fields: Fields, members: &[Member], sides: Option<PortSet>, udp: Option<UdpPorts>) -> Candidate {
        // Symmetric only if some function benefits, because it makes the two ends of an address pair indistinguishable.
        let gains = |member: &Member| member.pattern.symmetric && fields.is_within(member.seen());
        let by_value = fields == fields.swapped() && members.iter().any(gains);
        let symmetric = sides.is_some() || by_value;
        let udp = UdpChoice::of(fields, members, sides.is_some(), udp);
        let outcome = |member| Outcome::new(member, (fields, udp.ports), sides.is_some());
        let outcomes = members.iter().map(outcome).collect();
        Candidate { fields, symmetric, sides, outcomes, udp }
    }

    /// Number of functions whose state is local.
    pub fn local(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.locality == Locality::Local).count()
    }

    /// Rough number of varying bits that are hashed.
    pub fn spread_bits(&self) -> u32 {
        spread_of(self.fields)
    }

    /// The rank of the candidate. Hashing by sides, which no network card can do by itself, is chosen only if it gains something.
    fn rank(&self) -> (bool, usize, u32, bool) {
        (self.spread_bits() >= SPREAD_BITS_MIN, self.local(), self.spread_bits(), self.sides.is_none())
    }
}

impl Outcome {
    fn new(member: &Member, (hashed, udp): (Fields, UdpPorts), by_sides: bool) -> Outcome {
        let locality = locality(member, (hashed, udp), by_sides);
        let (name, own) = (&member.name, member.pattern.fields);
        let explanation = match &locality {
            Locality::NoSets => format!("{name}: has no packet sets, any worker may process any packet"),
            Locality::Local if by_sides => format!(
                "{name}: its sets ({own}) contain {hashed} of packets from inside and the opposite of those from outside, \
                 which no function before it changes: each stays on one worker"
            ),
            Locality::Local if member.pattern.symmetric => format!(
                "{name}: its sets ({own}, both directions) contain {hashed}, which both directions share: \
                 each stays on one worker"
            ),
            Locality::Local => format!("{name}: its sets ({own}) all contain {hashed}: each stays on one worker"),
            Locality::NotLocal { why: Conflict::HashedButNotInSet(extra) } => {
                format!(
                    "{name}: packets of one of its sets ({own}) differ in {extra}, which is hashed: \
                     they reach several workers"
                )
            }
            Locality::NotLocal { why: Conflict::OneDirectionOnly(lone) } => format!(
                "{name}: its sets join both directions, but {lone} is hashed without its counterpart: \
                 replies reach another worker"
            ),
            Locality::NotLocal { why: Conflict::Changed(_) } if member.changed.from_inside == Fields::ALL => {
                format!(
                    "{name}: a function before it lets packets wait, and some other worker sends them on, wherever they came: \
                 packets of one of its sets ({own}) are handled by several workers"
                )
            }
            Locality::NotLocal { why: Conflict::Changed(_) } if member.changed.any() == Fields::ALL => format!(
                "{name}: hairpins of a function after it meet it again as if from outside, on the worker to which they came: \
                 packets of one of its sets ({own}) are handled by several workers"
            ),
            Locality::NotLocal { why: Conflict::Changed(changed) } => format!(
                "{name}: {changed} of its sets ({own}) is changed by a function before it, and hashed as it arrived: \
                 packets of one set reach several workers"
            ),
            Locality::NotLocal { why: Conflict::UdpWithoutPorts } => format!(
                "{name}: one of its sets ({own}) may have packets of UDP, whose ports are not hashed, and of other protocols: \
                 they reach several workers"
            ),
            Locality::NotLocal { why: Conflict::NothingHashed } => {
                format!("{name}: none of its fields ({own}) is hashed")
            }
        };
        Outcome { name: name.clone(), locality, explanation }
    }
}

/// Rough number of bits of these fields that vary.
pub(crate) fn spread_of(fields: Fields) -> u32 {
    fields.iter().map(spread_bits).sum()
}

/// Whether a function's sets stay on one worker when `hashed` is hashed, with or without the ports of UDP: by sides, or as the packet is,
/// symmetrically where that is possible.
pub fn locality(member: &Member, (hashed, udp): (Fields, UdpPorts), by_sides: bool) -> Locality {
    let pattern = &member.pattern;
    let (own, seen) = match by_sides {
        true => (pattern.fields.common(pattern.fields.swapped()), member.seen_by_sides()),
        false => (pattern.fields, member.seen()),
    };
    let (extra, changed) = (hashed.without(own), hashed.without(seen));
    let lone = hashed.without(hashed.swapped());
    let why = match () {
        () if pattern.fields.is_empty() => return Locality::NoSets,
        () if hashed.is_empty() => Conflict::NothingHashed,
        () if !extra.is_empty() => Conflict::HashedButNotInSet(extra),
        () if !changed.is_empty() => Conflict::Changed(changed),
        () if !udp.keeps(pattern, seen, hashed) => Conflict::UdpWithoutPorts,
        () if !by_sides && pattern.symmetric && !lone.is_empty() => Conflict::OneDirectionOnly(lone),
        () => return Locality::Local,
    };
    Locality::NotLocal { why }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match (self.sides, self.symmetric) {
            (Some(_), _) => " of packets from inside, the opposite of those from outside",
            (None, true) => ", both directions alike",
            (None, false) => "",
        };
        let udp = if self.udp.ports == UdpPorts::LeftOut { ", UDP without its ports" } else { "" };
        write!(f, "hash {}{way}{udp}: {} of {} local", self.fields, self.local(), self.outcomes.len())?;
        match self.spread_bits() < SPREAD_BITS_MIN {
            true => f.write_str(", but so few different values that workers would idle"),
            false => Ok(()),
        }
    }
}

impl fmt::Display for HashPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.chosen)?;
        for outcome in &self.chosen.outcomes {
            writeln!(f, "  {}", outcome.explanation)?;
        }
        if self.chosen.udp.ports == UdpPorts::LeftOut || self.chosen.udp.holds_fragments() {
            writeln!(f, "  {}", self.chosen.udp)?;
        }
        for other in &self.alternatives {
            writeln!(f, "  instead: {other}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
