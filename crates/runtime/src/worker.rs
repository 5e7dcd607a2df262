//! One worker: the way of a batch from receive to send, on one screen ([`Worker::step`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_io::Received;
use braid_memory::thread_time;
use braid_nf::{Index, Logs, Pass, Prefetched, Reason, Verdict, Verdicts};
use braid_packet::{BATCH_MAX, Batch, Buffers, Lineup, Port};
use braid_state::Bringing;

use self::later::{PeriodicTick, periodic_ticks};
use self::onward::Onward;
use self::paced::Pace;
use self::sets::{Sets, indexes};
use crate::attempt::{NoWitness, Stretch, Witness, run_pass};
use crate::chain::Chain;
use crate::counters::{PortCounters, WorkerCounters};
use crate::course::Direction;
use crate::probe::{Probe, Span, TimeSplit};
use crate::schedule::Scheduler;
use crate::trace::Tracer;
use crate::turns::Turns;
use crate::watchdog::Pulse;
use crate::whole::Progress;

mod course;
mod ended;
mod exchange;
mod handover;
mod later;
mod listing;
mod onward;
mod paced;
mod parts;
mod send;
mod sets;
mod traced;
mod whole;

pub use ended::Ended;
pub(crate) use exchange::{Emptied, Gone, Prepared, SetsInUse};
pub(crate) use handover::Moving;
pub use listing::ListedSet;
pub use parts::Parts;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Handled a batch, or let time go on for others.
    Busy,
    /// Nothing to receive now.
    Idle,
    /// Nothing to receive any more.
    End,
}

/// A pinned thread's work: receives batches, takes them through the chain, sends them.
pub struct Worker {
    parts: Parts,
    batch: Batch,
    own: Batch,
    onward: Vec<Onward>,
    /// The batch is one of answers on their way back: they belong to no set.
    goes_back: bool,
    buffers: Buffers,
    sets: Vec<Sets>,
    logs: Logs,
    /// By function, how much a transaction takes on.
    stretches: Vec<Stretch>,
    /// Of each function: where its sets are, if workers share them.
    indexes: Vec<Option<Index>>,
    verdicts: Box<Verdicts>,
    now_ns: Box<[u64; 256]>,
    last_ns: u64,
    todo: Vec<u16>,
    /// The order in which a function handles them.
    lineup: Box<Lineup>,
    aside: Vec<u16>,
    turns: Turns,
    out: Vec<(u16, Port)>,
    ticks: Vec<PeriodicTick>,
    /// Of a capture: how its packets are taken in time.
    pace: Option<Pace>,
    /// The number after that of its last packet, and that of packets which no packet has caused.
    next: u64,
    made_next: u64,
    /// It has let time go on for all workers.
    has_led: bool,
    counters: WorkerCounters,
    /// Processor time of the thread, and when, at the beginning.
    begun: Option<(Duration, Instant)>,
    witness: Box<dyn Witness>,
    probe: Probe,
    tracer: Option<Box<Tracer>>,
    /// While sets come over from former tables: where those go then.
    emptied: Option<Emptied>,
    /// While other state objects take the place of those that its functions use.
    bringing: Option<Bringing>,
    pulse: Option<Arc<Pulse>>,
    /// Whether packets that functions hold back are sent when all workers end.
    drains: bool,
    progress: Progress,
}

