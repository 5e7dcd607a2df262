//! Changes that rules make to packets: `ip dscp set cs1`, `ip6 hoplimit set 64`.
//!
//! A change is noted while rules are applied, and made once they let the packet pass. Conditions refer to packets as they
//! arrived, so a file in which a rule would have to see an earlier rule's change is refused.

use std::fmt;

use braid_nf::prelude::*;

use crate::firewall::conditions::fields::Field;
use crate::firewall::rules::{Action, Rule};
use crate::parts::headers::dscp;

/// A change to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) enum Edit {
    /// Sets the code point.
    Dscp(u8),
    /// Sets the TTL or hop limit with which the packet leaves.
    Hops(u8),
    /// Sets the TTL or hop limit before it is decremented.
    ArrivedHops(u8),
}

/// All changes to one packet; the last one of each kind applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::firewall) struct Edits {
    dscp: Option<u8>,
    /// The hops, and whether they are still to be decremented.
    hops: Option<(u8, bool)>,
}

impl Edits {
    /// No change.
    pub(in crate::firewall) const NONE: Edits = Edits { dscp: None, hops: None };

    /// Notes a rule's change.
    pub(in crate::firewall) fn note(&mut self, edit: Edit) {
        match edit {
            Edit::Dscp(dscp) => self.dscp = Some(dscp),
            Edit::Hops(hops) => self.hops = Some((hops, false)),
            Edit::ArrivedHops(hops) => self.hops = Some((hops, true)),
        }
    }

    /// Applies the changes to a packet whose TTL will be decremented by `lost`. A packet whose TTL is used up keeps it:
    /// it goes no further.
    #[inline]
    pub(in crate::firewall) fn write(&self, packet: &mut Packet<'_>, lost: u8) {
        if let Some(dscp) = self.dscp {
            dscp::set(packet, dscp);
        }
        if let Some((hops, is_decremented)) = self.hops
            && packet.ttl().is_some_and(|ttl| ttl > lost)
        {
            packet.set_ttl(if is_decremented { hops } else { hops.saturating_add(lost) });
        }
    }
}

impl Edit {
    /// Whether a rule tests what this changes.
    fn is_asked_by(self, rule: &Rule) -> bool {
        let fields: &[Field] = match self {
            Edit::Dscp(_) => &[Field::Dscp, Field::Checksum],
            Edit::Hops(_) | Edit::ArrivedHops(_) => &[Field::Ttl, Field::ArrivedTtl, Field::Checksum],
        };
        rule.fields.iter().any(|within| fields.contains(&within.field))
    }
}

/// A rule that tests what an earlier one has changed in packets that reach both, and the number of the earlier one.
pub(in crate::firewall) fn asked_behind(rules: &[Rule]) -> Option<(&Rule, usize)> {
    let writers = rules.iter().enumerate().filter(|(_, rule)| rule.action == Action::Continue);
    writers.flat_map(|(number, rule)| rule.edits.iter().map(move |edit| (number, rule, edit))).find_map(
        |(number, writer, edit)| {
            // Clauses of one statement all test the packet as it came to that statement.
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
            Edit::ArrivedHops(hops) => write!(f, "sets the hops to {hops} before they are counted"),
        }
    }
}
