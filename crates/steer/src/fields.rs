//! Sets of header fields, for planning: which fields are hashed, which a packet set has, which a NIC can hash.

use std::fmt;

use braid_packet::FieldId;

/// A set of header fields.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fields(u16);

impl Fields {
    /// No field.
    pub const NONE: Fields = Fields(0);
    /// All fields.
    pub const ALL: Fields = Fields::of(&FieldId::ALL);
    /// The protocol number.
    pub const PROTOCOL: Fields = Fields::of(&[FieldId::IpProto]);
    /// Both addresses.
    pub const ADDRESSES: Fields = Fields::of(&[FieldId::IpSrc, FieldId::IpDst]);
    /// Both ports.
    pub const PORTS: Fields = Fields::of(&[FieldId::SrcPort, FieldId::DstPort]);
    /// Both addresses and both ports: what every NIC hashes for TCP.
    pub const FOUR_TUPLE: Fields = Fields::ADDRESSES.and(Fields::PORTS);

    /// The set of the given fields.
    pub const fn of(fields: &[FieldId]) -> Fields {
        let (mut bits, mut i) = (0, 0);
        while i < fields.len() {
            bits |= 1 << fields[i] as u16;
            i += 1;
        }
        Fields(bits)
    }

    /// The fields that are in either set.
    pub const fn and(self, other: Fields) -> Fields {
        Fields(self.0 | other.0)
    }

    /// The fields that are in both sets.
    pub const fn common(self, other: Fields) -> Fields {
        Fields(self.0 & other.0)
    }

    /// The fields of this set that are not in the other.
    pub const fn without(self, other: Fields) -> Fields {
        Fields(self.0 & !other.0)
    }

    /// Whether the field is in the set.
    pub const fn has(self, field: FieldId) -> bool {
        self.0 & 1 << field as u16 != 0
    }

    /// Whether it has a port.
    pub const fn has_ports(self) -> bool {
        !self.common(Fields::PORTS).is_empty()
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Number of fields.
    pub const fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Whether every field of this set is in the other.
    pub const fn is_within(self, other: Fields) -> bool {
        self.0 & !other.0 == 0
    }

    /// The fields that have the same values in packets of the other direction: source and destination are swapped.
    pub fn swapped(self) -> Fields {
        self.iter().map(|field| field.opposite().unwrap_or(field)).collect()
    }

    /// The largest subset that is the same in both directions.
    pub fn both_ways(self) -> Fields {
        self.common(self.swapped())
    }

    /// The fields, in the order of [`FieldId`].
    pub fn iter(self) -> impl Iterator<Item = FieldId> {
        FieldId::ALL.into_iter().filter(move |&field| self.has(field))
    }

    /// All subsets, including the empty set and the set itself.
    pub fn subsets(self) -> impl Iterator<Item = Fields> {
        // Counting down within a mask visits every subset once.
        let mut next = Some(self.0);
        std::iter::from_fn(move || {
            let current = next?;
            next = current.checked_sub(1).map(|below| below & self.0);
            Some(Fields(current))
        })
    }
}

impl FromIterator<FieldId> for Fields {
    fn from_iter<I: IntoIterator<Item = FieldId>>(fields: I) -> Fields {
        fields.into_iter().fold(Fields::NONE, |set, field| set.and(Fields::of(&[field])))
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (i, field) in self.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { ", " }, field.name())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

/// Number of bits of a field that differ from packet to packet in ordinary traffic: how well the field spreads packet sets.
///
/// These are rough figures for ranking only; what matters is that addresses beat ports, and ports beat tags.
pub(crate) fn spread_bits(field: FieldId) -> u32 {
    match field {
        FieldId::IpSrc | FieldId::IpDst => 16,
        FieldId::SrcPort | FieldId::GtpTeid | FieldId::EthSrc | FieldId::EthDst => 12,
        FieldId::DstPort | FieldId::IcmpId => 8,
        FieldId::VlanId | FieldId::MplsLabel | FieldId::VxlanVni | FieldId::ArpTarget | FieldId::Segment => 6,
        FieldId::IpProto | FieldId::EtherType | FieldId::InPort => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swapping_directions_swaps_source_and_destination() {
        let set = Fields::of(&[FieldId::IpSrc, FieldId::DstPort, FieldId::VlanId]);
        assert_eq!(set.swapped(), Fields::of(&[FieldId::IpDst, FieldId::SrcPort, FieldId::VlanId]));
        assert_eq!(set.both_ways(), Fields::of(&[FieldId::VlanId]));
        assert_eq!(Fields::FOUR_TUPLE.both_ways(), Fields::FOUR_TUPLE);
    }

    #[test]
    fn subsets_are_all_there_once() {
        let all: Vec<Fields> = Fields::FOUR_TUPLE.subsets().collect();
        assert_eq!(all.len(), 16);
        assert!(all.contains(&Fields::NONE) && all.contains(&Fields::FOUR_TUPLE));
    }

    #[test]
    fn sets_are_printed_in_words() {
        assert_eq!(Fields::FOUR_TUPLE.to_string(), "ip.src, ip.dst, port.src, port.dst");
        assert_eq!(Fields::NONE.to_string(), "nothing");
    }
}
