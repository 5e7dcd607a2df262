//! What is written into a packet, and which endpoints it names.

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::mappings::Endpoint;
use super::session::{OUTWARD, Session};
use crate::parts::Fate;

/// How a packet is rewritten, and where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rewrite {
    pub(super) source: Option<Endpoint>,
    pub(super) destination: Option<Endpoint>,
    pub(super) to: Port,
}

impl Rewrite {
    /// Nothing is rewritten.
    pub(super) fn none(to: Port) -> Rewrite {
        Rewrite { to, ..Rewrite::default() }
    }

    /// What the later fragments of this packet share.
    pub(super) fn fate(&self) -> Fate {
        Fate::new(self.to, self.source.map(|end| end.ip()), self.destination.map(|end| end.ip()))
    }

    /// Writes addresses, and ports or the identifier if the packet has them.
    pub(super) fn apply(&self, packet: &mut Packet<'_>) {
        if let Some(end) = self.source
            && !packet.set_src(end.ip(), end.port)
        {
            packet.set_src_ip(end.ip());
            packet.set_icmp_id(end.port);
        }
        if let Some(end) = self.destination
            && !packet.set_dst(end.ip(), end.port)
        {
            packet.set_dst_ip(end.ip());
            packet.set_icmp_id(end.port);
        }
    }
}

impl From<&Session> for Rewrite {
    fn from(session: &Session) -> Rewrite {
        let end = Some(Endpoint::new(session.address, session.port, session.protocol));
        match session.way {
            OUTWARD => Rewrite { source: end, destination: None, to: session.to },
            _ => Rewrite { source: None, destination: end, to: session.to },
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

/// An inside endpoint and an outside one to which it has sent.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Peer {
    inside: Endpoint,
    remote: Endpoint,
}

impl Peer {
    pub(super) fn new(inside: Endpoint, remote: Endpoint) -> Peer {
        Peer { inside, remote }
    }

    /// Of a packet from inside, before it is translated.
    pub(super) fn of(packet: &Packet<'_>) -> Option<Peer> {
        ends(packet).map(|(inside, remote)| Peer { inside, remote })
    }

    /// Of the set of such packets.
    pub(super) fn of_key(key: &SetKey) -> Option<Peer> {
        let tuple = key.five_tuple()?;
        let inside = Endpoint::new(tuple.src_ip.v4()?, tuple.src_port, tuple.protocol);
        Some(Peer { inside, remote: Endpoint::new(tuple.dst_ip.v4()?, tuple.dst_port, tuple.protocol) })
    }
}
