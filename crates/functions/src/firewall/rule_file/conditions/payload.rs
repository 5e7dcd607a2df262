//! Conditions on bits at a given offset, `@th,16,16 53`, and on header fields that are read in the same way: `esp spi 100`,
//! `igmp type 17`.

use braid_nf::packet::IpVersion;

use super::numbers::{Numbers, nameless, number};
use super::{PROTOCOL, narrow_family, narrow_protocol, narrow_within, protocol};
use crate::firewall::conditions::fields::{Field, Within};
use crate::firewall::conditions::payload::{BITS_MAX, Base, NO_PAYLOAD, Place, SLOTS};
use crate::firewall::rule_file::reader::{PORT, Scope, Words};
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;

/// The number of tokens of a place: `@th`, `,`, `16`, `,`, `16`.
pub(in crate::firewall::rule_file) const LEN: usize = 5;

pub(in crate::firewall::rule_file) const NUMBER: Numbers =
    Numbers { what: "a number such as 53, 0x35 or 1-9", last: 0, named: nameless };

/// Whether a word begins a place.
pub(in crate::firewall::rule_file) fn is_place(word: &str) -> bool {
    Base::named(word).is_some()
}

/// Reads `@th,16,16 { 53, 80 }`, whose first word has been read.
pub(in crate::firewall::rule_file) fn place(rule: &mut Rule, rest: &mut Words<'_>, base: &str) -> Parsed<()> {
    let form = "write @th,16,16 53: the base, the first bit and how many; bases are @ll, @nh, @th and @ih";
    let mut next = || match (rest.take(","), rest.word()) {
        (true, word) => number(&word),
        _ => None,
    };
    let (Some(base), Some(first), Some(bits)) = (Base::named(base), next(), next()) else {
        return wrong("a place without its first bit and its length", form);
    };
    let instead = || {
        let (more, behind) = (bits.saturating_sub(BITS_MAX.into()), first + u64::from(BITS_MAX));
        match more.min(BITS_MAX.into()) {
            0 => form.to_owned(),
            // The second part goes in the same rule, because both must match.
            more => format!("write two of them: the first {BITS_MAX} bits, and those behind: …,{behind},{more}"),
        }
    };
    let (Ok(first), Some(bits)) =
        (u16::try_from(first), u8::try_from(bits).ok().filter(|it| (1..=BITS_MAX).contains(it)))
    else {
        return wrong(format!("{bits} bits from {first} on: 1 to {BITS_MAX} are compared at once"), instead());
    };
    narrow_place(rule, rest, (Place { base, first, bits }, NUMBER))
}

/// Narrows by the condition on a place that comes next.
pub(in crate::firewall::rule_file) fn narrow_place(
    rule: &mut Rule,
    rest: &mut Words<'_>,
    (place, numbers): (Place, Numbers),
) -> Parsed<()> {
    let field = slot(place, rest.scope)?;
    let within = Numbers { last: place.last(), ..numbers }.within_unless(field, NO_PAYLOAD, rest)?;
    narrow_within(rule, Within { place: Some(place), ..within })
}

/// The place of ports, by `sport` or `dport`.
pub(in crate::firewall::rule_file) fn port_place(what: &str) -> Option<Place> {
    let first = match what {
        "sport" => 0,
        "dport" => 16,
        _ => return None,
    };
    Some(Place { base: Base::Transport, first, bits: 16 })
}

/// Restricts to packets long enough to contain the place that the words name.
pub(in crate::firewall::rule_file) fn reaches(rule: &mut Rule, words: &Words<'_>) -> Parsed<()> {
    let (first, second) = (words.peek(), words.peek_at(1));
    let known = match Base::named(first) {
        Some(base) => {
            let [first, bits] = [2, 4].map(|at| number(words.peek_at(at)).unwrap_or_default());
            Some(Place { base, first: first as u16, bits: bits as u8 })
        }
        None if first == "th" => port_place(second),
        None => named(first, second).map(|(place, _)| place),
    };
    let Some(place) = known else { return refused(first, second) };
    narrow_protocol_of(rule, first)?;
    let within = Within::new(slot(place, words.scope)?, vec![(0, place.last())]);
    narrow_within(rule, Within { place: Some(place), ..within })
}

/// Returns the field that holds a place, and assigns one if necessary.
fn slot(place: Place, scope: &Scope<'_>) -> Parsed<Field> {
    let mut places = scope.places.borrow_mut();
    let at = places.iter().position(|known| *known == place).unwrap_or_else(|| {
        places.push(place);
        places.len() - 1
    });
    match SLOTS.get(at) {
        Some(field) => Ok(*field),
        None => wrong(
            format!("the rules look at more than {} places of packets", SLOTS.len()),
            "write fields by their names where they have one: th dport 53 instead of @th,16,16 53",
        ),
    }
}

