//! The conditions of a rule, each read by its first word. All of them must hold; several conditions on one field are
//! intersected.

pub(super) mod addresses;
pub(super) mod arithmetic;
pub(super) mod arp;
pub(super) mod concatenation;
pub(super) mod ether;
pub(super) mod extensions;
pub(super) mod fib;
pub(super) mod flags;
pub(super) mod interfaces;
pub(super) mod joined;
pub(super) mod numbers;
pub(super) mod opening;
pub(super) mod options;
pub(super) mod payload;
pub(super) mod state;
pub(super) mod times;
pub(super) mod transport;

use braid_nf::packet::IpVersion;
use braid_nf::packet::parse::protocol as numbered;

use self::addresses::{addresses, masked, packet_type};
use self::arithmetic::len as made_len;
use self::arp::arp;
use self::concatenation::{has, is_rest, listed};
use self::ether::{ether, vlan};
use self::extensions::{exthdr, next_headers, routing};
use self::interfaces::interface;
use self::numbers::{Numbers, is_comparison, nameless, number};
use self::options::{ip_option, is_there};
use self::payload::{header, is_header, is_place, place};
use self::state::ct;
use self::times::when;
use self::transport::{any_transport, icmp, transport};
use super::reader::Words;
use super::unsupported::{one_of, unknown, unknown_meta};
use super::{Kind, Parsed, fits_nothing, wrong};
use crate::firewall::conditions::fields::{self, Field, Within};
use crate::firewall::conditions::masked::End;
use crate::firewall::conditions::values::{Addresses, NameOrNumber, Protocol};
use crate::firewall::connection::states;
use crate::firewall::rules::{Action, Rule, both, equal};
use crate::parts::Many;
use crate::parts::headers::dscp;

/// The conditions that a rule has so far.
#[derive(Clone, Debug)]
pub(super) struct Fits {
    pub(super) rule: Rule,
    /// Whether nothing can match here, because of the loopback interface or an empty set.
    pub(super) never: bool,
    /// Whether conditions on a tag are about the one behind the outermost.
    pub(super) is_of_inner_tag: bool,
}

impl Fits {
    /// Matches every packet.
    pub(super) fn all() -> Fits {
        let rule = Rule { states: states::ALL | states::ARP, ..Rule::new(Action::Continue) };
        Fits { rule, never: false, is_of_inner_tag: false }
    }
}

/// The number of words that name the field of a condition; `None` if the next words are no condition with a value.
pub(super) fn selector(words: &Words<'_>) -> Option<usize> {
    match words.peek() {
        "l4proto" => Some(1 + made_len(words, 1)),
        "iif" | "oif" | "iifname" | "oifname" | "pkttype" | "nfproto" | "hour" | "day" | "time" => Some(1),
        // Its mask asks for one thing only.
        "ip" if words.peek_at(1) == "frag-off" => Some(2),
        "tcp" | "udp" | "sctp" | "th" | "icmp" | "icmpv6" | "vlan" | "ip" | "ip6" => Some(2 + made_len(words, 2)),
        "ah" | "esp" | "comp" | "igmp" | "udplite" | "dccp" => Some(2 + made_len(words, 2)),
        place if is_place(place) => Some(payload::LEN + made_len(words, payload::LEN)),
        "meta" if matches!(words.peek_at(1), "length" | "l4proto") => Some(2 + made_len(words, 2)),
        "arp" if matches!(words.peek_at(1), "saddr" | "daddr") => Some(3 + made_len(words, 3)),
        "ether" => Some(2 + made_len(words, 2)),
        "meta" | "ct" | "exthdr" | "rt" | "arp" => Some(2),
        _ => None,
    }
}

