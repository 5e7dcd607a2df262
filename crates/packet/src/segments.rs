//! Segments: numbers that a plan gives to the networks behind VLAN tags, so that several networks may use the same addresses.
//!
//! A [`Tagging`] is what a frame's VLAN tags say; [`Segments`] maps taggings (and ports, if they count) to numbers. As part
//! of a key a segment takes two bytes, whatever the number of tags. Anything not in the table has the number
//! [`Segments::OTHER`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::headers::{Ethernet, Header, Vlan, VlanTags};
use crate::record::{Link, Port};

/// The VLAN tags of a frame: none, one, or an outer and an inner one. A single tag of VLAN 0, which carries only a priority,
/// counts as none.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct Tagging(u32);

const TWO: u32 = 1 << 24;
const OUTER: u32 = 12;
const VLAN: u32 = 0x0fff;

impl Tagging {
    /// No tag.
    pub const NONE: Tagging = Tagging(0);

    /// Creates a tagging with one tag; VLAN 0 gives [`NONE`](Self::NONE).
    pub const fn one(vlan: u16) -> Tagging {
        Tagging((vlan as u32 & VLAN) << OUTER)
    }

    /// Creates a tagging with two tags.
    pub const fn two(outer: u16, inner: u16) -> Tagging {
        Tagging(TWO | Tagging::one(outer).0 | inner as u32 & VLAN)
    }

    /// Returns the tagging of a frame; `None` if its link is not Ethernet or it has more than two tags.
    #[inline]
    pub fn of(frame: &[u8], link: Link) -> Option<Tagging> {
        let (ethernet, rest) = frame.split_at_checked(Ethernet::LEN).filter(|_| link == Link::Ethernet)?;
        let mut tags = VlanTags::new(u16::from_be_bytes([ethernet[12], ethernet[13]]), rest);
        let Some(outer) = tags.next() else { return Some(Tagging::NONE) };
        match (tags.next(), tags.next()) {
            (None, _) => Some(Tagging::one(outer.id())),
            (Some(inner), None) => Some(Tagging::two(outer.id(), inner.id())),
            _ => None,
        }
    }

    /// Returns the VLANs of the outer and of the inner tag.
    pub fn vlans(self) -> (Option<u16>, Option<u16>) {
        let (outer, inner) = ((self.0 >> OUTER & VLAN) as u16, (self.0 & VLAN) as u16);
        match (self.0 & TWO != 0, outer) {
            (true, _) => (Some(outer), Some(inner)),
            (false, 0) => (None, None),
            (false, _) => (Some(outer), None),
        }
    }

    /// Returns the length of the tags in bytes.
    pub fn len(self) -> usize {
        let (outer, inner) = self.vlans();
        Vlan::LEN * (usize::from(outer.is_some()) + usize::from(inner.is_some()))
    }

    /// Returns whether there is no tag.
    pub fn is_empty(self) -> bool {
        self == Tagging::NONE
    }
}

impl std::fmt::Display for Tagging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.vlans() {
            (Some(outer), Some(inner)) => write!(f, "vlan {outer}.{inner}"),
            (Some(outer), None) => write!(f, "vlan {outer}"),
            _ => f.write_str("untagged"),
        }
    }
}

/// A table from taggings to segment numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    /// Whether the meaning of a tagging depends on the port.
    by_port: bool,
    /// Port (if it counts) and tagging of each entry, sorted.
    places: Box<[u64]>,
    /// Segment number of each entry.
    numbers: Box<[u16]>,
}

impl Segments {
    /// The number of everything that is not in the table.
    pub const OTHER: u16 = u16::MAX;

    /// Creates a table that ignores ports. Of equal taggings the first one counts.
    pub fn by_tagging(list: impl IntoIterator<Item = (Tagging, u16)>) -> Segments {
        Segments::of_places(false, list.into_iter().map(|(tagging, number)| (0, tagging, number)))
    }

    /// Creates a table by arrival port and tagging.
    pub fn by_port_and_tagging(list: impl IntoIterator<Item = (Port, Tagging, u16)>) -> Segments {
        Segments::of_places(true, list.into_iter())
    }

