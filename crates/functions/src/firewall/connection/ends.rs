//! The endpoints of a connection by side, by which counts, marks and ICMP errors find it.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use crate::parts::Side;

/// The endpoints of a connection or query by side, by which ICMP errors are looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(in crate::firewall) struct Ends {
    pub(in crate::firewall) inside: IpAddress,
    pub(in crate::firewall) outside: IpAddress,
    pub(in crate::firewall) inside_port: u16,
    pub(in crate::firewall) outside_port: u16,
    pub(in crate::firewall) protocol: u8,
    /// For an ICMP query, whose identifier is in both ports, the [`Side`] that sent it; for a live connection, the side
    /// that opened it; else 0.
    pub(in crate::firewall) asker: u8,
    /// The type of an ICMP query: queries of two types are distinct even if they have the same identifier.
    pub(in crate::firewall) kind: u8,
    zero: u8,
}

/// The connection or query that a packet is about, and the side under which the packet's sender is known there.
#[derive(Clone, Copy, Debug)]
pub(in crate::firewall) struct About {
    pub(in crate::firewall) ends: Ends,
    pub(in crate::firewall) end: Side,
}

impl Ends {
    pub(in crate::firewall) fn new(
        from_inside: bool,
        source: (IpAddress, u16),
        destination: (IpAddress, u16),
        number: u8,
    ) -> Ends {
        let (inside, outside) = if from_inside { (source, destination) } else { (destination, source) };
        Ends {
            inside: inside.0,
            outside: outside.0,
            inside_port: inside.1,
            outside_port: outside.1,
            protocol: number,
            ..Ends::default()
        }
    }

    /// The address of the inside endpoint.
    pub(in crate::firewall) fn host(&self) -> IpAddress {
        self.inside
    }

    /// The protocol number by IP version; queries are stored under that of ICMP for both.
    pub(in crate::firewall) fn number(&self) -> u8 {
        if self.protocol == protocol::ICMP && self.inside.v4().is_none() { protocol::ICMPV6 } else { self.protocol }
    }

    /// The key of a query of a type, sent from a side.
    pub(in crate::firewall) fn asked_from(self, side: Side, kind: u8) -> Ends {
        Ends { kind, ..self.opened_from(side as u8) }
    }

    /// The key of a connection opened from a [`Side`], by which errors find out who opened it.
    #[inline(always)]
    pub(in crate::firewall) fn opened_from(self, side: u8) -> Ends {
        Ends { asker: side, ..self }
    }
}
