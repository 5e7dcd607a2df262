//! Selects packets or packet sets with a small subset of the capture filter language (pcap-filter(7)).
//!
//! ```text
//! expression = term { "or" term }         term = factor { "and" factor }      factor = "not" factor | "(" expression ")" | primitive
//! primitive  = [WAY] host ADDRESS | [WAY] net ADDRESS/BITS | [WAY] port N|NAME | [WAY] portrange A-B     WAY = src | dst | src or dst | src and dst
//!            | ether [src|dst] host MAC | ip | ip6 | arp | tcp | udp | icmp | icmp6 | sctp | ip proto N | vlan [N]
//!            | less N | greater N | ADDRESS | ADDRESS/BITS | comparison (of header bytes: tcp[13] & 2 != 0)
//! ```
//! `&&`, `||` and `!` are synonyms of the words. A protocol directly before `host`, `port`, … means both conditions: `tcp port 80`.
//! A value alone means what the one
//! before it does: `tcp dst port 80 or 443`.
//! A packet or key without a field does not match a condition on it: the key of a per-address set has no port.

use braid_runtime::nf::packet::headers::ether_type;
use braid_runtime::nf::packet::{IpAddress, MacAddress, protocol, services};

use self::compare::Comparison;
use crate::facts::Facts;

mod compare;

/// Maximum nesting depth of parentheses and `not`.
const DEPTH_MAX: usize = 64;
/// Maximum length of a filter in bytes.
const TEXT_MAX: usize = 4096;

/// Why a text is not a valid filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct FilterError {
    /// What is wrong, with the word and its position.
    pub what: String,
    /// What to write instead.
    pub help: String,
}

/// A parsed filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter(Expression);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    All,
    Any(Vec<Expression>),
    Each(Vec<Expression>),
    Not(Box<Expression>),
    Host(Way, IpAddress, u8),
    Mac(Way, MacAddress),
    Ports(Way, u16, u16),
    Protocol(u8),
    Type(u16),
    Vlan(Option<u16>),
    Shorter(usize),
    Longer(usize),
    Compared(Box<Comparison>),
}

/// Which end of a packet's path a condition refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Either,
    Source,
    Destination,
    Both,
}

impl Way {
    fn any<T: Copy>(self, ends: [Option<T>; 2], either_way: bool, is_it: impl Fn(T) -> bool) -> bool {
        let [source, destination] = ends.map(|end| end.is_some_and(&is_it));
        match self {
            Way::Source if !either_way => source,
            Way::Destination if !either_way => destination,
            Way::Both => source && destination,
            _ => source || destination,
        }
    }
}

impl Filter {
    /// Parses a filter; an empty text matches everything.
    pub fn parse(text: &str) -> Result<Filter, FilterError> {
        if text.len() > TEXT_MAX {
            return Err(error(format!("a filter of {} bytes", text.len()), format!("{TEXT_MAX} are the most")));
        }
        let words = words(text);
        let mut parser = Parser { words: &words, at: 0, depth: 0, last: None };
        if words.is_empty() {
            return Ok(Filter(Expression::All));
        }
        let expression = parser.expression()?;
        match parser.next() {
            None => Ok(Filter(expression)),
            Some(word) => Err(parser.unexpected(word, "`and`, `or`, or the end")),
        }
    }

    /// Whether a packet or key with these facts matches.
    pub fn matches(&self, facts: &Facts<'_>) -> bool {
        self.0.matches(facts)
    }
}

impl std::str::FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Filter, FilterError> {
        Filter::parse(text)
    }
}

