//! What a profile adds up: cycles of each span of a batch's way, by function, what attempts that were taken back have cost, and which packet
//! sets came often. [`Probe`](super::Probe) says when.

use std::time::Instant;

use braid_memory::cycles;
use braid_nf::packet::key::SetKey;
use braid_stm::Tx;

use super::{Attempts, Fit, Span};
use crate::aborts::Series;

/// Cycles of one span, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lap {
    /// Cycles.
    pub cycles: u64,
    /// Packets.
    pub packets: u64,
    /// Times.
    pub times: u64,
}

impl Lap {
    fn add(&mut self, cycles: u64, packets: usize) {
        self.cycles += cycles;
        self.packets += packets as u64;
        self.times += 1;
    }

    /// The same if each time had taken so many cycles less.
    pub fn without(mut self, cycles: f64) -> Lap {
        self.cycles = self.cycles.saturating_sub((cycles * self.times as f64) as u64);
        self
    }
}

/// Times of one function.
#[derive(Clone, Copy, Debug, Default)]
pub struct StageTime {
    /// Keys and packet sets.
    pub look_up: Lap,
    /// Handlers, with their accesses to objects.
    pub handlers: Lap,
    /// Commits.
    pub commit: Lap,
    /// Handlers and commits that were taken back.
    pub retry: Lap,
    /// Of these, failed commits and taking back what the handlers had done.
    pub undo: Lap,
    /// Reads logged at the end of each attempt.
    pub reads: u64,
    /// Writes buffered.
    pub writes: u64,
    /// Handlers by packets and by what they left in the logs; those of refused attempts are left out.
    pub handlers_fit: Fit,
    /// Commits by attempts and by what they left in the logs.
    pub commit_fit: Fit,
}

/// Longest lap that counts, in cycles: a batch takes tens of microseconds; beyond, the thread did not have its processor.
const LAP_MAX: u64 = 1_000_000;
/// Packets of transactions in a calibration, by turns.
const LENGTHS: [usize; 6] = [256, 256, 64, 16, 4, 1];
/// Packet sets that are remembered.
const SETS_MAX: usize = 64;

/// Where the time of a worker went.
#[derive(Clone, Debug, Default)]
pub struct TimeSplit {
    begun: Option<(Instant, u64)>,
    last: u64,
    last_handlers: (u64, usize),
    /// Reads and writes in the logs of the latest attempt.
    touched: u64,
    turn: usize,
    /// What a calibration asks about.
    calibrates: Option<Attempts>,
    turn_of_length: usize,
    /// The latest attempt is refused.
    is_refused: bool,
    /// From the source.
    pub receive: Lap,
    /// Headers and time.
    pub parse: Lap,
    /// By function.
    pub stages: Vec<StageTime>,
    /// To the sink.
    pub send: Lap,
    /// Expiry and periods.
    pub expire: Lap,
    /// Nothing to do.
    pub idle: Lap,
    /// What taking the time has taken, in cycles: no part of any lap.
    pub looking: u64,
    /// The same for one lap.
    look_cycles: u64,
    /// Laps so long that the thread cannot have had its processor.
    pub away: Lap,
    /// Packets over time.
    pub packets: Series,
    /// Packet sets among one packet of each batch, with how often they were met, at most.
    pub sets: Vec<(SetKey, u64)>,
    /// Packets that were sampled for `sets`.
    pub sampled: u64,
    /// Cycles in a nanosecond.
    pub cycles_per_ns: f64,
}

impl TimeSplit {
    /// For a chain of so many functions.
    pub fn new(stages: usize) -> TimeSplit {
        TimeSplit { stages: vec![StageTime::default(); stages], ..TimeSplit::default() }
    }

    /// The same of a calibration.
    pub(crate) fn of(stages: usize, calibrates: Option<Attempts>) -> TimeSplit {
        TimeSplit { calibrates, ..TimeSplit::new(stages) }
    }

