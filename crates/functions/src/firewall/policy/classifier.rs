//! Finds the rule that decides, in a time that hardly grows with the number of rules.
//!
//! Every rule is a set of boxes in a space of six fields: each list of a rule multiplies its boxes. A tree halves the
//! space: a node looks at one field and one value. Boxes below the value are in its low subtree, boxes from it on in its
//! high subtree, and boxes that contain it in a third one (Edelsbrunner's interval tree, in several dimensions). So every
//! box is in the tree exactly once, and memory is linear in the boxes. A search descends into one side and into the third
//! subtree, and skips subtrees whose first rule comes after the one it has found.
//!
//! A rule that decides nothing is found like any other; the search then continues after it ([`Classifier::find`] starts
//! at a given rule, and skips subtrees and boxes whose rules all come before it).
//!
//! TCP flags and rarely examined fields (`fields.rs`) are not dimensions of the tree; they are checked in its leaves.

use braid_nf::packet::IpVersion;
use std::collections::HashMap;

use super::reachable_rules::Reach;
use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::fields::{Values, Within};
use crate::firewall::conditions::masked::Masked;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::connection::states::State;
use crate::firewall::rules::Rule;

/// Boxes in a leaf, which are tried one by one.
const LEAF: usize = 8;
/// The maximum depth; boxes that are not separated by then are tried one by one.
const DEPTH_MAX: u32 = 64;
/// The maximum number of boxes of all rules.
pub(in crate::firewall) const BOXES_MAX: usize = 1 << 20;
/// No rule.
const NONE: u32 = u32::MAX;

const FIELDS: usize = 6;
const SOURCE: usize = 0;
const DESTINATION: usize = 1;
/// The first of the other fields: source port, destination port, protocol, port of the plan.
const REST: usize = 2;

/// The rules, ready to be searched.
#[derive(Clone, Debug)]
pub(in crate::firewall) struct Classifier {
    nodes: Vec<Node>,
    boxes: Vec<Box6>,
    /// The sets of TCP flags that boxes match; the first one matches any.
    flags: Vec<FlagSet>,
    /// Further conditions of boxes; the first entry has none.
    fields: Vec<More>,
    /// The root of the tree for each state of a packet and each side.
    roots: [[u32; 2]; State::COUNT],
}

/// Further conditions of a rule.
type More = (Vec<Within>, Vec<Masked>);

/// The set of values that the byte of TCP flags may have, one bit for each.
pub(in crate::firewall) type FlagSet = [u64; 4];
pub(in crate::firewall) const ANY_FLAGS: FlagSet = [u64::MAX; 4];

/// All values of the TCP flags that match.
fn flag_set(fits: impl Fn(u8) -> bool) -> FlagSet {
    std::array::from_fn(|word| (0..64).fold(0, |bits, bit| bits | u64::from(fits((word * 64 + bit) as u8)) << bit))
}

impl Default for Classifier {
    /// A classifier without rules.
    fn default() -> Classifier {
        let nodes = vec![Node::Leaf { from: 0, to: 0 }];
        let (flags, fields) = (vec![ANY_FLAGS], vec![Default::default()]);
        Classifier { nodes, boxes: Vec::new(), flags, fields, roots: [[0; 2]; State::COUNT] }
    }
}

/// One value or range for each field.
#[derive(Clone, Debug)]
struct Box6 {
    addresses: [(u128, u128); 2],
    /// Ports, protocol and port of the plan.
    rest: [(u16, u16); 4],
    /// The index of its set of TCP flags.
    flags: u32,
    /// The index of its further conditions; 0: none.
    fields: u32,
    rule: u32,
}

/// What a search looks for.
struct Wanted<'a> {
    values: [u128; FIELDS],
    /// For an ICMP error, the endpoints of the connection that it is about.
    opening: [u128; 2],
    /// `None`: they may have any value.
    fields: Option<&'a Values>,
    /// One of these values has to match.
    flags: FlagSet,
    /// The first rule that may be found.
    from: u32,
}

