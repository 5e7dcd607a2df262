//! Statements and conditions about sets that packets change: `add @floods { ip saddr limit rate over 10/second } drop`, `update`, `delete`, `meter`,
//! `ct count over 20`, and `ip saddr @banned` where rules add to `banned`.

use braid_nf::packet::IpVersion;
use std::mem::discriminant;
use std::sync::Arc;

use braid_nf::packet::services;

use super::amounts::rate;
use crate::firewall::conditions::fields::Field;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::connection::states;
use crate::firewall::effects::dynamic_sets::{Act, Dynamic, Key, Keyed, PARTS_MAX, Part, SIZE};
use crate::firewall::rule_file::conditions::addresses::family;
use crate::firewall::rule_file::conditions::arp::only;
use crate::firewall::rule_file::conditions::ether::some_station;
use crate::firewall::rule_file::conditions::{Fits, any_protocol_with_ports, narrow_family, narrow_protocol, protocol};
use crate::firewall::rule_file::file::tokens::Token;
use crate::firewall::rule_file::file::types::{self, agreed};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::unsupported::NO_QUOTAS;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Direction;

const FORM: &str =
    "write add @floods { ip saddr limit rate over 10/second } drop, with set floods { type ipv4_addr; flags dynamic; }";

/// A statement that begins with `add`, `update`, `delete`, `meter` or `ct count`, if one comes next.
pub(in crate::firewall::rule_file) fn keyed(rest: &mut Words<'_>, fits: &mut [Fits]) -> Parsed<Option<Keyed>> {
    match rest.peek() {
        "add" | "update" | "delete" if rest.peek_at(1).starts_with('@') => {
            let what = rest.word();
            let name = rest.word();
            let Some(set) = dynamic(rest, name.trim_start_matches('@')) else {
                return wrong(
                    format!("`{name}` is no set that packets change"),
                    "write set floods { type ipv4_addr; flags dynamic; } in the same table",
                );
            };
            match what.as_str() {
                "delete" => removed(rest, fits, set).map(Some),
                what => element(rest, fits, set, what == "update").map(Some),
            }
        }
        "meter" => {
            rest.word();
            let name = rest.word();
            let size = if rest.take("size") { number(rest)? } else { SIZE };
            // A set of the table, created if it does not exist.
            let set = dynamic(rest, &name).unwrap_or_else(|| own(rest, name, size));
            // Each packet extends the life of its element in a meter.
            element(rest, fits, set, true).map(Some)
        }
        "ct" if rest.peek_at(1) == "count" => {
            rest.word();
            let at = rest.scope.at.get();
            let set = own(rest, format!("ct count {}:{}:{}", at.file, at.line, at.column), 1);
            let act = count(rest)?;
            Ok(Some(Keyed { set, key: Key::new(), act, refreshes: false, timeout_s: None }))
        }
        _ => Ok(None),
    }
}

/// A set that a statement has for itself.
fn own(rest: &Words<'_>, name: String, size: u32) -> Arc<Dynamic> {
    let (table, types) = (rest.scope.table.to_owned(), Vec::new());
    Dynamic { table, name, types, size, timeout_s: None, act: None, given: Vec::new() }.into()
}

/// Finds a set that packets change, by name.
pub(in crate::firewall::rule_file) fn dynamic(rest: &Words<'_>, name: &str) -> Option<Arc<Dynamic>> {
    rest.scope.dynamic.iter().find(|set| set.name == name).cloned()
}

/// Reads `{ ip saddr timeout 1h limit rate over 10/second }`.
fn element(rest: &mut Words<'_>, fits: &mut [Fits], set: Arc<Dynamic>, refreshes: bool) -> Parsed<Keyed> {
    if !rest.take("{") {
        return wrong("a set without what is put into it", FORM);
    }
    let (key, mut timeout_s, mut own) = (key(rest, fits, &set)?, set.timeout_s, None);
    loop {
        match rest.peek() {
            "}" => {
                rest.word();
                let act = match (own, &set.act) {
                    (Some(own), Some(act)) if discriminant(&own) != discriminant(act) => {
                        return wrong(
                            format!("the set `{}` asks its elements for something else than the rule does", set.name),
                            "write the limit or count in one place",
                        );
                    }
                    (own, act) => own.or_else(|| act.clone()).unwrap_or(Act::Add),
                };
                if matches!(act, Act::Count { .. }) && key.iter().any(|part| matches!(part, Part::Station(_))) {
                    return wrong("connections are not counted by stations", "count them by addresses and ports");
                }
                return Ok(Keyed { set, key, act, refreshes, timeout_s });
            }
            "timeout" => {
                rest.word();
                timeout_s = Some(duration(rest)?);
            }
            "limit" | "ct" if own.is_some() => {
                rest.word();
                return wrong("two limits or counts of one element", "write two rules, with a set each");
            }
            "limit" => {
                rest.word();
                own = Some(Act::Limit(rate(rest)?));
            }
            "ct" if rest.peek_at(1) == "count" => {
                rest.word();
                own = Some(count(rest)?);
            }
            "quota" => {
                rest.word();
                return wrong("elements have no quotas of their own", NO_QUOTAS);
            }
            ":" => {
                rest.word();
                return wrong(
                    "packets put nothing into maps",
                    "write add @seen { ip saddr timeout 1d }, and ip saddr @seen before what the map would give",
                );
            }
            // How much an element has counted, and when it was asked for, is not used.
            "counter" | "last" => drop(rest.word()),
            _ => return wrong(format!("`{}` is not said of an element", rest.word()), FORM),
        }
    }
}