impl Worker {
    /// Maps the worker's tables.
    pub fn new(parts: Parts) -> Result<Worker, braid_memory::Error> {
        let layout = Arc::new(parts.chain.layout().clone());
        let groups = parts.chain.groups().iter();
        let sets = groups.map(|group| Sets::new(group, parts.sets, parts.pages)).collect::<Result<_, _>>()?;
        let ticks = periodic_ticks(&parts.chain, parts.share());
        let pace = Pace::of(&parts.chain, &parts.clock);
        Ok(Worker {
            batch: Batch::new(&parts.pool, &layout),
            own: Batch::new(&parts.pool, &layout),
            onward: Vec::new(),
            goes_back: false,
            buffers: Buffers::new(&parts.pool),
            sets,
            logs: Logs::default(),
            stretches: vec![Stretch::default(); parts.chain.stages().len()],
            indexes: indexes(&parts.chain),
            verdicts: Box::default(),
            now_ns: Box::new([0; 256]),
            last_ns: 0,
            todo: Vec::with_capacity(BATCH_MAX),
            lineup: Box::default(),
            aside: Vec::with_capacity(BATCH_MAX),
            turns: Turns::default(),
            out: Vec::with_capacity(BATCH_MAX),
            ticks,
            pace,
            next: 0,
            made_next: 0,
            has_led: false,
            counters: WorkerCounters { reached: vec![0; parts.chain.stages().len()], ..WorkerCounters::default() },
            begun: None,
            witness: Box::new(NoWitness),
            probe: Probe::Off,
            tracer: None,
            emptied: None,
            bringing: None,
            pulse: None,
            drains: true,
            progress: Progress::default(),
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
        self.begun = Some((thread_time(), Instant::now()));
        self.probe.begin();
    }

    /// The run is to end: whether there are still packets that have arrived, to be handled by further steps.
    pub fn close(&mut self) -> bool {
        self.parts.receive.close()
    }

    /// One round: receive, handle, send, expire.
    pub fn step(&mut self) -> Step {
        let received = match self.pace {
            None => self.receive(),
            Some(pace) => self.receive_in_time(pace),
        };
        match received {
            Received::Packets => {
                self.probe.passed(Span::Receive, self.batch.len());
                self.arrive();
                self.probe.passed(Span::Parse, self.batch.len());
            }
            Received::Idle => {
                self.rest();
                self.probe.passed(Span::Idle, 0);
                // Others go on now, and soon wait for the next time.
                return if std::mem::take(&mut self.has_led) { Step::Busy } else { Step::Idle };
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

    /// Takes a batch, whatever the time.
    #[inline(always)]
    fn receive(&mut self) -> Received {
        self.parts.receive.receive(&mut self.batch, &mut self.buffers, self.parts.batch)
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
        self.sets.iter_mut().for_each(Sets::forget);
        if !self.parts.receive.has_parsed() {
            self.parse();
        }
        self.last_ns = self.parts.clock.stamp(&self.batch, self.last_ns, &mut self.now_ns);
        self.parts.timeline.publish(self.parts.id, self.now_ns[0]);
        self.counters.packets_in += self.batch.len() as u64;
        let ports = self.parts.ports;
        self.verdicts.expect(self.batch.records().iter().map(|record| Chain::default_port(record.port, ports)));
        self.counters.bytes_in += self.batch.wire_bytes();
        if !self.counters.ports.is_empty() {
            self.count_arrivals();
        }
        self.take_up();
    }

    /// The batch is as it comes to the first function that handles it.
    #[inline(always)]
    fn take_up(&mut self) {
        self.witness.received(&self.batch, &self.verdicts);
        self.todo.clear();
        self.todo.extend(0..self.batch.len() as u16);
        if self.tracer.is_some() {
            self.select_traced();
        }
    }

    /// Finds the headers of all packets; and their keys, if those of the first function are always made, from packets as they came.
    fn parse(&mut self) {
        match self.parts.chain.first_keys() {
            Some(group) => self.sets[group].parse(&self.parts.chain.groups()[group], &mut self.batch),
            None => self.batch.parse_all(),
        }
    }

    /// Takes the packets that are there through the functions, as they are met from one side.
    fn along(&mut self, direction: Direction) {
        if self.parts.chain.course().atomic {
            return self.one_by_one(direction);
        }
        self.through(self.parts.chain.positions(direction));
    }

    /// The same through some functions, one after another.
    #[inline(always)]
    fn through(&mut self, positions: impl Iterator<Item = usize>) {
        for position in positions {
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
        if let Some(group) = chain.group_of(position).filter(|_| !self.goes_back) {
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
        self.lineup.set(todo);
        let mut pass = Pass {
            tx: &mut self.parts.tx,
            batch: &mut self.batch,
            sets: chain.group_of(position).filter(|_| !self.goes_back).map(|group| self.sets[group].lend()),
            index: self.indexes[position].as_ref(),
            todo: &mut self.lineup,
            verdicts: &mut self.verdicts,
            now_ns: &self.now_ns,
            ports: self.parts.ports,
            prefetched: Prefetched::default(),
            logs: &mut self.logs,
            goes_on: false,
            goes_back: self.goes_back,
            is_logged: matches!(self.probe, Probe::Accesses(_)),
            is_timed: self.probe.is_on(),
        };
        let stage = &*chain.stages()[position];
        let stretch = &mut self.stretches[position];
        run_pass(stage, position, &mut pass, stretch, &mut self.counters, &mut self.probe, &mut *self.witness);
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
        let horizon = self.note_next();
        self.promise(horizon);
        if !self.parts.clock.is_of_capture() {
            self.expire();
        }
        self.tick();
    }
}
