//! Connections that are not where their hash leads: those that began before backends joined, drained or came back, and those whose QUIC
//! identifier names their backend. An ICMP error about one of them is hashed as its packets are, and would find another backend.
//!
//! Packet sets of other flows cannot be asked, so such a connection notes itself here when it asks for its backend (`recheck_ms`), again and
//! again as long as it has packets. While nothing changes nobody does.

use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;

use super::LoadBalancer;
use super::choose::Kept;
use super::flow::Flow;
use super::ports::End;
use super::settings::Virtual;
use crate::parts::{MS, SECOND};

/// How long one is known without a word of it; four times as long as it takes to be heard of again, at least.
const LIFETIME_NS: u64 = 60 * SECOND;

/// A connection: its client's end and its service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Stray {
    client: IpAddress,
    service: IpAddress,
    client_port: u16,
    service_port: u16,
    protocol: u8,
    zero: [u8; 3],
}

impl Stray {
    fn of((client, client_port): (IpAddress, u16), (service, service_port, protocol): End) -> Stray {
        Stray { client, service, client_port, service_port, protocol, zero: [0; 3] }
    }
}

/// A client's end and its service's, of one of the client's packets.
pub(super) fn ends_of(packet: &Packet<'_>) -> ((IpAddress, u16), End) {
    let (from, to) = packet.ports().unwrap_or_default();
    ((packet.src_ip(), from), (packet.dst_ip(), to, packet.protocol()))
}

/// How long strays are known if connections ask that seldom.
pub(super) fn lifetime_ns(recheck_ms: i32) -> u64 {
    LIFETIME_NS.max(4 * MS * recheck_ms.unsigned_abs() as u64)
}

impl LoadBalancer {
    /// Notes a connection if its hash leads elsewhere now.
    pub(super) fn note_stray(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &Flow) -> Result<(), Conflict> {
        let (client, end) = ends_of(packet);
        let Some(service) = self.settings.service(end) else { return Ok(()) };
        if self.choose(cx, service, client.0, client.1)? == Some(flow.backend.into()) {
            return Ok(());
        }
        Kept::note((&self.strays, &self.unkept_strays), cx, &Stray::of(client, end), flow.backend.into())
    }

    /// A connection moves to where its hash leads.
    pub(super) fn forget_stray(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<(), Conflict> {
        let (client, end) = ends_of(packet);
        self.strays.remove(cx, &Stray::of(client, end)).map(drop)
    }

    /// The backend of a client's connection to a service: where it is known to be, else where its hash leads.
    pub(super) fn backend_of(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        client: (IpAddress, u16),
        end: End,
    ) -> Result<Option<u32>, Conflict> {
        match self.strays.get(cx, &Stray::of(client, end))? {
            Some(known) => Ok(Some(known.backend as u32)),
            None => self.choose(cx, service, client.0, client.1),
        }
    }
}
