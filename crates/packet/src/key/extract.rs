//! From packets to keys, a batch at a time.

use super::hash::{DEFAULT_SEED, KeyHash};
use super::{FieldId, KeyClass, KeyError, KeyShape, SYMMETRIC, SetDef, SetKey, protocol};
use crate::batch::{BATCH_MAX, Batch};
use crate::edit::{Headers, Side};
use crate::headers::{Arp, GtpU, Header, Vxlan};
use crate::parse::{LinkFields, be16};
use crate::record::{Flags, Link, Record};

/// Keys of a batch, field by field. What stands beyond the batch's length or belongs to another class is left over.
#[derive(Debug)]
pub struct Keys {
    /// Which of the two arrays has the packet's key.
    pub class: [KeyClass; BATCH_MAX],
    /// Whether a symmetric key exchanged the packet's ends: the packet goes from the greater end to the smaller one.
    pub swapped: [bool; BATCH_MAX],
    /// Seeded hash of the key; 0 for orphans.
    pub hash: [u64; BATCH_MAX],
    /// Keys of at most 16 bytes.
    pub narrow: [[u64; 2]; BATCH_MAX],
    /// Keys of more.
    pub wide: [[u64; 5]; BATCH_MAX],
    /// Fields of all keys.
    pub shape: KeyShape,
}

impl Keys {
    /// Most bytes of a key.
    pub const WIDE_BYTES: usize = 40;
    const NARROW_BYTES: usize = 16;

    /// Room for a batch, all orphans.
    pub fn boxed() -> Box<Keys> {
        Box::new(Keys {
            class: [KeyClass::None; BATCH_MAX],
            swapped: [false; BATCH_MAX],
            hash: [0; BATCH_MAX],
            narrow: [[0; 2]; BATCH_MAX],
            wide: [[0; 5]; BATCH_MAX],
            shape: KeyShape::default(),
        })
    }

    /// Key of packet `i`, to keep or to print; [`SetKey::NONE`] for an orphan.
    #[inline(always)]
    pub fn key(&self, i: usize) -> SetKey {
        match self.class[i] {
            KeyClass::Narrow => SetKey::narrow(self.shape, self.narrow[i]),
            KeyClass::Wide => SetKey::wide(self.shape, self.wide[i]),
            KeyClass::None => SetKey::NONE,
        }
    }
}

/// Key of a single packet.
#[derive(Clone, Copy, Debug)]
pub struct Extracted {
    /// The key.
    pub key: SetKey,
    /// Its hash.
    pub hash: u64,
    /// Whether a symmetric key exchanged the packet's ends.
    pub swapped: bool,
}

/// A definition, ready to run.
#[derive(Clone, Debug)]
pub struct KeyExtractor {
    fields: u32,
    symmetric: bool,
    shape: KeyShape,
    /// One bit for each IP protocol that belongs.
    protocols: Option<[u64; 4]>,
    /// Keys of IPv4 fit 16 bytes with addresses of four.
    narrow_v4: bool,
    hash: KeyHash,
}

const ADDRESSES: u32 = FieldId::IpSrc.bit() | FieldId::IpDst.bit();
const PORTS: u32 = FieldId::SrcPort.bit() | FieldId::DstPort.bit();
const FIVE_TUPLE: u32 = ADDRESSES | PORTS | FieldId::IpProto.bit();
const NEED_IP: u32 = FIVE_TUPLE | FieldId::IcmpId.bit();
const MACS: u32 = FieldId::EthSrc.bit() | FieldId::EthDst.bit();
const NEED_LINK: u32 =
    FieldId::EtherType.bit() | FieldId::VlanId.bit() | FieldId::MplsLabel.bit() | FieldId::ArpTarget.bit();
/// Where wide keys with addresses say which IP version they have.
const VERSION_AT: usize = Keys::WIDE_BYTES - 1;

/// What stands at one end of a packet, in the order in which ends are compared.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    address: [u8; 16],
    port: u16,
    mac: [u8; 6],
}

impl KeyExtractor {
    /// Compiles a definition, with the hash seed of repeatable runs.
    pub fn compile(def: &SetDef) -> Result<KeyExtractor, KeyError> {
        KeyExtractor::compile_seeded(def, DEFAULT_SEED)
    }

