//! A test bench with one or several workers: packets are handed in one at a time, and the outcome of each is handed back.
//!
//! The workers are those of real runs, with queues in memory, so a function behaves here as it does everywhere.
//!
//! ```text
//!  send(port, time, frame) ──▶ RxQueue ──▶ Worker::step ──▶ TxQueue ──▶ Outcome { sent, dropped }
//! ```
//!
//! A bench of a plan steers each packet to its worker as the plan does. The test tells it the time, which can also advance without packets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use braid_io::{Received, RxCounters, RxQueue, SinkError, TxCounters, TxQueue};
use braid_memory::HugePages;
use braid_nf::state::{Domain, StateBuilder, StateObject, Tx};
use braid_nf::{About, Emitted, Event, Findings, Stage, TableEntry};
use braid_packet::fields::{SEQUENCE, StageUse, TIMESTAMP_NS, WIRE_LEN};
use braid_packet::parse::protocol;
use braid_packet::{Batch, Buffers, FrameInfo, Pool, PoolConfig, Port};
use braid_runtime::launch::{Foundation, build, findings_of_objects, findings_of_sets};
use braid_runtime::{
    Chain, Clock, Course, ListedSet, Parts, Plan, RunError, Sharing, Timeline, Worker, WorkerCounters,
};
use braid_steer::Steering;

/// Default number of packet sets of a bench.
const SETS: usize = 1024;
/// Maximum number of steps in which waiting advances the workers' time, and the minimum length of a step.
const WAIT_STEPS: u64 = 500;
const WAIT_STEP_NS: u64 = 1_000_000;

/// The outcome for a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The frames that were sent because of it, with their ports.
    pub sent: Vec<(Port, Vec<u8>)>,
    /// The reason why it was dropped, if it was.
    pub dropped: Option<&'static str>,
}

impl Outcome {
    /// The ports through which something was sent.
    pub fn ports(&self) -> Vec<Port> {
        self.sent.iter().map(|(port, _)| *port).collect()
    }

    /// The only frame that was sent, with its port; panics if there is none, or more than one.
    #[track_caller]
    pub fn only(&self) -> (Port, &[u8]) {
        match &self.sent[..] {
            [(port, bytes)] => (*port, bytes),
            sent => panic!("{} frames were sent, dropped: {:?}", sent.len(), self.dropped),
        }
    }
}

/// Workers and their chain.
pub struct Bench {
    workers: Vec<Worker>,
    wires: Vec<Arc<Mutex<Wire>>>,
    steering: Option<Arc<Steering>>,
    objects: Vec<Arc<dyn StateObject>>,
    sequence: u64,
    ground: Ground,
}

/// The components of a bench.
struct Ground {
    domain: Arc<Domain>,
    chain: Arc<Chain>,
    clock: Clock,
    told_ns: Arc<AtomicU64>,
    ports: u16,
    sets: usize,
    /// Whether its functions take over existing state, as when a plan changes or a run is restored; they are then not started.
    goes_on: bool,
}

/// Frames on their way in and out.
#[derive(Default)]
struct Wire {
    waiting: VecDeque<(FrameInfo, Vec<u8>)>,
    sent: Vec<(Port, Vec<u8>)>,
}

