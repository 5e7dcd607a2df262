//! The rule list: first match decides.

use braid_nf::packet::Packet;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use crate::config::ConfigError;
use crate::parts::{Prefix, Side};

/// What becomes of a packet that would open a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// It may.
    Allow,
    /// It is dropped in silence.
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

/// One rule. What is not given matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// What it decides.
    pub action: Action,
    /// Which direction it is for.
    #[serde(default)]
    pub direction: Option<Direction>,
    /// Which protocol.
    #[serde(default)]
    pub protocol: Option<Protocol>,
    /// From whom.
    #[serde(default)]
    pub source: Option<Prefix>,
    /// To whom.
    #[serde(default)]
    pub destination: Option<Prefix>,
    /// Source ports.
    #[serde(default)]
    pub source_ports: Option<PortRange>,
    /// Destination ports.
    #[serde(default)]
    pub destination_ports: Option<PortRange>,
}

impl Rule {
    /// Refuses what can match nothing.
    pub(super) fn check(&self, number: usize) -> Result<(), ConfigError> {
        let wrong = |what: String, instead| Err(ConfigError::new(&format!("rules[{number}]"), what, instead));
        if let (Some(source), Some(destination)) = (self.source, self.destination)
            && source.is_v4() != destination.is_v4()
        {
            let what = format!("{source} and {destination} are of two families, which no packet is");
            return wrong(what, "write two rules");
        }
        let has_ports = |Protocol(number)| protocol::has_ports(number);
        if (self.source_ports.is_some() || self.destination_ports.is_some()) && !self.protocol.is_some_and(has_ports) {
            return wrong("ports without a protocol that has them".into(), "add protocol = \"tcp\" or \"udp\"");
        }
        Ok(())
    }

    pub(super) fn matches(&self, packet: &Packet<'_>, side: Side) -> bool {
        let (source, destination) = packet.ports().unwrap_or_default();
        let direction = if side == Side::Inside { Direction::Outbound } else { Direction::Inbound };
        self.direction.is_none_or(|wanted| wanted == direction)
            && self.protocol.is_none_or(|wanted| wanted.0 == packet.protocol())
            && self.source.is_none_or(|range| range.contains(packet.src_ip()))
            && self.destination.is_none_or(|range| range.contains(packet.dst_ip()))
            && self.source_ports.is_none_or(|range| range.contains(source))
            && self.destination_ports.is_none_or(|range| range.contains(destination))
    }
}

/// A protocol, by its name or its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NameOrNumber")]
pub struct Protocol(pub u8);

/// Ports from one to another, both included: `"80"`, `80` or `"6000-6063"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "NameOrNumber")]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    fn contains(&self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NameOrNumber {
    Number(u16),
    Name(String),
}

impl TryFrom<NameOrNumber> for Protocol {
    type Error = String;

    fn try_from(written: NameOrNumber) -> Result<Protocol, String> {
        let wrong = |text: &str| format!("`{text}` is no protocol, expected a number up to 255 or a name such as tcp");
        match written {
            NameOrNumber::Number(number) => u8::try_from(number).map(Protocol).map_err(|_| wrong(&number.to_string())),
            NameOrNumber::Name(name) => {
                let known = (0..=255).find(|number| protocol::name(*number) == Some(name.as_str()));
                known.map(Protocol).ok_or_else(|| wrong(&name))
            }
        }
    }
}

impl TryFrom<NameOrNumber> for PortRange {
    type Error = String;

    fn try_from(written: NameOrNumber) -> Result<PortRange, String> {
        let text = match written {
            NameOrNumber::Number(port) => return Ok(PortRange { first: port, last: port }),
            NameOrNumber::Name(text) => text,
        };
        let (first, last) = text.split_once('-').unwrap_or((&text, &text));
        match (first.trim().parse(), last.trim().parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(PortRange { first, last }),
            _ => Err(format!("`{text}` is no range of ports, expected 80 or \"6000-6063\"")),
        }
    }
}
