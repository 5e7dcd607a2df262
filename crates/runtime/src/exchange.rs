//! Another chain for a run that goes on: built beside the running one, then taken by all workers between two batches.
//!
//! Functions that both chains have keep packet sets and state objects. Objects that are alike are the same ones. What those of
//! another size hold comes over before the exchange, while packets go on
//! ([decision](../../../docs/decisions/0011-objects-are-brought-over-by-who-changes-them.md)); packet sets whose tables are other ones, because the
//! room for them is another one or functions came or went, come over after it
//! ([decision](../../../docs/decisions/0009-sets-come-over-batch-by-batch.md)). Everything that can be refused is refused before any
//! worker has changed anything.

mod heritage;
mod room;

pub use self::heritage::{goes_on, other_sharing};

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use braid_nf::packet::key::SetDef;
use braid_nf::state::{Beyond, Domain, ImageError, Pair, StateBuilder, StateObject, Succession, Tx};
use braid_steer::planner::Changed;

use self::heritage::compare;
use self::room::{Going, check_room, evict, evicts};
use crate::chain::{Chain, ChainError, Sharing};
use crate::live::{Live, Running, Unanswered};
use crate::plan::{BuildError, Plan};
use crate::worker::{Emptied, Gone, Prepared, Worker};

/// Times that workers are asked to let go: five are needed for a structure in which another one stands.
const ROUNDS_MAX: usize = 8;

/// Times in a row that a worker is asked to move sets and moves none: so often it has looked at the slots of the largest tables.
const IN_VAIN_MAX: usize = 1 << 17;

/// How often it is looked whether all elements of state objects have come over.
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
    /// A function does not go on with its state.
    #[error("{function}: {reason}")]
    Function {
        /// Its name in the plan.
        function: String,
        /// Why not.
        reason: String,
    },
    /// Packets of a set would come to another worker than the one that keeps its state.
    #[error("packets would be steered by {wanted} instead of {now}, away from the workers that keep their state")]
    Steering {
        /// Fields that steer now.
        now: String,
        /// Fields that would.
        wanted: String,
    },
    /// Packets from outside would meet the functions in another order.
    #[error("packets from outside would meet the functions in another order, and packet sets are kept by side")]
    Order,
    /// What lies beside each packet would change.
    #[error("the chain wants other metadata beside each packet than the source delivers")]
    Metadata,
    /// What a state object holds cannot come over to one of another size.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Elements of a state object would have no place in one of another size.
    #[error(
        "{}: what is in use keeps its number, and numbers are in use up to {}, beyond the {} that would be left", .0.object, .0.needed, .0.most
    )]
    Beyond(Beyond),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
    /// A worker has more packet sets than its new tables would hold, and they are not to let any go.
    #[error("worker {worker} has {live} packet sets of `{function}`, and its tables would have room for {room}")]
    Sets {
        /// The worker with the most.
        worker: usize,
        /// The first function whose sets they are.
        function: String,
        /// Its sets.
        live: usize,
        /// Those that would fit.
        room: usize,
        /// `sets` of a plan in which they would.
        needed: usize,
    },
    /// No thread to unmap memory.
    #[error("no thread can be started: {0}")]
    Thread(#[from] std::io::Error),
    /// A worker does not come.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// How two plans of a run differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference<'a> {
    /// By the number of packet sets only.
    Sets,
    /// By functions, or their order; these have another configuration.
    Chain(&'a [String]),
}

/// What an exchange did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchanged {
    /// Functions that went on with their state.
    pub kept: Vec<String>,
    /// Functions that are new.
    pub added: Vec<String>,
    /// Functions that are gone, with their state.
    pub removed: Vec<String>,
    /// State objects that were copied because their size changed.
    pub copied: Vec<String>,
    /// Elements of them that were copied while packets went through, again if they had changed.
    pub elements: usize,
    /// Elements that were copied while the workers stood still.
    pub elements_held: usize,
    /// Packet sets that come over to other tables from now on, while packets go through.
    pub moving: usize,
    /// Packet sets that were let go because there is less room for them.
    pub evicted: usize,
    /// How long the workers stood still.
    pub held: Duration,
}