impl Expression {
    fn matches(&self, facts: &Facts<'_>) -> bool {
        let either = facts.either_way;
        match self {
            Expression::All => true,
            Expression::Any(some) => some.iter().any(|one| one.matches(facts)),
            Expression::Each(all) => all.iter().all(|one| one.matches(facts)),
            Expression::Not(other) => !other.matches(facts),
            Expression::Host(way, address, bits) => {
                way.any(facts.ips, either, |ip| ip.is_v4() == address.is_v4() && ip.prefix(*bits) == *address)
            }
            Expression::Mac(way, address) => way.any(facts.macs, either, |mac| mac == *address),
            Expression::Ports(way, from, to) => way.any(facts.ports, either, |port| (*from..=*to).contains(&port)),
            Expression::Protocol(number) => facts.protocol == Some(*number),
            Expression::Type(kind) => facts.has_type(*kind),
            Expression::Vlan(id) => id.map_or(!facts.vlans.is_empty(), |id| facts.vlans.contains(&id)),
            Expression::Shorter(len) => facts.len.is_some_and(|own| own <= *len),
            Expression::Longer(len) => facts.len.is_some_and(|own| own >= *len),
            Expression::Compared(comparison) => comparison.matches(facts),
        }
    }
}

impl Facts<'_> {
    /// Whether the Ethernet type is `kind`. A key has no Ethernet type, but its addresses imply one.
    fn has_type(&self, kind: u16) -> bool {
        let v4 = self.ips.iter().flatten().next().map(IpAddress::is_v4);
        match (self.ether_type, kind) {
            (Some(own), kind) => own == kind,
            (None, ether_type::IPV4) => v4 == Some(true),
            (None, ether_type::IPV6) => v4 == Some(false),
            (None, _) => false,
        }
    }
}

/// A word and the column of its first character, counted from 1.
struct Word<'a> {
    text: &'a str,
    column: usize,
}

/// Characters that are words of their own.
const ENDS_WORD: &str = "()[]!&|=<>";

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let column = text[..text.len() - rest.len()].chars().count() + 1;
        let len = match c {
            c if c.is_whitespace() => {
                rest = &rest[c.len_utf8()..];
                continue;
            }
            '!' | '=' if rest[1..].starts_with('=') => 2,
            '<' | '>' if rest[1..].starts_with('=') || rest[1..].starts_with(c) => 2,
            '&' | '|' if rest[1..].starts_with(c) => 2,
            c if ENDS_WORD.contains(c) => 1,
            _ => {
                rest.find(|c: char| c.is_whitespace() || ENDS_WORD.contains(c)).unwrap_or(rest.len()).max(c.len_utf8())
            }
        };
        words.push(Word { text: &rest[..len], column });
        rest = &rest[len..];
    }
    words
}

struct Parser<'a> {
    words: &'a [Word<'a>],
    at: usize,
    depth: usize,
    /// What a value alone means.
    last: Option<Qualifiers>,
}

/// The qualifiers before a value: `tcp src port`.
#[derive(Clone, Debug)]
struct Qualifiers {
    protocol: Option<Expression>,
    way: Way,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Address,
    Port,
    PortRange,
}

