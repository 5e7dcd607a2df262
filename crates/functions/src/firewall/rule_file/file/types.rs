//! Types of the fields of elements, by their names in nftables: those that a set declares, and those of the fields of packets that
//! rules put into it, or ask it for. A set whose elements have other types than the fields would never match.

use std::sync::Arc;

use crate::firewall::effects::dynamic_sets::Dynamic;
use crate::firewall::rule_file::{Parsed, wrong};

pub(in crate::firewall::rule_file) const V4: &str = "ipv4_addr";
pub(in crate::firewall::rule_file) const V6: &str = "ipv6_addr";
pub(in crate::firewall::rule_file) const STATION: &str = "ether_addr";
pub(in crate::firewall::rule_file) const PROTOCOL: &str = "inet_proto";
pub(in crate::firewall::rule_file) const PORT: &str = "inet_service";
/// A number that a rule gives itself. It fits any type but that of addresses.
pub(in crate::firewall::rule_file) const NUMBER: &str = "a number";

/// What to write instead of fields of other types.
pub(in crate::firewall::rule_file) const AS_DECLARED: &str = "write fields of these types in this order, or declare the set with the types of the fields: type ipv4_addr . inet_service";

/// The types of the fields in a declaration: its words behind `type`, or behind `typeof`, up to what a map gives.
pub(in crate::firewall::rule_file) fn declared(words: &[Arc<str>], is_typeof: bool) -> Vec<Arc<str>> {
    let key = words.split(|word| &**word == ":").next().unwrap_or_default();
    let of_field = |field: &[Arc<str>]| match of(field.iter().map(|word| &**word)) {
        Some(kind) if is_typeof => kind.into(),
        _ => field.join(" ").into(),
    };
    key.split(|word| &**word == ".").map(of_field).collect()
}

/// The type of a field of packets, which begins with these words; `None` for fields of which packets make no elements.
pub(in crate::firewall::rule_file) fn of<'a>(words: impl Iterator<Item = &'a str>) -> Option<&'static str> {
    let mut words = words.chain(std::iter::repeat("")).take(3);
    let [first, second, third] = [(); 3].map(|()| words.next().unwrap_or_default());
    Some(match (first, second) {
        ("ip", "saddr" | "daddr") => V4,
        ("ip6", "saddr" | "daddr") => V6,
        ("tcp" | "udp" | "sctp" | "dccp" | "udplite" | "th", "sport" | "dport") => PORT,
        ("meta", "l4proto") | ("ip", "protocol") | ("ip6", "nexthdr") => PROTOCOL,
        ("arp", "saddr" | "daddr") if third == "ip" => V4,
        ("ether" | "arp", "saddr" | "daddr") => STATION,
        _ => return None,
    })
}

/// Refuses fields of other types than those of a set's elements, as nftables does (`datatype mismatch`).
pub(in crate::firewall::rule_file) fn agreed(set: &Dynamic, fields: &[&str]) -> Parsed<()> {
    let fits = |(declared, field): (&Arc<str>, &&str)| match *field {
        NUMBER => ![V4, V6, STATION].contains(&&**declared),
        field => &**declared == field,
    };
    let is_so = set.types.len() == fields.len() && set.types.iter().zip(fields).all(fits);
    // A meter of a rule takes what the rule says.
    if is_so || set.types.is_empty() {
        return Ok(());
    }
    wrong(
        format!(
            "elements of the set `{}` are of type {}, and not {}",
            set.name,
            set.types.join(" . "),
            fields.join(" . ")
        ),
        AS_DECLARED,
    )
}
