//! The search for the fields to hash: one hash steers a packet, and every network function of the chain has its own
//! sets.
//!
//! A function's sets stay whole on one worker if all packets of a set hash alike. That holds if
//!
//! - every hashed field is one of its fields (packets of a set agree in all of them), and
//! - if its sets join both directions, the hashed fields are the same ones in both directions and are hashed
//!   symmetrically.
//!
//! Hashing fewer fields than a set has is always right, it only spreads less: several sets share a worker. Hashing one
//! field more tears sets apart. So the candidates are the intersections of the functions' fields (cut to what both
//! directions share), and the best one keeps most functions local; among equals, the one with most different values. A
//! candidate with hardly any values (the protocol number, the port of entry) would put all traffic on a few workers and
//! is taken last.
//!
//! What is not local has to be placed otherwise (indexed, transactional); that is the plan's reader's business.
//!
//! **Rewriting.** A packet is steered as it arrives, but a function may meet it after an earlier one has changed it. Fields
//! that were changed on the way say nothing of where a packet went, so they count as missing from the function's sets. A
//! chain that has its functions in reverse order for packets from outside has one more way to be steered: *by sides*, by the
//! fields that the packet would have if it went from inside to outside. The end that a translator leaves alone is then the
//! same in both directions, and keeps a connection on one worker on both sides of the translator.
//!
//! **Fragments.** Only the first fragment of a datagram carries ports. Steering takes exactly the fields that the
//! packet-set key has, so the promise holds for every packet of every set, but a datagram's later fragments belong to
//! another set (that of ports 0) than its first one. Functions that need whole datagrams define their sets without
//! ports.

use std::collections::BTreeSet;
use std::fmt;

use braid_packet::{FieldId, PortSet};

use crate::fields::{Fields, spread_bits};
use crate::pattern::Pattern;

/// Fewest bits of different values that a hash should see; below, a handful of workers would get everything.
const SPREAD_BITS_MIN: u32 = 4;

/// The packet sets of one network function of the chain.
#[derive(Clone, Debug)]
pub struct Member {
    /// The function's name.
    pub name: String,
    /// What its sets are.
    pub pattern: Pattern,
    /// Fields that functions before it change.
    pub changed: Changed,
}

/// Fields that a function does not see as they arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changed {
    /// In packets from inside.
    pub from_inside: Fields,
    /// In packets from outside.
    pub from_outside: Fields,
}

impl Changed {
    /// Nothing is known of how a packet came: it may have waited, and gone on from another worker.
    pub fn everything() -> Changed {
        let all = FieldId::ALL.into_iter().collect();
        Changed { from_inside: all, from_outside: all }
    }

    /// Fields that are changed in packets of either side.
    pub fn any(self) -> Fields {
        self.from_inside.and(self.from_outside)
    }
}

impl Member {
    /// A function that sees packets as they arrive.
    pub fn new(name: impl Into<String>, pattern: Pattern) -> Member {
        Member { name: name.into(), pattern, changed: Changed::default() }
    }

    /// The fields of its sets that it sees as they arrived.
    fn seen(&self) -> Fields {
        self.pattern.fields.without(self.changed.any())
    }

    /// The same by sides: as fields of packets from inside to outside.
    fn seen_by_sides(&self) -> Fields {
        let Changed { from_inside, from_outside } = self.changed;
        let own = self.pattern.fields;
        own.without(from_inside).common(own.without(from_outside).swapped()).common(BY_SIDES)
    }
}

/// What is hashed by sides: addresses alone. The end that is left is mostly a server's, whose port spreads hardly anything, and
/// without ports a datagram's later fragments come to the worker of its first one.
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
        /// What stands against it.
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
    /// These hashed fields are others when the packet comes to it.
    Changed(Fields),
    /// Nothing that keeps sets together is hashed.
    NothingHashed,
}

/// What happens to one function.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The function's name.
    pub name: String,
    /// Whether its state is local.
    pub locality: Locality,
    /// The same in a sentence.
    pub explanation: String,
}

/// Fields to hash and what follows from it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Fields that are hashed.
    pub fields: Fields,
    /// Whether both directions of a connection hash alike.
    pub symmetric: bool,
    /// Set if the fields are those that the packet would have if it went from inside to outside; then the ports outside.
    pub sides: Option<PortSet>,
    /// What happens to each function, in the order of the chain.
    pub outcomes: Vec<Outcome>,
}

