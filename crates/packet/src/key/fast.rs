//! Fast paths for the keys that nearly all functions use: five-tuples, single addresses, pairs of Ethernet addresses.
//!
//! The keys are bit for bit equal to those of the generic path for the same fields; a property test compares the two. A
//! packet without a narrow key here (IPv6, fragments, cut headers) goes on to the IPv6 functions below or to the generic path.
//!
//! Heads extend beyond the frame, so a function here compares once with the frame's length and then reads freely.

use super::extract::{Packed, VERSION_SHIFT};
use super::{KeyClass, protocol};
use crate::edit::Side;
use crate::parse::{ETHER_TYPE_MIN, is_tag};
use crate::raw::fours::{FOUR, Tuple, TupleV6};
use crate::raw::records::{Head, Seen};
use crate::record::{Flags, Link, Record};

/// A key of 16 bytes, and whether the ends were exchanged.
pub(super) struct Narrow(pub(super) [u64; 2], pub(super) bool);

/// Set in the last word of a one-way key if sides are kept apart and the packet came from outside.
pub(super) const OUTSIDE: u64 = 1 << 63;

impl Narrow {
    /// Turns a one-way five-tuple into the key of both directions: the smaller end first.
    #[inline(always)]
    pub(super) fn by_end(self) -> Narrow {
        let Narrow([addresses, rest], _) = self;
        // Source and destination, most significant byte first.
        let ends = addresses.swap_bytes();
        let (source, destination) = ((ends >> 32) as u32, ends as u32);
        let swapped = if source == destination { is_from_higher_port(rest) } else { source > destination };
        if swapped { self.turned() } else { self }
    }

    /// Reduces the five-tuple to one address.
    #[inline(always)]
    pub(super) fn address(self, side: Side) -> Narrow {
        let Narrow([addresses, _], _) = self;
        Narrow([if side == Side::Destination { addresses >> 32 } else { u64::from(addresses as u32) }, 0], false)
    }

    /// Returns the five-tuple of the opposite direction.
    #[inline(always)]
    fn turned(self) -> Narrow {
        let Narrow([addresses, rest], _) = self;
        let ports = u64::from((rest as u32).rotate_left(16));
        Narrow([addresses.rotate_left(32), rest >> 32 << 32 | ports], true)
    }

    /// Turns a one-way five-tuple into the key of a chain that keeps its sides apart: inside end first, or marked with its side.
    #[inline(always)]
    pub(super) fn by_side(self, symmetric: bool, outside: bool) -> Narrow {
        let Narrow([addresses, rest], _) = self;
        match (outside, symmetric) {
            (false, _) => self,
            (true, false) => Narrow([addresses, rest | OUTSIDE], false),
            (true, true) => self.turned(),
        }
    }
}

/// [`Narrow::by_end`] for the five-tuples of four packets.
#[cfg(all(target_arch = "x86_64", target_feature = "avx2"))]
#[inline(always)]
pub(super) fn four_by_end(tuples: [Tuple; FOUR]) -> [Narrow; FOUR] {
    let (keys, swapped) = crate::raw::fours::by_end(tuples);
    std::array::from_fn(|i| Narrow(keys[i], swapped[i]))
}

/// Portable version.
#[cfg(not(all(target_arch = "x86_64", target_feature = "avx2")))]
pub(super) fn four_by_end(tuples: [Tuple; FOUR]) -> [Narrow; FOUR] {
    tuples.map(|tuple| Narrow(tuple, false).by_end())
}

impl Packed {
    /// [`Narrow::by_side`] for a wide key.
    #[inline(always)]
    pub(super) fn by_side(mut self, symmetric: bool, outside: bool) -> Packed {
        let [a, b, c, d, rest] = self.words;
        match (outside, symmetric) {
            (false, _) => {}
            (true, false) => self.words[4] |= OUTSIDE,
            (true, true) => {
                let ports = u64::from((rest as u32).rotate_left(16));
                self.words = [c, d, a, b, rest >> 32 << 32 | ports];
                self.swapped = true;
            }
        }
        self
    }
}

/// Loads eight bytes of the frame, the first one lowest.
#[inline(always)]
fn load(head: &Head, at: usize) -> Option<u64> {
    head.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Loads four bytes of the frame, the first one lowest.
#[inline(always)]
fn load_u32(head: &Head, at: usize) -> Option<u64> {
    head.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes).into())
}

