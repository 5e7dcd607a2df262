//! Packets of a capture that are taken in time: where functions have an object in common a batch lasts for a moment only, and where functions hold
//! packets back, time goes on for all workers together.
//!
//! It goes on in steps of the shortest period of those functions. The first worker leads: when nobody stands before the end of a step any more, it
//! does what is due, as of the moments at which that is due, and lets the others into the step of the packet that comes next. So
//! packets of a step find the same packets waiting, whatever the number of workers; and what is sent on stands in the output between those before
//! and those behind. Within a step workers wait for nobody. The leader stays until all packets of the others have come.

use std::sync::Arc;

use braid_io::{Ahead, Received};

use super::Worker;
use super::later::DRAIN_MAX_NS;
use crate::chain::Chain;
use crate::clock::{Clock, LATEST_NS, Timeline};
use crate::places::Places;
use crate::probe::Probe;

/// A function has all packets of a batch before the next one has any. With an object in common, a bucket say, the first would take what came in
/// seconds of a capture before packets of the second that were there earlier had their part; live, a batch is no longer than this.
const TOGETHER_NS: u64 = 1_000_000;

/// How packets of a capture are taken in time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long a batch lasts at most.
    period_ns: u64,
    /// Functions hold packets back: time goes on for all workers together.
    holds: bool,
}

impl Pace {
    /// That of a chain, if time is that of a capture: the shortest period of functions that hold packets back, and where functions have an object
    /// in common, and packets do not go one by one, [`TOGETHER_NS`].
    pub(super) fn of(chain: &Chain, clock: &Clock) -> Option<Pace> {
        let held = chain.stages().iter().filter(|stage| stage.holds_packets());
        let shortest = held.flat_map(|stage| stage.ticks()).map(|period| (period.as_nanos() as u64).max(1)).min();
        let together = (!chain.course().atomic && chain.has_common_objects()).then_some(TOGETHER_NS);
        let period_ns = shortest.into_iter().chain(together).min()?;
        clock.is_of_capture().then_some(Pace { period_ns, holds: shortest.is_some() })
    }

    /// The last nanosecond of a step.
    fn end_of(self, now_ns: u64) -> u64 {
        if now_ns >= LATEST_NS { u64::MAX } else { now_ns - now_ns % self.period_ns + (self.period_ns - 1) }
    }
}

/// The time that every worker has reached: to which the first one has led them, or as each tells of itself.
#[inline(always)]
pub(super) fn reached(pace: Option<Pace>, timeline: &Timeline, own_ns: u64) -> u64 {
    let led_ns = if pace.is_some_and(|pace| pace.holds) { timeline.places().led_ns() } else { 0 };
    if led_ns > 0 { led_ns } else { timeline.reached(own_ns) }
}

impl Worker {
    /// Receives what a capture has within a step.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_in_time(&mut self, pace: Pace) -> Received {
        let ahead = self.parts.receive.ahead();
        // In virtual time workers do not wait for each other.
        if !pace.holds || matches!(self.probe, Probe::Virtual(_)) {
            let Ahead::Packet { timestamp_ns, .. } = ahead else { return self.receive() };
            return self.receive_until(timestamp_ns.saturating_add(pace.period_ns - 1));
        }
        let places = Arc::clone(self.parts.timeline.places());
        let (place, timestamp_ns) = match ahead {
            Ahead::Packet { sequence, timestamp_ns } => (sequence, Some(timestamp_ns)),
            Ahead::Nothing => (self.parts.receive.horizon(), None),
            Ahead::End => (u64::MAX, None),
            Ahead::Untold => return self.receive(),
        };
        places.stand(self.parts.id, place, timestamp_ns.map(|ns| ns.min(LATEST_NS)));
        if self.leads() {
            self.lead(&places, pace);
        }
        let until_ns = pace.end_of(places.led_ns());
        match timestamp_ns {
            Some(timestamp_ns) if timestamp_ns <= until_ns => self.receive_until(until_ns),
            None if place == u64::MAX && (!self.leads() || places.least() == u64::MAX) => self.receive(),
            _ => Received::Idle,
        }
    }

    fn receive_until(&mut self, until_ns: u64) -> Received {
        self.parts.receive.receive_until(&mut self.batch, &mut self.buffers, self.parts.batch, until_ns)
    }

    /// Whether others wait for what it does.
    fn leads(&self) -> bool {
        self.parts.id == 0 && self.pace.is_some_and(|pace| pace.holds)
    }

    /// Lets time come to the packet that comes next of all, if a step is over.
    fn lead(&mut self, places: &Places, pace: Pace) {
        let (next, next_ns) = places.front();
        let before_ns = places.led_ns();
        if next == u64::MAX || next_ns <= pace.end_of(before_ns) {
            return;
        }
        self.made_next = next;
        self.let_pass((before_ns, next_ns), pace.period_ns);
        self.last_ns = self.last_ns.max(next_ns);
        self.tick_at(next_ns);
        places.lead(next_ns);
        self.has_led = true;
    }

    /// Lets time pass to a packet that comes next, from one moment to the next at which a packet is due that functions hold back; an hour at most, since
    /// time stamps may be anything.
    fn let_pass(&mut self, (before_ns, next_ns): (u64, u64), period_ns: u64) {
        let mut now_ns = before_ns;
        let next_ns = next_ns.min(before_ns.saturating_add(DRAIN_MAX_NS));
        while !self.ticks.is_empty()
            && now_ns + period_ns < next_ns
            && let Some(due_ns) = self.holds().filter(|due_ns| *due_ns < next_ns)
        {
            now_ns = due_ns.max(now_ns + period_ns);
            self.last_ns = self.last_ns.max(now_ns);
            self.tick_at(now_ns);
        }
    }

    /// The number of the packet that comes next; of the one behind the last, if none does. Asked before a batch is sent.
    #[inline(always)]
    pub(super) fn note_next(&mut self) -> u64 {
        let horizon = self.parts.receive.horizon();
        if horizon != u64::MAX {
            self.next = horizon;
        } else if let Some(last) = self.batch.len().checked_sub(1) {
            self.next = self.next.max(self.batch.sequence(last) + 1);
        }
        self.made_next = self.next;
        horizon
    }

    /// Tells the sink below which number nothing comes any more. What functions send in a period stands behind all workers' packets before it, so
    /// the leader promises no more than that.
    pub(super) fn promise(&mut self, horizon: u64) {
        let places = self.parts.timeline.places();
        let is_led = self.leads() && places.led_ns() > 0;
        self.parts.send.progress(if is_led { horizon.min(places.least()) } else { horizon });
    }
}