const QUALIFIERS: [&str; 8] = ["src", "dst", "host", "net", "port", "portrange", "less", "greater"];

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|word| word.text)
    }

    fn next(&mut self) -> Option<&'a Word<'a>> {
        let word = self.words.get(self.at);
        self.at += 1;
        word
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| wanted.contains(&word));
        self.at += usize::from(found);
        found
    }

    fn unexpected(&self, word: &Word<'_>, wanted: &str) -> FilterError {
        error(
            format!("`{}` at character {} of the filter means nothing there", word.text, word.column),
            format!("write {wanted}"),
        )
    }

    fn value(&mut self, wanted: &str) -> Result<&'a Word<'a>, FilterError> {
        self.next().ok_or_else(|| error("the filter ends too early", format!("write {wanted}")))
    }

    fn deeper(&mut self) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(error("the filter is nested too deeply", format!("{DEPTH_MAX} levels are the most")));
        }
        Ok(())
    }

    fn expression(&mut self) -> Result<Expression, FilterError> {
        let mut terms = vec![self.term()?];
        while self.take(&["or", "||"]) {
            terms.push(self.term()?);
        }
        Ok(if terms.len() == 1 { terms.remove(0) } else { Expression::Any(terms) })
    }

    fn term(&mut self) -> Result<Expression, FilterError> {
        let mut factors = vec![self.factor()?];
        while self.take(&["and", "&&"]) {
            factors.push(self.factor()?);
        }
        Ok(if factors.len() == 1 { factors.remove(0) } else { Expression::Each(factors) })
    }

    fn factor(&mut self) -> Result<Expression, FilterError> {
        self.deeper()?;
        let factor = if self.take(&["not", "!"]) {
            Expression::Not(Box::new(self.factor()?))
        } else if self.is_at_comparison() {
            self.comparison()?
        } else if self.take(&["("]) {
            let inner = self.expression()?;
            let close = self.value("`)`")?;
            if close.text != ")" {
                return Err(self.unexpected(close, "`and`, `or` or `)`"));
            }
            inner
        } else {
            self.primitive()?
        };
        self.depth -= 1;
        Ok(factor)
    }

    fn primitive(&mut self) -> Result<Expression, FilterError> {
        let word = self.value("a host, net, port or protocol, as in `host 10.0.0.1 and tcp port 80`")?;
        let found = match word.text {
            "src" | "dst" | "host" | "net" | "port" | "portrange" => {
                self.at -= 1;
                return self.end();
            }
            "ether" => return self.ether(),
            "less" => return Ok(Expression::Shorter(self.number("a number of bytes", usize::MAX)?)),
            "greater" => return Ok(Expression::Longer(self.number("a number of bytes", usize::MAX)?)),
            "vlan" => {
                let has_id = self.peek().is_some_and(|word| word.starts_with(|c: char| c.is_ascii_digit()));
                return Ok(Expression::Vlan(if has_id { Some(self.number("0 to 4095", 4095)? as u16) } else { None }));
            }
            "ip" if self.take(&["proto"]) => Expression::Protocol(self.number("a protocol number", 255)? as u8),
            "ip" => Expression::Type(ether_type::IPV4),
            "ip6" => Expression::Type(ether_type::IPV6),
            "arp" => Expression::Type(ether_type::ARP),
            "tcp" => Expression::Protocol(protocol::TCP),
            "udp" => Expression::Protocol(protocol::UDP),
            "icmp" => Expression::Protocol(protocol::ICMP),
            "icmp6" => Expression::Protocol(protocol::ICMPV6),
            "sctp" => Expression::Protocol(protocol::SCTP),
            _ => {
                self.at -= 1;
                return self.alone();
            }
        };
        if self.peek().is_some_and(|next| QUALIFIERS.contains(&next)) {
            self.deeper()?;
            let rest = self.primitive()?;
            self.depth -= 1;
            if let Some(last) = &mut self.last {
                last.protocol = Some(found.clone());
            }
            return Ok(Expression::Each(vec![found, rest]));
        }
        Ok(found)
    }

    /// Parses what begins with `src`, `dst`, `host`, `net`, `port` or `portrange`.
    fn end(&mut self) -> Result<Expression, FilterError> {
        let way = self.way();
        let kind = match self.peek() {
            Some("host" | "net") => Kind::Address,
            Some("port") => Kind::Port,
            Some("portrange") => Kind::PortRange,
            Some(text) if range(text).is_some() => Kind::Address,
            _ => {
                let word = self.value("host, net, port or an address")?;
                return Err(self.unexpected(word, "host, net, port or an address"));
            }
        };
        self.take(&["host", "net", "port", "portrange"]);
        self.last = Some(Qualifiers { protocol: None, way, kind });
        self.valued(way, kind)
    }

    /// Parses `src`, `dst`, `src or dst` or `src and dst`, if one of them is next.
    fn way(&mut self) -> Way {
        let (source, destination) = (self.take(&["src"]), self.take(&["dst"]));
        let (one, other) = if source { (Way::Source, "dst") } else { (Way::Destination, "src") };
        if !source && !destination {
            return Way::Either;
        }
        let joined = |at: usize| self.words.get(at).map(|word| word.text);
        let way = match (joined(self.at), joined(self.at + 1)) {
            (Some("or" | "||"), Some(word)) if word == other => Way::Either,
            (Some("and" | "&&"), Some(word)) if word == other => Way::Both,
            _ => return one,
        };
        // `src host A and dst port B` are two primitives.
        let is_one = joined(self.at + 2).is_some_and(|next| !["or", "and", "||", "&&", ")"].contains(&next));
        if !is_one {
            return one;
        }
        self.at += 2;
        way
    }

    fn valued(&mut self, way: Way, kind: Kind) -> Result<Expression, FilterError> {
        match kind {
            Kind::Address => {
                let value = self.value("an address, as 10.0.0.1, or with `net` 10.0.0.0/8")?;
                let (address, bits) = range(value.text)
                    .ok_or_else(|| self.unexpected(value, "an address, as 10.0.0.1 or 2001:db8::/32"))?;
                Ok(Expression::Host(way, address, bits))
            }
            Kind::Port => {
                let value = self.value(A_PORT)?;
                let port = value.text.parse().ok().or_else(|| services::port(value.text));
                let port = port.ok_or_else(|| self.unexpected(value, A_PORT))?;
                Ok(Expression::Ports(way, port, port))
            }
            Kind::PortRange => {
                let value = self.value("two ports, as 8000-8080")?;
                let ports = value.text.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                let (one, other): (u16, u16) =
                    ports.ok_or_else(|| self.unexpected(value, "two ports, as 8000-8080"))?;
                Ok(Expression::Ports(way, one.min(other), one.max(other)))
            }
        }
    }

    /// Parses a value without a word that says what it is: the one before it says so, else it is an address.
    fn alone(&mut self) -> Result<Expression, FilterError> {
        let word = self.value(KNOWN)?;
        self.at -= 1;
        let is_address = range(word.text).is_some();
        let is_port = word.text.parse::<u16>().is_ok() || services::port(word.text).is_some();
        let is_range = word.text.starts_with(|c: char| c.is_ascii_digit()) && word.text.contains('-');
        let fits = |kind: Kind| match kind {
            Kind::Address => is_address,
            Kind::Port => is_port,
            Kind::PortRange => is_range,
        };
        match self.last.clone().filter(|last| fits(last.kind)) {
            Some(Qualifiers { protocol, way, kind }) => {
                let found = self.valued(way, kind)?;
                Ok(protocol.map_or(found.clone(), |protocol| Expression::Each(vec![protocol, found])))
            }
            None if is_address => self.valued(Way::Either, Kind::Address),
            None => Err(self.unexpected(word, KNOWN)),
        }
    }

    fn ether(&mut self) -> Result<Expression, FilterError> {
        let way = match () {
            () if self.take(&["src"]) => Way::Source,
            () if self.take(&["dst"]) => Way::Destination,
            () => Way::Either,
        };
        self.take(&["host"]);
        let value = self.value("a MAC address, as 02:00:00:00:00:01")?;
        let address = value.text.parse();
        let address = address.map_err(|_| self.unexpected(value, "a MAC address, as 02:00:00:00:00:01"))?;
        Ok(Expression::Mac(way, address))
    }

    fn number(&mut self, wanted: &str, most: usize) -> Result<usize, FilterError> {
        let word = self.value(wanted)?;
        word.text.parse().ok().filter(|number| *number <= most).ok_or_else(|| self.unexpected(word, wanted))
    }
}

const KNOWN: &str = "a primitive: host, net, port, portrange, tcp, udp, icmp, icmp6, sctp, ip, ip6, arp, vlan, ether host, \
less, greater, bytes as in tcp[13] & 2 != 0, or an address";

const A_PORT: &str = "a port from 0 to 65535, or the name of a common service, as http";

/// Parses an address or a prefix, into its first address and the number of significant bits.
fn range(text: &str) -> Option<(IpAddress, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u8>().ok()?)),
        None => (text, None),
    };
    let address: IpAddress = address.parse().ok()?;
    let most = if address.is_v4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then(|| (address.prefix(bits), bits))
}

fn error(what: impl Into<String>, help: impl Into<String>) -> FilterError {
    FilterError { what: what.into(), help: help.into() }
}

#[cfg(test)]
mod tests;
