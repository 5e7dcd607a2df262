//! How many mappings each of several inside networks has and has had, and how often one was refused: what an operator asks about a customer.
//!
//! Each worker counts its own. Static mappings are not counted.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateError, StateObject, Tx};
use braid_nf::{Findings, Part};

use super::networks::List;

/// What one network has, as far as a worker knows: it may see the end of a mapping whose beginning another one saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Count {
    live: i64,
    all: u64,
    refused: u64,
}

impl Count {
    fn plus(&self, more: &Count) -> Count {
        let (live, all) = (self.live + more.live, self.all + more.all);
        Count { live, all, refused: self.refused + more.refused }
    }
}

/// The counts of all networks, by their numbers; nothing if there is but one network.
pub(super) struct Census {
    counts: Option<DistributedVector<Count>>,
    networks: List,
}

/// There is room for so many numbers, or a multiple: counts stay when networks are added.
const STEP: u32 = 4096;

impl Census {
    pub(super) fn new(builder: &mut StateBuilder, networks: List) -> Result<Census, StateError> {
        let last = networks.last().map_or(0, |network| u32::from(network.number));
        let config = DistributedVectorConfig { name: "networks".into(), len: (last + 1).next_multiple_of(STEP) };
        let add = |sum: &mut Count, part: &Count| *sum = sum.plus(part);
        let counts = (networks.len() > 1).then(|| DistributedVector::new(builder, &config, add)).transpose()?;
        Ok(Census { counts, networks })
    }

    /// A mapping begins.
    #[inline(always)]
    pub(super) fn begin(&self, tx: &mut Tx, network: u16) -> Result<(), Conflict> {
        self.change(tx, network, Count { live: 1, all: 1, refused: 0 })
    }

    /// It is gone.
    #[inline(always)]
    pub(super) fn end(&self, tx: &mut Tx, network: u16) -> Result<(), Conflict> {
        self.change(tx, network, Count { live: -1, ..Count::default() })
    }

    /// None could be made.
    pub(super) fn refuse(&self, tx: &mut Tx, network: u16) -> Result<(), Conflict> {
        self.change(tx, network, Count { refused: 1, ..Count::default() })
    }

    #[inline(always)]
    fn change(&self, tx: &mut Tx, network: u16, by: Count) -> Result<(), Conflict> {
        match &self.counts {
            Some(counts) => counts.update(tx, network.into(), |count| *count = count.plus(&by)).map(drop),
            None => Ok(()),
        }
    }

    /// Tells of each network that has ever sent.
    pub(super) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let Some(counts) = &self.counts else { return Ok(()) };
        for network in self.networks.iter() {
            let mut sum = Count::default();
            counts.visit(cx, network.number.into(), |count| sum = sum.plus(count))?;
            if sum != Count::default() {
                let Count { live, all, refused } = sum;
                let detail = format!("mappings: {} now, {all} in all, {refused} refused", live.max(0));
                into.count("network", &network.name, live.max(0) as u64, detail);
            }
        }
        Ok(())
    }
}

impl Part for Census {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        if let Some(counts) = &self.counts {
            into.push(counts.object());
        }
    }
}
