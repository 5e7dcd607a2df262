//! Limits how many stations of a VLAN, or at a port, may be learnt, so that one of them cannot fill the table.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateObject, Tx, VectorConfig};
use serde::Deserialize;

use super::{Entry, Station};
use crate::config::ConfigError;
use crate::parts::headers::tags::VLAN_MAX;

/// `[[vlan]]`: a limit for one VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VlanConfig {
    /// Its number; 0: untagged frames, if VLANs are not filtered.
    pub id: u16,
    /// The most stations learnt in it; static ones do not count.
    pub stations_max: u32,
}

/// What is known about the stations of a full VLAN or port from scanning the table piece by piece.
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

/// What a limit is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    Vlan,
    Port,
}

impl Whose {
    /// The number of the VLAN or the port of a station.
    fn number(self, station: &Station, entry: &Entry) -> u16 {
        match self {
            Whose::Vlan => station.vlan(),
            Whose::Port => entry.port,
        }
    }
}

/// All limits.
#[derive(Debug)]
pub struct Quotas {
    /// Those of VLANs; `None` if there are none.
    pub vlans: Option<Quota>,
    /// Those of ports.
    pub ports: Option<Quota>,
}

impl Quotas {
    /// Creates the limits of VLANs and of ports, which must have been checked.
    pub fn new(
        vlans: &[VlanConfig],
        (limits, ports): (Vec<(u16, u32)>, u16),
        builder: &mut StateBuilder,
    ) -> Result<Quotas, ConfigError> {
        let of_vlans: Vec<_> = vlans.iter().map(|vlan| (vlan.id, vlan.stations_max)).collect();
        Ok(Quotas {
            vlans: Quota::new((Whose::Vlan, "vlan"), &of_vlans, VLAN_MAX + 1, builder)?,
            ports: Quota::new((Whose::Port, "port"), &limits, ports, builder)?,
        })
    }

    /// Those that there are.
    pub fn all(&self) -> impl Iterator<Item = &Quota> {
        self.vlans.iter().chain(&self.ports)
    }

    /// Counts one more station.
    pub fn add(&self, cx: &mut Cx<'_>, station: &Station, entry: &Entry) -> Result<(), Conflict> {
        self.all().try_for_each(|quota| quota.add(cx, quota.whose.number(station, entry)))
    }

    /// Counts one station less.
    pub fn remove(&self, tx: &mut Tx, station: &Station, entry: &Entry) -> Result<(), Conflict> {
        self.all().try_for_each(|quota| quota.remove(tx, quota.whose.number(station, entry)))
    }
}

impl Part for Quotas {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.all().for_each(|quota| quota.objects(into));
    }
}

/// The limits of VLANs or ports, and how many stations each of them has. All are counted, so that another one can be limited while traffic
/// flows.
pub struct Quota {
    pub whose: Whose,
    /// The limit of each, by number.
    most: Vec<u32>,
    used: Vector<u32>,
    searches: Vector<Search>,
}

impl Quota {
    fn new(
        (whose, key): (Whose, &str),
        limits: &[(u16, u32)],
        len: u16,
        builder: &mut StateBuilder,
    ) -> Result<Option<Quota>, ConfigError> {
        if limits.is_empty() {
            return Ok(None);
        }
        let mut most = vec![u32::MAX; usize::from(len)];
        for (number, limit) in limits {
            most[usize::from(*number)] = *limit;
        }
        let init = VectorConfig { name: format!("stations_of_{key}"), len: len.into() };
        let state = |error| ConfigError::state(key, &error);
        let used = Vector::new(builder, &init, 0).map_err(state)?;
        let init = VectorConfig { name: format!("searches_of_{key}"), ..init };
        let searches = Vector::new(builder, &init, Search::default()).map_err(state)?;
        Ok(Some(Quota { whose, most, used, searches }))
    }

    fn limit(&self, number: u16) -> Option<u32> {
        self.most.get(usize::from(number)).copied().filter(|most| *most != u32::MAX)
    }

    /// Whether a station belongs to the VLAN or port of this number.
    pub fn is_of(&self, number: u16, station: &Station, entry: &Entry) -> bool {
        self.whose.number(station, entry) == number
    }

    /// Whether another station of the VLAN or port may be learnt.
    pub fn has_room(&self, cx: &mut Cx<'_>, number: u16) -> Result<bool, Conflict> {
        let Some(most) = self.limit(number) else { return Ok(true) };
        Ok(self.used.get(cx, number.into())?.unwrap_or(0) < most)
    }

    /// Where in the table to search for its stations that were last seen before `dead_ns`; `None` if there can be none.
    /// Only reads.
    pub fn looks_from(&self, cx: &mut Cx<'_>, number: u16, dead_ns: u64) -> Result<Option<u32>, Conflict> {
        let search = self.searches.get(cx, number.into())?.unwrap_or_default();
        Ok((search.oldest_ns < dead_ns).then_some(search.at as u32))
    }

    /// Records when the oldest station that remains in a piece of the table was last seen, and where to continue; `None` at the
    /// end of the table.
    pub fn looked(&self, cx: &mut Cx<'_>, number: u16, oldest_ns: u64, next: Option<u32>) -> Result<(), Conflict> {
        self.searches.update(cx, number.into(), |search| {
            let so_far_ns = if search.at == 0 { oldest_ns } else { oldest_ns.min(search.so_far_ns) };
            *search = match next {
                Some(at) => Search { so_far_ns, at: at.into(), ..*search },
                None => Search { oldest_ns: so_far_ns, ..Search::default() },
            };
        })?;
        Ok(())
    }

    /// Counts one more station.
    pub fn add(&self, cx: &mut Cx<'_>, number: u16) -> Result<(), Conflict> {
        self.used.update(cx, number.into(), |used| *used += 1).map(|_| ())
    }

    /// Counts one station less.
    pub fn remove(&self, tx: &mut Tx, number: u16) -> Result<(), Conflict> {
        self.used.update(tx, number.into(), |used| *used = used.saturating_sub(1)).map(|_| ())
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
