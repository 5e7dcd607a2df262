//! Rules as written: their conditions, actions and effects. The first rule that matches decides; the classifier finds
//! that rule fast, and this file defines what it has to find.

use braid_nf::packet::IpVersion;
use std::sync::Arc;

use braid_nf::Port;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use super::conditions::facts::Facts;
use super::conditions::fields::{self, Within};
use super::conditions::masked::Masked;
use super::conditions::values::{Addresses, Bits, IcmpKind, PortRange, Protocol};
use super::connection::states::{self, State, States};
use super::effects::dynamic_sets::{Act, Element, Keyed};
use super::effects::edits::Edit;
use super::effects::marks::{Asked, Given, Marks, Whose};
use super::effects::quota::Quota;
use super::effects::rate_limit::Often;
use super::rule_file::Ports;
use crate::config::ConfigError;
use crate::parts::{Many, Side};

/// What happens to a packet that would open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It passes.
    #[serde(alias = "accept")]
    Allow,
    /// It is dropped silently.
    #[serde(alias = "drop")]
    Deny,
    /// It is dropped, and its sender gets a reset (TCP) or an ICMP error (everything else).
    Reject,
    /// Later rules decide: this one only counts or logs.
    Continue,
}

/// How the sender of a rejected packet is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    /// A reset for TCP, "administratively prohibited" for everything else.
    #[default]
    Usual,
    /// "Destination unreachable" with these codes of ICMP and ICMPv6, for TCP too.
    Unreachable(u8, u8),
}

/// The direction of a connection's first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// From inside.
    Outbound,
    /// From outside.
    Inbound,
}

impl Direction {
    /// The direction of packets from a side.
    pub(super) fn from(side: Side) -> Direction {
        if side == Side::Inside { Direction::Outbound } else { Direction::Inbound }
    }
}

/// One rule. A condition that is not given matches everything; of a list, one entry has to match.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The action.
    pub action: Action,
    /// The direction of the connection.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Ports of the plan on which the packet arrives.
    #[serde(default)]
    pub ports: Many<Port>,
    /// Ports of the plan by which the packet leaves.
    #[serde(default)]
    pub out_ports: Many<Port>,
    /// Protocols.
    #[serde(default)]
    pub protocol: Many<Protocol>,
    /// Source addresses.
    #[serde(default)]
    pub source: Many<Addresses>,
    /// Destination addresses.
    #[serde(default)]
    pub destination: Many<Addresses>,
    /// Source ports.
    #[serde(default)]
    pub source_ports: Many<PortRange>,
    /// Destination ports.
    #[serde(default)]
    pub destination_ports: Many<PortRange>,
    /// Control bits of TCP: in each list one entry has to match.
    #[serde(default, deserialize_with = "one")]
    pub tcp_flags: Vec<Many<Bits>>,
    /// Types and codes of ICMP or ICMPv6.
    #[serde(default)]
    pub icmp: Many<IcmpKind>,
    /// Rarely examined fields that rule files may test; all have to match.
    #[serde(skip)]
    pub(super) fields: Vec<Within>,
    /// Conditions on single bits of addresses; all have to match.
    #[serde(skip)]
    pub(super) masked: Vec<Masked>,
    /// The states of packets that the rule is for: those that would open a connection, unless a table of a rule file says
    /// otherwise.
    #[serde(skip, default = "of_new")]
    pub(super) states: States,
    /// Whether the report shows how often the rule has decided.
    #[serde(default)]
    pub counter: bool,
    /// A prefix for log entries; packets that match are logged if it is given.
    #[serde(default)]
    pub log: Option<String>,
    /// The rate at which the rule may match.
    #[serde(default)]
    pub limit: Option<Often>,
    /// The total number of bytes that the rule may match.
    #[serde(skip)]
    pub(super) quota: Option<Quota>,
    /// Identifies a limit or quota that several rules share; 0: the rule has its own.
    #[serde(skip)]
    pub(super) pool: u64,
    /// The rule's condition on, or change to, a set that packets modify.
    #[serde(skip)]
    pub(super) keyed: Option<Keyed>,
    /// Conditions on marks; all have to match.
    #[serde(skip)]
    pub(super) asks: Vec<Asked>,
    /// Marks that the rule sets.
    #[serde(skip)]
    pub(super) gives: Vec<Given>,
    /// Changes to packets that pass.
    #[serde(skip)]
    pub(super) edits: Vec<Edit>,
    /// Whether matching packets are exempt from tracking, for later rules too.
    #[serde(skip)]
    pub(super) untracks: bool,
    /// The purpose of the rule, shown beside its counter.
    #[serde(default)]
    pub comment: String,
    /// Its line in the rule file; 0: the rule is in the plan.
    #[serde(skip)]
    pub line: u32,
    /// The included file that has that line; `None`: the rule file itself.
    #[serde(skip)]
    pub file: Option<Arc<str>>,
    /// Identifies the statement the rule comes from, also after an exchange of rules: all its rules count, log and are
    /// limited together.
    #[serde(skip)]
    pub(super) origin: u64,
    #[serde(skip)]
    pub(super) reply: Reply,
    /// The rule to continue with if this one decides nothing; `None`: the next one.
    #[serde(skip)]
    pub(super) next: Option<u32>,
    /// The rule to continue with if a limit prevents a match; `None`: the next one.
    #[serde(skip)]
    pub(super) missed: Option<u32>,
}

