//! Opens connections, new ones and ones that reuse endpoints: counts them and checks for room.

use braid_nf::packet::headers::tcp_flags::{RST, SYN};
use braid_nf::prelude::*;

use super::config::WindowCheck;
use super::connection::Connection;
use super::ends::Ends;
use super::judge::Opening;
use super::window::{Reopening, Segment};
use super::{CONNECTION_TABLE_FULL, Firewall, NOT_SYN, ends_of};
use crate::parts::{Side, is_opening};

impl Firewall {
    /// Handles a packet between endpoints without a connection. If rules and limits let it open one, `register` gets the
    /// connection, and says whether there is room.
    pub(super) fn begin(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, segment): (Side, Option<&Segment>),
        register: impl FnOnce(&mut Cx<'_>, Connection) -> bool,
    ) -> Handled {
        let may_open = segment.is_none_or(|segment| self.may_open(segment.flags));
        if !may_open && self.settings.policy.has_tables {
            return self.invalid(cx, packet, side, NOT_SYN);
        }
        let opening = match self.admit(cx, packet, side)? {
            Ok(opening) => opening,
            Err(reason) => return Ok(Verdict::Drop(reason)),
        };
        if opening.is_untracked() {
            return self.pass(cx, packet);
        }
        if !may_open {
            return Ok(Verdict::Drop(NOT_SYN));
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
    pub(super) fn end(&self, cx: &mut Cx<'_>, ends: &Ends, connection: &Connection) -> Result<(), Conflict> {
        let opener = connection.side_of(true);
        if !self.connections.leave(cx, &ends.opened_from(opener))? && opener != Side::Inside as u8 {
            // State restored from an older version may have it as opened from inside, as all connections were then.
            self.connections.leave(cx, &ends.opened_from(Side::Inside as u8))?;
        }
        self.effects.leave(cx, ends)?;
        self.limits.end(cx, ends.host(), connection)
    }

    /// Handles a SYN between endpoints whose connection is over, as conntrack does: the old connection ends, and the
    /// rules decide about a new one. If they refuse it, the next packet is handled here too.
    #[cold]
    pub(super) fn begin_anew(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, segment): (Side, &Segment),
        connection: &mut Connection,
    ) -> Handled {
        if !connection.is_gone() {
            let end = connection.known_as(cx.reversed() == connection.is_reversed());
            self.end(cx, &ends_of(packet, end), connection)?;
            connection.go();
        }
        let register = |_: &mut Cx<'_>, again| {
            *connection = again;
            true
        };
        self.begin(cx, packet, (side, Some(segment)), register)
    }

    /// Remembers a SYN of the opener within a connection, which nobody believes yet.
    #[cold]
    pub(super) fn note_reopening(
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
    pub(super) fn answers_reopening(
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
        if self.settings.windows == WindowCheck::Off || packet.is_fragment() {
            connection.windows.forget();
        }
        let policy = &self.settings.policy;
        if policy.tells_packets_apart {
            connection.stay_new();
        }
        if !policy.asks_established() {
            connection.set_permit(policy.permit);
        }
        connection
    }
}
