//! Conditions about addresses: lists of addresses, and kinds of them.

use braid_nf::packet::IpVersion;
use std::net::Ipv6Addr;

use super::arithmetic::{Made, Reckoner, comes};
use super::narrow;
use super::numbers::{is_comparison, nothing_left, number};
use crate::firewall::conditions::masked::{End, Masked};
use crate::firewall::conditions::values::Addresses;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Kind, Parsed, wrong};
use crate::firewall::rules::Rule;
use crate::parts::Many;

/// The version of the IP header that a keyword names: `ip` or `ip6`.
pub(in crate::firewall::rule_file) fn family(keyword: &str) -> IpVersion {
    if keyword == "ip6" { IpVersion::V6 } else { IpVersion::V4 }
}

/// The version of IP to which `icmp` or `icmpv6` belongs.
pub(in crate::firewall::rule_file) fn icmp_version(protocol: &str) -> IpVersion {
    if protocol == "icmpv6" { IpVersion::V6 } else { IpVersion::V4 }
}

/// Reads a condition on an address: a list, a comparison, or a network mask.
pub(in crate::firewall::rule_file) fn addresses(
    place: &mut Many<Addresses>,
    never: &mut bool,
    rest: &mut Words<'_>,
    version: IpVersion,
) -> Parsed<()> {
    if let Some(ranges) = compared(rest, version)? {
        return if ranges.is_empty() { none_left() } else { narrow_addresses(place, ranges, version) };
    }
    let bits = if rest.take("&") || rest.take("and") { Some(mask(rest, version)?.leading_ones()) } else { None };
    let (mut ranges, is_negated) = listed(rest, version)?;
    if let Some(bits) = bits {
        // An address with bits beyond the mask equals no masked address.
        ranges = ranges.iter().filter_map(|range| range.under(bits)).collect();
    }
    if is_negated {
        ranges = Addresses::except(version, ranges);
    }
    if ranges.is_empty() && is_negated {
        return none_left();
    }
    *never |= ranges.is_empty();
    if ranges.is_empty() { Ok(()) } else { narrow_addresses(place, ranges, version) }
}

/// Reads an address, a range or a set of them, and whether `!=` precedes it.
fn listed(rest: &mut Words<'_>, version: IpVersion) -> Parsed<(Vec<Addresses>, bool)> {
    let (texts, is_negated) = rest.set("an address")?;
    let mut ranges = Vec::new();
    for text in &texts {
        match text.parse::<Addresses>() {
            Ok(range) if range.version() == version => ranges.push(range),
            _ if version == IpVersion::V6 && is_mapped(text) => {}
            Ok(range) => {
                return wrong(format!("{range} is of the other family"), "write ip for IPv4 and ip6 for IPv6");
            }
            Err(said) if said.contains("ends before it begins") => return backwards(text),
            Err(_) if matches!(&**text, "<<" | ">>") => {
                return wrong(
                    "addresses are not shifted here",
                    "write a range or a mask: ip saddr & 255.255.0.0 == 10.1.0.0",
                );
            }
            Err(_) => {
                let instead = "write 10.0.0.0/8, 2001:db8::/32, 10.0.0.1, 10.0.0.1-10.0.0.9, or { several, of, them }";
                return wrong(format!("`{text}` is no address range"), instead);
            }
        }
    }
    Ok((ranges, is_negated))
}

fn backwards<T>(text: &str) -> Parsed<T> {
    wrong(format!("`{text}` ends before it begins"), "write the smaller end first")
}

/// Restricts a field to these addresses of one family. It is a conflict, not just an exclusion, if the rule is for the other
/// family.
fn narrow_addresses(place: &mut Many<Addresses>, ranges: Vec<Addresses>, version: IpVersion) -> Parsed<()> {
    let is_other = !place.0.is_empty() && place.0.iter().all(|range| range.version() != version);
    let kind = if is_other { Kind::Conflict } else { Kind::Excluded };
    narrow(place, ranges, Addresses::meet, ("address", kind))
}

fn none_left<T>() -> Parsed<T> {
    nothing_left("write less than all addresses")
}

/// Reads a comparison such as `> 10.0.0.9`, if one comes next, as the ranges of addresses for which it holds.
fn compared(rest: &mut Words<'_>, version: IpVersion) -> Parsed<Option<Vec<Addresses>>> {
    let sign = rest.peek();
    if !is_comparison(sign) {
        return Ok(None);
    }
    rest.word();
    let text = rest.word();
    let Some(end) = one(&text, version) else {
        return wrong(format!("`{text}` is not one address"), "write > 10.0.0.9, or 10.0.0.1-10.0.0.9");
    };
    let all = Addresses::all(version);
    let taken = match sign {
        ">" | "gt" => Some((all.first, end)),
        ">=" | "ge" => end.checked_sub(1).map(|last| (all.first, last)),
        "<" | "lt" => Some((end, all.last)),
        _ => end.checked_add(1).map(|first| (first, all.last)),
    };
    let taken = taken.filter(|(first, last)| first <= last).map(|(first, last)| Addresses { first, last });
    Ok(Some(Addresses::except(version, taken.into_iter().collect())))
}

/// Reads a mask such as `255.255.255.0` or `::ffff:ffff`, as a number aligned to the highest bit.
fn mask(rest: &mut Words<'_>, version: IpVersion) -> Parsed<u128> {
    let text = rest.word();
    match one(&text, version) {
        Some(mask) => Ok(if version == IpVersion::V4 { mask << 96 } else { mask }),
        None => wrong(format!("`{text}` is no mask"), "write & 255.255.255.0, or & ::ffff:ffff:ffff:ffff"),
    }
}

