//! The keys that nearly all functions use, without detours: five-tuples, one address, a pair of Ethernet addresses.
//!
//! They are equal, bit for bit, to what the general way makes of the same fields; a property test compares the two. What has
//! no narrow key here (IPv6, fragments, cut headers) goes on to the functions of the second part or to the general way.

use super::extract::{Packed, VERSION_SHIFT};
use super::{KeyClass, protocol};
use crate::edit::Side;
use crate::record::{Flags, Link, Record};

/// A key of 16 bytes, and whether the ends were exchanged.
pub(super) struct Narrow(pub(super) [u64; 2], pub(super) bool);

/// Up to eight bytes of the frame, the first one lowest.
#[inline(always)]
fn load<const N: usize>(frame: &[u8], at: usize) -> Option<u64> {
    let bytes = frame.get(at..at + N)?;
    let mut word = [0; 8];
    word[..N].copy_from_slice(bytes);
    Some(u64::from_le_bytes(word))
}

/// Whether an IPv4 header was found, and it is not that of a later fragment.
#[inline(always)]
fn is_plain_v4(record: &Record) -> bool {
    record.flags.0 & (Flags::IP | Flags::V6 | Flags::LATER_FRAGMENT) == Flags::IP
}

/// Key of IPv4 by addresses, ports and protocol; none if there should be ports but are not.
#[inline(always)]
pub(super) fn five_tuple<const SYMMETRIC: bool>(record: &Record, frame: &[u8]) -> Option<Narrow> {
    if !is_plain_v4(record) {
        return None;
    }
    let l3 = record.l3 as usize;
    let addresses = load::<8>(frame, l3 + 12)?;
    let ports = if protocol::has_ports(record.proto) { load::<4>(frame, l3 + record.l4 as usize * 4)? } else { 0 };
    let (mut key, mut swapped) = ([addresses, ports], false);
    if SYMMETRIC {
        // Address and port of an end as one number, most significant byte first.
        let source = (addresses & 0xffff_ffff | ports << 32 & 0xffff_0000_0000).swap_bytes();
        let destination = (addresses >> 32 | ports << 16 & 0xffff_0000_0000).swap_bytes();
        swapped = source > destination;
        let turned = [addresses.rotate_left(32), u64::from((ports as u32).rotate_left(16))];
        key = if swapped { turned } else { key };
    }
    Some(Narrow([key[0], key[1] | u64::from(record.proto) << 32], swapped))
}

/// Key of IPv4 by one address.
#[inline(always)]
pub(super) fn one_address(record: &Record, frame: &[u8], side: Side) -> Option<Narrow> {
    let offset = if side == Side::Destination { 16 } else { 12 };
    if !is_plain_v4(record) {
        return None;
    }
    Some(Narrow([load::<4>(frame, record.l3 as usize + offset)?, 0], false))
}

/// Key by Ethernet source and destination.
#[inline(always)]
pub(super) fn mac_pair<const SYMMETRIC: bool>(record: &Record, frame: &[u8]) -> Option<Narrow> {
    if record.flags.link() != Link::Ethernet || frame.len() < 14 {
        return None;
    }
    let (destination, source) = (load::<6>(frame, 0)?, load::<6>(frame, 6)?);
    let swapped = SYMMETRIC && source.swap_bytes() > destination.swap_bytes();
    let (first, second) = if swapped { (destination, source) } else { (source, destination) };
    Some(Narrow([first | second << 48, second >> 16], swapped))
}

#[inline(always)]
fn is_plain_v6(record: &Record) -> bool {
    let mask = Flags::IP | Flags::V6 | Flags::LATER_FRAGMENT;
    record.flags.0 & mask == Flags::IP | Flags::V6 && record.l4 != 0
}

/// Key of IPv6 by addresses, ports and protocol; none if there should be ports but are not.
#[inline(always)]
pub(super) fn five_tuple_v6<const SYMMETRIC: bool>(record: &Record, frame: &[u8]) -> Option<Packed> {
    if !is_plain_v6(record) {
        return None;
    }
    let l3 = record.l3 as usize;
    let mut ports = if protocol::has_ports(record.proto) { load::<4>(frame, l3 + record.l4 as usize * 4)? } else { 0 };
    let mut source = [load::<8>(frame, l3 + 8)?, load::<8>(frame, l3 + 16)?];
    let mut destination = [load::<8>(frame, l3 + 24)?, load::<8>(frame, l3 + 32)?];
    let mut swapped = false;
    if SYMMETRIC {
        let number = |end: [u64; 2], port: u64| (end.map(u64::swap_bytes), (port as u16).swap_bytes());
        swapped = number(source, ports) > number(destination, ports >> 16);
        if swapped {
            std::mem::swap(&mut source, &mut destination);
            ports = (ports as u32).rotate_left(16).into();
        }
    }
    let last = ports | u64::from(record.proto) << 32 | 6 << VERSION_SHIFT;
    let words = [source[0], source[1], destination[0], destination[1], last];
    Some(Packed { words, class: KeyClass::Wide, swapped })
}

/// Key of IPv6 by one address.
#[inline(always)]
pub(super) fn one_address_v6(record: &Record, frame: &[u8], side: Side) -> Option<Packed> {
    if !is_plain_v6(record) {
        return None;
    }
    let at = record.l3 as usize + if side == Side::Destination { 24 } else { 8 };
    let words = [load::<8>(frame, at)?, load::<8>(frame, at + 8)?, 0, 0, 6 << VERSION_SHIFT];
    Some(Packed { words, class: KeyClass::Wide, swapped: false })
}
