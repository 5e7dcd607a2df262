//! Packets in steady state, in a known flow whose mapping lives long enough: they read one entry, are rewritten, and
//! change nothing else.

use braid_nf::packet::{IpAddress, Translated};
use braid_nf::prelude::*;
use braid_nf::state::Handle;

use super::Nat;
use super::rewrite::Track;
use crate::mappings::endpoint::Inside4;
use crate::mappings::networks::Behind;
use crate::mappings::session::{Heading, Needs, Phase, Session};
use crate::mappings::table::entry::Entry;
use crate::parts::Side;
use crate::parts::headers::lengths;

impl Nat {
    /// A packet of a known flow over its mapping, if neither changes by it: who opens (again, too) or ends a connection, prolongs the mapping, comes by
    /// another port, contradicts itself, or goes no further and its sender is told so, does more than read.
    #[inline(always)]
    pub(super) fn go_on(
        &self,
        packet: &mut Packet<'_>,
        session: &Session,
        now_ns: u64,
        (handle, inside, entry): &(Handle, Inside4, Entry),
        needs: &Needs,
    ) -> Option<Verdict> {
        let holds = (!session.is_tcp() || Phase::is_kept(session.phase(), packet.tcp_flags().unwrap_or(0)))
            && session.is_over(*handle)
            && entry.ends_ns.saturating_sub(now_ns) > needs.ns(session);
        if !holds {
            return None;
        }
        // One call for each direction, so that the direction is tested only once.
        match session.heading() {
            Heading::Outward => self.go(packet, Heading::Outward, (inside, entry)),
            Heading::Inward => self.go(packet, Heading::Inward, (inside, entry)),
        }
    }

    #[inline(always)]
    fn go(&self, packet: &mut Packet<'_>, way: Heading, known: (&Inside4, &Entry)) -> Option<Verdict> {
        let towards = if way == Heading::Outward { Side::Outside } else { Side::Inside };
        if !self.is_expected(packet.port(), way, known.1)
            || lengths::is_too_long_to_cut(packet, self.settings.mtu(towards))
        {
            return None;
        }
        let track = self.track(packet.port(), way, known);
        match translated_if_whole(packet, track) {
            Translated::Done => Some(Verdict::Forward(track.to)),
            Translated::Expired | Translated::Refused => None,
        }
    }

    /// Whether packets of a known flow arrive on a port: outward on the one its owner used last, inward on any outside
    /// port.
    #[inline(always)]
    pub(super) fn is_expected(&self, from: Port, way: Heading, entry: &Entry) -> bool {
        match way {
            Heading::Outward => from == entry.home,
            Heading::Inward => self.settings.sides.is_on(from, Side::Outside as u8),
        }
    }

    /// How packets of a known flow that arrive on a port are rewritten.
    #[inline(always)]
    pub(super) fn track(&self, from: Port, way: Heading, (inside, entry): (&Inside4, &Entry)) -> Track {
        match way {
            Heading::Outward => Track {
                way,
                address: self.flows.mappings.address(entry.address),
                port: entry.port,
                to: self.across(from),
                network: 0,
            },
            Heading::Inward => {
                Track { way, address: inside.address, port: inside.port, to: entry.home, network: inside.network() }
            }
        }
    }

    /// The port by which a packet of a flow leaves that would leave by `to` if no earlier function had decided.
    pub(super) fn way_of(&self, cx: &Cx<'_>, packet: &Packet<'_>, way: Heading, to: Port) -> Port {
        if way == Heading::Outward { self.way_out.of(cx, packet.port()) } else { to }
    }

    /// The same if every packet's tags are rewritten, or where it leaves is decided before.
    pub(super) fn go_on_tagged(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        session: &Session,
    ) -> Result<Option<Verdict>, Conflict> {
        let Some(needs) = &self.tagged_needs else { return Ok(None) };
        let Some(known) = self.flows.mappings.at(cx, session.index())? else { return Ok(None) };
        if session.heading() == Heading::Inward && !self.settings.networks.is_outside(packet) {
            return Ok(None);
        }
        let behind = match session.heading() {
            Heading::Outward => Behind::Outside,
            Heading::Inward => Behind::Network(known.1.network()),
        };
        let verdict = self.go_on(packet, session, cx.now(), &known, needs);
        Ok(verdict.map(|verdict| match verdict {
            Verdict::Forward(to) => self.leave(packet, self.way_of(cx, packet, session.heading(), to), behind),
            verdict => verdict,
        }))
    }
}

/// The phase of a flow after a packet; protocols other than TCP keep theirs.
#[inline(always)]
pub(super) fn phase_after(session: &Session, packet: &Packet<'_>) -> u8 {
    match session.is_tcp() {
        true => Phase::after(session.phase(), packet.tcp_flags().unwrap_or(0)) as u8,
        false => session.phase(),
    }
}

/// As [`translated`], for a packet that is not a fragment and as long as its headers say. The check and the rewrite share
/// their access to the header.
#[inline(always)]
fn translated_if_whole(packet: &mut Packet<'_>, track: Track) -> Translated {
    let end = (IpAddress::from_v4(track.address), track.port);
    match track.way {
        Heading::Outward => packet.translate_src_if(end, lengths::hold_plainly, lengths::hold_otherwise),
        Heading::Inward => packet.translate_dst_if(end, lengths::hold_plainly, lengths::hold_otherwise),
    }
}

#[inline(always)]
pub(super) fn translated(packet: &mut Packet<'_>, track: Track) -> Translated {
    let (address, port) = (IpAddress::from_v4(track.address), Some(track.port));
    match track.way {
        Heading::Outward => packet.translate_src(address, port),
        Heading::Inward => packet.translate_dst(address, port),
    }
}
