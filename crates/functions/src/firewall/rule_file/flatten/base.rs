//! Base chains, to which packets come by a hook: `type filter hook forward priority filter; policy drop;`.

use crate::firewall::rule_file::file::syntax::replace;
use crate::firewall::rule_file::file::tokens::{Kind, Token};
use crate::firewall::rule_file::reader::{Sets, Words};
use crate::firewall::rule_file::{Parsed, wrong};

#[derive(Debug)]
pub(in crate::firewall::rule_file) struct Base {
    /// `filter`, `nat` or `route`.
    pub(in crate::firewall::rule_file) kind: String,
    pub(in crate::firewall::rule_file) hook: String,
    /// Chains with lower priorities are evaluated first.
    pub(in crate::firewall::rule_file) priority: i32,
    /// Whether packets that the chain does not decide about are accepted, and so come to the next chain.
    pub(in crate::firewall::rule_file) accepts: bool,
    /// The interfaces by which its packets arrive or leave; empty for all.
    pub(in crate::firewall::rule_file) devices: Vec<Token>,
}

impl Base {
    /// The place of forward, input and output.
    pub(in crate::firewall::rule_file) const ON_ITS_WAY: u8 = 2;

    /// The chain's place on the way of a packet: before, at or after the routing decision.
    pub(in crate::firewall::rule_file) fn place(&self) -> u8 {
        match self.hook.as_str() {
            "ingress" => 0,
            "prerouting" => 1,
            "postrouting" => 3,
            "egress" => 4,
            _ => Base::ON_ITS_WAY,
        }
    }
}

/// Named priorities in tables of family bridge (`include/uapi/linux/netfilter_bridge.h`).
const OF_BRIDGES: [(&str, i32); 4] = [("dstnat", -300), ("filter", -200), ("out", 100), ("srcnat", 300)];
/// Named priorities in other tables (`include/uapi/linux/netfilter_ipv4.h`).
const PRIORITIES: [(&str, i32); 6] =
    [("raw", -300), ("mangle", -150), ("dstnat", -100), ("filter", 0), ("security", 50), ("srcnat", 100)];

/// Reads `type filter hook forward priority filter; policy drop`, up to the first `;`.
pub(in crate::firewall::rule_file) fn base(rest: &mut Words<'_>, family: &str, defined: &Sets) -> Parsed<Base> {
    rest.word();
    let form = "write type filter hook forward priority 0; policy drop;";
    let kind = rest.word();
    if !rest.take("hook") {
        rest.word();
        return wrong("a chain of a type without its hook", form);
    }
    let hook = rest.word();
    let devices = devices(rest, defined)?;
    if !rest.take("priority") {
        rest.word();
        return wrong("a chain without its priority", form);
    }
    let mut priority = 0;
    let mut sign = 1;
    let names: &[(&str, i32)] = if family == "bridge" { &OF_BRIDGES } else { &PRIORITIES };
    while !matches!(rest.peek(), "" | "\n" | ";" | "}" | "policy") {
        for word in said(rest, defined)?.split_whitespace() {
            priority += match (word, word.parse::<i32>()) {
                ("-", _) => (sign = -1, 0).1,
                ("+", _) => 0,
                (_, Ok(number)) => sign * number,
                (name, _) => match names.iter().find(|(known, _)| *known == name) {
                    Some((_, number)) => *number,
                    None => return wrong(format!("`{name}` is no priority"), "write filter, filter - 10 or a number"),
                },
            };
        }
    }
    Ok(Base { kind, hook, priority, accepts: true, devices })
}

/// Reads `device eth0` or `devices = { eth0, eth1 }`, if it comes next, and returns the value as in a condition.
fn devices(rest: &mut Words<'_>, defined: &Sets) -> Parsed<Vec<Token>> {
    if !(rest.take("device") || rest.take("devices") && rest.take("=")) {
        return Ok(Vec::new());
    }
    let is_set = rest.peek() == "{";
    let len = if is_set { rest.words.iter().position(|token| &*token.text == "}").map_or(0, |at| at + 1) } else { 1 };
    let devices = replace(defined, rest.tokens(len).into(), rest.scope)?;
    Ok(devices.iter().filter(|token| token.kind != Kind::End).cloned().collect())
}

/// The next word, or what `define` says that it stands for.
fn said(rest: &mut Words<'_>, defined: &Sets) -> Parsed<String> {
    let Some(token) = rest.token() else { return Ok(String::new()) };
    let value = replace(defined, std::slice::from_ref(token).into(), rest.scope)?;
    Ok(value.iter().map(|token| &*token.text).collect::<Vec<_>>().join(" "))
}

/// Reads `accept` or `drop`.
pub(in crate::firewall::rule_file) fn policy(rest: &mut Words<'_>, defined: &Sets) -> Parsed<bool> {
    match said(rest, defined)?.as_str() {
        "accept" => Ok(true),
        "drop" => Ok(false),
        other => wrong(format!("`{other}` is no policy"), "write policy drop; or policy accept;"),
    }
}
