//! Look-ups in the checked configuration, by address, endpoint or port.

use braid_nf::packet::{Exchange, IpAddress};
use braid_nf::{Packet, Port, prefetch_read};

use super::config::Mode;
use super::flow::{Flow, Phase, TO_BACKEND, TO_NAMED};
use super::ports::End;
use super::settings::{Server, Settings, Virtual};
use crate::parts::Side;
use crate::parts::headers::scope;

/// The translations of packets from a backend, and of packets to it if its service translates. They have a cache line of
/// their own: with many backends, the accesses of successive packets miss on different lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Exchanges(pub(super) [Exchange; 2]);

const _: () = assert!(size_of::<Exchanges>() == 64);

/// Up to this many backends, the translations stay in the first-level cache and need no prefetch.
const NEAR: usize = 256;

impl Settings {
    /// The service at an endpoint.
    pub(super) fn service(&self, end: End) -> Option<&Virtual> {
        self.services.get(self.by_service.at(end)?)
    }

    /// The number of the backend at an endpoint.
    pub(super) fn server_number(&self, end: End) -> Option<u16> {
        self.by_server.at(end)
    }

    /// The backend of a flow.
    #[inline(always)]
    pub(super) fn server_of(&self, flow: &Flow) -> Option<&Server> {
        self.servers.get(usize::from(flow.backend))
    }

    /// The `way` of a flow to a backend.
    pub(super) fn way_to(&self, backend: u32, phase: u8) -> u8 {
        let Some(server) = self.servers.get(backend as usize) else { return TO_BACKEND };
        let is_udp = phase & Phase::SETTLED == Phase::Udp as u8;
        match server.mode {
            Mode::Nat if server.may_be_named && is_udp => TO_NAMED,
            mode => TO_BACKEND + mode as u8,
        }
    }

    /// The translation of a flow's packets; `None` if they reach their backend in another mode.
    #[inline(always)]
    pub(super) fn exchange(&self, flow: &Flow) -> Option<&Exchange> {
        let way = if flow.way == TO_NAMED { TO_BACKEND } else { flow.way };
        self.exchanges.get(usize::from(flow.backend))?.0.get(usize::from(way))
    }

    /// The same for the steady path; `None` if traffic is counted.
    #[inline(always)]
    pub(super) fn steady_exchange(&self, flow: &Flow) -> Option<&Exchange> {
        self.steady_exchanges.get(usize::from(flow.backend))?.0.get(usize::from(flow.way))
    }

    /// Whether the translations are too many to stay in the first-level cache.
    #[inline(always)]
    pub(super) fn exchanges_are_far(&self) -> bool {
        self.steady_exchanges.len() > NEAR
    }

    /// Prefetches the translations of a flow's backend.
    #[inline(always)]
    pub(super) fn prefetch_exchange(&self, flow: &Flow) {
        prefetch_read(self.steady_exchanges.as_ptr().wrapping_add(flow.backend.into()));
    }

    /// The backends at an address, with their numbers.
    pub(super) fn servers_at(&self, address: IpAddress) -> impl Iterator<Item = (u32, &Server)> {
        let numbers = self.by_address.get(&address).map_or(&[][..], Vec::as_slice);
        numbers.iter().filter_map(|&number| Some((number, self.servers.get(number as usize)?)))
    }

    /// Whether an address belongs to a service or a backend.
    pub(super) fn knows(&self, address: IpAddress) -> bool {
        self.addresses.contains(&address)
    }

    /// Whether an address belongs to a service.
    pub(super) fn is_service(&self, address: IpAddress) -> bool {
        self.services_at.contains(&address)
    }

    /// Whether a packet has a source address that no client can have: a group, loopback or unspecified address, or, from
    /// outside, that of a service or of a translated backend (RFC 1812 section 5.3.7, RFC 2827): its answer would go to a backend, which might
    /// answer that. From inside it may be: a translator ahead of this function can share its address with a service.
    pub(super) fn is_nobodys(&self, packet: &Packet<'_>) -> bool {
        let is_bad_v6 = |source| !scope::is_routed_v6(source) && !scope::is_link_local_v6(source);
        scope::has_bad_source(packet, is_bad_v6)
            || self.sides.of(packet.port()) == Some(Side::Outside)
                && (self.is_service(packet.src_ip()) || self.translated_from.contains(&packet.src_ip()))
    }

    /// Whether a packet with these addresses may go to a service or come from a translated backend, depending on its
    /// ports.
    pub(super) fn may_change(&self, source: IpAddress, destination: IpAddress) -> bool {
        self.is_service(destination) || self.translated_from.contains(&source)
    }

    /// The port by which a whole packet leaves for a backend. A client may be on the backends' side, and then it is the
    /// arrival port.
    pub(super) fn to_backends(&self, port: Port) -> Port {
        if self.sides.of(port) == Some(Side::Inside) { port } else { self.across(port) }
    }

    /// The port by which a packet leaves for the other side.
    #[inline(always)]
    pub(super) fn across(&self, port: Port) -> Port {
        self.across.of(port)
    }
}
