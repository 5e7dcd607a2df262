//! Another chain for a run that goes on: built beside the running one, then taken by all workers between two batches.
//!
//! Functions that both chains have keep packet sets and state objects. Objects that are alike are the same ones; those of
//! another size are copied while the workers stand still. Everything that can be refused is refused before any worker has
//! changed anything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_nf::Stage;
use braid_nf::packet::key::SetDef;
use braid_nf::state::{Domain, ImageError, StateBuilder, StateObject, Tx};
use braid_steer::planner::Changed;

use crate::chain::{Chain, ChainError, Sharing, same_packets};
use crate::live::{Live, Running, Unanswered};
use crate::plan::{BuildError, Plan};
use crate::worker::Prepared;

/// Times that workers are asked to let go: five are needed for a structure in which another one stands.
const ROUNDS_MAX: usize = 8;

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
    /// A state object cannot be copied.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
    /// A worker does not come.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
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
    /// How long the workers stood still.
    pub held: Duration,
}

/// Exchanges the chain of a run for that of `plan`; `changed` names functions whose configuration differs. The memory of what is
/// not needed any more is given back, after a refusal that of the new chain.
pub fn exchange(live: &Live, now: &Plan, plan: &Plan, changed: &[String]) -> Result<Exchanged, ExchangeError> {
    let running = live.running().ok_or(ExchangeError::NotRunning)?;
    let domain = Arc::clone(&running.domain);
    let exchanged = exchange_running(live, running, (now, plan), changed);
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
    changed: &[String],
) -> Result<Exchanged, ExchangeError> {
    let heritage = running.chain.objects();
    let chain = build(plan, &running, heritage.clone())?;
    let mut exchanged = compare(&running.chain, &chain, changed)?;
    check_steering(now, plan)?;
    let new = chain.objects().into_iter();
    let copies: Vec<_> = new.filter_map(|new| Some((older(&heritage, &new)?, new))).collect();
    exchanged.copied = copies.iter().map(|(_, new)| new.name().to_owned()).collect();
    let is_added = |at: &usize| exchanged.added.iter().any(|name| name == chain.stages()[*at].name());
    let positions: Vec<usize> = (0..chain.stages().len()).filter(is_added).collect();

    let held = live.hold()?;
    let begun = Instant::now();
    let first = held.workers().next().ok_or(ExchangeError::NotRunning)?;
    held.tell(first, move |worker| {
        worker.transact(|tx| copies.iter().try_for_each(|(old, new)| new.restore(tx, &old.save())))
    })??;
    let next = Arc::clone(&chain);
    let prepared = held.tell_all(move |worker| worker.prepare(&next))?;
    let prepared: Vec<Prepared> = prepared.into_iter().collect::<Result<_, _>>()?;
    let workers: Vec<usize> = held.workers().collect();
    for (worker, prepared) in workers.into_iter().zip(prepared) {
        held.tell(worker, move |worker| worker.exchange(prepared))?;
    }
    held.tell(first, move |worker| worker.start(&positions))?;
    live.announce(Running { chain, ..running });
    exchanged.held = begun.elapsed();
    Ok(exchanged)
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
        let name = |steering: &braid_steer::Steering| steering.fields().to_string();
        return Err(ExchangeError::Steering { now: name(before), wanted: name(after) });
    }
    Ok(())
}

/// What becomes of each function; an error if one of both chains cannot go on.
fn compare(old: &Chain, new: &Chain, changed: &[String]) -> Result<Exchanged, ExchangeError> {
    let mut exchanged = Exchanged::default();
    if old.course().order != new.course().order {
        return Err(ExchangeError::Order);
    }
    let record = |chain: &Chain| -> Vec<_> {
        let carried =
            chain.layout().describe().iter().filter_map(|row| Some((row.name.clone(), row.bytes, row.offset?)));
        carried.collect()
    };
    if (old.layout().record_bytes, record(old)) != (new.layout().record_bytes, record(new)) {
        return Err(ExchangeError::Metadata);
    }
    for stage in new.stages() {
        let Some(before) = old.stages().iter().find(|old| old.name() == stage.name()) else {
            exchanged.added.push(stage.name().to_owned());
            continue;
        };
        let differs = changed.iter().any(|name| name == stage.name());
        goes_on(&**before, &**stage, differs)
            .and_then(|()| sees_the_same(old, new, stage.name()))
            .map_err(|reason| ExchangeError::Function { function: stage.name().to_owned(), reason })?;
        exchanged.kept.push(stage.name().to_owned());
    }
    let is_gone = |old: &&str| new.stages().iter().all(|new| new.name() != *old);
    let names = old.stages().iter().map(|stage| stage.name());
    exchanged.removed = names.filter(is_gone).map(str::to_owned).collect();
    Ok(exchanged)
}

/// Whether functions before it change the same fields of its packet set as they did.
fn sees_the_same(old: &Chain, new: &Chain, name: &str) -> Result<(), String> {
    let changed = |chain: &Chain| {
        let at = chain.stages().iter().position(|stage| stage.name() == name)?;
        let own = chain.stages()[at].packet_set()?.fields.into_iter().collect();
        let Changed { from_inside, from_outside } = chain.changed_before(at);
        Some((from_inside.common(own), from_outside.common(own)))
    };
    if changed(old) == changed(new) {
        return Ok(());
    }
    Err("functions before it would change other fields of its packet set; put it where it was, or give it another name"
        .to_owned())
}

/// Whether a function goes on as another one under the same name; `changed`: its configuration differs.
pub fn goes_on(before: &dyn Stage, after: &dyn Stage, changed: bool) -> Result<(), String> {
    if before.kind() != after.kind() {
        let (old, new) = (before.kind(), after.kind());
        return Err(format!(
            "it is a {old} and cannot become a {new} with the same state; give the {new} another name"
        ));
    }
    let alike = match (before.packet_set(), after.packet_set()) {
        (Some(before), Some(after)) => same_packets(&before, &after),
        (before, after) => before.is_none() == after.is_none(),
    };
    if !alike || before.is_shared() != after.is_shared() {
        return Err("its packet set would be another one".to_owned());
    }
    if changed { after.inherits(before) } else { Ok(()) }
}
