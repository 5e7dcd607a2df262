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
//! Sets may go over several lines. Rules are for packets that would open a connection, so `ct state new` is always so, and what
//! lines say of other states has to be what happens anyway.

use super::config::Config;
use super::rules::{Action, Direction, Rule};

mod conditions;
mod reader;
mod words;

use self::reader::Words;
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
        "set" => {
            rest.word();
            let set = named_set(&mut rest)?;
            defined.push(set);
            Ok(())
        }
        _ => {
            config.rules.extend(rule(rest)?);
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

/// The next rule; none if it says of packets that go on what becomes of them anyway.
fn rule(mut rest: Words<'_>) -> Parsed<Option<Rule>> {
    let mut rule = Rule::new(Action::Deny);
    loop {
        let word = rest.word();
        if let Some(action) = action(&word) {
            rule.action = action;
            if action == Action::Reject && rest.take("with") {
                conditions::reject_with(&rule, &mut rest)?;
            }
            if rest.take("comment") {
                rule.comment = rest.word();
            }
            rest.end()?;
            return Ok(Some(rule));
        }
        match word.as_str() {
            "inbound" | "outbound" if rule.direction.is_some() => {
                return wrong("the direction is said twice", "write inbound, or outbound, or neither");
            }
            "inbound" => rule.direction = Some(Direction::Inbound),
            "outbound" => rule.direction = Some(Direction::Outbound),
            "iif" => {
                let ports = rest.list("the number of a port of the plan", |text| text.parse().ok())?;
                conditions::once(&mut rule.ports, ports, "the port")?;
            }
            "ip" => conditions::ip(&mut rule, &mut rest, true)?,
            "ip6" => conditions::ip(&mut rule, &mut rest, false)?,
            "meta" => conditions::meta(&mut rule, &mut rest)?,
            "tcp" | "udp" | "sctp" => conditions::transport(&mut rule, &mut rest, &word)?,
            "th" => conditions::any_transport(&mut rule, &mut rest)?,
            "icmp" | "icmpv6" => conditions::icmp(&mut rule, &mut rest, &word)?,
            "ct" if !conditions::ct(&mut rest)? => return Ok(None),
            "ct" => {}
            "counter" => {
                rule.counter = true;
                // What `nft list` prints of a counter.
                while rest.take("packets") || rest.take("bytes") {
                    rest.word();
                }
            }
            "" => return wrong("nothing is said about what becomes of the packet", "end with accept, drop or reject"),
            other => return unknown(other),
        }
    }
}

/// Words of nftables that are none here, each with what to do instead.
fn unknown<T>(word: &str) -> Parsed<T> {
    let instead = match word {
        "table" | "chain" | "type" | "}" => {
            "write the rules of one chain alone, one a line, and what no rule fits as policy inbound drop"
        }
        "iifname" => "write iif 0: ports have the numbers that they have in the plan",
        "oif" | "oifname" => "write inbound or outbound: a packet is judged by where it comes from",
        "log" => "write counter, and the report says how often the rule decided",
        "limit" => "put rate_limiter, policer or connection_limiter in the chain, before or behind the firewall",
        "dnat" | "snat" | "masquerade" | "redirect" => "put nat in the chain, and write accept here",
        "jump" | "goto" | "return" | "queue" => "write the rules one after another: the first that fits decides",
        "include" => "write the rules into one file",
        "flush" | "add" | "insert" | "delete" => {
            "write the rules themselves; `braid apply` exchanges all of them at once"
        }
        "allow" => "write accept",
        "deny" => "write drop",
        "ether" | "vlan" | "arp" => "leave it out: rules are for IP packets",
        _ => {
            let instead = "write inbound, outbound, iif, ip, ip6, meta l4proto, tcp, udp, sctp, th, icmp, icmpv6, \
                           counter, or accept, drop, reject";
            return wrong(format!("`{word}` is no condition"), instead);
        }
    };
    wrong(format!("`{word}` is no condition here"), instead)
}

/// `set NAME { type ipv4_addr; flags interval; elements = { … } }`, as nftables lists it.
fn named_set(rest: &mut Words<'_>) -> Parsed<(String, Vec<String>)> {
    let name = rest.word();
    let form = "write set admins { type ipv4_addr; elements = { 192.0.2.0/28 } }, or define admins = { 192.0.2.0/28 }";
    if !rest.take("{") {
        return wrong(format!("the set `{name}` has no braces"), form);
    }
    loop {
        match rest.word().as_str() {
            "elements" if rest.take("=") => break,
            "timeout" | "dynamic" | "gc-interval" => return wrong("sets do not change here", form),
            "}" | "" => return wrong(format!("the set `{name}` has no elements"), form),
            _ => {}
        }
    }
    let (values, is_negated) = rest.set(&name)?;
    rest.take(";");
    if is_negated || !rest.take("}") {
        return wrong("more than a set", form);
    }
    rest.end()?;
    Ok((name, values))
}
