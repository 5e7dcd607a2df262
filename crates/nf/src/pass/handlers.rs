//! The loops in which handlers run.
//!
//! Nearly every packet belongs to a live set with a short key that is within its timeout. For those there is a loop of its own
//! without detours; it stops at the first packet that is anything else, which is handled out of line, and goes on behind it.
//! A function that cannot meet a conflict has one such loop ([`Pass::run_steady`]); all others have two: one for as long as
//! nothing has been written and no conflict was met, so that every packet stands as soon as it is handled
//! ([`Pass::attempt_fresh`]), and one that leaves a mark before each packet ([`Pass::attempt_marked`]).

use braid_packet::key::KeyClass;
use braid_state::{Plain, SetMeta};
use zerocopy::IntoBytes;

use super::{Found, Interrupted, MS, Mark, Pass, PassSets, Place};
use crate::cx::Cx;
use crate::sets::{NewPlace, NewSet, Place as SetPlace, SetSlot, StatesAt};
use crate::shared::SharedSets;
use crate::{Arrival, Handled, NetworkFunction, Packet};

/// What the loops for packets of live sets look at before they run a handler.
struct Steady<'a, N: NetworkFunction> {
    function: &'a N,
    states: StatesAt<'a, N::Set>,
    found: &'a Found,
    swapped: &'a [bool; 256],
    bit: u16,
    /// Nothing need be asked about single packets.
    all: bool,
}

impl<'a, N: NetworkFunction> Steady<'a, N> {
    #[inline(always)]
    fn new(function: &'a N, sets: &'a mut PassSets<'_>, place: Place) -> Steady<'a, N> {
        let PassSets { tables, keys, found } = sets;
        let (states, all) = (tables.states_at(place.offset), found.is_steady(function, place));
        Steady { function, states, found, swapped: &keys.swapped, bit: place.bit, all }
    }

    /// The state of packet `i`'s set if it is live for the function and within its timeout.
    #[inline(always)]
    fn state(&mut self, i: usize) -> Option<&mut N::Set> {
        let (meta, state) = self.states.get(self.found.slots[i])?;
        if !self.all && (meta.live & self.bit == 0 || is_late(self.function, state, self.found.idle_ms[i])) {
            return None;
        }
        Some(state)
    }
}

/// How far a loop has come: noted when it ends, by a panic too, and kept in a register until then.
struct Reached<'a> {
    kept: &'a mut usize,
    at: usize,
}

impl Drop for Reached<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        *self.kept = self.at;
    }
}

/// Whether a set is past its timeout. No timeout is shorter than nothing: whoever was here within the millisecond need not be
/// asked for it.
#[inline(always)]
fn is_late<N: NetworkFunction>(function: &N, state: &N::Set, idle_ms: u32) -> bool {
    idle_ms != 0 && u64::from(idle_ms) * MS > function.timeout_ns(state)
}

/// What the function does with a packet of a live set.
#[inline(always)]
pub(crate) fn handle_packet<N: NetworkFunction>(
    function: &N,
    cx: &mut Cx<'_>,
    packet: &mut Packet<'_>,
    state: &mut N::Set,
) -> Handled {
    if N::STEADY {
        let arrival = Arrival { now_ns: cx.now(), reversed: cx.reversed(), alone: cx.alone() };
        if let Some(verdict) = function.steady(arrival, packet, state) {
            return Ok(verdict);
        }
    }
    function.packet(cx, packet, state)
}

/// For the ways that few packets go: the handler is compiled into the loops, and once more here.
#[inline(never)]
fn packet_out_of_line<N: NetworkFunction>(
    function: &N,
    cx: &mut Cx<'_>,
    packet: &mut Packet<'_>,
    state: &mut N::Set,
) -> Handled {
    handle_packet(function, cx, packet, state)
}

