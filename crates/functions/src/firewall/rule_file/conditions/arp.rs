//! Conditions on ARP packets: `arp operation reply`, `arp saddr ip 10.0.0.1`, `arp saddr ether @known`; and which rules are for
//! ARP at all.
//!
//! A rule that looks at no header of IP is for ARP too, in the chains that ARP meets. All of that holds only if the file
//! speaks of ARP: otherwise `non_ip` of the plan decides alone, and rules are about IP packets.

use super::addresses::{addresses, masked};
use super::ether::STATION;
use super::numbers::{Numbers, nameless};
use super::{Fits, narrow_within};
use crate::firewall::conditions::fields::{Field, NO_STATION};
use crate::firewall::conditions::masked::End;
use crate::firewall::conditions::payload::Base;
use crate::firewall::conditions::values::Addresses;
use crate::firewall::connection::states::{self, States};
use crate::firewall::rule_file::file::{File, Table};
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::unsupported::one_of;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Rule;
use braid_nf::packet::IpVersion;

/// Names of operations in nftables.
const OPERATIONS: [(&str, u64); 7] =
    [("request", 1), ("reply", 2), ("rrequest", 3), ("rreply", 4), ("inrequest", 8), ("inreply", 9), ("nak", 10)];
const OPERATION: Numbers = Numbers {
    what: "an operation such as request or reply",
    last: 0xffff,
    named: |name| OPERATIONS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number),
};
const KIND: Numbers = Numbers { what: "a number such as 1 or 0x0800", last: 0xffff, named: kind };

fn kind(name: &str) -> Option<u64> {
    if name == "ip" { Some(0x0800) } else { nameless(name) }
}

/// The fields of an ARP packet, with what those of Ethernet and IPv4 always say.
const KEYS: [&str; 7] = ["operation", "saddr ip", "saddr ether", "daddr ip", "daddr ether", "htype", "ptype"];
const ALWAYS: [(&str, u64); 4] = [("htype", 1), ("ptype", 0x0800), ("hlen", 6), ("plen", 4)];

/// Reads what follows `arp`.
pub(in crate::firewall::rule_file) fn arp(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    only(fits);
    let what = rest.word();
    let whose = if matches!(what.as_str(), "saddr" | "daddr") { rest.word() } else { String::new() };
    match (what.as_str(), whose.as_str()) {
        ("operation", _) => narrow_within(&mut fits.rule, OPERATION.within(Field::ArpOperation, rest)?),
        (_, "ether") => {
            let field = if what == "saddr" { Field::ArpSource } else { Field::ArpTarget };
            narrow_within(&mut fits.rule, STATION.within_unless(field, NO_STATION, rest)?)
        }
        (_, "ip") => {
            let is_source = what == "saddr";
            if let Some(masked) = masked(rest, if is_source { End::Source } else { End::Destination }, IpVersion::V4)? {
                fits.rule.masked.push(masked);
                return Ok(());
            }
            let place = if is_source { &mut fits.rule.source } else { &mut fits.rule.destination };
            addresses(place, &mut fits.never, rest, IpVersion::V4)
        }
        (key, _) => match ALWAYS.iter().find(|(known, _)| *known == key) {
            Some((_, number)) => {
                fits.never |= !KIND.read(rest)?.iter().any(|(first, last)| (*first..=*last).contains(number));
                Ok(())
            }
            None => wrong(format!("`{what} {whose}` of ARP is not looked at"), one_of("arp", key, &KEYS)),
        },
    }
}

/// Restricts a rule to ARP.
pub(in crate::firewall::rule_file) fn only(fits: &mut Fits) {
    fits.rule.states &= states::ARP;
    fits.never |= fits.rule.states == 0;
}

/// Whether the tables whose chains frames of all kinds come to speak of ARP.
pub(in crate::firewall::rule_file) fn is_spoken_of(file: &File<'_>) -> bool {
    let words = ["arp", "0x0806", "0x806", "2054"];
    let speaks = |table: &Table<'_>| {
        let rules = table.chains.iter().flat_map(|chain| &chain.rules).map(|rule| &**rule);
        let mut tokens = rules.chain(table.sets.elements.iter().map(|(_, elements)| elements.as_slice())).flatten();
        tokens.any(|token| words.contains(&&*token.text))
    };
    file.awake().any(|table| is_of_frames(table) && speaks(table))
}

/// Whether frames of all kinds come to the chains of a table.
fn is_of_frames(table: &Table<'_>) -> bool {
    matches!(table.family.as_str(), "bridge" | "netdev")
}

/// The states of packets that come to the chains of a table.
pub(in crate::firewall::rule_file) fn states_of(table: &Table<'_>, is_spoken_of: bool) -> States {
    match table.family.as_str() {
        "arp" => states::ARP,
        _ if is_spoken_of && is_of_frames(table) => states::ALL | states::ARP,
        _ => states::ALL,
    }
}

/// Takes ARP out of a rule that looks at headers of IP, which ARP packets do not have.
pub(in crate::firewall::rule_file) fn settle(fits: &mut Fits) {
    let rule = &mut fits.rule;
    if rule.states == states::ARP || rule.states & states::ARP == 0 {
        return;
    }
    // What `ether type { arp, ip }` leaves: the addresses of ARP are those of IPv4.
    let is_any = rule.source.0.is_empty() || *rule.source.0 == [Addresses::all(IpVersion::V4)];
    if !is_any || looks_at_ip(rule) {
        rule.states &= !states::ARP;
    }
}

fn looks_at_ip(rule: &Rule) -> bool {
    let of_frames = [
        Field::EtherSource,
        Field::EtherDestination,
        Field::Vlan,
        Field::Hour,
        Field::Day,
        Field::Time,
        Field::LeavesBy,
    ];
    !rule.destination.0.is_empty()
        || !rule.protocol.0.is_empty()
        || !rule.source_ports.0.is_empty()
        || !rule.destination_ports.0.is_empty()
        || !rule.tcp_flags.is_empty()
        || !rule.icmp.0.is_empty()
        || !rule.masked.is_empty()
        || rule.fields.iter().any(|within| {
            let is_of_link = within.place.is_some_and(|place| place.base == Base::Link);
            !of_frames.contains(&within.field) && !is_of_link
        })
}