/// `{ ip saddr }`: the element that leaves.
fn removed(rest: &mut Words<'_>, fits: &mut [Fits], set: Arc<Dynamic>) -> Parsed<Keyed> {
    if !set.given.is_empty() {
        return wrong(
            format!("elements of the set `{}` stand in the file, and what stands there stays", set.name),
            "write what packets put in into a set of its own, of which they can be deleted",
        );
    }
    if !rest.take("{") {
        return wrong("a set without what leaves it", "write delete @floods { ip saddr }");
    }
    let key = key(rest, fits, &set)?;
    match rest.word().as_str() {
        "}" => Ok(Keyed { set, key, act: Act::Remove, refreshes: false, timeout_s: None }),
        other => wrong(format!("`{other}` is not said of an element that leaves"), "write delete @floods { ip saddr }"),
    }
}

/// `count over 20`, `count 20`.
pub(in crate::firewall::rule_file) fn count(rest: &mut Words<'_>) -> Parsed<Act> {
    rest.word();
    let over = rest.take("over");
    Ok(Act::Count { most: number(rest)?, over })
}

/// Reads a key such as `ip saddr . tcp dport`: source, destination and ports, as far as they are given.
fn key(rest: &mut Words<'_>, fits: &mut [Fits], set: &Dynamic) -> Parsed<Key> {
    let (mut key, mut types) = (Key::new(), Vec::new());
    loop {
        types.push(field(rest, fits, &mut key)?);
        if !rest.take(".") {
            return agreed(set, &types).map(|()| key);
        }
    }
}

/// Reads the key of a condition `ip saddr . tcp dport @banned`.
pub(in crate::firewall::rule_file) fn key_of(
    fields: &[&[Token]],
    rest: &Words<'_>,
    fits: &mut [Fits],
    set: &Dynamic,
) -> Parsed<Key> {
    let (mut key, mut types) = (Key::new(), Vec::new());
    for words in fields {
        let mut words = Words { words, scope: rest.scope };
        types.push(field(&mut words, fits, &mut key)?);
        words.end()?;
    }
    agreed(set, &types).map(|()| key)
}

