//! Starts a run from a plan: opens source and sink, starts the workers, waits for them, and adds up their results.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use braid_io::{Ahead, OpenError, QueueSelect, RxQueue, Sink, Source, TxQueue};
use braid_nf::packet::key::SetDef;
use braid_nf::state::{Domain, StateBuilder};
use braid_nf::{Emitted, Event, Stage};
use braid_packet::{Layout, Link, Pool, PoolConfig, Port};
use braid_state::{Conflict, Tx};
use braid_steer::Steering;
use braid_steer::planner::Changed;

use crate::attempt::run_event;
use crate::chain::{Chain, ChainError, Sharing};
use crate::dispatch::{self, Dispatching};
use crate::live::saved::{RestoreError, Saved};
use crate::live::{Live, Running};
use crate::model::virtual_time::{self, Cluster, Costs, VirtualWorker};
use crate::observe::counters::WorkerCounters;
use crate::observe::probe::{Attempts, Probe, TimeSplit};
use crate::observe::record::Recorder;
use crate::observe::trace::{TraceOrder, Tracer};
use crate::observe::watchdog::Watchdog;
use crate::pacing::abreast::Abreast;
use crate::pacing::clock::{Clock, Timeline, wall_ns};
use crate::pacing::gather::Gather;
use crate::plan::{BuildError, Distribution, Plan, Time};
use crate::worker::{Parts, Worker};

mod report;
mod threads;

use report::Remains;
pub use report::{Record, Report, findings_of_objects, findings_of_sets, findings_of_stage, snapshots};
use threads::run_threads;

/// Why a run could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The number of workers is zero or too large.
    #[error("{0} workers: between 1 and 256 are possible")]
    Workers(usize),
    /// A function cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The chain cannot be built.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The source or the sink cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The state of an earlier run cannot be restored.
    #[error("the saved state does not fit: {0}")]
    Restore(#[from] RestoreError),
    /// There is not enough memory.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
    /// A thread of a worker cannot be made.
    #[error("a thread for a worker cannot be made: {0}")]
    Thread(std::io::Error),
    /// Several workers are to keep the order of a source that does not tell which packet comes next.
    #[error("the source cannot look ahead, so several workers cannot keep its order")]
    InOrder,
}

/// How a run is observed and controlled from outside.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Set to end the run in an orderly way: packets already received are still handled and sent.
    pub stop: Arc<AtomicBool>,
    /// Ends the run after this time.
    pub duration: Option<Duration>,
    /// Records everything that a certificate needs.
    pub record: bool,
    /// Runs the workers one at a time under the schedule of this seed.
    pub schedule: Option<u64>,
    /// Measures the time of every stage of every batch.
    pub profile: bool,
    /// With `profile`: measures what attempts cost instead of how the run went.
    pub calibrate: Option<Attempts>,
    /// Runs the workers in virtual time, one after another on one thread. Packets reach them as from a network card, whatever the plan says,
    /// and a live clock is the worker's virtual clock.
    pub model: Option<Model>,
    /// The handle through which the run is inspected and changed while it is running.
    pub live: Option<Arc<Live>>,
    /// Traces packets from the first one on.
    pub trace: Option<TraceOrder>,
    /// Called when everything is open and the workers are about to start.
    pub at_start: Option<AtStart>,
    /// Called by each worker when its packets have ended, before the worker ends.
    pub at_end: Option<AtEnd>,
    /// Called for one worker after another when all have ended, and with them what was due by the last time of the packets.
    pub at_last: Option<AtEnd>,
    /// Starts with this state instead of empty state.
    pub restore: Option<Arc<Saved>>,
    /// Notified of a handler that does not return.
    pub watchdog: Option<Watchdog>,
    /// Advances a live clock by so many nanoseconds per batch instead: for counting instructions, with one worker.
    pub step_ns: Option<u64>,
}

/// A callback for the start of a run; it gets the number of restored packet sets that found no place.
#[derive(Clone)]
pub struct AtStart(pub Arc<dyn Fn(u64) + Send + Sync>);

