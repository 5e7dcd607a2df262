//! The boxes of a rule: one for each combination of what its lists have.
//!
//! Lists of addresses may be long: those of a country, or of who is blocked. Where the lists of a rule make more boxes than
//! [`MULTIPLIED_MAX`] says, its longest lists of addresses are *looked up* instead: the boxes have the bounds of such a list, and
//! whether an address is in it is found by bisection ([`Masked`]) where all else matches. So a set of tens of thousands of prefixes may be a
//! condition of any number of rules, beside lists of ports or another such set.

use std::collections::HashMap;
use std::sync::Arc;

use braid_nf::packet::IpVersion;

use crate::firewall::conditions::masked::{End, Masked, disjoint};
use crate::firewall::conditions::values::Addresses;
use crate::firewall::rules::Rule;
use crate::parts::Many;

/// The most boxes of a rule before its lists of addresses are looked up: the next one where all rules together have too many.
pub(in crate::firewall) const MULTIPLIED_MAX: [usize; 4] = [4096, 256, 16, 1];

/// An address range as numbers, ends included.
type Range = (u128, u128);

/// What the boxes of a rule are made of.
#[derive(Clone, Debug)]
pub(in crate::firewall) struct Boxes {
    addresses: [Vec<Range>; 2],
    /// Source ports, destination ports, protocols, ports of the plan.
    rest: [Vec<(u16, u16)>; 4],
    /// The lists that are looked up.
    pub(super) looked_up: Vec<Masked>,
}

/// The lists that are looked up, each once however many rules have it: by where it lies in memory, the list (kept, so that no other one
/// lies there) and its ranges in order.
#[derive(Debug, Default)]
struct Known(HashMap<*const Addresses, (Many<Addresses>, Arc<[Range]>)>);

impl Boxes {
    /// The boxes of each rule; lists of addresses that would make more than `most` of a rule are looked up.
    pub(in crate::firewall) fn of_each(rules: &[Rule], most: usize) -> Vec<Boxes> {
        let mut lists = Known::default();
        rules.iter().map(|rule| Boxes::of(rule, most, &mut lists)).collect()
    }

    fn of(rule: &Rule, most: usize, known: &mut Known) -> Boxes {
        let icmp = rule.icmp.0.iter().map(|kind| (kind.first, kind.last));
        let [from, to] = [&rule.source_ports, &rule.destination_ports].map(|list| list.0.iter());
        let rest = [
            ranges(from.map(|range| (range.first, range.last)).collect()),
            ranges(to.map(|range| (range.first, range.last)).chain(icmp).collect()),
            ranges(protocols(rule)),
            ranges(rule.ports.0.iter().map(|port| (*port, *port)).collect()),
        ];
        let lists = [(&rule.source, End::Source), (&rule.destination, End::Destination)];
        let mut boxes =
            Boxes { addresses: lists.map(|(list, _)| address_ranges(&list.0)), rest, looked_up: Vec::new() };
        let mut by_length = [0, 1];
        by_length.sort_by_key(|end| std::cmp::Reverse(boxes.addresses[*end].len()));
        for at in by_length {
            if boxes.count() > most && boxes.addresses[at].len() > 1 {
                let (list, end) = lists[at];
                let ranges = known.ranges_of(list, &boxes.addresses[at]);
                boxes.addresses[at] = bounds(&ranges);
                boxes.looked_up.push(Masked::in_order(end, ranges));
            }
        }
        boxes
    }

    /// Their number.
    pub(super) fn count(&self) -> usize {
        let lens = self.addresses.iter().map(Vec::len).chain(self.rest.iter().map(Vec::len));
        lens.fold(1, usize::saturating_mul)
    }

    /// Each of them: the ranges of addresses, and of the other fields.
    pub(super) fn each(&self) -> impl Iterator<Item = ([Range; 2], [(u16, u16); 4])> {
        let [sources, destinations] = &self.addresses;
        let addresses = sources.iter().flat_map(|from| destinations.iter().map(|to| [*from, *to]));
        addresses.flat_map(|addresses| {
            let [from, to, protocols, ports] = &self.rest;
            let pairs = from.iter().flat_map(|from| to.iter().map(|to| (*from, *to)));
            let ways = pairs.flat_map(|pair| protocols.iter().map(move |protocol| (pair, *protocol)));
            let each = ways.flat_map(|way| ports.iter().map(move |port| (way, *port)));
            each.map(move |(((from, to), protocol), port)| (addresses, [from, to, protocol, port]))
        })
    }
}

impl Known {
    /// The ranges of a list, in order.
    fn ranges_of(&mut self, list: &Many<Addresses>, ranges: &[Range]) -> Arc<[Range]> {
        if let Some((_, known)) = self.0.get(&list.0.as_ptr()) {
            return known.clone();
        }
        let sorted = disjoint(ranges.to_vec());
        let same = self.0.values().find(|(_, known)| **known == *sorted).map(|(_, known)| known.clone());
        let ranges = same.unwrap_or_else(|| sorted.into());
        self.0.insert(list.0.as_ptr(), (list.clone(), ranges.clone()));
        ranges
    }
}

/// The bounds of ranges in order: of those below the range of IPv4 addresses, within it, and above it.
fn bounds(ranges: &[Range]) -> Vec<Range> {
    let v4 = Addresses::all(IpVersion::V4);
    let zone = |range: &Range| u8::from(range.0 >= v4.first) + u8::from(range.0 > v4.last);
    let parts = ranges.chunk_by(|one, next| zone(one) == zone(next));
    parts.filter_map(|part| Some((part.first()?.0, part.last()?.1))).collect()
}

/// Protocols as ranges; all but one become two ranges.
fn protocols(rule: &Rule) -> Vec<(u16, u16)> {
    let mut numbers: Vec<u16> = rule.protocol.0.iter().map(|protocol| protocol.0.into()).collect();
    numbers.sort_unstable();
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if number <= *last + 1 => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges
}

/// Ranges of numbers; the full range if the list is empty.
fn ranges(list: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    if list.is_empty() { vec![(0, u16::MAX)] } else { list }
}

/// Ranges of addresses as numbers. Those of IPv6 leave out the range of mapped IPv4 addresses.
fn address_ranges(list: &[Addresses]) -> Vec<Range> {
    if list.is_empty() {
        return vec![(0, u128::MAX)];
    }
    let v4 = Addresses::all(IpVersion::V4);
    let pieces = |range: &Addresses| {
        let (first, last) = (range.first, range.last);
        let is_apart = range.version() == IpVersion::V4 || last < v4.first || first > v4.last;
        let low = (is_apart || first < v4.first).then(|| (first, if is_apart { last } else { v4.first - 1 }));
        let high = (!is_apart && last > v4.last).then(|| (v4.last + 1, last));
        low.into_iter().chain(high)
    };
    list.iter().flat_map(pieces).collect()
}
