//! Finds the live packet sets of a run by a filter, lists them and ends them.
//!
//! A worker visits a bounded number of table slots and describes or ends a bounded number of sets between two batches, so packets go on
//! during a listing of millions of sets. Sets that workers share ([`crate::compile`]
//! decides which) are in state objects; the first worker reads and ends them.

use std::sync::Arc;

use braid_runtime::live::Unanswered;
use braid_runtime::live::exchange::settle;
use braid_runtime::nf::SetMeaning;
use braid_runtime::nf::packet::key::SetKey;
use braid_runtime::{Chain, ListedSet, Live, SetCursor, Worker};
use serde::{Deserialize, Serialize};

use super::entries;
use super::protocol::Refused;
use super::trace::hex;
use crate::facts::Facts;
use crate::filter::Filter;

/// A listing of live sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Listing {
    /// The matching sets, up to the limit.
    pub sets: Vec<SetReport>,
    /// Number of all sets: those in the workers' tables and those that workers share.
    pub live: u64,
    /// Functions that keep entries besides, as a NAT does of ICMP queries: [`entries`] lists those.
    #[serde(default)]
    pub with_entries: Vec<String>,
}

/// A packet set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetReport {
    /// Its key.
    pub key: String,
    /// The worker that owns it; `None` if workers share it.
    pub worker: Option<usize>,
    /// Seconds since its last packet.
    pub idle_seconds: f64,
    /// Functions for which it is live, with their state in hexadecimal.
    pub functions: Vec<(String, String)>,
    /// What each of them says of it; nothing if the chain was exchanged meanwhile.
    #[serde(default)]
    pub meanings: Vec<Meaning>,
}

/// What a packet set means to one of its functions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Meaning {
    /// The function's name in the plan.
    pub function: String,
    /// What its state means; `None` if the function does not describe it.
    pub text: Option<String>,
    /// Seconds until it ends if no packet comes; `None` if it never does.
    pub left_seconds: Option<f64>,
}

impl SetReport {
    /// From what a worker keeps and its functions say.
    pub fn new(set: &ListedSet, meanings: Option<Vec<SetMeaning>>, chain: &Chain) -> SetReport {
        // The worker may have had another chain by then.
        let name = |position: &usize| chain.stages().get(*position).map_or("?", |stage| stage.name()).to_owned();
        let idle_ns = u64::from(set.idle_ms) * 1_000_000;
        let meaning = |((position, _), meaning): (&(usize, Vec<u8>), SetMeaning)| Meaning {
            function: name(position),
            text: meaning.words,
            left_seconds: (meaning.timeout_ns != u64::MAX)
                .then(|| meaning.timeout_ns.saturating_sub(idle_ns) as f64 / 1e9),
        };
        let state = |(position, state): &(usize, Vec<u8>)| (name(position), hex(state));
        SetReport {
            key: set.key.to_string(),
            worker: set.worker,
            idle_seconds: f64::from(set.idle_ms) / 1000.0,
            functions: set.states.iter().map(state).collect(),
            meanings: set.states.iter().zip(meanings.unwrap_or_default()).map(meaning).collect(),
        }
    }
}

/// Makes the predicate of a filter on keys.
pub fn wanted(filter: &Arc<Filter>) -> impl Fn(&SetKey) -> bool + Clone + Send + Sync + use<> {
    let filter = Arc::clone(filter);
    move |key: &SetKey| filter.matches(&Facts::of_key(key))
}

/// All matching sets of one worker, in one step; only for a worker that has stopped.
pub fn of_worker(worker: &mut Worker, filter: &Arc<Filter>, limit: usize) -> Vec<SetReport> {
    let chain = Arc::clone(worker.chain());
    let groups = 0..chain.groups().len();
    let of_group = |group| worker.list_sets(group, 0..worker.set_slots(group), limit, wanted(filter));
    let sets: Vec<ListedSet> = groups.flat_map(of_group).collect();
    described_by(worker, &sets, &chain)
}

/// All matching shared sets, read by one worker in one step; only when no other worker runs.
pub fn of_all_workers(worker: &mut Worker, filter: &Arc<Filter>, limit: usize) -> Vec<SetReport> {
    let (chain, mut found) = (Arc::clone(worker.chain()), Vec::new());
    for position in shared(&chain) {
        let mut cursor = Some(0);
        while let Some(at) = cursor.filter(|_| found.len() < limit) {
            let (sets, next) = worker.list_shared(position, at, limit - found.len(), wanted(filter));
            found.extend(described_by(worker, &sets, &chain));
            cursor = next;
        }
    }
    found
}

