//! Fragmented datagrams.
//!
//! Only the first fragment has ports. Later fragments follow it; one that is earlier waits for it. That can happen even
//! to fragments that arrive in order, because steering may bring later ones to another worker. Each fragment is
//! translated, encapsulated or readdressed by itself. The far end of the tunnel reassembles what was fragmented there,
//! and the backend what the client fragmented.

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::LoadBalancer;
use super::choose::NO_BACKEND;
use super::config::Mode;
use super::flow::{FROM_BACKEND, TO_BACKEND};
use super::room::BACKENDS_FULL;
use super::settings::Server;
use super::tunnel::{Origin, TOO_BIG};
use crate::parts::headers::scope::BAD_SOURCE;
use crate::parts::{Fate, Fragments, Lead, Volume};

/// Stands for a backend number in `Fate::behind`: the datagram belongs to no service, and passes unchanged.
pub(super) const PASSES: u16 = u16::MAX;

/// Reasons to drop a first fragment that its later fragments do not reveal, so that they have to be remembered.
pub(super) const ENDS: [Reason; 7] =
    [NO_BACKEND, BAD_SOURCE, TOO_BIG, Reason::MALFORMED, Reason::SET_TABLE_FULL, Reason::TTL_EXCEEDED, BACKENDS_FULL];

/// The direction of a datagram.
fn way(fate: &Fate) -> u8 {
    if fate.destination == IpAddress::UNSPECIFIED { FROM_BACKEND } else { TO_BACKEND }
}

impl LoadBalancer {
    /// Notes the fate of a datagram from its first fragment, and releases the fragments that waited for it. False if the
    /// table is full.
    pub(super) fn lead(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, fate: Fate) -> Result<bool, Conflict> {
        if !self.fragments.remember(cx, packet, fate)? {
            return Ok(false);
        }
        let (as_it_is, mut seen) = (Fate::new(fate.port, None, None), Volume::default());
        match self.whole(&fate) {
            Some(server) => {
                let origin = Origin::of(packet);
                let way = (server, self.mtu_to(cx, server, (packet.src_ip().version(), usize::MAX))?);
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

    /// Passes a packet that belongs to no service; the later fragments of its datagram pass too.
    pub(super) fn pass_by(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        if packet.is_fragment() && self.may_be_balanced(packet) {
            let fate = Fate::new(cx.opposite(packet.port()), None, None).behind(PASSES);
            if !self.lead(cx, packet, fate)? {
                return Ok(Verdict::Drop(Fragments::forgotten(packet)));
            }
        }
        Ok(cx.pass())
    }

    /// Sends a later fragment where the first went, or holds it until that arrives. Fragments that cannot belong to a
    /// service pass.
    #[cold]
    pub(super) fn follow_first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if !self.may_be_balanced(packet) {
            return Ok(cx.pass());
        }
        let fate = match self.fragments.follow(cx, packet)? {
            Lead::Passed(fate) => fate,
            Lead::Ends(reason) => return Ok(Verdict::Drop(reason)),
            Lead::Unknown => return Ok(Verdict::Drop(self.fragments.hold(cx, packet)?)),
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

    /// The backend that gets the datagram whole; `None` if it is translated or passes.
    fn whole(&self, fate: &Fate) -> Option<&Server> {
        let server = self.settings.servers.get(usize::from(fate.behind)).filter(|_| fate.behind != PASSES)?;
        Some(server).filter(|server| server.mode != Mode::Nat)
    }

    /// Whether a fragment may belong to a balanced connection, by its addresses and protocol.
    fn may_be_balanced(&self, packet: &Packet<'_>) -> bool {
        // In IPv6, destination options may stand between the fragment header and UDP; a later fragment names only them.
        const OPTIONS: u8 = 60;
        let is_v6 = !packet.src_ip().is_v4();
        (matches!(packet.protocol(), protocol::TCP | protocol::UDP) || is_v6 && packet.protocol() == OPTIONS)
            && self.settings.may_change(packet.src_ip(), packet.dst_ip())
    }
}
