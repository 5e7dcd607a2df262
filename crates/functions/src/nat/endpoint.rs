//! Endpoints: address, port and protocol; for ICMP the identifier of queries takes the place of a port.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

/// Number of a protocol among those that are translated.
#[inline(always)]
pub(super) fn slot(number: u8) -> u32 {
    match number {
        protocol::TCP => 0,
        protocol::UDP => 1,
        _ => 2,
    }
}

/// Address, port and protocol.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Endpoint {
    pub(super) address: [u8; 4],
    pub(super) port: u16,
    pub(super) protocol: u8,
    zero: u8,
}

impl Endpoint {
    pub(super) fn new(address: [u8; 4], port: u16, protocol: u8) -> Endpoint {
        Endpoint { address, port, protocol, zero: 0 }
    }

    pub(super) fn ip(&self) -> IpAddress {
        IpAddress::from_v4(self.address)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (address, port) = (self.ip(), self.port);
        match self.protocol {
            protocol::TCP => write!(f, "tcp {address}:{port}"),
            protocol::UDP => write!(f, "udp {address}:{port}"),
            _ => write!(f, "icmp {address} id {port}"),
        }
    }
}

/// Both ends of a packet that can be translated: of TCP and UDP, and of ICMP queries, whose identifier stands at both ends.
pub(super) fn ends(packet: &Packet<'_>) -> Option<(Endpoint, Endpoint)> {
    let number = packet.protocol();
    let (source, destination) = match number {
        protocol::TCP => packet.ports().filter(|_| packet.tcp_flags().is_some())?,
        protocol::UDP => packet.ports()?,
        protocol::ICMP => packet.icmp_id().map(|id| (id, id))?,
        _ => return None,
    };
    let end = |address, port| Some(Endpoint::new(address, port, number));
    Some((end(packet.src_ip().v4()?, source)?, end(packet.dst_ip().v4()?, destination)?))
}

/// A number below `end` (at least 1) that depends on all of `from`.
pub(super) fn scaled(from: u64, end: u32) -> u32 {
    let mixed = (from ^ from >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    ((mixed * u64::from(end)) >> 32) as u32
}
