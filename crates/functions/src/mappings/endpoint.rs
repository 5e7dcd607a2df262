//! Endpoints: address, port and protocol; for ICMP the identifier of queries replaces the port. Inside endpoints are of
//! either IP version, and belong to one of several inside networks, which may have the same addresses.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

/// The slot of a protocol: its index among the translated ones.
#[inline(always)]
pub(crate) fn slot(number: u8) -> u32 {
    match number {
        protocol::TCP => 0,
        protocol::UDP => 1,
        _ => 2,
    }
}

/// The protocol of a slot.
#[inline(always)]
pub(crate) fn protocol_of(slot: usize) -> u8 {
    match slot {
        0 => protocol::TCP,
        1 => protocol::UDP,
        _ => protocol::ICMP,
    }
}

/// Whether endpoints of a protocol are told apart by ports, or by identifiers, that can be changed.
#[inline(always)]
pub(crate) fn is_told_by_port(number: u8) -> bool {
    matches!(number, protocol::TCP | protocol::UDP | protocol::ICMP)
}

/// An outside or external endpoint.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Endpoint {
    pub(crate) address: [u8; 4],
    pub(crate) port: u16,
    pub(crate) protocol: u8,
    zero: u8,
}

impl Endpoint {
    pub(crate) fn new(address: [u8; 4], port: u16, protocol: u8) -> Endpoint {
        Endpoint { address, port, protocol, zero: 0 }
    }

    pub(crate) fn ip(&self) -> IpAddress {
        IpAddress::from_v4(self.address)
    }
}

/// An inside endpoint.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Inside {
    pub(crate) address: IpAddress,
    pub(crate) port: u16,
    pub(crate) protocol: u8,
    zero: u8,
    /// The number of its network; 0 if there is only one.
    pub(crate) network: u16,
}

impl Inside {
    pub(crate) fn new(network: u16, address: IpAddress, port: u16, protocol: u8) -> Inside {
        Inside { address, port, protocol, zero: 0, network }
    }

    /// The endpoint without its network; with an unspecified address if it is IPv6.
    pub(crate) fn end(&self) -> Endpoint {
        Endpoint::new(self.address.v4().unwrap_or_default(), self.port, self.protocol)
    }
}

/// The form in which mappings store inside endpoints, no larger than the IP version requires.
pub(crate) trait Kept: Plain + std::fmt::Debug {
    fn of(inside: Inside) -> Self;
    fn inside(self) -> Inside;
}

/// IPv6 endpoints are stored as they are.
impl Kept for Inside {
    fn of(inside: Inside) -> Inside {
        inside
    }

    fn inside(self) -> Inside {
        self
    }
}

/// An IPv4 endpoint in eight bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(crate) struct Inside4 {
    pub(crate) address: [u8; 4],
    pub(crate) port: u16,
    /// Low bits: the number of its network; above: the slot of its protocol.
    kind: u16,
}

/// The number of bits of a network number.
const NETWORK_BITS: u32 = 14;
/// The highest network number.
pub(crate) const NETWORK_MAX: u16 = (1 << NETWORK_BITS) - 1;

impl Kept for Inside4 {
    #[inline(always)]
    fn of(Inside { address, port, protocol, network, .. }: Inside) -> Inside4 {
        let kind = network & NETWORK_MAX | (slot(protocol) as u16) << NETWORK_BITS;
        Inside4 { address: address.v4().unwrap_or_default(), port, kind }
    }

    #[inline(always)]
    fn inside(self) -> Inside {
        let (network, protocol) = (self.network(), protocol_of(usize::from(self.kind >> NETWORK_BITS)));
        Inside::new(network, IpAddress::from_v4(self.address), self.port, protocol)
    }
}

impl Inside4 {
    /// The number of its network.
    #[inline(always)]
    pub(crate) fn network(self) -> u16 {
        self.kind & NETWORK_MAX
    }
}

impl std::fmt::Debug for Inside4 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inside().fmt(f)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        show(f, self.protocol, self.ip(), self.port)
    }
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        show(f, self.protocol, self.address, self.port)?;
        if self.network == 0 { Ok(()) } else { write!(f, " of network {}", self.network) }
    }
}

fn show(f: &mut std::fmt::Formatter<'_>, number: u8, address: IpAddress, port: u16) -> std::fmt::Result {
    let end = std::net::SocketAddr::new(address.into(), port);
    match number {
        protocol::TCP => write!(f, "tcp {end}"),
        protocol::UDP => write!(f, "udp {end}"),
        _ => write!(f, "icmp {address} id {port}"),
    }
}

/// Both endpoints of a translatable packet: TCP, UDP, or an ICMP query or reply, whose identifier stands for both ports.
pub(crate) fn ends(packet: &Packet<'_>) -> Option<(Endpoint, Endpoint)> {
    let (source, destination) = packet.addresses_v4()?;
    ends_between(packet, source, destination)
}

/// The same for a packet whose addresses are known.
#[inline(always)]
pub(crate) fn ends_between(packet: &Packet<'_>, from: [u8; 4], to: [u8; 4]) -> Option<(Endpoint, Endpoint)> {
    let number = packet.protocol();
    let (source, destination) = match number {
        protocol::TCP => packet.ports().filter(|_| packet.tcp_flags().is_some())?,
        protocol::UDP => packet.ports()?,
        protocol::ICMP => packet.icmp_id().map(|id| (id, id))?,
        _ => return None,
    };
    Some((Endpoint::new(from, source, number), Endpoint::new(to, destination, number)))
}
