//! Packet sets: which packets belong together, and the key that says so.
//!
//! A [`SetDef`] names header fields; a [`KeyExtractor`] is compiled from it once and writes the keys of a whole batch into
//! [`Keys`], with their hashes. Packets that lack a field belong to no set: they are orphans.
//!
//! Conventions. *Ports* are 0 for IP packets that have none: other protocols than TCP, UDP and SCTP, later fragments, cut
//! headers; but a set that names its protocols takes in no packet whose ports are missing though its protocol has them. The
//! ICMP identifier and the VLAN are 0 in the same way. All other fields must be present.

mod extract;
mod fast;
mod hash;
mod keys;
mod loops;
mod packing;
mod show;
mod tuple;

pub use extract::KeyExtractor;
pub use hash::{DEFAULT_SEED, KeyHash};
pub use keys::{Extracted, Keys};
pub use show::KeyParts;
pub use tuple::FiveTuple;

use std::sync::Arc;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::parse::protocol;
use crate::segments::Segments;

/// A header field that can be part of a key. The order is that of the fields in a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FieldId {
    /// Source address of the outermost IP header.
    IpSrc,
    /// Its destination address.
    IpDst,
    /// Source port.
    SrcPort,
    /// Destination port.
    DstPort,
    /// Protocol behind IPv6's extension headers.
    IpProto,
    /// Identifier of an ICMP or ICMPv6 query or reply.
    IcmpId,
    /// Ethernet source.
    EthSrc,
    /// Ethernet destination.
    EthDst,
    /// Ethernet type behind the tags; 0 for 802.3 frames without SNAP.
    EtherType,
    /// VLAN of the outermost tag.
    VlanId,
    /// Port by which the packet came in.
    InPort,
    /// Outermost MPLS label.
    MplsLabel,
    /// Tunnel endpoint of a GTP-U packet to UDP port 2152.
    GtpTeid,
    /// Network identifier of a VXLAN packet to UDP port 4789.
    VxlanVni,
    /// Address that an ARP packet asks for.
    ArpTarget,
    /// Number that the set's [`Segments`] give to the port and the VLAN tags by which the packet came.
    Segment,
}

impl FieldId {
    /// All of them, in the order of a key.
    pub const ALL: [FieldId; 16] = {
        use FieldId::*;
        [
            IpSrc, IpDst, SrcPort, DstPort, IpProto, IcmpId, EthSrc, EthDst, EtherType, VlanId, InPort, MplsLabel,
            GtpTeid, VxlanVni, ArpTarget, Segment,
        ]
    };

    /// Name in plan files and reports.
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

    /// The field with that name.
    pub fn by_name(name: &str) -> Option<FieldId> {
        FieldId::ALL.into_iter().find(|field| field.name() == name)
    }

    /// The same field of the packet's other end, if it has two.
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

    /// Bytes in a key; addresses take four in keys of IPv4 that fit 16 bytes.
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

/// Which packets belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetDef {
    /// What reports call it.
    pub name: String,
    /// Fields whose values must be equal; their order has no meaning.
    pub fields: Vec<FieldId>,
    /// Both directions belong together.
    pub symmetric: bool,
    /// IP protocols that belong; `None`: all packets that have the fields.
    pub protocols: Option<Vec<u8>>,
    /// What [`FieldId::Segment`] means, if it is one of the fields.
    pub segments: Option<Arc<Segments>>,
}

impl SetDef {
    /// A set by some fields, one-way, of all protocols.
    pub fn new(name: &str, fields: &[FieldId]) -> SetDef {
        SetDef { name: name.to_owned(), fields: fields.to_vec(), symmetric: false, protocols: None, segments: None }
    }

    /// One-way flows: addresses, ports, protocol. Every IP packet belongs to one.
    pub fn five_tuple() -> SetDef {
        use FieldId::*;
        SetDef::new("five-tuple", &[IpSrc, IpDst, SrcPort, DstPort, IpProto])
    }

    /// Packets from one address.
    pub fn src_ip() -> SetDef {
        SetDef::new("source address", &[FieldId::IpSrc])
    }

    /// Packets to one address.
    pub fn dst_ip() -> SetDef {
        SetDef::new("destination address", &[FieldId::IpDst])
    }

    /// Packets between one Ethernet source and one destination.
    pub fn mac_pair() -> SetDef {
        SetDef::new("mac pair", &[FieldId::EthSrc, FieldId::EthDst])
    }

