//! Addresses in conditions: lists of them, and kinds of them.

use std::net::Ipv6Addr;

use super::conditions::narrow;
use super::reader::Words;
use super::{Parsed, wrong};
use crate::firewall::rules::Rule;
use crate::firewall::values::Addresses;
use crate::parts::Many;

/// Addresses, or what they leave of all.
pub(super) fn addresses(place: &mut Many<Addresses>, never: &mut bool, rest: &mut Words<'_>, v4: bool) -> Parsed<()> {
    let (texts, is_negated) = rest.set("an address")?;
    let mut ranges = Vec::new();
    for text in &texts {
        match text.parse::<Addresses>() {
            Ok(range) if range.is_v4() == v4 => ranges.push(range),
            _ if !v4 && is_mapped(text) => {}
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
    if ranges.is_empty() && is_negated {
        return wrong("no address is left", "write != and less than all addresses");
    }
    *never |= ranges.is_empty();
    if ranges.is_empty() { Ok(()) } else { narrow(place, ranges, Addresses::meet, "address") }
}

/// Whether they are addresses of IPv6 that stand for such of IPv4, which no packet has (RFC 4291 section 2.5.5.2).
fn is_mapped(text: &str) -> bool {
    let address = text.split('/').next().and_then(|address| address.parse::<Ipv6Addr>().ok());
    address.is_some_and(|address| address.to_ipv4_mapped().is_some())
}

/// Groups and broadcast are told by the IP destination.
pub(super) fn packet_type(rule: &mut Rule, rest: &mut Words<'_>) -> Parsed<()> {
    const KINDS: [&str; 3] = ["host", "multicast", "broadcast"];
    let (kinds, is_negated) = rest.set("pkttype")?;
    let wanted = KINDS.into_iter().filter(|kind| kinds.iter().any(|it| it == kind) != is_negated);
    let ranges: Vec<_> = wanted.flat_map(addresses_of).collect();
    if kinds.iter().any(|kind| !KINDS.contains(&kind.as_str())) || ranges.is_empty() {
        return wrong(format!("`pkttype {}` is not known", kinds.join(", ")), "write host, multicast or broadcast");
    }
    narrow(&mut rule.destination, ranges, Addresses::meet, "address")
}

/// The addresses of groups, of everybody, or of one machine.
pub(super) fn addresses_of(kind: &str) -> Vec<Addresses> {
    let of = |texts: &[&str]| -> Vec<Addresses> { texts.iter().filter_map(|text| text.parse().ok()).collect() };
    let (groups, broadcast) = (of(&["224.0.0.0/4", "ff00::/8"]), of(&["255.255.255.255"]));
    match kind {
        "multicast" => groups,
        "broadcast" => broadcast,
        _ => [true, false]
            .into_iter()
            .flat_map(|v4| {
                let taken = groups.iter().chain(&broadcast).filter(|range| range.is_v4() == v4).copied().collect();
                Addresses::except(v4, taken)
            })
            .collect(),
    }
}
