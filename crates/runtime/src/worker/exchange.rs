//! A worker's functions exchanged between two batches, its packet sets kept.
//!
//! Two steps, so that running out of memory on one worker changes nothing on any: [`Worker::prepare`] maps what is new,
//! [`Worker::exchange`] cannot fail. A group whose records look as before keeps its tables; else every record is copied,
//! function by function.

use std::sync::Arc;

use braid_nf::{SetMeta, SetSlot, Stage};
use braid_state::Tx;

use super::{Sets, Worker, periodic_ticks};
use crate::attempt::{Stretch, run_event};
use crate::chain::{Chain, Group, same_packets};
use crate::probe::Probe;

/// What a worker needs to go on with another chain.
pub struct Prepared {
    chain: Arc<Chain>,
    /// By new group: tables of its own, or those of an old group as they are.
    groups: Vec<Tables>,
}

enum Tables {
    New(Box<Sets>),
    Kept(usize),
}

impl Worker {
    /// Has the worker's transaction do something between two batches.
    pub fn transact<T>(&mut self, what: impl FnOnce(&mut Tx) -> T) -> T {
        what(&mut self.parts.tx)
    }

    /// Maps the tables that another chain needs.
    pub fn prepare(&self, chain: &Arc<Chain>) -> Result<Prepared, braid_memory::Error> {
        let old = self.parts.chain.groups();
        let tables = |group: &Group| {
            let kept = old.iter().position(|old| is_alike(&self.parts.chain, old, chain, group));
            Ok(match kept {
                Some(old) => Tables::Kept(old),
                None => Tables::New(Box::new(Sets::new(group, self.parts.sets, self.parts.pages)?)),
            })
        };
        let groups = chain.groups().iter().map(tables).collect::<Result<_, braid_memory::Error>>()?;
        Ok(Prepared { chain: Arc::clone(chain), groups })
    }

    /// Goes on with other functions.
    pub fn exchange(&mut self, prepared: Prepared) {
        let old_chain = std::mem::replace(&mut self.parts.chain, prepared.chain);
        let chain = Arc::clone(&self.parts.chain);
        let mut old: Vec<Option<Sets>> = std::mem::take(&mut self.sets).into_iter().map(Some).collect();
        for (group, tables) in chain.groups().iter().zip(prepared.groups) {
            let sets = match tables {
                Tables::Kept(at) => old[at].take().unwrap_or_else(|| unreachable!("a set has one group")),
                Tables::New(mut sets) => {
                    let named =
                        |old: &Group, name: &str| old.stages.iter().any(|at| old_chain.stages()[*at].name() == name);
                    let has_some = |old: &Group| group.stages.iter().any(|at| named(old, chain.stages()[*at].name()));
                    let is_from = |old: &Group| same_packets(&old.set, &group.set) && has_some(old);
                    let from = old_chain.groups().iter().position(is_from);
                    if let Some(from) = from.filter(|_| !group.shared)
                        && let Some(mut from_sets) = old[from].take()
                    {
                        copy(&old_chain, &old_chain.groups()[from], &mut from_sets, &chain, group, &mut sets);
                        self.count_ended(&from_sets, sets.tables.lives().0);
                    }
                    *sets
                }
            };
            self.sets.push(sets);
        }
        old.iter().flatten().for_each(|sets| self.count_ended(sets, 0));
        let reached = |stage: &dyn Stage| {
            let before = old_chain.stages().iter().position(|old| old.name() == stage.name());
            before.map_or(0, |before| self.counters.reached[before])
        };
        let objects = chain.objects();
        self.counters.aborted.forget_elements(|gone| objects.iter().all(|object| object.id() != gone));
        self.stretches = vec![Stretch::default(); chain.stages().len()];
        self.counters.reached = chain.stages().iter().map(|stage| reached(&**stage)).collect();
        self.ticks = if self.parts.id == 0 { periodic_ticks(&chain) } else { Vec::new() };
        if self.probe.split().is_some() {
            self.probe = Probe::Off;
        }
        self.tracer = None;
    }

    /// Tables that are given up: what they counted stays counted, and sets that were not copied have ended.
    fn count_ended(&mut self, sets: &Sets, copied: u64) {
        let (created, ended) = sets.tables.lives();
        self.logs.lives.created += created - copied;
        self.logs.lives.ended += created - copied;
        debug_assert!(ended <= created, "a set ends once");
    }

    /// Runs the start handlers of functions that are new in its chain.
    pub fn start(&mut self, positions: &[usize]) {
        let chain = Arc::clone(&self.parts.chain);
        for &position in positions {
            let (tx, emitted, stage) = (&mut self.parts.tx, &mut self.logs.emitted, &chain.stages()[position]);
            run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, |event| stage.start(event));
        }
    }
}

/// Whether the records of two groups are laid out alike.
fn is_alike(old_chain: &Chain, old: &Group, new_chain: &Chain, new: &Group) -> bool {
    let layout = |chain: &Chain, group: &Group| -> Vec<_> {
        let stages = group.stages.iter().map(|position| &chain.stages()[*position]);
        stages.map(|stage| (stage.name().to_owned(), stage.kind(), stage.place(), stage.set_bytes())).collect()
    };
    (&old.set, old.shared, old.full) == (&new.set, new.shared, new.full)
        && layout(old_chain, old) == layout(new_chain, new)
}

/// Copies records from one group's tables to another's, the state of each function that both have.
fn copy(old_chain: &Chain, old: &Group, from: &mut Sets, new_chain: &Chain, new: &Group, to: &mut Sets) {
    let old_stage = |name: &str| old.stages.iter().map(|at| &old_chain.stages()[*at]).find(|old| old.name() == name);
    let new_stages = new.stages.iter().map(|at| &new_chain.stages()[*at]);
    let both: Vec<_> = new_stages.filter_map(|new| Some((old_stage(new.name())?, new))).collect();
    let mut records: Vec<(SetSlot, SetMeta)> = Vec::new();
    from.tables.scan(0, from.tables.slots(), |at, meta| records.push((at, meta)));
    for (at, meta) in records {
        let live = both.iter().filter(|(old, _)| meta.live & old.place().bit != 0);
        let live = live.fold(0, |live, (_, new)| live | new.place().bit);
        if live == 0 {
            continue;
        }
        let states = from.tables.state_bytes(at);
        let Some(place) = to.tables.put(&from.tables.key(at), SetMeta { live, ..meta }) else { continue };
        to.tables.states_mut(place, |bytes| {
            for (old, new) in &both {
                let len = new.set_bytes();
                bytes[new.place().offset..][..len].copy_from_slice(&states[old.place().offset..][..len]);
            }
        });
    }
}