    fn of_places(by_port: bool, list: impl Iterator<Item = (Port, Tagging, u16)>) -> Segments {
        let mut list: Vec<(u64, u16)> = list.map(|(port, tagging, number)| (place(port, tagging), number)).collect();
        list.sort_by_key(|(place, _)| *place);
        list.dedup_by_key(|(place, _)| *place);
        let (places, numbers): (Vec<u64>, Vec<u16>) = list.into_iter().unzip();
        Segments { by_port, places: places.into(), numbers: numbers.into() }
    }

    /// Returns the number of the segment for an arrival port and a tagging.
    #[inline]
    pub fn number(&self, port: Port, tagging: Tagging) -> u16 {
        let place = place(if self.by_port { port } else { 0 }, tagging);
        match self.places.binary_search(&place) {
            Ok(at) => self.numbers[at],
            Err(_) => Segments::OTHER,
        }
    }

    /// Returns the number of a frame's segment.
    #[inline]
    pub fn of(&self, port: Port, frame: &[u8], link: Link) -> u16 {
        Tagging::of(frame, link).map_or(Segments::OTHER, |tagging| self.number(port, tagging))
    }

    /// Returns whether this table contains every entry of the other one.
    pub fn extends(&self, other: &Segments) -> bool {
        let has = |(place, number): (&u64, &u16)| {
            self.places.binary_search(place).is_ok_and(|at| self.numbers[at] == *number)
        };
        self.by_port == other.by_port && other.places.iter().zip(&other.numbers).all(has)
    }

    /// Returns an arrival port (if ports count) and a tagging that belong to a segment; `None` if the table does not contain it.
    pub fn example(&self, number: u16) -> Option<(Option<Port>, Tagging)> {
        let at = self.numbers.iter().position(|known| *known == number)?;
        let port = self.by_port.then_some((self.places[at] >> 32) as Port);
        Some((port, Tagging(self.places[at] as u32)))
    }
}

fn place(port: Port, tagging: Tagging) -> u64 {
    u64::from(port) << 32 | u64::from(tagging.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Spec, Transport, Wrap};

    #[track_caller]
    fn check(wrap: Wrap, expected: &str) {
        let spec = Spec { wrap, ..Spec::new("10.0.0.1", "10.0.0.2", (1, 2), Transport::Udp) };
        let (frame, link) = spec.frame();
        let words = Tagging::of(&frame, link).map_or("no Ethernet".to_owned(), |tagging| tagging.to_string());
        assert_eq!(words, expected);
    }

    #[test]
    fn a_frame_has_no_tag_or_one_or_two() {
        check(Wrap::Plain, "untagged");
        check(Wrap::Vlan, "vlan 5");
        check(Wrap::QinQ, "vlan 9.5");
        check(Wrap::Raw, "no Ethernet");
        let three = [&[0; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]].concat();
        assert_eq!(Tagging::of(&three, Link::Ethernet), None);
        let priority = [&[0; 12][..], &[0x81, 0, 0xe0, 0, 8, 0]].concat();
        assert_eq!(Tagging::of(&priority, Link::Ethernet), Some(Tagging::NONE));
        assert_eq!(Tagging::two(4095, 0).vlans(), (Some(4095), Some(0)));
    }

    #[test]
    fn segments_have_their_numbers_and_everything_else_has_one() {
        let (one, two) = (Tagging::one(7), Tagging::two(7, 8));
        let any = Segments::by_tagging([(two, 3), (one, 7), (one, 9)]);
        assert_eq!([any.number(0, one), any.number(5, two)], [7, 3], "the first one counts");
        assert_eq!(any.number(0, Tagging::NONE), Segments::OTHER);
        assert_eq!([any.example(3), any.example(4)], [Some((None, two)), None]);
        let fewer = Segments::by_tagging([(two, 3)]);
        assert_eq!([any.extends(&fewer), fewer.extends(&any), any.extends(&any)], [true, false, true]);
        assert!(!any.extends(&Segments::by_tagging([(two, 4)])));
        let apart = Segments::by_port_and_tagging([(2, one, 1), (0, one, 2)]);
        assert_eq!([0, 1, 2].map(|port| apart.number(port, one)), [2, Segments::OTHER, 1]);
        assert_eq!(apart.example(1), Some((Some(2), one)));
    }
}
