//! The conditions of a rule, each by its first word. All of them have to hold: what is said of a field twice is what fits both.

use super::reader::Words;
use super::{Parsed, wrong};
use crate::firewall::rules::Rule;
use crate::firewall::values::{Addresses, Bits, IcmpKind, NameOrNumber, PortRange, Protocol};
use crate::parts::Many;
use braid_nf::packet::parse::protocol as number;

/// Lets a condition fit only what it did and `more` does.
fn narrow<T>(place: &mut Many<T>, more: Vec<T>, meet: impl Fn(&T, &T) -> Option<T>, what: &str) -> Parsed<()> {
    let before = std::mem::take(&mut place.0);
    place.0 = match before.is_empty() {
        true => more,
        false => before.iter().flat_map(|one| more.iter().filter_map(|other| meet(one, other))).collect(),
    };
    if place.0.is_empty() {
        return wrong(format!("no {what} fits all that the rule says"), "write two rules, or what can hold together");
    }
    Ok(())
}

fn narrow_protocol(rule: &mut Rule, more: Vec<Protocol>) -> Parsed<()> {
    narrow(&mut rule.protocol, more, |one, other| (one == other).then_some(*one), "protocol")
}

/// The same for what is said once.
pub(super) fn once<T>(place: &mut Many<T>, values: Many<T>, what: &str) -> Parsed<()> {
    if !place.0.is_empty() {
        return wrong(format!("{what} is said twice"), "write it once, with a set in braces for several");
    }
    *place = values;
    Ok(())
}

