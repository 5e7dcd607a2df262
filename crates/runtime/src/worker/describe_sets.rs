//! What functions say of packet sets that are listed, and what they list and end themselves: asked between two batches, a few at a time,
//! in transactions of this worker.

use std::sync::Arc;

use braid_nf::{Emitted, EntryRange, Event, Fate, SetMeaning, TableEntry};
use braid_state::Conflict;

use super::Worker;
use super::listing::ListedSet;
use crate::Chain;
use crate::attempt::run_event;
use crate::observe::counters::WorkerCounters;

/// Entries that are looked at in one transaction.
pub(super) const SPAN: u32 = 64;
/// Entries that are looked at between two batches.
pub(super) const LOOK: u32 = 4096;
/// Sets that are described between two batches, and entries that are listed or ended.
pub const DESCRIBED_MAX: usize = 256;

/// A portion of a function's entries.
#[derive(Clone, Debug, Default)]
pub struct ListedEntries {
    /// Those that were wanted.
    pub entries: Vec<TableEntry>,
    /// Where to go on; none at the end.
    pub next: Option<u32>,
}

/// What became of a portion of a function's entries of which some were to end.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndedEntries {
    /// How many have ended.
    pub ended: u64,
    /// How many were wanted too, but are part of the configuration.
    pub configured: u64,
    /// Where to go on; none at the end.
    pub next: Option<u32>,
}

impl Worker {
    /// What each function for which a set is live says of it; none if the chain is another one by now.
    pub fn describe(&mut self, chain: &Arc<Chain>, set: &ListedSet) -> Option<Vec<SetMeaning>> {
        if !Arc::ptr_eq(chain, &self.parts.chain) {
            return None;
        }
        let describe = |(position, state): &(usize, Vec<u8>)| {
            let mut meaning = SetMeaning::default();
            self.look(|event| {
                meaning = chain.stages()[*position].describe(event, &set.key, state)?;
                Ok(())
            });
            meaning
        };
        Some(set.states.iter().map(describe).collect())
    }

    /// Entries that are wanted of the function at a position, at most `limit` (and [`DESCRIBED_MAX`], or a few more), from `cursor` on; none if
    /// the chain is another one by now.
    pub fn list_entries(
        &mut self,
        chain: &Arc<Chain>,
        (position, cursor): (usize, u32),
        limit: usize,
        wanted: impl Fn(&TableEntry) -> bool,
    ) -> Option<ListedEntries> {
        if !Arc::ptr_eq(chain, &self.parts.chain) {
            return None;
        }
        let (stage, limit) = (&chain.stages()[position], limit.min(DESCRIBED_MAX));
        let mut listed = ListedEntries { entries: Vec::new(), next: Some(cursor) };
        while let Some(from) = listed.next.filter(|at| *at < cursor.saturating_add(LOOK)) {
            if listed.entries.len() >= limit {
                break;
            }
            let (mut found, mut next) = (Vec::new(), None);
            self.look(|event| {
                found.clear();
                next = stage.list_entries(event, EntryRange { first: from, count: SPAN }, &mut |entry| {
                    found.push(entry);
                    Fate::Keep
                })?;
                Ok(())
            });
            listed.entries.extend(found.into_iter().filter(|entry| wanted(entry)));
            listed.next = next;
        }
        Some(listed)
    }

    /// Ends entries that are wanted of the function at a position, unless they are part of the configuration: about [`DESCRIBED_MAX`] at most, from
    /// `cursor` on; none if the chain is another one by now.
    pub fn end_entries(
        &mut self,
        chain: &Arc<Chain>,
        (position, cursor): (usize, u32),
        wanted: impl Fn(&TableEntry) -> bool,
    ) -> Option<EndedEntries> {
        if !Arc::ptr_eq(chain, &self.parts.chain) {
            return None;
        }
        let stage = &chain.stages()[position];
        let mut all = EndedEntries { next: Some(cursor), ..EndedEntries::default() };
        while let Some(from) = all.next.filter(|at| *at < cursor.saturating_add(LOOK)) {
            if all.ended >= DESCRIBED_MAX as u64 {
                break;
            }
            let mut now = EndedEntries::default();
            self.run_apart(position, |event| {
                now = EndedEntries::default();
                now.next =
                    stage.list_entries(event, EntryRange { first: from, count: SPAN }, &mut |entry| match wanted(
                        &entry,
                    ) {
                        true if entry.is_configured => {
                            now.configured += 1;
                            Fate::Keep
                        }
                        true => {
                            now.ended += 1;
                            Fate::End
                        }
                        false => Fate::Keep,
                    })?;
                Ok(())
            });
            let (ended, configured) = (all.ended + now.ended, all.configured + now.configured);
            all = EndedEntries { ended, configured, next: now.next };
        }
        Some(all)
    }

    /// Runs a transaction that only reads: it makes no packets, and nothing is counted.
    fn look(&mut self, read: impl FnMut(&mut Event<'_>) -> Result<(), Conflict>) {
        let (mut emitted, mut counters) = (Emitted::default(), WorkerCounters::default());
        run_event(&mut self.parts.tx, &mut emitted, self.parts.ports, self.last_ns, &mut counters, read);
    }
}
