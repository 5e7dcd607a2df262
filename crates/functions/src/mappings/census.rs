//! Counts the mappings that each of several inside networks has and has had, and the refused ones: what an operator asks
//! about a customer, and what keeps one customer from taking the mappings of all. Static mappings are not counted.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject, Tx};
use braid_nf::{Findings, Part, Reason};

use super::networks::List;
use super::pool::Pool;
use crate::parts::tables::tallies::{Tallies, Tally};

/// The inside network has as many mappings as it may.
pub const NETWORK_QUOTA: Reason = Reason("network_quota");

/// The tallies of all networks by number; empty if there is only one network.
pub(crate) struct Census {
    tallies: Tallies,
    networks: List,
    /// The maximum number of mappings of a network; 0: no limit.
    quota: u32,
}

/// Tallies per state object.
const STEP: u32 = 4096;

impl Census {
    pub(crate) fn new(builder: &mut StateBuilder, pool: &Pool) -> Result<Census, StateError> {
        let (networks, quota) = (pool.networks.clone(), pool.network_quota);
        let last = networks.last().filter(|_| networks.len() > 1);
        let count = last.map_or(0, |network| u32::from(network.number) + 1);
        Ok(Census { tallies: Tallies::new(builder, "networks", count, STEP)?, networks, quota })
    }

    /// Whether a network has as many mappings as it may, resting ones included, as all workers have counted.
    #[inline(always)]
    pub(crate) fn is_full(&self, cx: &mut Cx<'_>, network: u16) -> Result<bool, Conflict> {
        Ok(self.quota > 0 && self.tallies.sum(cx, network.into())?.live() >= u64::from(self.quota))
    }

    /// Counts that a mapping begins, ends, or could not be made.
    #[inline(always)]
    pub(crate) fn count(&self, tx: &mut Tx, network: u16, by: Tally) -> Result<(), Conflict> {
        self.tallies.count(tx, network.into(), by)
    }

    /// What a network is called; nothing if there is but one.
    pub(crate) fn name(&self, number: u16) -> Option<&str> {
        let networks = Some(&self.networks).filter(|networks| networks.len() > 1)?;
        let at = networks.binary_search_by_key(&number, |network| network.number).ok()?;
        Some(&networks[at].name)
    }

    /// Tells of each network that has ever sent.
    pub(crate) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        for network in self.networks.iter().filter(|_| self.networks.len() > 1) {
            let tally = self.tallies.sum(cx, network.number.into())?;
            if tally != Tally::default() {
                let (live, Tally { all, refused, .. }) = (tally.live(), tally);
                let detail = format!("mappings: {live} now, {all} in all, {refused} refused");
                into.count("network", &network.name, live, detail);
            }
        }
        Ok(())
    }
}

impl Part for Census {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.tallies.objects(into);
    }
}
