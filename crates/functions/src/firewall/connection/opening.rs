//! Opens connections, new ones and ones that reuse endpoints: counts them and checks for room.

use braid_nf::packet::headers::tcp_flags::{FIN, RST, SYN};
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::Connection;
use super::association::Association;
use super::ends::Ends;
use super::states::Sender;
use super::window::{Reopening, Segment};
use crate::firewall::apply_rules::Opening;
use crate::firewall::conditions::extensions;
use crate::firewall::config::WindowCheck;
use crate::firewall::{CONNECTION_TABLE_FULL, Firewall, NOT_INIT, NOT_SYN, ends_of};
use crate::parts::{Side, is_opening};

/// Why a packet opens no connection whatever the rules say, if it is one that belongs to a known one.
pub(in crate::firewall) fn objection(packet: &Packet<'_>, segment: Option<&Segment>, loose: bool) -> Option<Reason> {
    match segment {
        Some(segment) => {
            let may_open = is_opening(segment.flags) || loose && segment.flags & (SYN | RST | FIN) == 0;
            (!may_open).then_some(NOT_SYN)
        }
        None if extensions::protocol_of(packet) == protocol::SCTP && !loose => {
            Association::begin(packet).is_none().then_some(NOT_INIT)
        }
        None => None,
    }
}

impl Firewall {
    /// Handles a packet between endpoints without a connection. If rules and limits let it open one, `register` gets the
    /// connection, and says whether there is room.
    pub(in crate::firewall) fn begin(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, segment): (Side, Option<&Segment>),
        register: impl FnOnce(&mut Cx<'_>, Connection) -> bool,
    ) -> Handled {
        let objection = objection(packet, segment, self.settings.loose);
        if let Some(reason) = objection.filter(|_| self.settings.policy.has_tables) {
            return self.invalid(cx, packet, side, reason);
        }
        let opening = match self.admit(cx, packet, side)? {
            Ok(opening) => opening,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        if opening.is_untracked() {
            return self.pass(cx, packet);
        }
        if let Some(reason) = objection {
            return Ok(Verdict::Drop(reason));
        }
        match self.open(cx, packet, (side, &opening, segment), register)? {
            Ok(()) => self.pass(cx, packet),
            Err(reason) => Ok(Verdict::Drop(reason)),
        }
    }

    /// Makes a new connection live, if there is room for it.
    fn open(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (side, opening, segment): (Side, &Opening, Option<&Segment>),
        register: impl FnOnce(&mut Cx<'_>, Connection) -> bool,
    ) -> Result<Result<(), Reason>, Conflict> {
        let mut connection = self.connection(cx, packet, side, segment);
        let (ends, known) = (ends_of(packet, side), ends_of(packet, side).opened_from(side as u8));
        let opens = segment.is_some_and(|segment| is_opening(segment.flags));
        if let Err(reason) = self.limits.admit(cx, ends.host(), &mut connection, opens)? {
            return Ok(Err(reason));
        }
        let refusal = if !self.connections.enter(cx, &known, &())? {
            CONNECTION_TABLE_FULL
        } else if register(cx, connection) {
            self.note_opening(cx, &ends, (side, opening))?;
            return Ok(Ok(()));
        } else {
            self.connections.leave(cx, &known)?;
            Reason::SET_TABLE_FULL
        };
        self.limits.end(cx, ends.host(), &connection)?;
        Ok(Err(refusal))
    }

    /// Handles the end of a connection: nothing counts it any more, and no ICMP error can refer to it.
    pub(in crate::firewall) fn end(
        &self,
        cx: &mut Cx<'_>,
        ends: &Ends,
        connection: &Connection,
    ) -> Result<(), Conflict> {
        let opener = connection.side_of(Sender::Opener);
        if !self.connections.leave(cx, &ends.opened_from(opener))? && opener != Side::Inside as u8 {
            // State restored from an older version may have it as opened from inside, as all connections were then.
            self.connections.leave(cx, &ends.opened_from(Side::Inside as u8))?;
        }
        self.effects.leave(cx, ends)?;
        self.limits.end(cx, ends.host(), connection)
    }

    /// Handles a SYN, or an INIT of SCTP, between endpoints whose connection is over, as conntrack does: the old connection ends,
    /// and the rules decide about a new one. If they refuse it, the next packet is handled here too.
    #[cold]
    pub(in crate::firewall) fn begin_anew(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, segment): (Side, Option<&Segment>),
        connection: &mut Connection,
    ) -> Handled {
        if !connection.is_gone() {
            let end = connection.known_as(Sender::opener_if(cx.reversed() == connection.is_reversed()));
            self.end(cx, &ends_of(packet, end), connection)?;
            connection.go();
        }
        let register = |_: &mut Cx<'_>, again| {
            *connection = again;
            true
        };
        self.begin(cx, packet, (side, segment), register)
    }

    /// Remembers a SYN of the opener within a connection, which nobody believes yet.
    #[cold]
    pub(in crate::firewall) fn note_reopening(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (end, segment): (Side, &Segment),
    ) -> Result<(), Conflict> {
        let reopening = Reopening::of(packet, segment, cx.now());
        // Where too many wait the oldest ones are forgotten: their connections go on as they were.
        self.reopenings.crowd_in(cx, &ends_of(packet, end), &reopening)?;
        Ok(())
    }

    /// Whether a segment of the end that was asked answers such a SYN. If it accepts it, the connection begins anew; if it refuses it, it is as
    /// good as a reset within the window.
    #[inline(always)]
    pub(in crate::firewall) fn answers_reopening(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (end, segment): (Side, &Segment),
        connection: &mut Connection,
    ) -> Result<bool, Conflict> {
        if segment.flags & (SYN | RST) == 0 {
            return Ok(false);
        }
        let ends = ends_of(packet, end);
        let reopening = self.reopenings.get(cx, &ends)?.filter(|reopening| reopening.is_answered_by(segment));
        let Some(reopening) = reopening else { return Ok(false) };
        self.reopenings.remove(cx, &ends)?;
        if segment.flags & RST == 0 && self.settings.windows != WindowCheck::Off {
            connection.reopen(&reopening);
            connection.windows.synchronise(1, packet, segment, true);
        }
        Ok(true)
    }

    fn connection(&self, cx: &Cx<'_>, packet: &Packet<'_>, side: Side, segment: Option<&Segment>) -> Connection {
        let mut connection = Connection::open(cx, packet, side, segment);
        connection.expect_answers(self.settings.exits.answers(cx, side));
        if segment.is_some() && (self.settings.windows == WindowCheck::Off || packet.is_fragment()) {
            connection.windows.forget();
        }
        let policy = &self.settings.policy;
        if policy.tells_packets_apart || connection.protocol != packet.protocol() {
            connection.stay_new();
        }
        if !policy.asks_established() {
            connection.set_permit(policy.permit);
        }
        connection
    }
}
