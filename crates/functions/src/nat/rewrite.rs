//! How packets are rewritten, and where they go.

use braid_nf::prelude::*;

use crate::mappings::endpoint::{Endpoint, is_told_by_port};
use crate::mappings::networks::Behind;
use crate::mappings::session::Heading;
use crate::parts::Fate;

/// The new endpoints of a packet, and where it goes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rewrite {
    pub(super) source: Option<Endpoint>,
    pub(super) destination: Option<Endpoint>,
    pub(super) to: Port,
    pub(super) behind: Behind,
}

impl Rewrite {
    /// Nothing is rewritten.
    pub(super) fn none(to: Port) -> Rewrite {
        Rewrite { to, ..Rewrite::default() }
    }

    /// The packet goes no further than to the router behind.
    pub(super) fn here(from: Port) -> Rewrite {
        Rewrite { to: from, behind: Behind::Here, ..Rewrite::default() }
    }

    /// Whether an end of the packet is replaced.
    pub(super) fn translates(&self) -> bool {
        self.source.is_some() || self.destination.is_some()
    }

    /// The fate that the later fragments of this packet share.
    pub(super) fn fate(&self) -> Fate {
        let (source, destination) = (self.source.map(|end| end.ip()), self.destination.map(|end| end.ip()));
        Fate::new(self.to, source, destination).behind(self.behind.to_bits())
    }

    /// Writes addresses, and ports or the identifier if the packet has them.
    pub(super) fn apply(&self, packet: &mut Packet<'_>) {
        // SCTP has ports too, but they stay.
        let has_port = is_told_by_port(packet.protocol());
        if let Some(end) = self.source
            && !(has_port && packet.set_src(end.ip(), end.port))
        {
            packet.set_src_ip(end.ip());
            packet.set_icmp_id(end.port);
        }
        if let Some(end) = self.destination
            && !(has_port && packet.set_dst(end.ip(), end.port))
        {
            packet.set_dst_ip(end.ip());
            packet.set_icmp_id(end.port);
        }
    }
}

/// How the packets of one direction of a flow are rewritten, and where they go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    /// Where its packets go: a [`Heading`].
    pub(super) way: Heading,
    /// The new source (outward) or destination (inward) address.
    pub(super) address: [u8; 4],
    /// The new port, which goes with the address.
    pub(super) port: u16,
    /// The port by which they leave.
    pub(super) to: Port,
    /// The number of its owner's network.
    pub(super) network: u16,
}

impl Track {
    /// The tags with which they leave.
    pub(super) fn behind(&self) -> Behind {
        if self.way == Heading::Outward { Behind::Outside } else { Behind::Network(self.network) }
    }
}

impl From<Track> for Rewrite {
    fn from(track: Track) -> Rewrite {
        let (end, to, behind) = (Some(Endpoint::new(track.address, track.port, 0)), track.to, track.behind());
        match track.way {
            Heading::Outward => Rewrite { source: end, destination: None, to, behind },
            Heading::Inward => Rewrite { source: None, destination: end, to, behind },
        }
    }
}
