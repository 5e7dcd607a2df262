//! Rule files: one rule a line, in the words of nftables.
//!
//! ```text
//! define admins = { 192.0.2.0/28, 2001:db8::/48 }
//! policy inbound drop
//! inbound ip saddr $admins tcp dport { 22, 8000-8080 } accept   # conditions, then what becomes of the packet
//! icmp type echo-request accept
//! ip saddr != 10.0.0.0/8 outbound reject
//! ```
//!
//! Sets may go over several lines. Rules are for packets that would open a connection, so there is no `ct state`.

use super::config::Config;
use super::rules::{Action, Direction, Rule};
use super::values::{Addresses, Bits, IcmpKind, NameOrNumber, PortRange, Protocol};
use crate::parts::Many;

mod words;

use self::words::{Word, lines};

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}; {instead}")]
pub struct RuleError {
    /// Counted from 1.
    pub line: u32,
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub instead: String,
}

type Parsed<T> = Result<T, (String, String)>;

fn wrong<T>(reason: impl Into<String>, instead: impl Into<String>) -> Parsed<T> {
    Err((reason.into(), instead.into()))
}

/// Names that stand for sets.
type Defined = Vec<(String, Vec<String>)>;

/// Reads a rule file into a configuration: its rules behind those that are there, its policies in their place.
pub fn read(text: &str, config: &mut Config) -> Result<(), RuleError> {
    let mut defined = Defined::new();
    for (line, words) in lines(text) {
        let number = config.rules.len();
        statement(&words, &mut defined, config)
            .and_then(|()| match config.rules.get_mut(number) {
                Some(rule) => {
                    rule.line = line;
                    rule.check().map_err(|(reason, instead)| (reason, instead.to_owned()))
                }
                None => Ok(()),
            })
            .map_err(|(reason, instead)| RuleError { line, reason, instead })?;
    }
    Ok(())
}

fn statement(words: &[Word], defined: &mut Defined, config: &mut Config) -> Parsed<()> {
    let mut rest = Words { words, defined };
    match rest.peek() {
        "define" => {
            rest.word();
            let name = rest.word();
            if rest.word() != "=" {
                return wrong("a definition without `=`", "write define admins = { 192.0.2.0/28 }");
            }
            let (values, is_negated) = rest.set(&name)?;
            if is_negated || !rest.words.is_empty() {
                return wrong("more than a set", "write define admins = { 192.0.2.0/28 }");
            }
            defined.push((name, values));
            Ok(())
        }
        "policy" => {
            rest.word();
            let direction = rest.word();
            let Some(action) = action(&rest.word()) else {
                return wrong("no such policy", "write policy inbound drop, reject or accept");
            };
            match direction.as_str() {
                "outbound" => config.outbound = action,
                "inbound" => config.inbound = action,
                other => return wrong(format!("`{other}` is no direction"), "write outbound or inbound"),
            }
            rest.end()
        }
        _ => {
            config.rules.push(rule(rest)?);
            Ok(())
        }
    }
}

fn action(word: &str) -> Option<Action> {
    match word {
        "accept" => Some(Action::Allow),
        "drop" => Some(Action::Deny),
        "reject" => Some(Action::Reject),
        _ => None,
    }
}

fn rule(mut rest: Words<'_>) -> Parsed<Rule> {
    let mut rule = Rule::new(Action::Deny);
    loop {
        let word = rest.word();
        if let Some(action) = action(&word) {
            rule.action = action;
            if rest.peek() == "comment" {
                rest.word();
                rest.word();
            }
            rest.end()?;
            return Ok(rule);
        }
        match word.as_str() {
            "inbound" => rule.direction = Some(Direction::Inbound),
            "outbound" => rule.direction = Some(Direction::Outbound),
            "iif" => rule.ports = rest.list("a port of the plan", |text| text.parse().ok())?,
            "ip" => ip(&mut rule, &mut rest, true)?,
            "ip6" => ip(&mut rule, &mut rest, false)?,
            "meta" => match rest.word().as_str() {
                "l4proto" => rule.protocol = rest.list("a protocol", protocol)?,
                other => return wrong(format!("nothing is known of `meta {other}`"), "write meta l4proto tcp"),
            },
            "tcp" | "udp" | "sctp" => transport(&mut rule, &mut rest, &word)?,
            "icmp" | "icmpv6" => icmp(&mut rule, &mut rest, &word)?,
            "ct" => {
                let instead = "leave it out: rules are for packets that would open a connection, the others follow it";
                return wrong("`ct` is no condition here", instead);
            }
            "counter" | "log" => {
                return wrong(format!("`{word}` does nothing here"), "leave it out: reports count drops by reason");
            }
            "" => return wrong("nothing is said about what becomes of the packet", "end with accept, drop or reject"),
            other => {
                let instead = "write inbound, outbound, iif, ip, ip6, meta l4proto, tcp, udp, sctp, icmp, icmpv6, \
                               or accept, drop, reject";
                return wrong(format!("`{other}` is no condition"), instead);
            }
        }
    }
}

