//! Extraction of keys from packets: the compiled definition, and the generic path for a single packet.

use std::sync::Arc;

use super::fast::OUTSIDE;
use super::hash::{KeyHash, seed};
use super::keys::{Extracted, Keys};
use super::packing::{Packing, arp_target, gtp_teid, icmp_id, vxlan_vni};
use super::{ACROSS, FieldId, KeyClass, KeyError, KeyShape, SYMMETRIC, SetDef, SetKey, protocol};
use crate::edit::{Headers, Side};
use crate::parse::LinkFields;
use crate::port_set::PortSet;
use crate::record::{Flags, Link, Record};
use crate::segments::Segments;

/// A compiled packet-set definition.
#[derive(Clone, Debug)]
pub struct KeyExtractor {
    fields: u32,
    pub(super) form: Form,
    pub(super) symmetric: bool,
    pub(super) shape: KeyShape,
    /// Bit set of the IP protocols that belong to the set.
    pub(super) protocols: Option<[u64; 4]>,
    /// Whether IPv4 keys fit into 16 bytes, with addresses of four bytes.
    narrow_v4: bool,
    pub(super) hash: KeyHash,
    /// Meaning of segment numbers.
    segments: Option<Arc<Segments>>,
    /// The outside ports, if sides are kept apart.
    pub(super) outside: Option<PortSet>,
}

const ADDRESSES: u32 = FieldId::IpSrc.bit() | FieldId::IpDst.bit();
const PORTS: u32 = FieldId::SrcPort.bit() | FieldId::DstPort.bit();
pub(super) const FIVE_TUPLE: u32 = ADDRESSES | PORTS | FieldId::IpProto.bit();
const NEED_IP: u32 = FIVE_TUPLE | FieldId::IcmpId.bit();
const MACS: u32 = FieldId::EthSrc.bit() | FieldId::EthDst.bit();
const NEED_LINK: u32 =
    FieldId::EtherType.bit() | FieldId::VlanId.bit() | FieldId::MplsLabel.bit() | FieldId::ArpTarget.bit();
/// Byte of a wide key with addresses that states the IP version.
const VERSION_AT: usize = Keys::WIDE_BYTES - 1;

/// Shift of byte [`VERSION_AT`] within the last word.
pub(super) const VERSION_SHIFT: u32 = 56;

/// A packet's key before it is stored.
#[derive(Default)]
pub(super) struct Packed {
    pub(super) words: [u64; 5],
    pub(super) class: KeyClass,
    pub(super) swapped: bool,
}

/// Kind of key, which selects a fast path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    FiveTuple,
    OneAddress(Side),
    MacPair,
    MacPairVlan,
    Any,
}

impl Form {
    fn of(fields: u32) -> Form {
        const SRC: u32 = FieldId::IpSrc.bit();
        const DST: u32 = FieldId::IpDst.bit();
        const MACS_VLAN: u32 = MACS | FieldId::VlanId.bit();
        match fields {
            FIVE_TUPLE => Form::FiveTuple,
            SRC => Form::OneAddress(Side::Source),
            DST => Form::OneAddress(Side::Destination),
            MACS => Form::MacPair,
            MACS_VLAN => Form::MacPairVlan,
            _ => Form::Any,
        }
    }
}

/// The fields of one end of a packet, in the order in which ends are compared.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    address: [u8; 16],
    port: u16,
    mac: [u8; 6],
}

impl KeyExtractor {
    /// Compiles a definition, with the hash seed of this process.
    pub fn compile(def: &SetDef) -> Result<KeyExtractor, KeyError> {
        KeyExtractor::compile_seeded(def, seed())
    }