/// Reads a field of a key, and returns its type.
fn field(rest: &mut Words<'_>, fits: &mut [Fits], key: &mut Key) -> Parsed<&'static str> {
    if key.len() == PARTS_MAX {
        return wrong(format!("an element of more than {PARTS_MAX} fields"), "write fewer of them");
    }
    if let Some((number, kind)) = constant(rest.peek()) {
        rest.word();
        key.push(Part::Constant(number));
        return Ok(kind);
    }
    let kind = types::of(rest.words.iter().take(3).map(|token| &*token.text));
    let (of, what) = (rest.word(), rest.word());
    let is_outbound = rest.scope.direction == Some(Direction::Outbound);
    let mut narrow = |by: &dyn Fn(&mut Fits) -> Parsed<()>| fits.iter_mut().try_for_each(by);
    match (of.as_str(), what.as_str()) {
        ("ip" | "ip6", "saddr" | "daddr") => {
            let version = family(&of);
            narrow(&|fits| narrow_family(&mut fits.rule, version))?;
            let mask = mask(rest, version)?;
            key.push(if what == "saddr" { Part::Source(mask) } else { Part::Destination(mask) });
        }
        ("tcp" | "udp" | "sctp" | "th", "sport" | "dport") => {
            match of.as_str() {
                "th" => narrow(&|fits| any_protocol_with_ports(&mut fits.rule))?,
                name => narrow(&|fits| narrow_protocol(&mut fits.rule, protocol(name).into_iter().collect()))?,
            }
            key.push(if what == "sport" { Part::SourcePort } else { Part::DestinationPort });
        }
        ("meta", "l4proto") | ("ip", "protocol") => {
            fits.iter_mut().for_each(|fits| fits.rule.states &= states::ALL);
            key.push(Part::Protocol);
        }
        ("arp", "saddr" | "daddr") => {
            let is_source = what == "saddr";
            fits.iter_mut().for_each(only);
            key.push(match (rest.word().as_str(), is_source) {
                ("ip", true) => Part::Source(mask(rest, IpVersion::V4)?),
                ("ip", false) => Part::Destination(mask(rest, IpVersion::V4)?),
                ("ether", _) => {
                    let field = if is_source { Field::ArpSource } else { Field::ArpTarget };
                    fits.iter_mut().try_for_each(|fits| some_station(fits, field, false))?;
                    Part::Station(field)
                }
                _ => return wrong("no address of ARP", "write arp saddr ip or arp saddr ether"),
            });
        }
        ("ether", "saddr" | "daddr") => {
            let station = if what == "saddr" { Field::EtherSource } else { Field::EtherDestination };
            narrow(&|fits| some_station(fits, station, is_outbound))?;
            key.push(Part::Station(station));
        }
        _ => {
            return wrong(
                format!("elements are not made of `{of} {what}`"),
                "write ip saddr, ip daddr, ip6 saddr, tcp dport, meta l4proto, ether saddr, or several with . between them",
            );
        }
    }
    // Each field above has one.
    Ok(kind.unwrap_or(types::NUMBER))
}

/// Parses a part of an element that a rule gives itself, with its type: an address, or the number or name of a port.
pub(in crate::firewall::rule_file) fn constant(word: &str) -> Option<(u128, &'static str)> {
    let address = || word.parse::<Addresses>().ok().filter(|one| one.first == one.last);
    let address = || {
        address().map(|one| {
            (
                one.first,
                match one.version() {
                    IpVersion::V4 => types::V4,
                    IpVersion::V6 => types::V6,
                },
            )
        })
    };
    let port = word.parse::<u16>().ok().or_else(|| services::port(word));
    port.map(|port| (port.into(), types::NUMBER)).or_else(address)
}

/// Reads `& 255.255.255.0` or `and ffff:ffff::`; without a mask, all bits of the address.
fn mask(rest: &mut Words<'_>, version: IpVersion) -> Parsed<u128> {
    if !rest.take("&") && !rest.take("and") {
        return Ok(u128::MAX);
    }
    let text = rest.word();
    match text.parse::<Addresses>() {
        Ok(one) if one.version() == version && one.first == one.last => {
            Ok(if version == IpVersion::V4 { one.first | u128::MAX << 32 } else { one.first })
        }
        _ => wrong(format!("`{text}` is no mask"), "write & 255.255.255.0, or & ffff:ffff:ffff:ffff::"),
    }
}

pub(in crate::firewall::rule_file) fn number(rest: &mut Words<'_>) -> Parsed<u32> {
    let text = rest.word();
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => wrong(format!("`{text}` is no number from 1 on"), "write a number such as 20"),
    }
}

/// Reads a duration such as `1d2h3m4s`, in seconds.
pub(in crate::firewall::rule_file) fn duration(rest: &mut Words<'_>) -> Parsed<u32> {
    let text = rest.word();
    match seconds(&text) {
        Some(seconds) if seconds > 0 => Ok(seconds),
        _ => wrong(format!("`{text}` is no time"), "write 30s, 10m, 1h or 1d"),
    }
}

/// Parses a duration such as `1d2h3m4s500ms` into seconds, rounded up.
pub(in crate::firewall::rule_file) fn seconds(text: &str) -> Option<u32> {
    const UNITS: [(&str, u64); 6] =
        [("ms", 1), ("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)];
    let (mut left, mut milliseconds) = (text, 0u64);
    while !left.is_empty() {
        let digits = left.find(|letter: char| !letter.is_ascii_digit())?;
        let number: u64 = left[..digits].parse().ok()?;
        let (unit, ms) = UNITS.iter().find(|(unit, _)| left[digits..].starts_with(unit))?;
        milliseconds = milliseconds.checked_add(number.checked_mul(*ms)?)?;
        left = &left[digits + unit.len()..];
    }
    milliseconds.div_ceil(1000).try_into().ok()
}