fn of_new() -> States {
    states::NEW
}

/// Reads the control bits in a plan, which are a single text.
fn one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Many<Bits>>, D::Error> {
    Bits::deserialize(deserializer).map(|bits| vec![Many::of([bits])])
}

impl Rule {
    /// A rule that matches everything.
    pub fn new(action: Action) -> Rule {
        Rule {
            action,
            direction: None,
            ports: Many::default(),
            out_ports: Many::default(),
            protocol: Many::default(),
            source: Many::default(),
            destination: Many::default(),
            source_ports: Many::default(),
            destination_ports: Many::default(),
            tcp_flags: Vec::new(),
            icmp: Many::default(),
            fields: Vec::new(),
            masked: Vec::new(),
            states: states::NEW,
            counter: false,
            log: None,
            limit: None,
            quota: None,
            pool: 0,
            keyed: None,
            asks: Vec::new(),
            gives: Vec::new(),
            edits: Vec::new(),
            untracks: false,
            comment: String::new(),
            line: 0,
            file: None,
            origin: 0,
            reply: Reply::Usual,
            next: None,
            missed: None,
        }
    }

    /// The place of the rule with this number, for reports.
    pub(super) fn place(&self, number: usize) -> String {
        match (self.line, &self.file) {
            (0, _) => format!("rules[{number}]"),
            (line, None) => format!("line {line} of the rule file"),
            (line, Some(file)) => format!("line {line} of {file}"),
        }
    }

    /// Whether the rule has effects besides its decision.
    pub(super) fn has_effects(&self) -> bool {
        let changes = !self.gives.is_empty() || !self.edits.is_empty() || self.untracks;
        self.counter || self.log.is_some() || changes || self.may_miss()
    }

    /// Whether it may match one packet of a connection's opener and not another, or has effects on each.
    pub(super) fn tells_packets_apart(&self, one_port_each: bool) -> bool {
        let by_port = !one_port_each && !self.ports.0.is_empty();
        self.has_effects() || by_port || !self.tcp_flags.is_empty() || !self.fields.is_empty()
    }

    /// Whether packets of a state, from a side, may reach the rule.
    pub(super) fn is_for(&self, state: State, side: Side) -> bool {
        self.states & states::bits(state) != 0 && self.direction.is_none_or(|wanted| wanted == Direction::from(side))
    }

    /// Whether it may fail to match although all its conditions on the packet hold.
    pub(super) fn may_miss(&self) -> bool {
        let takes = |given: &Given| given.value.from == Some(Whose::Connection);
        self.limit.is_some()
            || self.quota.is_some()
            || self.keyed.is_some()
            || !self.asks.is_empty()
            || self.gives.iter().any(takes)
    }

