//! Rules as they are written: what each says, and what it says of a packet. The first that fits decides; the classifier finds
//! that one fast, and here is what it means.

use std::sync::Arc;

use braid_nf::Port;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use super::edits::Edit;
use super::facts::Facts;
use super::fields::{self, Within};
use super::keyed::{Act, Element, Keyed};
use super::marks::{Asked, Given, Marks, Whose};
use super::masked::Masked;
use super::often::Often;
use super::quota::Quota;
use super::rule_file::Ports;
use super::states::{self, State, States};
use super::values::{Addresses, Bits, IcmpKind, PortRange, Protocol};
use crate::config::ConfigError;
use crate::parts::{Many, Side};

/// What becomes of a packet that would open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It may.
    #[serde(alias = "accept")]
    Allow,
    /// It is dropped in silence.
    #[serde(alias = "drop")]
    Deny,
    /// It is dropped, and its sender is told: a reset for TCP, an ICMP error for everything else.
    Reject,
    /// The rules behind this one decide: it counts, or writes into the log.
    Continue,
}

/// How the sender of a rejected packet is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reply {
    /// TCP by a reset, everything else by "administratively prohibited".
    #[default]
    Usual,
    /// By "destination unreachable" with these codes of ICMP and ICMPv6, TCP too.
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
    /// The direction of what comes from a side.
    pub(super) fn from(side: Side) -> Direction {
        if side == Side::Inside { Direction::Outbound } else { Direction::Inbound }
    }
}

/// One rule. What is not given fits everything; of a list one has to fit.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it decides.
    pub action: Action,
    /// Which direction it is for.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Ports of the plan by which the packet comes.
    #[serde(default)]
    pub ports: Many<Port>,
    /// Which protocols.
    #[serde(default)]
    pub protocol: Many<Protocol>,
    /// From whom.
    #[serde(default)]
    pub source: Many<Addresses>,
    /// To whom.
    #[serde(default)]
    pub destination: Many<Addresses>,
    /// Source ports.
    #[serde(default)]
    pub source_ports: Many<PortRange>,
    /// Destination ports.
    #[serde(default)]
    pub destination_ports: Many<PortRange>,
    /// Control bits of TCP; all have to fit, of each one.
    #[serde(default, deserialize_with = "one")]
    pub tcp_flags: Vec<Many<Bits>>,
    /// Types and codes of ICMP or ICMPv6.
    #[serde(default)]
    pub icmp: Many<IcmpKind>,
    /// What else rule files look at; all have to fit.
    #[serde(skip)]
    pub(super) fields: Vec<Within>,
    /// Bits of addresses that are asked for; all have to fit.
    #[serde(skip)]
    pub(super) masked: Vec<Masked>,
    /// What packets it is for: those that would open a connection, unless a table of a rule file says more.
    #[serde(skip, default = "of_new")]
    pub(super) states: States,
    /// Whether the report says how often it has decided.
    #[serde(default)]
    pub counter: bool,
    /// Packets that it has fitted are written into the log, with this before them.
    #[serde(default)]
    pub log: Option<String>,
    /// It fits only so often.
    #[serde(default)]
    pub limit: Option<Often>,
    /// It fits only so many bytes.
    #[serde(skip)]
    pub(super) quota: Option<Quota>,
    /// What its limit or quota is known by if other rules have the same one; 0: it is its own.
    #[serde(skip)]
    pub(super) pool: u64,
    /// What it asks of a set that packets change.
    #[serde(skip)]
    pub(super) keyed: Option<Keyed>,
    /// What it asks of marks; all have to fit.
    #[serde(skip)]
    pub(super) asks: Vec<Asked>,
    /// Marks that it sets.
    #[serde(skip)]
    pub(super) gives: Vec<Given>,
    /// What it writes into packets that pass.
    #[serde(skip)]
    pub(super) edits: Vec<Edit>,
    /// Packets that it fits are not followed, and are so to the rules behind it.
    #[serde(skip)]
    pub(super) untracks: bool,
    /// What it is for, beside its counter.
    #[serde(default)]
    pub comment: String,
    /// The line of the rule file in which it stands; 0: in the plan.
    #[serde(skip)]
    pub line: u32,
    /// The file that the rule file includes and in which that line is; none: the rule file itself.
    #[serde(skip)]
    pub file: Option<Arc<str>>,
    /// What it is known by when rules are exchanged: rules of one statement count, log and are limited together.
    #[serde(skip)]
    pub(super) origin: u64,
    #[serde(skip)]
    pub(super) reply: Reply,
    /// The rule at which it goes on if it decides nothing; none: the next one.
    #[serde(skip)]
    pub(super) next: Option<u32>,
    /// The rule at which it goes on if its limit does not let it fit; none: the next one.
    #[serde(skip)]
    pub(super) missed: Option<u32>,
}

fn of_new() -> States {
    states::NEW
}

/// Control bits in a plan: one text.
fn one<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Many<Bits>>, D::Error> {
    Bits::deserialize(deserializer).map(|bits| vec![Many(vec![bits])])
}