/// Returns whether an IPv4 header was found that is not that of a later fragment.
#[inline(always)]
fn is_plain_v4(record: &Record) -> bool {
    record.flags.0 & (Flags::IP | Flags::V6 | Flags::LATER_FRAGMENT) == Flags::IP
}

/// Returns whether the packet is TCP or UDP over IPv4 without options on untagged Ethernet, as nearly all are.
#[inline(always)]
fn is_plainest(found: u32) -> bool {
    found == Record::PLAINEST_TCP || found == Record::PLAINEST_UDP
}

/// Key of an IPv4 packet by addresses, ports and protocol; `None` if the protocol has ports but they are missing.
#[inline(always)]
pub(super) fn five_tuple<const SYMMETRIC: bool>(packet: &Seen<'_>, head: &Head) -> Option<Narrow> {
    if is_plainest(packet.found()) {
        let proto = (packet.found() >> 16) as u8;
        return Some(tuple::<SYMMETRIC>(load(head, 26)?, load_u32(head, 34)?, proto));
    }
    if packet.record().flags.has(Flags::V6) {
        return None;
    }
    five_tuple_v4::<SYMMETRIC>(packet.record(), head)
}

#[inline(never)]
fn five_tuple_v4<const SYMMETRIC: bool>(record: &Record, head: &Head) -> Option<Narrow> {
    let (l3, behind) = (record.l3 as usize, record.l4 as usize * 4);
    let has_ports = protocol::has_ports(record.proto);
    let needed = l3 + if has_ports { behind + 4 } else { 20 };
    if !is_plain_v4(record) || needed > record.len() {
        return None;
    }
    let addresses = load(head, l3 + 12)?;
    let ports = load_u32(head, l3 + behind)?;
    Some(tuple::<SYMMETRIC>(addresses, if has_ports { ports } else { 0 }, record.proto))
}

/// Creates a key from both addresses and both ports, source before destination, first byte lowest.
#[inline(always)]
fn tuple<const SYMMETRIC: bool>(addresses: u64, ports: u64, proto: u8) -> Narrow {
    let key = Narrow([addresses, ports | u64::from(proto) << 32], false);
    if SYMMETRIC { key.by_end() } else { key }
}

/// Returns whether the source port is greater, given both ports, first byte lowest; this decides between ends with the same address.
#[cold]
#[inline(never)]
fn is_from_higher_port(ports: u64) -> bool {
    (ports as u16).swap_bytes() > ((ports >> 16) as u16).swap_bytes()
}

/// Key of an IPv4 packet by one address.
#[inline(always)]
pub(super) fn one_address(packet: &Seen<'_>, head: &Head, side: Side) -> Option<Narrow> {
    let record = packet.record();
    let l3 = record.l3 as usize;
    if !is_plain_v4(record) || l3 + 20 > record.len() {
        return None;
    }
    Some(Narrow([load_u32(head, l3 + if side == Side::Destination { 16 } else { 12 })?, 0], false))
}

/// Key by Ethernet source and destination, and by VLAN if `VLAN`; for frames with an Ethernet type and at most one tag.
#[inline(always)]
pub(super) fn mac_pair<const SYMMETRIC: bool, const VLAN: bool>(packet: &Seen<'_>, head: &Head) -> Option<Narrow> {
    let record = packet.record();
    if record.flags.link() != Link::Ethernet || record.len() < 14 {
        return None;
    }
    const MAC: u64 = (1 << 48) - 1;
    let (destination, source) = (load(head, 0)? & MAC, load(head, 6)? & MAC);
    let mut vlan = 0;
    if VLAN {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let (kind, tag, inner) = (word(12), word(14), word(16));
        if is_tag(kind) && record.len() >= 18 && !is_tag(inner) {
            vlan = u64::from((tag & 0x0fff).swap_bytes());
        } else if is_tag(kind) || kind < ETHER_TYPE_MIN {
            return None;
        }
    }
    let swapped = SYMMETRIC && source.swap_bytes() > destination.swap_bytes();
    let (first, second) = if swapped { (destination, source) } else { (source, destination) };
    Some(Narrow([first | second << 48, second >> 16 | vlan << 32], swapped))
}

#[inline(always)]
fn is_plain_v6(record: &Record) -> bool {
    let mask = Flags::IP | Flags::V6 | Flags::LATER_FRAGMENT;
    record.flags.0 & mask == Flags::IP | Flags::V6 && record.l4 != 0
}

