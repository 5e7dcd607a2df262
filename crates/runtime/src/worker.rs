//! One worker: the way of a batch from receive to send, on one screen ([`Worker::step`]).

use std::sync::Arc;

use braid_io::{Received, RxQueue, TxQueue};
use braid_memory::HugePages;
use braid_nf::packet::key::Keys;
use braid_nf::{Logs, Pass, PassSets, Reason, SetSlot, SetTables, Tick, Verdict, Verdicts};
use braid_packet::{BATCH_MAX, Batch, Buffers, Pool, Port};
use braid_state::Tx;

use crate::attempt::{NoWitness, Witness, run_event, run_pass};
use crate::chain::{Chain, Group};
use crate::clock::{Clock, Timeline};
use crate::counters::{PortCounters, WorkerCounters};
use crate::course::{Direction, Full};
use crate::expiry::{Expiring, Scan};
use crate::live::Seen;
use crate::probe::{Probe, Span, TimeSplit};
use crate::schedule::Scheduler;
use crate::trace::Tracer;
use crate::turns::Turns;
use crate::watchdog::Pulse;

mod course;
mod exchange;
mod handover;
mod listing;
mod send;
mod traced;

pub use exchange::Prepared;
pub(crate) use handover::Moving;
pub use listing::ListedSet;

/// How much time passes at the end of a run, at most, for packets that functions hold back: an hour.
const DRAIN_MAX_NS: u64 = 3600 * 1_000_000_000;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Handled a batch.
    Busy,
    /// Nothing to receive now.
    Idle,
    /// Nothing to receive any more.
    End,
}

/// What a worker is made of.
pub struct Parts {
    /// Its number, from 0.
    pub id: usize,
    /// The functions.
    pub chain: Arc<Chain>,
    /// Buffers of the run.
    pub pool: Arc<Pool>,
    /// Where packets come from.
    pub receive: Box<dyn RxQueue>,
    /// Where packets go.
    pub send: Box<dyn TxQueue>,
    /// Its transaction.
    pub tx: Tx,
    /// Time.
    pub clock: Clock,
    /// Everybody's time.
    pub timeline: Arc<Timeline>,
    /// Ports of the plan.
    pub ports: u16,
    /// Most packets in a batch.
    pub batch: usize,
    /// Packet sets per group that this worker may keep.
    pub sets: usize,
    /// Pages for its tables.
    pub pages: HugePages,
}

/// The sets of one group on this worker.
struct Sets {
    tables: SetTables,
    keys: Box<Keys>,
    slots: Box<[SetSlot; 256]>,
    idle_ms: Box<[u32; 256]>,
    scan: Scan,
    ready: bool,
}

/// A pinned thread's work: receives batches, takes them through the chain, sends them.
pub struct Worker {
    parts: Parts,
    batch: Batch,
    own: Batch,
    buffers: Buffers,
    sets: Vec<Sets>,
    logs: Logs,
    verdicts: Box<Verdicts>,
    now_ns: Box<[u64; 256]>,
    last_ns: u64,
    todo: Vec<u16>,
    aside: Vec<u16>,
    turns: Turns,
    out: Vec<(u16, Port)>,
    ticks: Vec<PeriodicTick>,
    counters: WorkerCounters,
    begun_cpu_ns: Option<u64>,
    witness: Box<dyn Witness>,
    probe: Probe,
    tracer: Option<Box<Tracer>>,
    pulse: Option<Arc<Pulse>>,
    /// Whether packets that functions hold back are sent when all workers end.
    drains: bool,
}

struct PeriodicTick {
    stage: usize,
    tick: usize,
    period_ns: u64,
    due_ns: u64,
}