impl std::fmt::Debug for AtStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtStart")
    }
}

/// A callback for the end of each worker.
#[derive(Clone)]
pub struct AtEnd(pub Arc<dyn Fn(&mut Worker) + Send + Sync>);

impl std::fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtEnd")
    }
}

/// A model of a machine, for runs in virtual time.
#[derive(Clone, Debug)]
pub struct Model {
    /// The costs of operations on that machine.
    pub costs: Costs,
    /// Seed of the small variations of the workers' start times and of the packets' costs.
    pub seed: u64,
}

/// The fresh transaction domain and chain of a run or replay.
pub struct Foundation {
    /// The domain of the transactions.
    pub domain: Arc<Domain>,
    /// The functions.
    pub chain: Arc<Chain>,
}

/// Builds the functions with fresh state.
pub fn build(plan: &Plan) -> Result<Foundation, RunError> {
    build_for(plan, None)
}

/// Like [`build`], with state objects into which the saved state fits.
pub(crate) fn build_for(plan: &Plan, saved: Option<&Saved>) -> Result<Foundation, RunError> {
    if !(1..=256).contains(&plan.workers) {
        return Err(RunError::Workers(plan.workers));
    }
    let domain = Domain::new(plan.workers);
    let mut builder = StateBuilder::new(&domain, plan.pages);
    if let Some(saved) = saved {
        builder.succeed_saved(&saved.objects);
    }
    let stages = (plan.build)(&mut builder)?;
    let is_local = |set: &SetDef, changed: Changed| plan.workers == 1 || plan.steering.keeps(set, changed);
    let sharing = &mut Sharing { is_local: &is_local, builder: &mut builder, capacity: plan.sets };
    let chain = Chain::new(stages, &plan.own_fields, &plan.course, sharing)?.mark_by(&plan.steering);
    Ok(Foundation { domain, chain: Arc::new(chain) })
}

/// Adapts steering to the interface of the source.
struct Select(Arc<Steering>);

impl QueueSelect for Select {
    fn queue(&self, frame: &[u8], link: Link, port: Port) -> usize {
        self.0.queue(frame, link, port)
    }
}

/// Runs the plan until the source ends, the duration has elapsed or a stop is requested.
pub fn launch(
    plan: &Plan,
    mut source: Box<dyn Source>,
    sink: Box<dyn Sink>,
    control: &Control,
) -> Result<Report, RunError> {
    let Foundation { domain, chain } = build_for(plan, control.restore.as_deref())?;
    let pool = pool(plan, &mut *source)?;
    source.prepare(&pool, plan.workers)?;
    // The balancer gives orders to the workers as an outside operator does.
    let balanced = plan.balance.filter(|_| plan.distribution == Distribution::Software && control.model.is_none());
    let live = control.live.clone().or_else(|| balanced.map(|_| Live::new(plan.workers)));
    let (received, dispatcher) = receive(plan, source, &pool, chain.layout(), control, live.clone())?;
    // Opened last, so that output files are created only when everything else has succeeded.
    let sent = sink.open(plan.workers)?;
    let mut transactions: Vec<Tx> = (0..plan.workers).map(|worker| Tx::new(&domain, worker)).collect();
    let saved = control.restore.as_ref().map(|saved| saved.shared_as_in(&chain));
    start(plan, saved.as_deref(), &chain, &mut transactions[0])?;
    let cluster = control.model.as_ref().map(|model| Cluster::new(plan.workers, &model.costs, model.seed));
    let ground = Ground { plan, control, cluster: cluster.as_ref(), chain: &chain, pool: &pool };
    let mut workers = ground.assemble(transactions, received, sent)?;
    let left_out = match saved {
        Some(saved) => saved.restore_sets(plan, &chain, &mut workers)?,
        None => 0,
    };
    if let Some(cluster) = cluster {
        let ended = virtual_time::run(workers, &cluster);
        let latest = (0..plan.workers).map(|worker| cluster.now_ns(worker)).max().unwrap_or(0);
        let (elapsed, domain, is_recorded) = (Duration::from_nanos(latest), &domain, control.record);
        let remains =
            Remains { plan, domain, chain: &chain, pool: &pool, ended, dispatched: None, elapsed, is_recorded };
        let mut report = Report { transfers: cluster.transfers(), ..remains.report() };
        for (worker, counters) in report.workers.iter_mut().enumerate() {
            counters.cpu_ns = cluster.now_ns(worker);
        }
        return Ok(report);
    }
    let begun = Instant::now();
    let present = match &live {
        // The chain may be exchanged and its memory freed, so this function keeps no reference to it.
        Some(live) => {
            live.announce(Running { chain, domain: Arc::clone(&domain), since: begun });
            Present::Announced(live)
        }
        None => Present::Own(chain),
    };
    let control = &Control { live: live.clone(), ..control.clone() };
    let (ended, dispatched) =
        run_threads(&present, workers, dispatcher, (control, left_out)).map_err(RunError::Thread)?;
    let elapsed = begun.elapsed();
    let (domain, is_recorded) = (&domain, control.record);
    let remains =
        Remains { plan, domain, chain: &present.chain(), pool: &pool, ended, dispatched, elapsed, is_recorded };
    Ok(Report { sets_left_out: left_out, ..remains.report() })
}

