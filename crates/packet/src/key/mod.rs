//! Packet sets: which packets belong together, and the keys that identify sets.
//!
//! A [`SetDef`] names header fields. A [`KeyExtractor`] is compiled from it once and writes the keys of a whole batch into
//! [`Keys`], with their hashes. Packets that lack a field belong to no set: they are orphans.
//!
//! Conventions: *ports* are 0 for IP packets without ports: protocols other than TCP, UDP and SCTP, later fragments, cut
//! headers. However, a set that names its protocols excludes packets whose protocol has ports but whose ports are missing.
//! The ICMP identifier and the VLAN are likewise 0 if absent. All other fields must be present.

mod extract;
mod fast;
mod hash;
mod keys;
mod loops;
mod packing;
mod show;
mod tuple;

pub use extract::KeyExtractor;
pub use hash::{DEFAULT_SEED, KeyHash, choose_seed, seed};
pub use keys::{Extracted, Keys};
pub use show::KeyParts;
pub use tuple::FiveTuple;

use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::parse::protocol;
use crate::segments::Segments;

/// A header field that can be part of a key. Fields appear in keys in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FieldId {
    /// Source address of the outermost IP header.
    IpSrc,
    /// Destination address of the outermost IP header.
    IpDst,
    /// Source port.
    SrcPort,
    /// Destination port.
    DstPort,
    /// IP protocol number after IPv6 extension headers.
    IpProto,
    /// Identifier of an ICMP or ICMPv6 query or reply.
    IcmpId,
    /// Ethernet source address.
    EthSrc,
    /// Ethernet destination address.
    EthDst,
    /// Ethernet type after the tags; 0 for 802.3 frames without SNAP.
    EtherType,
    /// VLAN of the outermost tag.
    VlanId,
    /// Arrival port.
    InPort,
    /// Outermost MPLS label.
    MplsLabel,
    /// Tunnel endpoint of a GTP-U packet to UDP port 2152.
    GtpTeid,
    /// Network identifier of a VXLAN packet to UDP port 4789.
    VxlanVni,
    /// Target address of an ARP packet.
    ArpTarget,
    /// Number that the set's [`Segments`] assign to the packet's arrival port and VLAN tags.
    Segment,
}

impl FieldId {
    /// All fields, in the order of a key.
    pub const ALL: [FieldId; 16] = {
        use FieldId::*;
        [
            IpSrc, IpDst, SrcPort, DstPort, IpProto, IcmpId, EthSrc, EthDst, EtherType, VlanId, InPort, MplsLabel,
            GtpTeid, VxlanVni, ArpTarget, Segment,
        ]
    };

    /// Returns the name used in plan files and reports.
    pub fn name(self) -> &'static str {
        match self {
            FieldId::IpSrc => "ip.src",
            FieldId::IpDst => "ip.dst",
            FieldId::SrcPort => "port.src",
            FieldId::DstPort => "port.dst",
            FieldId::IpProto => "ip.proto",
            FieldId::IcmpId => "icmp.id",
            FieldId::EthSrc => "eth.src",
            FieldId::EthDst => "eth.dst",
            FieldId::EtherType => "eth.type",
            FieldId::VlanId => "vlan",
            FieldId::InPort => "in",
            FieldId::MplsLabel => "mpls",
            FieldId::GtpTeid => "gtp.teid",
            FieldId::VxlanVni => "vxlan.vni",
            FieldId::ArpTarget => "arp.target",
            FieldId::Segment => "segment",
        }
    }

    /// Returns the field with this name.
    pub fn by_name(name: &str) -> Option<FieldId> {
        FieldId::ALL.into_iter().find(|field| field.name() == name)
    }

    /// Returns the corresponding field of the packet's other end, if there is one.
    pub fn opposite(self) -> Option<FieldId> {
        Some(match self {
            FieldId::IpSrc => FieldId::IpDst,
            FieldId::IpDst => FieldId::IpSrc,
            FieldId::SrcPort => FieldId::DstPort,
            FieldId::DstPort => FieldId::SrcPort,
            FieldId::EthSrc => FieldId::EthDst,
            FieldId::EthDst => FieldId::EthSrc,
            _ => return None,
        })
    }

    /// Returns the field's length in a key in bytes, given that of an address: four in IPv4 keys that fit into 16 bytes.
    fn bytes(self, address: usize) -> usize {
        match self {
            FieldId::IpSrc | FieldId::IpDst => address,
            FieldId::EthSrc | FieldId::EthDst => 6,
            FieldId::IpProto => 1,
            FieldId::MplsLabel | FieldId::GtpTeid | FieldId::VxlanVni | FieldId::ArpTarget => 4,
            _ => 2,
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Definition of a packet set: which packets belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDef {
    /// Name of the set in reports.
    pub name: String,
    /// Fields whose values must be equal; their order does not matter.
    pub fields: Vec<FieldId>,
    /// Whether both directions belong to the same set.
    pub symmetric: bool,
    /// IP protocols that belong; `None` admits all packets that have the fields.
    pub protocols: Option<Vec<u8>>,
    /// Meaning of [`FieldId::Segment`], if it is one of the fields.
    pub segments: Option<Arc<Segments>>,
}

impl SetDef {
    /// Creates a one-way set by the given fields, for all protocols.
    pub fn new(name: &str, fields: &[FieldId]) -> SetDef {
        SetDef { name: name.to_owned(), fields: fields.to_vec(), symmetric: false, protocols: None, segments: None }
    }

    /// One-way flows: addresses, ports and protocol. Every IP packet belongs to one.
    pub fn five_tuple() -> SetDef {
        use FieldId::*;
        SetDef::new("five-tuple", &[IpSrc, IpDst, SrcPort, DstPort, IpProto])
    }

    /// Packets by source address.
    pub fn src_ip() -> SetDef {
        SetDef::new("source address", &[FieldId::IpSrc])
    }

    /// Packets by destination address.
    pub fn dst_ip() -> SetDef {
        SetDef::new("destination address", &[FieldId::IpDst])
    }

    /// Packets by Ethernet source and destination address.
    pub fn mac_pair() -> SetDef {
        SetDef::new("mac pair", &[FieldId::EthSrc, FieldId::EthDst])
    }

    /// Joins both directions into one set.
    pub fn symmetric(mut self) -> SetDef {
        self.symmetric = true;
        self
    }

    /// Restricts the set to some IP protocols.
    pub fn only(mut self, protocols: &[u8]) -> SetDef {
        self.protocols = Some(protocols.to_vec());
        self
    }

    /// Returns whether both definitions have the same fields and the same symmetry, so that they separate the packets
    /// admitted by both in the same way.
    pub fn tells_as(&self, other: &SetDef) -> bool {
        let has_all = |of: &SetDef, all: &SetDef| all.fields.iter().all(|field| of.fields.contains(field));
        has_all(self, other) && has_all(other, self) && self.symmetric == other.symmetric
    }

    /// Returns whether all packets of a set under this definition always belong to one set under `coarser`, with the same symmetry.
    pub fn refines(&self, coarser: &SetDef) -> bool {
        let all_belong = match (&self.protocols, &coarser.protocols) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(theirs)) => own.iter().all(|number| theirs.contains(number)),
        };
        let fields = coarser.fields.iter().all(|field| self.fields.contains(field));
        fields && all_belong && self.symmetric == coarser.symmetric
    }

    /// Separates the sets of different segments.
    pub fn within(mut self, segments: Arc<Segments>) -> SetDef {
        self.fields.push(FieldId::Segment);
        self.segments = Some(segments);
        self
    }
}

