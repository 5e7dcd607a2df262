//! A worker's packet sets as they are copied while it stands between two batches. Packets wait meanwhile, so the copies lie one behind another, and
//! become [`SavedSet`]s, each with memory of its own, when the worker has gone on.

use std::sync::Arc;

use braid_nf::SetTables;
use braid_nf::packet::key::SetKey;

use super::Worker;
use crate::chain::{Chain, Group};
use crate::live::saved::SavedSet;

/// Number of slots that are searched before the sets found there are copied, so that these are still in the cache.
const SLOTS_STEP: usize = 1024;

/// All packet sets of a worker.
#[derive(Debug)]
pub struct CopiedSets(Vec<CopiedGroup>);

/// The sets of a group of functions.
#[derive(Debug)]
struct CopiedGroup {
    functions: Vec<Part>,
    state_bytes: usize,
    heads: Vec<Head>,
    /// `state_bytes` for each head.
    states: Vec<u8>,
}

/// Where a function's part of the states is.
#[derive(Debug)]
struct Part {
    position: usize,
    bit: u16,
    offset: usize,
    bytes: usize,
}

/// A set without its states.
#[derive(Debug)]
struct Head {
    key: SetKey,
    last_seen_ms: u32,
    live: u16,
}

impl CopiedSets {
    /// The sets, group by group.
    pub fn into_saved(self) -> impl Iterator<Item = SavedSet> {
        self.0.into_iter().flat_map(|group| (0..group.heads.len()).map(move |at| group.saved(at)))
    }
}

impl CopiedGroup {
    fn new(chain: &Chain, group: &Group) -> CopiedGroup {
        let part = |position: &usize| {
            let stage = &chain.stages()[*position];
            let place = stage.place();
            Part { position: *position, bit: place.bit, offset: place.offset, bytes: stage.set_bytes() }
        };
        let functions = group.stages.iter().map(part).collect();
        CopiedGroup { functions, state_bytes: group.state_bytes, heads: Vec::new(), states: Vec::new() }
    }

    /// Copies the live sets; none was seen after `now_ms`.
    fn copy(&mut self, tables: &mut SetTables, now_ms: u32) {
        self.heads.reserve_exact(tables.len());
        self.states.reserve_exact(tables.len() * self.state_bytes);
        let mut found = Vec::with_capacity(SLOTS_STEP);
        for from in (0..tables.slots()).step_by(SLOTS_STEP) {
            tables.scan(from, SLOTS_STEP, |at, meta| {
                if meta.live != 0 {
                    found.push((at, meta));
                }
            });
            for (at, meta) in found.drain(..) {
                let last_seen_ms = now_ms.wrapping_sub(meta.idle_ms(now_ms));
                self.heads.push(Head { key: tables.key(at), last_seen_ms, live: meta.live });
                self.states.extend_from_slice(tables.state_bytes(at));
            }
        }
    }

    fn saved(&self, at: usize) -> SavedSet {
        let (head, states) = (&self.heads[at], &self.states[at * self.state_bytes..][..self.state_bytes]);
        let live = self.functions.iter().filter(|part| head.live & part.bit != 0);
        let states = live.map(|part| (part.position, states[part.offset..][..part.bytes].to_vec()));
        SavedSet { key: head.key, last_seen_ms: head.last_seen_ms, states: states.collect() }
    }
}

impl Worker {
    /// Copies the worker's packet sets for saving.
    pub fn copy_sets(&mut self) -> CopiedSets {
        self.settle_sets();
        let now_ms = (self.now_ns() / 1_000_000) as u32;
        let chain = Arc::clone(&self.parts.chain);
        let own = chain.groups().iter().zip(&mut self.sets).filter(|(group, _)| !group.shared);
        let copied = own.map(|(group, sets)| {
            let mut copied = CopiedGroup::new(&chain, group);
            copied.copy(&mut sets.tables, now_ms);
            copied
        });
        CopiedSets(copied.collect())
    }
}