/// Where the current chain of a run is found.
enum Present<'a> {
    /// The chain cannot be exchanged.
    Own(Arc<Chain>),
    /// The current chain is the one that was announced last.
    Announced(&'a Live),
}

impl Present<'_> {
    fn chain(&self) -> Arc<Chain> {
        match self {
            Present::Own(chain) => Arc::clone(chain),
            Present::Announced(live) => match live.running() {
                Some(running) => running.chain,
                None => unreachable!("it was announced before the workers began"),
            },
        }
    }
}

/// Creates the pool of a run, including the buffers that the source needs.
fn pool(plan: &Plan, source: &mut dyn Source) -> Result<Arc<Pool>, braid_memory::Error> {
    let buffers = plan.own_buffers() + if plan.buffers == 0 { source.buffers() } else { 0 };
    source.pool(&PoolConfig { buffers: buffers as u32, pages: plan.pages, ..PoolConfig::default() })
}

/// One receive queue for each worker.
type Receivers = Vec<Box<dyn RxQueue>>;

/// Opens the workers' receive queues: the source splits its packets, or a dispatcher does.
fn receive(
    plan: &Plan,
    source: Box<dyn Source>,
    pool: &Arc<Pool>,
    layout: &Layout,
    control: &Control,
    live: Option<Arc<Live>>,
) -> Result<(Receivers, Option<Dispatching>), OpenError> {
    if control.model.is_some() || plan.distribution == Distribution::Hardware {
        let queues = source.open(plan.workers, Arc::new(Select(Arc::clone(&plan.steering))))?;
        return Ok((queues, None));
    }
    let (dispatcher, queues) = dispatch::open(plan, source, pool, &Arc::new(layout.clone()), control, live)?;
    Ok((queues, Some(dispatcher)))
}

/// Restores the state of an earlier run, and runs the start handlers of functions that it has no state for.
fn start(plan: &Plan, saved: Option<&Saved>, chain: &Chain, tx: &mut Tx) -> Result<(), RunError> {
    let new = match saved {
        Some(saved) => saved.restore_objects(chain, plan.ports, tx)?,
        None => (0..chain.stages().len()).collect(),
    };
    let is_new = |stage: &dyn Stage| new.iter().any(|at| chain.stages()[*at].name() == stage.name());
    run_once(chain, tx, plan.ports, 0, |stage, event| if is_new(stage) { stage.start(event) } else { Ok(()) });
    Ok(())
}

/// What all workers of a run have in common.
struct Ground<'a> {
    plan: &'a Plan,
    control: &'a Control,
    cluster: Option<&'a Arc<Cluster>>,
    chain: &'a Arc<Chain>,
    pool: &'a Arc<Pool>,
}

