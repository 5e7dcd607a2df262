//! Bits of a packet that rules name by their place: `@th,16,16` of nftables, and header fields that have no field of
//! their own here.

use std::fmt;

use braid_nf::packet::Packet;
use braid_nf::packet::headers::{Header, Udp};
use braid_nf::packet::parse::protocol;

use super::extensions;
use super::fields::Field;
use crate::firewall::rules::Rule;
use crate::parts::headers::lengths;

/// The protocol of a tunnel of IPv4 (RFC 2003).
const IPIP: u8 = 4;

/// The header from which a place is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) enum Base {
    /// The Ethernet header.
    Link,
    /// The IP header.
    Network,
    /// The transport header.
    Transport,
    /// The payload of TCP or UDP, or the packet in a tunnel of IPv4.
    Inner,
}

/// Some consecutive bits after a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::firewall) struct Place {
    pub(in crate::firewall) base: Base,
    /// The offset of the first bit.
    pub(in crate::firewall) first: u16,
    pub(in crate::firewall) bits: u8,
}

/// The maximum number of bits that are compared at once.
pub(in crate::firewall) const BITS_MAX: u8 = 48;
/// One above the largest number of so many bits: the packet is too short, so nothing matches.
pub(in crate::firewall) const NO_PAYLOAD: u64 = 1 << BITS_MAX;

/// The fields that hold such bits, which limit how many places rules may name.
pub(in crate::firewall) const SLOTS: [Field; 8] = [
    Field::Payload0,
    Field::Payload1,
    Field::Payload2,
    Field::Payload3,
    Field::Payload4,
    Field::Payload5,
    Field::Payload6,
    Field::Payload7,
];

/// The places that rules examine, indexed like [`SLOTS`].
pub(in crate::firewall) type Places = [Option<Place>; SLOTS.len()];

impl Place {
    /// The largest number that its bits can hold.
    pub(in crate::firewall) fn last(self) -> u64 {
        (1 << self.bits) - 1
    }

    /// The bits as a number; `None` if the packet ends before them.
    pub(in crate::firewall) fn read(self, packet: &Packet<'_>) -> Option<u64> {
        let start = self.base.offset(packet)?;
        let (first, end) = (usize::from(self.first), usize::from(self.first) + usize::from(self.bits));
        let (from, to) = (start + first / 8, start + end.div_ceil(8));
        // Bytes after the packet may be padding of the frame. One of ARP does not say where it ends.
        let len = match lengths::ip_len(packet) {
            0 => packet.bytes().len(),
            len => usize::from(packet.record().l3) + len,
        };
        let bytes = packet.bytes().get(from..to).filter(|_| to <= len)?;
        let whole = bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Some(whole >> (end.next_multiple_of(8) - end) & self.last())
    }
}

impl Base {
    const NAMES: [(Base, &str); 4] =
        [(Base::Link, "@ll"), (Base::Network, "@nh"), (Base::Transport, "@th"), (Base::Inner, "@ih")];

    /// The base with this name in rules.
    pub(in crate::firewall) fn named(name: &str) -> Option<Base> {
        Base::NAMES.iter().find(|(_, known)| *known == name).map(|(base, _)| *base)
    }

    /// The offset of the base in the frame.
    fn offset(self, packet: &Packet<'_>) -> Option<usize> {
        match self {
            Base::Link => packet.ethernet().map(|_| 0),
            Base::Network => Some(usize::from(packet.record().l3)),
            Base::Transport => extensions::authentication_of(packet).or_else(|| packet.l4_offset()),
            Base::Inner => {
                let at = packet.l4_offset()?;
                match extensions::protocol_of(packet) {
                    protocol::TCP => Some(at + usize::from(packet.bytes().get(at + 12)? >> 4) * 4),
                    protocol::UDP => Some(at + Udp::LEN),
                    IPIP => Some(at),
                    _ => None,
                }
            }
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Base::NAMES.iter().find(|(base, _)| *base == self.base).map_or("", |(_, name)| name);
        write!(f, "{name},{},{}", self.first, self.bits)
    }
}

/// The places that rules examine.
pub(in crate::firewall) fn places(rules: &[Rule]) -> Places {
    let mut places = Places::default();
    for within in rules.iter().flat_map(|rule| &rule.fields) {
        if let Some(slot) = SLOTS.iter().position(|slot| *slot == within.field) {
            places[slot] = within.place;
        }
    }
    places
}
