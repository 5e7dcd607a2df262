//! Conditions of which one must hold, as few as possible: neighbours that differ in one list only, such as the elements of a map with
//! one verdict, become one condition with the entries of both. A jump would repeat its chain for each of them.

use super::Fits;
use crate::firewall::conditions::masked::disjoint;
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

    /// Whether a rule has entries in this list to which others may be added; without any it matches everything.
    fn is_said(self, rule: &Rule) -> bool {
        match self {
            List::Source => !rule.source.0.is_empty(),
            List::Destination => !rule.destination.0.is_empty(),
            List::SourcePorts => !rule.source_ports.0.is_empty(),
            List::DestinationPorts => !rule.destination_ports.0.is_empty(),
            List::Protocol => !rule.protocol.0.is_empty(),
            List::Ports => !rule.ports.0.is_empty(),
            List::Icmp => !rule.icmp.0.is_empty(),
            List::States => true,
            List::Field(at) => rule.fields.get(at).is_some(),
            List::Masked(at) => rule.masked.get(at).is_some_and(|masked| masked.ranges().is_some()),
        }
    }

    /// Adds the entries that this list has in others to those in `rule`.
    fn add(self, rule: &mut Rule, others: &[Rule]) {
        fn more<T: Clone>(list: &Many<T>, others: &[Rule], of: impl Fn(&Rule) -> &Many<T>) -> Many<T> {
            Many::of(list.0.iter().chain(others.iter().flat_map(|other| of(other).0.iter())).cloned())
        }
        match self {
            List::Source => rule.source = more(&rule.source, others, |rule| &rule.source),
            List::Destination => rule.destination = more(&rule.destination, others, |rule| &rule.destination),
            List::SourcePorts => rule.source_ports = more(&rule.source_ports, others, |rule| &rule.source_ports),
            List::DestinationPorts => {
                rule.destination_ports = more(&rule.destination_ports, others, |rule| &rule.destination_ports)
            }
            List::Protocol => rule.protocol = more(&rule.protocol, others, |rule| &rule.protocol),
            List::Ports => rule.ports = more(&rule.ports, others, |rule| &rule.ports),
            List::Icmp => rule.icmp = more(&rule.icmp, others, |rule| &rule.icmp),
            List::States => rule.states = others.iter().fold(rule.states, |states, other| states | other.states),
            List::Field(at) => {
                let ranges = others.iter().filter_map(|other| other.fields.get(at)).flat_map(|other| &other.ranges);
                if let Some(within) = rule.fields.get_mut(at) {
                    let all = within.ranges.iter().chain(ranges).copied().collect();
                    within.ranges = disjoint(all);
                }
            }
            List::Masked(at) => {
                let ranges = others.iter().filter_map(|other| other.masked.get(at)?.ranges()).flatten();
                if let Some(masked) = rule.masked.get_mut(at) {
                    let all = masked.ranges().unwrap_or_default().iter().chain(ranges).copied().collect();
                    *masked = masked.with(all);
                }
            }
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
                (Some(one), Some(other)) => one.take_ranges_of(other),
                _ => return false,
            },
        }
        one == *other
    }
}

/// A run of conditions that differ in one list.
struct Run {
    first: Fits,
    /// The list in which the others differ from the first one.
    list: Option<List>,
    others: Vec<Rule>,
}

/// Joins neighbours that differ in one list; those that never hold are left out, as long as any remains.
pub(in crate::firewall::rule_file) fn joined(mut all: Vec<Fits>) -> Vec<Fits> {
    if all.iter().all(|fits| fits.never) {
        return all;
    }
    all.retain(|fits| !fits.never);
    let mut runs: Vec<Run> = Vec::new();
    for fits in all {
        let left = match runs.last_mut() {
            Some(run) => run.take(fits),
            None => Some(fits),
        };
        if let Some(first) = left {
            runs.push(Run { first, list: None, others: Vec::new() });
        }
    }
    runs.into_iter().map(Run::joined).collect()
}

impl Run {
    /// Takes a condition if it differs from the first one in one list only; else gives it back.
    fn take(&mut self, fits: Fits) -> Option<Fits> {
        let (first, rule) = (&self.first.rule, &fits.rule);
        let differs = |list: &List| list.is_said(first) && list.is_said(rule) && list.is_all_that_differs(first, rule);
        let list = match self.list {
            _ if self.first.is_of_inner_tag != fits.is_of_inner_tag => None,
            Some(list) => Some(list).filter(differs),
            None => List::of(rule).find(differs),
        };
        match list {
            Some(_) => {
                self.list = list;
                self.others.push(fits.rule);
                None
            }
            None => Some(fits),
        }
    }

    fn joined(mut self) -> Fits {
        if let Some(list) = self.list {
            list.add(&mut self.first.rule, &self.others);
        }
        self.first
    }
}
