//! What a profile adds up: the cycles of each span of the batch loop by function, the cost of attempts that were rolled back, and which packet sets
//! are frequent. [`Probe`](super::Probe) says when.

use std::time::Instant;

use braid_memory::cycles;
use braid_nf::packet::key::SetKey;
use braid_stm::Tx;

use super::{Attempts, Fit, Span};
use crate::observe::aborts::Series;

/// The accumulated cycles of one span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lap {
    /// Cycles.
    pub cycles: u64,
    /// Packets.
    pub packets: u64,
    /// Number of laps.
    pub times: u64,
}

impl Lap {
    fn add(&mut self, cycles: u64, packets: usize) {
        self.cycles += cycles;
        self.packets += packets as u64;
        self.times += 1;
    }

    /// The same if each lap had taken `cycles` cycles less.
    pub fn without(mut self, cycles: f64) -> Lap {
        self.cycles = self.cycles.saturating_sub((cycles * self.times as f64) as u64);
        self
    }
}

/// The times of one function.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTime {
    /// Extracting keys and looking up packet sets.
    pub look_up: Lap,
    /// Handlers, including their accesses to objects.
    pub handlers: Lap,
    /// Commits.
    pub commit: Lap,
    /// Handlers and commits that were rolled back.
    pub retry: Lap,
    /// The part of `retry` spent on failed commits and on rolling back what the handlers had done.
    pub undo: Lap,
    /// Reads logged by the end of each attempt.
    pub reads: u64,
    /// Buffered writes.
    pub writes: u64,
    /// Handlers by packets and by the entries they left in the logs, without refused attempts.
    pub handlers_fit: Fit,
    /// Commits by attempts and by the entries these left in the logs.
    pub commit_fit: Fit,
}

/// Longest lap that counts, in cycles: a batch takes tens of microseconds; in a longer lap the thread was not running.
const LAP_MAX: u64 = 1_000_000;
/// The packets per transaction in a calibration, in turn.
const LENGTHS: [usize; 6] = [256, 256, 64, 16, 4, 1];
/// Maximum number of packet sets to remember.
const SETS_MAX: usize = 64;

/// How the time of a worker was spent.
#[derive(Clone, Debug, Default)]
pub struct TimeSplit {
    begun: Option<(Instant, u64)>,
    last: u64,
    last_handlers: (u64, usize),
    /// Reads and writes in the logs of the latest attempt.
    touched: u64,
    turn: usize,
    /// What a calibration measures.
    calibrates: Option<Attempts>,
    turn_of_length: usize,
    /// The latest attempt is refused.
    is_refused: bool,
    /// Receiving from the source.
    pub receive: Lap,
    /// Parsing headers and stamping times.
    pub parse: Lap,
    /// By function.
    pub stages: Vec<StageTime>,
    /// Sending to the sink.
    pub send: Lap,
    /// Expiry and ticks.
    pub expire: Lap,
    /// Empty receives.
    pub idle: Lap,
    /// Cycles spent on measuring itself; not part of any lap.
    pub looking: u64,
    /// Cycles spent on measuring one lap.
    look_cycles: u64,
    /// Laps so long that the thread cannot have been running.
    pub away: Lap,
    /// Packets over time.
    pub packets: Series,
    /// Packet sets, sampled from one packet of each batch, with an upper bound of how often each was met.
    pub sets: Vec<(SetKey, u64)>,
    /// Number of packets sampled for `sets`.
    pub sampled: u64,
    /// Cycles per nanosecond.
    pub cycles_per_ns: f64,
}

impl TimeSplit {
    /// Creates a profile for a chain of `stages` functions.
    pub fn new(stages: usize) -> TimeSplit {
        TimeSplit { stages: vec![StageTime::default(); stages], ..TimeSplit::default() }
    }

    /// Creates the profile of a calibration.
    pub(crate) fn of(stages: usize, calibrates: Option<Attempts>) -> TimeSplit {
        TimeSplit { calibrates, ..TimeSplit::new(stages) }
    }

    /// Starts measuring when the worker begins.
    pub(super) fn begin(&mut self) {
        self.look_cycles = TimeSplit::look();
        self.begun = Some((Instant::now(), cycles()));
        self.last = cycles();
    }

    /// Adds the log entries of the handlers of the function at `stage`.
    pub(super) fn touch(&mut self, stage: usize, tx: &Tx) {
        let (reads, writes) = tx.footprint();
        self.stages[stage].reads += reads as u64;
        self.stages[stage].writes += writes as u64;
        self.touched = (reads + writes) as u64;
    }

    /// Whether the calibration makes this attempt fail.
    pub(super) fn refuses(&mut self, is_first: bool, tx: &Tx) -> bool {
        let refuses = self.calibrates == Some(Attempts::Second);
        self.is_refused = refuses && is_first && tx.footprint().1 > 0;
        self.is_refused
    }

    /// The maximum number of packets that the calibration allows in the next transaction.
    pub(super) fn length(&mut self) -> usize {
        if self.calibrates != Some(Attempts::OfAllLengths) {
            return usize::MAX;
        }
        self.turn_of_length = (self.turn_of_length + 1) % LENGTHS.len();
        LENGTHS[self.turn_of_length]
    }