/// Reads what follows `ah`, `esp`, `comp`, `igmp`, `udplite`, `dccp` or `sctp`.
pub(in crate::firewall::rule_file) fn header(rule: &mut Rule, rest: &mut Words<'_>, of: &str) -> Parsed<()> {
    let what = rest.word();
    let Some(named) = named(of, &what) else { return refused(of, &what) };
    narrow_protocol_of(rule, of)?;
    narrow_place(rule, rest, named)
}

fn narrow_protocol_of(rule: &mut Rule, of: &str) -> Parsed<()> {
    if of == "igmp" {
        narrow_family(rule, IpVersion::V4)?;
    }
    if is_place(of) || of == "th" { Ok(()) } else { narrow_protocol(rule, protocol(of).into_iter().collect()) }
}

/// Whether fields of this header are read by their places.
pub(in crate::firewall::rule_file) fn is_header(word: &str) -> bool {
    FIELDS.iter().any(|(of, ..)| *of == word)
}

fn named(of: &str, what: &str) -> Option<(Place, Numbers)> {
    let (.., first, bits, numbers) = FIELDS.iter().find(|(known, name, ..)| (*known, *name) == (of, what))?;
    Some((Place { base: Base::Transport, first: *first, bits: *bits }, *numbers))
}

fn refused<T>(of: &str, what: &str) -> Parsed<T> {
    if (of, what) == ("sctp", "chunk") {
        let instead = "write meta l4proto sctp @th,96,8 1 for packets that begin with an INIT: the type of the first chunk stands there";
        return wrong("chunks of sctp are not looked at", instead);
    }
    let known: Vec<_> = FIELDS.iter().filter(|(known, ..)| *known == of).map(|(_, name, ..)| *name).collect();
    wrong(format!("`{what}` of {of} is not looked at"), format!("write one of {of} {}", known.join(", ")))
}

const IGMP_TYPE: Numbers = Numbers { what: "a type such as membership-query or 0x16", last: 255, named: igmp_type };
const GROUP: Numbers = Numbers { what: "a group such as 224.0.0.251", last: u32::MAX as u64, named: address };
const DCCP_TYPE: Numbers = Numbers { what: "a type such as request, data or 0", last: 15, named: dccp_type };

/// Fields by protocol and name, with the first bit and the number of bits (RFC 4302, 4303, 3173, 3376, 3828, 4340, 9260).
const FIELDS: &[(&str, &str, u16, u8, Numbers)] = &[
    ("ah", "nexthdr", 0, 8, PROTOCOL),
    ("ah", "hdrlength", 8, 8, NUMBER),
    ("ah", "reserved", 16, 16, NUMBER),
    ("ah", "spi", 32, 32, NUMBER),
    ("ah", "sequence", 64, 32, NUMBER),
    ("esp", "spi", 0, 32, NUMBER),
    ("esp", "sequence", 32, 32, NUMBER),
    ("comp", "nexthdr", 0, 8, PROTOCOL),
    ("comp", "flags", 8, 8, NUMBER),
    ("comp", "cpi", 16, 16, NUMBER),
    ("igmp", "type", 0, 8, IGMP_TYPE),
    ("igmp", "mrt", 8, 8, NUMBER),
    ("igmp", "checksum", 16, 16, NUMBER),
    ("igmp", "group", 32, 32, GROUP),
    ("udplite", "sport", 0, 16, PORT),
    ("udplite", "dport", 16, 16, PORT),
    ("udplite", "checksum", 48, 16, NUMBER),
    ("dccp", "sport", 0, 16, PORT),
    ("dccp", "dport", 16, 16, PORT),
    ("dccp", "type", 67, 4, DCCP_TYPE),
    ("sctp", "vtag", 32, 32, NUMBER),
    ("sctp", "checksum", 64, 32, NUMBER),
];

fn igmp_type(name: &str) -> Option<u64> {
    Some(match name {
        "membership-query" => 0x11,
        "membership-report-v1" => 0x12,
        "membership-report-v2" => 0x16,
        "leave-group" => 0x17,
        "membership-report-v3" => 0x22,
        _ => return None,
    })
}

fn dccp_type(name: &str) -> Option<u64> {
    let names = ["request", "response", "data", "ack", "dataack", "closereq", "close", "reset", "sync", "syncack"];
    names.iter().position(|known| *known == name).map(|at| at as u64)
}

fn address(text: &str) -> Option<u64> {
    text.parse::<std::net::Ipv4Addr>().ok().map(|address| u32::from(address).into())
}
