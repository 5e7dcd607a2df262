//! How a handler runs for one packet, and the loops of functions that cannot meet a conflict.
//!
//! Nearly every packet belongs to a live set with a short key that is within its timeout. These packets have a tight
//! loop of their own ([`Pass::run_steady`]). It stops at the first packet of any other kind, which is handled out of
//! line, and resumes after it. The loops of all other functions are in `attempts.rs`.

use braid_packet::key::KeyClass;
use braid_packet::time::NS_PER_MS;
use braid_state::SetMeta;

use super::steady::{InHand, Reached, Steady, is_late};
use super::{Pass, Place};
use crate::cx::Cx;
use crate::sets::{NewPlace, NewSet, Place as SetPlace, SetSlot};
use crate::shared::SharedSets;
use crate::{Arrival, Handled, NetworkFunction, Packet};

/// Runs the handlers of a function for a packet of a live set.
#[inline(always)]
pub(crate) fn handle_packet<N: NetworkFunction>(
    function: &N,
    cx: &mut Cx<'_>,
    packet: &mut Packet<'_>,
    state: &mut N::Set,
) -> Handled {
    if N::STEADY {
        let arrival = Arrival { now_ns: cx.now(), reversed: cx.reversed(), alone: cx.alone(), era: None };
        if let Some(verdict) = function.steady(arrival, packet, state) {
            return Ok(verdict);
        }
    }
    function.packet(cx, packet, state)
}

/// Out-of-line copy of [`handle_packet`] for rare paths; the hot loops inline the handler.
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
        let ahead = self.let_live_ahead(function, place, from, to);
        let at = match ahead.steady && self.is_plain() {
            true => self.run_steady::<N, true>(function, place, from, ahead.to),
            false => self.run_steady::<N, false>(function, place, from, ahead.to),
        };
        if at < ahead.to {
            self.todo.put_in_order(at..to);
        }
        self.run_rest(function, place, at, to);
    }

    /// Handles the rest of a pass, where packets may be of any kind.
    #[inline(never)]
    fn run_rest<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) {
        let mut at = from;
        while at < to {
            if self.is_first(place, at) {
                self.prefetch_first(function, place, at, to);
            }
            self.run_one(function, place, at);
            at += 1;
            // A packet whose set is not live would end the loop at once.
            if at < to && !self.is_first(place, at) {
                at = self.run_steady::<N, false>(function, place, at, to);
            }
        }
    }

    /// Runs the handlers of packets of live sets and returns the position of the first other packet. `ALL`: all packets
    /// belong to live sets and are [plain](Pass::is_plain).
    #[inline(always)]
    fn run_steady<N: NetworkFunction, const ALL: bool>(
        &mut self,
        function: &N,
        place: Place,
        from: usize,
        to: usize,
    ) -> usize {
        let times = self.times::<ALL>(from);
        let Some(sets) = &mut self.sets else { return from };
        let (mut steady, logs) = (Steady::new(function, sets, place), &mut *self.logs);
        let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
        let mut reached = Reached::<ALL>::new(self.batch, from, self.todo.part(from..to), &mut logs.kept);
        while let Some(turn) = reached.step() {
            let i = turn.index();
            let reversed = steady.swapped[i];
            if !steady.is_live::<ALL>(i) {
                return reached.at();
            }
            cx.turn_to(i, reversed, times.of(i));
            if let Ok(verdict) = handle_packet(function, &mut cx, &mut turn.packet(None), steady.state(i)) {
                self.verdicts.set(i, verdict);
            }
        }
        to
    }

    /// Runs the handlers of a function without packet sets.
    #[inline(always)]
    fn run_orphans<N: NetworkFunction>(&mut self, function: &N, from: usize, to: usize) {
        let logs = &mut *self.logs;
        let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
        let mut reached = Reached::<false>::new(self.batch, from, self.todo.part(from..to), &mut logs.kept);
        while let Some(turn) = reached.step() {
            let i = turn.index();
            cx.turn_to(i, false, self.now_ns[i]);
            if let Ok(verdict) = function.orphan(&mut cx, &mut turn.packet(None)) {
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

    /// Runs the handler for packet `i`, wherever its set is stored, in a way that can be rolled back.
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

    /// Runs the handler for packet `i`, of whatever kind.
    fn handle<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, place: Place, i: usize) -> Handled {
        self.tx.set_now(self.now_ns[i]);
        let Some(sets) = self.sets.as_mut().filter(|sets| sets.keys.class[i] != KeyClass::None) else {
            return self.handle_orphan::<N, UNDO>(function, i);
        };
        let now_ms = (self.now_ns[i] / NS_PER_MS) as u32;
        if sets.found.slots[i] == SetSlot::MISS {
            sets.find_again(i, now_ms, &mut self.logs.sets);
        }
        let slot = sets.found.slots[i];
        let meta = if slot == SetSlot::MISS { SetMeta::default() } else { *sets.tables.meta_mut(slot) };
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, sets.keys.swapped[i]);
        let undo = if UNDO { Some(&mut self.logs.packets) } else { None };
        if meta.live & place.bit != 0 {
            let state = sets.tables.state::<N::Set>(slot, place.offset);
            if !is_late(function, state, sets.found.since_ms[i]) {
                let set = InHand::new(state);
                let handled = packet_out_of_line(function, &mut cx, &mut self.batch.packet(i, undo), set.state);
                if let Some(before) = set.changed().filter(|_| UNDO) {
                    self.logs.sets.save_state(slot, place.offset, &before);
                }
                return handled;
            }
            let before = *state;
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

    /// Runs the handler of a packet in no set.
    fn handle_orphan<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, i: usize) -> Handled {
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, false);
        let undo = if UNDO { Some(&mut self.logs.packets) } else { None };
        function.orphan(&mut cx, &mut self.batch.packet(i, undo))
    }

    /// Like [`handle`](Self::handle), for a function whose sets are shared.
    fn handle_in<N: NetworkFunction>(&mut self, function: &N, shared: &SharedSets, i: usize) -> Handled {
        match &self.sets {
            Some(sets) if sets.keys.class[i] != KeyClass::None => {
                self.tx.set_now(self.now_ns[i]);
                let (key, reversed) = (sets.keys.key(i), sets.keys.swapped[i]);
                self.handle_shared(function, shared, key, reversed, i)
            }
            // An orphan is handled in the same way wherever sets are stored.
            _ => self.handle::<N, true>(function, Place::default(), i),
        }
    }
}
