//! From a packet to its worker: the function that both kinds of distribution call.
//!
//! In *hardware style*, a source splits frames into queues by [`Steering::queue`]; in *software*, a dispatcher calls [`Steering::workers_of`] on
//! parsed batches. Both get the same worker, because it is a pure function of the frame's bytes, link type and port of arrival.
//!
//! Addresses and ports are hashed by Toeplitz. In one direction this is a NIC's function bit by bit, since fields that are not hashed enter as
//! zero, which contributes nothing. Any other field (MAC addresses, tags, tunnel ids) is hashed together with the rest as a packet-set key of
//! exactly the steering's fields; no NIC has to agree with that.
//!
//! Invariant, and the promise of this crate: packets of one set reach one worker whenever the steering's fields are among the set's (and, for
//! symmetric sets, the same in both directions). It relies on reading every field as [`KeyExtractor`] does: ports are 0 where a packet has
//! none (later fragments, truncated headers, other protocols), and **only the first fragment of a datagram has ports**. So later
//! fragments may reach another worker, since they belong to another set. For UDP this can be avoided: see [`udp_ports`](crate::udp_ports).
//!
//! Packets without a hashed field belong to no set whose state is local. They are spread evenly by a hash of their first bytes.

use braid_packet::{
    BATCH_MAX, Batch, FieldId, Flags, KeyError, KeyExtractor, Link, Port, PortSet, Record, SetDef, SetKey, parse,
    protocol,
};

use crate::fields::Fields;
use crate::pattern::Pattern;
use crate::planner::{Candidate, Changed, Locality, Member, locality};
use crate::reta::Reta;
use crate::toeplitz::{Key, Toeplitz};
use crate::udp_ports::UdpPorts;

/// Whether both directions of a connection are steered alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symmetry {
    /// Each direction is steered by itself.
    #[default]
    OneWay,
    /// The two ends are put in order before they are hashed.
    BothWays,
    /// The ends of packets that arrive on these ports are swapped before they are hashed, so the hashed fields are those that a packet would have
    /// on its way from inside to outside.
    BySides(PortSet),
}

/// Why a steering cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// Replies carry the value in a field that is not hashed.
    #[error("both directions cannot be steered alike by {0} without the opposite field")]
    OneSided(Fields),
    /// Only addresses and ports can be swapped.
    #[error("{0} cannot be steered by sides")]
    NotBySides(Fields),
    /// The fields yield no valid key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The steering of a run: fields, hash, indirection table.
#[derive(Clone, Debug)]
pub struct Steering {
    hash: Toeplitz,
    reta: Reta,
    fields: Fields,
    symmetry: Symmetry,
    masks: Masks,
    udp: UdpPorts,
    /// Set if fields other than addresses and ports are hashed.
    extractor: Option<KeyExtractor>,
    /// Set if these are hashed without the ports of UDP: for its packets.
    portless: Option<KeyExtractor>,
}

/// Shows what is hashed, in words.
impl std::fmt::Display for Steering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ways = match self.symmetry {
            Symmetry::OneWay => "",
            Symmetry::BothWays => " (both directions alike)",
            Symmetry::BySides(_) => " (of packets from outside, their opposites)",
        };
        let udp = if self.udp == UdpPorts::LeftOut { ", UDP without its ports" } else { "" };
        write!(f, "{}{ways}{udp}", self.fields)
    }
}

/// Ones where a field is hashed, in header order.
#[derive(Clone, Copy, Debug)]
struct Masks {
    src: u128,
    dst: u128,
    v4: u64,
    ports: u32,
    /// For the ports of UDP, besides `ports`.
    udp: u32,
}

/// The positions of a packet's headers, as found by the parser.
#[derive(Clone, Copy)]
struct Heads {
    l3: usize,
    l4: usize,
    proto: u8,
    flags: Flags,
}