impl Bench {
    /// Makes a bench with a single function, on `ports` ports.
    #[track_caller]
    pub fn new(ports: u16, build: impl FnOnce(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
        Bench::chain(ports, SETS, |builder| vec![build(builder)])
    }

    /// Makes a bench with a single function and room for `sets` packet sets.
    #[track_caller]
    pub fn with_sets(ports: u16, sets: usize, build: impl FnOnce(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
        Bench::chain(ports, sets, |builder| vec![build(builder)])
    }

    /// Makes a bench with several functions.
    #[track_caller]
    pub fn chain(ports: u16, sets: usize, build: impl FnOnce(&mut StateBuilder) -> Vec<Box<dyn Stage>>) -> Bench {
        Bench::on_course(ports, sets, &Course::default(), build)
    }

    /// Makes a bench with several functions that packets traverse on the given course.
    #[track_caller]
    pub fn on_course(
        ports: u16,
        sets: usize,
        course: &Course,
        build: impl FnOnce(&mut StateBuilder) -> Vec<Box<dyn Stage>>,
    ) -> Bench {
        Bench::begun((ports, sets), (course, true), build)
    }

    /// Like [`on_course`](Bench::on_course), with packet sets stored as if workers shared them.
    #[track_caller]
    pub fn sharing_on_course(
        ports: u16,
        sets: usize,
        course: &Course,
        build: impl FnOnce(&mut StateBuilder) -> Vec<Box<dyn Stage>>,
    ) -> Bench {
        Bench::begun((ports, sets), (course, false), build)
    }

    fn begun(
        room: (u16, usize),
        course: (&Course, bool),
        build: impl FnOnce(&mut StateBuilder) -> Vec<Box<dyn Stage>>,
    ) -> Bench {
        let domain = Domain::new(1);
        let builder = StateBuilder::new(&domain, HugePages::Never);
        Bench::upon((domain, false), builder, room, course, build)
    }

    /// Makes a bench whose single function replaces this bench's function under the same name and takes
    /// over its state objects. The contents of packet sets are lost.
    #[track_caller]
    pub fn succeeded(self, build: impl FnOnce(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
        let Bench { workers, objects, ground: Ground { domain, ports, sets, .. }, .. } = self;
        drop(workers);
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        builder.inherit(objects.clone());
        let course = (&Course::default(), true);
        let bench = Bench::upon((domain, true), builder, (ports, sets), course, |builder| vec![build(builder)]);
        for new in &bench.objects {
            let former = objects.iter().find(|old| old.name() == new.name() && old.kind() == new.kind());
            let Some(former) = former.filter(|former| former.id() != new.id()) else { continue };
            new.check(&**former).expect("elements of the same kind");
            (0..former.elements().objects()).for_each(|index| _ = new.bring(&**former, index));
        }
        bench
    }

    /// Like [`succeeded`](Bench::succeeded), but the state passes through images, as another process would find them in a snapshot.
    #[track_caller]
    pub fn restored(self, build: impl FnOnce(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
        let Ground { ports, sets, .. } = self.ground;
        let saved: Vec<_> = self.objects.iter().map(|o| (o.name().to_owned(), o.kind().to_owned(), o.save())).collect();
        // The second participant, besides the worker, restores the objects.
        let domain = Domain::new(2);
        let mut builder = StateBuilder::new(&domain, HugePages::Never);
        builder.succeed_saved(&saved);
        let course = (&Course::default(), true);
        let bench = Bench::upon((domain, true), builder, (ports, sets), course, |builder| vec![build(builder)]);
        let mut tx = Tx::new(&bench.ground.domain, 1);
        for (name, kind, image) in &saved {
            let object = bench.objects.iter().find(|object| object.name() == name && object.kind() == kind);
            object.map_or(Ok(()), |object| object.restore(&mut tx, image)).expect("an image that fits");
        }
        bench
    }

    fn upon(
        (domain, goes_on): (Arc<Domain>, bool),
        mut builder: StateBuilder,
        (ports, sets): (u16, usize),
        (course, is_local): (&Course, bool),
        build: impl FnOnce(&mut StateBuilder) -> Vec<Box<dyn Stage>>,
    ) -> Bench {
        let stages = build(&mut builder);

        let source = StageUse::new("source").writes(TIMESTAMP_NS, 8).writes(WIRE_LEN, 4).writes(SEQUENCE, 8);
        let sink = StageUse::new("sink").reads(TIMESTAMP_NS, 8).reads(WIRE_LEN, 4).reads(SEQUENCE, 8);
        let sharing = &mut Sharing { is_local: &|_, _| is_local, builder: &mut builder, capacity: sets };
        let chain = Arc::new(Chain::new(stages, &[source, sink], course, sharing).expect("a chain that can be built"));
        let objects = builder.finish();
        let ground = Ground { domain, chain, clock: Clock::Capture, told_ns: Arc::default(), ports, sets, goes_on };
        let bench = Bench::assemble(ground, 1, None).expect("memory for buffers and packet sets");
        Bench { objects, ..bench }
    }

    /// Makes a bench with the chain, the steering and the workers of a plan. Its time is what
    /// [`wait_until`](Self::wait_until) and the packets tell.
    pub fn of_plan(plan: &Plan) -> Result<Bench, RunError> {
        let Foundation { domain, chain } = build(plan)?;
        let told_ns = Arc::<AtomicU64>::default();
        let clock = Clock::Told(Arc::clone(&told_ns));
        let sets = plan.sets_per_worker();
        let ground = Ground { domain, chain, clock, told_ns, ports: plan.ports, sets, goes_on: false };
        Ok(Bench::assemble(ground, plan.workers, Some(Arc::clone(&plan.steering)))?)
    }

    fn assemble(ground: Ground, count: usize, steering: Option<Arc<Steering>>) -> Result<Bench, braid_memory::Error> {
        let pages = HugePages::Never;
        let pool = Pool::new(&PoolConfig { buffers: 1024 * count as u32, jumbos: 8, pages })?;
        let timeline = Arc::new(Timeline::new(count));
        let wires: Vec<Arc<Mutex<Wire>>> = (0..count).map(|_| Arc::default()).collect();
        let worker = |(id, wire): (usize, &Arc<Mutex<Wire>>)| {
            let mut tx = Tx::new(&ground.domain, id);
            if id == 0 && !ground.goes_on {
                start(&ground.chain, &mut tx, ground.ports);
            }
            Worker::new(Parts {
                id,
                chain: Arc::clone(&ground.chain),
                pool: Arc::clone(&pool),
                receive: Box::new(WireQueue(Arc::clone(wire))),
                send: Box::new(WireQueue(Arc::clone(wire))),
                tx,
                clock: ground.clock.clone(),
                timeline: Arc::clone(&timeline),
                ports: ground.ports,
                batch: 64,
                sets: ground.sets,
                pages,
            })
        };
        let workers = wires.iter().enumerate().map(worker).collect::<Result<_, _>>()?;
        Ok(Bench { workers, wires, steering, objects: Vec::new(), sequence: 0, ground })
    }

    /// Lets time pass in steps while nothing arrives; for a bench of a plan.
    pub fn wait_until(&mut self, now_ns: u64) {
        let mut reached = self.ground.told_ns.load(Ordering::Relaxed);
        let step = ((now_ns.saturating_sub(reached)) / WAIT_STEPS).max(WAIT_STEP_NS);
        while reached < now_ns {
            reached = reached.saturating_add(step).min(now_ns);
            // Relaxed: the workers run on this thread.
            self.ground.told_ns.store(reached, Ordering::Relaxed);
            for worker in &mut self.workers {
                worker.step();
            }
        }
    }

    /// Hands in a frame on `port` at `ms` milliseconds.
    pub fn send(&mut self, port: Port, ms: u64, frame: &[u8]) -> Outcome {
        self.send_at(port, ms * 1_000_000, frame)
    }

    /// Like [`send`](Bench::send), with the time in nanoseconds.
    pub fn send_at(&mut self, port: Port, timestamp_ns: u64, frame: &[u8]) -> Outcome {
        self.send_info(FrameInfo { port, timestamp_ns, wire_len: frame.len() as u32, ..FrameInfo::default() }, frame)
    }

    /// Like [`send_at`](Bench::send_at), with all metadata that a source provides, except that the bench assigns the sequence number.
    pub fn send_info(&mut self, info: FrameInfo, frame: &[u8]) -> Outcome {
        let at = match &self.steering {
            Some(steering) => steering.queue(frame, info.link, info.port),
            None => 0,
        };
        let before = self.workers[at].counters().drops.clone();
        let sent = self.hand_in(at, [(info, frame.to_vec())]);
        let more = |(stage, reason, count): &(&str, &'static str, u64)| {
            let earlier = before.iter().find(|(s, r, _)| s == stage && r == reason).map_or(0, |(_, _, count)| count);
            *count > earlier
        };
        let dropped = self.workers[at].counters().drops.iter().find(more).map(|(_, reason, _)| reason);
        Outcome { sent, dropped }
    }

    /// Hands several frames to the first worker as one batch; returns the frames that were sent.
    pub fn send_batch(&mut self, frames: impl IntoIterator<Item = (FrameInfo, Vec<u8>)>) -> Vec<(Port, Vec<u8>)> {
        self.hand_in(0, frames)
    }

    fn hand_in(
        &mut self,
        worker: usize,
        frames: impl IntoIterator<Item = (FrameInfo, Vec<u8>)>,
    ) -> Vec<(Port, Vec<u8>)> {
        let mut latest = self.ground.told_ns.load(Ordering::Relaxed);
        for (info, frame) in frames {
            latest = latest.max(info.timestamp_ns);
            lock(&self.wires[worker]).waiting.push_back((FrameInfo { sequence: self.sequence, ..info }, frame));
            self.sequence += 1;
        }
        self.ground.told_ns.store(latest, Ordering::Relaxed);
        while !lock(&self.wires[worker]).waiting.is_empty() {
            self.workers[worker].step();
        }
        // Any worker may have sent something while time passed: the first one what a function had let wait.
        self.wires.iter().flat_map(|wire| std::mem::take(&mut lock(wire).sent)).collect()
    }

    /// The counters of the first worker.
    pub fn counters(&mut self) -> WorkerCounters {
        self.workers[0].counters().clone()
    }

    /// Ends the run; returns what the first function reports.
    pub fn findings(self) -> Findings {
        let Ground { domain, chain, ports, .. } = &self.ground;
        let (mut findings, mut last_ns) = (vec![Findings::default(); chain.stages().len()], 0);
        let end = |mut worker: Worker| {
            worker.leave();
            worker.end()
        };
        for mut ended in self.workers.into_iter().map(end) {
            findings_of_sets(chain, &mut ended.tables, &mut findings);
            last_ns = last_ns.max(ended.last_ns);
        }
        let told = findings_of_objects(chain, &mut Tx::new(domain, 0), *ports, last_ns, findings);
        told.into_iter().next().map(|(_, findings)| findings).unwrap_or_default()
    }

    /// What the functions say of the first worker's live packet sets, in order: `KEY: WORDS`.
    pub fn described(&mut self) -> Vec<String> {
        let (chain, worker) = (&self.ground.chain, &mut self.workers[0]);
        let groups = 0..chain.groups().len();
        let sets: Vec<_> = groups
            .flat_map(|group| worker.list_sets(group, 0..worker.set_slots(group), usize::MAX, |_| true))
            .collect();
        let describe = |set: &ListedSet| {
            let meanings = worker.describe(chain, set).expect("the chain of the bench");
            let words: Vec<String> = meanings.into_iter().filter_map(|meaning| meaning.words).collect();
            format!("{}: {}", set.key, words.join(", "))
        };
        let mut described: Vec<String> = sets.iter().map(describe).collect();
        described.sort();
        described
    }

    /// The entries that the first function lists, in the order of their numbers: `KIND PROTOCOL END → END, DETAIL`, without a protocol of who is on a link.
    pub fn entries(&mut self) -> Vec<String> {
        let (chain, worker) = (&self.ground.chain, &mut self.workers[0]);
        let (mut told, mut cursor) = (Vec::new(), Some(0));
        while let Some(at) = cursor {
            let listed = worker.list_entries(chain, (0, at), usize::MAX, |_| true).expect("the chain of the bench");
            told.extend(listed.entries.iter().map(|entry| {
                let name = match &entry.about {
                    About::Traffic { protocol: number, .. } => protocol::name(*number).unwrap_or("?").to_owned() + " ",
                    About::OnLink { .. } => String::new(),
                };
                let [one, other] = entry.about.in_words();
                let detail = if entry.detail.is_empty() { String::new() } else { format!(", {}", entry.detail) };
                format!("{} {name}{one} → {other}{detail}", entry.kind)
            }));
            cursor = listed.next;
        }
        told
    }

    /// Tells all functions that the link of a port is down.
    pub fn link_down(&mut self, port: Port) {
        let (chain, worker) = (&self.ground.chain, &mut self.workers[0]);
        for position in 0..chain.stages().len() {
            let mut cursor = Some(0);
            while let Some(at) = cursor {
                cursor = worker.link_down(chain, (position, at), port);
            }
        }
    }

    /// Tells all functions that the link of a port is up; returns what they say, with the ports.
    pub fn link_up(&mut self, port: Port) -> Vec<(Port, Vec<u8>)> {
        self.workers[0].link_up(port);
        self.workers[0].step();
        std::mem::take(&mut lock(&self.wires[0]).sent)
    }

    /// Ends the entries of the first function that are wanted, and returns how many ended and how many are of the configuration.
    #[track_caller]
    pub fn end_entries(&mut self, wanted: impl Fn(&TableEntry) -> bool) -> (u64, u64) {
        let (chain, worker) = (&self.ground.chain, &mut self.workers[0]);
        let (mut ended, mut configured, mut cursor) = (0, 0, Some(0));
        while let Some(at) = cursor {
            let portion = worker.end_entries(chain, (0, at), &wanted).expect("the chain of the bench");
            (ended, configured, cursor) = (ended + portion.ended, configured + portion.configured, portion.next);
        }
        (ended, configured)
    }

    /// The content of a state object, named as in the plan (`function.object`).
    #[track_caller]
    pub fn object(&self, name: &str) -> Vec<u8> {
        match self.objects.iter().find(|object| object.name() == name) {
            Some(object) => object.snapshot(),
            None => panic!("no object `{name}`"),
        }
    }
}

/// Starts the functions before the first packet, as a launch does.
fn start(chain: &Chain, tx: &mut Tx, ports: u16) {
    let mut emitted = Emitted::default();
    for stage in chain.stages() {
        tx.set_now(0);
        stage.start(&mut Event { tx, emitted: &mut emitted, ports }).expect("nobody to conflict with");
        tx.commit().expect("nobody to conflict with");
    }
}

fn lock(wire: &Mutex<Wire>) -> MutexGuard<'_, Wire> {
    wire.lock().expect("the bench runs on one thread")
}

/// Either end of a worker.
struct WireQueue(Arc<Mutex<Wire>>);

impl RxQueue for WireQueue {
    fn receive(&mut self, batch: &mut Batch, buffers: &mut Buffers, limit: usize) -> Received {
        let mut wire = lock(&self.0);
        let before = batch.len();
        while batch.len() - before < limit && batch.room() > 0 {
            let Some((info, bytes)) = wire.waiting.pop_front() else { break };
            assert!(batch.copy_in(buffers, &bytes, &info), "no buffer for a frame of {} bytes", bytes.len());
        }
        if batch.len() > before { Received::Packets } else { Received::Idle }
    }

    fn horizon(&self) -> u64 {
        0
    }

    fn counters(&self) -> RxCounters {
        RxCounters::default()
    }
}

impl TxQueue for WireQueue {
    fn send(&mut self, batch: &Batch, out: &[(u16, Port)]) {
        let sent = out.iter().map(|(i, port)| (*port, batch.bytes(usize::from(*i)).to_vec()));
        lock(&self.0).sent.extend(sent);
    }

    fn progress(&mut self, _: u64) {}

    fn counters(&self) -> TxCounters {
        TxCounters::default()
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        Ok(TxCounters::default())
    }
}