    /// The same set with both directions joined.
    pub fn symmetric(mut self) -> SetDef {
        self.symmetric = true;
        self
    }

    /// The same set with only some IP protocols.
    pub fn only(mut self, protocols: &[u8]) -> SetDef {
        self.protocols = Some(protocols.to_vec());
        self
    }

    /// Whether packets that belong under both definitions are told apart alike, and seen in as many directions.
    pub fn tells_as(&self, other: &SetDef) -> bool {
        let has_all = |of: &SetDef, all: &SetDef| all.fields.iter().all(|field| of.fields.contains(field));
        has_all(self, other) && has_all(other, self) && self.symmetric == other.symmetric
    }

    /// Whether the packets of one set under this definition are always of one set under `coarser` too, and seen in as many
    /// directions.
    pub fn refines(&self, coarser: &SetDef) -> bool {
        let all_belong = match (&self.protocols, &coarser.protocols) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(theirs)) => own.iter().all(|number| theirs.contains(number)),
        };
        let fields = coarser.fields.iter().all(|field| self.fields.contains(field));
        fields && all_belong && self.symmetric == coarser.symmetric
    }

    /// The same set within each of these segments by itself.
    pub fn within(mut self, segments: Arc<Segments>) -> SetDef {
        self.fields.push(FieldId::Segment);
        self.segments = Some(segments);
        self
    }
}

/// Why a definition makes no key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No field at all.
    #[error("packet set `{0}` names no field")]
    Empty(String),
    /// Too many fields.
    #[error("packet set `{name}` needs {bytes} bytes of key, {most} is the most", most = Keys::WIDE_BYTES)]
    TooWide {
        /// Name of the set.
        name: String,
        /// Bytes that its fields need.
        bytes: usize,
    },
    /// Symmetric, but a field has no counterpart in the set.
    #[error("packet set `{name}` is symmetric but names {} without {}", field.name(), other.name())]
    OneSided {
        /// Name of the set.
        name: String,
        /// Field that is there.
        field: FieldId,
        /// Field that is missing.
        other: FieldId,
    },
    /// Segments are a field, but there are none.
    #[error("packet set `{0}` names segments, which only a function can have")]
    NoSegments(String),
    /// Symmetric, but no field tells directions apart.
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
    /// In 16 bytes.
    Narrow,
    /// In 40 bytes.
    Wide,
}

/// Which fields stand in a key, and whether it is symmetric: what a key's words mean.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(transparent)]
pub struct KeyShape(u32);

/// Set in a [`KeyShape`] if the set is symmetric; the other bits are those of the fields.
const SYMMETRIC: u32 = 1 << 31;

/// A key that stands for itself: plain data that can be stored, compared, and printed without its definition.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SetKey {
    words: [u64; 5],
    shape: KeyShape,
    class: u32,
}

impl SetKey {
    /// Words of one: those of the fields, and what they mean.
    const WORDS: usize = size_of::<SetKey>() / 8;

    /// No key: that of an orphan.
    pub const NONE: SetKey = SetKey { words: [0; 5], shape: KeyShape(0), class: 0 };

    fn new(shape: KeyShape, class: KeyClass, words: [u64; 5]) -> SetKey {
        SetKey { words, shape, class: class as u32 }
    }

    /// A key of 16 bytes.
    pub fn narrow(shape: KeyShape, words: [u64; 2]) -> SetKey {
        SetKey::new(shape, KeyClass::Narrow, [words[0], words[1], 0, 0, 0])
    }

    /// A key of 40 bytes.
    pub fn wide(shape: KeyShape, words: [u64; 5]) -> SetKey {
        SetKey::new(shape, KeyClass::Wide, words)
    }

    /// How it is stored.
    pub fn class(&self) -> KeyClass {
        match self.class {
            1 => KeyClass::Narrow,
            2 => KeyClass::Wide,
            _ => KeyClass::None,
        }
    }

    /// What its words mean.
    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    /// The words of a narrow key.
    pub fn narrow_words(&self) -> [u64; 2] {
        [self.words[0], self.words[1]]
    }

    /// The words of a wide key; those of a narrow one with zeroes behind them.
    pub fn wide_words(&self) -> [u64; 5] {
        self.words
    }

    /// Its hash under the seed with which it was extracted: equal to that in [`Keys`].
    pub fn hash_with(&self, hash: KeyHash) -> u64 {
        hash.of(self.class(), &self.words)
    }
}

#[cfg(test)]
mod tests;
