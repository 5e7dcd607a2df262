//! Functions that share a flow-table entry: which packet sets they must have in common, and what the entry holds.

use braid_nf::packet::key::{KeyExtractor, SetDef};
use braid_nf::state::StateBuilder;
use braid_nf::{Place, Stage};
use braid_packet::BATCH_MAX;
use braid_steer::planner::Changed;

use super::ChainError;
use super::course::{Course, Full};

/// Maximum number of functions in a group: the number of bits in a record's live mask.
pub(super) const GROUP_MAX: usize = 16;

/// Functions that share their packet sets.
#[derive(Debug)]
pub struct Group {
    /// The definition of the packet set.
    pub set: SetDef,
    /// The compiled form of the definition.
    pub extractor: KeyExtractor,
    /// Bytes of state of all functions of the group, each aligned to eight bytes.
    pub state_bytes: usize,
    /// The functions, by position in the chain.
    pub stages: Vec<usize>,
    /// Steering does not keep these sets on one worker, so they live in shared state instead of the workers' tables.
    pub shared: bool,
    /// What the table does when it is full.
    pub full: Full,
    /// Lower bound of all timeouts of the group's sets, in nanoseconds.
    pub shortest_timeout_ns: u64,
}

/// What is needed to share sets that steering does not keep on one worker.
pub struct Sharing<'a> {
    /// Whether steering keeps the packets of a set on one worker after the given fields have been changed.
    pub is_local: &'a dyn Fn(&SetDef, Changed) -> bool,
    /// Creates the shared tables.
    pub builder: &'a mut StateBuilder,
    /// The number of sets that each shared table holds.
    pub capacity: usize,
}

impl Group {
    /// `changed` says what functions before it change, `is_routed` whether one of the others is a router.
    pub(super) fn new(
        set: SetDef,
        (changed, is_routed): (Changed, bool),
        course: &Course,
        sharing: &Sharing<'_>,
    ) -> Result<Group, ChainError> {
        let extractor = KeyExtractor::compile(&set)?;
        let extractor = match course.outside() {
            // A router also decides where packets go: a connection may have both ends on one side. It holds packets, so those of a set come to
            // several workers in any case. Keys do not depend on how many there are, nor on other functions that hold packets.
            Some(_) if set.symmetric && is_routed => extractor.across_sides(),
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

    /// The number of records in a worker's table that may keep `sets` sets from one batch to the next. Shared sets live in state objects; their
    /// worker tables exist, but stay empty.
    pub fn capacity(&self, sets: usize) -> usize {
        if self.shared { 1 } else { sets + self.slack(1) }
    }

    /// Extra room for sets that become live within one batch on each of `workers` workers.
    pub(crate) fn slack(&self, workers: usize) -> usize {
        match self.full {
            Full::Refuse => 0,
            Full::EvictOldest => workers * BATCH_MAX,
        }
    }

    /// Adds a function to the group and assigns its place.
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

/// Whether a key made under `before` is also the key of the same packets under `after`, which may define additional segments.
pub(crate) fn keys_hold(before: &SetDef, after: &SetDef) -> bool {
    let is_extended = match (&before.segments, &after.segments) {
        (Some(before), Some(after)) => after.extends(before),
        (before, after) => before.is_none() && after.is_none(),
    };
    is_extended && same_packets(before, &SetDef { segments: before.segments.clone(), ..after.clone() })
}

/// Whether two definitions group the same packets, regardless of their names.
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