impl Steering {
    /// Creates a steering by `fields`. The protocol number is left out where addresses or ports are hashed: it would add hardly any spread, and
    /// no NIC hashes it. Without any field, all packets are spread by a hash of their first bytes.
    pub fn new(fields: Fields, symmetry: Symmetry, key: &Key, reta: Reta) -> Result<Steering, SteeringError> {
        let lone = fields.without(fields.swapped());
        if symmetry == Symmetry::BothWays && !lone.is_empty() {
            return Err(SteeringError::OneSided(lone));
        }
        let tuple = fields.common(Fields::FOUR_TUPLE);
        let others = fields.without(tuple).without(Fields::PROTOCOL);
        if matches!(symmetry, Symmetry::BySides(_)) && !others.is_empty() {
            return Err(SteeringError::NotBySides(others));
        }
        let fields = if tuple.is_empty() { fields } else { fields.without(Fields::PROTOCOL) };
        let extractor = if fields == tuple { None } else { Some(extractor(fields, symmetry)?) };
        let (hash, masks, udp) = (Toeplitz::new(key), Masks::new(tuple), UdpPorts::Hashed);
        Ok(Steering { hash, reta, fields, symmetry, masks, udp, extractor, portless: None })
    }

    /// The same steering without the ports of UDP.
    pub fn without_udp_ports(mut self) -> Result<Steering, SteeringError> {
        if self.extractor.is_some() {
            self.portless = Some(extractor(self.fields.without(Fields::PORTS), self.symmetry)?);
        }
        self.masks.udp = 0;
        self.udp = UdpPorts::LeftOut;
        Ok(self)
    }

    /// Creates the steering that the planner chose.
    pub fn of_plan(plan: &Candidate, key: &Key, reta: Reta) -> Result<Steering, SteeringError> {
        let symmetry = match (plan.sides, plan.symmetric) {
            (Some(outside), _) => Symmetry::BySides(outside),
            (None, true) => Symmetry::BothWays,
            (None, false) => Symmetry::OneWay,
        };
        let steering = Steering::new(plan.fields, symmetry, key, reta)?;
        match plan.udp.ports {
            UdpPorts::Hashed => Ok(steering),
            UdpPorts::LeftOut => steering.without_udp_ports(),
        }
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.reta.workers()
    }

    /// The fields that are hashed.
    pub fn fields(&self) -> Fields {
        self.fields
    }

    /// How the two directions of a connection are related.
    pub fn symmetry(&self) -> Symmetry {
        self.symmetry
    }

    /// Whether the ports of UDP are hashed where those of other protocols are.
    pub fn udp_ports(&self) -> UdpPorts {
        self.udp
    }

    /// Whether all packets of any one set of this definition reach one worker, if functions before have changed some fields.
    pub fn keeps(&self, set: &SetDef, changed: Changed) -> bool {
        let member = Member { changed, ..Member::new(&*set.name, Pattern::from(set)) };
        let by_sides = matches!(self.symmetry, Symmetry::BySides(_));
        let alike = !set.symmetric || self.symmetry != Symmetry::OneWay || self.fields.both_ways().is_empty();
        alike && matches!(locality(&member, (self.fields, self.udp), by_sides), Locality::Local | Locality::NoSets)
    }

    /// Whether [`hash_of_key`](Self::hash_of_key) knows the hash of every set of this definition that is kept on one worker.
    pub fn finds(&self, set: &SetDef) -> bool {
        let sided = matches!(self.symmetry, Symmetry::BySides(_));
        let is_told = self.udp.is_told_by_keys_of(set, self.fields);
        self.extractor.is_none() && !self.fields.is_empty() && (set.symmetric || !sided) && is_told
    }

    /// The hash of the packets of a set, computed from the set's key; for sets for which [`finds`](Self::finds) is true. The fields of the key are
    /// those of the set's packets, or those that a packet has on its way from inside to outside.
    pub fn hash_of_key(&self, key: &SetKey) -> u32 {
        let parts = key.parts();
        let [source, destination] = parts.ips.map(|address| address.unwrap_or_default());
        let [from, to] = parts.ports.map(|port| u32::from(port.unwrap_or(0)));
        let protocol = parts.number(FieldId::IpProto).unwrap_or(0) as u8;
        let ports = self.hashed_ports(from << 16 | to, protocol);
        match (source.v4(), destination.v4(), parts.ips) {
            // A single address determines the IP version; the other one is not hashed.
            (Some(source), Some(destination), _) => self.hash_v4(both(source, destination), ports),
            (Some(source), None, [_, None]) => self.hash_v4(both(source, [0; 4]), ports),
            (None, Some(destination), [None, _]) => self.hash_v4(both([0; 4], destination), ports),
            _ => self.hash_wide(source.octets(), destination.octets(), ports),
        }
    }