#[derive(Clone, Debug)]
enum Node {
    /// Boxes `from..to`, in the order of their rules.
    Leaf { from: u32, to: u32 },
    /// A value of a field, the trees of the boxes below it, from it on, and across it, and the first and the last rule of
    /// them all.
    Split { field: u32, at: u128, low: u32, high: u32, across: u32, first: u32, last: u32 },
}

impl Classifier {
    /// Builds the trees of the rules that packets can reach. The error is the number of boxes, if it is too large.
    pub(in crate::firewall) fn new(rules: &[Rule], reach: &Reach) -> Result<Classifier, usize> {
        let count: usize = rules.iter().map(boxes_of).fold(0, usize::saturating_add);
        if count > BOXES_MAX {
            return Err(count);
        }
        let mut classifier = Classifier { nodes: Vec::new(), ..Classifier::default() };
        let mut known = HashMap::new();
        let mut built: Vec<(&[u32], u32)> = Vec::new();
        for (state, side) in State::ALL.into_iter().flat_map(|state| [(state, 0), (state, 1)]) {
            let list = reach.list(state, side);
            let same = built.iter().find(|(known, _)| *known == list).map(|(_, root)| *root);
            classifier.roots[state as usize][side] = same.unwrap_or_else(|| {
                let root = classifier.tree(rules, list, &mut known);
                built.push((list, root));
                root
            });
        }
        Ok(classifier)
    }

    /// Builds the tree of some rules, given by number. `known`: the indices of further conditions met so far.
    fn tree(&mut self, rules: &[Rule], list: &[u32], known: &mut HashMap<More, u32>) -> u32 {
        let mut boxes = Vec::new();
        for (number, rule) in list.iter().filter_map(|number| Some((*number, rules.get(*number as usize)?))) {
            add_boxes(rule, (number, self.flags_of(rule), self.fields_of(rule, known)), &mut boxes);
        }
        self.build(boxes, 0)
    }

    /// The index of a rule's set of TCP flags.
    fn flags_of(&mut self, rule: &Rule) -> u32 {
        let set = flag_set(|flags| rule.fits_flags(flags));
        let known = self.flags.iter().position(|one| *one == set);
        known.unwrap_or_else(|| {
            self.flags.push(set);
            self.flags.len() - 1
        }) as u32
    }

    /// The index of a rule's further conditions.
    fn fields_of(&mut self, rule: &Rule, known: &mut HashMap<More, u32>) -> u32 {
        if rule.fields.is_empty() && rule.masked.is_empty() {
            return 0;
        }
        let more = (rule.fields.clone(), rule.masked.clone());
        *known.entry(more).or_insert_with_key(|more| {
            self.fields.push(more.clone());
            self.fields.len() as u32 - 1
        })
    }

    /// The first rule that matches, from number `from` on.
    pub(in crate::firewall) fn find(&self, facts: &Facts<'_>, from: usize) -> Option<usize> {
        self.find_as(facts, facts.state, from)
    }

    /// The same for a packet whose state has changed on the way through the rules.
    pub(in crate::firewall) fn find_as(&self, facts: &Facts<'_>, state: State, from: usize) -> Option<usize> {
        let mut flags = [0; 4];
        flags[usize::from(facts.flags >> 6)] = 1 << (facts.flags & 63);
        self.found((facts, state), flags, Some(facts.fields), from)
    }

    /// The first rule that may match packets with these endpoints and one of several values of the TCP flags, whatever
    /// other fields they have.
    pub(in crate::firewall) fn find_possible(&self, facts: &Facts<'_>, flags: FlagSet, from: usize) -> Option<usize> {
        self.found((facts, facts.state), flags, None, from)
    }