/// Reads one condition with its value.
pub(super) fn condition(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let named = selector(rest).unwrap_or_default();
    let at = named + usize::from(matches!(rest.peek_at(named), "!=" | "ne" | "==" | "eq"));
    if let Some(name) = rest.peek_at(at).strip_prefix('@')
        && named > 0
        && let Some((_, elements)) = rest.scope.sets.iter().rev().find(|(known, _)| known == name)
    {
        let has_all = listed(elements).any(is_rest);
        if has_all || elements.is_empty() {
            let is_negated = matches!(rest.peek_at(named), "!=" | "ne");
            fits.never |= has_all == is_negated;
            let field = rest.tokens(named);
            rest.tokens(at + 1 - named);
            return if has_all { has(fits, field, rest.scope) } else { Ok(()) };
        }
    }
    let word = rest.word();
    let rule = &mut fits.rule;
    match word.as_str() {
        "iif" | "oif" | "iifname" | "oifname" => interface(fits, rest, &word),
        "ip" => ip(fits, rest, IpVersion::V4),
        "ip6" => ip(fits, rest, IpVersion::V6),
        "ether" => ether(fits, rest),
        "arp" => arp(fits, rest),
        "vlan" => vlan(fits, rest),
        "meta" | "pkttype" | "l4proto" | "nfproto" | "hour" | "day" | "time" => {
            let key = if word == "meta" { rest.word() } else { word };
            meta(fits, rest, &key)
        }
        "sctp" if !matches!(rest.peek(), "sport" | "dport") => header(rule, rest, &word),
        "tcp" | "udp" | "sctp" => transport(rule, rest, &word),
        "th" => any_transport(rule, rest),
        "icmp" | "icmpv6" => icmp(rule, rest, &word),
        "exthdr" => exthdr(rule, rest),
        "rt" => routing(rule, rest),
        "ct" => ct(fits, rest),
        of if is_header(of) => header(rule, rest, of),
        base if is_place(base) => place(rule, rest, base),
        other => unknown(other),
    }
}

/// Restricts a condition to what both it and `more` match.
pub(super) fn narrow<T: Clone>(
    place: &mut Many<T>,
    more: Vec<T>,
    meet: impl Fn(&T, &T) -> Option<T>,
    (what, kind): (&str, Kind),
) -> Parsed<()> {
    match both(place, &Many::of(more), meet) {
        Some(met) => *place = met,
        None => return fits_nothing(what, kind),
    }
    Ok(())
}

pub(super) fn narrow_protocol(rule: &mut Rule, more: Vec<Protocol>) -> Parsed<()> {
    narrow(&mut rule.protocol, more, equal, ("protocol", Kind::Conflict))
}

pub(super) fn narrow_family(rule: &mut Rule, version: IpVersion) -> Parsed<()> {
    rule.states &= !states::ARP;
    narrow(&mut rule.source, vec![Addresses::all(version)], Addresses::meet, ("address", Kind::Conflict))
}

/// Restricts a field to these ranges.
pub(super) fn narrow_field(rule: &mut Rule, field: Field, ranges: Vec<(u64, u64)>) -> Parsed<()> {
    narrow_within(rule, Within::new(field, ranges))
}

/// Restricts a field to what a condition allows.
pub(super) fn narrow_within(rule: &mut Rule, more: Within) -> Parsed<()> {
    let what = more.name();
    if fields::narrow(&mut rule.fields, more) {
        return Ok(());
    }
    fits_nothing(what, Kind::Excluded)
}

const FRAGMENTS: Numbers = Numbers { what: "flags and offset such as 0 or 0x4000", last: 0xffff, named: nameless };
pub(super) const LENGTH: Numbers =
    Numbers { what: "a length such as 1500, 0-100 or > 1000", last: 0xffff, named: nameless };
pub(super) const TTL: Numbers = Numbers { what: "a number of hops such as 64, 1-5 or < 5", last: 255, named: nameless };
pub(super) const DSCP: Numbers =
    Numbers { what: "a code point such as ef, af11, cs1 or 0-63", last: 63, named: code_point };
const ECN: Numbers = Numbers { what: "not-ect, ect0, ect1 or ce", last: 3, named: congestion };

const FLOW_LABEL: Numbers = Numbers { what: "a label such as 0 or 1-0xfffff", last: 0xf_ffff, named: nameless };
pub(super) const ID: Numbers =
    Numbers { what: "an identification such as 0 or 1-65535", last: 0xffff, named: nameless };
pub(super) const HEADER_LENGTH: Numbers =
    Numbers { what: "a number of 32 bit words such as 5, 6-15 or > 5", last: 15, named: nameless };
pub(super) const CHECKSUM: Numbers = Numbers { what: "a checksum such as 0x1234", last: 0xffff, named: nameless };

fn code_point(name: &str) -> Option<u64> {
    let known = match name {
        "lephb" => "le",
        "df" | "be" => "cs0",
        name => name,
    };
    dscp::named(known).map(u64::from)
}

fn congestion(name: &str) -> Option<u64> {
    ["not-ect", "ect1", "ect0", "ce"].iter().position(|known| *known == name).map(|at| at as u64)
}

/// The fields of the IPv4 header that are supported.
const IP: [&str; 13] = [
    "saddr",
    "daddr",
    "protocol",
    "length",
    "ttl",
    "dscp",
    "ecn",
    "id",
    "hdrlength",
    "version",
    "checksum",
    "frag-off",
    "option",
];
const IP6: [&str; 9] = ["saddr", "daddr", "nexthdr", "length", "hoplimit", "dscp", "ecn", "flowlabel", "version"];