/// Exchanges the chain of a run, and the room for its packet sets, for those of `plan`. The memory of what is not needed any more is
/// given back, after a refusal that of the new chain.
pub fn exchange(live: &Live, now: &Plan, plan: &Plan, difference: Difference<'_>) -> Result<Exchanged, ExchangeError> {
    let running = live.running().ok_or(ExchangeError::NotRunning)?;
    let domain = Arc::clone(&running.domain);
    let exchanged = exchange_running(live, running, (now, plan), difference);
    reclaim(live, &domain);
    exchanged
}

/// Workers, which handle packets meanwhile, let go of what is gone, until all of it has been given back. What somebody still looks at
/// (a report, a trace), or a worker that does not answer has, goes with the next exchange.
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
        // Shared sets have a table of their own: it is an object of the chain.
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

/// What workers go on with.
struct Next {
    chain: Arc<Chain>,
    /// Positions of functions that are new.
    added: Vec<usize>,
    /// By worker.
    prepared: Vec<(usize, Prepared)>,
    /// Tables that are not needed any more.
    gone: Receiver<Gone>,
}

/// Has what state objects hold come over to others, by the workers between their batches, until they hold the same but for what
/// is just changing.
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

/// An error if a worker has not answered that has not ended.
fn answered(answers: Vec<Result<(), Unanswered>>) -> Result<(), Unanswered> {
    answers
        .into_iter()
        .find(|answer| matches!(answer, Err(Unanswered::Late(_) | Unanswered::NoWorker(_))))
        .unwrap_or(Ok(()))
}

/// The part for which workers stand still.
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
    let mut used = Vec::new();
    for worker in held.workers() {
        let (before, after) = (Arc::clone(&running.chain), Arc::clone(&chain));
        let (evicted, sets) = held.tell(worker, move |worker| {
            let evicted = worker.evict_down(room, usize::MAX, &|group| evicts(&before, group, &after));
            (evicted, worker.sets_in_use())
        })?;
        exchanged.evicted += evicted;
        used.push((worker, sets));
    }
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
            // It ended before the others stood still.
            Err(Unanswered::Ended(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
    held.tell(first, move |worker| worker.start(&added))?;
    live.announce(Running { chain, ..running });
    exchanged.held = begun.elapsed();
    Ok(())
}

/// Has the sets that are on their way since an earlier change come over, some between two batches each time. One for which chance has
/// left no place stays behind.
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

/// Maps what each worker needs, while packets go on.
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

/// Unmaps tables in a thread of its own, as they come; it ends when no worker has any more.
fn unmap(gone: Receiver<Gone>) -> Result<(), std::io::Error> {
    std::thread::Builder::new().name("braid-memory".to_owned()).spawn(move || gone.into_iter().for_each(drop))?;
    Ok(())
}

/// The chain of a plan in the domain of the running one, with its objects where they are alike.
fn build(plan: &Plan, running: &Running, heritage: Vec<Arc<dyn StateObject>>) -> Result<Arc<Chain>, ExchangeError> {
    let mut builder = StateBuilder::new(&running.domain, plan.pages);
    builder.inherit(heritage);
    let stages = (plan.build)(&mut builder)?;
    let is_local = |set: &SetDef, changed: Changed| plan.workers == 1 || plan.steering.keeps(set, changed);
    let sharing = &mut Sharing { is_local: &is_local, builder: &mut builder, capacity: plan.sets };
    Ok(Arc::new(Chain::new(stages, &plan.own_fields, &plan.course, sharing)?.mark_by(&plan.steering)))
}

/// The object that one of the same name and another size replaces.
fn older(heritage: &[Arc<dyn StateObject>], new: &Arc<dyn StateObject>) -> Option<Arc<dyn StateObject>> {
    let old = heritage.iter().find(|old| old.name() == new.name() && old.kind() == new.kind())?;
    (old.id() != new.id()).then(|| Arc::clone(old))
}

fn check_steering(now: &Plan, plan: &Plan) -> Result<(), ExchangeError> {
    let (before, after) = (&now.steering, &plan.steering);
    let alike = (before.fields(), before.symmetry()) == (after.fields(), after.symmetry());
    if plan.workers > 1 && !alike {
        return Err(ExchangeError::Steering { now: before.to_string(), wanted: after.to_string() });
    }
    Ok(())
}
