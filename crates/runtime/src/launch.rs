//! From plan to threads and back: opens source and sink, starts the workers, waits, adds up.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_io::capture::Damage;
use braid_io::{OpenError, QueueSelect, RxCounters, RxQueue, Sink, SinkError, Source, TxCounters, TxQueue};
use braid_memory::Backing;
use braid_nf::packet::key::SetDef;
use braid_nf::state::{Domain, StateBuilder};
use braid_nf::{Emitted, Event, Findings, SetTables, Stage};
use braid_packet::{Link, Pool, PoolConfig, Port};
use braid_state::{Conflict, Tx};
use braid_steer::Steering;
use braid_steer::planner::Changed;
use braid_stm::{ObjectId, ObjectInfo, Part};

use crate::aborts::Aborts;
use crate::attempt::run_event;
use crate::chain::{Chain, ChainError, Sharing};
use crate::clock::{Clock, Timeline};
use crate::counters::WorkerCounters;
use crate::dispatch::{self, Dispatched};
use crate::idle::{Ending, Patience};
use crate::live::{Live, Running};
use crate::plan::{BuildError, Distribution, Plan, Time};
use crate::probe::{Probe, TimeSplit};
use crate::record::{Recorder, WorkerLog};
use crate::replay::{SetContent, content};
use crate::saved::{RestoreError, Saved};
use crate::schedule::Scheduler;
use crate::trace::{TraceOrder, Tracer};
use crate::virtual_time::{self, Cluster, Costs, VirtualWorker};
use crate::watchdog::{Watchdog, watch};
use crate::worker::{Ended, Parts, Step, Worker};

/// A run that could not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No workers, or too many.
    #[error("{0} workers: between 1 and 256 are possible")]
    Workers(usize),
    /// A function cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The chain cannot be built.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// Source or sink cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The state of an earlier run cannot be put back.
    #[error("the saved state does not fit: {0}")]
    Restore(#[from] RestoreError),
    /// Not enough memory.
    #[error(transparent)]
    Memory(#[from] braid_memory::Error),
}

/// How a run is watched and steered from outside.
#[derive(Clone, Debug, Default)]
pub struct Control {
    /// Set to end the run in order: what has been received is still handled and sent.
    pub stop: Arc<AtomicBool>,
    /// Ends the run after this time.
    pub duration: Option<Duration>,
    /// Writes down everything for a certificate.
    pub record: bool,
    /// Runs the workers one at a time under the schedule of this seed.
    pub schedule: Option<u64>,
    /// Takes the time of every stage of every batch.
    pub profile: bool,
    /// Runs the workers in virtual time, one after another on one thread. Packets come to them as from a network card, whatever
    /// the plan says, and a live clock is the worker's virtual one.
    pub model: Option<Model>,
    /// Through which the run is looked at and changed while it goes on.
    pub live: Option<Arc<Live>>,
    /// Follows packets from the first one on.
    pub trace: Option<TraceOrder>,
    /// Done by each worker when its packets have come to an end, before it does.
    pub at_end: Option<AtEnd>,
    /// Begins with this state instead of none.
    pub restore: Option<Arc<Saved>>,
    /// Told of a handler that does not come back.
    pub watchdog: Option<Watchdog>,
}

/// What a worker does last.
#[derive(Clone)]
pub struct AtEnd(pub Arc<dyn Fn(&mut Worker) + Send + Sync>);

impl std::fmt::Debug for AtEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtEnd")
    }
}

/// A model of a machine.
#[derive(Clone, Debug)]
pub struct Model {
    /// What things cost there.
    pub costs: Costs,
    /// Moves the workers a little apart.
    pub seed: u64,
}

