//! What the bridge forgets: stations that have expired, and everything that was behind a port whose link goes down, so that frames
//! find those who have moved to another port (IEEE 802.1Q section 8.8, as the Linux bridge does).

use braid_nf::prelude::*;
use braid_nf::state::Visit;
use braid_nf::{EntryRange, in_tables};

use super::{Bridge, Entry, Station};

impl Bridge {
    /// Removes those of the entries in `range` that are over; returns where to go on.
    pub(super) fn forget(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        mut is_over: impl FnMut(&Station, &Entry) -> bool,
    ) -> Result<Option<u32>, Conflict> {
        let mut removed = 0;
        let next = self.table.for_each(cx, range.first, range.count, |tx, station, entry| {
            if !is_over(station, entry) {
                return Ok(Visit::Keep);
            }
            removed += 1;
            self.quotas.remove(tx, station, entry)?;
            Ok(Visit::Remove)
        })?;
        if removed > 0 {
            self.changes.update(cx, 0, |changes| *changes += removed)?;
        }
        Ok(next)
    }

    /// Forgets stations that were learnt at a port, then what groups it wants, then its routers.
    pub(super) fn forget_port(&self, cx: &mut Cx<'_>, port: Port, range: EntryRange) -> Result<Option<u32>, Conflict> {
        in_tables(range.first, &self.capacities(), |table, at| match (table, &self.snooping) {
            (0, _) => self.forget(cx, range.from(at), |_, entry| entry.port == port && !entry.is_fixed()),
            (_, Some(snooping)) => snooping.forget_port(cx, table - 1, port, range.from(at)),
            (_, None) => Ok(None),
        })
    }
}
