//! Finds the rule that decides, in a time that hardly grows with the number of rules.
//!
//! Every rule is a set of boxes in a space of six fields ([`boxes`](super::boxes)). A tree halves the space: a node looks at one field
//! and one value. Boxes below the value are in its low subtree, boxes from it on in its high subtree, and boxes that contain it in
//! a third one (Edelsbrunner's interval tree, in several dimensions). So every box is in the tree exactly once, and memory is
//! linear in the boxes. A search descends into one side and into the third subtree, and skips subtrees whose first rule comes after
//! the one it has found.
//!
//! A rule that decides nothing is found like any other; the search then continues after it ([`Classifier::find`] starts
//! at a given rule, and skips subtrees and boxes whose rules all come before it).
//!
//! TCP flags and rarely examined fields (`fields.rs`) are not dimensions of the tree; they are checked in its leaves.

use std::collections::HashMap;

use super::boxes::{Boxes, MULTIPLIED_MAX};
use super::reachable_rules::Reach;
use crate::firewall::conditions::facts::Facts;
use crate::firewall::conditions::fields::{Values, Within};
use crate::firewall::conditions::masked::Masked;
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
    /// Builds the trees of the rules that packets can reach. Of too many boxes, more lists are looked up; the error is the number of
    /// boxes that are left, if it is too large.
    pub(in crate::firewall) fn new(rules: &[Rule], reach: &Reach) -> Result<Classifier, usize> {
        let mut boxes = MULTIPLIED_MAX.into_iter().map(|most| Boxes::of_each(rules, most));
        let count = |boxes: &[Boxes]| boxes.iter().map(Boxes::count).fold(0, usize::saturating_add);
        let mut least = usize::MAX;
        let fit = boxes.find(|boxes| {
            least = count(boxes);
            least <= BOXES_MAX
        });
        fit.map(|boxes| Classifier::of(rules, &boxes, reach)).ok_or(least)
    }

    /// Builds the trees from the boxes of each rule.
    pub(in crate::firewall) fn of(rules: &[Rule], boxes: &[Boxes], reach: &Reach) -> Classifier {
        let of_rules: Vec<_> = rules.iter().zip(boxes).collect();
        let mut classifier = Classifier { nodes: Vec::new(), ..Classifier::default() };
        let mut known = HashMap::new();
        let mut built: Vec<(&[u32], u32)> = Vec::new();
        for (state, side) in State::ALL.into_iter().flat_map(|state| [(state, 0), (state, 1)]) {
            let list = reach.list(state, side);
            let same = built.iter().find(|(known, _)| *known == list).map(|(_, root)| *root);
            classifier.roots[state as usize][side] = same.unwrap_or_else(|| {
                let root = classifier.tree(&of_rules, list, &mut known);
                built.push((list, root));
                root
            });
        }
        classifier
    }

    /// Builds the tree of some rules, given by number. `known`: the indices of further conditions met so far.
    fn tree(&mut self, rules: &[(&Rule, &Boxes)], list: &[u32], known: &mut HashMap<More, u32>) -> u32 {
        let mut boxes = Vec::new();
        for (number, (rule, of_rule)) in list.iter().filter_map(|number| Some((*number, rules.get(*number as usize)?)))
        {
            let (flags, fields) = (self.flags_of(rule), self.fields_of(rule, &of_rule.looked_up, known));
            boxes.extend(of_rule.each().map(|(addresses, rest)| Box6 { addresses, rest, flags, fields, rule: number }));
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
    fn fields_of(&mut self, rule: &Rule, looked_up: &[Masked], known: &mut HashMap<More, u32>) -> u32 {
        let masked: Vec<Masked> = looked_up.iter().chain(&rule.masked).cloned().collect();
        if rule.fields.is_empty() && masked.is_empty() {
            return 0;
        }
        let more = (rule.fields.clone(), masked);
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
