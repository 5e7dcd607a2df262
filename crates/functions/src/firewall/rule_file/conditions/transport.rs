//! Conditions of the headers behind IP: ports, numbers that stand in headers of TCP, UDP and ICMP, and types of ICMP messages.

use braid_nf::packet::IpVersion;
use braid_nf::packet::parse::protocol::has_ports as number_has_ports;

use super::addresses::icmp_version;
use super::arithmetic::comes;
use super::flags::tcp_flags;
use super::numbers::{Numbers, is_comparison, nameless};
use super::options::tcp_option;
use super::payload::{narrow_place, port_place};
use super::{CHECKSUM, HEADER_LENGTH, ID, LENGTH, narrow, narrow_protocol, narrow_within, protocol};
use crate::firewall::conditions::fields::Field;
use crate::firewall::conditions::names;
use crate::firewall::conditions::values::{IcmpKind, PortRange};
use crate::firewall::rule_file::reader::{PORT, Words};
use crate::firewall::rule_file::unsupported::one_of;
use crate::firewall::rule_file::{Kind, Parsed, wrong};
use crate::firewall::rules::Rule;

const SEQUENCE: Numbers = Numbers { what: "a number such as 0, 1-4096 or > 1000", last: 0xffff_ffff, named: nameless };
const WINDOW: Numbers = Numbers { what: "a number such as 0, 1-1023 or < 512", last: 0xffff, named: nameless };

pub(in crate::firewall::rule_file) fn transport(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    if name == "tcp" && rest.take("option") {
        return tcp_option(rule, rest);
    }
    narrow_protocol(rule, protocol(name).into_iter().collect())?;
    ports(rule, rest, name)
}

fn ports(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    let what = rest.word();
    match what.as_str() {
        // Under a mask they are no ranges.
        "sport" | "dport" if comes(rest, 0) => {
            let field = if what == "sport" { Field::SourcePort } else { Field::DestinationPort };
            narrow_within(rule, PORT.within(field, rest)?)?;
        }
        "sport" => narrow(&mut rule.source_ports, rest.ports()?, PortRange::meet, ("port", Kind::Excluded))?,
        "dport" => narrow(&mut rule.destination_ports, rest.ports()?, PortRange::meet, ("port", Kind::Excluded))?,
        "flags" if name == "tcp" => tcp_flags(rule, rest)?,
        other => match numbered(name, other) {
            Some((field, numbers)) => narrow_within(rule, numbers.within(field, rest)?)?,
            None => {
                let known = NUMBERED.iter().filter(|(of, _)| *of == name).map(|(_, known)| *known);
                let flags = Some("flags").filter(|_| name == "tcp");
                let known: Vec<_> = ["dport", "sport"].into_iter().chain(flags).chain(known).collect();
                return wrong(format!("`{other}` is nothing of {name} that is looked at"), one_of(name, other, &known));
            }
        },
    }
    Ok(())
}

/// Parses a condition on the bytes where TCP, UDP and SCTP have their ports. As in nftables it applies to any protocol, unless an earlier
/// condition restricts the rule to one of these.
pub(in crate::firewall::rule_file) fn any_transport(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    match port_place(rest.peek()).filter(|_| !has_ports(rule)) {
        Some(place) => {
            rest.word();
            narrow_place(rule, rest, (place, PORT))
        }
        None => ports(rule, rest, "th"),
    }
}

/// Whether a rule is only about protocols with ports.
pub(in crate::firewall::rule_file) fn has_ports(rule: &Rule) -> bool {
    !rule.protocol.0.is_empty() && rule.protocol.0.iter().all(|one| number_has_ports(one.0))
}

/// The names of [`numbered`], by protocol.
const NUMBERED: [(&str, &str); 19] = [
    ("tcp", "sequence"),
    ("tcp", "ackseq"),
    ("tcp", "doff"),
    ("tcp", "reserved"),
    ("tcp", "window"),
    ("tcp", "urgptr"),
    ("tcp", "checksum"),
    ("tcp", "option"),
    ("udp", "length"),
    ("udp", "checksum"),
    ("icmp", "id"),
    ("icmp", "sequence"),
    ("icmp", "mtu"),
    ("icmp", "gateway"),
    ("icmpv6", "id"),
    ("icmpv6", "sequence"),
    ("icmpv6", "mtu"),
    ("icmpv6", "max-delay"),
    ("icmpv6", "param-problem"),
];

