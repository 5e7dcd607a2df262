//! Learning: records where stations are when they send from a new place, and refreshes entries when that is due.

use braid_nf::Port;
use braid_nf::prelude::*;
use braid_nf::state::{Handle, Vacancy, Visit};

use super::quota::{Quota, Whose};
use super::{Bridge, Entry, Station};

/// The entries that one frame searches for expired stations of a full VLAN or port.
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
        if moved && !self.has_room_to_move(cx, entry.port, port)? {
            return Ok(0);
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
        for (quota, number) in
            self.quotas.vlans.iter().map(|of| (of, station.vlan())).chain(self.quotas.ports.iter().map(|of| (of, port)))
        {
            if !self.has_room(cx, quota, number)? {
                return Ok(0);
            }
        }
        let entry = Entry::seen(port, cx.now());
        let Some(handle) = self.table.fill(cx, vacancy, &station, &entry)? else {
            return self.events.update(cx, |events| events.table_full += 1).map(|()| 0);
        };
        *at = handle;
        self.quotas.add(cx, &station, &entry)?;
        self.events.update(cx, |events| events.learnt += 1)?;
        Ok(entry.seen_ns().saturating_add(self.refresh_ns))
    }

    /// Whether a station may move from one port to another, which counts it from then on. If not, it stays known at the former one.
    #[cold]
    fn has_room_to_move(&self, cx: &mut Cx<'_>, from: Port, to: Port) -> Result<bool, Conflict> {
        let Some(ports) = &self.quotas.ports else { return Ok(true) };
        if !self.has_room(cx, ports, to)? {
            return Ok(false);
        }
        ports.remove(cx, from)?;
        ports.add(cx, to)?;
        Ok(true)
    }

    /// Whether a VLAN or port has room for another station, after expired ones are forgotten; counts if not.
    fn has_room(&self, cx: &mut Cx<'_>, quota: &Quota, number: u16) -> Result<bool, Conflict> {
        if quota.has_room(cx, number)? || self.makes_room(cx, quota, number)? {
            return Ok(true);
        }
        self.events.update(cx, |events| match quota.whose {
            Whose::Vlan => events.vlan_full += 1,
            Whose::Port => events.port_full += 1,
        })?;
        Ok(false)
    }

    /// Forgets expired stations of a full VLAN or port, if there may be any, in the piece of the table whose turn it is. Returns
    /// whether there is room now. While no station has expired, a flood of new stations only reads.
    #[cold]
    fn makes_room(&self, cx: &mut Cx<'_>, quota: &Quota, number: u16) -> Result<bool, Conflict> {
        let now = cx.now();
        let dead_ns = now.saturating_sub(self.age_max_ns);
        let Some(from) = quota.looks_from(cx, number, dead_ns)? else { return Ok(false) };
        let (mut oldest_ns, mut removed) = (now, 0);
        let next = self.table.for_each(cx, from, LOOK, |tx, station, entry| {
            if !quota.is_of(number, station, entry) {
                return Ok(Visit::Keep);
            }
            if entry.seen_ns() >= dead_ns {
                oldest_ns = oldest_ns.min(entry.seen_ns());
                return Ok(Visit::Keep);
            }
            removed += 1;
            self.quotas.remove(tx, station, entry)?;
            Ok(Visit::Remove)
        })?;
        quota.looked(cx, number, oldest_ns, next)?;
        if removed == 0 {
            return Ok(false);
        }
        self.changes.update(cx, 0, |changes| *changes += removed)?;
        quota.has_room(cx, number)
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