impl Worker {
    /// Maps the worker's tables.
    pub fn new(parts: Parts) -> Result<Worker, braid_memory::Error> {
        let layout = Arc::new(parts.chain.layout().clone());
        let groups = parts.chain.groups().iter();
        let sets = groups.map(|group| Sets::new(group, parts.sets, parts.pages)).collect::<Result<_, _>>()?;
        // Periods concern everybody's state: the first worker keeps them.
        let ticks = if parts.id == 0 { periodic_ticks(&parts.chain) } else { Vec::new() };
        Ok(Worker {
            batch: Batch::new(&parts.pool, &layout),
            own: Batch::new(&parts.pool, &layout),
            buffers: Buffers::new(&parts.pool),
            sets,
            logs: Logs::default(),
            verdicts: Box::default(),
            now_ns: Box::new([0; 256]),
            last_ns: 0,
            todo: Vec::with_capacity(BATCH_MAX),
            aside: Vec::with_capacity(BATCH_MAX),
            turns: Turns::default(),
            out: Vec::with_capacity(BATCH_MAX),
            ticks,
            counters: WorkerCounters { reached: vec![0; parts.chain.stages().len()], ..WorkerCounters::default() },
            begun_cpu_ns: None,
            witness: Box::new(NoWitness),
            probe: Probe::Off,
            tracer: None,
            pulse: None,
            drains: true,
            parts,
        })
    }

    /// Has every commit told to `witness`.
    pub fn watch(&mut self, witness: Box<dyn Witness>) {
        self.witness = witness;
    }

    /// Has every span of its batches told to `probe`.
    pub fn probe(&mut self, probe: Probe) {
        if let Probe::Virtual(worker) = &probe {
            worker.govern(&mut self.parts.tx);
        }
        self.probe = probe;
    }

    /// Counts by port too: somebody may look while it runs.
    pub fn count_ports(&mut self) {
        self.counters.ports = vec![PortCounters::default(); self.parts.ports.into()];
    }

    /// Takes the time of every stage from now on, if nobody else does.
    pub fn begin_timing(&mut self) {
        if !self.probe.is_on() {
            self.probe = Probe::Split(Box::new(TimeSplit::new(self.parts.chain.stages().len())));
            self.probe.begin();
        }
    }

    /// Forgets what [`begin_timing`](Self::begin_timing) has found out.
    pub fn end_timing(&mut self) {
        if self.probe.split().is_some() {
            self.probe = Probe::Off;
        }
    }

    /// Says from now on where it is.
    pub(crate) fn pulse(&mut self) -> Arc<Pulse> {
        Arc::clone(self.pulse.get_or_insert_default())
    }

    /// Has its transaction yield to a scheduler.
    pub fn govern(&mut self, scheduler: &Arc<Scheduler>, id: usize) {
        scheduler.govern(id, &mut self.parts.tx);
    }

    /// What functions hold back when it ends stays where it is: the state has been saved, and goes on elsewhere.
    pub fn keep_held(&mut self) {
        self.drains = false;
    }

    /// Called on the worker's own thread before the first step.
    pub fn begin(&mut self) {
        self.begun_cpu_ns = Some(thread_cpu_ns());
        self.probe.begin();
    }

    /// The run is to end: whether there are still packets that have arrived, to be handled by further steps.
    pub fn close(&mut self) -> bool {
        self.parts.receive.close()
    }

    /// One round: receive, handle, send, expire.
    pub fn step(&mut self) -> Step {
        match self.parts.receive.receive(&mut self.batch, &mut self.buffers, self.parts.batch) {
            Received::Packets => {
                self.probe.passed(Span::Receive, self.batch.len());
                self.arrive();
                self.probe.passed(Span::Parse, self.batch.len());
            }
            Received::Idle => {
                self.rest();
                self.probe.passed(Span::Idle, 0);
                return Step::Idle;
            }
            Received::End => return Step::End,
        }
        match self.parts.chain.course().outside() {
            None => self.along(Direction::Forward),
            Some(outside) => self.by_turns(outside),
        }
        if self.probe.is_on() {
            self.sample();
        }
        let packets = self.batch.len();
        self.send();
        self.probe.passed(Span::Send, packets);
        self.expire();
        self.tick();
        self.probe.passed(Span::Expire, packets);
        Step::Busy
    }

