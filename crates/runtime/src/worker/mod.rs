//! One worker: the path of a batch from receive to send. [`Worker::step`] shows it on one screen.

use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_io::{Bell, Received, Waited};
use braid_memory::thread_time;
use braid_nf::{Index, Logs, Pass, Prefetched, Reason, Round, Verdict, Verdicts};
use braid_packet::{BATCH_MAX, Batch, Buffers, Lineup, Port};
use braid_state::Bringing;

use self::onward::Onward;
use self::paced::Pace;
use self::sets::{Sets, indexes};
use self::ticks::{PeriodicTick, periodic_ticks};
use crate::attempt::{NoWitness, Stretch, Witness, run_pass};
use crate::chain::Chain;
use crate::chain::course::Direction;
use crate::chain::turns::Turns;
use crate::chain::whole::Progress;
use crate::model::schedule::Scheduler;
use crate::observe::counters::{PortCounters, WorkerCounters};
use crate::observe::probe::{Probe, Span, TimeSplit};
use crate::observe::trace::Tracer;
use crate::observe::watchdog::Pulse;
use crate::pacing::idle::NAP;

mod course;
mod describe_sets;
mod drain;
mod exchange;
mod expire;
mod links;
mod listing;
mod move_sets;
mod onward;
mod paced;
mod parts;
mod results;
mod send;
mod sets;
mod snapshot_sets;
mod ticks;
mod traced;
mod whole;

pub use describe_sets::{DESCRIBED_MAX, EndedEntries, ListedEntries};
pub(crate) use exchange::{Emptied, Gone, Prepared, SetsInUse};
pub use listing::{ListedSet, SetCursor};
pub use parts::Parts;
pub use results::Ended;
pub use snapshot_sets::CopiedSets;

/// The outcome of one call of [`Worker::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The worker handled a batch or advanced the time for all workers.
    Busy,
    /// No packet is available now.
    Idle,
    /// No packet will arrive any more.
    End,
}

/// The work of one pinned thread: it receives batches, runs them through the chain and sends them.
pub struct Worker {
    parts: Parts,
    batch: Batch,
    own: Batch,
    onward: Vec<Onward>,
    /// The current batch consists of answers on their way back; such packets belong to no packet set.
    goes_back: bool,
    buffers: Buffers,
    sets: Vec<Sets>,
    logs: Logs,
    /// For each function, how many packets one transaction may cover.
    stretches: Vec<Stretch>,
    /// For each function whose sets are shared by workers: an index of where they are stored.
    indexes: Vec<Option<Index>>,
    verdicts: Box<Verdicts>,
    now_ns: Box<[u64; 256]>,
    last_ns: u64,
    /// When the wall clock is looked at next.
    look_ns: u64,
    todo: Vec<u16>,
    /// The order in which a function handles the packets.
    lineup: Box<Lineup>,
    aside: Vec<u16>,
    turns: Turns,
    out: Vec<(u16, Port)>,
    ticks: Vec<PeriodicTick>,
    /// When replaying a capture: how packets are paced by their time stamps.
    pace: Option<Pace>,
    /// `next` is the number after that of the last packet; `made_next` is the number given to packets that no packet caused.
    next: u64,
    made_next: u64,
    /// This worker has just advanced the time for all workers.
    has_led: bool,
    counters: WorkerCounters,
    /// The thread's processor time and the wall-clock time when the worker began.
    begun: Option<(Duration, Instant)>,
    witness: Box<dyn Witness>,
    probe: Probe,
    tracer: Option<Box<Tracer>>,
    /// Where former tables go once empty; set while their packet sets are being moved over.
    emptied: Option<Emptied>,
    /// Set while the state objects used by this worker's functions are being replaced by others.
    bringing: Option<Bringing>,
    pulse: Option<Arc<Pulse>>,
    /// Whether packets that functions hold back are sent when all workers end.
    drains: bool,
    /// The run is to end before its packets.
    was_closed: bool,
    progress: Progress,
}

