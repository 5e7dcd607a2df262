//! Limits how many stations of a VLAN may be learnt, so that one VLAN cannot fill the table.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateObject, Tx, VectorConfig};
use serde::Deserialize;

use crate::config::ConfigError;
use crate::parts::tags::VLAN_MAX;

/// `[[vlan]]`: a limit for one VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VlanConfig {
    /// Its number; 0: untagged frames, if VLANs are not filtered.
    pub id: u16,
    /// The most stations learnt in it; static ones do not count.
    pub stations_max: u32,
}

/// What is known about the stations of a full VLAN from scanning the table piece by piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Search {
    /// No station was last seen before this time: those scanned can only have been seen since, and new ones are younger.
    oldest_ns: u64,
    /// The same for the part of the table scanned so far in this round.
    so_far_ns: u64,
    /// The entry at which the scan continues.
    at: u64,
}

/// The limits, and how many stations each VLAN has. All VLANs are counted, so that another one can be limited while traffic
/// flows.
pub struct Quota {
    /// The limit of each VLAN, by number.
    most: Vec<u32>,
    used: Vector<u32>,
    searches: Vector<Search>,
}

impl Quota {
    /// Creates the limits of VLANs, which must have been checked; `None` if there are none.
    pub fn new(vlans: &[VlanConfig], builder: &mut StateBuilder) -> Result<Option<Quota>, ConfigError> {
        if vlans.is_empty() {
            return Ok(None);
        }
        let mut most = vec![u32::MAX; usize::from(VLAN_MAX) + 1];
        for vlan in vlans {
            most[usize::from(vlan.id)] = vlan.stations_max;
        }
        let init = VectorConfig { name: "stations_of_vlan".into(), len: most.len() as u32 };
        let state = |error| ConfigError::state("vlan", &error);
        let used = Vector::new(builder, &init, 0).map_err(state)?;
        let init = VectorConfig { name: "searches_of_vlan".into(), ..init };
        let searches = Vector::new(builder, &init, Search::default()).map_err(state)?;
        Ok(Some(Quota { most, used, searches }))
    }

    fn limit(&self, vlan: u16) -> Option<u32> {
        self.most.get(usize::from(vlan)).copied().filter(|most| *most != u32::MAX)
    }

    /// Whether another station of the VLAN may be learnt.
    pub fn has_room(&self, cx: &mut Cx<'_>, vlan: u16) -> Result<bool, Conflict> {
        let Some(most) = self.limit(vlan) else { return Ok(true) };
        Ok(self.used.get(cx, vlan.into())?.unwrap_or(0) < most)
    }

    /// Where in the table to search for stations of the VLAN that were last seen before `dead_ns`; `None` if there can be none.
    /// Only reads.
    pub fn looks_from(&self, cx: &mut Cx<'_>, vlan: u16, dead_ns: u64) -> Result<Option<u32>, Conflict> {
        let search = self.searches.get(cx, vlan.into())?.unwrap_or_default();
        Ok((search.oldest_ns < dead_ns).then_some(search.at as u32))
    }

    /// Records when the oldest station that remains in a piece of the table was last seen, and where to continue; `None` at the
    /// end of the table.
    pub fn looked(&self, cx: &mut Cx<'_>, vlan: u16, oldest_ns: u64, next: Option<u32>) -> Result<(), Conflict> {
        self.searches.update(cx, vlan.into(), |search| {
            let so_far_ns = if search.at == 0 { oldest_ns } else { oldest_ns.min(search.so_far_ns) };
            *search = match next {
                Some(at) => Search { so_far_ns, at: at.into(), ..*search },
                None => Search { oldest_ns: so_far_ns, ..Search::default() },
            };
        })?;
        Ok(())
    }

    /// Counts one more station.
    pub fn add(&self, cx: &mut Cx<'_>, vlan: u16) -> Result<(), Conflict> {
        self.used.update(cx, vlan.into(), |used| *used += 1).map(|_| ())
    }

    /// Counts one station less.
    pub fn remove(&self, tx: &mut Tx, vlan: u16) -> Result<(), Conflict> {
        self.used.update(tx, vlan.into(), |used| *used = used.saturating_sub(1)).map(|_| ())
    }
}

impl Part for Quota {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.used.objects(into);
        self.searches.objects(into);
    }
}

impl std::fmt::Debug for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quota").finish_non_exhaustive()
    }
}