    /// The indirection table.
    pub fn reta(&self) -> &Reta {
        &self.reta
    }

    /// The indirection table, for moving load; the caller hands over the packet sets of moved entries.
    pub fn reta_mut(&mut self) -> &mut Reta {
        &mut self.reta
    }

    /// The worker of an unparsed frame: the receive queue that a NIC would select.
    #[inline]
    pub fn queue(&self, frame: &[u8], link: Link, port: Port) -> usize {
        let found = parse(frame, link);
        let heads = Heads::new(found.l3, found.l4, found.proto, found.flags);
        self.reta.worker(self.hash_of(frame, heads, port))
    }

    /// The hash of packet `i` of a parsed batch.
    #[inline]
    pub fn hash(&self, batch: &Batch, i: usize) -> u32 {
        let record = &batch.records()[i];
        let heads = Heads::new(record.l3, record.l4, record.proto, record.flags);
        self.hash_of(batch.bytes(i), heads, record.port)
    }

    /// The worker of packet `i` of a parsed batch.
    #[inline]
    pub fn worker_of(&self, batch: &Batch, i: usize) -> usize {
        self.reta.worker(self.hash(batch, i))
    }

    /// Writes the workers of all packets of a parsed batch to the beginning of `workers`.
    #[inline]
    pub fn workers_of(&self, batch: &Batch, workers: &mut [u16; BATCH_MAX]) {
        for (i, worker) in workers.iter_mut().enumerate().take(batch.len()) {
            *worker = self.worker_of(batch, i) as u16;
        }
    }

    #[inline(always)]
    fn hash_of(&self, frame: &[u8], heads: Heads, port: Port) -> u32 {
        if let Some(extractor) = &self.extractor {
            let portless = self.portless.as_ref().filter(|_| heads.proto == protocol::UDP);
            return hash_key(portless.unwrap_or(extractor), frame, heads, port);
        }
        if heads.flags.has(Flags::IP) && !self.fields.is_empty() {
            return self.hash_ip(frame, heads, port);
        }
        hash_head(frame)
    }

    #[inline(always)]
    fn hash_ip(&self, frame: &[u8], heads: Heads, port: Port) -> u32 {
        let ports = self.hashed_ports(heads.ports(frame), heads.proto);
        let turned = matches!(self.symmetry, Symmetry::BySides(outside) if outside.has(port));
        if heads.flags.has(Flags::V6) {
            return self.hash_v6(frame, heads, ports, turned);
        }
        let addresses = u64::from_be_bytes(array::<8>(frame, heads.l3 + 12));
        if turned {
            return self.hash_v4(addresses.rotate_left(32), ports.rotate_left(16));
        }
        self.hash_v4(addresses, ports)
    }

    /// The ports of a packet of this protocol; zeros if those of UDP are left out and it is one.
    #[inline(always)]
    fn hashed_ports(&self, ports: u32, proto: u8) -> u32 {
        if proto == protocol::UDP { ports & self.masks.udp } else { ports }
    }

    /// Hashes IPv4 addresses and ports: `addresses` has the source in the upper half and the destination in the lower, `ports` likewise.
    #[inline(always)]
    fn hash_v4(&self, addresses: u64, ports: u32) -> u32 {
        let (mut addresses, mut ports) = (addresses & self.masks.v4, ports & self.masks.ports);
        if self.symmetry == Symmetry::BothWays {
            let source = addresses >> 32 << 16 | u64::from(ports >> 16);
            let destination = (addresses & 0xffff_ffff) << 16 | u64::from(ports & 0xffff);
            if source > destination {
                (addresses, ports) = (addresses.rotate_left(32), ports.rotate_left(16));
            }
        }
        let mut input = [0; 12];
        input[..8].copy_from_slice(&addresses.to_be_bytes());
        input[8..].copy_from_slice(&ports.to_be_bytes());
        self.hash.hash_fixed(&input)
    }

    fn hash_v6(&self, frame: &[u8], heads: Heads, ports: u32, turned: bool) -> u32 {
        let ports = if turned { ports.rotate_left(16) } else { ports };
        let (first, second) = if turned { (24, 8) } else { (8, 24) };
        self.hash_wide(array(frame, heads.l3 + first), array(frame, heads.l3 + second), ports)
    }