/// What a run did.
#[derive(Debug)]
pub struct Report {
    /// By worker.
    pub workers: Vec<WorkerCounters>,
    /// All together.
    pub total: WorkerCounters,
    /// From the first worker's start to the last one's end; in a model, of virtual time.
    pub elapsed: Duration,
    /// Where each worker's time went, if it was profiled.
    pub splits: Vec<TimeSplit>,
    /// Name and kind of each state object, by number.
    pub objects: Vec<ObjectInfo>,
    /// Lines that moved between the workers of a model.
    pub transfers: u64,
    /// Frames that the source could not deliver, by reason.
    pub undelivered: Vec<(&'static str, u64)>,
    /// Packets that the sink could not send, by reason; the workers count them as out.
    pub unsent: Vec<(&'static str, u64)>,
    /// What the dispatcher did, if there was one.
    pub dispatched: Option<Dispatched>,
    /// Where the source is damaged.
    pub damages: Vec<Damage>,
    /// What the sink could not write.
    pub lost: Vec<SinkError>,
    /// Pages under the buffers.
    pub backing: Backing,
    /// Packet sets of an earlier run that found no place in this one.
    pub sets_left_out: u64,
    /// Bytes of tables and objects.
    pub memory_bytes: usize,
    /// What the elements stand for that workers fought over most, as far as their objects know.
    pub elements: HashMap<(ObjectId, Part, u32), String>,
    /// What each function has to tell, by its name, in order; functions without findings are left out.
    pub findings: Vec<(String, Findings)>,
    /// Final objects and sets and, if recorded, everything that happened.
    pub record: Option<Record>,
}

/// The end of a recorded run.
#[derive(Debug)]
pub struct Record {
    /// What each worker did.
    pub logs: Vec<WorkerLog>,
    /// Name and content of each state object.
    pub objects: Vec<(String, Vec<u8>)>,
    /// Packet sets by group, of all workers; a key that two workers hold stands in `twice`.
    pub sets: Vec<SetContent>,
    /// Keys that more than one worker held: steering broke its promise.
    pub twice: Vec<String>,
}

/// Everything fresh that a run or a replay stands on.
pub struct Foundation {
    /// Transactions.
    pub domain: Arc<Domain>,
    /// Functions.
    pub chain: Arc<Chain>,
}

/// Builds the functions with fresh state.
pub fn build(plan: &Plan) -> Result<Foundation, RunError> {
    if !(1..=256).contains(&plan.workers) {
        return Err(RunError::Workers(plan.workers));
    }
    let domain = Domain::new(plan.workers);
    let mut builder = StateBuilder::new(&domain, plan.pages);
    let stages = (plan.build)(&mut builder)?;
    let is_local = |set: &SetDef, changed: Changed| plan.workers == 1 || plan.steering.keeps(set, changed);
    let sharing = &mut Sharing { is_local: &is_local, builder: &mut builder, capacity: plan.sets };
    let chain = Chain::new(stages, &plan.own_fields, &plan.course, sharing)?.mark_by(&plan.steering);
    Ok(Foundation { domain, chain: Arc::new(chain) })
}

/// Steering as the source asks for it.
struct Select(Arc<Steering>);

impl QueueSelect for Select {
    fn queue(&self, frame: &[u8], link: Link, port: Port) -> usize {
        self.0.queue(frame, link, port)
    }
}

/// Runs the plan until the source ends, the time is up or somebody asks to stop.
pub fn launch(
    plan: &Plan,
    mut source: Box<dyn Source>,
    sink: Box<dyn Sink>,
    control: &Control,
) -> Result<Report, RunError> {
    let Foundation { domain, chain } = build(plan)?;
    let default_buffers = plan.workers * 4 * plan.batch.max(64) + 8192 + source.buffers();
    let buffers = if plan.buffers == 0 { default_buffers } else { plan.buffers };
    let pool = Pool::new(&PoolConfig { buffers: buffers as u32, pages: plan.pages, ..PoolConfig::default() })?;
    source.prepare(&pool, plan.workers)?;
    let layout = Arc::new(chain.layout().clone());
    let (received, dispatcher) = match plan.distribution {
        _ if control.model.is_some() => (hardware(plan, source)?, None),
        Distribution::Hardware => (hardware(plan, source)?, None),
        Distribution::Software => {
            let (dispatcher, queues) = dispatch::open(plan, source, &pool, &layout, control)?;
            (queues, Some(dispatcher))
        }
    };
    // Last: what is written is created only when all else is there.
    let sent = sink.open(plan.workers)?;
    let mut transactions: Vec<Tx> = (0..plan.workers).map(|worker| Tx::new(&domain, worker)).collect();
    let new = match &control.restore {
        Some(saved) => saved.restore_objects(&chain, &mut transactions[0])?,
        None => (0..chain.stages().len()).collect(),
    };
    let is_new = |stage: &dyn Stage| new.iter().any(|at| chain.stages()[*at].name() == stage.name());
    run_once(
        &chain,
        &mut transactions[0],
        plan.ports,
        0,
        |stage, event| {
            if is_new(stage) { stage.start(event) } else { Ok(()) }
        },
    );
    let cluster = control.model.as_ref().map(|model| Cluster::new(plan.workers, &model.costs, model.seed));
    let mut workers = assemble(plan, control, cluster.as_ref(), &chain, &pool, transactions, received, sent)?;
    let left_out = match &control.restore {
        Some(saved) => saved.restore_sets(plan, &chain, &mut workers)?,
        None => 0,
    };
    if let Some(cluster) = cluster {
        let ended = virtual_time::run(workers, &cluster);
        let latest = (0..plan.workers).map(|worker| cluster.now_ns(worker)).max().unwrap_or(0);
        let mut report = report(plan, &domain, &chain, &pool, ended, None, Duration::from_nanos(latest), control);
        report.transfers = cluster.transfers();
        for (worker, counters) in report.workers.iter_mut().enumerate() {
            counters.cpu_ns = cluster.now_ns(worker);
        }
        return Ok(report);
    }
    let begun = Instant::now();
    if let Some(live) = &control.live {
        live.announce(Running { chain: Arc::clone(&chain), domain: Arc::clone(&domain), since: begun });
    }
    let (ended, dispatched) = run_threads(&chain, workers, dispatcher, control);
    let elapsed = begun.elapsed();
    // It may have been exchanged.
    let chain = control.live.as_ref().and_then(|live| live.running()).map_or(chain, |running| running.chain);
    let mut report = report(plan, &domain, &chain, &pool, ended, dispatched, elapsed, control);
    report.sets_left_out = left_out;
    Ok(report)
}

/// The source splits its packets.
fn hardware(plan: &Plan, source: Box<dyn Source>) -> Result<Vec<Box<dyn RxQueue>>, OpenError> {
    source.open(plan.workers, Arc::new(Select(Arc::clone(&plan.steering))))
}

#[allow(clippy::too_many_arguments)]
fn assemble(
    plan: &Plan,
    control: &Control,
    cluster: Option<&Arc<Cluster>>,
    chain: &Arc<Chain>,
    pool: &Arc<Pool>,
    transactions: Vec<Tx>,
    received: Vec<Box<dyn RxQueue>>,
    sent: Vec<Box<dyn TxQueue>>,
) -> Result<Vec<Worker>, RunError> {
    let timeline = Arc::new(Timeline::new(plan.workers));
    let clock = match plan.time {
        Time::Capture => Clock::Capture,
        Time::Live => Clock::live(control.restore.as_ref().map_or(0, |saved| saved.now_ns)),
    };
    let mut workers = Vec::new();
    for (id, ((mut tx, receive), send)) in transactions.into_iter().zip(received).zip(sent).enumerate() {
        if control.record {
            tx.record();
        }
        let mut worker = Worker::new(Parts {
            id,
            chain: Arc::clone(chain),
            pool: Arc::clone(pool),
            receive,
            send,
            tx,
            clock: match (cluster, plan.time) {
                (Some(cluster), Time::Live) => Clock::Virtual { cluster: Arc::clone(cluster), worker: id },
                _ => clock.clone(),
            },
            timeline: Arc::clone(&timeline),
            ports: plan.ports,
            batch: plan.batch,
            sets: plan.sets_per_worker(),
            pages: plan.pages,
        })?;
        if control.live.is_some() {
            worker.count_ports();
        }
        if let Some(order) = &control.trace {
            worker.trace(Some(Box::new(Tracer::new(order.clone()))));
        }
        if control.record {
            worker.watch(Box::new(Recorder::new(id)));
        }
        match cluster {
            Some(cluster) => worker.probe(Probe::Virtual(VirtualWorker::new(cluster, id))),
            None if control.profile => worker.probe(Probe::Split(Box::new(TimeSplit::new(chain.stages().len())))),
            None => {}
        }
        workers.push(worker);
    }
    Ok(workers)
}

/// Start and stop handlers: each function once, before and after everything else.
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

fn run_threads(
    chain: &Chain,
    mut workers: Vec<Worker>,
    dispatcher: Option<dispatch::Dispatching>,
    control: &Control,
) -> (Vec<Ended>, Option<Dispatched>) {
    let scheduler = control.schedule.map(|seed| Scheduler::new(workers.len(), seed));
    let deadline = control.duration.map(|duration| Instant::now() + duration);
    // With a dispatcher the workers empty their rings before they end; it is the dispatcher that is told to stop.
    let obeys = match &dispatcher {
        Some(_) => Control { live: control.live.clone(), at_end: control.at_end.clone(), ..Control::default() },
        None => control.clone(),
    };
    let deadline_of_workers = if dispatcher.is_some() { None } else { deadline };
    let (obeys, pin) = (&obeys, workers.len() + usize::from(dispatcher.is_some()) <= processors());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = control.watchdog.as_ref().map(|watchdog| {
            let pulses: Vec<_> = workers.iter_mut().map(Worker::pulse).collect();
            let (scheduler, done) = (scheduler.clone(), &done);
            scope.spawn(move || watch(watchdog, chain, &pulses, scheduler.as_deref(), done))
        });
        let dispatcher = dispatcher.map(|dispatching| scope.spawn(move || dispatching.run(deadline)));
        let spawn = |(id, mut worker): (usize, Worker)| {
            let scheduler = scheduler.clone();
            scope.spawn(move || {
                if pin && scheduler.is_none() {
                    pin_to(id);
                }
                match scheduler {
                    Some(scheduler) => {
                        worker.govern(&scheduler, id);
                        scheduler.enter(id);
                        work(id, &mut worker, obeys, deadline_of_workers, Some((&scheduler, id)));
                        let ended = worker.end();
                        scheduler.leave(id);
                        ended
                    }
                    None => {
                        work(id, &mut worker, obeys, deadline_of_workers, None);
                        worker.end()
                    }
                }
            })
        };
        let handles: Vec<_> = workers.into_iter().enumerate().map(spawn).collect();
        let ended = handles.into_iter().map(join).collect();
        if let Some(watching) = watching {
            done.store(true, Ordering::Relaxed);
            watching.thread().unpark();
        }
        (ended, dispatcher.map(join))
    })
}

