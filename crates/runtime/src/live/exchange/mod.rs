//! Exchanges the chain of a run while it is running: the new chain is built beside the old one, then installed in all workers between two
//! batches.
//!
//! Functions that are in both chains keep their packet sets and state objects. Equal objects are reused. The content of objects that change
//! their size is copied before the exchange, while packets continue to flow
//! ([decision](../../../docs/decisions/0011-objects-are-brought-over-by-who-changes-them.md)). Packet sets whose tables are replaced, because their
//! capacity changes or functions were added or removed, are moved after it
//! ([decision](../../../docs/decisions/0009-sets-come-over-batch-by-batch.md)). Everything that can be refused is refused before any worker
//! has changed anything.

mod heritage;
mod room;

pub use self::heritage::{OTHER_SET, OtherOrder, goes_on, keeps_order};

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use braid_nf::packet::key::SetDef;
use braid_nf::state::{Beyond, Domain, ImageError, Pair, StateBuilder, StateObject, Succession, Tx};
use braid_steer::Steering;
use braid_steer::planner::Changed;

use self::heritage::compare;
use self::room::{Going, check_room, evict, evicts};
use crate::chain::{Chain, ChainError, Sharing};
use crate::live::{Live, Running, Stopped, Unanswered};
use crate::plan::{BuildError, Plan};
use crate::worker::{Emptied, Gone, Prepared, Worker};

/// Maximum number of rounds in which workers are asked to release memory; a structure nested in another one needs five.
const ROUNDS_MAX: usize = 8;

/// How many times in a row a worker may be asked to move sets and move none: enough to visit all slots of the largest tables.
const IN_VAIN_MAX: usize = 1 << 17;

/// Interval between checks whether all elements of state objects have been copied.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Why a run keeps its chain.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// The run has not begun or has ended.
    #[error("no worker runs")]
    NotRunning,
    /// A function cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The chain cannot be built.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// A function cannot continue with its state.
    #[error("{function}: {reason}")]
    Function {
        /// The function's name in the plan.
        function: String,
        /// Why it cannot continue.
        reason: String,
    },
    /// Packets of a set would be steered to another worker than the one that keeps its state.
    #[error("packets would be steered by {wanted} instead of {now}, away from the workers that keep their state")]
    Steering {
        /// The fields that are used for steering now.
        now: String,
        /// The fields that would be used.
        wanted: String,
    },
    /// Packets from outside would meet the functions in another order.
    #[error(transparent)]
    Order(#[from] OtherOrder),
    /// The layout of packet metadata would change.
    #[error("the chain wants other metadata beside each packet than the source delivers")]
    Metadata,
    /// The content of a state object does not fit into an object of another size.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Elements of a state object would have no place in an object of another size.
    #[error(
        "{}: what is in use keeps its number, and numbers are in use up to {}, beyond the {} that would be left", .0.object, .0.needed, .0.most
    )]
    Beyond(Beyond),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
    /// A worker has more packet sets than its new tables can hold, and their policy does not allow eviction.
    #[error("worker {worker} has {live} packet sets of `{function}`, and its tables would have room for {room}")]
    Sets {
        /// The worker with the most sets.
        worker: usize,
        /// The first function of the sets' group.
        function: String,
        /// The number of its sets.
        live: usize,
        /// The number that would fit.
        room: usize,
        /// The value of `sets` in a plan with enough room.
        needed: usize,
    },
    /// The thread that unmaps memory cannot be started.
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
    /// A worker does not answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// How two plans of a run differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference<'a> {
    /// Only in the number of packet sets.
    Sets,
    /// In their functions or the order of these; the functions listed have a different configuration.
    Chain(&'a [String]),
}

/// What an exchange did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Functions that continued with their state.
    pub kept: Vec<String>,
    /// Functions that were added.
    pub added: Vec<String>,
    /// Functions that were removed together with their state.
    pub removed: Vec<String>,
    /// Packets that waited in these, and that went on at once.
    pub released: usize,
    /// State objects that were copied because their size changed.
    pub copied: Vec<String>,
    /// Elements copied while packets were being handled, counted again if they changed and were copied again.
    pub elements: usize,
    /// Elements copied while the workers were stopped.
    pub elements_held: usize,
    /// Packet sets that are yet to move to new tables, while packets are being handled.
    pub moving: usize,
    /// Packet sets evicted because there is less room.
    pub evicted: usize,
    /// How long the workers were stopped.
    pub held: Duration,
}

/// Exchanges the chain of a run and its capacity for packet sets for those of `plan`. Frees the memory that is no longer needed; after a refusal,
/// that of the new chain.
pub fn exchange(live: &Live, now: &Plan, plan: &Plan, difference: Difference<'_>) -> Result<Exchanged, ExchangeError> {
    let running = live.running().ok_or(ExchangeError::NotRunning)?;
    let domain = Arc::clone(&running.domain);
    let exchanged = exchange_running(live, running, (now, plan), difference);
    reclaim(live, &domain);
    exchanged
}