impl Rule {
    /// A rule that fits everything.
    pub fn new(action: Action) -> Rule {
        Rule {
            action,
            direction: None,
            ports: Many::default(),
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

    /// Where the rule with this number stands.
    pub(super) fn place(&self, number: usize) -> String {
        match (self.line, &self.file) {
            (0, _) => format!("rules[{number}]"),
            (line, None) => format!("line {line} of the rule file"),
            (line, Some(file)) => format!("line {line} of {file}"),
        }
    }

    /// Whether it does something besides deciding.
    pub(super) fn has_effects(&self) -> bool {
        let changes = !self.gives.is_empty() || !self.edits.is_empty() || self.untracks;
        self.counter || self.log.is_some() || changes || self.may_miss()
    }

    /// Whether it may fit one packet of a connection's opener and not another one, or does something with each.
    pub(super) fn tells_packets_apart(&self, one_port_each: bool) -> bool {
        let by_port = !one_port_each && !self.ports.0.is_empty();
        self.has_effects() || by_port || !self.tcp_flags.is_empty() || !self.fields.is_empty()
    }

    /// Whether packets of a state from a side may come to it.
    pub(super) fn is_for(&self, state: State, side: Side) -> bool {
        self.states & states::bits(state) != 0 && self.direction.is_none_or(|wanted| wanted == Direction::from(side))
    }

    /// Whether it may not fit although all that it asks of packets holds.
    pub(super) fn may_miss(&self) -> bool {
        let takes = |given: &Given| given.value.from == Some(Whose::Connection);
        self.limit.is_some()
            || self.quota.is_some()
            || self.keyed.is_some()
            || !self.asks.is_empty()
            || self.gives.iter().any(takes)
    }

    /// Whether it fits the first packet of all that its conditions fit, with these marks: no limit is reached, and in the sets that packets
    /// change is what the file has put there.
    pub(super) fn fits_first(&self, facts: &Facts<'_>, marks: &Marks) -> bool {
        let by_set = self.keyed.as_ref().is_none_or(|keyed| match &keyed.act {
            Act::Add => true,
            Act::Has { not } => keyed.set.given(&Element::of(&keyed.key, facts)).is_some() != *not,
            Act::Limit(often) => !often.over,
            Act::Count { over, .. } => !over,
        });
        by_set
            && self.limit.is_none_or(|often| !often.over)
            && self.quota.is_none_or(|quota| quota.fits_first())
            && self.asks.iter().all(|asked| marks.fit(asked))
    }

    /// Whether it fits segments with these flags, as far as they go.
    pub(super) fn fits_flags(&self, flags: u8) -> bool {
        self.tcp_flags.iter().all(|bits| bits.any(|bits| bits.fit(flags)))
    }

    /// Where it goes on, which is behind its own number: rules only go on at later ones.
    pub(super) fn behind(&self, number: usize, at: Option<u32>) -> usize {
        at.map_or(number + 1, |at| (at as usize).max(number + 1))
    }

    /// A rule that decides as `inner` does, and fits what both fit; none if that is nothing.
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
            source: both(&self.source, &inner.source, Addresses::meet)?,
            destination: both(&self.destination, &inner.destination, Addresses::meet)?,
            source_ports: both(&self.source_ports, &inner.source_ports, PortRange::meet)?,
            destination_ports: both(&self.destination_ports, &inner.destination_ports, PortRange::meet)?,
            tcp_flags: self.tcp_flags.iter().chain(&inner.tcp_flags).cloned().collect(),
            icmp: both(&self.icmp, &inner.icmp, IcmpKind::meet)?,
            ..inner.clone()
        };
        met.check().is_ok().then_some(met)
    }

    /// Refuses what can fit nothing, as (what is wrong, what to write instead).
    pub(super) fn check(&self) -> Result<(), (String, &'static str)> {
        let (sources, destinations) = (&self.source.0, &self.destination.0);
        let has_family = |list: &[Addresses], v4| list.is_empty() || list.iter().any(|range| range.is_v4() == v4);
        if ![true, false].into_iter().any(|v4| has_family(sources, v4) && has_family(destinations, v4)) {
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
        if let Some(port) = self.ports.0.iter().find(|port| **port >= 64) {
            return Err((format!("port {port} cannot be on a side"), "write ports from 0 to 63"));
        }
        Ok(())
    }

    /// Refuses ports that the plan does not have, and those by none of which something comes in the rule's direction.
    pub(super) fn check_ports(&self, plan: Ports) -> Result<(), (String, &'static str)> {
        if let Some(port) = self.ports.0.iter().find(|port| **port >= plan.count) {
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

    /// The first condition that a packet does not fulfil; none if the rule fits.
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

/// What is in both lists; none if nothing is. An empty list is everything.
pub(super) fn both<T: Clone>(one: &Many<T>, other: &Many<T>, meet: impl Fn(&T, &T) -> Option<T>) -> Option<Many<T>> {
    if one.0.is_empty() || other.0.is_empty() {
        return Some(if one.0.is_empty() { other.clone() } else { one.clone() });
    }
    let met: Vec<T> = one.0.iter().flat_map(|a| other.0.iter().filter_map(|b| meet(a, b))).collect();
    (!met.is_empty()).then_some(Many(met))
}

/// What is in both of two single values.
pub(super) fn equal<T: PartialEq + Copy>(one: &T, other: &T) -> Option<T> {
    (one == other).then_some(*one)
}

/// The error of a rule in the plan.
pub(super) fn refuse(number: usize, (what, instead): (String, &'static str)) -> ConfigError {
    ConfigError::new(&format!("rules[{number}]"), what, instead)
}
