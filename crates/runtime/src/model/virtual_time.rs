//! Many workers in virtual time on one thread: how a run would perform on a machine with that many cores.
//!
//! The workers are real, with real handlers, objects and transactions; only the time is simulated. Each worker has a clock, to which every stage,
//! access and commit adds its known cost. At each point where a transaction could meet another one, the worker with the earliest clock
//! continues. So conflicts are real: a commit fails because another worker, earlier in virtual time, has changed what was read. Moving a cache
//! line between cores costs time too: a directory knows who has a copy, and a line that many workers write is handed over one at a time. The entry
//! of a shared set is prefetched some packets before it is locked, so the transfer overlaps with other work unless another worker takes the line
//! in between.
//!
//! Not modelled: caches that become too small, memory bandwidth, hyper-threads, NUMA, the network card.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_nf::AHEAD;
use braid_stm::{Tx, YieldPoint};

use crate::observe::probe::Span;
use crate::worker::{Ended, Step, Worker};

/// Words of a coroutine's stack: half a MiB.
const STACK_WORDS: usize = 1 << 16;
/// A wait is at most 2 to this power times the first one.
const LONGER_MAX: u32 = 6;

/// The cost of operations on one core, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Costs {
    /// Receiving a packet.
    pub receive: f64,
    /// Parsing a packet.
    pub parse: f64,
    /// Sending a packet.
    pub send: f64,
    /// Expiry and ticks, per packet.
    pub expire: f64,
    /// Fixed cost of a batch.
    pub batch: f64,
    /// Costs per packet that no stage accounts for: memory that is touched for the first time.
    pub memory: f64,
    /// By function.
    pub stages: Vec<StageCosts>,
    /// Fetching a line that another core has changed, or invalidating copies in other cores on a write.
    pub transfer: f64,
    /// The first wait for a lock or turn that is taken.
    pub wait: f64,
}

/// The costs of one function, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageCosts {
    /// Key extraction and set look-up of a packet.
    pub look_up: f64,
    /// Handling a packet, without its log entries in an attempt that has to commit.
    pub packet: f64,
    /// A read or a buffered write in such an attempt, including the work that goes with it.
    pub access: f64,
    /// Handling a packet again after an attempt that was rolled back, when its data is in the cache.
    pub packet_again: f64,
    /// A read or a buffered write of a packet that is handled again.
    pub access_again: f64,
    /// Rolling back what an attempt did with a packet.
    pub undo: f64,
    /// Fixed cost of a commit.
    pub commit: f64,
    /// Cost that each read or write adds to a commit.
    pub commit_access: f64,
    /// Whether the function has state objects; if so, its packets are charged one by one.
    pub has_objects: bool,
}

/// The workers of a model and what they share.
#[derive(Debug)]
pub struct Cluster(Mutex<State>);

#[derive(Debug)]
struct State {
    costs: Costs,
    workers: Vec<Clocked>,
    /// The earliest clock of all workers except the running one.
    next_ps: u64,
    lines: HashMap<usize, Line>,
    random: u64,
    transfers: u64,
}

#[derive(Clone, Debug, Default)]
struct Clocked {
    clock_ps: u64,
    stage: usize,
    /// Log entries of the attempt that have been charged.
    logged: usize,
    /// Number of upcoming packets that an attempt handled before it was rolled back.
    again: usize,
    /// The current packet is one of them.
    is_again: bool,
    /// Consecutive waits.
    waits: u32,
}

/// Which workers have a copy of a cache line.
#[derive(Debug, Default)]
struct Line {
    copies: [u64; 4],
    /// When the line has arrived at its latest owner.
    free_ps: u64,
}

impl Line {
    fn has(&self, worker: usize) -> bool {
        self.copies[worker / 64] & (1 << (worker % 64)) != 0
    }

    fn is_only(&self, worker: usize) -> bool {
        self.has(worker) && self.copies.iter().map(|word| word.count_ones()).sum::<u32>() == 1
    }

    fn is_cold(&self) -> bool {
        self.copies == [0; 4]
    }
}

fn ps(ns: f64) -> u64 {
    (ns * 1000.0).max(0.0) as u64
}