/// Has workers, which continue to handle packets, release what is gone, until all of it has been freed. Memory that is still in use by a reader
/// (a report, a trace) or by a worker that does not answer is freed at the next exchange.
fn reclaim(live: &Live, domain: &Domain) {
    for _ in 0..ROUNDS_MAX {
        let answers = live.ask_all(|worker| worker.transact(Tx::let_go));
        let is_late = |answer: &Result<(), Unanswered>| matches!(answer, Err(Unanswered::Late(_)));
        if !domain.reclaim() || answers.iter().any(is_late) {
            break;
        }
    }
}

fn exchange_running(
    live: &Live,
    running: Running,
    (now, plan): (&Plan, &Plan),
    difference: Difference<'_>,
) -> Result<Exchanged, ExchangeError> {
    let heritage = running.chain.objects();
    let shares = running.chain.groups().iter().any(|group| group.shared);
    let (chain, changed): (_, &[String]) = match difference {
        // A table of shared sets is a state object of the chain, so the chain has to be rebuilt.
        Difference::Sets if !shares => (Arc::clone(&running.chain), &[]),
        Difference::Sets => (build(plan, &running, heritage.clone())?, &[]),
        Difference::Chain(changed) => (build(plan, &running, heritage.clone())?, changed),
    };
    let mut exchanged = compare(&running.chain, &chain, changed)?;
    check_steering(now, plan)?;
    let new = chain.objects().into_iter();
    let copies: Vec<Pair> = new.filter_map(|new| Some((older(&heritage, &new)?, new))).collect();
    exchanged.copied = copies.iter().map(|(_, new)| new.name().to_owned()).collect();
    let is_added = |at: &usize| exchanged.added.iter().any(|name| name == chain.stages()[*at].name());
    let added: Vec<usize> = (0..chain.stages().len()).filter(is_added).collect();
    settle(live)?;
    let (emptied, gone) = channel();
    let prepared = prepare(live, (&running.chain, &chain), (now, plan), &Emptied(emptied))?;
    let succession = Succession::new(copies)?;
    let next = Next { chain, added, prepared, gone };
    let handed_over = bring_objects(live, &succession)
        .and_then(|()| succession.beyond().map_or(Ok(()), |beyond| Err(ExchangeError::Beyond(beyond))))
        .and_then(|()| evict(live, (&running.chain, &next.chain), plan, &mut exchanged))
        .and_then(|()| hand_over(live, running, plan, next, &succession, &mut exchanged));
    if let Err(error) = handed_over {
        let room = now.sets_per_worker();
        live.ask_all(move |worker| {
            worker.end_bringing();
            worker.keep_at_most(room);
        });
        return Err(error);
    }
    Ok(exchanged)
}

/// What the workers continue with.
struct Next {
    chain: Arc<Chain>,
    /// Positions of the new functions.
    added: Vec<usize>,
    /// By worker number.
    prepared: Vec<(usize, Prepared)>,
    /// Receives tables that are no longer needed.
    gone: Receiver<Gone>,
}