/// Why a definition cannot be compiled to a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The set names no field.
    #[error("packet set `{0}` names no field")]
    Empty(String),
    /// The fields need too many bytes.
    #[error("packet set `{name}` needs {bytes} bytes of key, {most} is the most", most = Keys::WIDE_BYTES)]
    TooWide {
        /// Name of the set.
        name: String,
        /// Bytes that the fields need.
        bytes: usize,
    },
    /// The set is symmetric, but a field's counterpart is missing.
    #[error("packet set `{name}` is symmetric but names {} without {}", field.name(), other.name())]
    OneSided {
        /// Name of the set.
        name: String,
        /// Field that is present.
        field: FieldId,
        /// Field that is missing.
        other: FieldId,
    },
    /// The set names segments, but has none.
    #[error("packet set `{0}` names segments, which only a function can have")]
    NoSegments(String),
    /// The set is symmetric, but no field depends on the direction.
    #[error("packet set `{0}` is symmetric but names no field that has two directions")]
    NoDirection(String),
}

/// How a key is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum KeyClass {
    /// The packet belongs to no set.
    #[default]
    None,
    /// The key is stored in 16 bytes.
    Narrow,
    /// The key is stored in 40 bytes.
    Wide,
}

/// The fields of a key and whether it is symmetric: the meaning of its words.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct KeyShape(u32);

/// Bit of a [`KeyShape`] for symmetric sets; the bits below both stand for fields.
const SYMMETRIC: u32 = 1 << 31;
/// Bit of a [`KeyShape`] for [`KeyExtractor::across_sides`].
const ACROSS: u32 = 1 << 30;

/// A self-contained key: plain data that can be stored, compared and printed without its definition.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetKey {
    words: [u64; 5],
    shape: KeyShape,
    class: u32,
}

impl SetKey {
    /// Number of words of a key, including its shape and class.
    const WORDS: usize = size_of::<SetKey>() / 8;

    /// The absent key, used for orphans.
    pub const NONE: SetKey = SetKey { words: [0; 5], shape: KeyShape(0), class: 0 };

    fn new(shape: KeyShape, class: KeyClass, words: [u64; 5]) -> SetKey {
        SetKey { words, shape, class: class as u32 }
    }

    /// Creates a key of 16 bytes.
    pub fn narrow(shape: KeyShape, words: [u64; 2]) -> SetKey {
        SetKey::new(shape, KeyClass::Narrow, [words[0], words[1], 0, 0, 0])
    }

    /// Creates a key of 40 bytes.
    pub fn wide(shape: KeyShape, words: [u64; 5]) -> SetKey {
        SetKey::new(shape, KeyClass::Wide, words)
    }

    /// Returns how the key is stored.
    pub fn class(&self) -> KeyClass {
        match self.class {
            1 => KeyClass::Narrow,
            2 => KeyClass::Wide,
            _ => KeyClass::None,
        }
    }

    /// Returns the meaning of its words.
    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    /// Returns the words of a narrow key.
    pub fn narrow_words(&self) -> [u64; 2] {
        [self.words[0], self.words[1]]
    }

    /// Returns the words of a wide key, or of a narrow key followed by zeroes.
    pub fn wide_words(&self) -> [u64; 5] {
        self.words
    }

    /// Returns the key's hash; with the seed used for extraction it equals the one in [`Keys`].
    pub fn hash_with(&self, hash: KeyHash) -> u64 {
        hash.of(self.class(), &self.words)
    }
}

#[cfg(test)]
mod tests;
