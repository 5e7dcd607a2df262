//! What is written into a packet, and where it goes.

use braid_nf::prelude::*;

use super::endpoint::Endpoint;
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