fn ip(fits: &mut Fits, rest: &mut Words<'_>, version: IpVersion) -> Parsed<()> {
    let rule = &mut fits.rule;
    rule.states &= !states::ARP;
    let what = rest.word();
    let end = [("saddr", End::Source), ("daddr", End::Destination)].into_iter().find(|(end, _)| *end == what);
    if let Some((_, end)) = end
        && let Some(masked) = masked(rest, end, version)?
    {
        rule.masked.push(masked);
        return narrow_family(rule, version);
    }
    let within = match (what.as_str(), version) {
        ("protocol", IpVersion::V4) => {
            protocols(rule, rest)?;
            return if rest.scope.in_table { narrow_family(rule, version) } else { Ok(()) };
        }
        ("nexthdr", IpVersion::V6) => Within::new(Field::NextHeader, next_headers(rule, rest)?),
        ("saddr", _) => return addresses(&mut rule.source, &mut fits.never, rest, version),
        ("daddr", _) => return addresses(&mut rule.destination, &mut fits.never, rest, version),
        ("version", _) => {
            let is_negated = rest.negated();
            if rest.word() != if version == IpVersion::V4 { "4" } else { "6" } {
                return wrong("the other version stands in the other header", "write ip version 4 or ip6 version 6");
            }
            narrow_family(rule, version)?;
            return if is_negated { fits_nothing("version", Kind::Excluded) } else { Ok(()) };
        }
        ("length", IpVersion::V4) => LENGTH.within(Field::Length, rest)?,
        // The length of the IPv6 payload, which excludes the header.
        ("length", IpVersion::V6) => {
            let lengths = LENGTH.read(rest)?;
            Within::new(Field::Length, lengths.into_iter().map(|(first, last)| (first + 40, last + 40)).collect())
        }
        ("ttl", IpVersion::V4) | ("hoplimit", IpVersion::V6) => {
            TTL.within(if rest.scope.has_all_hops { Field::ArrivedTtl } else { Field::Ttl }, rest)?
        }
        ("dscp", _) => DSCP.within(Field::Dscp, rest)?,
        ("ecn", _) => ECN.within(Field::Ecn, rest)?,
        ("id", IpVersion::V4) => ID.within(Field::Identification, rest)?,
        ("hdrlength", IpVersion::V4) => HEADER_LENGTH.within(Field::HeaderLength, rest)?,
        ("checksum", IpVersion::V4) => CHECKSUM.within(Field::Checksum, rest)?,
        ("flowlabel", IpVersion::V6) => FLOW_LABEL.within(Field::FlowLabel, rest)?,
        ("option", IpVersion::V4) => return ip_option(rule, rest),
        ("frag-off", IpVersion::V4) => match is_a_piece(rest) {
            Some(is_one) => {
                fits.never |= is_one;
                if is_one && rest.scope.is_early {
                    rest.scope.note(
                        "it is never used: no packet is a piece to the rules, what becomes of the first piece of a datagram becomes of all",
                    );
                }
                return narrow_family(rule, version);
            }
            None => FRAGMENTS.within(Field::Fragments, rest)?,
        },
        (other, _) => {
            let known: &[&str] = if version == IpVersion::V4 { &IP } else { &IP6 };
            let of = if version == IpVersion::V4 { "ip" } else { "ip6" };
            return wrong(format!("`{other}` of an IP header is not looked at"), one_of(of, other, known));
        }
    };
    narrow_within(rule, within)?;
    narrow_family(rule, version)
}

/// Reads `& 0x1fff != 0`, if it comes next and only asks whether the packet is a fragment. The kernel reassembles datagrams
/// before the rules, so none is.
fn is_a_piece(rest: &mut Words<'_>) -> Option<bool> {
    let mut look = *rest;
    if !look.take("&") {
        return None;
    }
    number(&look.word()).filter(|mask| (1..=0x3fff).contains(mask))?;
    let (not, value) = (look.negated(), number(&look.word())?);
    *rest = look;
    Some((value == 0) == not)
}

pub(super) fn any_protocol_with_ports(rule: &mut Rule) -> Parsed<()> {
    narrow_protocol(rule, [numbered::TCP, numbered::UDP, numbered::SCTP].map(Protocol).to_vec())
}

pub(super) const PROTOCOL: Numbers = Numbers {
    what: "a protocol: a name such as tcp, or a number up to 255",
    last: 255,
    named: |name| protocol(name).map(|found| found.0.into()),
};

