//! Handles packets of live connections, and packets without one.

use braid_nf::packet::IpVersion;
use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::conditions::extensions;
use super::conditions::facts::Observed;
use super::connection::states::Sender;
use super::connection::window::Segment;
use super::connection::{Connection, Phase, are_valid};
use super::{Firewall, INVALID_TCP_FLAGS, OUT_OF_WINDOW, SOURCE_ROUTED, WRONG_SIDE, WRONG_TAG, WindowCheck, ends_of};
use crate::parts::headers::lengths;
use crate::parts::headers::scope::{self, LINK_SCOPE};
use crate::parts::{Side, is_opening};

impl Firewall {
    /// Handles a packet of a live connection.
    pub(super) fn go_on(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Handled {
        let sender = Sender::opener_if(cx.reversed() == connection.is_reversed());
        let side = match self.settings.sides.of(packet.port()) {
            Some(side) if connection.comes_from(side, sender) || connection.is_gone() => side,
            _ => return Ok(Verdict::Drop(WRONG_SIDE)),
        };
        let end = connection.known_as(sender);
        if self.settings.refuses_route(packet) {
            return Ok(Verdict::Drop(SOURCE_ROUTED));
        }
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        let Some(segment) = (match check(packet) {
            Ok(segment) => segment.filter(|_| connection.protocol == protocol::TCP),
            Err(reason) => return self.invalid(cx, packet, side, reason),
        }) else {
            if connection.is_opened_anew(packet) {
                return self.begin_anew(cx, packet, (side, None), connection);
            }
            let (state, before) = (connection.state(sender), *connection);
            if !connection.go_on_without_tcp(packet, sender) {
                return self.invalid(cx, packet, side, WRONG_TAG);
            }
            connection.learn_side(side, sender);
            let heard = self.ask(cx, packet, Observed { side, state }, true, connection)?;
            if heard.is_untracked {
                *connection = before;
            }
            return self.pass_as_heard(cx, packet, heard.answer);
        };
        if connection.is_gone() || connection.is_over() && is_opening(segment.flags) {
            return self.begin_anew(cx, packet, (side, Some(&segment)), connection);
        }
        if !connection.expects(segment.flags, sender) {
            return self.invalid(cx, packet, side, OUT_OF_WINDOW);
        }
        // An untracked packet must not change its connection, and whether it is untracked is known only after the rules.
        let before = *connection;
        let answers = sender == Sender::Answerer && self.answers_reopening(cx, packet, (end, &segment), connection)?;
        let ignores = !answers && connection.ignores(segment.flags, sender);
        if ignores || !answers && !self.fits(packet, connection, &segment, sender) {
            let mut is_harmless = || connection.windows.tolerates(sender as usize, &segment);
            if !ignores && (segment.flags & tcp_flags::SYN != 0 || !is_harmless()) {
                return self.invalid(cx, packet, side, OUT_OF_WINDOW);
            }
            if ignores && sender == Sender::Opener && !connection.windows.is_repeated(&segment) {
                self.note_reopening(cx, packet, (end, &segment))?;
            }
            let state = connection.state(sender);
            let heard = self.ask(cx, packet, Observed { side, state }, false, connection)?;
            if heard.is_untracked {
                *connection = before;
            }
            return self.pass_as_heard(cx, packet, heard.answer);
        }
        if packet.is_fragment() {
            // The content of its other fragments is unknown.
            connection.windows.forget();
        }
        let state = connection.state(sender);
        let is_counted = connection.counts(segment.flags, sender);
        let was_asked = !connection.is_answered();
        connection.advance(segment.flags, sender);
        connection.learn_side(side, sender);
        let untracks = self.settings.policy.untracks;
        if !untracks {
            self.note_advance(cx, packet, (end, &segment), connection)?;
        }
        let heard = self.ask(cx, packet, Observed { side, state }, is_counted, connection)?;
        if heard.is_untracked {
            *connection = before;
        } else if untracks {
            self.note_advance(cx, packet, (end, &segment), connection)?;
        }
        if was_asked && connection.is_over() {
            // The connection was never established: as in conntrack, nothing of it remains.
            self.end(cx, &ends_of(packet, end), connection)?;
            connection.go();
        }
        self.pass_as_heard(cx, packet, heard.answer)
    }

    /// Handles a packet that belongs to no live connection. If it opens one, `register` gets it, and says whether there is room.
    pub(super) fn meet(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        register: impl FnOnce(&mut Cx<'_>, Connection) -> bool,
    ) -> Handled {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(Verdict::Drop(WRONG_SIDE)) };
        if self.settings.refuses_route(packet) {
            return Ok(Verdict::Drop(SOURCE_ROUTED));
        }
        if packet.ip_version() == Some(IpVersion::V6) {
            // Without these nobody has a neighbour, as without ARP.
            if scope::is_needed_on_link(packet) {
                return Ok(cx.pass());
            }
            // A hop lets nothing out of its link (RFC 4291 section 2.5.6).
            if self.settings.hops() > 0 && scope::is_link_scope_v6(packet.src_ip(), packet.dst_ip()) {
                return Ok(Verdict::Drop(LINK_SCOPE));
            }
        }
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        // What ends here opens nothing (as in Linux, where forwarding comes before the rules).
        if self.settings.hops() > 0 && packet.ttl().is_some_and(|ttl| ttl <= 1) {
            return self.ttl_exceeded(cx, packet);
        }
        let segment = match check(packet) {
            Ok(segment) => segment.filter(|_| extensions::authentication_of(packet).is_none()),
            Err(reason) => return self.invalid(cx, packet, side, reason),
        };
        if matches!(packet.protocol(), protocol::ICMP | protocol::ICMPV6) {
            return self.icmp(cx, packet, side);
        }
        self.begin(cx, packet, (side, segment.as_ref()), register)
    }

    /// Whether a segment is within what its connection's ends may send.
    fn fits(&self, packet: &Packet<'_>, connection: &mut Connection, segment: &Segment, sender: Sender) -> bool {
        let from = sender as usize;
        let fits = if segment.flags & tcp_flags::SYN == 0 {
            !connection.windows.is_reset_from_before(from, segment) && connection.windows.accept(from, segment)
        } else {
            let is_asked =
                connection.phase() == Phase::Asked && !(sender == Sender::Opener && connection.is_answered());
            connection.windows.synchronise(from, packet, segment, is_asked)
        };
        fits || (self.settings.windows == WindowCheck::Liberal && segment.flags & tcp_flags::RST == 0)
    }

    /// A segment has moved its connection: that is no longer counted where it counts no more.
    fn note_advance(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (end, segment): (Side, &Segment),
        connection: &mut Connection,
    ) -> Result<(), Conflict> {
        if connection.is_over() && segment.flags & tcp_flags::FIN == 0 && self.effects.sets.counts_connections() {
            self.effects.sets.leave(cx, &ends_of(packet, end))?;
        }
        if connection.is_half_open() && !connection.is_opening() {
            self.limits.settle(cx, ends_of(packet, end).host(), connection)?;
        }
        Ok(())
    }

    /// Lets a packet go on if the rules do.
    fn pass_as_heard(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, answer: Result<(), Reason>) -> Handled {
        match answer {
            Ok(()) => self.pass(cx, packet),
            Err(reason) => Ok(Verdict::Drop(reason)),
        }
    }
}

/// Checks that a packet (not a later fragment) is complete and consistent; returns its segment if it is TCP.
pub(super) fn check(packet: &Packet<'_>) -> Result<Option<Segment>, Reason> {
    let number = packet.protocol();
    // No packet of IPv6 has an IPv4 address, for which rules of IPv4 would hold (RFC 4291 section 2.5.5.2).
    let is_mapped =
        || packet.ip_version() == Some(IpVersion::V6) && (packet.src_ip().is_v4() || packet.dst_ip().is_v4());
    if !packet.header_checksum_ok()
        || is_mapped()
        || !lengths::hold_the_headers(packet)
        || protocol::has_ports(number) && packet.ports().is_none()
    {
        return Err(Reason::MALFORMED);
    }
    if number != protocol::TCP {
        return Ok(None);
    }
    match Segment::of(packet) {
        None => Err(Reason::MALFORMED),
        Some(segment) if !are_valid(segment.flags) => Err(INVALID_TCP_FLAGS),
        segment => Ok(segment),
    }
}