    /// Compiles a definition with the given hash seed.
    pub fn compile_seeded(def: &SetDef, seed: u64) -> Result<KeyExtractor, KeyError> {
        let fields = def.fields.iter().fold(0, |mask, field| mask | field.bit());
        if fields == 0 {
            return Err(KeyError::Empty(def.name.clone()));
        }
        let bytes = |address| -> usize { select(fields).map(|field| field.bytes(address)).sum() };
        let version = usize::from(fields & ADDRESSES != 0);
        if bytes(16) + version > Keys::WIDE_BYTES {
            return Err(KeyError::TooWide { name: def.name.clone(), bytes: bytes(16) + version });
        }
        if fields & FieldId::Segment.bit() != 0 && def.segments.is_none() {
            return Err(KeyError::NoSegments(def.name.clone()));
        }
        if def.symmetric {
            let missing = |field: &FieldId| field.opposite().filter(|other| fields & other.bit() == 0);
            if let Some((field, other)) = select(fields).find_map(|field| Some((field, missing(&field)?))) {
                return Err(KeyError::OneSided { name: def.name.clone(), field, other });
            }
            if fields & (ADDRESSES | PORTS | MACS) == 0 {
                return Err(KeyError::NoDirection(def.name.clone()));
            }
        }
        let protocols = def.protocols.as_ref().map(|numbers| {
            numbers.iter().fold([0; 4], |mut bits: [u64; 4], number| {
                bits[usize::from(number >> 6)] |= 1 << (number & 63);
                bits
            })
        });
        let narrow_v4 = bytes(4) <= Keys::NARROW_BYTES;
        let shape = KeyShape(if def.symmetric { fields | SYMMETRIC } else { fields });
        Ok(KeyExtractor {
            fields,
            form: Form::of(fields),
            symmetric: def.symmetric,
            shape,
            protocols,
            narrow_v4,
            hash: KeyHash::new(seed),
            segments: def.segments.clone(),
            outside: None,
        })
    }

    /// Keeps the two sides of a chain apart. In a symmetric set, the two directions become from inside to outside and back
    /// (rather than smaller end and greater end); in a one-way set, each set has packets of one side only. So no set contains
    /// two identical-looking packets from different sides.
    pub fn by_sides(mut self, outside: PortSet) -> Result<KeyExtractor, KeyError> {
        let bytes = |address| -> usize { select(self.fields).map(|field| field.bytes(address)).sum() };
        let version = usize::from(self.fields & ADDRESSES != 0);
        if !self.symmetric {
            // The side is marked in the last bit.
            self.narrow_v4 &= bytes(4) < Keys::NARROW_BYTES;
            if bytes(16) + version.max(1) > Keys::WIDE_BYTES {
                return Err(KeyError::TooWide { name: "with its side".to_owned(), bytes: bytes(16) + 1 });
            }
        }
        self.outside = Some(outside);
        Ok(self)
    }

    /// Lets a symmetric set of a chain with two sides contain both directions of a connection whatever sides its ends are on: both may be on one.
    /// The smaller end comes first, as without sides; only the shape of the keys is another. Packets of a set may then come to several workers.
    pub fn across_sides(mut self) -> KeyExtractor {
        self.shape.0 |= ACROSS;
        self
    }

    /// Returns the hash function.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Returns a protocol of packets that the set takes: this one, or the lowest number if it does not take it.
    pub fn protocol_like(&self, wished: u8) -> u8 {
        match self.protocols {
            Some(protocols) if !has(&protocols, wished) => {
                (0..=u8::MAX).find(|number| has(&protocols, *number)).unwrap_or(wished)
            }
            _ => wished,
        }
    }

    /// Returns the meaning of segment numbers in the keys, if any.
    pub fn segments(&self) -> Option<&Segments> {
        self.segments.as_deref()
    }

    /// Returns the shape of the extracted keys.
    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    /// Returns the key of one packet, given its parsed record and its bytes; `None` for an orphan.
    pub fn extract(&self, record: &Record, frame: &[u8]) -> Option<Extracted> {
        if self.protocols.is_some_and(|protocols| !admits(&protocols, record)) {
            return None;
        }
        let Packed { words, class, swapped } = self.pack(record, frame)?;
        Some(Extracted { key: SetKey::new(self.shape, class, words), hash: self.hash.of(class, &words), swapped })
    }

    #[inline(always)]
    fn wants(&self, mask: u32) -> bool {
        self.fields & mask != 0
    }

