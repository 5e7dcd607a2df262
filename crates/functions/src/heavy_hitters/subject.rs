//! What is counted: sources, destinations, pairs of both, or flows.

use std::fmt;

use braid_nf::packet::{IpAddress, parse::protocol};
use braid_nf::prelude::*;
use serde::Deserialize;

/// The key by which packets are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// Both addresses.
    Pair,
    /// Both addresses, ports and protocol. Later fragments have no ports and count for port 0.
    Flow,
}

braid_nf::plain!(By);

/// The subject a packet counts for; fields that are not part of the key are zero.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Subject {
    source: IpAddress,
    destination: IpAddress,
    source_port: u16,
    destination_port: u16,
    /// 0: not part of the key; else 256 plus the protocol number.
    protocol: u32,
}

impl By {
    /// The packet set of packets that are counted together, so that one worker counts them.
    pub fn packet_set(self) -> SetDef {
        match self {
            By::Source => SetDef::src_ip(),
            By::Destination => SetDef::dst_ip(),
            By::Pair => SetDef::new("address pair", &[FieldId::IpSrc, FieldId::IpDst]),
            By::Flow => SetDef::five_tuple(),
        }
    }

    /// The subject of an IP packet.
    #[inline]
    pub fn subject(self, packet: &Packet<'_>) -> Subject {
        let (mut source, mut destination) = (packet.src_ip(), packet.dst_ip());
        match self {
            By::Source => destination = IpAddress::UNSPECIFIED,
            By::Destination => source = IpAddress::UNSPECIFIED,
            By::Pair | By::Flow => {}
        }
        let flow = self == By::Flow;
        let (source_port, destination_port) = packet.ports().filter(|_| flow).unwrap_or_default();
        let protocol = if flow { 256 + u32::from(packet.protocol()) } else { 0 };
        Subject { source, destination, source_port, destination_port, protocol }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Subject { source, destination, source_port, destination_port, protocol } = *self;
        match (source, destination, protocol.checked_sub(256)) {
            (source, IpAddress::UNSPECIFIED, None) => source.fmt(f),
            (IpAddress::UNSPECIFIED, destination, None) => destination.fmt(f),
            (_, _, None) => write!(f, "{source} > {destination}"),
            (_, _, Some(number)) => {
                match number as u8 {
                    protocol::TCP => f.write_str("tcp ")?,
                    protocol::UDP => f.write_str("udp ")?,
                    other => write!(f, "protocol {other} ")?,
                }
                let end = |address: IpAddress, port| std::net::SocketAddr::new(address.into(), port);
                write!(f, "{} > {}", end(source, source_port), end(destination, destination_port))
            }
        }
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