/// Numbers that stand in the header of a protocol, by their names.
fn numbered(protocol: &str, name: &str) -> Option<(Field, Numbers)> {
    Some(match (protocol, name) {
        ("tcp", "sequence") => (Field::Sequence, SEQUENCE),
        ("tcp", "ackseq") => (Field::Acknowledgement, SEQUENCE),
        ("tcp", "doff") => (Field::DataOffset, HEADER_LENGTH),
        ("tcp", "reserved") => (Field::Reserved, HEADER_LENGTH),
        ("tcp", "window") => (Field::Window, WINDOW),
        ("tcp", "urgptr") => (Field::Urgent, WINDOW),
        ("udp", "length") => (Field::UdpLength, LENGTH),
        ("tcp" | "udp", "checksum") => (Field::TransportChecksum, CHECKSUM),
        ("icmp" | "icmpv6", "id") => (Field::QueryId, ID),
        ("icmp" | "icmpv6", "sequence") => (Field::QuerySequence, ID),
        ("icmp", "mtu") => (Field::Mtu, LENGTH),
        ("icmpv6", "mtu") => (Field::Mtu, SEQUENCE),
        ("icmp", "gateway") => (Field::Gateway, SEQUENCE),
        ("icmpv6", "max-delay") => (Field::Delay, ID),
        ("icmpv6", "param-problem") => (Field::Pointer, SEQUENCE),
        _ => return None,
    })
}

const ICMP_CODE: Numbers = Numbers {
    what: "a code such as port-unreachable, or 0 to 255",
    last: 255,
    named: |name| names::code(names::ICMP_CODES, name),
};
const ICMPV6_CODE: Numbers = Numbers { named: |name| names::code(names::ICMPV6_CODES, name), ..ICMP_CODE };

const ICMP_TYPE: Numbers = Numbers {
    what: "an ICMP type: echo-request, 8 or < 3",
    last: 255,
    named: |name| names::code(names::ICMP_NAMES, name),
};
const ICMPV6_TYPE: Numbers = Numbers { named: |name| names::code(names::ICMPV6_NAMES, name), ..ICMP_TYPE };

pub(in crate::firewall::rule_file) fn icmp(rule: &mut Rule, rest: &mut Words<'_>, name: &str) -> Parsed<()> {
    narrow_protocol(rule, protocol(name).into_iter().collect())?;
    let version = icmp_version(name);
    match rest.word().as_str() {
        "type" if comes(rest, 0) || is_comparison(rest.peek()) => {
            let types = match version {
                IpVersion::V4 => ICMP_TYPE,
                IpVersion::V6 => ICMPV6_TYPE,
            }
            .fitting(rest)?;
            let kinds = types.into_iter().map(|(first, last)| IcmpKind::types(first as u8, last as u8)).collect();
            return narrow(&mut rule.icmp, kinds, IcmpKind::meet, ("ICMP type", Kind::Excluded));
        }
        "type" => {}
        "code" => {
            let codes = match version {
                IpVersion::V4 => ICMP_CODE,
                IpVersion::V6 => ICMPV6_CODE,
            };
            return narrow_within(rule, codes.within(Field::IcmpCode, rest)?);
        }
        other => return of_some_types(rule, rest, (name, other)),
    }
    let (texts, is_negated) = rest.set("an ICMP type")?;
    let mut kinds = Vec::new();
    for text in &texts {
        match IcmpKind::written(text, version) {
            Some(kind) => kinds.push(kind),
            None => {
                return wrong(format!("`{text}` is not an ICMP type"), "write an ICMP type: echo-request, 8 or 3/4");
            }
        }
    }
    if is_negated {
        kinds = IcmpKind::except(&kinds);
    }
    if kinds.is_empty() {
        return wrong("no type is left", "write != and less than all types");
    }
    narrow(&mut rule.icmp, kinds, IcmpKind::meet, ("ICMP type", Kind::Excluded))
}

/// Numbers that messages of some types have: as in nftables nothing else fits them.
fn of_some_types(rule: &mut Rule, rest: &mut Words<'_>, (name, what): (&str, &str)) -> Parsed<()> {
    let Some((field, numbers)) = numbered(name, what) else {
        let known = NUMBERED.iter().filter(|(of, _)| *of == name).map(|(_, known)| *known);
        let known: Vec<_> = ["type", "code"].into_iter().chain(known).collect();
        return wrong(format!("`{what}` is nothing of {name} that is looked at"), one_of(name, what, &known));
    };
    let within = numbers.within(field, rest)?;
    narrow_types(rule, (name, what))?;
    narrow_within(rule, within)
}

/// Lets fit only messages of those types that have such a number.
pub(in crate::firewall::rule_file) fn narrow_types(rule: &mut Rule, (name, what): (&str, &str)) -> Parsed<()> {
    let types: &[&str] = match (name, what) {
        ("icmp", "mtu") => &["destination-unreachable"],
        ("icmp", "gateway") => &["redirect"],
        ("icmpv6", "mtu") => &["packet-too-big"],
        ("icmpv6", "max-delay") => &["mld-listener-query"],
        ("icmpv6", "param-problem") => &["parameter-problem"],
        _ => &["echo-request", "echo-reply"],
    };
    let kinds = types.iter().filter_map(|kind| IcmpKind::written(kind, icmp_version(name))).collect();
    narrow(&mut rule.icmp, kinds, IcmpKind::meet, ("ICMP type", Kind::Excluded))
}