    /// Whether it matches the very first packet that meets its conditions, with these marks: no limit is reached yet, and
    /// sets that packets modify hold what the file has put there.
    pub(super) fn fits_first(&self, facts: &Facts<'_>, marks: &Marks) -> bool {
        let by_set = self.keyed.as_ref().is_none_or(|keyed| match &keyed.act {
            Act::Add | Act::Remove => true,
            Act::Has { not } => keyed.set.given(&Element::of(&keyed.key, facts)).is_some() != *not,
            Act::Limit(often) => !often.over,
            Act::Count { over, .. } => !over,
        });
        by_set
            && self.limit.is_none_or(|often| !often.over)
            && self.quota.is_none_or(|quota| quota.fits_first())
            && self.asks.iter().all(|asked| marks.fit(asked))
    }

    /// Whether its conditions on TCP flags match.
    pub(super) fn fits_flags(&self, flags: u8) -> bool {
        self.tcp_flags.iter().all(|bits| bits.any(|bits| bits.fit(flags)))
    }

    /// The rule to continue with, always after its own number: rules only continue at later ones.
    pub(super) fn behind(&self, number: usize, at: Option<u32>) -> usize {
        at.map_or(number + 1, |at| (at as usize).max(number + 1))
    }

    /// A rule with the decision of `inner` that matches what both match; `None` if that is nothing.
    pub(super) fn meet(&self, inner: &Rule) -> Option<Rule> {
        let direction = match (self.direction, inner.direction) {
            (Some(one), Some(other)) if one != other => return None,
            (one, other) => one.or(other),
        };
        let (states, mut fields) = (self.states & inner.states, self.fields.clone());
        if states == 0 || !inner.fields.iter().all(|more| fields::narrow(&mut fields, more.clone())) {
            return None;
        }
        let met = Rule {
            direction,
            fields,
            masked: self.masked.iter().chain(&inner.masked).cloned().collect(),
            states,
            ports: both(&self.ports, &inner.ports, equal)?,
            protocol: both(&self.protocol, &inner.protocol, equal)?,
            source: both_addresses(&self.source, &inner.source)?,
            destination: both_addresses(&self.destination, &inner.destination)?,
            source_ports: both(&self.source_ports, &inner.source_ports, PortRange::meet)?,
            destination_ports: both(&self.destination_ports, &inner.destination_ports, PortRange::meet)?,
            tcp_flags: self.tcp_flags.iter().chain(&inner.tcp_flags).cloned().collect(),
            icmp: both(&self.icmp, &inner.icmp, IcmpKind::meet)?,
            ..inner.clone()
        };
        met.check().is_ok().then_some(met)
    }

    /// Rejects a rule that can match nothing: returns what is wrong and what to write instead.
    pub(super) fn check(&self) -> Result<(), (String, &'static str)> {
        let (sources, destinations) = (&self.source.0, &self.destination.0);
        let has_family =
            |list: &[Addresses], version| list.is_empty() || list.iter().any(|range| range.version() == version);
        if !IpVersion::BOTH.into_iter().any(|version| has_family(sources, version) && has_family(destinations, version))
        {
            let what = format!("{} and {} are of two families, which no packet is", sources[0], destinations[0]);
            return Err((what, "write two rules"));
        }
        let only = |fits: fn(u8) -> bool| !self.protocol.0.is_empty() && self.protocol.0.iter().all(|it| fits(it.0));
        let has_ports = !self.source_ports.0.is_empty() || !self.destination_ports.0.is_empty();
        if has_ports && !only(protocol::has_ports) {
            return Err(("ports without a protocol that has them".into(), "add protocol = \"tcp\" or \"udp\""));
        }
        if !self.tcp_flags.is_empty() && !only(|number| number == protocol::TCP) {
            return Err(("TCP flags without TCP".into(), "add protocol = \"tcp\""));
        }
        if !self.icmp.0.is_empty() && !only(|number| matches!(number, protocol::ICMP | protocol::ICMPV6)) {
            return Err(("ICMP types without ICMP".into(), "add protocol = \"icmp\" or \"icmpv6\""));
        }
        if let Some(port) = self.ports.0.iter().chain(self.out_ports.0.iter()).find(|port| **port >= 64) {
            return Err((format!("port {port} cannot be on a side"), "write ports from 0 to 63"));
        }
        Ok(())
    }

