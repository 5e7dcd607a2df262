//! Packets of a capture that are paced by their time stamps: where functions have a state object in common, or packets go round, a batch
//! spans only a short time; where functions hold packets back, the time advances for all workers together.
//!
//! It advances in steps of the shortest period of those functions. The first worker leads. When no worker has packets left in the current
//! step, it runs what is due, at the times at which it is due, and admits the others to the step of the next packet. So the packets of a step find
//! the same packets waiting, whatever the number of workers, and released packets appear in the output between earlier and later ones.
//! Within a step workers do not wait for each other. The leader ends last, when all packets of the others have been handled.

use std::sync::Arc;

use braid_io::{Ahead, Received};

use super::Worker;
use super::drain::DRAIN_MAX_NS;
use crate::chain::Chain;
use crate::observe::probe::Probe;
use crate::pacing::clock::{Clock, LATEST_NS, Timeline};
use crate::pacing::places::Places;

/// Longest time that a batch spans where functions have an object in common, in nanoseconds. A function handles all packets of a batch before
/// the next function handles any. With a common object, such as a token bucket, the first function would otherwise consume tokens for seconds of
/// a capture before earlier packets of the second had their share; in a live run a batch is no longer than this.
const TOGETHER_NS: u64 = 1_000_000;
/// Longest time that a batch spans where [hairpins](braid_nf::Hairpins) return through functions before their translator, in nanoseconds. They
/// do so after the batch, but before their answers, which no host sends sooner than this.
const ROUND_NS: u64 = 20_000;

/// How packets of a capture are paced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// The length of a step, in nanoseconds.
    period_ns: u64,
    /// Longest time that a batch spans, in nanoseconds.
    span_ns: u64,
    /// Functions hold packets back, so the time advances for all workers together.
    holds: bool,
}

impl Pace {
    /// The pace of a chain, if its clock follows a capture: the shortest period of the functions that hold packets back and, where functions have
    /// an object in common and packets do not pass the chain one by one, at most [`TOGETHER_NS`]; where hairpins return, at most [`ROUND_NS`].
    pub(super) fn of(chain: &Chain, clock: &Clock) -> Option<Pace> {
        let held = chain.stages().iter().filter(|stage| stage.holds_packets());
        let shortest = held.flat_map(|stage| stage.ticks()).map(|period| (period.as_nanos() as u64).max(1)).min();
        let together = (!chain.course().atomic && chain.has_common_objects()).then_some(TOGETHER_NS);
        let round = (0..chain.stages().len())
            .any(|position| chain.round(position) == braid_nf::Round::Return)
            .then_some(ROUND_NS);
        let period_ns = shortest.into_iter().chain(together).min();
        let span_ns = period_ns.into_iter().chain(round).min()?;
        let period_ns = period_ns.unwrap_or(span_ns);
        clock.is_of_capture().then_some(Pace { period_ns, span_ns, holds: shortest.is_some() })
    }

    /// The last nanosecond of a batch that begins at `now_ns`.
    fn batch_end(self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.span_ns - 1)
    }

    /// The last nanosecond of the step that contains `now_ns`.
    fn end_of(self, now_ns: u64) -> u64 {
        if now_ns >= LATEST_NS { u64::MAX } else { now_ns - now_ns % self.period_ns + (self.period_ns - 1) }
    }
}

/// The time that every worker has reached: as set by the leader if there is one, otherwise as published by the workers.
#[inline(always)]
pub(super) fn reached(pace: Option<Pace>, timeline: &Timeline, own_ns: u64) -> u64 {
    let led_ns = if pace.is_some_and(|pace| pace.holds) { timeline.places().led_ns() } else { 0 };
    if led_ns > 0 { led_ns } else { timeline.reached(own_ns) }
}

impl Worker {
    /// Receives packets of a capture that fall into the current step.
    #[cold]
    #[inline(never)]
    pub(super) fn receive_in_time(&mut self, pace: Pace) -> Received {
        let ahead = self.parts.receive.ahead();
        // In virtual time workers do not wait for each other.
        if !pace.holds || matches!(self.probe, Probe::Virtual(_)) {
            let Ahead::Packet { timestamp_ns, .. } = ahead else { return self.receive() };
            return self.receive_until(pace.batch_end(timestamp_ns));
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
            Some(timestamp_ns) if timestamp_ns <= until_ns => {
                self.receive_until(until_ns.min(pace.batch_end(timestamp_ns)))
            }
            None if place == u64::MAX && (!self.leads() || places.least() == u64::MAX) => self.receive(),
            _ => Received::Idle,
        }
    }

    fn receive_until(&mut self, until_ns: u64) -> Received {
        self.parts.receive.receive_until(&mut self.batch, &mut self.buffers, self.parts.batch, until_ns)
    }

    /// Whether this worker leads the others.
    fn leads(&self) -> bool {
        self.parts.id == 0 && self.pace.is_some_and(|pace| pace.holds)
    }

    /// Advances the time to the next packet of all workers if the current step has ended.
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

    /// Lets time pass until the next packet, in steps at which held packets are due. At most an hour passes, since time stamps in a capture can be
    /// arbitrary.
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

    /// Notes the number of the next packet to arrive, or the one after the last if none follows. Called before the batch is sent.
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

    /// Tells the sink below which number no packet will be sent any more. What functions send in a tick comes after all workers' packets before
    /// that tick, so the leader promises no more than the least position of all workers.
    pub(super) fn promise(&mut self, horizon: u64) {
        let places = self.parts.timeline.places();
        let is_led = self.leads() && places.led_ns() > 0;
        self.parts.send.progress(if is_led { horizon.min(places.least()) } else { horizon });
    }
}
