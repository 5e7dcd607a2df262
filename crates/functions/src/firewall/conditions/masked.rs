//! Conditions on arbitrary bits of addresses: `ip6 daddr & ::ffff:ffff:ffff:ffff == ::1234`, a host under any prefix.
//!
//! A network mask is a range like any other ([`Addresses`](super::values::Addresses)); these conditions are checked only
//! where everything else matches.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::values::{Addresses, address};

/// The address to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) enum End {
    Source,
    Destination,
    /// For an ICMP error about a connection: its opener, and the other end.
    Opener,
    Asked,
}

/// A condition on one address: the masked value is in one of these ranges, ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Masked {
    pub(in crate::firewall) end: End,
    /// The mask as a number, IPv4 in its mapped form.
    pub(in crate::firewall) mask: u128,
    /// Bits to invert after masking.
    pub(in crate::firewall) turned: u128,
    /// In order, and disjoint. Copies share them, for they may be many.
    ranges: Arc<[(u128, u128)]>,
    not: bool,
}

impl Masked {
    /// A condition that an address is in one of these ranges.
    pub(in crate::firewall) fn one_of(end: End, addresses: &[Addresses]) -> Masked {
        let ranges = addresses.iter().map(|range| (range.first, range.last)).collect();
        Masked::in_order(end, disjoint(ranges).into())
    }

    /// The same for ranges that are in order and disjoint.
    pub(in crate::firewall) fn in_order(end: End, ranges: Arc<[(u128, u128)]>) -> Masked {
        Masked { end, mask: u128::MAX, turned: 0, ranges, not: false }
    }

    /// A condition that an address, masked and then inverted in the bits `turned`, is in one of these ranges, or is `not`.
    pub(in crate::firewall) fn under(
        end: End,
        (mask, turned): (u128, u128),
        ranges: Vec<(u128, u128)>,
        not: bool,
    ) -> Masked {
        Masked { end, mask, turned, ranges: disjoint(ranges).into(), not }
    }

    /// Its ranges, in order and disjoint; `None` if it is about all other values.
    pub(in crate::firewall) fn ranges(&self) -> Option<&[(u128, u128)]> {
        (!self.not).then_some(&self.ranges)
    }

    /// The same condition with these ranges.
    pub(in crate::firewall) fn with(&self, ranges: Vec<(u128, u128)>) -> Masked {
        Masked { ranges: disjoint(ranges).into(), ..self.clone() }
    }

    /// Takes the ranges of another condition.
    pub(in crate::firewall) fn take_ranges_of(&mut self, other: &Masked) {
        self.ranges = other.ranges.clone();
    }

    /// Whether it holds for these addresses, in the order of [`End`].
    pub(in crate::firewall) fn fits(&self, ends: [u128; 4]) -> bool {
        let value = ends[self.end as usize] & self.mask ^ self.turned;
        let at = self.ranges.partition_point(|(_, last)| *last < value);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= value) != self.not
    }

    /// Whether no address fits both, as the same bits are in other ranges.
    pub(in crate::firewall) fn is_apart_from(&self, other: &Masked) -> bool {
        let bits = |it: &Masked| (it.end as usize, it.mask, it.turned, it.not);
        let meet = |one: &(u128, u128)| other.ranges.iter().any(|it| one.0.max(it.0) <= one.1.min(it.1));
        bits(self) == bits(other) && !self.not && !self.ranges.iter().any(meet)
    }

    /// The name of the condition in reports.
    pub(in crate::firewall) fn name(&self) -> &'static str {
        ["source", "destination", "source of the connection", "destination of the connection"][self.end as usize]
    }
}

/// Long lists are told apart by their length and their first range; equal conditions have equal hashes all the same.
impl Hash for Masked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.end, self.mask, self.turned, self.not, self.ranges.len(), self.ranges.first()).hash(state);
    }
}

/// The same ranges in order, those that overlap made one.
pub(in crate::firewall) fn disjoint<T: Ord + Copy>(mut ranges: Vec<(T, T)>) -> Vec<(T, T)> {
    ranges.sort_unstable();
    ranges.dedup_by(|next, one| {
        let overlaps = next.0 <= one.1;
        if overlaps {
            one.1 = one.1.max(next.1);
        }
        overlaps
    });
    ranges
}

impl fmt::Display for Masked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.mask != u128::MAX {
            write!(f, " & {}", address(self.mask))?;
        }
        if self.turned != 0 {
            write!(f, " ^ {}", address(self.turned))?;
        }
        let one = |(first, last): &(u128, u128)| match first == last {
            true => address(*first).to_string(),
            false => format!("{}-{}", address(*first), address(*last)),
        };
        let ranges: Vec<_> = self.ranges.iter().map(one).collect();
        write!(f, " {} {}", if self.not { "!=" } else { "==" }, ranges.join(", "))
    }
}