fn ip(rule: &mut Rule, rest: &mut Words<'_>, v4: bool) -> Parsed<()> {
    let what = rest.word();
    if matches!((what.as_str(), v4), ("protocol", true) | ("nexthdr", false)) {
        rule.protocol = rest.list("a protocol", protocol)?;
        return Ok(());
    }
    let place = match what.as_str() {
        "saddr" => &mut rule.source,
        "daddr" => &mut rule.destination,
        other => return wrong(format!("`{other}` is nothing of an IP header"), "write saddr or daddr"),
    };
    let (texts, is_negated) = rest.set(&what)?;
    let mut ranges = Vec::new();
    for text in texts {
        match text.parse::<Addresses>() {
            Ok(range) if range.is_v4() == v4 => ranges.push(range),
            Ok(range) => return wrong(format!("{range} is of the other family"), "write ip for IPv4 and ip6 for IPv6"),
            Err(_) => {
                let instead = "write 10.0.0.0/8, 2001:db8::/32, 10.0.0.1, 10.0.0.1-10.0.0.9, or { several, of, them }";
                return wrong(format!("`{text}` is no address range"), instead);
            }
        }
    }
    if is_negated {
        ranges = Addresses::except(v4, ranges);
    }
    if ranges.is_empty() {
        return wrong("no address is left", "write != and less than all addresses");
    }
    *place = Many(ranges);
    Ok(())
}

fn transport(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    rule.protocol = Many(protocol(name).into_iter().collect());
    match rest.word().as_str() {
        "sport" => rule.source_ports = rest.ports()?,
        "dport" => rule.destination_ports = rest.ports()?,
        "flags" if name == "tcp" => {
            let mut text = rest.word();
            while matches!(rest.peek(), "," | "/") || text.ends_with([',', '/']) {
                text += &rest.word();
            }
            match text.parse::<Bits>() {
                Ok(bits) => rule.tcp_flags = Some(bits),
                Err(_) => return wrong(format!("`{text}` are no TCP flags"), "write syn,ack or syn / fin,syn,rst,ack"),
            }
        }
        other => {
            let instead = format!("write {name} dport 80, {name} sport 1024-65535, or meta l4proto {name}");
            return wrong(format!("`{other}` is nothing of {name}"), instead);
        }
    }
    Ok(())
}

fn icmp(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    rule.protocol = Many(protocol(name).into_iter().collect());
    if rest.word() != "type" {
        let instead = format!("write {name} type echo-request, or meta l4proto {name}");
        return wrong(format!("only the type of {name} is looked at"), instead);
    }
    let v6 = name == "icmpv6";
    rule.icmp = rest.list("an ICMP type", |text| {
        IcmpKind::named(text, v6).or_else(|| NameOrNumber::Name(text.to_owned()).try_into().ok())
    })?;
    Ok(())
}

fn protocol(text: &str) -> Option<Protocol> {
    NameOrNumber::Name(text.to_owned()).try_into().ok()
}

/// The words of a statement that are still to be read.
struct Words<'a> {
    words: &'a [Word],
    defined: &'a [(String, Vec<String>)],
}

impl Words<'_> {
    fn peek(&self) -> &str {
        self.words.first().map_or("", |Word(text)| text)
    }

    /// The next word; empty at the end.
    fn word(&mut self) -> String {
        let word = self.peek().to_owned();
        self.words = self.words.get(1..).unwrap_or_default();
        word
    }

    fn end(&self) -> Parsed<()> {
        match self.peek() {
            "" => Ok(()),
            more => wrong(format!("`{more}` comes behind the end of the rule"), "remove it, or begin a new line"),
        }
    }

    /// A value, a set in braces or one that is defined; and whether `!=` stands before it.
    fn set(&mut self, of: &str) -> Parsed<(Vec<String>, bool)> {
        let is_negated = self.peek() == "!=";
        if is_negated || self.peek() == "==" {
            self.word();
        }
        let word = self.word();
        if word.is_empty() {
            return wrong(format!("nothing stands behind `{of}`"), "write a value or { a, set }");
        }
        if let Some(name) = word.strip_prefix('$') {
            return match self.defined.iter().rev().find(|(known, _)| known == name) {
                Some((_, values)) => Ok((values.clone(), is_negated)),
                None => wrong(format!("`{name}` is not defined"), format!("write define {name} = {{ … }} before")),
            };
        }
        if word != "{" {
            return Ok((vec![word], is_negated));
        }
        let mut values = Vec::new();
        loop {
            match self.word().as_str() {
                "}" => break,
                "," => {}
                "" => return wrong("a set without its end", "write } behind it"),
                value => values.push(value.to_owned()),
            }
        }
        if values.is_empty() {
            return wrong("a set with nothing in it", "write one value or more");
        }
        Ok((values, is_negated))
    }

    /// A set of values of one kind.
    fn list<T>(&mut self, what: &str, parse: impl Fn(&str) -> Option<T>) -> Parsed<Many<T>> {
        let (texts, is_negated) = self.set(what)?;
        if is_negated {
            return wrong("`!=` is for addresses and ports only", "name what shall fit");
        }
        let mut values = Vec::new();
        for text in texts {
            match parse(&text) {
                Some(value) => values.push(value),
                None => return wrong(format!("`{text}` is not {what}"), format!("write {what}")),
            }
        }
        Ok(Many(values))
    }

    /// A set of ports, or what it leaves of all of them.
    fn ports(&mut self) -> Parsed<Many<PortRange>> {
        let is_negated = self.peek() == "!=";
        if is_negated {
            self.word();
        }
        let Many(mut ranges) = self.list("a port or range of ports such as 80 or 6000-6063", |text| {
            NameOrNumber::Name(text.to_owned()).try_into().ok()
        })?;
        if is_negated {
            ranges = PortRange::except(ranges);
        }
        if ranges.is_empty() { wrong("no port is left", "write != and less than all ports") } else { Ok(Many(ranges)) }
    }
}
