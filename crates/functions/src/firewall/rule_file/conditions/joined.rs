//! Conditions of which one must hold, as few as possible: neighbours that differ in one list only, such as the elements of a map with
//! one verdict, become one condition with the entries of both. A jump would repeat its chain for each of them.

use super::Fits;
use crate::firewall::conditions::fields::Within;
use crate::firewall::rules::Rule;
use crate::parts::Many;

/// A list of a rule of which one entry must match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    Source,
    Destination,
    SourcePorts,
    DestinationPorts,
    Protocol,
    Ports,
    Icmp,
    States,
    /// The ranges of the rarely examined field with this number in the rule.
    Field(usize),
    /// The ranges of the masked address with this number in the rule.
    Masked(usize),
}

impl List {
    /// The lists in which a rule may differ from others.
    fn of(rule: &Rule) -> impl Iterator<Item = List> {
        let plain = [
            List::Source,
            List::Destination,
            List::SourcePorts,
            List::DestinationPorts,
            List::Protocol,
            List::Ports,
            List::Icmp,
            List::States,
        ];
        let fields = (0..rule.fields.len()).map(List::Field);
        plain.into_iter().chain(fields).chain((0..rule.masked.len()).map(List::Masked))
    }

    /// Adds the entries of this list in `from` to those in `rule`; false if one list says nothing, and so everything.
    fn add(self, rule: &mut Rule, from: &Rule) -> bool {
        fn more<T: Clone>(list: &mut Many<T>, from: &Many<T>) -> bool {
            let are_said = !list.0.is_empty() && !from.0.is_empty();
            if are_said {
                list.0.extend_from_slice(&from.0);
            }
            are_said
        }
        match self {
            List::Source => more(&mut rule.source, &from.source),
            List::Destination => more(&mut rule.destination, &from.destination),
            List::SourcePorts => more(&mut rule.source_ports, &from.source_ports),
            List::DestinationPorts => more(&mut rule.destination_ports, &from.destination_ports),
            List::Protocol => more(&mut rule.protocol, &from.protocol),
            List::Ports => more(&mut rule.ports, &from.ports),
            List::Icmp => more(&mut rule.icmp, &from.icmp),
            List::States => {
                rule.states |= from.states;
                true
            }
            List::Field(at) => {
                let (Some(within), Some(from)) = (rule.fields.get_mut(at), from.fields.get(at)) else { return false };
                within.ranges.extend_from_slice(&from.ranges);
                true
            }
            List::Masked(at) => match (rule.masked.get_mut(at), from.masked.get(at)) {
                (Some(masked), Some(from)) if !masked.not => {
                    masked.ranges.extend_from_slice(&from.ranges);
                    true
                }
                _ => false,
            },
        }
    }

    /// Whether two rules are the same but for this list.
    fn is_all_that_differs(self, one: &Rule, other: &Rule) -> bool {
        let mut one = one.clone();
        match self {
            List::Source => one.source.clone_from(&other.source),
            List::Destination => one.destination.clone_from(&other.destination),
            List::SourcePorts => one.source_ports.clone_from(&other.source_ports),
            List::DestinationPorts => one.destination_ports.clone_from(&other.destination_ports),
            List::Protocol => one.protocol.clone_from(&other.protocol),
            List::Ports => one.ports.clone_from(&other.ports),
            List::Icmp => one.icmp.clone_from(&other.icmp),
            List::States => one.states = other.states,
            List::Field(at) => match (one.fields.get_mut(at), other.fields.get(at)) {
                (Some(one), Some(other)) => one.ranges.clone_from(&other.ranges),
                _ => return false,
            },
            List::Masked(at) => match (one.masked.get_mut(at), other.masked.get(at)) {
                (Some(one), Some(other)) => one.ranges.clone_from(&other.ranges),
                _ => return false,
            },
        }
        one == *other
    }
}

/// A run of conditions that differ in one list.
struct Run {
    /// The first of them, and the list in which the others differ from it.
    first: Rule,
    list: Option<List>,
}

/// Joins neighbours that differ in one list; those that never hold are left out, as long as any remains.
pub(in crate::firewall::rule_file) fn joined(mut all: Vec<Fits>) -> Vec<Fits> {
    if all.iter().all(|fits| fits.never) {
        return all;
    }
    all.retain(|fits| !fits.never);
    let mut joined: Vec<Fits> = Vec::new();
    let mut run: Option<Run> = None;
    for fits in all {
        if let (Some(run), Some(last)) = (&mut run, joined.last_mut())
            && fits.is_of_inner_tag == last.is_of_inner_tag
            && run.takes(&fits.rule, &mut last.rule)
        {
            continue;
        }
        run = Some(Run { first: fits.rule.clone(), list: None });
        joined.push(fits);
    }
    for within in joined.iter_mut().flat_map(|fits| &mut fits.rule.fields) {
        within.ranges = Within::under(within.field, within.mask, std::mem::take(&mut within.ranges)).ranges;
    }
    joined
}

impl Run {
    /// Adds a condition to `last`, which has those of the run so far, if it differs in one list only.
    fn takes(&mut self, rule: &Rule, last: &mut Rule) -> bool {
        let differs = |list: &List| list.is_all_that_differs(&self.first, rule);
        let list = match self.list {
            Some(list) => Some(list).filter(differs),
            None => List::of(rule).find(differs),
        };
        let is_taken = list.is_some_and(|list| list.add(last, rule));
        if is_taken {
            self.list = list;
        }
        is_taken
    }
}