    #[inline(always)]
    fn hash_wide(&self, source: [u8; 16], destination: [u8; 16], ports: u32) -> u32 {
        // A set without addresses has packets of both IP versions, so both must be hashed alike.
        if self.masks.v4 == 0 {
            return self.hash_v4(0, ports);
        }
        let mut source = u128::from_be_bytes(source) & self.masks.src;
        let mut destination = u128::from_be_bytes(destination) & self.masks.dst;
        let mut ports = ports & self.masks.ports;
        if self.symmetry == Symmetry::BothWays && (source, ports >> 16) > (destination, ports & 0xffff) {
            (source, destination, ports) = (destination, source, ports.rotate_left(16));
        }
        let mut input = [0; 36];
        input[..16].copy_from_slice(&source.to_be_bytes());
        input[16..32].copy_from_slice(&destination.to_be_bytes());
        input[32..].copy_from_slice(&ports.to_be_bytes());
        self.hash.hash_fixed(&input)
    }
}

impl Masks {
    fn new(fields: Fields) -> Masks {
        let ones = |field, mask: u64| if fields.has(field) { mask } else { 0 };
        let all = |field| if fields.has(field) { u128::MAX } else { 0 };
        Masks {
            src: all(FieldId::IpSrc),
            dst: all(FieldId::IpDst),
            v4: ones(FieldId::IpSrc, 0xffff_ffff << 32) | ones(FieldId::IpDst, 0xffff_ffff),
            ports: (ones(FieldId::SrcPort, 0xffff_0000) | ones(FieldId::DstPort, 0xffff)) as u32,
            udp: u32::MAX,
        }
    }
}

impl Heads {
    #[inline(always)]
    fn new(l3: u8, l4: u8, proto: u8, flags: Flags) -> Heads {
        Heads { l3: l3.into(), l4: l4.into(), proto, flags }
    }

    /// Both ports as in the header; 0 if the packet carries none.
    #[inline(always)]
    fn ports(self, frame: &[u8]) -> u32 {
        if !protocol::has_ports(self.proto) || self.flags.has(Flags::LATER_FRAGMENT) || self.l4 == 0 {
            return 0;
        }
        u32::from_be_bytes(array(frame, self.l3 + self.l4 * 4))
    }
}

/// Two IPv4 addresses as in a header.
fn both(source: [u8; 4], destination: [u8; 4]) -> u64 {
    u64::from(u32::from_be_bytes(source)) << 32 | u64::from(u32::from_be_bytes(destination))
}

/// The bytes of a frame from `at` on, or zeros if they do not exist.
#[inline(always)]
fn array<const N: usize>(frame: &[u8], at: usize) -> [u8; N] {
    frame.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// Compiles an extractor for keys of the steering's own fields.
fn extractor(fields: Fields, symmetry: Symmetry) -> Result<KeyExtractor, KeyError> {
    let mut def = SetDef::new("steering", &fields.iter().collect::<Vec<FieldId>>());
    // Without a field that has an opposite, both directions are alike anyway.
    def.symmetric = symmetry == Symmetry::BothWays && fields.iter().any(|field| field.opposite().is_some());
    KeyExtractor::compile(&def)
}

#[inline(never)]
fn hash_key(extractor: &KeyExtractor, frame: &[u8], heads: Heads, port: Port) -> u32 {
    let mut record = Record::default();
    (record.l3, record.l4, record.proto) = (heads.l3 as u8, heads.l4 as u8, heads.proto);
    (record.flags, record.port) = (heads.flags, port);
    // The indirection table uses the low bits.
    extractor.extract(&record, frame).map_or_else(|| hash_head(frame), |found| (found.hash >> 32) as u32)
}

/// Hashes the first 32 bytes of a frame; a shorter one is padded with zeros.
fn hash_head(frame: &[u8]) -> u32 {
    let mut head = [0; 32];
    let len = frame.len().min(head.len());
    head[..len].copy_from_slice(&frame[..len]);
    let (words, _) = head.as_chunks::<8>();
    let hash = words.iter().fold(0u64, |hash, word| {
        let mixed = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ mixed >> 32
    });
    hash as u32
}
