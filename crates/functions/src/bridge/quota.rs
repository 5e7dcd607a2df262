//! How many stations of a VLAN may be learnt: one VLAN must not fill the table for all.

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
    /// Most stations learnt in it; static ones do not count.
    pub stations_max: u32,
}

/// The limits, and how many stations each VLAN has: all are counted, so that another one can be limited while frames go through.
pub struct Quota {
    /// By VLAN.
    most: Vec<u32>,
    used: Vector<u32>,
}

impl Quota {
    /// None if nothing is limited. The VLANs have been checked.
    pub fn new(vlans: &[VlanConfig], builder: &mut StateBuilder) -> Result<Option<Quota>, ConfigError> {
        if vlans.is_empty() {
            return Ok(None);
        }
        let mut most = vec![u32::MAX; usize::from(VLAN_MAX) + 1];
        for vlan in vlans {
            most[usize::from(vlan.id)] = vlan.stations_max;
        }
        let init = VectorConfig { name: "stations_of_vlan".into(), len: most.len() as u32 };
        let used = Vector::new(builder, &init, 0).map_err(|error| ConfigError::state("vlan", &error))?;
        Ok(Some(Quota { most, used }))
    }

    fn limit(&self, vlan: u16) -> Option<u32> {
        self.most.get(usize::from(vlan)).copied().filter(|most| *most != u32::MAX)
    }

    /// Whether one more station of the VLAN may be learnt.
    pub fn has_room(&self, cx: &mut Cx<'_>, vlan: u16) -> Result<bool, Conflict> {
        let Some(most) = self.limit(vlan) else { return Ok(true) };
        Ok(self.used.get(cx, vlan.into())?.unwrap_or(0) < most)
    }

    /// One station more.
    pub fn add(&self, cx: &mut Cx<'_>, vlan: u16) -> Result<(), Conflict> {
        self.used.update(cx, vlan.into(), |used| *used += 1).map(|_| ())
    }

    /// One station less.
    pub fn remove(&self, tx: &mut Tx, vlan: u16) -> Result<(), Conflict> {
        self.used.update(tx, vlan.into(), |used| *used = used.saturating_sub(1)).map(|_| ())
    }
}

impl Part for Quota {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.used.objects(into);
    }
}

impl std::fmt::Debug for Quota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Quota").finish_non_exhaustive()
    }
}
