//! Flows and entries in words, for an operator who lists them.

use braid_nf::prelude::*;
use braid_nf::{EntryRange, Fate, TableEntry, in_tables};

use super::Nat;
use crate::mappings::describe::Freed;
use crate::mappings::session::{Phase, Session};

impl Nat {
    /// Tells of the entries in `range`, those with ports first, and ends those that are to end; returns where
    /// to go on.
    pub(super) fn list(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let mappings = &self.flows.mappings;
        let capacities = [mappings.entries.capacity(), self.portless.capacity()];
        let name_of = |network| mappings.census.name(network).map(str::to_owned);
        in_tables(range.first, &capacities, |table, at| match table {
            0 => mappings.list(cx, range.from(at), Freed::AtOnce, tell),
            _ => self.portless.list(cx, range.from(at), name_of, tell),
        })
    }

    /// What a packet set remembers.
    pub(super) fn words(&self, cx: &mut Cx<'_>, session: &Session) -> Result<String, Conflict> {
        let phase = Phase::from_bits(session.phase());
        self.flows.words(cx, (session.index(), session.heading(), phase), |handle| session.uses(handle))
    }
}