/// The chosen candidate and the ones it beat, best first.
#[derive(Clone, Debug)]
pub struct HashPlan {
    /// What to do.
    pub chosen: Candidate,
    /// What else could be done.
    pub alternatives: Vec<Candidate>,
}

/// Finds the fields that keep most of the chain's packet-set state local.
pub fn plan(members: &[Member]) -> HashPlan {
    plan_with(members, None)
}

/// The same for a chain that packets from `outside` go through in reverse order.
pub fn plan_with(members: &[Member], outside: Option<PortSet>) -> HashPlan {
    let mut candidates: Vec<Candidate> =
        candidates(members).into_iter().map(|fields| Candidate::new(fields, members, None)).collect();
    if outside.is_some() {
        let seen = members.iter().map(Member::seen_by_sides);
        let by_sides = intersections(seen).into_iter();
        candidates.extend(by_sides.map(|fields| Candidate::new(fields, members, outside)));
    }
    // A stable sort of an ordered set: the same chain gives the same plan everywhere.
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.rank()));
    let mut candidates = candidates.into_iter();
    let chosen = candidates.next().unwrap_or_else(|| Candidate::new(Fields::FOUR_TUPLE, members, None));
    HashPlan { chosen, alternatives: candidates.collect() }
}

/// All intersections of the functions' fields. Nobody's fields are better hashed than an intersection: any other subset
/// keeps the same functions local as the smallest intersection around it, and spreads less.
fn candidates(members: &[Member]) -> BTreeSet<Fields> {
    let mut found = BTreeSet::new();
    for member in members {
        let seen = member.seen();
        let both = seen.both_ways();
        let own = if member.pattern.symmetric { both } else { seen };
        let mut new: Vec<Fields> = found.iter().flat_map(|&set: &Fields| [set.common(own), set.common(both)]).collect();
        // A one-direction set may have to be hashed symmetrically for the sake of another function.
        new.extend([own, both]);
        new.extend(new.clone().into_iter().map(Fields::both_ways));
        found.extend(new.into_iter().filter(|set| !set.is_empty()));
    }
    found
}

/// All intersections of some sets, but the empty one.
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
    fn new(fields: Fields, members: &[Member], sides: Option<PortSet>) -> Candidate {
        // Symmetric only if somebody gains: it makes the two ends of an address pair indistinguishable.
        let gains = |member: &Member| member.pattern.symmetric && fields.is_within(member.seen());
        let by_value = fields == fields.swapped() && members.iter().any(gains);
        let symmetric = sides.is_some() || by_value;
        let outcomes = members.iter().map(|member| Outcome::new(member, fields, sides.is_some())).collect();
        Candidate { fields, symmetric, sides, outcomes }
    }

    /// Number of functions whose state is local.
    pub fn local(&self) -> usize {
        self.outcomes.iter().filter(|outcome| outcome.locality == Locality::Local).count()
    }

    /// Rough number of bits of different values that are hashed.
    pub fn spread_bits(&self) -> u32 {
        self.fields.iter().map(spread_bits).sum()
    }

    /// What no network card can do by itself, hashing by sides, is taken only if it gains something.
    fn rank(&self) -> (bool, usize, u32, bool) {
        (self.spread_bits() >= SPREAD_BITS_MIN, self.local(), self.spread_bits(), self.sides.is_none())
    }
}

impl Outcome {
    fn new(member: &Member, hashed: Fields, by_sides: bool) -> Outcome {
        let locality = locality(member, hashed, by_sides);
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
            Locality::NotLocal { why: Conflict::Changed(_) } if member.changed.any() == Changed::everything().any() => {
                format!(
                    "{name}: a function before it lets packets wait, and some other worker sends them on, wherever they came: \
                 packets of one of its sets ({own}) are handled by several workers"
                )
            }
            Locality::NotLocal { why: Conflict::Changed(changed) } => format!(
                "{name}: {changed} of its sets ({own}) is changed by a function before it, and hashed as it arrived: \
                 packets of one set reach several workers"
            ),
            Locality::NotLocal { why: Conflict::NothingHashed } => {
                format!("{name}: none of its fields ({own}) is hashed")
            }
        };
        Outcome { name: name.clone(), locality, explanation }
    }
}

/// Whether a function's sets stay on one worker when `hashed` is hashed: by sides, or as it stands, symmetrically where that is
/// possible.
pub fn locality(member: &Member, hashed: Fields, by_sides: bool) -> Locality {
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
        write!(f, "hash {}{way}: {} of {} local", self.fields, self.local(), self.outcomes.len())?;
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
        for other in &self.alternatives {
            writeln!(f, "  instead: {other}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
