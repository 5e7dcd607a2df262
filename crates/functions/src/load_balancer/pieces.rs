//! Pieces of datagrams. Only the first one has ports, so the others go its way, and wait for it if they come before it: to another worker,
//! as happens whatever the order. Each is translated, put into a tunnel or addressed by itself; a tunnel's end puts together what was cut there,
//! and the backend what the client cut.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::LoadBalancer;
use super::config::Mode;
use super::flow::{FROM_BACKEND, TO_BACKEND};
use super::settings::Server;
use super::tunnel::Origin;
use crate::parts::{Fate, Volume, fragments};

/// In the place of a fate's tags stands the number of its backend, or this: the datagram is none of a service's, and goes on as it came.
pub(super) const PASSES: u16 = u16::MAX;

/// Which way a datagram goes.
fn way(fate: &Fate) -> u8 {
    if fate.destination == IpAddress::UNSPECIFIED { FROM_BACKEND } else { TO_BACKEND }
}

impl LoadBalancer {
    /// Notes what becomes of a datagram by its first piece, and sends on what has waited for that. False if there is no room.
    pub(super) fn lead(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: Fate) -> Result<bool, Conflict> {
        if !self.fragments.remember(cx, packet, fate)? {
            return Ok(false);
        }
        let (as_it_is, mut seen) = (Fate::new(fate.port, None, None), Volume::default());
        match self.whole(&fate) {
            Some(server) => {
                let origin = Origin::of(packet);
                let way = (server, self.mtu_to(cx, server, (!packet.src_ip().is_v4(), usize::MAX))?);
                self.fragments.release_with(cx, packet, (&as_it_is, 1), |cx, frame, l3| {
                    if self.send_piece(cx, &origin, way, (frame, l3)) {
                        seen.note(frame.len());
                    }
                })?;
            }
            None if fate.behind == PASSES => self.fragments.release(cx, packet, &fate, 0)?,
            None => self.fragments.release_with(cx, packet, (&fate, 1), |cx, frame, _| {
                seen.note(frame.len());
                cx.emit_onward(fate.port, frame);
            })?,
        }
        if seen.packets > 0 {
            self.count_traffic(cx, fate.behind, way(&fate), seen)?;
        }
        Ok(true)
    }

    /// A packet that is none of a service's; so are the later pieces of its datagram.
    pub(super) fn pass_by(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        if packet.is_fragment() && self.may_be_balanced(packet) {
            let fate = Fate::new(cx.opposite(packet.port()), None, None).behind(PASSES);
            if !self.lead(cx, packet, fate)? {
                return Ok(Verdict::Drop(fragments::TABLE_FULL));
            }
        }
        Ok(cx.pass())
    }

    /// A later piece goes where its first one went. What cannot be a service's passes.
    #[cold]
    pub(super) fn follow_first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if !self.may_be_balanced(packet) {
            return Ok(cx.pass());
        }
        let Some(fate) = self.fragments.follow(cx, packet)? else {
            return Ok(Verdict::Drop(self.fragments.hold(cx, packet)?));
        };
        if fate.behind == PASSES {
            return Ok(cx.pass());
        }
        if !packet.decrement_ttl() {
            return Ok(Verdict::Drop(Reason::TTL_EXCEEDED));
        }
        let mut volume = Volume::default();
        volume.count(packet);
        let verdict = match self.whole(&fate) {
            Some(server) => self.send_whole(cx, packet, server)?,
            None => {
                fate.apply(packet);
                Verdict::Forward(fate.port)
            }
        };
        if let Verdict::Forward(_) = verdict {
            self.count_traffic(cx, fate.behind, way(&fate), volume)?;
        }
        Ok(verdict)
    }

    /// The backend that gets a datagram whole; none if it is translated or passes.
    fn whole(&self, fate: &Fate) -> Option<&Server> {
        let server = self.settings.servers.get(usize::from(fate.behind)).filter(|_| fate.behind != PASSES)?;
        Some(server).filter(|server| server.mode != Mode::Nat)
    }

    /// Whether a piece may belong to a connection: by its addresses, and a protocol that has ports.
    fn may_be_balanced(&self, packet: &Packet<'_>) -> bool {
        // In IPv6 options for the destination may stand between a fragment header and that of UDP; a later piece names only them.
        const OPTIONS: u8 = 60;
        let is_v6 = !packet.src_ip().is_v4();
        (matches!(packet.protocol(), protocol::TCP | protocol::UDP) || is_v6 && packet.protocol() == OPTIONS)
            && self.settings.may_change(packet.src_ip(), packet.dst_ip())
    }
}