    /// The generic path, for any fields.
    #[inline(never)]
    pub(super) fn pack(&self, record: &Record, frame: &[u8]) -> Option<Packed> {
        let ip = Headers::outer(record);
        if ip.is_none() && self.wants(NEED_IP) {
            return None;
        }
        let (mut source, mut destination) = self.ends(record, ip, frame)?;
        let outside = self.outside.is_some_and(|outside| outside.has(record.port));
        let swapped = self.symmetric && if self.outside.is_some() { outside } else { source > destination };
        if swapped {
            std::mem::swap(&mut source, &mut destination);
        }
        let link = if self.wants(NEED_LINK) { Some(LinkFields::of(frame, record.flags.link())?) } else { None };
        let addresses = self.wants(ADDRESSES);
        let v6 = record.flags.has(Flags::V6);
        let wide = if addresses { v6 || !self.narrow_v4 } else { !self.narrow_v4 };
        let skip = if wide { 0 } else { 12 };
        let mut packed = Packing { bytes: [0; Keys::WIDE_BYTES], at: 0 };
        for field in select(self.fields) {
            match field {
                FieldId::IpSrc => packed.push(&source.address[skip..]),
                FieldId::IpDst => packed.push(&destination.address[skip..]),
                FieldId::SrcPort => packed.push(&source.port.to_be_bytes()),
                FieldId::DstPort => packed.push(&destination.port.to_be_bytes()),
                FieldId::IpProto => packed.push(&[record.proto]),
                FieldId::IcmpId => packed.push(&icmp_id(ip?, frame).to_be_bytes()),
                FieldId::EthSrc => packed.push(&source.mac),
                FieldId::EthDst => packed.push(&destination.mac),
                FieldId::EtherType => packed.push(&link?.ether_type.to_be_bytes()),
                FieldId::VlanId => packed.push(&link?.vlan.to_be_bytes()),
                FieldId::InPort => packed.push(&record.port.to_be_bytes()),
                FieldId::MplsLabel => packed.push(&link?.mpls_label(frame)?.to_be_bytes()),
                FieldId::GtpTeid => packed.push(&gtp_teid(ip?, frame)?.to_be_bytes()),
                FieldId::VxlanVni => packed.push(&vxlan_vni(ip?, frame)?.to_be_bytes()),
                FieldId::ArpTarget => packed.push(&arp_target(link?, frame)?),
                FieldId::Segment => packed.push(&self.segment(record, frame)?.to_be_bytes()),
            }
        }
        if wide && addresses {
            packed.bytes[VERSION_AT] = if v6 { 6 } else { 4 };
        }
        let class = if wide { KeyClass::Wide } else { KeyClass::Narrow };
        let mut words = packed.words();
        if outside && !self.symmetric {
            words[if wide { 4 } else { 1 }] |= OUTSIDE;
        }
        Some(Packed { words, class, swapped })
    }

    fn segment(&self, record: &Record, frame: &[u8]) -> Option<u16> {
        Some(self.segments.as_ref()?.of(record.port, frame, record.flags.link()))
    }

    /// Returns both ends, with zeroes for fields that the set does not name; `None` if a named field is missing.
    fn ends(&self, record: &Record, ip: Option<Headers>, frame: &[u8]) -> Option<(End, End)> {
        let (mut source, mut destination) = (End::default(), End::default());
        if self.wants(ADDRESSES) {
            source.address = ip?.address(frame, Side::Source)?.octets();
            destination.address = ip?.address(frame, Side::Destination)?.octets();
        }
        if self.wants(PORTS) {
            let ports = ip?.ports(frame);
            if ports.is_none() && self.protocols.is_some() && protocol::has_ports(record.proto) {
                return None;
            }
            (source.port, destination.port) = ports.unwrap_or((0, 0));
        }
        if self.wants(MACS) {
            let macs: &[u8; 12] =
                frame.first_chunk().filter(|_| record.flags.link() == Link::Ethernet && frame.len() >= 14)?;
            destination.mac.copy_from_slice(&macs[..6]);
            source.mac.copy_from_slice(&macs[6..]);
        }
        Some((source, destination))
    }
}

/// Returns whether the packet's protocol belongs to the set; a set that names protocols admits only IP.
#[inline(always)]
pub(super) fn admits(protocols: &[u64; 4], record: &Record) -> bool {
    record.flags.has(Flags::IP) && has(protocols, record.proto)
}

/// Returns whether a protocol is in the bit set.
#[inline(always)]
pub(super) fn has(protocols: &[u64; 4], number: u8) -> bool {
    protocols[usize::from(number >> 6)] >> (number & 63) & 1 != 0
}

pub(super) fn select(mask: u32) -> impl Iterator<Item = FieldId> {
    FieldId::ALL.into_iter().filter(move |field| mask & field.bit() != 0)
}