    #[cold]
    fn sample(&mut self) {
        if let Some(sets) = self.sets.first().filter(|sets| sets.ready) {
            self.probe.sample(self.batch.len(), self.last_ns, |i| sets.keys.key(i));
        }
    }

    /// A batch has come: parse it, note its time, expect every packet to go straight through.
    fn arrive(&mut self) {
        self.counters.batches += 1;
        if !self.parts.receive.has_parsed() {
            self.batch.parse_all();
        }
        self.witness.received(&self.batch);
        self.last_ns = self.parts.clock.stamp(&self.batch, self.last_ns, &mut self.now_ns);
        self.parts.timeline.publish(self.parts.id, self.now_ns[0]);
        self.todo.clear();
        self.todo.extend(0..self.batch.len() as u16);
        self.counters.packets_in += self.batch.len() as u64;
        let ports = self.parts.ports;
        self.verdicts.expect(self.batch.records().iter().map(|record| Chain::default_port(record.port, ports)));
        self.counters.bytes_in += self.batch.wire_bytes();
        if !self.counters.ports.is_empty() {
            self.count_arrivals();
        }
        for sets in &mut self.sets {
            sets.ready = false;
        }
        if self.tracer.is_some() {
            self.select_traced();
        }
    }

    /// Takes the packets that are there through the functions, as they are met from one side.
    fn along(&mut self, direction: Direction) {
        for position in self.parts.chain.positions(direction) {
            if self.todo.is_empty() {
                break;
            }
            if self.parts.chain.course().when(position).is_always() {
                self.pass(position);
            } else {
                self.pass_some(position);
            }
        }
    }

    /// One function's handlers over the packets that have come this far.
    fn pass(&mut self, position: usize) {
        let chain = &*self.parts.chain;
        if let Some(group) = chain.group_of(position) {
            let sets = &mut self.sets[group];
            if !sets.ready {
                sets.look_up(&chain.groups()[group], &self.batch, &self.todo, &self.now_ns);
            }
        }
        self.counters.reached[position] += self.todo.len() as u64;
        self.probe.passed(Span::LookUp(position), self.todo.len());
        if let Some(pulse) = &self.pulse {
            pulse.enter(position);
        }
        if self.tracer.is_some() {
            self.pass_traced(position);
        } else {
            let todo = std::mem::take(&mut self.todo);
            self.run_stretch(position, &todo);
            self.todo = todo;
        }
        if let Some(pulse) = &self.pulse {
            pulse.leave();
        }
        if self.verdicts.any_dropped() {
            self.leave_out_drops(position);
        }
    }

    /// The function at `position` over some packets of the batch.
    #[inline(always)]
    fn run_stretch(&mut self, position: usize, todo: &[u16]) {
        let chain = &*self.parts.chain;
        let mut pass = Pass {
            tx: &mut self.parts.tx,
            batch: &mut self.batch,
            sets: chain.group_of(position).map(|group| self.sets[group].lend()),
            todo,
            verdicts: &mut self.verdicts,
            now_ns: &self.now_ns,
            ports: self.parts.ports,
            logs: &mut self.logs,
        };
        let stage = &*chain.stages()[position];
        run_pass(stage, position, &mut pass, &mut self.counters, &mut self.probe, &mut *self.witness);
    }

    /// Counts the packets that a function dropped, those in a row with one reason together, and leaves them out.
    fn leave_out_drops(&mut self, position: usize) {
        let (verdicts, drops) = (&self.verdicts, &mut self.counters.drops);
        let name = self.parts.chain.stages()[position].name();
        let mut row: Option<(Reason, u64)> = None;
        self.todo.retain(|&i| {
            let Verdict::Drop(reason) = verdicts.get(i as usize) else { return true };
            row = Some(match row {
                Some((same, count)) if same == reason => (same, count + 1),
                Some((other, count)) => {
                    drops.add(name, other, count);
                    (reason, 1)
                }
                None => (reason, 1),
            });
            false
        });
        if let Some((reason, count)) = row {
            drops.add(name, reason, count);
        }
    }

