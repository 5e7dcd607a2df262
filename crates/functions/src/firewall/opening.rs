//! Connections that begin, or begin anew: what they are counted for, and whether there is room.

use braid_nf::prelude::*;

use super::config::WindowCheck;
use super::connection::{Connection, is_opening};
use super::keyed::Met;
use super::window::{Segment, Windows};
use super::{CONNECTION_TABLE_FULL, Firewall, ends_of, inside_host};
use crate::parts::Side;

impl Firewall {
    /// Makes a new connection live, if there is room for it.
    pub(super) fn open(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (side, met): (Side, Met),
        segment: Option<&Segment>,
        set: &mut NewSet<'_, Connection>,
    ) -> Result<Result<(), Reason>, Conflict> {
        let mut connection = self.connection(cx, packet, side, segment);
        let Some(ends) = connection.ends(&set.key()) else { return Ok(Err(Reason::MALFORMED)) };
        let counts = self.counts(segment);
        match self.limits.admit(cx, ends.host(), counts)? {
            Ok(hurries) if counts => connection.count_half_open(hurries),
            Ok(_) => {}
            Err(reason) => return Ok(Err(reason)),
        }
        let refusal = if !self.connections.enter(cx, &ends)? {
            CONNECTION_TABLE_FULL
        } else if set.register(cx, connection) {
            if met != 0 {
                self.effects.sets.enter(cx, &ends, side, met)?;
            }
            return Ok(Ok(()));
        } else {
            self.connections.leave(cx, &ends)?;
            Reason::SET_TABLE_FULL
        };
        self.limits.end(cx, ends.host(), counts)?;
        Ok(Err(refusal))
    }

    /// Begins anew between ends whose connection is over.
    #[cold]
    pub(super) fn reopen(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        side: Side,
        segment: &Segment,
        connection: &mut Connection,
    ) -> Result<Result<(), Reason>, Conflict> {
        let ends = ends_of(packet, side);
        self.effects.sets.leave(cx, &ends)?;
        let met = match self.admit(cx, packet, side)? {
            Ok(met) => met,
            Err(reason) => return Ok(Err(reason)),
        };
        let mut again = self.connection(cx, packet, side, Some(segment));
        if self.counts(Some(segment)) {
            match self.limits.readmit(cx, inside_host(packet, side))? {
                Ok(hurries) => again.count_half_open(hurries),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        if met != 0 {
            self.effects.sets.enter(cx, &ends, side, met)?;
        }
        *connection = again;
        Ok(Ok(()))
    }

    fn connection(&self, cx: &Cx<'_>, packet: &Packet<'_>, side: Side, segment: Option<&Segment>) -> Connection {
        let mut connection = Connection::open(cx, packet, side, segment);
        if self.settings.windows == WindowCheck::Off || packet.is_fragment() {
            connection.windows = Windows::UNKNOWN;
        }
        let policy = &self.settings.policy;
        if policy.tells_packets_apart {
            connection.stay_new();
        }
        if !policy.asks_established() {
            connection.set_mark(policy.mark);
        }
        connection
    }

    /// Whether a connection that begins with a segment is counted as half open.
    fn counts(&self, segment: Option<&Segment>) -> bool {
        self.settings.most.counts_half_open() && segment.is_some_and(|segment| is_opening(segment.flags))
    }
}
