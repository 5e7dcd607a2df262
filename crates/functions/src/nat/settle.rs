//! The sweep that follows a change of the external addresses: it looks at every mapping once, some between two batches.
//!
//! Mappings on addresses that have left end. Those that are not where their host would begin now are counted for their host, so that
//! it keeps its address as long as it has one of them (pooling is paired). Mappings made meanwhile are right from the beginning.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject, Tx, Vector, VectorConfig, Visit};

use super::endpoint::Kept;
use super::entry::{Entry, NEVER, Packed};
use super::mappings::Mappings;

/// Mappings that are looked at by one tick, a hundred times a second.
const PIECE: u32 = 4096;

/// How far the sweep after a change has come.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Progress {
    /// The last change after which it has seen all.
    through: u32,
    /// The change after which it is on its way, and the first mapping that it has not seen.
    of: u32,
    next: u32,
    zero: u32,
}

/// The sweep after one change, of which there were `epoch` so far.
pub(super) struct Settling {
    progress: Vector<Progress>,
    pub(super) epoch: u32,
}

impl Settling {
    pub(super) fn new(builder: &mut StateBuilder, epoch: u32) -> Result<Settling, StateError> {
        let config = VectorConfig { name: NAME.into(), len: 1 };
        Ok(Settling { progress: Vector::new(builder, &config, Progress::default())?, epoch })
    }

    /// Whether the function that was there before had seen all since that change.
    pub(super) fn was_through(builder: &StateBuilder, epoch: u32) -> bool {
        Vector::<Progress>::left(builder, NAME, 0).is_some_and(|progress| progress.through == epoch)
    }

    /// Whether all mappings were looked at since the last change.
    pub(super) fn is_through(&self, tx: &mut Tx) -> Result<bool, Conflict> {
        if self.epoch == 0 {
            return Ok(true);
        }
        Ok(self.progress.get(tx, 0)?.is_some_and(|progress| progress.through == self.epoch))
    }
}

/// Of the object.
const NAME: &str = "settled";

impl<K: Kept> Mappings<K> {
    /// Looks at some more mappings, if the addresses have changed.
    pub(crate) fn settle(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let Settling { progress, epoch } = &self.roster.settling;
        if self.roster.settling.is_through(cx)? {
            return Ok(());
        }
        let far = progress.get(cx, 0)?.unwrap_or_default();
        let from = if far.of == *epoch { far.next } else { 0 };
        let mut changes = Vec::new();
        let next = self.entries.for_each(cx, from, PIECE, |tx, inside, packed| {
            let mut entry = Entry::from(*packed);
            if self.roster.has_left(entry.address) {
                changes.extend(self.give_back(tx, inside.inside(), &entry)?);
                return Ok(Visit::Remove);
            }
            if entry.is_known || entry.ends_ns == NEVER {
                return Ok(Visit::Keep);
            }
            let entered = self.hosts.enter(tx, &self.roster, inside.inside(), (entry.address, entry.port))?;
            entry.is_known = entered.is_some_and(|entered| entered.is_known);
            Ok(if entry.is_known { Visit::Replace(Packed::from(entry)) } else { Visit::Keep })
        })?;
        changes.into_iter().try_for_each(|change| self.note(cx, Some(change)))?;
        let now = match next {
            Some(next) => Progress { of: *epoch, next, ..far },
            None => Progress { through: *epoch, of: *epoch, ..far },
        };
        progress.set(cx, 0, now)?;
        Ok(())
    }
}

impl Part for Settling {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.progress.objects(into);
    }
}