fn described_by(worker: &mut Worker, sets: &[ListedSet], chain: &Arc<Chain>) -> Vec<SetReport> {
    sets.iter().map(|set| SetReport::new(set, worker.describe(chain, set), chain)).collect()
}

/// A set with what its functions say of it.
type Described = (ListedSet, Option<Vec<SetMeaning>>);

/// Has a worker describe a portion of sets.
fn meanings(worker: &mut Worker, sets: Vec<ListedSet>, chain: &Arc<Chain>) -> Vec<Described> {
    let describe = |set: ListedSet| {
        let meanings = worker.describe(chain, &set);
        (set, meanings)
    };
    sets.into_iter().map(describe).collect()
}

/// Positions of functions whose sets workers share.
fn shared(chain: &Chain) -> impl Iterator<Item = usize> {
    chain.stages().iter().enumerate().filter(|(_, stage)| stage.is_shared()).map(|(position, _)| position)
}

/// Number of sets that workers share.
fn shared_live(chain: &Chain) -> u64 {
    let of_stage = |position: usize| chain.stages()[position].objects().last().map_or(0, |sets| sets.len() as u64);
    shared(chain).map(of_stage).sum()
}

/// Lists the sets of a run that match a filter, up to a limit.
pub fn list(live: &Live, filter: &Arc<Filter>, limit: usize) -> Result<Listing, Refused> {
    let Some(running) = live.running() else { return Err(Refused::new("the run has not begun", "ask again")) };
    let seen = live.see();
    let tables = seen.iter().flatten().flat_map(|seen| &seen.tables);
    let own: u64 = tables.map(|(live, _)| *live as u64).sum();
    let (live_sets, with_entries) = (own + shared_live(&running.chain), entries::functions(&running.chain));
    let mut listing = Listing { sets: Vec::new(), live: live_sets, with_entries };
    let chain = &running.chain;
    let mut take = |portion: Vec<Described>| {
        let room = limit - listing.sets.len();
        let reports = portion.into_iter().take(room).map(|(set, meanings)| SetReport::new(&set, meanings, chain));
        listing.sets.extend(reports);
        listing.sets.len() < limit
    };
    let own = |of: Arc<Chain>, mut place: SetCursor| {
        let wanted = wanted(filter);
        move |worker: &mut Worker| worker.list_next(&mut place, &wanted).map(|sets| meanings(worker, sets, &of))
    };
    let shared = |of: Arc<Chain>, position: usize| {
        let (wanted, mut cursor) = (wanted(filter), Some(0));
        move |worker: &mut Worker| {
            let (sets, next) = worker.list_shared(position, cursor?, usize::MAX, &wanted);
            cursor = next;
            Some(meanings(worker, sets, &of))
        }
    };
    settled(live)?;
    for worker in 0..live.workers() {
        if !each(live, worker, own(Arc::clone(chain), SetCursor::default()), &mut take)? {
            return Ok(listing);
        }
    }
    for position in self::shared(chain) {
        if !each(live, 0, shared(Arc::clone(chain), position), &mut take)? {
            break;
        }
    }
    Ok(listing)
}

/// Ends the sets of a run that match a filter, as if they had expired; returns their number.
pub fn end(live: &Live, filter: &Arc<Filter>) -> Result<u64, Refused> {
    let Some(running) = live.running() else { return Err(Refused::new("the run has not begun", "ask again")) };
    let mut ended = 0;
    let mut count = |portion: u64| {
        ended += portion;
        true
    };
    settled(live)?;
    for worker in 0..live.workers() {
        let (wanted, mut place) = (wanted(filter), SetCursor::default());
        each(live, worker, move |worker| worker.end_next(&mut place, &wanted), &mut count)?;
    }
    for position in shared(&running.chain) {
        let (wanted, mut cursor) = (wanted(filter), Some(0));
        let end = move |worker: &mut Worker| {
            let (ended, next) = worker.end_shared(position, cursor?, &wanted);
            cursor = next;
            Some(ended)
        };
        each(live, 0, end, &mut count)?;
    }
    Ok(ended)
}

/// Has a worker answer in portions until there are none, or `take` wants no more; returns whether it does.
fn each<T: Send + 'static>(
    live: &Live,
    worker: usize,
    question: impl FnMut(&mut Worker) -> Option<T> + Send + 'static,
    take: &mut impl FnMut(T) -> bool,
) -> Result<bool, Refused> {
    for portion in live.ask_in_portions(worker, question).map_err(unanswered)? {
        if !take(portion.map_err(unanswered)?) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Waits until no sets are being moved to other tables: those would be missed.
fn settled(live: &Live) -> Result<(), Refused> {
    settle(live).map_err(unanswered)
}

pub(super) fn unanswered(error: Unanswered) -> Refused {
    Refused::new(error.to_string(), "")
}