impl Ground<'_> {
    /// Whether the workers wait for each other to keep the order of the input.
    fn goes_abreast(&self) -> bool {
        self.plan.in_order && self.plan.workers > 1 && self.cluster.is_none()
    }

    fn assemble(
        &self,
        transactions: Vec<Tx>,
        received: Receivers,
        sent: Vec<Box<dyn TxQueue>>,
    ) -> Result<Vec<Worker>, RunError> {
        let timeline = Arc::new(Timeline::new(self.plan.workers));
        let clock = match self.plan.time {
            Time::Capture if self.goes_abreast() => Clock::Abreast(Arc::default()),
            Time::Capture => Clock::Capture,
            Time::Live if let Some(step_ns) = self.control.step_ns => {
                Clock::Stepped { now_ns: Arc::default(), step_ns }
            }
            Time::Live => Clock::live(self.control.restore.as_ref().map_or_else(wall_ns, |saved| saved.now_ns)),
        };
        let wires = received.into_iter().zip(sent);
        let worker = |(id, (tx, wires)): (usize, (Tx, _))| {
            let clock = match (self.cluster, self.plan.time) {
                (Some(cluster), Time::Live) => Clock::Virtual { cluster: Arc::clone(cluster), worker: id },
                _ => clock.clone(),
            };
            self.worker(id, tx, wires, clock, &timeline)
        };
        transactions.into_iter().zip(wires).enumerate().map(worker).collect()
    }

    fn worker(
        &self,
        id: usize,
        mut tx: Tx,
        (mut receive, send): (Box<dyn RxQueue>, Box<dyn TxQueue>),
        clock: Clock,
        timeline: &Arc<Timeline>,
    ) -> Result<Worker, RunError> {
        let Ground { plan, control, chain, .. } = self;
        // Where only one worker runs at a time, waiting would block the others.
        let waits = control.schedule.is_none() && self.cluster.is_none();
        let receive: Box<dyn RxQueue> = if self.goes_abreast() {
            if receive.ahead() == Ahead::Untold {
                return Err(RunError::InOrder);
            }
            Box::new(Abreast::new(receive, (id, waits), timeline.places()))
        } else if waits && !plan.gather.is_zero() {
            Box::new(Gather::new(receive, plan.gather))
        } else {
            receive
        };
        if control.record {
            tx.record();
        }
        let mut worker = Worker::new(Parts {
            id,
            chain: Arc::clone(chain),
            pool: Arc::clone(self.pool),
            receive,
            send,
            tx,
            clock,
            timeline: Arc::clone(timeline),
            ports: plan.ports,
            batch: plan.batch,
            sets: plan.sets_per_worker(),
            pages: plan.pages,
        })?;
        if control.live.as_ref().is_some_and(|live| live.counts_ports()) {
            worker.count_ports();
        }
        if let Some(order) = &control.trace {
            worker.trace(Some(Box::new(Tracer::new(order.clone()))));
        }
        if control.record {
            worker.watch(Box::new(Recorder::new(id)));
        }
        match self.cluster {
            Some(cluster) => worker.probe(Probe::Virtual(VirtualWorker::new(cluster, id))),
            None if control.profile => {
                let split = TimeSplit::of(chain.stages().len(), control.calibrate);
                worker.probe(Probe::Split(Box::new(split)));
            }
            None => {}
        }
        Ok(worker)
    }
}

/// Runs start or stop handlers: one per function, before or after everything else.
pub fn run_once(
    chain: &Chain,
    tx: &mut Tx,
    ports: u16,
    now_ns: u64,
    mut handler: impl FnMut(&dyn Stage, &mut Event<'_>) -> Result<(), Conflict>,
) {
    let (mut emitted, mut counters) = (Emitted::default(), WorkerCounters::default());
    for stage in chain.stages() {
        run_event(tx, &mut emitted, ports, now_ns, &mut counters, |event| handler(&**stage, event));
    }
}
