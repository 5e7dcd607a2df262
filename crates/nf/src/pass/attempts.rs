//! The loops for packets that a conflict may roll back.
//!
//! There are three loops for packets of live sets. As long as nothing has been written and no conflict has been met,
//! every packet is final as soon as it is handled, and most need not even a context ([`Pass::attempt_steady`],
//! [`Pass::attempt_standing`]). After that, a mark is taken before each packet ([`Pass::attempt_marked`]). All other
//! packets are handled out of line ([`Pass::attempt_one`]).

use braid_state::{Plain, Solitude};

use super::handlers::handle_packet;
use super::steady::{InHand, Reached, Steady};
use super::{Interrupted, Mark, Pass, Place};
use crate::cx::Cx;
use crate::shared::SharedSets;
use crate::{Arrival, Handled, NetworkFunction};

/// Number of packets after which it is worth starting a loop again.
const MANY: usize = 32;
/// A transaction ends early if at most one in this many of the next packets is the first of its set.
const MOSTLY: usize = 8;

impl Pass<'_> {
    /// Runs handlers over positions `from..to` such that each can be rolled back, and returns the position reached. It
    /// may end after a first packet, so that the packets of live sets that follow are final as soon as they are
    /// handled.
    pub(crate) fn attempt<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        shared: Option<&SharedSets>,
        from: usize,
        to: usize,
    ) -> Result<usize, Interrupted> {
        (self.logs.kept, self.logs.emitted_before) = (from, self.logs.emitted.len());
        let mut at = from;
        // Shared sets have no records to look into.
        if shared.is_none() && function.prefetches() {
            if N::ERAS && self.tx.is_fresh() {
                at = self.attempt_steady(function, place, from, to);
            }
            self.prefetch(function, place, at, to);
        }
        if N::STEADY && Self::goes_ahead::<N>() && shared.is_none() && self.tx.is_fresh() {
            at = self.attempt_ahead(function, place, from, to)?;
        }
        while at < to {
            // These loops are for packets of live sets; a packet without a live set would end them at once.
            if shared.is_none() && !self.is_first(place, at) {
                at = self.attempt_fresh(function, place, at, to)?;
                // Either the transaction is no longer fresh, or the next packet is not for this loop either.
                if at < to && !self.is_first(place, at) {
                    at = self.attempt_marked(function, place, at, to)?;
                }
            }
            if at < to {
                if shared.is_none() && self.is_first(place, at) {
                    self.prefetch_first(function, place, at, to);
                }
                self.attempt_one(function, place, shared, at)?;
                at += 1;
                if N::STEADY && shared.is_none() && !self.tx.is_fresh() && self.mostly_go_on(place, at, to) {
                    break;
                }
            }
        }
        Ok(at)
    }

    /// Runs the handlers of steady packets ahead of first packets, and returns the position of the first other packet.
    #[inline(always)]
    fn attempt_ahead<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> Result<usize, Interrupted> {
        let ahead = self.let_live_ahead(function, place, from, to);
        let at = self.attempt_steady_if(ahead.steady, function, place, from, ahead.to);
        if at == ahead.to {
            return Ok(at);
        }
        self.todo.put_in_order(at..to);
        // Only the packet at which the loop stopped.
        self.attempt_standing(function, place, at, at + 1)
    }

    /// Returns whether the set of the packet at a position was not live for the function at the time of the look-up:
    /// the packet is the first of its set, or one of the first.
    #[inline(always)]
    pub(super) fn is_first(&self, place: Place, at: usize) -> bool {
        let i = usize::from(self.todo[at]) & 255;
        self.sets.as_ref().is_some_and(|sets| sets.is_first(place, i))
    }

    /// Returns whether nearly all of the next packets belong to existing sets: committing before them is then cheaper
    /// than a mark before each.
    fn mostly_go_on(&self, place: Place, from: usize, to: usize) -> bool {
        let next = from..to.min(from + MOSTLY);
        let most = next.len() / MOSTLY;
        // One packet beyond the limit decides. A recorded run is replayed as it was.
        next.filter(|&at| self.is_first(place, at)).nth(most).is_none() && !self.tx.is_replaying()
    }

    /// Runs the handlers of packets of live sets while the transaction is fresh: each packet is final at once, until
    /// one leaves the first mark. Returns the position reached.
    #[inline(always)]
    fn attempt_fresh<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> Result<usize, Interrupted> {
        if !N::STEADY {
            return self.attempt_standing(function, place, from, to);
        }
        let mut at = from;
        while at < to && self.tx.is_fresh() {
            let begun = at;
            at = self.attempt_steady(function, place, at, to);
            if at < to && self.is_first(place, at) {
                return Ok(at);
            }
            // Only the packet at which the loop stopped, since nearly all others are steady. If the loop handled none,
            // probably few are.
            let others = if at > begun { 1 } else { MANY };
            let next = self.attempt_standing(function, place, at, to.min(at + others))?;
            if next == at {
                return Ok(at);
            }
            at = next;
        }
        Ok(at)
    }

    /// Runs the handlers of packets that [`NetworkFunction::steady`] decides, and returns the position of the first
    /// other packet.
    #[inline(always)]
    fn attempt_steady<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) -> usize {
        let all = self.sets.as_ref().is_some_and(|sets| sets.found.is_steady(function, place));
        self.attempt_steady_if(all, function, place, from, to)
    }

    /// Like [`attempt_steady`](Self::attempt_steady); `all`: all sets are live for the function and within their
    /// timeout. In most batches this holds, and all packets are [plain](Pass::is_plain).
    #[inline(always)]
    fn attempt_steady_if<N: NetworkFunction>(
        &mut self,
        all: bool,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> usize {
        match all && self.is_plain() {
            true => self.attempt_steady_of::<N, true>(function, place, from, to),
            false => self.attempt_steady_of::<N, false>(function, place, from, to),
        }
    }

    /// The loop over steady packets, without a context, a log or a copy of earlier state.
    #[inline(never)]
    fn attempt_steady_of<N: NetworkFunction, const ALL: bool>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> usize {
        let times = self.times::<ALL>(from);
        let Some(sets) = &mut self.sets else { return from };
        let mut steady = Steady::new(function, sets, place);
        let mut reached = Reached::<ALL>::new(self.batch, from, self.todo.part(from..to), &mut self.logs.kept);
        let (solitude, mut era) = (self.tx.solitude(), None);
        if N::ERAS {
            era = solitude.as_ref().and_then(|solitude| function.era(solitude.alone()));
        }
        // Each packet, or all of them together, reads at most one object that others may write; each packet is therefore
        // final when it is handled.
        while let Some(turn) = reached.step() {
            let i = turn.index();
            let reversed = steady.swapped[i];
            if !steady.is_live::<ALL>(i) {
                return reached.at();
            }
            let alone = if N::ERAS { None } else { solitude.as_ref().map(Solitude::alone) };
            let arrival = Arrival { now_ns: times.of(i), reversed, alone, era };
            let Some(verdict) = function.steady(arrival, &mut turn.packet(None), steady.state(i)) else {
                return reached.at();
            };
            self.verdicts.set(i, verdict);
        }
        to
    }

    /// The loop for packets that may access shared state, as long as none has changed any.
    #[inline(never)]
    fn attempt_standing<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> Result<usize, Interrupted> {
        let (at, before, handled) = {
            let Some(sets) = &mut self.sets else { return Ok(from) };
            let mut steady = Steady::new(function, sets, place);
            let logs = &mut *self.logs;
            let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
            if !cx.is_fresh() {
                return Ok(from);
            }
            let mut reached = Reached::<false>::new(self.batch, from, self.todo.part(from..to), &mut logs.kept);
            loop {
                let Some(turn) = reached.step() else { return Ok(to) };
                let i = turn.index();
                let reversed = steady.swapped[i];
                if !steady.is_live::<false>(i) {
                    return Ok(reached.at());
                }
                cx.turn_to(i, reversed, self.now_ns[i]);
                let set = InHand::new(steady.state(i));
                let handled = function.packet(&mut cx, &mut turn.packet(Some(&mut logs.packets)), set.state);
                let before = set.changed();
                if let Ok(verdict) = handled
                    && cx.settle()
                {
                    // The packet is final, whatever comes after it.
                    logs.packets.clear();
                    reached.note();
                    self.verdicts.set(i, verdict);
                    if cx.is_fresh() {
                        continue;
                    }
                    return Ok(reached.at());
                }
                break (reached.at(), before, handled);
            }
        };
        self.mark_first(place, at, before, handled)
    }

    /// Finishes the packet at `at`, which was the first to change shared state or has met a conflict: takes its mark,
    /// or rolls it back. `before` is the earlier state of its set if the handler changed that.
    #[cold]
    #[inline(never)]
    fn mark_first<S: Plain>(
        &mut self,
        place: Place,
        at: usize,
        before: Option<S>,
        handled: Handled,
    ) -> Result<usize, Interrupted> {
        let i = usize::from(self.todo[at]) & 255;
        let (slot, since_ms) = self.set_place(i);
        if let Some(before) = before {
            self.logs.sets.save_state(slot, place.offset, &before);
        }
        let Ok(verdict) = handled else {
            self.take_back_last(i, (slot, since_ms));
            return Err(Interrupted { at });
        };
        self.logs.marks.push(Mark::first(self.logs, i, self.verdicts.code(i), (slot, since_ms)));
        self.verdicts.set(i, verdict);
        Ok(at + 1)
    }

    /// Runs the handlers of packets of live sets with a mark before each, and returns the position of the first other
    /// packet.
    #[inline(never)]
    fn attempt_marked<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> Result<usize, Interrupted> {
        let Some(sets) = &mut self.sets else { return Ok(from) };
        let mut steady = Steady::new(function, sets, place);
        let (mut walk, logs) = (self.batch.walk::<false>(self.todo.part(from..to)), &mut *self.logs);
        for at in from..to {
            let Some(turn) = walk.step() else { return Ok(at) };
            let i = turn.index();
            let (slot, since_ms) = (steady.found.slots[i], steady.found.since_ms[i]);
            let reversed = steady.swapped[i];
            if !steady.is_live::<false>(i) {
                return Ok(at);
            }
            let mark = Mark::new(self.tx, logs, self.verdicts.code(i), (slot, since_ms));
            logs.marks.push(mark);
            self.tx.set_now(self.now_ns[i]);
            let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, i, reversed);
            let set = InHand::new(steady.state(i));
            let handled = handle_packet(function, &mut cx, &mut turn.packet(Some(&mut logs.packets)), set.state);
            if let Some(before) = set.changed() {
                logs.sets.save_state(slot, place.offset, &before);
            }
            let Ok(verdict) = handled else {
                self.take_back_last(i, (slot, since_ms));
                return Err(Interrupted { at });
            };
            self.verdicts.set(i, verdict);
        }
        Ok(to)
    }

    #[inline(never)]
    pub(crate) fn attempt_one<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        shared: Option<&SharedSets>,
        at: usize,
    ) -> Result<(), Interrupted> {
        let i = usize::from(self.todo[at]) & 255;
        let is_first = self.tx.is_fresh() && shared.is_none();
        let place_before = self.set_place(i);
        if !is_first {
            let mark = Mark::new(self.tx, self.logs, self.verdicts.code(i), place_before);
            self.logs.marks.push(mark);
        }
        let Ok(verdict) = self.handle_anywhere(function, place, shared, i) else {
            self.take_back_last(i, place_before);
            return Err(Interrupted { at });
        };
        if is_first && (self.tx.settle() || !self.is_timed && self.tx.settle_alone()) {
            // The packet is final, whatever comes after it.
            self.logs.commit();
            self.logs.kept = at + 1;
        } else if is_first {
            let mark = Mark::first(self.logs, i, self.verdicts.code(i), place_before);
            self.logs.marks.push(mark);
        }
        self.verdicts.set(i, verdict);
        Ok(())
    }
}
