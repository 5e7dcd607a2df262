//! Comparisons of header bytes, as in pcap-filter(7): `tcp[13] & 2 != 0`, `icmp[icmptype] == icmp-echo`.
//!
//! ```text
//! comparison = value ( = | == | != | < | <= | > | >= ) value       value   = masked { "|" masked }      masked = operand { "&" operand }
//! operand    = HEADER "[" OFFSET [ ":" 1|2|4 ] "]" | NUMBER | NAME | "(" value ")"
//! ```
//! A packet without that header or without these bytes does not match, whatever the comparison.

use braid_runtime::nf::packet::headers::ether_type;
use braid_runtime::nf::packet::protocol;

use super::{Expression, FilterError, Parser, error};
use crate::facts::Facts;

/// How far a comparison reaches into a header, in bytes.
const START_MAX: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    left: Value,
    relation: Relation,
    right: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Number(u32),
    Bytes(Layer, usize, usize),
    And(Box<Value>, Box<Value>),
    Or(Box<Value>, Box<Value>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layer {
    Ethernet,
    /// The IP header of packets of this Ethernet type.
    Ip(u16),
    /// What follows it, of this protocol.
    Transport(u8),
}

impl Layer {
    fn named(word: &str) -> Option<Layer> {
        Some(match word {
            "ether" => Layer::Ethernet,
            "ip" => Layer::Ip(ether_type::IPV4),
            "ip6" => Layer::Ip(ether_type::IPV6),
            "tcp" => Layer::Transport(protocol::TCP),
            "udp" => Layer::Transport(protocol::UDP),
            "icmp" => Layer::Transport(protocol::ICMP),
            "icmp6" => Layer::Transport(protocol::ICMPV6),
            "sctp" => Layer::Transport(protocol::SCTP),
            _ => return None,
        })
    }

    fn start<'a>(self, facts: &Facts<'a>) -> Option<&'a [u8]> {
        let [ether, ip, transport] = facts.starts;
        match self {
            Layer::Ethernet => Some(ether),
            Layer::Ip(kind) => (facts.ether_type == Some(kind)).then_some(ip),
            Layer::Transport(number) => (facts.protocol == Some(number)).then_some(transport),
        }
    }
}

/// Names of offsets and of values, as in pcap-filter(7).
const NAMES: [(&str, u32); 34] = [
    ("tcpflags", 13),
    ("icmptype", 0),
    ("icmpcode", 1),
    ("icmp6type", 0),
    ("icmp6code", 1),
    ("tcp-fin", 0x01),
    ("tcp-syn", 0x02),
    ("tcp-rst", 0x04),
    ("tcp-push", 0x08),
    ("tcp-ack", 0x10),
    ("tcp-urg", 0x20),
    ("tcp-ece", 0x40),
    ("tcp-cwr", 0x80),
    ("icmp-echoreply", 0),
    ("icmp-unreach", 3),
    ("icmp-sourcequench", 4),
    ("icmp-redirect", 5),
    ("icmp-echo", 8),
    ("icmp-routeradvert", 9),
    ("icmp-routersolicit", 10),
    ("icmp-timxceed", 11),
    ("icmp-paramprob", 12),
    ("icmp-tstamp", 13),
    ("icmp-tstampreply", 14),
    ("icmp6-destinationunreach", 1),
    ("icmp6-packettoobig", 2),
    ("icmp6-timeexceeded", 3),
    ("icmp6-parameterproblem", 4),
    ("icmp6-echo", 128),
    ("icmp6-echoreply", 129),
    ("icmp6-routersolicit", 133),
    ("icmp6-routeradvert", 134),
    ("icmp6-neighborsolicit", 135),
    ("icmp6-neighboradvert", 136),
];

impl Comparison {
    pub(super) fn matches(&self, facts: &Facts<'_>) -> bool {
        let Some((left, right)) = self.left.of(facts).zip(self.right.of(facts)) else { return false };
        match self.relation {
            Relation::Equal => left == right,
            Relation::Different => left != right,
            Relation::Less => left < right,
            Relation::LessOrEqual => left <= right,
            Relation::Greater => left > right,
            Relation::GreaterOrEqual => left >= right,
        }
    }
}

