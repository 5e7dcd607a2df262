//! Live packet sets of a run: found by a filter, listed, ended.
//!
//! A worker walks a bounded number of slots of its tables between two batches, so a listing of millions of sets delays no packet by
//! more than some tens of microseconds. Sets that workers share ([`crate::compile`] says which) lie in state objects and are
//! not listed.

use std::sync::Arc;

use braid_runtime::nf::packet::key::SetKey;
use braid_runtime::{Chain, ListedSet, Live, Worker};
use serde::{Deserialize, Serialize};

use super::protocol::Refused;
use super::trace::hex;
use crate::facts::Facts;
use crate::filter::Filter;

/// Slots that a worker looks at between two batches.
const SLOTS: usize = 16 * 1024;

/// Some of the live sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listing {
    /// The sets found, at most as many as asked for.
    pub sets: Vec<SetReport>,
    /// All sets in the workers' tables.
    pub live: u64,
    /// Functions whose sets are shared by workers and not listed.
    pub shared: Vec<String>,
}

/// A packet set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetReport {
    /// Its key.
    pub key: String,
    /// Worker that keeps it.
    pub worker: usize,
    /// Seconds since its last packet.
    pub idle_seconds: f64,
    /// Functions for which it is live, with their state in hexadecimal.
    pub functions: Vec<(String, String)>,
}

impl SetReport {
    /// From what a worker keeps.
    pub fn new(set: &ListedSet, chain: &Chain) -> SetReport {
        let state = |(position, state): &(usize, Vec<u8>)| (chain.stages()[*position].name().to_owned(), hex(state));
        SetReport {
            key: set.key.to_string(),
            worker: set.worker,
            idle_seconds: f64::from(set.idle_ms) / 1000.0,
            functions: set.states.iter().map(state).collect(),
        }
    }
}

/// Whether a filter matches a set.
pub fn wanted(filter: &Arc<Filter>) -> impl Fn(&SetKey) -> bool + Clone + Send + Sync + use<> {
    let filter = Arc::clone(filter);
    move |key: &SetKey| filter.matches(&Facts::of_key(key))
}

/// The sets of one worker, all at once: when nothing runs any more.
pub fn of_worker(worker: &mut Worker, filter: &Arc<Filter>, limit: usize) -> Vec<SetReport> {
    let chain = Arc::clone(worker.chain());
    let groups = 0..chain.groups().len();
    let of_group = |group| worker.list_sets(group, 0..worker.set_slots(group), limit, wanted(filter));
    groups.flat_map(of_group).map(|set| SetReport::new(&set, &chain)).collect()
}

/// Functions whose sets are shared.
pub fn shared(chain: &Chain) -> Vec<String> {
    let shared = chain.stages().iter().filter(|stage| stage.is_shared());
    shared.map(|stage| stage.name().to_owned()).collect()
}

/// Lists sets of a run.
pub fn list(live: &Live, filter: &Arc<Filter>, limit: usize) -> Result<Listing, Refused> {
    let Some(running) = live.running() else { return Err(Refused::new("the run has not begun", "ask again")) };
    let seen = live.see();
    let tables = seen.iter().flatten().flat_map(|seen| &seen.tables);
    let mut listing =
        Listing { sets: Vec::new(), live: tables.map(|(live, _)| *live as u64).sum(), shared: shared(&running.chain) };
    walk(live, &running.chain, |worker, group, slots| {
        let (left, wanted) = (limit - listing.sets.len(), wanted(filter));
        let sets = live.ask(worker, move |worker| worker.list_sets(group, slots, left, wanted));
        let sets = sets.map_err(|unanswered| Refused::new(unanswered.to_string(), ""))?;
        listing.sets.extend(sets.iter().map(|set| SetReport::new(set, &running.chain)));
        Ok(listing.sets.len() < limit)
    })?;
    Ok(listing)
}

/// Ends sets of a run, as if they had expired; says how many.
pub fn end(live: &Live, filter: &Arc<Filter>) -> Result<u64, Refused> {
    let Some(running) = live.running() else { return Err(Refused::new("the run has not begun", "ask again")) };
    let mut ended = 0;
    walk(live, &running.chain, |worker, group, slots| {
        let wanted = wanted(filter);
        let count = live.ask(worker, move |worker| worker.end_sets(group, slots, wanted));
        ended += count.map_err(|unanswered| Refused::new(unanswered.to_string(), ""))?;
        Ok(true)
    })?;
    Ok(ended)
}

/// Visits all slots of all tables a stretch at a time, until `visit` says that it is enough.
fn walk(
    live: &Live,
    chain: &Chain,
    mut visit: impl FnMut(usize, usize, std::ops::Range<usize>) -> Result<bool, Refused>,
) -> Result<(), Refused> {
    for worker in 0..live.workers() {
        for group in 0..chain.groups().len() {
            let slots = live.ask(worker, move |worker| worker.set_slots(group));
            let slots = slots.map_err(|unanswered| Refused::new(unanswered.to_string(), ""))?;
            for from in (0..slots).step_by(SLOTS) {
                if !visit(worker, group, from..slots.min(from + SLOTS))? {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}