    /// Nothing came: let time and everybody who waits for this worker go on.
    fn rest(&mut self) {
        self.last_ns = self.parts.clock.idle(self.last_ns);
        self.parts.timeline.publish(self.parts.id, u64::MAX);
        self.parts.send.progress(self.parts.receive.horizon());
        if !matches!(self.parts.clock, Clock::Capture) {
            self.expire();
        }
        self.tick();
    }

    fn expire(&mut self) {
        for (group, sets) in self.sets.iter_mut().enumerate() {
            let shared = self.parts.chain.groups()[group].shared;
            if (shared && self.parts.id != 0) || (!shared && sets.tables.is_empty()) {
                continue;
            }
            let mut on = Expiring {
                chain: &self.parts.chain,
                group,
                tables: &mut sets.tables,
                tx: &mut self.parts.tx,
                emitted: &mut self.logs.emitted,
                ports: self.parts.ports,
                counters: &mut self.counters,
                pulse: self.pulse.as_deref(),
            };
            if shared {
                let reached = self.parts.timeline.reached(self.last_ns);
                let lives = &mut self.logs.lives;
                sets.scan.run_shared(reached, &mut on, lives, &mut *self.witness);
            } else {
                sets.scan.run(self.last_ns, &mut on, &mut *self.witness);
                if self.parts.chain.groups()[group].full == Full::EvictOldest {
                    sets.scan.evict(self.last_ns, self.parts.sets, &mut on, &mut *self.witness);
                }
            }
        }
    }

    /// Periods that have come round for every worker.
    fn tick(&mut self) {
        if self.ticks.is_empty() {
            return;
        }
        let reached = self.parts.timeline.reached(self.last_ns);
        for periodic in &mut self.ticks {
            if reached < periodic.due_ns {
                continue;
            }
            periodic.due_ns = reached - reached % periodic.period_ns + periodic.period_ns;
            let stage = &*self.parts.chain.stages()[periodic.stage];
            let (tx, emitted, tick) = (&mut self.parts.tx, &mut self.logs.emitted, Tick(periodic.tick));
            if let Some(pulse) = &self.pulse {
                pulse.enter(periodic.stage);
            }
            let sequence =
                run_event(tx, emitted, self.parts.ports, reached, &mut self.counters, |event| stage.tick(event, tick));
            if let Some(pulse) = &self.pulse {
                pulse.leave();
            }
            self.witness.ticked(&mut self.parts.tx, periodic.stage, periodic.tick, reached, sequence);
        }
        if !self.logs.emitted.is_empty() {
            self.send_own();
        }
    }

    /// Lets time pass, tick by tick, until no function holds packets back. The last worker to end does it: nobody else is left.
    fn drain(&mut self) {
        self.ticks = periodic_ticks(&self.parts.chain);
        let Some(period_ns) = self.ticks.iter().map(|periodic| periodic.period_ns).min() else { return };
        let end_ns = self.last_ns.saturating_add(DRAIN_MAX_NS);
        while self.last_ns < end_ns && self.holds() {
            self.last_ns += period_ns;
            self.tick();
        }
    }

    fn holds(&mut self) -> bool {
        let (chain, mut holds) = (Arc::clone(&self.parts.chain), false);
        for stage in chain.stages() {
            let (tx, emitted) = (&mut self.parts.tx, &mut self.logs.emitted);
            run_event(tx, emitted, self.parts.ports, self.last_ns, &mut self.counters, |event| {
                holds |= stage.holds(event)?;
                Ok(())
            });
        }
        holds
    }

    /// Ends the worker: nothing will come any more. What its transmit queue took is in [`Ended::sent`].
    pub fn end(mut self) -> Ended {
        if self.parts.timeline.leave(self.parts.id) && self.drains {
            self.drain();
        }
        self.parts.send.progress(u64::MAX);
        self.count_sets();
        self.count_time();
        Ended {
            id: self.parts.id,
            counters: self.counters,
            received: self.parts.receive.counters(),
            damages: self.parts.receive.damages(),
            tables: self.sets.into_iter().map(|sets| sets.tables).collect(),
            sent: self.parts.send.finish(),
            last_ns: self.last_ns,
            witness: self.witness,
            probe: self.probe,
        }
    }