impl Worker {
    /// Creates the worker and maps the memory of its tables.
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
            look_ns: 0,
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
            was_closed: false,
            progress: Progress::default(),
            parts,
        })
    }

    /// Reports every commit to `witness` from now on.
    pub fn watch(&mut self, witness: Box<dyn Witness>) {
        self.witness = witness;
    }

    /// Reports every span of the batch loop to `probe` from now on.
    pub fn probe(&mut self, probe: Probe) {
        if let Probe::Virtual(worker) = &probe {
            worker.govern(&mut self.parts.tx);
        }
        self.probe = probe;
    }

    /// Enables counters per port, for runs that can be inspected while they are running.
    pub fn count_ports(&mut self) {
        self.counters.ports = vec![PortCounters::default(); self.parts.ports.into()];
    }

    /// Starts to measure the time of every stage, unless a probe is already active.
    pub fn begin_timing(&mut self) {
        if !self.probe.is_on() {
            self.probe = Probe::Split(Box::new(TimeSplit::new(self.parts.chain.stages().len())));
            self.probe.begin();
        }
    }

    /// Discards what [`begin_timing`](Self::begin_timing) has measured.
    pub fn end_timing(&mut self) {
        if self.probe.split().is_some() {
            self.probe = Probe::Off;
        }
    }

    /// Makes the worker publish which function it is executing; returns where.
    pub(crate) fn pulse(&mut self) -> Arc<Pulse> {
        Arc::clone(self.pulse.get_or_insert_default())
    }

    /// Makes the worker's transaction yield to a scheduler.
    pub(crate) fn govern(&mut self, scheduler: &Arc<Scheduler>, id: usize) {
        scheduler.govern(id, &mut self.parts.tx);
    }

    /// Leaves packets that functions hold back in place when the worker ends: the saved state continues elsewhere.
    pub fn keep_held(&mut self) {
        self.drains = false;
    }

    /// Starts the worker's clocks; called on the worker's own thread before the first step.
    pub fn begin(&mut self) {
        self.begun = Some((thread_time(), Instant::now()));
        self.probe.begin();
    }

    /// Closes the receive queue because the run is to end; returns whether packets that have already arrived still need further steps.
    pub fn close(&mut self) -> bool {
        self.was_closed = true;
        self.parts.receive.close()
    }

    /// What wakes the worker while it [waits](Self::wait); `None` if its queue cannot wait.
    pub(crate) fn bell(&self) -> Option<Arc<Bell>> {
        self.parts.receive.bell()
    }

    /// Waits after an idle step until a packet arrives, somebody rings the bell, something is due, or `at_most` has passed.
    pub(crate) fn wait(&mut self, at_most: Duration) -> Waited {
        let at_most = at_most.min(Duration::from_nanos(self.due_in_ns()));
        if at_most < NAP { Waited::Cannot } else { self.parts.receive.wait(at_most) }
    }

    /// One iteration of the batch loop: receive, handle, send, expire.
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
                // The other workers can continue now and will soon wait for the next time step.
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

    /// Receives a batch, regardless of time stamps.
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

    /// Prepares a received batch: parses it, stamps its time, and sets each packet's default verdict to the opposite port.
    fn arrive(&mut self) {
        self.counters.batches += 1;
        self.sets.iter_mut().for_each(Sets::forget);
        if !self.parts.receive.has_parsed() {
            self.parse();
        }
        self.last_ns = self.parts.clock.stamp(&self.batch, self.last_ns, &mut self.now_ns);
        self.parts.timeline.publish(self.parts.id, self.now_ns[0]);
        if self.last_ns >= self.look_ns {
            self.look_at_clock();
        }
        self.counters.packets_in += self.batch.len() as u64;
        let ports = self.parts.ports;
        self.verdicts.expect(self.batch.records().iter().map(|record| Chain::default_port(record.port, ports)));
        self.counters.bytes_in += self.batch.wire_bytes();
        if !self.counters.ports.is_empty() {
            self.count_arrivals();
        }
        self.take_up();
    }

    /// Once a second of a live run: lets handlers know by how much the machine's clock differs from the run's, which goes on whatever is done to that.
    #[cold]
    fn look_at_clock(&mut self) {
        let wall_ns = self.parts.clock.wall_ns();
        self.look_ns = wall_ns.map_or(u64::MAX, |_| self.last_ns.saturating_add(1_000_000_000));
        self.parts.tx.set_wall_ahead(wall_ns.map_or(0, |wall_ns| wall_ns as i64 - self.last_ns as i64));
    }

    /// Starts the handling of the current batch, before its first function sees it.
    #[inline(always)]
    fn take_up(&mut self) {
        self.witness.received(&self.batch, &self.verdicts);
        self.todo.clear();
        self.todo.extend(0..self.batch.len() as u16);
        if self.tracer.is_some() {
            self.select_traced();
        }
    }

    /// Parses the headers of all packets, and extracts the first function's keys on the way if all packets meet that function unmodified.
    fn parse(&mut self) {
        match self.parts.chain.first_keys() {
            Some(group) => self.sets[group].parse(&self.parts.chain.groups()[group], &mut self.batch),
            None => self.batch.parse_all(),
        }
    }

    /// Runs the remaining packets through the functions, in the order for their direction.
    fn along(&mut self, direction: Direction) {
        if self.parts.chain.course().atomic {
            return self.one_by_one(direction);
        }
        self.through(self.parts.chain.positions(direction));
    }

    /// Runs the remaining packets through the functions at the given positions, one function after another.
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

    /// Runs one function's handlers over the packets that have reached it.
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

    /// Runs the function at `position` over some packets of the batch.
    #[inline(always)]
    fn run_stretch(&mut self, position: usize, todo: &[u16]) {
        let chain = &*self.parts.chain;
        self.lineup.set(todo);
        self.logs.emitted.begin(position, if self.goes_back { Round::Onward } else { chain.round(position) });
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

    /// Counts and removes the packets that a function dropped; consecutive drops with the same reason are counted together.
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

    /// Handles an empty receive: advances the time and lets those who wait for this worker continue.
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
