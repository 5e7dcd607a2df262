//! VLAN tags: how plan files write them, and how a frame's tags are replaced.
//!
//! A frame whose tags are replaced keeps its priority: the priority of its outermost tag is written to all new tags.

use braid_nf::Packet;
use braid_nf::packet::Tagging;
use braid_nf::packet::headers::{Ethernet, Header, ether_type};
use serde::Deserialize;

/// The frame has no room for its tags.
pub const NO_ROOM_FOR_TAG: braid_nf::Reason = braid_nf::Reason("no_room_for_tag");

/// The highest VLAN ID that may be used (IEEE 802.1Q table 9-2).
pub const VLAN_MAX: u16 = 4094;
/// Bytes before the first tag.
const ADDRESSES: usize = Ethernet::LEN - 2;
/// Bytes of a tag.
pub const TAG: usize = 4;

/// Tags as written in a plan file: `10`, `"10-19"`, `"100.7"` (outer and inner tag), `"100.1-4094"`, `"untagged"`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct TagRange {
    outer: (u16, u16),
    inner: Option<(u16, u16)>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "no VLAN: write 10, \"10-19\", \"100.7\" for an outer and an inner tag, or \"untagged\"")]
enum Written {
    Number(i64),
    Text(String),
}

/// The error for a text that is not a VLAN.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is no VLAN: write one from 1 to {VLAN_MAX} as 10, several as \"10-19\", an outer and an inner one as \"100.7\", or \"untagged\""
)]
pub struct TagError(String);

impl TryFrom<Written> for TagRange {
    type Error = TagError;

    fn try_from(written: Written) -> Result<TagRange, TagError> {
        match written {
            Written::Number(number) => number.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl std::str::FromStr for TagRange {
    type Err = TagError;

    fn from_str(text: &str) -> Result<TagRange, TagError> {
        let vlans = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let vlan = |text: &str| text.parse().ok().filter(|vlan| (1..=VLAN_MAX).contains(vlan));
            Some((vlan(first)?, vlan(last)?)).filter(|(first, last)| first <= last)
        };
        let range = match text.split_once('.') {
            None if text == "untagged" => Some(TagRange { outer: (0, 0), inner: None }),
            None => vlans(text).map(|outer| TagRange { outer, inner: None }),
            Some((outer, inner)) => {
                vlans(outer).zip(vlans(inner)).map(|(outer, inner)| TagRange { outer, inner: Some(inner) })
            }
        };
        range.ok_or_else(|| TagError(text.to_owned()))
    }
}

impl TagRange {
    /// All taggings in the range, in order.
    pub fn iter(&self) -> impl Iterator<Item = Tagging> {
        (self.outer.0..=self.outer.1).flat_map(move |outer| {
            let (first, last) = self.inner.unwrap_or((0, 0));
            (first..=last).map(move |inner| match self.inner {
                Some(_) => Tagging::two(outer, inner),
                None => Tagging::one(outer),
            })
        })
    }

    /// The tagging, if the range contains only one.
    pub fn single(&self) -> Option<Tagging> {
        let mut all = self.iter();
        all.next().filter(|_| all.next().is_none())
    }
}

/// The type of the outer of two tags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum OuterTag {
    /// A service tag: 0x88a8.
    #[default]
    #[serde(rename = "802.1ad")]
    Service,
    /// The same type as the inner tag: 0x8100.
    #[serde(rename = "802.1q")]
    Customer,
}

/// Encodes a tag of a type with its control information.
#[inline(always)]
pub fn tag(kind: u16, control: u16) -> [u8; TAG] {
    let [[a, b], [c, d]] = [kind.to_be_bytes(), control.to_be_bytes()];
    [a, b, c, d]
}

/// Tags as encoded in a frame, and their length.
struct Bytes([u8; 2 * TAG], usize);

impl Bytes {
    fn of(tagging: Tagging, outer_tag: OuterTag, priority: u16) -> Bytes {
        let (outer, inner) = tagging.vlans();
        let mut bytes = Bytes([0; 2 * TAG], 0);
        for (vlan, is_outer) in [(outer, true), (inner, false)] {
            let Some(vlan) = vlan else { continue };
            let is_service = is_outer && inner.is_some() && outer_tag == OuterTag::Service;
            let kind: u16 = if is_service { ether_type::QINQ } else { ether_type::VLAN };
            bytes.0[bytes.1..bytes.1 + TAG].copy_from_slice(&tag(kind, vlan | priority));
            bytes.1 += TAG;
        }
        bytes
    }

