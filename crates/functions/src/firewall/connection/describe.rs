//! Connections and queries in words, for an operator who lists them.

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::{About, EntryRange, Fate, TableEntry, end_in_words};

use super::ends::Ends;
use super::related::Asked;
use super::states::Sender;
use super::{Connection, Phase};
use crate::firewall::Firewall;
use crate::parts::Side;

impl Connection {
    /// Who opened it, and how far it has come.
    pub(in crate::firewall) fn in_words(&self, key: &SetKey) -> String {
        let is_inside = self.side_of(Sender::Opener) == Side::Inside as u8;
        let opener = self.ends(key).map_or_else(String::new, |ends| {
            let end = if is_inside { (ends.inside, ends.inside_port) } else { (ends.outside, ends.outside_port) };
            format!(" by {}", end_in_words(self.protocol, end))
        });
        let side = if is_inside { "inside" } else { "outside" };
        let flood = if self.is_hurried() { ", during a flood" } else { "" };
        format!("opened from {side}{opener}, {}{flood}", self.phase_in_words())
    }

    fn phase_in_words(&self) -> &'static str {
        match (self.protocol, self.phase()) {
            (_, Phase::Gone) => "over",
            (protocol::TCP, Phase::Asked) => "SYN not answered",
            (protocol::TCP, Phase::Answered) => "answered, not confirmed",
            (protocol::TCP, Phase::Established) => "established",
            (protocol::TCP, Phase::HalfClosed) => "closed by one end",
            (protocol::TCP, Phase::Closing) => "closed by both ends",
            (protocol::TCP, Phase::Reset) => "reset",
            (protocol::TCP, Phase::Refused) => "reset before it was established",
            (protocol::SCTP, Phase::Reset) => "ended",
            (_, Phase::Asked) => "not answered",
            _ => "answered",
        }
    }
}

impl Firewall {
    /// Tells of the ICMP queries in `range`, and ends those that are to end; returns where to go on.
    pub(in crate::firewall) fn list_queries(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let told = |ends: &Ends, asked: &Asked, left_ns| {
            let (inside, outside) = ((ends.inside, ends.inside_port), (ends.outside, ends.outside_port));
            let is_inside = ends.asker == Side::Inside as u8;
            let answered = if asked.is_answered() { "answered" } else { "not answered" };
            let both = if is_inside { [inside, outside] } else { [outside, inside] };
            tell(TableEntry {
                kind: "query",
                about: About::Traffic { protocol: ends.number(), ends: both },
                detail: format!("type {}, {answered}", ends.kind),
                left_ns: Some(left_ns),
                is_configured: false,
            })
        };
        self.queries.list(cx, range, told, |cx, ends, _| self.effects.leave(cx, ends))
    }
}
