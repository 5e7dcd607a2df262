//! How frames leave: by one port or by several, with the tag required there; and how answers to them come back.

use braid_nf::prelude::*;

use super::station::Known;
use super::vlans::{self, Vlans};
use crate::parts::headers::tags::NO_ROOM_FOR_TAG;

/// Sends a frame out by the remembered port, with the tag required there.
#[inline(always)]
pub(super) fn leave(packet: &mut Packet<'_>, known: &Known) -> Verdict {
    let verdict = known.verdict();
    let is_sent = matches!(verdict, Verdict::Forward(_));
    let came = vlans::tag_of(packet);
    if is_sent && !vlans::retag(packet, came, known.vlan()) { Verdict::Drop(NO_ROOM_FOR_TAG) } else { verdict }
}

/// Retags an answer whose cause was retagged: it gets the tag required at the port where the cause arrived.
pub(super) fn turn_back(cx: &mut Cx<'_>, packet: &mut Packet<'_>, vlans: &Vlans) -> Verdict {
    let (came, to) = (vlans::tag_of(packet), cx.leaves_by());
    let Some(vlan) = vlans.classify(packet.port(), came).filter(|vlan| vlans.has(*vlan, to)) else { return cx.pass() };
    let tag = if vlans.is_untagged(vlan, to) { 0 } else { vlan };
    if vlans::retag(packet, came, tag) { cx.pass() } else { Verdict::Drop(NO_ROOM_FOR_TAG) }
}

/// Sends a frame unchanged by these ports.
pub(super) fn send_to(cx: &mut Cx<'_>, packet: &Packet<'_>, ports: u64) -> Verdict {
    let mut last = None;
    for port in (0..cx.ports().min(vlans::PORTS_MAX)).filter(|port| ports >> port & 1 != 0) {
        if let Some(before) = last.replace(port) {
            cx.emit_onward(before, packet.bytes());
        }
    }
    last.map_or(Verdict::Drop(Reason::NOWHERE_TO_FLOOD), Verdict::Forward)
}

/// Sends a frame to the ports that carry its VLAN untagged, and to those that carry it tagged.
pub(super) fn flood_vlan(
    cx: &mut Cx<'_>,
    packet: &mut Packet<'_>,
    (untagged, tagged): (u64, u64),
    vlan: u16,
) -> Verdict {
    let came = vlans::tag_of(packet);
    let mut last = None;
    for (ports, tag) in [(untagged, 0), (tagged, vlan)] {
        for port in (0..cx.ports().min(vlans::PORTS_MAX)).filter(|port| ports >> port & 1 != 0) {
            // The frame in its present form leaves by the previous port.
            if let Some(before) = last.replace(port) {
                cx.emit_onward(before, packet.bytes());
            }
            if !vlans::retag(packet, came, tag) {
                return Verdict::Drop(NO_ROOM_FOR_TAG);
            }
        }
    }
    last.map_or(Verdict::Drop(Reason::NOWHERE_TO_FLOOD), Verdict::Forward)
}