/// Parses a single address of the family.
fn one(text: &str, version: IpVersion) -> Option<u128> {
    let range = text.parse::<Addresses>().ok()?;
    (range.version() == version && range.first == range.last).then_some(range.first)
}

/// Reads a masked condition such as `& ::ffff:ffff:ffff:ffff == ::1234`, `^ 0.0.0.1 == 10.0.0.8` or `| 0.0.0.255 { … }`.
/// Returns `None`, with nothing read, if it is only a network mask.
pub(in crate::firewall::rule_file) fn masked(
    rest: &mut Words<'_>,
    end: End,
    version: IpVersion,
) -> Parsed<Option<Masked>> {
    if !comes(rest, 0) {
        return Ok(None);
    }
    // The bits before an IPv4 address are those of its mapped form.
    let bits = if version == IpVersion::V4 { u32::MAX.into() } else { u128::MAX };
    let mut look = *rest;
    let one = |rest: &mut Words<'_>| {
        let text = rest.word();
        match one(&text, version) {
            Some(address) => Ok(Made::constant(address & bits)),
            None => wrong(format!("`{text}` is no mask"), "write & 255.255.255.0, or & ::ffff:ffff:ffff:ffff"),
        }
    };
    let made = Reckoner::new(one).behind(Made::all(()), &mut look)?;
    let mask = made.mask | !bits;
    if made.turned == 0 && mask.leading_ones() == mask.count_ones() {
        return Ok(None);
    }
    *rest = look;
    let (ranges, not) = match bounded(rest, version, made.last_turned)? {
        Some(range) => (vec![range], false),
        None => {
            let (listed, not) = listed(rest, version)?;
            (listed.iter().map(|range| (range.first ^ made.last_turned, range.last ^ made.last_turned)).collect(), not)
        }
    };
    if ranges.iter().any(|(first, last)| first > last) {
        return wrong("a range ends before it begins once `^` has turned it over", "write its addresses");
    }
    Ok(Some(Masked::under(end, (mask, made.turned ^ made.last_turned), ranges, not)))
}

/// Reads a comparison such as `> 0.0.0.9`, if one comes next, as a range.
fn bounded(rest: &mut Words<'_>, version: IpVersion, turned: u128) -> Parsed<Option<(u128, u128)>> {
    let sign = rest.peek();
    if !is_comparison(sign) {
        return Ok(None);
    }
    rest.word();
    let text = rest.word();
    let Some(end) = one(&text, version).map(|end| end ^ turned) else {
        return wrong(format!("`{text}` is not one address"), "write > 0.0.0.9");
    };
    let all = Addresses::all(version);
    let range = match sign {
        ">" | "gt" => end.checked_add(1).map(|first| (first, all.last)),
        ">=" | "ge" => Some((end, all.last)),
        "<" | "lt" => end.checked_sub(1).map(|last| (all.first, last)),
        _ => Some((all.first, end)),
    };
    match range.filter(|(first, last)| first <= last) {
        None => none_left(),
        range => Ok(range),
    }
}

/// Whether a text is an IPv4-mapped IPv6 address, which no packet has (RFC 4291 section 2.5.5.2).
fn is_mapped(text: &str) -> bool {
    let address = text.split('/').next().and_then(|address| address.parse::<Ipv6Addr>().ok());
    address.is_some_and(|address| address.to_ipv4_mapped().is_some())
}

/// Reads `pkttype`. Groups and broadcast are recognised by the IP destination.
pub(in crate::firewall::rule_file) fn packet_type(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    // In the order of their numbers (`PACKET_HOST` and the others in `linux/if_packet.h`).
    const KINDS: [&str; 3] = ["host", "broadcast", "multicast"];
    let (mut kinds, is_negated) = rest.set("pkttype")?;
    for kind in &mut kinds {
        let numbered = number(kind).and_then(|of| KINDS.get(usize::try_from(of).ok()?).copied());
        if let Some(known) = numbered.or((*kind == "unicast").then_some("host")) {
            *kind = known.to_owned();
        }
    }
    let wanted = KINDS.into_iter().filter(|kind| kinds.iter().any(|it| it == kind) != is_negated);
    let ranges: Vec<_> = wanted.flat_map(addresses_of).collect();
    if kinds.iter().any(|kind| !KINDS.contains(&kind.as_str())) || ranges.is_empty() {
        return wrong(format!("`pkttype {}` is not known", kinds.join(", ")), "write host, multicast or broadcast");
    }
    narrow(&mut rule.destination, ranges, Addresses::meet, ("address", Kind::Excluded))
}

/// The addresses of a kind: multicast, broadcast, or otherwise those of single hosts.
pub(in crate::firewall::rule_file) fn addresses_of(kind: &str) -> Vec<Addresses> {
    let of = |texts: &[&str]| -> Vec<Addresses> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
    let (groups, broadcast) = (of(&["224.0.0.0/4", "ff00::/8"]), of(&["255.255.255.255"]));
    match kind {
        "multicast" => groups,
        "broadcast" => broadcast,
        _ => IpVersion::BOTH
            .into_iter()
            .flat_map(|version| {
                let taken =
                    groups.iter().chain(&broadcast).filter(|range| range.version() == version).copied().collect();
                Addresses::except(version, taken)
            })
            .collect(),
    }
}
