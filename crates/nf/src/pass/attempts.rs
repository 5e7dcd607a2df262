//! The loops in which packets are handled that a conflict may take back.
//!
//! There are three for packets of live sets, from one to the next: as long as nothing has been written and no conflict was met, every
//! packet stands as soon as it is handled, and most need not even a context ([`Pass::attempt_steady`], [`Pass::attempt_standing`]); behind
//! that a mark is left before each ([`Pass::attempt_marked`]). All others are handled out of line ([`Pass::attempt_one`]).

use braid_state::{Plain, Solitude};
use zerocopy::IntoBytes;

use super::handlers::handle_packet;
use super::steady::{Reached, Steady};
use super::{Interrupted, Mark, Pass, Place};
use crate::cx::Cx;
use crate::shared::SharedSets;
use crate::{Arrival, Handled, NetworkFunction};

/// Packets after which it is worth beginning a loop again.
const MANY: usize = 32;
/// Of so many packets at most one may be the first of its set, for a transaction to end in front of them.
const MOSTLY: usize = 8;

impl Pass<'_> {
    /// Runs handlers over positions `from..to`, remembering how to take each back; says how far it came: behind a first packet it may
    /// end, so that packets of live sets behind that one stand as soon as they are handled.
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
        // Sets that workers share have no records to look into.
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
            // Loops for packets of live sets; of one that has none it is known that it is none for them.
            if shared.is_none() && !self.is_first(place, at) {
                at = self.attempt_fresh(function, place, at, to)?;
                // Either nothing is fresh any more, or the next packet is none for this loop either.
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

    /// Runs the handlers of packets that are steady, ahead of those that are the first of their set; says where another one stands.
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
        // The one that it stopped at, alone.
        self.attempt_standing(function, place, at, at + 1)
    }

    /// Whether the packet at a position belongs to a set that is not live for the function, as far as is known when its turn comes: it is the
    /// first, or among the first.
    #[inline(always)]
    pub(super) fn is_first(&self, place: Place, at: usize) -> bool {
        let i = usize::from(self.todo[at]) & 255;
        self.sets.as_ref().is_some_and(|sets| sets.is_first(place, i))
    }

    /// Whether nearly all of the next packets are of sets that are there: a commit before them costs less than a mark before each.
    fn mostly_go_on(&self, place: Place, from: usize, to: usize) -> bool {
        let next = from..to.min(from + MOSTLY);
        let most = next.len() / MOSTLY;
        // One too many answers already. What was recorded is replayed as it was.
        next.filter(|&at| self.is_first(place, at)).nth(most).is_none() && !self.tx.is_replaying()
    }

    /// Runs the handlers of packets of live sets while the transaction is fresh: what such a packet did stands at once, or it is
    /// the first that leaves a mark. Says where the loop ended.
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
            // The one that it stopped at, alone: nearly all others are steady. If there was none, probably few are.
            let others = if at > begun { 1 } else { MANY };
            let next = self.attempt_standing(function, place, at, to.min(at + others))?;
            if next == at {
                return Ok(at);
            }
            at = next;
        }
        Ok(at)
    }

    /// Runs the handlers of packets that [`NetworkFunction::steady`] decides on; says where another one stands.
    #[inline(always)]
    fn attempt_steady<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) -> usize {
        let all = self.sets.as_ref().is_some_and(|sets| sets.found.is_steady(function, place));
        self.attempt_steady_if(all, function, place, from, to)
    }

    /// The same; `all`: their sets are live for the function and within their timeout. In most batches they are, and all packets are
    /// [plain](Pass::is_plain).
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

    /// Their loop: it knows no context, no log, no copy of what was before.
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
        // At most one thing is read that somebody else may write, by a packet or once for all of them: each stands when it is handled.
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

    /// The loop for packets that may touch shared state, as long as none has changed any.
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
                let state = steady.state(i);
                cx.turn_to(i, reversed, self.now_ns[i]);
                let before = *state;
                let handled = function.packet(&mut cx, &mut turn.packet(Some(&mut logs.packets)), state);
                if let Ok(verdict) = handled
                    && cx.settle()
                {
                    // It stands, whatever comes after it.
                    logs.packets.clear();
                    reached.note();
                    self.verdicts.set(i, verdict);
                    if cx.is_fresh() {
                        continue;
                    }
                    return Ok(reached.at());
                }
                break (reached.at(), (state.as_bytes() != before.as_bytes()).then_some(before), handled);
            }
        };
        self.mark_first(place, at, before, handled)
    }

    /// The packet at `at` has changed shared state, the first one to do so, or met a conflict; `before` is the state of its set
    /// as it was, if it has changed.
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

    /// Runs the handlers of packets of live sets, a mark before each; says where another one stands.
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
            let state = steady.state(i);
            let mark = Mark::new(self.tx, logs, self.verdicts.code(i), (slot, since_ms));
            logs.marks.push(mark);
            self.tx.set_now(self.now_ns[i]);
            let before = *state;
            let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, i, reversed);
            let handled = handle_packet(function, &mut cx, &mut turn.packet(Some(&mut logs.packets)), state);
            // Most leave their set as it was.
            if state.as_bytes() != before.as_bytes() {
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
            // It stands, whatever comes after it.
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
