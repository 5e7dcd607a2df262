//! Attempt, commit, retry: how one function's handlers run over a batch in transactions.
//!
//! A transaction covers as many packets as recently went well ([`Stretch`]): a whole batch where nothing conflicts. A conflict at packet *k*
//! commits the packets before *k* and retries from *k* with half as many packets. A failed commit rolls everything back and first retries the
//! packets that the conflict did not concern. After repeated failures the transaction takes a turn of its own (see stm), so every packet is
//! handled in the end. A handler that panics loses its packet; what it had written to state objects is rolled back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, Event, Interrupted, Pass, Reason, Stage, TakenBack, Tick, Verdict, Verdicts};
use braid_packet::{BATCH_MAX, Batch};
use braid_state::{Conflict, Tx};

use crate::chain::course::Direction;
use crate::observe::counters::WorkerCounters;
use crate::observe::probe::{Probe, Span};

/// Why packet sets end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Their timeout has expired.
    Timeout,
    /// They were selected regardless of their timeout: evicted to make room, or ended by the operator.
    Chosen,
}

/// An observer of everything that has been committed, called in the worker's order.
pub trait Witness: Send {
    /// Positions `from..to` of the pass have been committed at place `sequence` of the commit order.
    fn committed(&mut self, pass: &mut Pass<'_>, stage: usize, from: usize, to: usize, sequence: u64);
    /// Packet `packet` of the latest batch has passed through the whole chain in one transaction.
    fn went_through(&mut self, tx: &mut Tx, packet: u16, direction: Direction, now_ns: u64, sequence: u64);
    /// Sets have ended together for the function at position `stage`.
    fn expired(
        &mut self,
        tx: &mut Tx,
        stage: usize,
        keys: &mut dyn Iterator<Item = SetKey>,
        end: End,
        now_ns: u64,
        sequence: u64,
    );
    /// A tick of the function at position `stage` has been handled.
    fn ticked(&mut self, tx: &mut Tx, stage: usize, tick: Tick, now_ns: u64, sequence: u64);
    /// The packets from position `from` of `emitted` were made by the expiry or the tick reported last.
    fn made(&mut self, emitted: &Emitted, from: usize);
    /// A batch has arrived, as the source delivered it or as functions made it for further functions. `verdicts` holds the verdicts that
    /// apply if no function decides.
    fn received(&mut self, batch: &Batch, verdicts: &Verdicts);
    /// The batch reported last consists of answers on their way back.
    fn goes_back(&mut self);
    /// The batch's packets have their final verdicts; `emitted` holds the packets that functions made.
    fn finished(&mut self, batch: &Batch, verdicts: &Verdicts, emitted: &Emitted);
    /// Returns the concrete witness to whoever installed it.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// A witness that ignores everything.
#[derive(Debug)]
pub struct NoWitness;

impl Witness for NoWitness {
    #[inline(always)]
    fn committed(&mut self, _: &mut Pass<'_>, _: usize, _: usize, _: usize, _: u64) {}
    fn went_through(&mut self, _: &mut Tx, _: u16, _: Direction, _: u64, _: u64) {}
    fn expired(&mut self, _: &mut Tx, _: usize, _: &mut dyn Iterator<Item = SetKey>, _: End, _: u64, _: u64) {}
    fn ticked(&mut self, _: &mut Tx, _: usize, _: Tick, _: u64, _: u64) {}
    fn made(&mut self, _: &Emitted, _: usize) {}
    fn received(&mut self, _: &Batch, _: &Verdicts) {}
    fn goes_back(&mut self) {}
    fn finished(&mut self, _: &Batch, _: &Verdicts, _: &Emitted) {}
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// The maximum number of packets in one transaction. Fewer packets make conflicts rarer and cheaper; more packets need fewer commits. Each
/// worker keeps one such limit for each function from batch to batch.
///
/// A conflict at the first packet of a transaction carries no information: a shorter transaction would have met it as well, and for data
/// that every packet changes one long transaction beats many short ones. A conflict at a later packet reduces the limit to the packets before
/// it, but at most by half. Each commit that reached the limit raises it by an eighth.
#[derive(Clone, Copy, Debug)]
pub struct Stretch(usize);

impl Default for Stretch {
    fn default() -> Stretch {
        Stretch(BATCH_MAX)
    }
}

impl Stretch {
    /// Lowers the limit after a conflict with `behind` packets before it.
    fn conflict(&mut self, behind: usize) {
        if behind > 0 {
            self.0 = behind.clamp(self.0.div_ceil(2), self.0);
        }
    }

    fn success(&mut self, done: usize) {
        if done >= self.0 {
            self.0 = BATCH_MAX.min(self.0 + 1.max(self.0 / 8));
        }
    }
}

/// How the execution of a stretch ended.
enum Ended {
    Whole,
    Conflict,
    Panic,
}

/// Runs `stage` over all packets of `pass.todo`.
#[inline]
pub fn run_pass(
    stage: &dyn Stage,
    position: usize,
    pass: &mut Pass<'_>,
    stretch: &mut Stretch,
    counters: &mut WorkerCounters,
    probe: &mut Probe,
    witness: &mut dyn Witness,
) {
    let end = pass.todo.len();
    let (mut from, mut now) = (0, stretch.0);
    // Up to here packets have already been executed once in vain, at the probe's request.
    let mut refused = 0;
    while from < end {
        let to = end.min(from + now.min(probe.length_max()));
        let (done, ended) = match catch_unwind(AssertUnwindSafe(|| stage.execute(pass, from, to))) {
            Ok(Ok(done)) => (done, Ended::Whole),
            Ok(Err(Interrupted { at })) => (at, Ended::Conflict),
            // A handler that has met a conflict runs again, whatever it did about the conflict.
            Err(_) if pass.tx.has_conflict() => (pass.find_panic(), Ended::Conflict),
            Err(_) => (pass.find_panic(), Ended::Panic),
        };
        let is_refused = probe.refuses(done > refused, pass.tx);
        if is_refused {
            refused = done;
            pass.tx.refuse();
        }
        probe.executed(position, done - from, pass.tx);
        match pass.commit() {
            Ok(sequence) => {
                probe.passed(Span::Commit(position), done - from);
                counters.commits += u64::from(done > from && stage.has_objects());
                witness.committed(pass, position, from, done, sequence);
                let went_well = done - std::mem::replace(&mut from, done);
                match ended {
                    Ended::Whole => {
                        stretch.success(went_well);
                        now = stretch.0.min(now * 2);
                    }
                    Ended::Conflict => {
                        probe.interrupted();
                        note_abort(counters, pass.tx);
                        stretch.conflict(went_well);
                        now = 1.max(now / 2);
                    }
                    Ended::Panic => {
                        counters.panics += 1;
                        pass.verdicts.set(pass.todo[from] as usize, Verdict::Drop(Reason::HANDLER_PANIC));
                        from += 1;
                    }
                }
            }
            Err(TakenBack { at, sound }) => {
                probe.aborted(position, done - at);
                note_abort(counters, pass.tx);
                if !is_refused {
                    stretch.conflict(sound);
                    now = if sound > 0 { sound } else { 1.max(now / 2) };
                }
                from = at;
            }
        }
    }
}

#[cold]
pub(crate) fn note_abort(counters: &mut WorkerCounters, tx: &Tx) {
    counters.aborts += 1;
    counters.aborted.note(tx.worker(), tx.last_conflict(), tx.now());
}

/// Why handlers without a packet did not commit; all their effects have been rolled back.
pub(crate) enum Uncommitted {
    Conflict,
    Panic,
}

/// Runs handlers without a packet once; returns their place in the commit order.
pub(crate) fn try_event(
    tx: &mut Tx,
    emitted: &mut Emitted,
    ports: u16,
    now_ns: u64,
    counters: &mut WorkerCounters,
    handlers: impl FnOnce(&mut Event<'_>) -> Result<(), Conflict>,
) -> Result<u64, Uncommitted> {
    let mark = emitted.len();
    tx.set_now(now_ns);
    let mut event = Event { tx, emitted, ports };
    let uncommitted = match catch_unwind(AssertUnwindSafe(|| handlers(&mut event))) {
        Ok(handled) => match handled.and_then(|()| tx.commit()) {
            Ok(committed) => return Ok(committed.sequence),
            Err(_) => Uncommitted::Conflict,
        },
        Err(_) if tx.has_conflict() => Uncommitted::Conflict,
        Err(_) => Uncommitted::Panic,
    };
    tx.abort();
    emitted.truncate(mark);
    if let Uncommitted::Conflict = uncommitted {
        note_abort(counters, tx);
    }
    Err(uncommitted)
}

/// Runs a handler without a packet until it commits; returns its place in the commit order.
pub fn run_event(
    tx: &mut Tx,
    emitted: &mut Emitted,
    ports: u16,
    now_ns: u64,
    counters: &mut WorkerCounters,
    mut handler: impl FnMut(&mut Event<'_>) -> Result<(), Conflict>,
) -> u64 {
    let mut is_over = false;
    loop {
        let handled = try_event(tx, emitted, ports, now_ns, counters, |event| match is_over {
            true => Ok(()),
            false => handler(event),
        });
        match handled {
            Ok(sequence) => return sequence,
            Err(Uncommitted::Conflict) => {}
            Err(Uncommitted::Panic) => {
                // The event is over: its changes to state objects are rolled back, and an empty transaction commits in its place.
                counters.panics += 1;
                is_over = true;
            }
        }
    }
}
