//! Attempt, commit, retry: how one function's handlers run over a batch in transactions.
//!
//! A transaction begins with as many packets as the batch has. A conflict at packet *k* commits the packets before it and
//! goes on at *k*; a failed commit takes everything back and halves the stretch. After some failures in a row the transaction
//! takes its turn by itself (stm), so every packet is handled in the end. A handler that panics loses its packet, nothing
//! else.

use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_nf::packet::key::SetKey;
use braid_nf::{Emitted, Event, Interrupted, Pass, Reason, Stage, Verdict, Verdicts};
use braid_packet::Batch;
use braid_state::{Conflict, Tx};

use crate::counters::WorkerCounters;
use crate::course::Direction;
use crate::probe::{Probe, Span};

/// Told of everything that has been committed, in the worker's order.
pub trait Witness: Send {
    /// Positions `from..to` of the pass are committed at place `sequence` of the commit order.
    fn committed(&mut self, pass: &mut Pass<'_>, stage: usize, from: usize, to: usize, sequence: u64);
    /// Packet `packet` of the latest batch has gone its whole way in one transaction.
    fn went_through(&mut self, tx: &mut Tx, packet: u16, direction: Direction, now_ns: u64, sequence: u64);
    /// A set has expired for the function at position `stage`.
    fn expired(&mut self, tx: &mut Tx, stage: usize, key: SetKey, now_ns: u64, sequence: u64);
    /// A period of the function at position `stage` has been handled.
    fn ticked(&mut self, tx: &mut Tx, stage: usize, tick: usize, now_ns: u64, sequence: u64);
    /// The packets behind position `from` were made by the set that expired or the period that was handled last.
    fn made(&mut self, emitted: &Emitted, from: usize);
    /// A batch was received; it is as the source delivered it.
    fn received(&mut self, batch: &Batch);
    /// The batch's packets have their final verdicts; `emitted` are those that functions made.
    fn finished(&mut self, batch: &Batch, verdicts: &Verdicts, emitted: &Emitted);
    /// Gives back what it is, to whoever set it up.
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any>;
}

/// Nobody asks.
#[derive(Debug)]
pub struct NoWitness;

impl Witness for NoWitness {
    #[inline(always)]
    fn committed(&mut self, _: &mut Pass<'_>, _: usize, _: usize, _: usize, _: u64) {}
    fn went_through(&mut self, _: &mut Tx, _: u16, _: Direction, _: u64, _: u64) {}
    fn expired(&mut self, _: &mut Tx, _: usize, _: SetKey, _: u64, _: u64) {}
    fn ticked(&mut self, _: &mut Tx, _: usize, _: usize, _: u64, _: u64) {}
    fn made(&mut self, _: &Emitted, _: usize) {}
    fn received(&mut self, _: &Batch) {}
    fn finished(&mut self, _: &Batch, _: &Verdicts, _: &Emitted) {}
    fn into_any(self: Box<Self>) -> Box<dyn std::any::Any> {
        self
    }
}

/// How a stretch of handlers ended.
enum Ended {
    Whole,
    Conflict,
    Panic,
}

/// Runs `stage` over all of `pass.todo`.
#[inline]
pub fn run_pass(
    stage: &dyn Stage,
    position: usize,
    pass: &mut Pass<'_>,
    counters: &mut WorkerCounters,
    probe: &mut Probe,
    witness: &mut dyn Witness,
) {
    let end = pass.todo.len();
    let (mut from, mut stretch) = (0, end);
    // How far packets have been handled for nothing because the probe asked for it.
    let mut refused = 0;
    while from < end {
        let to = end.min(from + stretch);
        let (done, ended) = match catch_unwind(AssertUnwindSafe(|| stage.execute(pass, from, to))) {
            Ok(Ok(done)) => (done, Ended::Whole),
            Ok(Err(Interrupted { at })) => (at, Ended::Conflict),
            Err(_) => (pass.find_panic(), Ended::Panic),
        };
        if probe.refuses(done > refused, pass.tx) {
            refused = done;
            pass.tx.refuse();
        }
        probe.executed(position, done - from, pass.tx);
        match pass.commit() {
            Ok(sequence) => {
                probe.passed(Span::Commit(position), done - from);
                counters.commits += u64::from(done > from && stage.has_objects());
                witness.committed(pass, position, from, done, sequence);
                from = done;
                match ended {
                    Ended::Whole => stretch = end.min(stretch * 2),
                    Ended::Conflict => {
                        probe.interrupted();
                        note_abort(counters, pass.tx);
                        stretch = 1.max(stretch / 2);
                    }
                    Ended::Panic => {
                        counters.panics += 1;
                        pass.verdicts.set(pass.todo[from] as usize, Verdict::Drop(Reason::HANDLER_PANIC));
                        from += 1;
                    }
                }
            }
            Err(kept) => {
                probe.aborted(position, done - kept);
                note_abort(counters, pass.tx);
                from = kept;
                stretch = 1.max(stretch / 2);
            }
        }
    }
}

#[cold]
pub(crate) fn note_abort(counters: &mut WorkerCounters, tx: &Tx) {
    counters.aborts += 1;
    counters.aborted.note(tx.worker(), tx.last_conflict(), tx.now());
}

/// Runs a handler that has no packet until it commits; returns the place in the commit order.
pub fn run_event(
    tx: &mut Tx,
    emitted: &mut Emitted,
    ports: u16,
    now_ns: u64,
    counters: &mut WorkerCounters,
    mut handler: impl FnMut(&mut Event<'_>) -> Result<(), Conflict>,
) -> u64 {
    let mark = emitted.len();
    loop {
        tx.set_now(now_ns);
        let mut event = Event { tx, emitted, ports };
        let attempt = catch_unwind(AssertUnwindSafe(|| handler(&mut event)));
        let handled = match attempt {
            Ok(handled) => handled,
            Err(_) => {
                // The event is over; whatever it did to state objects is taken back.
                counters.panics += 1;
                tx.abort();
                emitted.truncate(mark);
                Ok(())
            }
        };
        if let Ok(committed) = handled.and_then(|()| tx.commit()) {
            return committed.sequence;
        }
        tx.abort();
        emitted.truncate(mark);
        note_abort(counters, tx);
    }
}
