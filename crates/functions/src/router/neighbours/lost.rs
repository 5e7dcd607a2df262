//! Ports without a link: neighbours there are absent until the link is back, and are then asked for at once. Static ones have their link only.

use braid_nf::prelude::*;
use braid_nf::state::Visit;
use braid_nf::{EntryRange, Port};

use super::entry::{FIXED, Hop, MISSED, Neighbour};
use super::{Neighbours, REST_NS};
use crate::parts::SECOND;

/// What is known of the link of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct PortLink {
    is_down: u64,
    /// When it came up last.
    up_ns: u64,
}

impl Neighbour {
    /// Whether it is absent only because its link was lost, so that it has not been asked since.
    pub(super) fn is_lost(&self) -> bool {
        self.known == MISSED && self.tries == 0
    }
}

impl Neighbours {
    /// Takes neighbours at a port whose link has gone down for absent, among the entries in `range`; returns where to
    /// go on. They are asked for when the link is back, or after a rest like others that do not answer, since they may be at another port by then.
    pub fn link_down(&self, cx: &mut Cx<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict> {
        let (now, mut lost) = (cx.now(), 0);
        if range.first == 0 {
            self.links.update(cx, port.into(), |link| link.is_down = 1)?;
        }
        let next = self.table.for_each(cx, range.first, range.count, |_, _, entry| {
            if entry.known != 1 || entry.at.port != port {
                return Ok(Visit::Keep);
            }
            lost += 1;
            if entry.seen_ns == FIXED {
                return Ok(Visit::Keep);
            }
            let asked_ns = now.saturating_sub(SECOND);
            let seen_ns = entry.seen_ns.min(asked_ns);
            Ok(Visit::Replace(Neighbour { seen_ns, asked_ns, tries: 0, known: MISSED, ..*entry }))
        })?;
        if lost > 0 {
            self.changes.update(cx, 0, |changes| *changes += lost)?;
        }
        Ok(next)
    }

    /// A port has its link again: static neighbours there are used, others are asked for when they are next needed.
    pub fn link_up(&self, cx: &mut Cx<'_>, port: Port) -> Result<(), Conflict> {
        let (before, up_ns) = (self.link(cx, port)?, cx.now());
        self.links.set(cx, port.into(), PortLink { is_down: 0, up_ns })?;
        match before.is_down {
            0 => Ok(()),
            _ => self.changes.update(cx, 0, |changes| *changes += 1).map(drop),
        }
    }

    /// Whether a port has lost its link.
    pub(super) fn is_down(&self, cx: &mut Cx<'_>, port: Port) -> Result<bool, Conflict> {
        Ok(self.link(cx, port)?.is_down == 1)
    }

    /// Whether a port is known to have its link.
    pub fn has_link(&self, cx: &mut Cx<'_>, port: Port) -> Result<bool, Conflict> {
        let link = self.link(cx, port)?;
        Ok(link.is_down == 0 && link.up_ns > 0)
    }

    /// Whether a neighbour is absent because of its link: it has lost it and has not rested, or it is static and has none.
    pub(super) fn lacks_link(&self, cx: &mut Cx<'_>, entry: &Neighbour) -> Result<bool, Conflict> {
        let may_lack = match entry.seen_ns {
            FIXED => true,
            _ => entry.is_lost() && cx.now().saturating_sub(entry.asked_ns) < REST_NS,
        };
        Ok(may_lack && self.link(cx, entry.at.port)?.is_down == 1)
    }

    /// Whether a neighbour was asked last before its link came up, so that it is not known whether it would answer.
    pub(super) fn precedes_link(&self, cx: &mut Cx<'_>, hop: Hop, entry: &Neighbour) -> Result<bool, Conflict> {
        let up_ns = self.link(cx, hop.port)?.up_ns.max(self.link(cx, entry.at.port)?.up_ns);
        Ok(entry.asked_ns < up_ns)
    }

    fn link(&self, cx: &mut Cx<'_>, port: Port) -> Result<PortLink, Conflict> {
        Ok(self.links.get(cx, port.into())?.unwrap_or_default())
    }
}