    fn found(
        &self,
        (facts, state): (&Facts<'_>, State),
        flags: FlagSet,
        fields: Option<&Values>,
        from: usize,
    ) -> Option<usize> {
        let values = [
            facts.source,
            facts.destination,
            facts.source_port.into(),
            facts.destination_port.into(),
            facts.protocol.into(),
            facts.port.into(),
        ];
        let wanted = Wanted { values, opening: facts.opening, fields, flags, from: from as u32 };
        let found = self.search(self.roots[state as usize][facts.side as usize], &wanted, NONE);
        (found != NONE).then_some(found as usize)
    }

    /// The number of boxes, each counted for every tree it is in, and the memory in bytes.
    pub(in crate::firewall) fn size(&self) -> (usize, usize) {
        (self.boxes.len(), size_of_val(&self.boxes[..]) + size_of_val(&self.nodes[..]))
    }

    /// The first rule below a node that matches, if it comes before `best`; else `best`.
    fn search(&self, node: u32, wanted: &Wanted<'_>, best: u32) -> u32 {
        match &self.nodes[node as usize] {
            Node::Leaf { from, to } => {
                let boxes = &self.boxes[*from as usize..*to as usize];
                // Most searches begin with the first rule.
                let passed = match wanted.from {
                    0 => 0,
                    from => boxes.partition_point(|one| one.rule < from),
                };
                let boxes = &boxes[passed..];
                let mut candidates = boxes.iter().take_while(|one| one.rule < best);
                candidates.find(|one| self.contains(one, wanted)).map_or(best, |one| one.rule)
            }
            Node::Split { first, last, .. } if *first >= best || *last < wanted.from => best,
            Node::Split { field, at, low, high, across, .. } => {
                let side = if wanted.values[*field as usize] < *at { *low } else { *high };
                let best = self.search(side, wanted, best);
                self.search(*across, wanted, best)
            }
        }
    }

    #[inline]
    fn contains(&self, one: &Box6, wanted: &Wanted<'_>) -> bool {
        let within = |(first, last): (u128, u128), value: u128| first <= value && value <= last;
        (0..FIELDS).all(|field| within(one.range(field), wanted.values[field]))
            && self.flags[one.flags as usize].iter().zip(&wanted.flags).any(|(fit, wanted)| fit & wanted != 0)
            && (one.fields == 0 || self.asks_no_more(one.fields, wanted))
    }

    /// Whether a box's further conditions hold.
    fn asks_no_more(&self, place: u32, wanted: &Wanted<'_>) -> bool {
        let (fields, masked) = &self.fields[place as usize];
        let [opener, asked] = wanted.opening;
        let ends = [wanted.values[SOURCE], wanted.values[DESTINATION], opener, asked];
        masked.iter().all(|masked| masked.fits(ends))
            && wanted.fields.is_none_or(|values| fields.iter().all(|within| within.fits(values)))
    }

    fn build(&mut self, boxes: Vec<Box6>, depth: u32) -> u32 {
        let split = if boxes.len() <= LEAF || depth == DEPTH_MAX { None } else { best_split(&boxes) };
        let Some((field, at)) = split else {
            let from = self.boxes.len() as u32;
            self.boxes.extend(boxes);
            return self.add(Node::Leaf { from, to: self.boxes.len() as u32 });
        };
        let [first, last] = [boxes.first(), boxes.last()].map(|one| one.map_or(NONE, |one| one.rule));
        let (mut low, mut high, mut across) = (Vec::new(), Vec::new(), Vec::new());
        for one in boxes {
            match one.range(field) {
                (_, last) if last < at => low.push(one),
                (begin, _) if begin >= at => high.push(one),
                _ => across.push(one),
            }
        }
        let [low, high, across] = [low, high, across].map(|part| self.build(part, depth + 1));
        self.add(Node::Split { field: field as u32, at, low, high, across, first, last })
    }

    fn add(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }
}

/// The field and value that leave the fewest boxes together; `None` if no value separates any.
fn best_split(boxes: &[Box6]) -> Option<(usize, u128)> {
    let candidates = (0..FIELDS).flat_map(|field| medians(boxes, field).map(move |at| (field, at)));
    let cost = |&(field, at): &(usize, u128)| {
        let low = boxes.iter().filter(|one| one.range(field).1 < at).count();
        let high = boxes.iter().filter(|one| one.range(field).0 >= at).count();
        let across = boxes.len() - low - high;
        // The boxes across are searched in addition to one side.
        (low.max(high).max(across) < boxes.len()).then_some(low.max(high) + 2 * across)
    };
    candidates.filter_map(|split| Some((cost(&split)?, split))).min().map(|(_, split)| split)
}

/// The candidates for halving a field: the median of where ranges begin, and of where they have ended.
fn medians(boxes: &[Box6], field: usize) -> impl Iterator<Item = u128> {
    let median = |mut values: Vec<u128>| {
        let middle = values.len() / 2;
        (!values.is_empty()).then(|| *values.select_nth_unstable(middle).1)
    };
    let (least, most) = boxes.iter().fold((u128::MAX, 0), |(least, most), one| {
        let (first, last) = one.range(field);
        (first.min(least), last.max(most))
    });
    let begins = boxes.iter().map(|one| one.range(field).0).filter(|first| *first > least).collect();
    let ends = boxes.iter().map(|one| one.range(field).1).filter(|last| *last < most).map(|last| last + 1).collect();
    [median(begins), median(ends)].into_iter().flatten()
}

impl Box6 {
    fn range(&self, field: usize) -> (u128, u128) {
        match field {
            SOURCE | DESTINATION => self.addresses[field],
            _ => {
                let (first, last) = self.rest[field - REST];
                (first.into(), last.into())
            }
        }
    }
}

/// The number of boxes of a rule.
fn boxes_of(rule: &Rule) -> usize {
    let lens = [
        rule.source.0.len() * 2,
        rule.destination.0.len() * 2,
        rule.source_ports.0.len(),
        rule.destination_ports.0.len().max(rule.icmp.0.len()),
        protocols(rule).len(),
        rule.ports.0.len(),
    ];
    lens.into_iter().map(|len| len.max(1)).fold(1, usize::saturating_mul)
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

fn add_boxes(rule: &Rule, (number, flags, fields): (u32, u32, u32), into: &mut Vec<Box6>) {
    let (sources, destinations) = (address_ranges(&rule.source.0), address_ranges(&rule.destination.0));
    let source_ports = ranges(rule.source_ports.0.iter().map(|range| (range.first, range.last)));
    let icmp = rule.icmp.0.iter().map(|kind| (kind.first, kind.last));
    let destination_ports = ranges(rule.destination_ports.0.iter().map(|range| (range.first, range.last)).chain(icmp));
    let protocols = ranges(protocols(rule).into_iter());
    let ports = ranges(rule.ports.0.iter().map(|port| (*port, *port)));
    for &source in &sources {
        for &destination in &destinations {
            for &source_port in &source_ports {
                for &destination_port in &destination_ports {
                    for &protocol in &protocols {
                        into.extend(ports.iter().map(|&port| Box6 {
                            addresses: [source, destination],
                            rest: [source_port, destination_port, protocol, port],
                            flags,
                            fields,
                            rule: number,
                        }));
                    }
                }
            }
        }
    }
}

/// Ranges of numbers; the full range if the list is empty.
fn ranges(list: impl Iterator<Item = (u16, u16)>) -> Vec<(u16, u16)> {
    let list: Vec<_> = list.collect();
    if list.is_empty() { vec![(0, u16::MAX)] } else { list }
}

/// Ranges of addresses as numbers. Those of IPv6 leave out the range of mapped IPv4 addresses.
fn address_ranges(list: &[Addresses]) -> Vec<(u128, u128)> {
    if list.is_empty() {
        return vec![(0, u128::MAX)];
    }
    let v4 = Addresses::all(IpVersion::V4);
    let pieces = |range: &Addresses| {
        if range.version() == IpVersion::V4 || range.last < v4.first || range.first > v4.last {
            return vec![(range.first, range.last)];
        }
        let low = (range.first < v4.first).then(|| (range.first, v4.first - 1));
        let high = (range.last > v4.last).then(|| (v4.last + 1, range.last));
        low.into_iter().chain(high).collect()
    };
    list.iter().flat_map(pieces).collect()
}
