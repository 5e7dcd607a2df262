//! What rules write into packets: `ip dscp set cs1`, `ip6 hoplimit set 64`. It is noted while rules are asked, and written once they let the
//! packet pass. Rules are asked about packets as they came, so a file in which one would have to see what another one has written is refused.

use std::fmt;

use braid_nf::prelude::*;

use super::fields::Field;
use super::rules::{Action, Rule};
use crate::parts::dscp;

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edit {
    /// The code point.
    Dscp(u8),
    /// Time to live or hop limit, with which it leaves.
    Hops(u8),
}

/// What is written into one packet; of what is said twice the last counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edits {
    dscp: Option<u8>,
    hops: Option<u8>,
}

impl Edits {
    /// Nothing.
    pub(super) const NONE: Edits = Edits { dscp: None, hops: None };

    /// A rule has said so.
    pub(super) fn note(&mut self, edit: Edit) {
        match edit {
            Edit::Dscp(dscp) => self.dscp = Some(dscp),
            Edit::Hops(hops) => self.hops = Some(hops),
        }
    }

    /// Writes it into a packet that will lose this many hops. One whose hops are used up stays as it is: it goes no further.
    #[inline]
    pub(super) fn write(&self, packet: &mut Packet<'_>, lost: u8) {
        if let Some(dscp) = self.dscp {
            dscp::set(packet, dscp);
        }
        if let Some(hops) = self.hops
            && packet.ttl().is_some_and(|ttl| ttl > lost)
        {
            packet.set_ttl(hops.saturating_add(lost));
        }
    }
}

impl Edit {
    /// Whether a rule asks for what this changes.
    fn is_asked_by(self, rule: &Rule) -> bool {
        let field = match self {
            Edit::Dscp(_) => Field::Dscp,
            Edit::Hops(_) => Field::Ttl,
        };
        rule.fields.iter().any(|within| within.field == field || within.field == Field::Checksum)
    }
}

/// A rule that asks for what one before it has written into packets that come to both, and the number of that one.
pub(super) fn asked_behind(rules: &[Rule]) -> Option<(&Rule, usize)> {
    let writers = rules.iter().enumerate().filter(|(_, rule)| rule.action == Action::Continue);
    writers.flat_map(|(number, rule)| rule.edits.iter().map(move |edit| (number, rule, edit))).find_map(
        |(number, writer, edit)| {
            // Clauses of one statement ask as it does: of the packet as it came to them.
            let place = |rule: &Rule| (rule.line, rule.file.clone());
            let behind = rules.iter().skip(writer.behind(number, writer.next));
            let mut asking = behind.filter(|rule| edit.is_asked_by(rule) && place(rule) != place(writer));
            asking.next().map(|rule| (rule, number))
        },
    )
}

impl fmt::Display for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Edit::Dscp(dscp) => write!(f, "sets the code point to {dscp}"),
            Edit::Hops(hops) => write!(f, "sets the hops left to {hops}"),
        }
    }
}
