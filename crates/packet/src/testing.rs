//! Packets for tests, written independently: plain loops over bytes that share nothing with the code under test.

use std::sync::Arc;

use proptest::prelude::*;

use crate::address::IpAddress;
use crate::batch::{Batch, FrameInfo};
use crate::fields::Layout;
use crate::pool::{Buffers, Pool, PoolConfig};
use crate::record::Link;

/// Creates a batch of parsed frames, in buffers that held other packets before.
pub(crate) fn batch(frames: &[(Vec<u8>, Link)], layout: Layout) -> Batch {
    let mut batch = unparsed(frames, layout);
    batch.parse_all();
    batch
}

/// Creates a batch of frames that are not parsed yet, in buffers that held other packets before.
pub(crate) fn unparsed(frames: &[(Vec<u8>, Link)], layout: Layout) -> Batch {
    let config = PoolConfig { buffers: 64, jumbos: 1, pages: braid_memory::HugePages::Never };
    let pool = Pool::new(&config).unwrap();
    let mut batch = Batch::new(&pool, &Arc::new(layout));
    let mut buffers = Buffers::new(&pool);
    let stale = [&[2; 12][..], &[8, 0, 0x45, 0, 0, 20], &[17; 1400]].concat();
    while batch.len() < 64 && batch.copy_in(&mut buffers, &stale, &FrameInfo::default()) {}
    batch.release(&mut buffers);
    for (i, (bytes, link)) in frames.iter().enumerate() {
        let info = FrameInfo { link: *link, wire_len: bytes.len() as u32, sequence: i as u64, ..FrameInfo::default() };
        assert!(batch.copy_in(&mut buffers, bytes, &info));
    }
    batch
}

/// Creates a batch of one parsed frame.
pub(crate) fn single(bytes: &[u8], link: Link) -> Batch {
    batch(&[(bytes.to_vec(), link)], Layout::bare())
}

/// The Internet checksum, word by word with an end-around carry.
pub(crate) fn naive_checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) * 256 + pair.get(1).copied().map_or(0, u32::from);
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    !(sum as u16)
}

/// CRC32c, bit by bit.
fn naive_crc32c(bytes: &[u8]) -> u32 {
    let mut register = !0u32;
    for byte in bytes {
        register ^= u32::from(*byte);
        for _ in 0..8 {
            register = register >> 1 ^ if register & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !register
}

/// What is between link header and IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrap {
    Plain,
    Vlan,
    QinQ,
    Mpls,
    Pppoe,
    Snap,
    Raw,
    Cooked1,
    Cooked2,
    Loopback,
    Ppp,
    Hdlc,
}

/// What the IP header carries.
#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    UdpWithoutChecksum,
    Echo,
    Sctp,
    Other(u8),
    /// An ICMP error that quotes this many bytes of a packet.
    Error(Box<Spec>, usize),
}

/// Description of a packet to be built.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    pub(crate) wrap: Wrap,
    pub(crate) src: IpAddress,
    pub(crate) dst: IpAddress,
    pub(crate) ports: (u16, u16),
    pub(crate) id: u16,
    pub(crate) ttl: u8,
    /// Number of words of IPv4 options, or of eight-byte extension headers.
    pub(crate) options: usize,
    pub(crate) transport: Transport,
    pub(crate) payload: Vec<u8>,
}

impl Spec {
    /// Creates a description with default values for everything else.
    pub(crate) fn new(src: &str, dst: &str, ports: (u16, u16), transport: Transport) -> Spec {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        Spec { wrap: Wrap::Plain, src, dst, ports, id: 7, ttl: 64, options: 0, transport, payload: vec![1, 2, 3, 4, 5] }
    }

    fn is_v6(&self) -> bool {
        !self.src.is_v4()
    }

    fn protocol(&self) -> u8 {
        match self.transport {
            Transport::Tcp => 6,
            Transport::Udp | Transport::UdpWithoutChecksum => 17,
            Transport::Echo | Transport::Error(..) if self.is_v6() => 58,
            Transport::Echo | Transport::Error(..) => 1,
            Transport::Sctp => 132,
            Transport::Other(number) => number,
        }
    }