impl Value {
    fn of(&self, facts: &Facts<'_>) -> Option<u32> {
        Some(match self {
            Value::Number(number) => *number,
            Value::Bytes(layer, at, len) => {
                let bytes = layer.start(facts)?.get(*at..at + len)?;
                bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
            }
            Value::And(one, other) => one.of(facts)? & other.of(facts)?,
            Value::Or(one, other) => one.of(facts)? | other.of(facts)?,
        })
    }
}

fn relation(word: &str) -> Option<Relation> {
    Some(match word {
        "=" | "==" => Relation::Equal,
        "!=" => Relation::Different,
        "<" => Relation::Less,
        "<=" => Relation::LessOrEqual,
        ">" => Relation::Greater,
        ">=" => Relation::GreaterOrEqual,
        _ => return None,
    })
}

fn number(text: &str) -> Option<u32> {
    let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    let plain = || match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    named.or_else(plain)
}

const OPERAND: &str = "bytes of a header, as tcp[13] or ip[6:2], a number, or a name, as tcp-syn";

impl Parser<'_> {
    /// Whether a comparison begins here: with bytes of a header, or with a value in parentheses.
    pub(super) fn is_at_comparison(&self) -> bool {
        let word = |at: usize| self.words.get(at).map(|word| word.text);
        if word(self.at) != Some("(") {
            return word(self.at + 1) == Some("[") && word(self.at).is_some_and(|word| Layer::named(word).is_some());
        }
        let mut depth = 0;
        for at in self.at..self.words.len() {
            match word(at) {
                Some("(") => depth += 1,
                Some(")") if depth == 1 => {
                    return word(at + 1).is_some_and(|next| relation(next).is_some() || matches!(next, "&" | "|"));
                }
                Some(")") => depth -= 1,
                _ => {}
            }
        }
        false
    }

    pub(super) fn comparison(&mut self) -> Result<Expression, FilterError> {
        let left = self.bits()?;
        let word = self.value("=, !=, <, <=, > or >=")?;
        let relation = relation(word.text).ok_or_else(|| match word.text {
            "+" | "-" | "*" | "/" | "%" | "^" | "<<" | ">>" => error(
                format!(
                    "`{}` at character {} of the filter: bytes are not calculated with here",
                    word.text, word.column
                ),
                "compare bytes, or their bits: & and |",
            ),
            _ => self.unexpected(word, "&, |, =, !=, <, <=, > or >="),
        })?;
        let right = self.bits()?;
        Ok(Expression::Compared(Box::new(Comparison { left, relation, right })))
    }

    fn bits(&mut self) -> Result<Value, FilterError> {
        let mut value = self.masked()?;
        while self.take(&["|"]) {
            value = Value::Or(Box::new(value), Box::new(self.masked()?));
        }
        Ok(value)
    }

    fn masked(&mut self) -> Result<Value, FilterError> {
        let mut value = self.operand()?;
        while self.take(&["&"]) {
            value = Value::And(Box::new(value), Box::new(self.operand()?));
        }
        Ok(value)
    }

    fn operand(&mut self) -> Result<Value, FilterError> {
        let word = self.value(OPERAND)?;
        if word.text == "(" {
            self.deeper()?;
            let inner = self.bits()?;
            let close = self.value("`)`")?;
            if close.text != ")" {
                return Err(self.unexpected(close, "&, | or `)`"));
            }
            self.depth -= 1;
            return Ok(inner);
        }
        if let Some(layer) = Layer::named(word.text).filter(|_| self.take(&["["])) {
            let place = self.value("the offset of a byte, as in tcp[13]")?;
            let (at, len) = place.text.split_once(':').map_or((place.text, "1"), |(at, len)| (at, len));
            let len = len.parse().ok().filter(|len| matches!(len, 1 | 2 | 4));
            let at = number(at).map(|at| at as usize);
            let Some((at, len)) = at.zip(len).filter(|(at, len)| at + len <= START_MAX) else {
                let wanted = format!(
                    "an offset within the first {START_MAX} bytes of the header, as 13, or with 1, 2 or 4 bytes, as 6:2"
                );
                return Err(self.unexpected(place, &wanted));
            };
            let close = self.value("`]`")?;
            if close.text != "]" {
                return Err(self.unexpected(close, "`]`"));
            }
            return Ok(Value::Bytes(layer, at, len));
        }
        number(word.text).map(Value::Number).ok_or_else(|| self.unexpected(word, OPERAND))
    }
}