    /// Rejects ports that the plan does not have, and a list without a port on the side of the rule's direction.
    pub(super) fn check_ports(&self, plan: Ports) -> Result<(), (String, &'static str)> {
        if let Some(port) = self.ports.0.iter().chain(self.out_ports.0.iter()).find(|port| **port >= plan.count) {
            return Err((format!("the plan has no port {port}"), "write its ports from 0 on, or `ports` in the plan"));
        }
        let comes = |port: &Port, wanted| plan.sides.of(*port).map(Direction::from) == Some(wanted);
        let (Some(wanted), Some(port)) = (self.direction, self.ports.0.first()) else { return Ok(()) };
        if self.ports.0.iter().any(|port| comes(port, wanted)) {
            return Ok(());
        }
        let from = if wanted == Direction::Outbound { "inside" } else { "outside" };
        Err((format!("nothing comes from {from} by port {port}"), "write ports of that side, or leave out `direction`"))
    }

    /// The name of the first condition that a packet does not meet; `None` if the rule matches.
    pub(super) fn mismatch(&self, facts: &Facts<'_>) -> Option<&'static str> {
        let conditions = [
            ("connection's state", self.states & states::bits(facts.state) != 0),
            ("direction", self.direction.is_none_or(|wanted| wanted == Direction::from(facts.side))),
            ("port", self.ports.any(|port| *port == facts.port)),
            ("protocol", self.protocol.any(|wanted| wanted.0 == facts.protocol)),
            ("source", self.source.any(|range| range.contains(facts.source))),
            ("destination", self.destination.any(|range| range.contains(facts.destination))),
            ("source port", self.source_ports.any(|range| range.contains(facts.source_port))),
            ("destination port", self.destination_ports.any(|range| range.contains(facts.destination_port))),
            ("TCP flags", self.fits_flags(facts.flags)),
            ("ICMP type", self.icmp.any(|kind| kind.contains(facts.destination_port))),
        ];
        let plain = conditions.into_iter().find(|(_, fulfilled)| !fulfilled).map(|(name, _)| name);
        let ends = [facts.source, facts.destination, facts.opening[0], facts.opening[1]];
        plain
            .or_else(|| self.masked.iter().find(|masked| !masked.fits(ends)).map(Masked::name))
            .or_else(|| self.fields.iter().find(|within| !within.fits(facts.fields)).map(Within::name))
    }
}

/// The intersection of two lists; `None` if it is empty. An empty list stands for everything.
pub(super) fn both<T: Clone>(one: &Many<T>, other: &Many<T>, meet: impl Fn(&T, &T) -> Option<T>) -> Option<Many<T>> {
    if one.0.is_empty() || other.0.is_empty() {
        return Some(if one.0.is_empty() { other.clone() } else { one.clone() });
    }
    let met: Vec<T> = one.0.iter().flat_map(|a| other.0.iter().filter_map(|b| meet(a, b))).collect();
    (!met.is_empty()).then_some(Many::of(met))
}

/// The same of addresses. A list within the only range of the other one is shared with it, not copied.
fn both_addresses(one: &Many<Addresses>, other: &Many<Addresses>) -> Option<Many<Addresses>> {
    let is_within = |all: &Many<Addresses>, list: &Many<Addresses>| match &*all.0 {
        [all] => !list.0.is_empty() && list.0.iter().all(|range| all.meet(range) == Some(*range)),
        _ => false,
    };
    if is_within(one, other) {
        return Some(other.clone());
    }
    if is_within(other, one) {
        return Some(one.clone());
    }
    if one.0.len().min(other.0.len()) <= 16 {
        return both(one, other, Addresses::meet);
    }
    let met = Addresses::in_both(&one.0, &other.0);
    (!met.is_empty()).then_some(Many::of(met))
}

/// The intersection of two single values.
pub(super) fn equal<T: PartialEq + Copy>(one: &T, other: &T) -> Option<T> {
    (one == other).then_some(*one)
}

/// The error for a rule in the plan.
pub(super) fn refuse(number: usize, (what, instead): (String, &'static str)) -> ConfigError {
    ConfigError::new(&format!("rules[{number}]"), what, instead)
}
