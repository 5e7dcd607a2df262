//! The conditions of a rule, each by its first word. All of them have to hold: what is said of a field twice is what fits both.

use braid_nf::Port;
use braid_nf::packet::parse::protocol as number;

use super::reader::Words;
use super::{Parsed, wrong};
use crate::firewall::rules::{Rule, both, equal};
use crate::firewall::values::{ALL_FLAGS, Addresses, Bits, IcmpKind, NameOrNumber, PortRange, Protocol};
use crate::parts::{Many, Side};

/// What a rule asks for so far.
#[derive(Clone, Debug)]
pub(super) struct Fits {
    pub(super) rule: Rule,
    /// States of connections, as bits.
    pub(super) states: u8,
    /// Nothing that comes here: the loopback interface, an empty set.
    pub(super) never: bool,
}

/// States of a connection. Nothing is untracked here.
pub(super) const NEW: u8 = 1;
pub(super) const ESTABLISHED: u8 = 2;
pub(super) const RELATED: u8 = 4;
pub(super) const INVALID: u8 = 8;
pub(super) const STATES: u8 = 15;

/// How many words name what is looked at; none if that is no condition with a value.
pub(super) fn selector(words: &Words<'_>) -> Option<usize> {
    match words.peek() {
        "iif" | "oif" | "iifname" | "oifname" => Some(1),
        "ip" | "ip6" | "tcp" | "udp" | "sctp" | "th" | "icmp" | "icmpv6" | "meta" | "ct" => Some(2),
        "pkttype" | "l4proto" | "nfproto" => Some(1),
        _ => None,
    }
}

/// Reads one condition with its value.
pub(super) fn condition(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let named = selector(rest).unwrap_or(1);
    let at = named + usize::from(matches!(rest.peek_at(named), "!=" | "=="));
    if let Some(name) = rest.peek_at(at).strip_prefix('@')
        && rest.scope.sets.iter().any(|(known, elements)| known == name && elements.is_empty())
    {
        fits.never |= rest.peek_at(named) != "!=";
        rest.tokens(at + 1);
        return Ok(());
    }
    let word = rest.word();
    let rule = &mut fits.rule;
    match word.as_str() {
        "iif" | "oif" | "iifname" | "oifname" => interface(fits, rest, &word),
        "ip" => ip(rule, rest, true),
        "ip6" => ip(rule, rest, false),
        "meta" | "pkttype" | "l4proto" | "nfproto" => {
            let key = if word == "meta" { rest.word() } else { word };
            meta(fits, rest, &key)
        }
        "tcp" | "udp" | "sctp" => transport(rule, rest, &word),
        "th" => any_transport(rule, rest),
        "icmp" | "icmpv6" => icmp(rule, rest, &word),
        "ct" => ct(fits, rest),
        other => super::statement::unknown(other),
    }
}

/// Lets a condition fit only what it did and `more` does.
fn narrow<T: Clone>(place: &mut Many<T>, more: Vec<T>, meet: impl Fn(&T, &T) -> Option<T>, what: &str) -> Parsed<()> {
    match both(place, &Many(more), meet) {
        Some(met) => *place = met,
        None => {
            return wrong(
                format!("no {what} fits all that the rule says"),
                "write two rules, or what can hold together",
            );
        }
    }
    Ok(())
}

pub(super) fn narrow_protocol(rule: &mut Rule, more: Vec<Protocol>) -> Parsed<()> {
    narrow(&mut rule.protocol, more, equal, "protocol")
}

pub(super) fn narrow_family(rule: &mut Rule, v4: bool) -> Parsed<()> {
    narrow(&mut rule.source, vec![Addresses::all(v4)], Addresses::meet, "address")
}

