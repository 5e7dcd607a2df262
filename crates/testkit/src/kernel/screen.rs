//! Determines which packets can be compared with the kernel one by one, and why the others cannot.

use std::collections::HashSet;
use std::fmt;
use std::net::IpAddr;

use etherparse::{InternetSlice, SlicedPacket, TransportSlice};

/// The IP packet in an Ethernet frame, without tags and padding. `None` if the frame contains no complete IP packet.
pub fn network_packet(frame: &[u8]) -> Option<&[u8]> {
    let packet = &frame[network_offset(frame)?..];
    let length = match packet.first()? >> 4 {
        4 => usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?])),
        6 => 40 + usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?])),
        _ => return None,
    };
    packet.get(..length)
}

/// Offset of the IP header, if the frame has one.
pub(super) fn network_offset(frame: &[u8]) -> Option<usize> {
    let mut at = 12;
    loop {
        match u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]) {
            0x8100 | 0x88a8 => at += 4,
            0x0800 | 0x86dd => return Some(at + 2),
            _ => return None,
        }
    }
}

/// Why a packet cannot be compared one to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// ARP, or anything else that a router does not forward.
    NotIp,
    /// Truncated by the capture's snap length, or malformed.
    Truncated,
    /// The kernel waits for the other fragments; compare whole datagrams.
    Fragment,
    /// INVALID for the kernel if tracking is strict.
    WrongChecksum,
    /// FIN or RST of a connection that was never seen before: INVALID for the kernel.
    EndsUnseen,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NotIp => "not IP",
            Reason::Truncated => "truncated",
            Reason::Fragment => "a fragment",
            Reason::WrongChecksum => "wrong checksum",
            Reason::EndsUnseen => "ends a connection that was never seen",
        })
    }
}

/// One end of a connection.
type End = (IpAddr, u16);

/// Examines the packets of a capture in order and remembers the connections seen.
#[derive(Debug, Default)]
pub struct Screen {
    seen: HashSet<(End, End)>,
}

impl Screen {
    /// Why this frame cannot be compared; `None` if it can. Call this for every frame, in order.
    pub fn objection(&mut self, frame: &[u8]) -> Option<Reason> {
        if network_offset(frame).is_none() {
            return Some(Reason::NotIp);
        }
        let Some(packet) = network_packet(frame) else { return Some(Reason::Truncated) };
        let Ok(parsed) = SlicedPacket::from_ip(packet) else { return Some(Reason::Truncated) };
        let Some(net) = &parsed.net else { return Some(Reason::NotIp) };
        let (source, destination) = match net {
            InternetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            InternetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            InternetSlice::Arp(_) => return Some(Reason::NotIp),
        };
        let (payload, is_fragment) = net.ip_payload_ref().map_or((&[][..], false), |ip| (ip.payload, ip.fragmented));
        if is_fragment {
            return Some(Reason::Fragment);
        }
        if !sum_is_right(&parsed.transport, source, destination, payload) {
            return Some(Reason::WrongChecksum);
        }
        let Some(TransportSlice::Tcp(tcp)) = &parsed.transport else { return None };
        let ends = [(source, tcp.source_port()), (destination, tcp.destination_port())];
        let key = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        if self.seen.contains(&key) {
            return None;
        }
        if tcp.fin() || tcp.rst() {
            return Some(Reason::EndsUnseen);
        }
        self.seen.insert(key);
        None
    }
}

fn sum_is_right(transport: &Option<TransportSlice<'_>>, source: IpAddr, destination: IpAddr, payload: &[u8]) -> bool {
    let protocol = match transport {
        Some(TransportSlice::Tcp(_)) => 6,
        Some(TransportSlice::Udp(udp)) if udp.checksum() == 0 => return source.is_ipv4(),
        Some(TransportSlice::Udp(_)) => 17,
        Some(TransportSlice::Icmpv4(_) | TransportSlice::Igmp(_)) => return fold(sum(payload)) == 0xffff,
        Some(TransportSlice::Icmpv6(_)) => 58,
        None => return true,
    };
    let addresses = match (source, destination) {
        (IpAddr::V4(a), IpAddr::V4(b)) => sum(&a.octets()) + sum(&b.octets()),
        (IpAddr::V6(a), IpAddr::V6(b)) => sum(&a.octets()) + sum(&b.octets()),
        _ => return false,
    };
    fold(addresses + protocol + payload.len() as u64 + sum(payload)) == 0xffff
}

/// Sum of 16-bit words, RFC 1071; an odd byte at the end is padded with zero.
pub(super) fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]))).sum()
}

/// Adds the carries until 16 bits remain.
pub(super) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