fn join<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// A worker's life.
fn work(
    id: usize,
    worker: &mut Worker,
    control: &Control,
    deadline: Option<Instant>,
    schedule: Option<(&Arc<Scheduler>, usize)>,
) {
    worker.begin();
    let live = control.live.as_deref();
    let (mut rounds, mut patience, mut ending) = (0u32, Patience::default(), Ending::default());
    loop {
        match worker.step() {
            Step::Busy => patience = Patience::default(),
            Step::End => break,
            Step::Idle => match &schedule {
                Some((scheduler, id)) => scheduler.at(*id, true),
                None => patience.wait(),
            },
        }
        if let Some(live) = live.filter(|live| live.rings(id)) {
            live.serve(id, worker);
        }
        rounds = rounds.wrapping_add(1);
        let late = rounds.is_multiple_of(64) && deadline.is_some_and(|deadline| Instant::now() >= deadline);
        // Relaxed: the flag carries no data; being late by a batch does not matter.
        if (late || control.stop.load(Ordering::Relaxed)) && ending.is_over(|| worker.close()) {
            break;
        }
    }
    if let Some(AtEnd(last)) = &control.at_end {
        last(worker);
    }
    if let Some(live) = live {
        live.close(id, worker);
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

fn pin_to(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    // Without permission the worker runs wherever the kernel puts it: slower, not wrong.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

#[allow(clippy::too_many_arguments)]
fn report(
    plan: &Plan,
    domain: &Arc<Domain>,
    chain: &Arc<Chain>,
    pool: &Arc<Pool>,
    ended: Vec<Ended>,
    dispatched: Option<Dispatched>,
    elapsed: Duration,
    control: &Control,
) -> Report {
    let latest = ended.iter().map(|worker| worker.last_ns).max().unwrap_or(0);
    let mut report = Report {
        workers: ended.iter().map(|worker| worker.counters.clone()).collect(),
        total: WorkerCounters::default(),
        elapsed,
        splits: Vec::new(),
        objects: domain.objects().into_iter().map(|(_, info)| info).collect(),
        transfers: 0,
        undelivered: Vec::new(),
        unsent: Vec::new(),
        dispatched,
        damages: Vec::new(),
        lost: Vec::new(),
        backing: pool.backing(),
        sets_left_out: 0,
        memory_bytes: 0,
        elements: HashMap::new(),
        findings: Vec::new(),
        record: None,
    };
    let objects = chain.stages().iter().flat_map(|stage| stage.objects());
    report.memory_bytes += objects.map(|object| object.memory_bytes()).sum::<usize>();
    // The dispatcher has the source's queue, if there is one; otherwise the workers have them.
    let mut received: Vec<RxCounters> = report.dispatched.iter().map(|dispatched| dispatched.received).collect();
    let mut sent = TxCounters::default();
    let mut record = Record { logs: Vec::new(), objects: Vec::new(), sets: Vec::new(), twice: Vec::new() };
    record.sets.resize_with(chain.groups().len(), SetContent::new);
    let mut findings = vec![Findings::default(); chain.stages().len()];
    for mut worker in ended {
        findings_of_sets(chain, &mut worker.tables, &mut findings);
        report.total.merge(&worker.counters);
        report.damages.append(&mut worker.damages);
        received.push(worker.received);
        match worker.sent {
            Ok(counters) => {
                sent.device_full += counters.device_full;
                sent.too_long += counters.too_long;
            }
            Err(error) => report.lost.push(error),
        }
        if let Probe::Split(mut split) = worker.probe {
            split.end();
            report.splits.push(*split);
        }
        report.memory_bytes += worker.tables.iter().map(|tables| tables.memory_bytes()).sum::<usize>();
        if control.record {
            let local = |(group, _): &(usize, _)| !chain.groups()[*group].shared;
            for (group, tables) in worker.tables.iter_mut().enumerate().filter(local) {
                for (key, entry) in content(chain, group, tables) {
                    if record.sets[group].insert(key, entry).is_some() {
                        record.twice.push(key.to_string());
                    }
                }
            }
            if let Ok(recorder) = worker.witness.into_any().downcast::<Recorder>() {
                record.logs.push(recorder.into_log());
            }
        }
    }
    let sum = |count: fn(&RxCounters) -> u64| received.iter().map(count).sum();
    let undelivered = [
        ("frame_too_long", sum(|queue| queue.too_long)),
        ("injected_loss", sum(|queue| queue.injected_loss)),
        ("missed", sum(|queue| queue.missed)),
    ];
    let unsent = [("device_full", sent.device_full), ("frame_too_long", sent.too_long)];
    report.undelivered.extend(undelivered.into_iter().filter(|&(_, count)| count > 0));
    report.unsent.extend(unsent.into_iter().filter(|&(_, count)| count > 0));
    if control.record {
        record.objects = snapshots(chain);
        report.record = Some(record);
    }
    report.elements = elements(chain, &report.total.aborted);
    let mut tx = Tx::new(domain, 0);
    run_once(chain, &mut tx, plan.ports, latest, |stage, event| stage.stop(event));
    report.findings = findings_of_objects(chain, &mut tx, plan.ports, latest, findings);
    report
}

/// The elements that aborts name, as their objects show them.
fn elements(chain: &Chain, aborts: &Aborts) -> HashMap<(ObjectId, Part, u32), String> {
    let objects: Vec<_> = chain.stages().iter().flat_map(|stage| stage.objects()).collect();
    let mut shown = HashMap::new();
    for row in &aborts.rows {
        let Some(object) = objects.iter().find(|object| Some(object.id()) == row.object) else { continue };
        for (index, _) in row.hot.iter() {
            if let Some(text) = object.element(row.part, index) {
                shown.insert((object.id(), row.part, index), text);
            }
        }
    }
    shown
}

/// What a worker's live sets tell; sets that workers share are told with the objects.
pub fn findings_of_sets(chain: &Chain, tables: &mut [SetTables], findings: &mut [Findings]) {
    for (position, (stage, into)) in chain.stages().iter().zip(findings).enumerate() {
        if let Some(tables) = chain.group_of(position).and_then(|group| tables.get_mut(group)) {
            stage.report_sets(tables, into);
        }
    }
}

/// Adds what state objects tell, and names the functions that have something to tell.
pub fn findings_of_objects(
    chain: &Chain,
    tx: &mut Tx,
    ports: u16,
    now_ns: u64,
    mut findings: Vec<Findings>,
) -> Vec<(String, Findings)> {
    run_once(chain, tx, ports, now_ns, |stage, event| {
        let position = chain.stages().iter().position(|other| other.name() == stage.name());
        let Some(known) = position.and_then(|position| findings.get_mut(position)) else { return Ok(()) };
        let mut more = known.clone();
        stage.report(event, &mut more)?;
        *known = more;
        Ok(())
    });
    let names = chain.stages().iter().map(|stage| stage.name().to_owned());
    let mut told: Vec<_> = names.zip(findings).filter(|(_, findings)| !findings.is_empty()).collect();
    told.iter_mut().for_each(|(_, findings)| findings.sort());
    told
}

/// Name and content of every state object.
pub fn snapshots(chain: &Chain) -> Vec<(String, Vec<u8>)> {
    let objects = chain.stages().iter().flat_map(|stage| stage.objects());
    objects.map(|object| (object.name().to_owned(), object.snapshot())).collect()
}
