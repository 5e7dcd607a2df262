//! How packets leave: rewritten, or with an error to the sender.

use braid_nf::packet::Translated;
use braid_nf::prelude::*;

use super::Nat;
use super::find::{Found, NOT_TRANSLATABLE};
use super::icmp::BAD_CHECKSUM;
use super::rewrite::{Rewrite, Track};
use super::steady::translated;
use crate::mappings::census::NETWORK_QUOTA;
use crate::mappings::endpoint::is_told_by_port;
use crate::mappings::flows::{FILTERED, NO_MAPPING};
use crate::mappings::for_router;
use crate::mappings::hosts::{MAPPING_TABLE_FULL, NO_FREE_PORT, PORT_QUOTA};
use crate::mappings::networks::Behind;
use crate::parts::answers::answer;
use crate::parts::forwarding::hairpin::Way;
use crate::parts::forwarding::turn::turn;
use crate::parts::headers::lengths;
use crate::parts::headers::tags::NO_ROOM_FOR_TAG;
use crate::parts::{Fragments, Side};

/// The packet exceeds the MTU where it leaves, and must not be fragmented.
pub const TOO_LONG: Reason = Reason("too_long");

/// Reasons to drop a first fragment that its later fragments do not reveal, so that they have to be remembered.
pub(super) const ENDS: [Reason; 12] = [
    Reason::TTL_EXCEEDED,
    Reason::MALFORMED,
    Reason::SET_TABLE_FULL,
    TOO_LONG,
    NO_MAPPING,
    FILTERED,
    NOT_TRANSLATABLE,
    NO_FREE_PORT,
    PORT_QUOTA,
    NETWORK_QUOTA,
    MAPPING_TABLE_FULL,
    BAD_CHECKSUM,
];

impl Nat {
    /// Translates and sends a packet of a flow that is not a fragment.
    pub(super) fn translate(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, track: Track) -> Handled {
        if let Some(end) = self.end(cx, packet, (track.to, track.behind()), 1)? {
            return Ok(end);
        }
        self.settings.segments.clamp(packet);
        Ok(match translated(packet, track) {
            Translated::Done => self.leave(packet, track.to, track.behind()),
            Translated::Expired | Translated::Refused => Verdict::Drop(Reason::MALFORMED),
        })
    }

    /// Carries out what the mappings said about a packet.
    pub(super) fn conclude(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, found: Found) -> Handled {
        match found {
            Found::Flow(flow) if !packet.is_fragment() => self.translate(cx, packet, flow.track),
            Found::Flow(flow) => self.send(cx, packet, Rewrite::from(flow.track)),
            Found::Hairpin(.., rewrite) | Found::Once(rewrite) => self.send(cx, packet, rewrite),
            Found::Error(error) => self.send_error(cx, packet, &error),
            Found::Untouched(port) => Ok(Verdict::Forward(port)),
            Found::Waits => Ok(Verdict::Drop(self.fragments.hold(cx, packet)?)),
            Found::No(reason) => self.fragments.drop(cx, packet, reason),
            Found::Refused(reason) => {
                if self.answers.admits(cx, packet)? {
                    answer::prohibited(cx, packet, self.settings.router(packet));
                }
                self.fragments.drop(cx, packet, reason)
            }
        }
    }

    fn send(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, rewrite: Rewrite) -> Handled {
        if rewrite.behind == Behind::Here {
            return for_router::leave(cx, packet, &self.fragments);
        }
        let hops = self.settings.hops(rewrite.translates());
        if let Some(end) = self.end(cx, packet, (rewrite.to, rewrite.behind), hops)? {
            return Ok(end);
        }
        let is_hairpin = rewrite.destination.is_some() && self.settings.side_of(packet) == Some(Side::Inside);
        let way = self.way(cx, packet, is_hairpin);
        // Only a hairpin goes back to who sent the frame.
        let turns = is_hairpin && rewrite.to == packet.port();
        // Without ports each piece is translated by itself.
        if packet.is_fragment() && !packet.is_later_fragment() && is_told_by_port(packet.protocol()) {
            let fate = if turns { rewrite.fate() } else { rewrite.fate().straight() };
            if !self.fragments.remember(cx, packet, fate)? {
                return Ok(Verdict::Drop(Fragments::forgotten(packet)));
            }
            let networks = &self.settings.networks;
            let retag = |frame: &[u8], ip, into: &mut [u8]| networks.retagged(frame, ip, rewrite.behind, into);
            self.fragments.release_tagged(cx, packet, (&fate, hops, way), retag)?;
        }
        self.settings.segments.clamp(packet);
        if hops > 0 {
            packet.decrement_ttl();
        }
        rewrite.apply(packet);
        if turns {
            turn(packet);
        }
        let verdict = self.leave(packet, rewrite.to, rewrite.behind);
        Ok(way.send(cx, packet, verdict))
    }

    /// How a packet goes on that may be a hairpin.
    pub(super) fn way(&self, cx: &Cx<'_>, packet: &Packet<'_>, is_hairpin: bool) -> Way {
        if is_hairpin { Way::of(cx, packet, self.way_out.of(cx, packet.port())) } else { Way::Direct }
    }

    /// Sends a packet on with the VLAN tags of its destination network.
    #[inline(always)]
    pub(super) fn leave(&self, packet: &mut Packet<'_>, to: Port, behind: Behind) -> Verdict {
        if self.settings.networks.retag(packet, behind) { Verdict::Forward(to) } else { Verdict::Drop(NO_ROOM_FOR_TAG) }
    }

    /// Drops a packet whose TTL is used up, or that is too long for its way out and must not be fragmented, and tells its
    /// sender while the packet is still untranslated. Packets that may be fragmented are left to the router behind, and
    /// IPv6 too: it sees them untranslated.
    pub(super) fn end(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (to, behind): (Port, Behind),
        hops: u8,
    ) -> Result<Option<Verdict>, Conflict> {
        let mtu = self.settings.mtu(self.settings.towards(to, behind));
        let is_last_hop = packet.ttl().is_some_and(|ttl| ttl <= hops);
        if !is_last_hop && !lengths::is_too_long_to_cut(packet, mtu) {
            return Ok(None);
        }
        if self.answers.admits(cx, packet)? {
            let router = self.settings.router(packet);
            match is_last_hop {
                true => answer::time_exceeded(cx, packet, router),
                false => answer::too_big(cx, packet, router, mtu),
            }
        }
        self.fragments.drop(cx, packet, if is_last_hop { Reason::TTL_EXCEEDED } else { TOO_LONG }).map(Some)
    }
}
