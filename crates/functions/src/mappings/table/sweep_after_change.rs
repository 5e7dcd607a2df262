//! The sweep after a change of the external addresses or of the inside ranges: it visits every mapping once, some between
//! two batches.
//!
//! It removes mappings on addresses that have left. Mappings of hosts that are no longer inside end, and their ports
//! rest. Mappings that are not where their host would start now are counted for their host, which keeps its address as
//! long as it has one of them (pooling is paired). Mappings made in the meantime are correct from the start.

use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{DistributedConfig, StateError, StateObject, Tx, Vector, VectorConfig, Visit, hash};
use braid_nf::{Findings, Part};

use super::Mappings;
use super::entry::{Entry, NEVER, Packed};
use crate::mappings::endpoint::{Inside, Kept};
use crate::parts::Prefix;

/// Mappings visited per tick, of which there are a hundred per second.
const PIECE: u32 = 4096;

/// How far the sweep after a change is.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Progress {
    /// The last change of the addresses after which it has seen all mappings.
    through: u32,
    /// The change of the current sweep, and the first mapping that it has not seen; [`ALL`] if it has seen all.
    of: u32,
    next: u32,
    /// The [mark](mark_of) of the inside ranges that it applies.
    inside: u32,
}

const ALL: u32 = u32::MAX;

/// The sweep after a change of the addresses; `epoch` counts these changes.
pub(crate) struct Settling {
    progress: Vector<Progress>,
    pub(crate) epoch: u32,
    inside: Box<[Prefix]>,
    mark: u32,
    /// The number of mappings that it has ended.
    ended: Distributed<u64>,
}

impl Settling {
    pub(crate) fn new(builder: &mut StateBuilder, epoch: u32, inside: &[Prefix]) -> Result<Settling, StateError> {
        let mark = mark_of(inside);
        let settled = Progress { next: ALL, inside: mark, ..Progress::default() };
        let ended = DistributedConfig { name: "ended_by_changes".into(), staleness_ns: 0 };
        Ok(Settling {
            progress: Vector::new(builder, &VectorConfig { name: NAME.into(), len: 1 }, settled)?,
            epoch,
            inside: inside.into(),
            mark,
            ended: Distributed::new(builder, &ended, 0)?,
        })
    }

    /// Whether the former function had finished its sweep after that change.
    pub(crate) fn was_through(builder: &StateBuilder, epoch: u32) -> bool {
        Vector::<Progress>::left(builder, NAME, 0).is_some_and(|progress| progress.through == epoch)
    }

    /// Whether all mappings have been visited since the last change of the addresses.
    pub(crate) fn is_through(&self, tx: &mut Tx) -> Result<bool, Conflict> {
        if self.epoch == 0 {
            return Ok(true);
        }
        Ok(self.progress.get(tx, 0)?.is_some_and(|progress| progress.through == self.epoch))
    }

    fn is_inside(&self, inside: Inside) -> bool {
        self.inside.iter().any(|range| range.contains(inside.address))
    }

    /// Reports how many mappings have ended because of changes.
    pub(crate) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let ended = self.ended.read(cx, |sum, part| *sum += part)?;
        if ended > 0 {
            into.add("mappings_ended_by_changes", ended);
        }
        Ok(())
    }
}

/// The name of the state object.
const NAME: &str = "settled";

/// A mark that differs for different ranges, and never equals that of a state without marks.
fn mark_of(inside: &[Prefix]) -> u32 {
    let words: Vec<String> = inside.iter().map(Prefix::to_string).collect();
    hash::mixed(words.join(" ").as_bytes(), 1) as u32 | 1
}

impl<K: Kept> Mappings<K> {
    /// Visits some more mappings, if the addresses or the inside ranges have changed.
    pub(crate) fn settle(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let settling = &self.roster.settling;
        let Settling { progress, epoch, mark, .. } = settling;
        let far = progress.get(cx, 0)?.unwrap_or_default();
        let is_on_its_way = (far.of, far.inside) == (*epoch, *mark);
        if is_on_its_way && far.next == ALL {
            return Ok(());
        }
        let from = if is_on_its_way { far.next } else { 0 };
        let (now, mut changes, mut ended) = (cx.now(), Vec::new(), 0);
        let next = self.entries.for_each(cx, from, PIECE, |tx, inside, packed| {
            let mut entry = Entry::from(*packed);
            if self.roster.has_left(entry.address) {
                ended += 1;
                changes.extend(self.give_back(tx, inside.inside(), &entry)?);
                return Ok(Visit::Remove);
            }
            if entry.ends_ns > now && entry.ends_ns != NEVER && !settling.is_inside(inside.inside()) {
                ended += 1;
                entry.ends_ns = now;
                return Ok(Visit::Replace(Packed::from(entry)));
            }
            if entry.is_known || entry.ends_ns == NEVER {
                return Ok(Visit::Keep);
            }
            let entered = self.hosts.enter(tx, &self.roster, inside.inside(), (entry.address, entry.port))?;
            entry.is_known = entered.is_some_and(|entered| entered.is_known);
            Ok(if entry.is_known { Visit::Replace(Packed::from(entry)) } else { Visit::Keep })
        })?;
        changes.into_iter().try_for_each(|change| self.note(cx, Some(change)))?;
        if ended > 0 {
            settling.ended.update(cx, |all| *all += ended)?;
        }
        let through = if next.is_none() { *epoch } else { far.through };
        let far = Progress { through, of: *epoch, next: next.unwrap_or(ALL), inside: *mark };
        progress.set(cx, 0, far)?;
        Ok(())
    }
}

impl Part for Settling {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.progress.objects(into);
        self.ended.objects(into);
    }
}
