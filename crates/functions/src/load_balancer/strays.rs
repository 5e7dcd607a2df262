//! Connections that are not on the backend their hash selects: those that began before backends joined, drained or came
//! back, those that found it full, and those whose QUIC identifier names a backend.
//!
//! An ICMP error about such a connection is hashed like its packets, and would reach the wrong backend. Packet sets of
//! other flows cannot be read, so the connection notes itself here whenever it rechecks its backend (`recheck_ms`), as
//! long as it has packets. While no backend changes, nothing is noted.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::LoadBalancer;
use super::choose::Kept;
use super::flow::Flow;
use super::ports::End;
use super::room::Accepts;
use super::settings::Virtual;
use crate::parts::{NS_PER_MS, SECOND};

/// The minimum lifetime of an entry. An entry lives for at least four recheck intervals.
const LIFETIME_NS: u64 = 60 * SECOND;

/// A connection: its client's endpoint and its service's.
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

/// The client's endpoint and the service's, from a packet that the client sent.
pub(super) fn ends_of(packet: &Packet<'_>) -> ((IpAddress, u16), End) {
    let (from, to) = packet.ports().unwrap_or_default();
    ((packet.src_ip(), from), (packet.dst_ip(), to, packet.protocol()))
}

/// The lifetime of entries for a recheck interval.
pub(super) fn lifetime_ns(recheck_ms: i32) -> u64 {
    LIFETIME_NS.max(4 * NS_PER_MS * recheck_ms.unsigned_abs() as u64)
}

impl LoadBalancer {
    /// Notes a connection if its hash now selects another backend.
    pub(super) fn note_stray(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &Flow) -> Result<(), Conflict> {
        let (client, end) = ends_of(packet);
        let Some(service) = self.settings.service(end) else { return Ok(()) };
        if self.choose(cx, service, client, Accepts::Full)? == Some(flow.backend.into()) {
            return Ok(());
        }
        Kept::note((&self.strays, &self.unkept_strays), cx, &Stray::of(client, end), flow.backend.into())
    }

    /// Removes a connection that moves, so that its hash or a new note decides where it is.
    pub(super) fn forget_stray(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<(), Conflict> {
        let (client, end) = ends_of(packet);
        self.strays.remove(cx, &Stray::of(client, end)).map(drop)
    }

    /// The backend of a client's connection to a service: the one noted here, else the one its hash selects.
    pub(super) fn backend_of(
        &self,
        cx: &mut Cx<'_>,
        service: &Virtual,
        client: (IpAddress, u16),
        end: End,
    ) -> Result<Option<u32>, Conflict> {
        match self.strays.get(cx, &Stray::of(client, end))? {
            Some(known) => Ok(Some(known.backend as u32)),
            None => self.choose(cx, service, client, Accepts::Full),
        }
    }

    /// Whether what a backend sends from a port of its service is meant for a client of the service. If the service has one port,
    /// everything from there is. Of several, a backend uses some for connections of its own too (to a name server, to a
    /// mirror): an answer goes to a client whose packets come to this backend.
    pub(super) fn is_answer(
        &self,
        cx: &mut Cx<'_>,
        backend: u16,
        client: (IpAddress, u16),
        (port, number): (u16, u8),
    ) -> Result<bool, Conflict> {
        let server = self.settings.servers.get(usize::from(backend));
        let Some(server) = server.filter(|server| server.service_ports.only().is_none()) else { return Ok(true) };
        // A backend that drains or is down has the connections that it had.
        if !self.may_choose(cx, backend.into())? {
            return Ok(true);
        }
        let end = (server.service_address, port, number);
        match self.settings.service(end) {
            // Clients that name their backend may be anywhere.
            Some(service) if service.server_ids.is_empty() || number != protocol::UDP => {
                Ok(self.backend_of(cx, service, client, end)? == Some(backend.into()))
            }
            _ => Ok(true),
        }
    }
}