fn ip(rule: &mut Rule, rest: &mut Words<'_>, v4: bool) -> Parsed<()> {
    let what = rest.word();
    if matches!((what.as_str(), v4), ("protocol", true) | ("nexthdr", false)) {
        protocols(rule, rest)?;
        return if rest.scope.in_table { narrow_family(rule, v4) } else { Ok(()) };
    }
    let place = match what.as_str() {
        "saddr" => &mut rule.source,
        "daddr" => &mut rule.destination,
        "version" => {
            rest.word();
            return narrow_family(rule, v4);
        }
        other => {
            return wrong(
                format!("`{other}` of an IP header is not looked at"),
                "write saddr, daddr, protocol or nexthdr",
            );
        }
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

fn transport(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    narrow_protocol(rule, protocol(name).into_iter().collect())?;
    ports(rule, rest, name)
}

fn ports(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    match rest.word().as_str() {
        "sport" => narrow(&mut rule.source_ports, rest.ports()?.0, PortRange::meet, "port")?,
        "dport" => narrow(&mut rule.destination_ports, rest.ports()?.0, PortRange::meet, "port")?,
        "flags" if name == "tcp" => rule.tcp_flags.push(flags(rest)?),
        "option" => {
            return wrong("options are neither looked at nor changed", "leave the line out: sizes of segments stay");
        }
        other => {
            let instead = format!("write {name} dport 80, {name} sport 1024-65535, or meta l4proto {name}");
            return wrong(format!("`{other}` is nothing of {name}"), instead);
        }
    }
    Ok(())
}

/// `syn,ack`, `syn / fin,syn,rst,ack`, `== syn`, or as older versions of nftables have it: `& (fin|syn|rst|ack) == syn`.
fn flags(rest: &mut Words<'_>) -> Parsed<Bits> {
    let (text, is_negated) = if rest.take("&") {
        let mask = listed(rest);
        let is_negated = rest.peek() == "!=";
        match rest.take("==") || rest.take("!=") {
            true => (format!("{} / {mask}", listed(rest)), is_negated),
            false => (mask, false),
        }
    } else {
        let is_exact = matches!(rest.peek(), "==" | "!=");
        let is_negated = rest.negated();
        let set = listed(rest);
        match rest.take("/") {
            true => (format!("{set} / {}", listed(rest)), is_negated),
            false if is_exact => (format!("{set} / {ALL_FLAGS}"), is_negated),
            false => (set, false),
        }
    };
    match text.parse::<Bits>() {
        Ok(bits) => Ok(Bits { not: is_negated, ..bits }),
        Err(_) => wrong(format!("`{text}` are no TCP flags"), "write syn,ack or syn / fin,syn,rst,ack"),
    }
}

/// Names of flags with `,` or `|` between them, perhaps in parentheses, as a list with commas; 0 is none.
fn listed(rest: &mut Words<'_>) -> String {
    let (mut names, mut goes_on) = (Vec::new(), true);
    loop {
        match rest.peek() {
            "(" | "|" | "," => goes_on = true,
            ")" => {}
            name if goes_on && !name.is_empty() => {
                names.push(if matches!(name, "0" | "0x0") { "none" } else { name });
                goes_on = false;
            }
            _ => return names.join(","),
        }
        rest.word();
    }
}

/// Ports, whichever of the protocols has them.
fn any_transport(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    narrow_protocol(rule, [number::TCP, number::UDP, number::SCTP].map(Protocol).to_vec())?;
    ports(rule, rest, "th")
}

fn protocols(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let (texts, is_negated) = rest.set("a protocol")?;
    let mut wanted = Vec::new();
    for text in &texts {
        match protocol(text) {
            Some(one) => wanted.push(one),
            None => return wrong(format!("`{text}` is no protocol"), "write a name such as tcp, or a number"),
        }
    }
    if is_negated {
        wanted = (0..=255).map(Protocol).filter(|one| !wanted.contains(one)).collect();
    }
    narrow_protocol(rule, wanted)
}

fn meta(fits: &mut Fits, rest: &mut Words<'_>, key: &str) -> Parsed<()> {
    match key {
        "l4proto" => protocols(&mut fits.rule, rest),
        "iif" | "oif" | "iifname" | "oifname" => interface(fits, rest, key),
        "nfproto" | "protocol" => match rest.word().as_str() {
            "ipv4" | "ip" => narrow_family(&mut fits.rule, true),
            "ipv6" | "ip6" => narrow_family(&mut fits.rule, false),
            other => wrong(format!("`{other}` is no family"), "write ipv4 or ipv6"),
        },
        "pkttype" => packet_type(&mut fits.rule, rest),
        other => wrong(
            format!("nothing is known of `meta {other}`"),
            "write meta l4proto tcp, meta nfproto ipv4, meta iifname eth0 or meta pkttype host",
        ),
    }
}

/// Groups and broadcast are told by the IP destination.
fn packet_type(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let (kinds, is_negated) = rest.set("pkttype")?;
    let ranges = |texts: &[&str]| -> Vec<Addresses> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
    let (groups, broadcast) = (ranges(&["224.0.0.0/4", "ff00::/8"]), ranges(&["255.255.255.255"]));
    let mut wanted = Vec::new();
    for kind in
        ["host", "multicast", "broadcast"].into_iter().filter(|kind| kinds.iter().any(|it| it == kind) != is_negated)
    {
        wanted.extend(match kind {
            "multicast" => groups.clone(),
            "broadcast" => broadcast.clone(),
            _ => [true, false]
                .into_iter()
                .flat_map(|v4| {
                    let taken = groups.iter().chain(&broadcast).filter(|range| range.is_v4() == v4).copied().collect();
                    Addresses::except(v4, taken)
                })
                .collect(),
        });
    }
    if kinds.iter().any(|kind| !["host", "multicast", "broadcast"].contains(&kind.as_str())) || wanted.is_empty() {
        return wrong(format!("`pkttype {}` is not known", kinds.join(", ")), "write host, multicast or broadcast");
    }
    narrow(&mut rule.destination, wanted, Addresses::meet, "address")
}

/// Ports of the plan by their numbers, or by their names under `interfaces`; nothing comes from or goes to the loopback interface.
fn interface(fits: &mut Fits, rest: &mut Words<'_>, word: &str) -> Parsed<()> {
    let (names, is_negated) = rest.set(word)?;
    let all = 0..rest.scope.ports.count;
    let mut wanted: Vec<Port> = Vec::new();
    for name in names.iter().filter(|name| *name != "lo") {
        let is_named = |port: &Port| {
            let known = rest.scope.interfaces.get(usize::from(*port));
            known.is_some_and(|known| match name.strip_suffix('*') {
                Some(stem) => known.starts_with(stem),
                None => known == name,
            })
        };
        let number = name.parse::<Port>().ok().filter(|number| !word.ends_with("name") && all.contains(number));
        let before = wanted.len();
        wanted.extend(all.clone().filter(|port| is_named(port) || number == Some(*port)));
        if wanted.len() == before {
            let instead = format!(
                "write its port: interfaces = [\"{name}\", …] in the plan, a name for each port in their order; or iif 0"
            );
            return wrong(format!("no port of the plan is named `{name}`"), instead);
        }
    }
    if is_negated {
        wanted = all.clone().filter(|port| !wanted.contains(port)).collect();
    }
    if wanted.is_empty() {
        fits.never = true;
        return Ok(());
    }
    if all.clone().all(|port| wanted.contains(&port)) {
        return Ok(());
    }
    let came = if word.starts_with('o') { came_by(rest, &wanted)? } else { wanted };
    narrow(&mut fits.rule.ports, came, equal, "port")
}

/// The ports by which packets come that leave by one of these. Known where there is one way only: with two ports, or if a side
/// has one port and the packets leave by all of the other.
fn came_by(rest: &Words<'_>, leave: &[Port]) -> Parsed<Vec<Port>> {
    let ports = &rest.scope.ports;
    if ports.count == 2 {
        return Ok(leave.iter().map(|port| port ^ 1).collect());
    }
    let on =
        |side: Side| -> Vec<Port> { (0..ports.count).filter(|port| ports.sides.of(*port) == Some(side)).collect() };
    for side in [Side::Inside, Side::Outside] {
        let (here, across) = (on(side), on(side.other()));
        if here.len() == 1 && across.len() == leave.len() && across.iter().all(|port| leave.contains(port)) {
            return Ok(here);
        }
    }
    wrong(
        "by which port a packet leaves is decided behind the firewall",
        "write iifname, ip daddr, inbound or outbound; with two ports, or for all ports of a side if the other has one, oifname is known",
    )
}

/// The states of connections that a rule is about.
fn ct(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let other =
        "write ct state new, or leave it out: rules are for packets that would open a connection, the others follow it";
    match rest.word().as_str() {
        "state" => {}
        "count" => {
            return wrong(
                "connections are not counted by rules",
                "set host_connections_max, or put connection_limiter before it",
            );
        }
        "status" => return wrong("translations are not known here", "write ip daddr and the port instead"),
        _ => return wrong("only the state of a connection is known", other),
    }
    let (mut names, is_negated) = rest.set("ct state")?;
    while rest.take(",") {
        names.push(rest.word());
    }
    let mut states = 0;
    for name in &names {
        states |= match name.as_str() {
            "new" => NEW,
            "established" => ESTABLISHED,
            "related" => RELATED,
            "invalid" => INVALID,
            "untracked" => 0,
            _ => return wrong(format!("`{name}` is no state"), "write new, established, related or invalid"),
        };
    }
    fits.states &= if is_negated { STATES & !states } else { states };
    Ok(())
}

fn icmp(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
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
    let Many(kinds) = rest.list("an ICMP type", |text| {
        IcmpKind::named(text, v6).or_else(|| NameOrNumber::Name(text.to_owned()).try_into().ok())
    })?;
    narrow(&mut rule.icmp, kinds, IcmpKind::meet, "ICMP type")
}

/// Narrows types to a code of theirs.
fn icmp_code(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let Many(codes) = rest.list("a code from 0 to 255", |text| text.parse::<u8>().ok())?;
    let types = std::mem::take(&mut rule.icmp.0);
    rule.icmp = Many(types.iter().flat_map(|kind| codes.iter().map(|code| kind.with_code(*code))).collect());
    Ok(())
}

fn protocol(text: &str) -> Option<Protocol> {
    // As nftables calls it.
    let text = if text == "ipv6-icmp" { "icmpv6" } else { text };
    NameOrNumber::Name(text.to_owned()).try_into().ok()
}