impl State {
    /// The next value of xorshift64, as a factor with mean 1.
    fn jitter(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        0.5 + (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn spend(&mut self, worker: usize, ns: f64) {
        self.workers[worker].clock_ps += ps(ns);
    }

    /// Charges an access to a line that was requested `ahead_ps` earlier.
    fn touch(&mut self, worker: usize, address: usize, write: bool, ahead_ps: u64) {
        let line = self.lines.entry(address).or_default();
        let near = if write { line.is_only(worker) } else { line.has(worker) };
        if !near && !line.is_cold() {
            let now = self.workers[worker].clock_ps;
            // A request made before another worker took the line has been in vain.
            let asked = if line.free_ps > now.saturating_sub(ahead_ps) { now } else { now - ahead_ps };
            let came = asked.max(line.free_ps) + ps(self.costs.transfer);
            self.workers[worker].clock_ps = now.max(came);
            if write {
                line.free_ps = now.max(came);
            }
            self.transfers += 1;
        }
        if write {
            line.copies = [0; 4];
        }
        line.copies[worker / 64] |= 1 << (worker % 64);
    }

    /// Charges the log entries that handlers have added since the last point; a conflict may have shortened the logs.
    fn pay_for_logs(&mut self, worker: usize, logged: usize, stage: &StageCosts) {
        let Clocked { logged: before, is_again, .. } = self.workers[worker];
        let access = if is_again { stage.access_again } else { stage.access };
        self.workers[worker].logged = logged;
        self.spend(worker, access * logged.saturating_sub(before) as f64);
    }

    /// Charges the next packet of the handlers, which may be one that they handled before.
    fn turn_to_packet(&mut self, worker: usize, stage: &StageCosts) {
        let clocked = &mut self.workers[worker];
        clocked.is_again = clocked.again > 0;
        clocked.again = clocked.again.saturating_sub(1);
        let packet = if clocked.is_again { stage.packet_again } else { stage.packet };
        let jitter = self.jitter();
        self.spend(worker, packet * jitter);
    }

    /// Charges the cost of a point of a transaction.
    fn charge(&mut self, worker: usize, point: YieldPoint) {
        let stage = self.costs.stages.get(self.workers[worker].stage).copied().unwrap_or_default();
        match point {
            YieldPoint::Packet { logged } => {
                self.pay_for_logs(worker, logged, &stage);
                self.turn_to_packet(worker, &stage);
            }
            // The reads of an attempt that settles are part of the cost of its packets.
            YieldPoint::Begin | YieldPoint::Settle => self.workers[worker].logged = 0,
            YieldPoint::Read => {}
            YieldPoint::Lock { logged } => {
                self.pay_for_logs(worker, logged, &stage);
                self.spend(worker, stage.commit);
            }
            YieldPoint::Validate => {
                self.spend(worker, stage.commit_access * self.workers[worker].logged as f64);
            }
            YieldPoint::Publish => {}
            YieldPoint::Wait => {
                // Waits grow longer, as those of `Tx` do.
                let longer = 1 << self.workers[worker].waits.min(LONGER_MAX);
                self.workers[worker].waits += 1;
                self.spend(worker, self.costs.wait * f64::from(longer));
                return;
            }
            YieldPoint::Touch { line, write } => self.touch(worker, line, write, 0),
            YieldPoint::Hold { line } => self.touch(worker, line, true, ps(AHEAD as f64 * stage.packet)),
        }
        self.workers[worker].waits = 0;
    }
}

impl Cluster {
    /// Creates workers that start at about the same time; the seed varies their start times and the costs of packets a little.
    pub fn new(workers: usize, costs: &Costs, seed: u64) -> Arc<Cluster> {
        let random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut state = State {
            costs: costs.clone(),
            workers: vec![Clocked::default(); workers],
            next_ps: 0,
            lines: HashMap::new(),
            random,
            transfers: 0,
        };
        for worker in 0..workers {
            let apart = (state.jitter() - 0.5) * 10_000.0;
            state.spend(worker, apart);
        }
        Arc::new(Cluster(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // There is one thread: the lock is never contended, and no change is left half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker's time in nanoseconds.
    pub fn now_ns(&self, worker: usize) -> u64 {
        self.lock().workers[worker].clock_ps / 1000
    }

    /// How often a line moved between workers.
    pub fn transfers(&self) -> u64 {
        self.lock().transfers
    }
}

/// One worker's view of the model.
#[derive(Clone, Debug)]
pub struct VirtualWorker {
    cluster: Arc<Cluster>,
    id: usize,
}

impl VirtualWorker {
    /// The view of the worker with number `id`.
    pub fn new(cluster: &Arc<Cluster>, id: usize) -> VirtualWorker {
        VirtualWorker { cluster: Arc::clone(cluster), id }
    }

    /// Makes the worker's transaction charge its points and give way to workers that are earlier.
    pub(crate) fn govern(&self, tx: &mut Tx) {
        let VirtualWorker { cluster, id } = self.clone();
        tx.yield_with(move |point| {
            let give_way = {
                let mut state = cluster.lock();
                state.charge(id, point);
                point.is_switch() && state.workers[id].clock_ps > state.next_ps
            };
            if give_way && generator::is_generator() {
                give_way_to_others();
            }
        });
    }

    /// Charges the rollback of `packets` packets, which will be handled again.
    pub(crate) fn aborted(&mut self, packets: usize) {
        let mut state = self.cluster.lock();
        state.workers[self.id].again += packets;
        let at = state.workers[self.id].stage;
        let undo = state.costs.stages.get(at).map_or(0.0, |stage| stage.undo);
        state.spend(self.id, undo * packets as f64);
    }

    pub(crate) fn passed(&mut self, span: Span, packets: usize) {
        let mut state = self.cluster.lock();
        let packets = packets as f64;
        let stage = |at: usize| state.costs.stages.get(at).copied().unwrap_or_default();
        let ns = match span {
            Span::Receive => state.costs.batch + (state.costs.receive + state.costs.memory) * packets,
            Span::Parse => state.costs.parse * packets,
            Span::LookUp(at) => stage(at).look_up * packets,
            Span::Handlers(at) if !stage(at).has_objects => stage(at).packet * packets,
            Span::Handlers(_) | Span::Commit(_) => 0.0,
            Span::Send => state.costs.send * packets,
            Span::Expire => state.costs.expire * packets,
            Span::Idle => 1000.0,
        };
        if let Span::LookUp(at) = span {
            (state.workers[self.id].stage, state.workers[self.id].again) = (at, 0);
        }
        state.spend(self.id, ns);
    }
}

#[allow(deprecated)] // The `Scope` that replaces it cannot be reached from within a handler.
fn give_way_to_others() {
    generator::yield_with(Outcome(None));
}

/// What a coroutine yields: `None`, or the ended worker.
struct Outcome(Option<Box<Ended>>);

/// Runs all workers to their end, always the one with the earliest clock.
pub(crate) fn run(workers: Vec<Worker>, cluster: &Arc<Cluster>) -> Vec<Ended> {
    let mut coroutines: Vec<_> = workers.into_iter().map(coroutine).collect();
    let mut ended: Vec<Option<Ended>> = coroutines.iter().map(|_| None).collect();
    let mut order: BinaryHeap<Reverse<(u64, usize)>> = {
        let state = cluster.lock();
        state.workers.iter().enumerate().map(|(id, worker)| Reverse((worker.clock_ps, id))).collect()
    };
    while let Some(Reverse((_, id))) = order.pop() {
        cluster.lock().next_ps = order.peek().map_or(u64::MAX, |Reverse((clock, _))| *clock);
        match coroutines[id].resume() {
            Some(Outcome(Some(end))) => ended[id] = Some(*end),
            Some(Outcome(None)) | None => {
                let clock = cluster.lock().workers[id].clock_ps;
                order.push(Reverse((clock, id)));
            }
        }
    }
    ended.into_iter().flatten().collect()
}

#[allow(deprecated)] // See `give_way_to_others`.
fn coroutine(mut worker: Worker) -> generator::Generator<'static, (), Outcome> {
    generator::Gn::new_opt(STACK_WORDS, move || {
        loop {
            match worker.step() {
                Step::Busy => {}
                Step::Idle => give_way_to_others(),
                Step::End => break,
            }
        }
        worker.leave();
        Outcome(Some(Box::new(worker.end())))
    })
}
