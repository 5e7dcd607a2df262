//! For whom frames are, and whether a packet claims to come from the router itself.

use braid_nf::packet::headers::Ethernet;
use braid_nf::prelude::*;

use super::Router;
use super::interface::Interface;

impl Router {
    /// Whether a frame is for this router: sent to its Ethernet address, or turned round by an earlier function, in which case
    /// that address is the source.
    #[inline(always)]
    pub(super) fn takes(&self, interface: &Interface, frame: &Ethernet) -> bool {
        let to = frame.destination();
        to == interface.mac || (self.promiscuous || frame.source() == interface.mac) && !to.is_group()
    }

    /// Whether a frame is for this router or for a group: what another station, or another VLAN, is told tells this router nothing.
    pub(super) fn hears(&self, interface: &Interface, packet: &Packet<'_>) -> bool {
        packet.ethernet().is_some_and(|frame| frame.destination().is_group() || self.takes(interface, frame))
            && !self.links.is_of_other_vlan(packet, interface)
    }

    /// Whether a packet claims to come from this router itself; no other station has its addresses (RFC 1812 section 5.3.7). An
    /// earlier function may have written another interface's address, as a translator does, or turned the frame round on the
    /// interface where it arrived, and a translator behind returns hairpins so.
    pub(super) fn has_own_source(&self, packet: &Packet<'_>, interface: &Interface) -> bool {
        let source = packet.src_ip();
        let is_turned = || packet.ethernet().is_some_and(|frame| frame.source() == interface.mac);
        let is_shared = interface.translated.contains(&source);
        let is_bad = match self.sees_addresses {
            true => !is_shared || !is_turned(),
            false => interface.owns(source) && !is_shared && !is_turned(),
        };
        self.links.own_at(interface, source) && is_bad
    }
}

/// Whether an earlier function has sent a frame to a host on a link in the router's name, as a load balancer does whose
/// backends have the service's address, which is also one of the router's own. A frame that was only turned round has another
/// destination, and is routed.
pub(super) fn is_addressed(packet: &Packet<'_>, interface: &Interface) -> bool {
    let is_ours = |frame: &Ethernet| frame.source() == interface.mac && frame.destination() != interface.mac;
    packet.ethernet().is_some_and(is_ours)
}
