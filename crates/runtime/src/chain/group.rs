//! Functions that share a flow-table entry: which packets they have to have in common, and what the entry holds.

use braid_nf::packet::key::{KeyExtractor, SetDef};
use braid_nf::state::StateBuilder;
use braid_nf::{Place, Stage};
use braid_packet::BATCH_MAX;
use braid_steer::planner::Changed;

use super::ChainError;
use crate::course::{Course, Full};

/// Most functions that share one record: the bits of its live mask.
pub(super) const GROUP_MAX: usize = 16;

/// Functions that share their packet sets.
#[derive(Debug)]
pub struct Group {
    /// Which packets belong together.
    pub set: SetDef,
    /// Its compiled form.
    pub extractor: KeyExtractor,
    /// Bytes of state of all functions of the group, each aligned to eight.
    pub state_bytes: usize,
    /// The functions, by position in the chain.
    pub stages: Vec<usize>,
    /// Steering does not keep these sets on one worker: they live in shared state instead of the workers' tables.
    pub shared: bool,
    /// What its table does when it is full.
    pub full: Full,
    /// What no timeout of its sets is below, in nanoseconds.
    pub shortest_timeout_ns: u64,
}

/// What is needed to share sets that steering does not keep together.
pub struct Sharing<'a> {
    /// Whether steering keeps the packets of a set on one worker, if some fields have been changed before.
    pub is_local: &'a dyn Fn(&SetDef, Changed) -> bool,
    /// Makes the shared tables.
    pub builder: &'a mut StateBuilder,
    /// Sets that each of them holds.
    pub capacity: usize,
}

impl Group {
    pub(super) fn new(
        set: SetDef,
        changed: Changed,
        course: &Course,
        sharing: &Sharing<'_>,
    ) -> Result<Group, ChainError> {
        let extractor = KeyExtractor::compile(&set)?;
        let extractor = match course.outside() {
            Some(outside) => extractor.by_sides(outside)?,
            None => extractor,
        };
        let shared = !(sharing.is_local)(&set, changed);
        Ok(Group {
            set,
            extractor,
            state_bytes: 0,
            stages: Vec::new(),
            shared,
            full: Full::Refuse,
            shortest_timeout_ns: u64::MAX,
        })
    }

    /// Records that a worker's table has room for, if it may keep `sets` from one batch to the next. Shared sets live in state
    /// objects: their table is there and stays empty.
    pub fn capacity(&self, sets: usize) -> usize {
        if self.shared { 1 } else { sets + self.slack(1) }
    }

    /// Sets beyond those that are kept, for which there is room within a batch of so many workers.
    pub(crate) fn slack(&self, workers: usize) -> usize {
        match self.full {
            Full::Refuse => 0,
            Full::EvictOldest => workers * BATCH_MAX,
        }
    }

    /// Gives one more function its place.
    pub(super) fn take_in(
        &mut self,
        position: usize,
        stage: &mut dyn Stage,
        sharing: &mut Sharing<'_>,
    ) -> Result<(), ChainError> {
        if self.stages.len() == GROUP_MAX {
            let (set, function) = (self.set.name.clone(), stage.name().to_owned());
            return Err(ChainError::GroupTooLarge { set, function });
        }
        if self.shared {
            let slack = self.slack(sharing.builder.domain().workers());
            stage.share(sharing.builder, &self.set, sharing.capacity.saturating_add(slack))?;
        } else {
            stage.settle(Place { bit: 1 << self.stages.len(), offset: self.state_bytes });
            self.state_bytes += stage.set_bytes().next_multiple_of(8);
        }
        self.stages.push(position);
        self.shortest_timeout_ns = self.shortest_timeout_ns.min(stage.shortest_timeout_ns());
        Ok(())
    }
}

/// Whether a key of the first definition is the same packets' key under the second: it may know more segments.
pub fn keys_hold(before: &SetDef, after: &SetDef) -> bool {
    let is_extended = match (&before.segments, &after.segments) {
        (Some(before), Some(after)) => after.extends(before),
        (before, after) => before.is_none() && after.is_none(),
    };
    is_extended && same_packets(before, &SetDef { segments: before.segments.clone(), ..after.clone() })
}

/// Whether two definitions put the same packets together, whatever they are called.
pub fn same_packets(a: &SetDef, b: &SetDef) -> bool {
    let sorted = |set: &SetDef| {
        let (mut fields, mut protocols) = (set.fields.clone(), set.protocols.clone());
        fields.sort_unstable();
        fields.dedup();
        if let Some(protocols) = &mut protocols {
            protocols.sort_unstable();
        }
        (fields, protocols, set.symmetric, set.segments.clone())
    };
    sorted(a) == sorted(b)
}