pub(super) fn ip(rule: &mut Rule, rest: &mut Words<'_>, v4: bool) -> Parsed<()> {
    let what = rest.word();
    if matches!((what.as_str(), v4), ("protocol", true) | ("nexthdr", false)) {
        let Many(protocols) = rest.list("a protocol such as tcp, or its number", protocol)?;
        return narrow_protocol(rule, protocols);
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
    narrow(place, ranges, Addresses::meet, "address")
}

pub(super) fn transport(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    narrow_protocol(rule, protocol(name).into_iter().collect())?;
    ports(rule, rest, name)
}

fn ports(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    match rest.word().as_str() {
        "sport" => narrow(&mut rule.source_ports, rest.ports()?.0, PortRange::meet, "port")?,
        "dport" => narrow(&mut rule.destination_ports, rest.ports()?.0, PortRange::meet, "port")?,
        "flags" if name == "tcp" && rule.tcp_flags.is_none() => rule.tcp_flags = Some(flags(rest)?),
        other => {
            let instead = format!("write {name} dport 80, {name} sport 1024-65535, or meta l4proto {name}");
            return wrong(format!("`{other}` is nothing of {name}"), instead);
        }
    }
    Ok(())
}

/// `syn,ack`, `syn / fin,syn,rst,ack`, or as older versions of nftables have it: `& (fin|syn|rst|ack) == syn`.
fn flags(rest: &mut Words<'_>) -> Parsed<Bits> {
    let mut text = rest.word();
    if text == "&" {
        let mut mask = String::new();
        while !matches!(rest.peek(), "==" | "!=" | "") {
            mask += &rest.word();
        }
        let is_equal = rest.take("==");
        let mut value = rest.word();
        while rest.peek() == "|" || value.ends_with(['|', '(']) {
            value += &rest.word();
        }
        let listed = |text: &str| text.trim_matches(['(', ')']).replace('|', ",");
        text = if is_equal { format!("{} / {}", listed(&value), listed(&mask)) } else { format!("& {mask}") };
    }
    while matches!(rest.peek(), "," | "/") || text.ends_with([',', '/']) {
        text += &rest.word();
    }
    match text.parse::<Bits>() {
        Ok(bits) => Ok(bits),
        Err(_) => wrong(format!("`{text}` are no TCP flags"), "write syn,ack or syn / fin,syn,rst,ack"),
    }
}

/// Ports, whichever of the protocols has them.
pub(super) fn any_transport(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    narrow_protocol(rule, [number::TCP, number::UDP, number::SCTP].map(Protocol).to_vec())?;
    ports(rule, rest, "th")
}

/// `l4proto`, `nfproto`.
pub(super) fn meta(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    match rest.word().as_str() {
        "l4proto" => {
            let Many(protocols) = rest.list("a protocol such as tcp, or its number", protocol)?;
            narrow_protocol(rule, protocols)?;
        }
        "nfproto" => {
            let v4 = match rest.word().as_str() {
                "ipv4" => true,
                "ipv6" => false,
                other => return wrong(format!("`{other}` is no family"), "write ipv4 or ipv6"),
            };
            narrow(&mut rule.source, vec![Addresses::all(v4)], Addresses::meet, "address")?;
        }
        other => {
            return wrong(format!("nothing is known of `meta {other}`"), "write meta l4proto tcp or meta nfproto ipv4");
        }
    }
    Ok(())
}

/// Whether a rule with this condition is to be asked: one about what goes on, and passes or is dropped as it is anyway, is not.
pub(super) fn ct(rest: &mut Words<'_>) -> Parsed<bool> {
    let other =
        "write ct state new, or leave it out: rules are for packets that would open a connection, the others follow it";
    if !rest.take("state") {
        return wrong("only the state of a connection is known", other);
    }
    let (mut states, is_negated) = rest.set("ct state")?;
    while rest.take(",") {
        states.push(rest.word());
    }
    let states: Vec<&str> = states.iter().flat_map(|word| word.split(',')).filter(|word| !word.is_empty()).collect();
    if is_negated {
        return wrong("`ct state !=` is no condition here", other);
    }
    if states.contains(&"new") {
        return Ok(true);
    }
    let (all, then) = match states.iter().all(|state| matches!(*state, "established" | "related")) {
        true => (true, "accept"),
        false => (states.iter().all(|state| *state == "invalid"), "drop"),
    };
    rest.take("counter");
    if all && rest.take(then) {
        Ok(false)
    } else {
        wrong(format!("`ct state {}` decides nothing here", states.join(",")), other)
    }
}

pub(super) fn icmp(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    narrow_protocol(rule, protocol(name).into_iter().collect())?;
    let v6 = name == "icmpv6";
    match rest.word().as_str() {
        "type" => {}
        "code" if !rule.icmp.0.is_empty() => return icmp_code(rule, rest),
        _ => {
            let instead =
                format!("write {name} type echo-request, {name} type 3 {name} code 4, or meta l4proto {name}");
            return wrong(format!("only type and code of {name} are looked at"), instead);
        }
    }
    let kinds = rest.list("an ICMP type", |text| {
        IcmpKind::named(text, v6).or_else(|| NameOrNumber::Name(text.to_owned()).try_into().ok())
    })?;
    once(&mut rule.icmp, kinds, "the type")
}

/// Narrows types to a code of theirs.
fn icmp_code(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let Many(codes) = rest.list("a code from 0 to 255", |text| text.parse::<u8>().ok())?;
    let types = std::mem::take(&mut rule.icmp.0);
    rule.icmp = Many(types.iter().flat_map(|kind| codes.iter().map(|code| kind.with_code(*code))).collect());
    Ok(())
}

fn protocol(text: &str) -> Option<Protocol> {
    NameOrNumber::Name(text.to_owned()).try_into().ok()
}

/// What a rejected packet is answered with is fixed; a rule may say so.
pub(super) fn reject_with(rule: &Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let only_tcp = rule.protocol.0 == [Protocol(number::TCP)];
    let mut said = Vec::new();
    while !matches!(rest.peek(), "" | "comment") {
        said.push(rest.word());
    }
    let said = said.join(" ");
    match said.as_str() {
        "tcp reset" if only_tcp => Ok(()),
        "icmp type admin-prohibited" | "icmpv6 type admin-prohibited" | "icmpx type admin-prohibited" => Ok(()),
        _ => {
            let instead = "write reject: TCP is told by a reset, everything else by admin-prohibited";
            wrong(format!("`with {said}` is not what happens"), instead)
        }
    }
}