/// Key of an IPv6 packet by addresses, ports and protocol; `None` if the protocol has ports but they are missing.
#[inline(always)]
pub(super) fn five_tuple_v6<const SYMMETRIC: bool>(record: &Record, head: &Head) -> Option<Packed> {
    // Nearly all packets are of these two kinds, as with IPv4.
    let found = record.parsed();
    if (found == Record::PLAINEST_V6_UDP || found == Record::PLAINEST_V6_TCP) && record.len() >= 58 {
        return tuple_v6::<SYMMETRIC>(head.get(22..54)?, load_u32(head, 54)?, (found >> 16) as u8);
    }
    less_plain_v6::<SYMMETRIC>(record, head)
}

#[inline(never)]
fn less_plain_v6<const SYMMETRIC: bool>(record: &Record, head: &Head) -> Option<Packed> {
    let (l3, behind) = (record.l3 as usize, record.l4 as usize * 4);
    let has_ports = protocol::has_ports(record.proto);
    if !is_plain_v6(record) || l3 + if has_ports { behind + 4 } else { 40 } > record.len() {
        return None;
    }
    let ports = load_u32(head, l3 + behind)?;
    tuple_v6::<SYMMETRIC>(head.get(l3 + 8..l3 + 40)?, if has_ports { ports } else { 0 }, record.proto)
}

/// Creates a key from both addresses, in `addresses` one after the other, and both ports, first byte lowest.
#[inline(always)]
fn tuple_v6<const SYMMETRIC: bool>(addresses: &[u8], ports: u64, proto: u8) -> Option<Packed> {
    let word = |at: usize| addresses.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    let tuple = [word(0)?, word(8)?, word(16)?, word(24)?, ports | u64::from(proto) << 32];
    Some(key_of_v6::<SYMMETRIC>(tuple))
}

/// Key of an IPv6 five-tuple.
#[inline(always)]
pub(super) fn key_of_v6<const SYMMETRIC: bool>([a, b, c, d, rest]: TupleV6) -> Packed {
    let (mut source, mut destination, mut ports, mut swapped) = ([a, b], [c, d], rest as u32, false);
    if SYMMETRIC {
        let number = |end: [u64; 2], port: u32| (end.map(u64::swap_bytes), (port as u16).swap_bytes());
        swapped = number(source, ports) > number(destination, ports >> 16);
        if swapped {
            std::mem::swap(&mut source, &mut destination);
            ports = ports.rotate_left(16);
        }
    }
    let last = u64::from(ports) | rest >> 32 << 32 | 6 << VERSION_SHIFT;
    let words = [source[0], source[1], destination[0], destination[1], last];
    Packed { words, class: KeyClass::Wide, swapped }
}

/// Key by one address of an IPv6 five-tuple.
#[inline(always)]
pub(super) fn address_of_v6([a, b, c, d, _]: TupleV6, side: Side) -> Packed {
    let [high, low] = if side == Side::Destination { [c, d] } else { [a, b] };
    Packed { words: [high, low, 0, 0, 6 << VERSION_SHIFT], class: KeyClass::Wide, swapped: false }
}

/// Key of an IPv6 packet by one address.
#[inline(always)]
pub(super) fn one_address_v6(record: &Record, head: &Head, side: Side) -> Option<Packed> {
    let l3 = record.l3 as usize;
    if !is_plain_v6(record) || l3 + 40 > record.len() {
        return None;
    }
    let at = l3 + 8;
    Some(address_of_v6([load(head, at)?, load(head, at + 8)?, load(head, at + 16)?, load(head, at + 24)?, 0], side))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Few distinct values, so that ends are often equal.
    fn tuple() -> impl Strategy<Value = Tuple> {
        let address = prop_oneof![Just(0), Just(1 << 24), Just(1), any::<u32>()];
        let port = prop_oneof![Just(0u16), Just(1), Just(1 << 8), any::<u16>()];
        ((address.clone(), address), (port.clone(), port), any::<u8>()).prop_map(|(addresses, ports, protocol)| {
            let rest = u64::from(ports.0) | u64::from(ports.1) << 16 | u64::from(protocol) << 32;
            [u64::from(addresses.0) | u64::from(addresses.1) << 32, rest]
        })
    }

    proptest! {
        #[test]
        fn four_together_have_the_keys_that_they_have_one_by_one(tuples in [tuple(), tuple(), tuple(), tuple()]) {
            for (four, tuple) in four_by_end(tuples).into_iter().zip(tuples) {
                let one = Narrow(tuple, false).by_end();
                prop_assert_eq!((four.0, four.1), (one.0, one.1));
            }
        }
    }
}
