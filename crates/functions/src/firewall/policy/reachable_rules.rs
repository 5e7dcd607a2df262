//! Which rules packets of a state can reach.
//!
//! Most rule files begin with `ct state established,related accept`. Packets of known connections then reach only that
//! rule, nothing has to be asked about them, and they cost what they would without a rule file.

use crate::firewall::conditions::values::Addresses;
use crate::firewall::connection::states::{self, State};
use crate::firewall::rules::{Action, Rule};
use crate::parts::Side;
use braid_nf::packet::IpVersion;

const SIDES: [Side; 2] = [Side::Inside, Side::Outside];

/// The rules that packets can reach, in order, by state and by side.
#[derive(Clone, Debug)]
pub(in crate::firewall) struct Reach {
    lists: [[Vec<u32>; 2]; State::COUNT],
}

impl Reach {
    /// Finds all rules on any path from the first rule.
    pub(in crate::firewall) fn of(rules: &[Rule]) -> Reach {
        let untracks = rules.iter().any(|rule| rule.untracks);
        let asks_arp = rules.iter().any(|rule| rule.states & states::ARP != 0);
        let list = |state, side| {
            if state == State::Untracked && !untracks || state == State::Arp && !asks_arp {
                return Vec::new();
            }
            let both = IpVersion::BOTH.map(|version| met(rules, state, side, version));
            (0..rules.len()).filter(|at| both.iter().any(|met| met[*at])).map(|at| at as u32).collect()
        };
        Reach { lists: State::ALL.map(|state| SIDES.map(|side| list(state, side))) }
    }

    /// The numbers of the rules for a state and a side.
    pub(in crate::firewall) fn list(&self, state: State, side: usize) -> &[u32] {
        &self.lists[state as usize][side & 1]
    }

    /// The first rule that changes what happens to packets of a state: for known connections one that drops, counts, logs
    /// or limits, as for ARP; for invalid packets one that lets them pass or tells the sender.
    pub(in crate::firewall) fn asked<'a>(&self, rules: &'a [Rule], state: State) -> Option<&'a Rule> {
        let without = |action| match state {
            State::New | State::Untracked => false,
            State::Invalid => matches!(action, Action::Deny | Action::Continue),
            _ => matches!(action, Action::Allow | Action::Continue),
        };
        let first = |side| {
            let mut all = self.list(state, side).iter().copied();
            all.find(|at| rules.get(*at as usize).is_some_and(|rule| rule.has_effects() || !without(rule.action)))
        };
        [0, 1].into_iter().filter_map(first).min().and_then(|at| rules.get(at as usize))
    }
}

/// The rules that packets of a state, a side and an IP version can reach: a path ends at a rule that matches all of them
/// and decides.
fn met(rules: &[Rule], state: State, side: Side, version: IpVersion) -> Vec<bool> {
    let (mut comes, mut met) = (vec![false; rules.len() + 1], vec![false; rules.len()]);
    comes[0] = true;
    for (number, rule) in rules.iter().enumerate() {
        if !comes[number] {
            continue;
        }
        let is_met = rule.is_for(state, side) && may_fit(rule, version);
        met[number] = is_met;
        if !is_met || !fits_all(rule, version) {
            comes[number + 1] = true;
        }
        let mut goes_on = |at: Option<u32>| comes[rule.behind(number, at).min(rules.len())] = true;
        if is_met && rule.action == Action::Continue {
            goes_on(rule.next);
        }
        if is_met && rule.may_miss() {
            goes_on(rule.missed);
        }
    }
    met
}

/// Whether a rule may match packets of an IP version.
fn may_fit(rule: &Rule, version: IpVersion) -> bool {
    let has = |list: &[Addresses]| list.is_empty() || list.iter().any(|range| range.version() == version);
    has(&rule.source.0) && has(&rule.destination.0)
}

/// Whether a rule matches all packets of an IP version.
fn fits_all(rule: &Rule, version: IpVersion) -> bool {
    let all = Addresses::all(version);
    let is_all = |list: &[Addresses]| list.is_empty() || list.contains(&all);
    is_all(&rule.source.0)
        && is_all(&rule.destination.0)
        && rule.ports.0.is_empty()
        && rule.protocol.0.is_empty()
        && rule.source_ports.0.is_empty()
        && rule.destination_ports.0.is_empty()
        && rule.tcp_flags.is_empty()
        && rule.icmp.0.is_empty()
        && rule.fields.is_empty()
        && rule.masked.is_empty()
}
