//! `ct state`, `ct direction` and `ct status dnat`: a packet's relation to its connection. `ct bytes` and
//! `ct original packets`: what the connection has sent.

use super::fib::{Ways, way};
use super::numbers::{Numbers, nameless, number};
use super::{Fits, any_protocol_with_ports, narrow_field};
use crate::firewall::conditions::fields::{Field, MOST, Within};
use crate::firewall::conditions::masked::{End, Masked};
use crate::firewall::conditions::values::{Addresses, PortRange};
use crate::firewall::connection::counts;
use crate::firewall::connection::states::{
    ALL, ARP, ESTABLISHED, INVALID, NEW, ORIGINAL, RELATED, RELATED_ORIGINAL, RELATED_REPLY, REPLY, States, UNTRACKED,
};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::unsupported::unknown_ct;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::{Direction, Rule};
use crate::parts::Many;

const NAMES: [(&str, States); 5] =
    [("new", NEW), ("established", ESTABLISHED), ("related", RELATED), ("invalid", INVALID), ("untracked", UNTRACKED)];

/// What the end that opened a connection sends, and what the other one does.
const OPENERS: States = NEW | ORIGINAL | RELATED_ORIGINAL;
const ANSWERS: States = REPLY | RELATED_REPLY;

const ZONE: Numbers = Numbers { what: "a zone such as 0", last: 0xffff, named: nameless };
const COUNT: Numbers = Numbers { what: "a number such as 1000, 0-999 or > 1000", last: MOST, named: nameless };

/// Reads what follows `ct`.
pub(in crate::firewall::rule_file) fn ct(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let way = if rest.take("original") { 1 } else { 2 * usize::from(rest.take("reply")) };
    let word = rest.word();
    if let Some(field) = counts::field(&word, way) {
        // A packet without a connection has no counts.
        fits.rule.states &= ALL & !(INVALID | UNTRACKED);
        return narrow_field(&mut fits.rule, field, COUNT.read(rest)?);
    }
    if way != 0 {
        return wrong(
            format!("`{word}` of one direction is not known"),
            "write ct original bytes > 1000000, packets or avgpkt, or ct original ip saddr",
        );
    }
    let states = match word.as_str() {
        "state" => states(rest)?,
        "direction" => {
            let (names, is_negated) = rest.set("ct direction")?;
            let mut states = 0;
            for name in &names {
                states |= match name.as_str() {
                    "original" | "0" => OPENERS,
                    "reply" | "1" => ANSWERS,
                    _ => return wrong("no such direction of a connection", "write ct direction original"),
                };
            }
            // An invalid packet has no connection.
            if is_negated { (OPENERS | ANSWERS) & !states } else { states }
        }
        // All connections are in one zone.
        "zone" if rest.peek() != "set" => {
            fits.never |= !ZONE.read(rest)?.iter().any(|(first, _)| *first == 0);
            ALL & !(INVALID | UNTRACKED)
        }
        "mark" => return wrong("marks cannot be concatenated", "write ct mark 1 before the other fields"),
        other => return unknown_ct(other),
    };
    // A packet of ARP has no connection, and is invalid, as in the kernel.
    fits.rule.states &= states | if states & INVALID != 0 { ARP } else { 0 };
    fits.never |= fits.rule.states == 0;
    Ok(())
}

