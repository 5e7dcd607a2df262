//! Conditions on the Ethernet header: `ether saddr { 00:53:00:00:00:01, … }`, `ether daddr & 01:00:00:00:00:00 == 0`,
//! `ether type vlan`, `vlan id 10`.

use super::numbers::{Numbers, nameless};
use super::payload::{NUMBER, narrow_place};
use super::{Fits, families, narrow_field, narrow_within};
use crate::firewall::conditions::fields::{Field, NO_STATION, UNTAGGED};
use crate::firewall::conditions::payload::{Base, Place};
use crate::firewall::conditions::rare_fields;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};
use crate::firewall::rules::Direction;

const VLAN: Numbers = Numbers { what: "a VLAN such as 10 or 20-29", last: UNTAGGED - 1, named: nameless };
pub(in crate::firewall::rule_file) const STATION: Numbers =
    Numbers { what: "an Ethernet address such as 00:53:00:00:00:01", last: NO_STATION - 1, named: station };

/// Reads what follows `ether`.
pub(in crate::firewall::rule_file) fn ether(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    match rest.word().as_str() {
        "saddr" => stations(fits, rest, Field::EtherSource),
        "daddr" => stations(fits, rest, Field::EtherDestination),
        "type" => kind(fits, rest),
        other => wrong(
            format!("`{other}` is nothing of an Ethernet header"),
            "write ether saddr 00:53:00:00:00:01, ether daddr or ether type ip",
        ),
    }
}

/// Reads addresses, with or without a mask.
fn stations(fits: &mut Fits, rest: &mut Words<'_>, field: Field) -> Parsed<()> {
    // Packets that the hosts inside send have no Ethernet header yet where the chain is evaluated.
    fits.never |= rest.scope.direction == Some(Direction::Outbound);
    // A packet without an Ethernet header matches no address.
    narrow_within(&mut fits.rule, STATION.within_unless(field, NO_STATION, rest)?)
}

/// Restricts to packets that have such an address, whatever it is.
pub(in crate::firewall::rule_file) fn some_station(fits: &mut Fits, field: Field, is_outbound: bool) -> Parsed<()> {
    fits.never |= is_outbound;
    narrow_field(&mut fits.rule, field, vec![(0, NO_STATION - 1)])
}

/// Parses an Ethernet address such as `00:53:00:00:00:01`.
pub(in crate::firewall::rule_file) fn station(text: &str) -> Option<u64> {
    text.parse().ok().map(rare_fields::station)
}

/// Reads the protocol after the frame's tags, or `vlan` for any tagged frame.
fn kind(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let at = usize::from(matches!(rest.peek(), "==" | "eq"));
    if matches!(rest.peek_at(at), "vlan" | "8021q" | "0x8100") {
        rest.tokens(at + 1);
        return narrow_field(&mut fits.rule, Field::Vlan, vec![(0, UNTAGGED - 1)]);
    }
    families(fits, rest, "ether type")
}

/// Reads a condition on the outermost tag.
pub(in crate::firewall::rule_file) fn vlan(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    match rest.word().as_str() {
        // An untagged frame matches no number.
        "id" => narrow_within(&mut fits.rule, VLAN.within_unless(Field::Vlan, UNTAGGED, rest)?),
        what @ ("pcp" | "dei" | "cfi") => {
            narrow_field(&mut fits.rule, Field::Vlan, vec![(0, UNTAGGED - 1)])?;
            let (first, bits) = if what == "pcp" { (112, 3) } else { (115, 1) };
            narrow_place(&mut fits.rule, rest, (Place { base: Base::Link, first, bits }, NUMBER))
        }
        "type" => {
            narrow_field(&mut fits.rule, Field::Vlan, vec![(0, UNTAGGED - 1)])?;
            families(fits, rest, "vlan type")
        }
        other => wrong(
            format!("`{other}` of a VLAN tag is not looked at"),
            "write vlan id 10, vlan pcp 5, vlan dei 1 or vlan type ip",
        ),
    }
}