    fn addresses(&self) -> Vec<u8> {
        match (self.src.v4(), self.dst.v4()) {
            (Some(src), Some(dst)) => [src, dst].concat(),
            _ => [self.src.octets(), self.dst.octets()].concat(),
        }
    }

    fn segment(&self) -> Vec<u8> {
        let ports = [self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat();
        let echo = if self.is_v6() { 128 } else { 8 };
        let error = if self.is_v6() { 1 } else { 3 };
        let (mut segment, field) = match &self.transport {
            Transport::Tcp => {
                ([&ports[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x60, 0x12, 4, 0, 0, 0, 0, 0, 2, 4, 5, 0xb4]].concat(), 16)
            }
            Transport::Udp | Transport::UdpWithoutChecksum => {
                let len = (8 + self.payload.len()) as u16;
                ([&ports[..], &len.to_be_bytes(), &[0, 0]].concat(), 6)
            }
            Transport::Echo => ([&[echo, 0, 0, 0][..], &self.id.to_be_bytes(), &[0, 9]].concat(), 2),
            Transport::Sctp => ([&ports[..], &[9; 4], &[0; 4]].concat(), 8),
            Transport::Other(_) => (vec![], 0),
            Transport::Error(inner, keep) => {
                let quoted = inner.ip_packet();
                let quoted = &quoted[..quoted.len().min(*keep)];
                ([&[error, 1, 0, 0, 0, 0, 0, 0], quoted].concat(), 2)
            }
        };
        if !matches!(self.transport, Transport::Error(..)) {
            segment.extend(&self.payload);
        }
        self.seal(&mut segment, field);
        segment
    }

    fn seal(&self, segment: &mut [u8], field: usize) {
        let length = (segment.len() as u32).to_be_bytes();
        let protocol = [0, 0, 0, self.protocol()];
        let sum = naive_checksum(&[&self.addresses(), &length, &protocol, segment]);
        let sum = match self.transport {
            Transport::Tcp => sum,
            Transport::Udp => sum.max(u16::from(sum == 0) * 0xffff),
            Transport::Echo | Transport::Error(..) if self.is_v6() => sum,
            Transport::Echo | Transport::Error(..) => naive_checksum(&[segment]),
            Transport::Sctp => {
                let crc = naive_crc32c(segment);
                return segment[field..field + 4].copy_from_slice(&crc.to_le_bytes());
            }
            Transport::UdpWithoutChecksum | Transport::Other(_) => return,
        };
        segment[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    }

    pub(crate) fn ip_packet(&self) -> Vec<u8> {
        let segment = self.segment();
        if self.is_v6() {
            let mut extensions = Vec::new();
            for i in 0..self.options {
                let next = if i + 1 == self.options { self.protocol() } else { 60 };
                extensions.extend([next, 0, 1, 4, 0, 0, 0, 0]);
            }
            let first = if self.options == 0 { self.protocol() } else { 60 };
            let length = ((extensions.len() + segment.len()) as u16).to_be_bytes();
            return [&[0x60, 0, 0, 0][..], &length, &[first, self.ttl], &self.addresses(), &extensions, &segment]
                .concat();
        }
        let header = 20 + self.options * 4;
        let total = ((header + segment.len()) as u16).to_be_bytes();
        let fixed = [0x40 | (header / 4) as u8, 0, total[0], total[1], 0, 1, 0x40, 0, self.ttl, self.protocol(), 0, 0];
        let mut packet = [&fixed[..], &self.addresses(), &vec![1; self.options * 4]].concat();
        let sum = naive_checksum(&[&packet]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend(segment);
        packet
    }

    /// Returns the frame and its link type.
    pub(crate) fn frame(&self) -> (Vec<u8>, Link) {
        let kind: [u8; 2] = if self.is_v6() { [0x86, 0xdd] } else { [8, 0] };
        let ppp: [u8; 2] = if self.is_v6() { [0, 0x57] } else { [0, 0x21] };
        let macs = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let family = if self.is_v6() { 30 } else { 2 };
        let (head, link) = match self.wrap {
            Wrap::Plain => ([&macs[..], &kind].concat(), Link::Ethernet),
            Wrap::Vlan => ([&macs[..], &[0x81, 0, 0x60, 5], &kind].concat(), Link::Ethernet),
            Wrap::QinQ => ([&macs[..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5], &kind].concat(), Link::Ethernet),
            Wrap::Mpls => ([&macs[..], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]].concat(), Link::Ethernet),
            Wrap::Pppoe => ([&macs[..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 0], &ppp].concat(), Link::Ethernet),
            Wrap::Snap => ([&macs[..], &[0, 99, 0xaa, 0xaa, 3, 0, 0, 0], &kind].concat(), Link::Ethernet),
            Wrap::Raw => (vec![], Link::RawIp),
            Wrap::Cooked1 => ([&[0; 14][..], &kind].concat(), Link::Cooked1),
            Wrap::Cooked2 => ([&kind[..], &[0; 18]].concat(), Link::Cooked2),
            Wrap::Loopback => (vec![family, 0, 0, 0], Link::Loopback),
            Wrap::Ppp => ([&[0xff, 3], &ppp[..]].concat(), Link::Ppp),
            Wrap::Hdlc => ([&[0x0f, 0], &kind[..]].concat(), Link::Hdlc),
        };
        ([head, self.ip_packet()].concat(), link)
    }

    /// Returns the offset of the IP header in the frame.
    pub(crate) fn l3(&self) -> usize {
        self.frame().0.len() - self.ip_packet().len()
    }
}

pub(crate) fn wraps() -> impl Strategy<Value = Wrap> {
    use Wrap::*;
    prop::sample::select(vec![Plain, Vlan, QinQ, Mpls, Pppoe, Snap, Raw, Cooked1, Cooked2, Loopback, Ppp, Hdlc])
}

pub(crate) fn address(v6: bool) -> impl Strategy<Value = IpAddress> {
    any::<[u8; 16]>().prop_map(move |mut bytes| {
        if !v6 {
            return IpAddress::from_v4([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        bytes[0] |= 0x20;
        IpAddress::from_v6(bytes)
    })
}

fn spec_with(v6: bool, transport: impl Strategy<Value = Transport>) -> impl Strategy<Value = Spec> {
    let ends = (address(v6), address(v6), any::<(u16, u16)>(), any::<u16>(), any::<u8>());
    (wraps(), ends, 0usize..4, transport, prop::collection::vec(any::<u8>(), 0..90)).prop_map(
        |(wrap, (src, dst, ports, id, ttl), options, transport, payload)| Spec {
            wrap,
            src,
            dst,
            ports,
            id,
            ttl,
            options,
            transport,
            payload,
        },
    )
}

fn simple_transport() -> impl Strategy<Value = Transport> {
    use Transport::*;
    prop_oneof![
        Just(Tcp),
        Just(Udp),
        Just(UdpWithoutChecksum),
        Just(Echo),
        Just(Sctp),
        Just(Other(47)),
        Just(Other(99))
    ]
}

/// Well-formed packets of every kind.
pub(crate) fn specs() -> impl Strategy<Value = Spec> {
    any::<bool>().prop_flat_map(|v6| {
        let error = (spec_with(v6, simple_transport()), 20usize..200).prop_map(|(inner, keep)| {
            let header = if inner.is_v6() { 40 } else { 20 };
            Transport::Error(Box::new(inner), keep.max(header))
        });
        spec_with(v6, prop_oneof![3 => simple_transport().boxed(), 1 => error.boxed()])
    })
}

/// Any link and bytes: pure noise, or a well-formed packet with a few bytes changed and its end cut off.
pub(crate) fn noise() -> impl Strategy<Value = (Vec<u8>, Link)> {
    use Link::*;
    let links = prop::sample::select(vec![Ethernet, RawIp, Cooked1, Cooked2, Loopback, Other, Ppp, Hdlc]);
    let random = (prop::collection::vec(any::<u8>(), 0..200), links);
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    let mutated =
        (specs(), changes, any::<prop::sample::Index>(), any::<bool>()).prop_map(|(spec, changes, end, cut)| {
            let (mut bytes, link) = spec.frame();
            for (at, value) in changes {
                let at = at.index(bytes.len().min(90));
                bytes[at] = value;
            }
            let keep = if cut { end.index(bytes.len() + 1) } else { bytes.len() };
            bytes.truncate(keep);
            (bytes, link)
        });
    prop_oneof![1 => random, 3 => mutated]
}