impl Pass<'_> {
    /// Runs handlers that cannot meet a conflict over positions `from..to`.
    pub(crate) fn run<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) {
        self.logs.emitted_before = self.logs.emitted.len();
        if self.sets.is_none() {
            return self.run_orphans(function, from, to);
        }
        let mut at = from;
        while at < to {
            at = self.run_steady(function, place, at, to);
            if at < to {
                self.run_one(function, place, at);
                at += 1;
            }
        }
    }

    /// Runs the handlers of packets of live sets; says where another one stands.
    #[inline(always)]
    fn run_steady<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) -> usize {
        let Some(sets) = &mut self.sets else { return from };
        let mut steady = Steady::new(function, sets, place);
        let (mut packets, logs) = (self.batch.packets(), &mut *self.logs);
        let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
        let mut reached = Reached { kept: &mut logs.kept, at: from };
        for (at, &i) in (from..).zip(&self.todo[from..to]) {
            let i = usize::from(i) & 255;
            let reversed = steady.swapped[i];
            let Some(state) = steady.state(i) else { return at };
            reached.at = at;
            cx.turn_to(i, reversed, self.now_ns[i]);
            if let Ok(verdict) = handle_packet(function, &mut cx, &mut packets.packet(i, None), state) {
                self.verdicts.set(i, verdict);
            }
        }
        to
    }

    /// Runs the handlers of a function without packet sets.
    #[inline(always)]
    fn run_orphans<N: NetworkFunction>(&mut self, function: &N, from: usize, to: usize) {
        let (mut packets, logs) = (self.batch.packets(), &mut *self.logs);
        let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
        let mut reached = Reached { kept: &mut logs.kept, at: from };
        for (at, &i) in (from..).zip(&self.todo[from..to]) {
            let i = usize::from(i) & 255;
            reached.at = at;
            cx.turn_to(i, false, self.now_ns[i]);
            if let Ok(verdict) = function.orphan(&mut cx, &mut packets.packet(i, None)) {
                self.verdicts.set(i, verdict);
            }
        }
    }

    #[inline(never)]
    fn run_one<N: NetworkFunction>(&mut self, function: &N, place: Place, at: usize) {
        self.logs.kept = at;
        let i = usize::from(self.todo[at]) & 255;
        if let Ok(verdict) = self.handle::<N, false>(function, place, i) {
            self.verdicts.set(i, verdict);
        }
        self.logs.sets.clear();
    }

    /// Runs handlers over positions `from..to`, remembering how to take each back.
    pub(crate) fn attempt<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        shared: Option<&SharedSets>,
        from: usize,
        to: usize,
    ) -> Result<(), Interrupted> {
        (self.logs.kept, self.logs.emitted_before) = (from, self.logs.emitted.len());
        let mut at = from;
        while at < to {
            if shared.is_none() {
                at = self.attempt_fresh(function, place, at, to)?;
                // Either nothing is fresh any more, or the next packet is none for this loop either.
                at = self.attempt_marked(function, place, at, to)?;
            }
            if at < to {
                self.attempt_one(function, place, shared, at)?;
                at += 1;
            }
        }
        Ok(())
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
            at = self.attempt_steady(function, place, at, to);
            // The one that it stopped at, alone: nearly all others are steady.
            let next = self.attempt_standing(function, place, at, to.min(at + 1))?;
            if next == at {
                return Ok(at);
            }
            at = next;
        }
        Ok(at)
    }

    /// The loop for packets that [`NetworkFunction::steady`] decides on: it knows no context, no log, no copy of what was before. Says
    /// where another one stands.
    #[inline(never)]
    fn attempt_steady<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) -> usize {
        let Some(sets) = &mut self.sets else { return from };
        let mut steady = Steady::new(function, sets, place);
        let mut packets = self.batch.packets();
        let mut stands = Reached { kept: &mut self.logs.kept, at: from };
        for (at, &i) in (from..).zip(&self.todo[from..to]) {
            let i = usize::from(i) & 255;
            let reversed = steady.swapped[i];
            let Some(state) = steady.state(i) else { return at };
            let arrival = Arrival { now_ns: self.now_ns[i], reversed, alone: self.tx.alone() };
            let Some(verdict) = function.steady(arrival, &mut packets.packet(i, None), state) else { return at };
            // At most one thing was read that somebody else may write: it stands.
            stands.at = at + 1;
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
            let (mut packets, logs) = (self.batch.packets(), &mut *self.logs);
            let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
            if !cx.is_fresh() {
                return Ok(from);
            }
            let mut stands = Reached { kept: &mut logs.kept, at: from };
            let mut todo = (from..).zip(&self.todo[from..to]);
            loop {
                let Some((at, &i)) = todo.next() else { return Ok(to) };
                let i = usize::from(i) & 255;
                let reversed = steady.swapped[i];
                let Some(state) = steady.state(i) else { return Ok(at) };
                cx.turn_to(i, reversed, self.now_ns[i]);
                let before = *state;
                let handled = function.packet(&mut cx, &mut packets.packet(i, Some(&mut logs.packets)), state);
                if let Ok(verdict) = handled
                    && cx.settle()
                {
                    // It stands, whatever comes after it.
                    logs.packets.clear();
                    stands.at = at + 1;
                    self.verdicts.set(i, verdict);
                    if cx.is_fresh() {
                        continue;
                    }
                    return Ok(at + 1);
                }
                break (at, (state.as_bytes() != before.as_bytes()).then_some(before), handled);
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
        let (slot, idle_ms) = self.set_place(i);
        if let Some(before) = before {
            self.logs.sets.save_state(slot, place.offset, &before);
        }
        let Ok(verdict) = handled else {
            self.take_back_last(i, (slot, idle_ms));
            return Err(Interrupted { at });
        };
        self.logs.marks.push(Mark::first(self.logs, i, self.verdicts.code(i), (slot, idle_ms)));
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
        let (mut packets, logs) = (self.batch.packets(), &mut *self.logs);
        for (at, &i) in (from..).zip(&self.todo[from..to]) {
            let i = usize::from(i) & 255;
            let (slot, idle_ms) = (steady.found.slots[i], steady.found.idle_ms[i]);
            let reversed = steady.swapped[i];
            let Some(state) = steady.state(i) else { return Ok(at) };
            let mark = Mark::new(self.tx, logs, self.verdicts.code(i), (slot, idle_ms));
            logs.marks.push(mark);
            self.tx.set_now(self.now_ns[i]);
            let before = *state;
            let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, i, reversed);
            let handled = handle_packet(function, &mut cx, &mut packets.packet(i, Some(&mut logs.packets)), state);
            // Most leave their set as it was.
            if state.as_bytes() != before.as_bytes() {
                logs.sets.save_state(slot, place.offset, &before);
            }
            let Ok(verdict) = handled else {
                self.take_back_last(i, (slot, idle_ms));
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
        if is_first && self.tx.settle() {
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

    /// Runs the handler for packet `i`, wherever its set lives, so that it can be taken back.
    #[inline(always)]
    pub(super) fn handle_anywhere<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        shared: Option<&SharedSets>,
        i: usize,
    ) -> Handled {
        match shared {
            None => self.handle::<N, true>(function, place, i),
            Some(shared) => self.handle_in(function, shared, i),
        }
    }

    /// Runs the handler for packet `i`, whatever it is.
    fn handle<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, place: Place, i: usize) -> Handled {
        self.tx.set_now(self.now_ns[i]);
        let Some(sets) = self.sets.as_mut().filter(|sets| sets.keys.class[i] != KeyClass::None) else {
            return self.handle_orphan::<N, UNDO>(function, i);
        };
        let now_ms = (self.now_ns[i] / MS) as u32;
        if sets.found.slots[i] == SetSlot::MISS {
            sets.find_again(i, now_ms, &mut self.logs.sets);
        }
        let slot = sets.found.slots[i];
        let meta = if slot == SetSlot::MISS { SetMeta::default() } else { *sets.tables.meta_mut(slot) };
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, sets.keys.swapped[i]);
        let undo = if UNDO { Some(&mut self.logs.packets) } else { None };
        if meta.live & place.bit != 0 {
            let state = sets.tables.state::<N::Set>(slot, place.offset);
            let before = *state;
            if !is_late(function, state, sets.found.idle_ms[i]) {
                let handled = packet_out_of_line(function, &mut cx, &mut self.batch.packet(i, undo), state);
                if UNDO && state.as_bytes() != before.as_bytes() {
                    self.logs.sets.save_state(slot, place.offset, &before);
                }
                return handled;
            }
            function.expired(&mut cx, &sets.tables.key(slot), &before)?;
            self.logs.sets.save_meta(slot, meta);
            sets.tables.set_live(slot, meta.live & !place.bit);
        }
        let new = NewPlace {
            tables: sets.tables,
            undo: &mut self.logs.sets,
            keys: sets.keys,
            slot: &mut sets.found.slots[i],
            index: i,
            now_ms,
            bit: place.bit,
            offset: place.offset,
        };
        function.first(&mut cx, &mut self.batch.packet(i, undo), &mut NewSet::new(SetPlace::Local(new)))
    }

    /// Packets in no set.
    fn handle_orphan<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, i: usize) -> Handled {
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, false);
        let undo = if UNDO { Some(&mut self.logs.packets) } else { None };
        function.orphan(&mut cx, &mut self.batch.packet(i, undo))
    }

    /// As [`handle`](Self::handle), for a function whose sets are shared.
    fn handle_in<N: NetworkFunction>(&mut self, function: &N, shared: &SharedSets, i: usize) -> Handled {
        match &self.sets {
            Some(sets) if sets.keys.class[i] != KeyClass::None => {
                self.tx.set_now(self.now_ns[i]);
                let (key, reversed) = (sets.keys.key(i), sets.keys.swapped[i]);
                self.handle_shared(function, shared, key, reversed, i)
            }
            // An orphan is handled the same way wherever sets live.
            _ => self.handle::<N, true>(function, Place::default(), i),
        }
    }
}