    fn as_slice(&self) -> &[u8] {
        &self.0[..self.1]
    }
}

/// Replaces the tags of a frame. Returns false, with the frame unchanged, if there is no room for them.
pub fn exchange(packet: &mut Packet<'_>, tagging: Tagging, outer_tag: OuterTag) -> bool {
    let (old, priority) = (packet.vlans().count() * TAG, priority(packet.bytes()));
    let new = Bytes::of(tagging, outer_tag, priority);
    let new = new.as_slice();
    packet.bytes().get(ADDRESSES..ADDRESSES + old) == Some(new) || put(packet, old, new)
}

/// Replaces the `old` bytes after the Ethernet addresses with `new`. Returns false, with the frame unchanged, if there is no
/// room.
pub fn put(packet: &mut Packet<'_>, old: usize, new: &[u8]) -> bool {
    if new.len() > old {
        let more = new.len() - old;
        if !packet.push_front(more) {
            return false;
        }
        packet.change(0..ADDRESSES + more).copy_within(more.., 0);
    } else if new.len() < old {
        let less = old - new.len();
        packet.change(0..ADDRESSES + less).copy_within(..ADDRESSES, less);
        packet.pop_front(less);
    }
    packet.change(ADDRESSES..ADDRESSES + new.len()).copy_from_slice(new);
    packet.reparse();
    true
}

/// Like [`exchange`], for a frame whose IP header is at `ip`: writes the frame with the new tags to `into`. Returns its length,
/// or `None` if there is no room.
pub fn exchanged(frame: &[u8], ip: usize, tagging: Tagging, outer_tag: OuterTag, into: &mut [u8]) -> Option<usize> {
    let new = Bytes::of(tagging, outer_tag, priority(frame));
    // The two bytes of the type come before what follows the tags.
    let (addresses, rest) = (frame.get(..ADDRESSES)?, frame.get(ip.checked_sub(2)?..)?);
    let mut len = 0;
    for part in [addresses, new.as_slice(), rest] {
        into.get_mut(len..len + part.len())?.copy_from_slice(part);
        len += part.len();
    }
    Some(len)
}

/// The priority and drop eligibility bits of a frame's outermost tag.
fn priority(frame: &[u8]) -> u16 {
    match frame.get(ADDRESSES..ADDRESSES + TAG) {
        Some(&[0x81, 0, control, _] | &[0x88, 0xa8, control, _] | &[0x91, 0, control, _]) => {
            u16::from(control & 0xf0) << 8
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let all = text.parse::<TagRange>().map(|range| range.iter().map(|tags| tags.to_string()).collect::<Vec<_>>());
        assert_eq!(all.map_or_else(|error| error.to_string(), |all| all.join(", ")), expected);
    }

    #[test]
    fn tags_are_written_as_numbers_ranges_and_pairs() {
        check("10", "vlan 10");
        check("10-12", "vlan 10, vlan 11, vlan 12");
        check("100.7", "vlan 100.7");
        check("100-101.7-8", "vlan 100.7, vlan 100.8, vlan 101.7, vlan 101.8");
        check("untagged", "untagged");
        for wrong in ["0", "4095", "7-5", "x", "", "1.2.3", "1.0"] {
            assert!(wrong.parse::<TagRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_frame_of_bytes_gets_other_tags_and_keeps_its_priority() {
        let frame = [&[7; 12][..], &[0x81, 0, 0xe0, 10, 8, 0, 0x45, 1, 2]].concat();
        let mut into = [0; 64];
        let mut exchanged = |tagging, outer| {
            let len = exchanged(&frame, 18, tagging, outer, &mut into).unwrap();
            into[12..len].to_vec()
        };
        assert_eq!(exchanged(Tagging::NONE, OuterTag::Service), [8, 0, 0x45, 1, 2]);
        assert_eq!(exchanged(Tagging::one(20), OuterTag::Service), [0x81, 0, 0xe0, 20, 8, 0, 0x45, 1, 2]);
        let two = exchanged(Tagging::two(1, 2), OuterTag::Service);
        assert_eq!(two, [0x88, 0xa8, 0xe0, 1, 0x81, 0, 0xe0, 2, 8, 0, 0x45, 1, 2]);
        let two = exchanged(Tagging::two(1, 2), OuterTag::Customer);
        assert_eq!(two[..4], [0x81, 0, 0xe0, 1]);
    }
}
