//! Stations, groups and routers that the bridge knows, for an operator who lists them.

use braid_nf::prelude::*;
use braid_nf::{About, EntryRange, Fate, TableEntry, in_tables};

use super::snooping::Snooping;
use super::{Bridge, Entry, Station};

impl Bridge {
    /// Tells of the entries in `range`, stations first, and forgets those that are to end; returns where to go on.
    pub(super) fn list(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        in_tables(range.first, &self.capacities(), |table, at| match (table, &self.snooping) {
            (0, _) => self.list_stations(cx, range.from(at), tell),
            (_, Some(snooping)) => snooping.list(cx, table - 1, range.from(at), tell),
            (_, None) => Ok(None),
        })
    }

    /// The capacities of the tables of stations, of groups, of queriers and of other routers.
    pub(super) fn capacities(&self) -> [u32; 4] {
        let [groups, queriers, routers] = self.snooping.as_ref().map_or([0; 3], Snooping::capacities);
        [self.table.capacity(), groups, queriers, routers]
    }

    fn list_stations(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        let now = cx.now();
        self.forget(cx, range, |station, entry| {
            // One that is older has only not been swept.
            let is_live = entry.is_fixed() || entry.age_ns(now) <= self.age_max_ns;
            is_live && tell(self.shown(station, entry, now)) != Fate::Keep
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
            is_configured: is_fixed,
        }
    }
}
