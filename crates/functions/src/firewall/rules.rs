//! Rules as they are written: what each says, and what it says of a packet. The first that fits decides; the classifier finds
//! that one fast, and here is what it means.

use braid_nf::Port;
use braid_nf::packet::Packet;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use super::values::{Addresses, Bits, IcmpKind, PortRange, Protocol, number};
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
    /// Control bits of TCP.
    #[serde(default)]
    pub tcp_flags: Option<Bits>,
    /// Types and codes of ICMP or ICMPv6.
    #[serde(default)]
    pub icmp: Many<IcmpKind>,
    /// Whether the report says how often it has decided.
    #[serde(default)]
    pub counter: bool,
    /// What it is for, beside its counter.
    #[serde(default)]
    pub comment: String,
    /// The line of the rule file in which it stands; 0: in the plan.
    #[serde(skip)]
    pub line: u32,
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
            tcp_flags: None,
            icmp: Many::default(),
            counter: false,
            comment: String::new(),
            line: 0,
        }
    }

    /// Where the rule with this number stands.
    pub(super) fn place(&self, number: usize) -> String {
        match self.line {
            0 => format!("rules[{number}]"),
            line => format!("line {line} of the rule file"),
        }
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
        if self.tcp_flags.is_some() && !only(|number| number == protocol::TCP) {
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

    /// The first condition that a packet does not fulfil; none if the rule fits.
    pub(super) fn mismatch(&self, facts: &Facts) -> Option<&'static str> {
        let conditions = [
            ("direction", self.direction.is_none_or(|wanted| wanted == Direction::from(facts.side))),
            ("port", self.ports.any(|port| *port == facts.port)),
            ("protocol", self.protocol.any(|wanted| wanted.0 == facts.protocol)),
            ("source", self.source.any(|range| range.contains(facts.source))),
            ("destination", self.destination.any(|range| range.contains(facts.destination))),
            ("source port", self.source_ports.any(|range| range.contains(facts.source_port))),
            ("destination port", self.destination_ports.any(|range| range.contains(facts.destination_port))),
            ("TCP flags", self.tcp_flags.is_none_or(|bits| bits.fit(facts.flags))),
            ("ICMP type", self.icmp.any(|kind| kind.contains(facts.destination_port))),
        ];
        conditions.into_iter().find(|(_, fulfilled)| !fulfilled).map(|(name, _)| name)
    }
}

/// What rules look at of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) source_port: u16,
    /// Of ICMP the type, times 256, and the code.
    pub(super) destination_port: u16,
    pub(super) protocol: u8,
    pub(super) flags: u8,
    pub(super) port: Port,
    pub(super) side: Side,
}

impl Facts {
    pub(super) fn of(packet: &Packet<'_>, side: Side) -> Facts {
        let (source_port, destination_port) = match packet.protocol() {
            protocol::ICMP | protocol::ICMPV6 => {
                let head = packet.l4_offset().and_then(|at| packet.bytes().get(at..)?.first_chunk::<2>());
                (0, head.map_or(0, |head| u16::from_be_bytes(*head)))
            }
            _ => packet.ports().unwrap_or_default(),
        };
        Facts {
            source: number(packet.src_ip()),
            destination: number(packet.dst_ip()),
            source_port,
            destination_port,
            protocol: packet.protocol(),
            flags: packet.tcp_flags().unwrap_or(0),
            port: packet.port(),
            side,
        }
    }
}

/// The error of a rule in the plan.
pub(super) fn refuse(number: usize, (what, instead): (String, &'static str)) -> ConfigError {
    ConfigError::new(&format!("rules[{number}]"), what, instead)
}