    /// What it has counted so far.
    pub fn counters(&mut self) -> &WorkerCounters {
        self.count_sets();
        &self.counters
    }

    /// What can be seen of it between two batches, on its own thread.
    pub fn seen(&mut self) -> Seen {
        self.count_sets();
        self.count_time();
        let local = |(group, _): &(usize, &Sets)| !self.parts.chain.groups()[*group].shared;
        let room = |(_, sets): (usize, &Sets)| (sets.tables.len(), sets.tables.capacity());
        Seen {
            worker: self.parts.id,
            ended: false,
            counters: self.counters.clone(),
            received: self.parts.receive.counters(),
            tables: self.sets.iter().enumerate().filter(local).map(room).collect(),
            now_ns: self.last_ns,
            split: self.probe.split().map(TimeSplit::so_far),
        }
    }

    fn count_time(&mut self) {
        self.counters.turns = self.parts.tx.stats().turns;
        self.counters.cpu_ns = self.begun_cpu_ns.map_or(0, |begun| thread_cpu_ns() - begun);
    }

    fn count_sets(&mut self) {
        let lives = self.sets.iter().map(|sets| sets.tables.lives());
        self.counters.sets_refused = self.sets.iter().map(|sets| sets.tables.refused()).sum();
        let shared = (self.logs.lives.created, self.logs.lives.ended);
        let (created, ended) = lives.fold(shared, |(c, e), (created, ended)| (c + created, e + ended));
        self.counters.sets_created = created;
        self.counters.sets_expired = ended;
        // A shared set may end on another worker than the one on which it became live: the sum over workers counts.
        self.counters.sets_live = created.wrapping_sub(ended);
    }
}

/// Processor time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What is left of a worker.
pub struct Ended {
    /// Its number.
    pub id: usize,
    /// What it counted.
    pub counters: WorkerCounters,
    /// What its queue delivered.
    pub received: braid_io::RxCounters,
    /// Damage found in the source.
    pub damages: Vec<braid_io::capture::Damage>,
    /// Its packet sets, by group.
    pub tables: Vec<SetTables>,
    /// What its transmit queue took, or why something is missing.
    pub sent: Result<braid_io::TxCounters, braid_io::SinkError>,
    /// Its latest time.
    pub last_ns: u64,
    /// Whoever watched it.
    pub witness: Box<dyn Witness>,
    /// Whoever took its time.
    pub probe: Probe,
}

impl Sets {
    fn new(group: &Group, sets: usize, pages: HugePages) -> Result<Sets, braid_memory::Error> {
        Ok(Sets {
            tables: SetTables::new(group.capacity(sets), group.state_bytes, group.extractor.shape(), pages)?,
            keys: Keys::boxed(),
            slots: Box::new([SetSlot::MISS; 256]),
            idle_ms: Box::new([0; 256]),
            scan: Scan::default(),
            ready: false,
        })
    }

    #[inline]
    fn look_up(&mut self, group: &Group, batch: &Batch, todo: &[u16], now_ns: &[u64; 256]) {
        group.extractor.extract_batch(batch, &mut self.keys);
        if !group.shared {
            self.lend().look_up(todo, now_ns);
        }
        self.ready = true;
    }

    fn lend(&mut self) -> PassSets<'_> {
        PassSets { tables: &mut self.tables, keys: &self.keys, slots: &mut self.slots, idle_ms: &mut self.idle_ms }
    }
}

fn periodic_ticks(chain: &Chain) -> Vec<PeriodicTick> {
    let all = chain.stages().iter().enumerate().flat_map(|(stage, function)| {
        function.ticks().into_iter().enumerate().map(move |(tick, period)| PeriodicTick {
            stage,
            tick,
            period_ns: (period.as_nanos() as u64).max(1),
            due_ns: 0,
        })
    });
    all.collect()
}