fn protocols(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    let ranges = PROTOCOL.fitting(rest)?;
    // nftables refuses only a header of one protocol after another protocol.
    narrow(&mut rule.protocol, each(&ranges).collect(), equal, ("protocol", Kind::Excluded))
}

pub(super) fn each(ranges: &[(u64, u64)]) -> impl Iterator<Item = Protocol> {
    ranges.iter().flat_map(|(first, last)| *first..=*last).map(|it| Protocol(it as u8))
}

fn meta(fits: &mut Fits, rest: &mut Words<'_>, key: &str) -> Parsed<()> {
    match key {
        "l4proto" => protocols(&mut fits.rule, rest),
        "iif" | "oif" | "iifname" | "oifname" => interface(fits, rest, key),
        "nfproto" | "protocol" => families(fits, rest, key),
        "length" => narrow_within(&mut fits.rule, LENGTH.within(Field::Length, rest)?),
        "pkttype" => packet_type(&mut fits.rule, rest),
        "hour" | "day" | "time" => when(&mut fits.rule, rest, key),
        // No packet here has been in a tunnel of this machine.
        "ipsec" | "secpath" => {
            fits.never |= is_there(rest, "a tunnel", "write meta ipsec exists or missing")?;
            Ok(())
        }
        // No local program sends a forwarded packet, so it matches no user, as in the kernel.
        "skuid" | "skgid" | "cgroup" if rest.scope.in_table && rest.scope.direction.is_none() => {
            rest.scope.note("it is never used: what is sent on was sent by no program of this machine");
            fits.never = true;
            passed_over(rest)
        }
        "mark" => wrong("marks cannot be concatenated", "write meta mark 1 before the other fields"),
        other => unknown_meta(other),
    }
}

/// Skips a value or a set of values.
fn passed_over(rest: &mut Words<'_>) -> Parsed<()> {
    rest.negated();
    if is_comparison(rest.peek()) {
        rest.word();
    }
    rest.elements("a condition").map(drop)
}

/// Reads `ipv4`, `{ ip, ip6 }`, `arp` or `!= ip6`. Packets of other protocols do not come here.
pub(super) fn families(fits: &mut Fits, rest: &mut Words<'_>, of: &str) -> Parsed<()> {
    let (names, is_negated) = rest.set(of)?;
    let (is_family, mut named, mut names_arp) = (of == "nfproto", [false; 2], false);
    for name in &names {
        match (name.as_str(), number(name)) {
            ("ipv4" | "ip", _) => named[0] = true,
            ("ipv6" | "ip6", _) => named[1] = true,
            (_, Some(2)) if is_family => named[0] = true,
            (_, Some(10)) if is_family => named[1] = true,
            (_, Some(0x0800)) if !is_family => named[0] = true,
            (_, Some(0x86dd)) if !is_family => named[1] = true,
            ("arp", _) | (_, Some(0x0806)) if !is_family => names_arp = true,
            // No packet is of another one.
            ("arp", _) | (_, Some(_)) => {}
            ("vlan" | "8021q" | "8021ad", _) if of == "protocol" => {}
            (other, _) => {
                return wrong(
                    format!("`{other}` is no family"),
                    "write ipv4 or ipv6, behind protocol and type ip or ip6",
                );
            }
        }
    }
    let fits_arp = !is_family && names_arp != is_negated;
    if !fits_arp {
        fits.rule.states &= !states::ARP;
    }
    match (named.map(|named| named != is_negated), fits_arp) {
        ([false, false], true) => {
            arp::only(fits);
            Ok(())
        }
        ([false, false], false) => {
            fits.never = true;
            Ok(())
        }
        ([true, true], _) => Ok(()),
        ([has_v4, _], _) => {
            // ARP has addresses of IPv4, so one rule is not about it and IPv6.
            if fits_arp && !has_v4 && fits.rule.states & states::ARP != 0 {
                fits.rule.states &= states::ALL;
                rest.scope.note_of_arp();
            }
            let version = if has_v4 { IpVersion::V4 } else { IpVersion::V6 };
            let all = vec![Addresses::all(version)];
            narrow(&mut fits.rule.source, all, Addresses::meet, ("address", Kind::Excluded))
        }
    }
}

pub(super) fn protocol(text: &str) -> Option<Protocol> {
    // The name that nftables uses.
    let text = if text == "ipv6-icmp" { "icmpv6" } else { text };
    NameOrNumber::Name(text.to_owned()).try_into().ok()
}