    /// The worker begins.
    pub(super) fn begin(&mut self) {
        self.look_cycles = TimeSplit::look();
        self.begun = Some((Instant::now(), cycles()));
        self.last = cycles();
    }

    /// Notes what the handlers of the function at `stage` have touched.
    pub(super) fn touch(&mut self, stage: usize, tx: &Tx) {
        let (reads, writes) = tx.footprint();
        self.stages[stage].reads += reads as u64;
        self.stages[stage].writes += writes as u64;
        self.touched = (reads + writes) as u64;
    }

    /// Whether a calibration has this attempt fail.
    pub(super) fn refuses(&mut self, is_first: bool, tx: &Tx) -> bool {
        let refuses = self.calibrates == Some(Attempts::Second);
        self.is_refused = refuses && is_first && tx.footprint().1 > 0;
        self.is_refused
    }

    /// How many packets a calibration lets the next transaction take on.
    pub(super) fn length(&mut self) -> usize {
        if self.calibrates != Some(Attempts::OfAllLengths) {
            return usize::MAX;
        }
        self.turn_of_length = (self.turn_of_length + 1) % LENGTHS.len();
        LENGTHS[self.turn_of_length]
    }

    /// Notes a batch's time and one of its packet sets, taken in turn.
    pub(super) fn sample(&mut self, packets: usize, now_ns: u64, key: impl FnOnce(usize) -> SetKey) {
        self.packets.add(now_ns, packets as u64);
        self.turn = self.turn.wrapping_add(61);
        let key = key(self.turn % packets.max(1));
        self.note_set(key);
    }

    /// Cycles of a lap in which nothing happens.
    fn look() -> u64 {
        let mut empty = TimeSplit { last: cycles(), ..TimeSplit::default() };
        let mut lap = || {
            let before = empty.receive.cycles;
            empty.lap(Span::Receive, 0);
            empty.receive.cycles - before
        };
        (0..64).map(|_| lap()).min().unwrap_or(0)
    }

    /// Cycles since the last time this was asked, but for what asking takes.
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

    /// The latest handlers and their commit were for nothing: `taken_back` packets.
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

    /// Packet sets that were certainly met, and how often at least: a set that took the place of another inherited its count.
    pub fn certain_sets(&self) -> Vec<(SetKey, u64)> {
        let is_full = self.sets.len() == SETS_MAX;
        let inherited = if is_full { self.sets.iter().map(|set| set.1).min().unwrap_or(0) } else { 0 };
        let sets = self.sets.iter().map(|(key, count)| (*key, count - inherited));
        // One more than another is chance.
        sets.filter(|(_, count)| *count > u64::from(is_full)).collect()
    }

    /// A copy that knows how long a cycle is.
    pub fn so_far(&self) -> TimeSplit {
        let mut copy = self.clone();
        copy.end();
        copy
    }

    /// The worker has ended: learns how long a cycle is.
    pub fn end(&mut self) {
        self.cycles_per_ns = match self.begun {
            Some((begun, first)) => (cycles() - first) as f64 / (begun.elapsed().as_nanos() as f64).max(1.0),
            None => 1.0,
        };
    }

    /// How often the time was taken.
    pub fn laps(&self) -> u64 {
        let of_stage = |s: &StageTime| s.look_up.times + s.handlers.times + s.commit.times + s.retry.times;
        let around = [self.receive, self.parse, self.send, self.expire].iter().map(|lap| lap.times).sum::<u64>();
        around + self.stages.iter().map(of_stage).sum::<u64>()
    }

    /// Cycles of everything but `idle` and `away`.
    pub fn busy_cycles(&self) -> u64 {
        let of_stage = |s: &StageTime| s.look_up.cycles + s.handlers.cycles + s.commit.cycles + s.retry.cycles;
        let around = [self.receive, self.parse, self.send, self.expire].iter().map(|lap| lap.cycles).sum::<u64>();
        around + self.stages.iter().map(of_stage).sum::<u64>()
    }
}