    /// Compiles a definition with a hash seed.
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
        Ok(KeyExtractor { fields, symmetric: def.symmetric, shape, protocols, narrow_v4, hash: KeyHash::new(seed) })
    }

    /// The hash it uses.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Fields of the keys it makes.
    pub fn shape(&self) -> KeyShape {
        self.shape
    }

    /// Writes keys and hashes of all packets of a parsed batch.
    #[inline]
    pub fn extract_batch(&self, batch: &Batch, keys: &mut Keys) {
        keys.shape = self.shape;
        match (self.fields == FIVE_TUPLE && self.protocols.is_none(), self.symmetric) {
            (true, false) => self.five_tuples::<false>(batch, keys),
            (true, true) => self.five_tuples::<true>(batch, keys),
            _ => {
                for i in 0..batch.len().min(BATCH_MAX) {
                    self.place(batch, keys, i);
                }
            }
        }
    }

    /// IPv4 five-tuples without detours; everything else goes the general way.
    #[inline(always)]
    fn five_tuples<const SYMMETRIC: bool>(&self, batch: &Batch, keys: &mut Keys) {
        for (i, record) in batch.records().iter().enumerate().take(BATCH_MAX) {
            if (record.flags.0 & (Flags::IP | Flags::V6)) != Flags::IP {
                self.place(batch, keys, i);
                continue;
            }
            let (frame, l3) = (batch.bytes(i), record.l3 as usize);
            let addresses = frame.get(l3 + 12..).and_then(|rest| rest.first_chunk::<8>());
            let has_ports = protocol::has_ports(record.proto) && !record.flags.has(Flags::LATER_FRAGMENT);
            let ports = if has_ports { frame.get(l3 + record.l4 as usize * 4..) } else { None };
            let ports = u32::from_le_bytes(*ports.and_then(|rest| rest.first_chunk::<4>()).unwrap_or(&[0; 4]));
            let addresses = u64::from_le_bytes(*addresses.unwrap_or(&[0; 8]));
            let (mut key, mut swapped) = ([addresses, u64::from(ports)], false);
            if SYMMETRIC {
                let source = u64::from((addresses as u32).swap_bytes()) << 16 | u64::from((ports as u16).swap_bytes());
                let destination = u64::from(((addresses >> 32) as u32).swap_bytes()) << 16
                    | u64::from(((ports >> 16) as u16).swap_bytes());
                swapped = source > destination;
                let turned = [addresses.rotate_left(32), u64::from(ports.rotate_left(16))];
                key = if swapped { turned } else { key };
            }
            key[1] |= u64::from(record.proto) << 32;
            keys.class[i] = KeyClass::Narrow;
            keys.swapped[i] = swapped;
            keys.narrow[i] = key;
            keys.hash[i] = self.hash.narrow(&key);
        }
    }

    #[inline(never)]
    fn place(&self, batch: &Batch, keys: &mut Keys, i: usize) {
        let (words, class, swapped) = self.pack(&batch.records()[i], batch.bytes(i)).unwrap_or_default();
        keys.class[i] = class;
        keys.swapped[i] = swapped;
        keys.hash[i] = self.hash.of(class, &words);
        match class {
            KeyClass::Wide => keys.wide[i] = words,
            _ => keys.narrow[i] = [words[0], words[1]],
        }
    }

    /// Key of one packet, given its parsed record and its bytes. None for an orphan.
    pub fn extract(&self, record: &Record, frame: &[u8]) -> Option<Extracted> {
        let (words, class, swapped) = self.pack(record, frame)?;
        Some(Extracted { key: SetKey::new(self.shape, class, words), hash: self.hash.of(class, &words), swapped })
    }

    #[inline(always)]
    fn wants(&self, mask: u32) -> bool {
        self.fields & mask != 0
    }

    fn pack(&self, record: &Record, frame: &[u8]) -> Option<([u64; 5], KeyClass, bool)> {
        let ip = Headers::outer(record);
        if ip.is_none() && (self.wants(NEED_IP) || self.protocols.is_some()) {
            return None;
        }
        if self.protocols.is_some_and(|bits| bits[usize::from(record.proto >> 6)] >> (record.proto & 63) & 1 == 0) {
            return None;
        }
        let (mut source, mut destination) = self.ends(record, ip, frame)?;
        let swapped = self.symmetric && source > destination;
        if swapped {
            std::mem::swap(&mut source, &mut destination);
        }
        let link = if self.wants(NEED_LINK) { Some(LinkFields::of(frame, record.flags.link())?) } else { None };
        let addresses = self.wants(ADDRESSES);
        let v6 = record.flags.has(Flags::V6);
        let wide = if addresses { v6 || !self.narrow_v4 } else { !self.narrow_v4 };
        let skip = if wide { 0 } else { 12 };
        let mut packed = Packed { bytes: [0; Keys::WIDE_BYTES], at: 0 };
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
            }
        }
        if wide && addresses {
            packed.bytes[VERSION_AT] = if v6 { 6 } else { 4 };
        }
        Some((packed.words(), if wide { KeyClass::Wide } else { KeyClass::Narrow }, swapped))
    }

    /// Both ends, with zeroes in what the set does not name. None if what it names is missing.
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

pub(super) fn select(mask: u32) -> impl Iterator<Item = FieldId> {
    FieldId::ALL.into_iter().filter(move |field| mask & field.bit() != 0)
}

/// Bytes of a key, filled from the front; the fields were checked to fit.
struct Packed {
    bytes: [u8; Keys::WIDE_BYTES],
    at: usize,
}

impl Packed {
    #[inline(always)]
    fn push(&mut self, field: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.at..self.at + field.len()) {
            place.copy_from_slice(field);
        }
        self.at += field.len();
    }

    fn words(&self) -> [u64; 5] {
        let (words, _) = self.bytes.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_le_bytes(words[i]))
    }
}

fn icmp_id(ip: Headers, frame: &[u8]) -> u16 {
    ip.icmp_id_at(frame).and_then(|at| be16(frame, at)).unwrap_or(0)
}

/// What a UDP packet to `port` carries.
fn udp_payload(ip: Headers, frame: &[u8], port: u16) -> Option<&[u8]> {
    let to = ip.ports(frame)?.1;
    if ip.proto == protocol::UDP && to == port { frame.get(ip.transport()? + 8..) } else { None }
}

fn gtp_teid(ip: Headers, frame: &[u8]) -> Option<u32> {
    Some(GtpU::parse(udp_payload(ip, frame, GtpU::PORT)?)?.teid())
}

fn vxlan_vni(ip: Headers, frame: &[u8]) -> Option<u32> {
    Some(Vxlan::parse(udp_payload(ip, frame, Vxlan::PORT)?)?.vni())
}

fn arp_target(link: LinkFields, frame: &[u8]) -> Option<[u8; 4]> {
    if link.ether_type != crate::headers::ether_type::ARP {
        return None;
    }
    Arp::parse(frame.get(link.at..)?)?.target_ip().v4()
}
