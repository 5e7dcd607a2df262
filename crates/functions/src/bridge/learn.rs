//! Learning: records where stations are when they send from a new place, and refreshes entries when that is due.

use braid_nf::Port;
use braid_nf::prelude::*;
use braid_nf::state::{Handle, Vacancy, Visit};

use super::{Bridge, Entry, Quota, Station};

/// The entries that one frame searches for expired stations of a full VLAN.
const LOOK: u32 = 4096;

impl Bridge {
    /// Records that `station` is at `port` now. If that is already known, the entry is refreshed only when due. Returns when
    /// the next refresh is due; 0 means at once.
    #[inline(always)]
    pub(super) fn learn(
        &self,
        cx: &mut Cx<'_>,
        station: Station,
        port: Port,
        at: &mut Handle,
    ) -> Result<u64, Conflict> {
        let now = cx.now();
        let entry = match self.look_up(cx, station, at)? {
            Ok(entry) => entry,
            Err(vacancy) => return self.learn_new(cx, (station, vacancy), port, at),
        };
        let moved = entry.port != port;
        let due_ns = entry.seen_ns().saturating_add(self.refresh_ns);
        if entry.is_fixed() || !moved && now < due_ns {
            return Ok(due_ns);
        }
        let seen_ns = now.max(entry.seen_ns());
        self.table.update_at(cx, *at, |entry| *entry = Entry::seen(port, seen_ns))?;
        if moved {
            self.changes.update(cx, 0, |changes| *changes += 1)?;
            self.events.update(cx, |events| events.moved += 1)?;
        }
        Ok(seen_ns.saturating_add(self.refresh_ns))
    }

    /// Records a new station, if there is room. Returns when the next refresh is due; 0 means at once.
    #[cold]
    fn learn_new(
        &self,
        cx: &mut Cx<'_>,
        (station, vacancy): (Station, Vacancy),
        port: Port,
        at: &mut Handle,
    ) -> Result<u64, Conflict> {
        let vlan = station.vlan();
        if let Some(quota) = &self.quota
            && !quota.has_room(cx, vlan)?
            && !self.makes_room(cx, quota, vlan)?
        {
            return self.events.update(cx, |events| events.vlan_full += 1).map(|()| 0);
        }
        let entry = Entry::seen(port, cx.now());
        let Some(handle) = self.table.fill(cx, vacancy, &station, &entry)? else {
            return self.events.update(cx, |events| events.table_full += 1).map(|()| 0);
        };
        *at = handle;
        self.quota.iter().try_for_each(|quota| quota.add(cx, vlan))?;
        self.events.update(cx, |events| events.learnt += 1)?;
        Ok(entry.seen_ns().saturating_add(self.refresh_ns))
    }

    /// Forgets expired stations of a full VLAN, if there may be any, in the piece of the table whose turn it is. Returns
    /// whether there is room now. While no station has expired, a flood of new stations only reads.
    #[cold]
    fn makes_room(&self, cx: &mut Cx<'_>, quota: &Quota, vlan: u16) -> Result<bool, Conflict> {
        let now = cx.now();
        let dead_ns = now.saturating_sub(self.age_max_ns);
        let Some(from) = quota.looks_from(cx, vlan, dead_ns)? else { return Ok(false) };
        let (mut oldest_ns, mut removed) = (now, 0);
        let next = self.table.for_each(cx, from, LOOK, |tx, station, entry| {
            if station.vlan() != vlan {
                return Ok(Visit::Keep);
            }
            if entry.seen_ns() >= dead_ns {
                oldest_ns = oldest_ns.min(entry.seen_ns());
                return Ok(Visit::Keep);
            }
            removed += 1;
            quota.remove(tx, vlan)?;
            Ok(Visit::Remove)
        })?;
        quota.looked(cx, vlan, oldest_ns, next)?;
        if removed == 0 {
            return Ok(false);
        }
        self.changes.update(cx, 0, |changes| *changes += removed)?;
        quota.has_room(cx, vlan)
    }

    /// Returns the station's current entry, from where it was last time or found anew, or else the vacancy for it. The entry
    /// from last time may be for another VLAN: the set's untagged frames belong to the VLAN of the port on which they arrive.
    pub(super) fn look_up(
        &self,
        cx: &mut Cx<'_>,
        station: Station,
        at: &mut Handle,
    ) -> Result<Result<Entry, Vacancy>, Conflict> {
        if let Some((handle, known, entry)) = self.table.entry_at(cx, at.index)?
            && (handle, known) == (*at, station)
        {
            return Ok(Ok(entry));
        }
        let found = self.table.look(cx, &station)?;
        Ok(found.map(|(handle, entry)| {
            *at = handle;
            entry
        }))
    }
}
