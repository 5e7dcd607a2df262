//! Stations, groups and routers that the bridge knows, for an operator who lists them.

use braid_nf::prelude::*;
use braid_nf::state::{Tx, Visit};
use braid_nf::{About, TableEntry, table_at};

use super::snooping::Snooping;
use super::{Bridge, Entry, Station};

impl Bridge {
    /// Adds those of so many entries (second) from a number (first) on, stations first; returns where to go on.
    pub(super) fn list(
        &self,
        tx: &mut Tx,
        (from, count): (u32, u32),
        into: &mut Vec<TableEntry>,
    ) -> Result<Option<u32>, Conflict> {
        let [groups, queriers] = self.snooping.as_ref().map_or([0; 2], Snooping::capacities);
        let capacities = [self.table.capacity(), groups, queriers];
        let Some((table, at)) = table_at(from, &capacities) else { return Ok(None) };
        let before = from - at;
        let next = match (table, &self.snooping) {
            (0, _) => self.list_stations(tx, (at, count), into)?,
            (_, Some(snooping)) => snooping.list(tx, table == 1, (at, count), into)?,
            (_, None) => None,
        };
        let end = before + capacities[table];
        Ok(next.map(|at| before + at).or_else(|| table_at(end, &capacities).map(|_| end)))
    }

    fn list_stations(
        &self,
        tx: &mut Tx,
        (from, count): (u32, u32),
        into: &mut Vec<TableEntry>,
    ) -> Result<Option<u32>, Conflict> {
        let now = tx.now();
        self.table.for_each(tx, from, count, |_, station, entry| {
            // One that is older has only not been swept.
            if entry.is_fixed() || entry.age_ns(now) <= self.age_max_ns {
                into.push(self.shown(station, entry, now));
            }
            Ok(Visit::Keep)
        })
    }

    fn shown(&self, station: &Station, entry: &Entry, now: u64) -> TableEntry {
        let is_fixed = entry.is_fixed();
        TableEntry {
            kind: "station",
            about: About::OnLink {
                address: None,
                mac: Some(station.mac()),
                vlan: Some(station.vlan()).filter(|vlan| *vlan != 0),
                ports: vec![entry.port],
            },
            detail: if is_fixed { "static".to_owned() } else { String::new() },
            left_ns: (!is_fixed).then(|| self.age_max_ns - entry.age_ns(now)),
        }
    }
}
