//! Conditions on the Ethernet header: `ether saddr { 00:53:00:00:00:01, … }`, `ether daddr & 01:00:00:00:00:00 == 0`,
//! `ether type vlan`, `vlan id 10`, `vlan type 8021q vlan id 20`.

use super::arithmetic::comes;
use super::numbers::{Numbers, is_comparison, is_sign, nameless};
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

/// Types of frames, by the names of nftables.
const TYPE: Numbers = Numbers { what: "a type such as ip, 8021ad or 0x0800", last: 0xffff, named: named_type };

fn named_type(name: &str) -> Option<u64> {
    Some(match name {
        "ip" => 0x0800,
        "arp" => 0x0806,
        "ip6" => 0x86dd,
        "vlan" | "8021q" => 0x8100,
        "8021ad" => 0x88a8,
        _ => return None,
    })
}

fn is_tag(word: &str) -> bool {
    matches!(TYPE.number(word), Ok(0x8100 | 0x88a8))
}

/// Whether the value that comes next says more than a protocol: it names tags, compares, or takes single bits.
fn is_of_bits(rest: &Words<'_>, at: usize) -> bool {
    let mut values = (at..).map(|at| rest.peek_at(at)).take_while(|word| !matches!(*word, "}" | ""));
    let names_tag = if rest.peek_at(at) == "{" { values.any(is_tag) } else { is_tag(rest.peek_at(at)) };
    names_tag || is_comparison(rest.peek()) || comes(rest, 0)
}

/// Reads the protocol after the frame's tags, or `vlan` for any tagged frame. Where it is about the tag itself, `8021ad`, or about some bits,
/// the type right behind the addresses is meant.
fn kind(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let at = usize::from(is_sign(rest.peek()));
    if matches!(rest.peek_at(at), "vlan" | "8021q" | "0x8100") {
        let is_negated = matches!(rest.peek(), "!=" | "ne");
        rest.tokens(at + 1);
        let tags = if is_negated { (UNTAGGED, UNTAGGED) } else { (0, UNTAGGED - 1) };
        return narrow_field(&mut fits.rule, Field::Vlan, vec![tags]);
    }
    if is_of_bits(rest, at) {
        return narrow_place(&mut fits.rule, rest, (Place { base: Base::Link, first: 96, bits: 16 }, TYPE));
    }
    families(fits, rest, "ether type")
}

/// Reads a condition on the outermost tag; behind `vlan type 8021q`, on the one behind it.
pub(in crate::firewall::rule_file) fn vlan(fits: &mut Fits, rest: &mut Words<'_>) -> Parsed<()> {
    let (what, behind) = (rest.word(), 32 * u16::from(fits.is_of_inner_tag));
    let place = |first: u16, bits| Place { base: Base::Link, first: first + behind, bits };
    let tagged = |fits: &mut Fits| narrow_field(&mut fits.rule, Field::Vlan, vec![(0, UNTAGGED - 1)]);
    match what.as_str() {
        // An untagged frame matches no number.
        "id" if behind == 0 => narrow_within(&mut fits.rule, VLAN.within_unless(Field::Vlan, UNTAGGED, rest)?),
        "id" => narrow_place(&mut fits.rule, rest, (place(116, 12), VLAN)),
        "pcp" | "dei" | "cfi" => {
            tagged(fits)?;
            let place = if what == "pcp" { place(112, 3) } else { place(115, 1) };
            narrow_place(&mut fits.rule, rest, (place, NUMBER))
        }
        "type" => {
            tagged(fits)?;
            let at = usize::from(is_sign(rest.peek()));
            if !is_of_bits(rest, at) {
                return families(fits, rest, "vlan type");
            }
            let is_inner = is_tag(rest.peek_at(at)) && !matches!(rest.peek(), "!=" | "ne");
            narrow_place(&mut fits.rule, rest, (place(128, 16), TYPE))?;
            if is_inner && fits.is_of_inner_tag {
                return wrong("no more than two tags are looked at", "write the bits by their place: @ll,180,12 5");
            }
            fits.is_of_inner_tag = is_inner;
            Ok(())
        }
        other => wrong(
            format!("`{other}` of a VLAN tag is not looked at"),
            "write vlan id 10, vlan pcp 5, vlan dei 1 or vlan type ip",
        ),
    }
}