/// Has the workers copy the content of state objects to their successors between batches, until only elements that are just changing
/// differ.
fn bring_objects(live: &Live, succession: &Arc<Succession>) -> Result<(), ExchangeError> {
    if succession.is_complete() {
        return Ok(());
    }
    let begun = Arc::clone(succession);
    answered(live.ask_all(move |worker| worker.begin_bringing(Arc::clone(&begun))))?;
    succession.open();
    while !succession.is_complete() {
        if live.has_ended() {
            return Err(ExchangeError::NotRunning);
        }
        // A worker that hangs is waited for no longer than for any other answer.
        answered(live.ask_all(|_| ()))?;
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Returns an error if a worker that has not ended did not answer.
fn answered(answers: Vec<Result<(), Unanswered>>) -> Result<(), Unanswered> {
    answers
        .into_iter()
        .find(|answer| matches!(answer, Err(Unanswered::Late(_) | Unanswered::NoWorker(_))))
        .unwrap_or(Ok(()))
}

/// The part of the exchange for which the workers are stopped.
fn hand_over(
    live: &Live,
    running: Running,
    plan: &Plan,
    next: Next,
    succession: &Succession,
    exchanged: &mut Exchanged,
) -> Result<(), ExchangeError> {
    let (Next { chain, added, prepared, gone }, room) = (next, plan.sets_per_worker());
    let held = live.hold()?;
    let begun = Instant::now();
    let first = held.workers().next().ok_or(ExchangeError::NotRunning)?;
    exchanged.released = release(&held, first, &running.chain, &exchanged.removed)?;
    let (before, after) = (Arc::clone(&running.chain), Arc::clone(&chain));
    let evict = move |worker: &mut Worker| {
        let evicted = worker.evict_down(room, usize::MAX, &|group| evicts(&before, group, &after));
        (evicted, (worker.id(), worker.sets_in_use()))
    };
    let (evicted, used): (Vec<_>, Vec<_>) = held.tell_all(evict)?.into_iter().unzip();
    exchanged.evicted += evicted.into_iter().sum::<usize>();
    check_room((&running.chain, &chain), &used, plan, Going::None)?;
    unmap(gone)?;
    exchanged.elements_held = held.tell_all(Worker::end_bringing)?.into_iter().sum();
    if let Some(beyond) = succession.beyond() {
        return Err(ExchangeError::Beyond(beyond));
    }
    exchanged.elements = succession.finish()? - exchanged.elements_held;
    for (id, prepared) in prepared {
        let exchange = move |worker: &mut Worker| {
            worker.exchange(prepared);
            worker.sets_to_move()
        };
        match held.tell(id, exchange) {
            Ok(moving) => exchanged.moving += moving,
            // The worker ended before the others were stopped.
            Err(Unanswered::Ended(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    held.tell(first, move |worker| worker.start(&added))?;
    live.announce(Running { chain, ..running });
    exchanged.held = begun.elapsed();
    Ok(())
}

/// Has a worker send on what waits in functions that are removed: nobody else could. Returns how many packets these were.
fn release(stopped: &Stopped<'_>, worker: usize, chain: &Chain, removed: &[String]) -> Result<usize, Unanswered> {
    let stages = chain.stages().iter().enumerate();
    let holding = stages.filter(|(_, stage)| stage.holds_packets() && removed.iter().any(|name| name == stage.name()));
    let positions: Vec<usize> = holding.map(|(at, _)| at).collect();
    if positions.is_empty() {
        return Ok(0);
    }
    stopped.tell(worker, move |worker| worker.release(&positions))
}

/// Finishes moving packet sets after an earlier change, a few between two batches. A set for which its new table happens to have no free slot
/// stays behind.
pub fn settle(live: &Live) -> Result<(), Unanswered> {
    let some = |worker: &mut Worker| {
        worker.move_sets();
        worker.sets_to_move()
    };
    for worker in 0..live.workers() {
        let (mut fewest, mut in_vain) = (usize::MAX, 0);
        while fewest > 0 && in_vain < IN_VAIN_MAX {
            match live.ask(worker, some) {
                Ok(left) if left < fewest => (fewest, in_vain) = (left, 0),
                Ok(_) => in_vain += 1,
                Err(Unanswered::Ended(_)) => break,
                Err(other) => return Err(other),
            }
        }
    }
    Ok(())
}

/// Maps the tables that each worker needs, while packets are being handled.
fn prepare(
    live: &Live,
    chains: (&Chain, &Arc<Chain>),
    (now, plan): (&Plan, &Plan),
    emptied: &Emptied,
) -> Result<Vec<(usize, Prepared)>, ExchangeError> {
    let mut all = Vec::with_capacity(live.workers());
    let mut all_used = Vec::with_capacity(live.workers());
    for (worker, used) in live.ask_all(|worker| worker.sets_in_use()).into_iter().enumerate() {
        match used {
            Ok(used) => all_used.push((worker, used)),
            Err(Unanswered::Ended(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    check_room((chains.0, chains.1), &all_used, plan, Going::Some)?;
    for (worker, (kinds, _)) in all_used {
        let sets = (now.sets_per_worker(), plan);
        all.push((worker, Prepared::new(chains, sets, &kinds, emptied.clone())?));
    }
    Ok(all)
}

/// Unmaps discarded tables on a separate thread as they arrive; the thread ends when no worker has any left.
fn unmap(gone: Receiver<Gone>) -> Result<(), std::io::Error> {
    std::thread::Builder::new().name("braid-memory".to_owned()).spawn(move || gone.into_iter().for_each(drop))?;
    Ok(())
}

/// Builds the chain of a plan in the domain of the running one, reusing its objects where they are equal.
fn build(plan: &Plan, running: &Running, heritage: Vec<Arc<dyn StateObject>>) -> Result<Arc<Chain>, ExchangeError> {
    let mut builder = StateBuilder::new(&running.domain, plan.pages);
    builder.inherit(heritage);
    let stages = (plan.build)(&mut builder)?;
    let is_local = |set: &SetDef, changed: Changed| plan.workers == 1 || plan.steering.keeps(set, changed);
    let sharing = &mut Sharing { is_local: &is_local, builder: &mut builder, capacity: plan.sets };
    let chain = Chain::new(stages, &plan.own_fields, &plan.course, sharing)?;
    Ok(Arc::new(chain.mark_by(&plan.steering).following(&running.chain)))
}

/// The object that `new`, of the same name and kind but another size, replaces.
fn older(heritage: &[Arc<dyn StateObject>], new: &Arc<dyn StateObject>) -> Option<Arc<dyn StateObject>> {
    let old = heritage.iter().find(|old| old.name() == new.name() && old.kind() == new.kind())?;
    (old.id() != new.id()).then(|| Arc::clone(old))
}

fn check_steering(now: &Plan, plan: &Plan) -> Result<(), ExchangeError> {
    let (before, after) = (&now.steering, &plan.steering);
    let hashed = |steering: &Steering| (steering.fields(), steering.symmetry(), steering.udp_ports());
    let alike = hashed(before) == hashed(after);
    if plan.workers > 1 && !alike {
        return Err(ExchangeError::Steering { now: before.to_string(), wanted: after.to_string() });
    }
    Ok(())
}
