//! Where packets come to a chain by themselves: `type filter hook forward priority filter; policy drop;`.

use super::reader::Words;
use super::{Parsed, wrong};

#[derive(Debug)]
pub(super) struct Base {
    /// `filter`, `nat`, `route`.
    pub(super) kind: String,
    pub(super) hook: String,
    /// Chains of lower ones are asked first.
    pub(super) priority: i32,
    /// What it does not decide passes to the next chain.
    pub(super) accepts: bool,
}

impl Base {
    /// Where on the way of a packet it stands: before, at and behind the decision where it goes.
    pub(super) fn place(&self) -> u8 {
        match self.hook.as_str() {
            "prerouting" => 0,
            "postrouting" => 2,
            _ => 1,
        }
    }
}

/// Priorities by name (`include/uapi/linux/netfilter_ipv4.h`).
const PRIORITIES: [(&str, i32); 6] =
    [("raw", -300), ("mangle", -150), ("dstnat", -100), ("filter", 0), ("security", 50), ("srcnat", 100)];

/// `type filter hook forward priority filter; policy drop`, up to the first `;`.
pub(super) fn base(rest: &mut Words<'_>) -> Parsed<Base> {
    rest.word();
    let form = "write type filter hook forward priority 0; policy drop;";
    let kind = rest.word();
    if !rest.take("hook") {
        rest.word();
        return wrong("a chain of a type without its hook", form);
    }
    let hook = rest.word();
    if rest.take("device") {
        rest.word();
    }
    if !rest.take("priority") {
        rest.word();
        return wrong("a chain without its priority", form);
    }
    let mut priority = 0;
    let mut sign = 1;
    while !matches!(rest.peek(), "" | "\n" | ";" | "}" | "policy") {
        let word = rest.word();
        priority += match (word.as_str(), word.parse::<i32>()) {
            ("-", _) => (sign = -1, 0).1,
            ("+", _) => 0,
            (_, Ok(number)) => sign * number,
            (name, _) => match PRIORITIES.iter().find(|(known, _)| *known == name) {
                Some((_, number)) => *number,
                None => return wrong(format!("`{name}` is no priority"), "write filter, filter - 10 or a number"),
            },
        };
    }
    Ok(Base { kind, hook, priority, accepts: true })
}

pub(super) fn policy(rest: &mut Words<'_>) -> Parsed<bool> {
    match rest.word().as_str() {
        "accept" => Ok(true),
        "drop" => Ok(false),
        other => wrong(format!("`{other}` is no policy"), "write policy drop; or policy accept;"),
    }
}