/// Reads `ct status dnat`, also written `ct status & dnat == dnat`: packets from outside to the endpoints under `forwards` in
/// the plan, and replies to them.
pub(in crate::firewall::rule_file) fn status(rest: &mut Words<'_>) -> Parsed<Ways> {
    rest.take("ct");
    rest.take("status");
    let words = if rest.take("&") { 3 } else { 1 };
    let said: Vec<String> = (0..words).map(|_| rest.word()).collect();
    match said.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["dnat" | "0x20" | "32"] | ["dnat", "==" | "eq", "dnat"] | ["dnat", "!=" | "ne", "0" | "0x0"] => {}
        ["seen-reply" | "assured", ..] => return wrong("only translations are known", "write ct state established"),
        ["snat", ..] => {
            return wrong("the firewall sees inside addresses, before they are translated", "write ip saddr instead");
        }
        _ => return wrong(format!("`ct status {}` is not known", said.join(" ")), "write ct status dnat"),
    }
    if rest.peek() == "," {
        return wrong("one status at a time", "write ct status dnat");
    }
    let Some(forwards) = &rest.scope.around.forwards else {
        return wrong(
            "which connections are translated is not known here",
            "write forwards = [\"10.0.0.5:443\"] in the plan: what nat forwards to, or forwards = []",
        );
    };
    let mut ports: Vec<_> = forwards.iter().map(|forward| forward.port).collect();
    ports.sort_unstable();
    ports.dedup();
    let whole = |address: &Addresses| forwards.iter().any(|it| it.port.is_none() && it.address == *address);
    let mut ways = Ways::new();
    for port in ports {
        let of_port = forwards.iter().filter(|it| it.port == port && (port.is_none() || !whole(&it.address)));
        let addresses = Many::of(of_port.map(|it| it.address));
        if addresses.0.is_empty() {
            continue;
        }
        let numbers = Many::of(port.map(|port| PortRange { first: port, last: port }));
        let mut forward = way();
        if port.is_some() {
            any_protocol_with_ports(&mut forward)?;
        }
        // For an ICMP error, the connection that it concerns decides. The error has one of that connection's directions.
        let mut about = Rule { masked: vec![Masked::one_of(End::Asked, &addresses.0)], ..way() };
        about.fields.extend(port.map(|port| Within::new(Field::AskedPort, vec![(port.into(), port.into())])));
        ways.push(Rule { states: RELATED_ORIGINAL, direction: Some(Direction::Inbound), ..about.clone() });
        ways.push(Rule { states: RELATED_REPLY, direction: Some(Direction::Outbound), ..about });
        ways.push(Rule {
            states: NEW | ORIGINAL,
            direction: Some(Direction::Inbound),
            destination: addresses.clone(),
            destination_ports: numbers.clone(),
            ..forward.clone()
        });
        ways.push(Rule {
            states: REPLY,
            direction: Some(Direction::Outbound),
            source: addresses,
            source_ports: numbers,
            ..forward
        });
    }
    Ok(ways)
}

/// Reads `new`, `established,related`, `{ new, untracked }`, `!= invalid`, `! invalid` or `& (new | related) != 0`.
fn states(rest: &mut Words<'_>) -> Parsed<States> {
    if rest.take("&") {
        return masked(rest);
    }
    if rest.take("!") {
        return Ok(ALL & !listed(rest)?);
    }
    let (names, is_negated) = rest.set("ct state")?;
    let (mut states, mut goes_on) = (0, false);
    for name in &names {
        states |= state(name)?;
    }
    while rest.take(",") || rest.take("|") {
        states |= state(&rest.word())?;
        goes_on = true;
    }
    if is_negated && goes_on {
        // To nftables that holds for every packet, since none is in two states.
        return wrong("no packet is in two states, so all are in others", "write ct state != { new, established }");
    }
    Ok(if is_negated { ALL & !states } else { states & ALL })
}

/// Reads `& mask` and its comparison, and returns the states, as bits, for which it holds.
fn masked(rest: &mut Words<'_>) -> Parsed<States> {
    let (mask, not) = (listed(rest)?, rest.negated());
    let wanted = if rest.take("0") || rest.take("0x0") { 0 } else { listed(rest)? };
    let fits = |one: &u8| (one & mask == wanted) != not;
    Ok([NEW, ESTABLISHED, RELATED, INVALID, UNTRACKED].into_iter().filter(fits).fold(0, |all, one| all | one))
}

/// Reads names of states, separated by `,` or `|`, perhaps in parentheses.
fn listed(rest: &mut Words<'_>) -> Parsed<States> {
    let in_parentheses = rest.take("(");
    let mut states = state(&rest.word())?;
    while rest.take(",") || rest.take("|") {
        states |= state(&rest.word())?;
    }
    if in_parentheses && !rest.take(")") {
        return wrong("a parenthesis without its end", "write ) behind the states");
    }
    Ok(states)
}

fn state(name: &str) -> Parsed<States> {
    // The number of a state is a bit of the kernel's (`NF_CT_STATE_BIT`).
    let numbered = number(name).and_then(|of| [8, 2, 4, 1, 64].iter().position(|bit| *bit == of)).map(|at| &NAMES[at]);
    match NAMES.iter().find(|(known, _)| *known == name).or(numbered) {
        Some((_, state)) => Ok(*state),
        None => wrong(format!("`{name}` is no state"), "write new, established, related or invalid"),
    }
}