    /// Notes a batch's time, and one of its packet sets as a sample.
    pub(super) fn sample(&mut self, packets: usize, now_ns: u64, key: impl FnOnce(usize) -> SetKey) {
        self.packets.add(now_ns, packets as u64);
        self.turn = self.turn.wrapping_add(61);
        let key = key(self.turn % packets.max(1));
        self.note_set(key);
    }

    /// The cycles of an empty lap.
    fn look() -> u64 {
        let mut empty = TimeSplit { last: cycles(), ..TimeSplit::default() };
        let mut lap = || {
            let before = empty.receive.cycles;
            empty.lap(Span::Receive, 0);
            empty.receive.cycles - before
        };
        (0..64).map(|_| lap()).min().unwrap_or(0)
    }

    /// The cycles since the previous call, without those of measuring.
    fn turn_round(&mut self) -> u64 {
        let now = cycles();
        let lap = now.saturating_sub(self.last);
        self.last = now;
        self.looking += self.look_cycles.min(lap);
        lap.saturating_sub(self.look_cycles)
    }

    pub(super) fn lap(&mut self, span: Span, packets: usize) {
        let lap = self.turn_round();
        let into = match span {
            _ if lap > LAP_MAX => &mut self.away,
            Span::Receive => &mut self.receive,
            Span::Parse => &mut self.parse,
            Span::LookUp(stage) => &mut self.stages[stage].look_up,
            Span::Handlers(stage) => {
                self.last_handlers = (lap, packets);
                if !self.is_refused {
                    self.stages[stage].handlers_fit.add(lap, packets as u64, self.touched);
                }
                &mut self.stages[stage].handlers
            }
            Span::Commit(stage) => {
                if self.touched > 0 {
                    self.stages[stage].commit_fit.add(lap, 1, self.touched);
                }
                &mut self.stages[stage].commit
            }
            Span::Send => &mut self.send,
            Span::Expire => &mut self.expire,
            Span::Idle => &mut self.idle,
        };
        into.add(lap, packets);
    }

    /// Moves the latest handlers and their failed commit to `retry`; `taken_back` packets were rolled back.
    pub(super) fn waste(&mut self, stage: usize, taken_back: usize) {
        let lap = self.turn_round();
        let (cycles, packets) = std::mem::take(&mut self.last_handlers);
        let times = &mut self.stages[stage];
        if cycles <= LAP_MAX {
            times.handlers.cycles -= cycles.min(times.handlers.cycles);
            times.handlers.packets -= (packets as u64).min(times.handlers.packets);
            times.retry.add(cycles, packets);
        }
        if lap <= LAP_MAX {
            times.retry.add(lap, 0);
            times.undo.add(lap, taken_back);
        } else {
            self.away.add(lap, 0);
        }
    }

    fn note_set(&mut self, key: SetKey) {
        self.sampled += 1;
        if let Some(known) = self.sets.iter_mut().find(|known| known.0 == key) {
            known.1 += 1;
        } else if self.sets.len() < SETS_MAX {
            self.sets.push((key, 1));
        } else if let Some(least) = self.sets.iter_mut().min_by_key(|known| known.1) {
            *least = (key, least.1 + 1);
        }
    }

    /// Packet sets that were certainly met, and a lower bound of how often: a set that replaced another in the list inherited its count.
    pub fn certain_sets(&self) -> Vec<(SetKey, u64)> {
        let is_full = self.sets.len() == SETS_MAX;
        let inherited = if is_full { self.sets.iter().map(|set| set.1).min().unwrap_or(0) } else { 0 };
        let sets = self.sets.iter().map(|(key, count)| (*key, count - inherited));
        // A count that exceeds the inherited one by one is chance.
        sets.filter(|(_, count)| *count > u64::from(is_full)).collect()
    }

    /// A copy in which `cycles_per_ns` has been determined.
    pub fn so_far(&self) -> TimeSplit {
        let mut copy = self.clone();
        copy.end();
        copy
    }

    /// Determines `cycles_per_ns`, when the worker has ended.
    pub fn end(&mut self) {
        self.cycles_per_ns = match self.begun {
            Some((begun, first)) => (cycles() - first) as f64 / (begun.elapsed().as_nanos() as f64).max(1.0),
            None => 1.0,
        };
    }

    /// How many laps were measured.
    pub fn laps(&self) -> u64 {
        let of_stage = |s: &StageTime| s.look_up.times + s.handlers.times + s.commit.times + s.retry.times;
        let around = [self.receive, self.parse, self.send, self.expire].iter().map(|lap| lap.times).sum::<u64>();
        around + self.stages.iter().map(of_stage).sum::<u64>()
    }

    /// Cycles of everything except `idle` and `away`.
    pub fn busy_cycles(&self) -> u64 {
        let of_stage = |s: &StageTime| s.look_up.cycles + s.handlers.cycles + s.commit.cycles + s.retry.cycles;
        let around = [self.receive, self.parse, self.send, self.expire].iter().map(|lap| lap.cycles).sum::<u64>();
        around + self.stages.iter().map(of_stage).sum::<u64>()
    }
}
