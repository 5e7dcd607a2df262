//! One function's pass over a batch: the loop in which handlers run, and what is needed to take any of it back.
//!
//! An attempt covers packets `from..to` of the pass. Before each packet a [`Mark`] remembers where every log stands, so a
//! conflict at packet *k* takes back *k* alone, and a failed commit takes back all of them, newest first. Marks are kept from
//! the first packet on that changes aggregate state; those before it stand whatever happens. A function without state
//! objects cannot meet a conflict: its loop keeps no marks and saves nothing.

use braid_packet::key::{KeyClass, Keys};
use braid_packet::{Batch, Undo};
use braid_state::{Savepoint, SetMeta, Tx};
use zerocopy::IntoBytes;

use crate::cx::{Cx, Emitted};
use crate::sets::{NewPlace, NewSet, Place as SetPlace, SetSlot, SetTables, SetUndo};
use crate::shared::{Lives, SharedSets};
use crate::{Handled, NetworkFunction, Verdict, Verdicts};

/// Nanoseconds in the unit of [`SetMeta::last_seen_ms`].
pub(crate) const MS: u64 = 1_000_000;

/// The sets of a pass's function: tables, keys and places, shared with the other functions of the same group.
#[derive(Debug)]
pub struct PassSets<'a> {
    /// This worker's tables of the group.
    pub tables: &'a mut SetTables,
    /// Keys of the batch's packets.
    pub keys: &'a Keys,
    /// Where each packet's set is.
    pub slots: &'a mut [SetSlot; 256],
    /// How long each packet's set had been without a packet, in milliseconds.
    pub idle_ms: &'a mut [u32; 256],
}

/// Everything a pass works on.
#[derive(Debug)]
pub struct Pass<'a> {
    /// The worker's transaction.
    pub tx: &'a mut Tx,
    /// The packets.
    pub batch: &'a mut Batch,
    /// The sets, if the function has any.
    pub sets: Option<PassSets<'a>>,
    /// Indices in the batch of the packets that reach this function, in order.
    pub todo: &'a [u16],
    /// What has been decided for each packet of the batch.
    pub verdicts: &'a mut Verdicts,
    /// Each packet's time in nanoseconds.
    pub now_ns: &'a [u64; 256],
    /// Ports of the plan.
    pub ports: u16,
    /// Logs of the worker.
    pub logs: &'a mut Logs,
}

/// A worker's logs of what the current attempt did.
#[derive(Debug, Default)]
pub struct Logs {
    pub(crate) packets: Undo,
    pub(crate) sets: SetUndo,
    /// Packets that handlers made.
    pub emitted: Emitted,
    /// Shared sets that became live or ended on this worker.
    pub lives: Lives,
    /// Position up to which the current attempt stands whatever happens; the marks are those of the packets after it.
    kept: usize,
    marks: Vec<Mark>,
    /// Emitted packets before the one that is being handled, if there are no marks.
    emitted_before: usize,
}

impl Logs {
    /// The attempt is committed: nothing can be taken back any more. Emitted packets stay until they are sent.
    #[inline(always)]
    pub fn commit(&mut self) {
        self.packets.clear();
        self.sets.clear();
        self.marks.clear();
    }
}

#[derive(Debug)]
struct Mark {
    transaction: Savepoint,
    packets: usize,
    sets: usize,
    emitted: usize,
    lives: Lives,
    verdict: Verdict,
    set_place: (SetSlot, u32),
}

/// A handler met a conflict: the packets before `at` stand, `at` has been taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted {
    /// Position in the pass.
    pub at: usize,
}

/// Where a function's state lies among its group's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its bit in [`SetMeta::live`].
    pub bit: u16,
    /// Byte offset of its state in the record.
    pub offset: usize,
}

impl Pass<'_> {
    /// Runs `function`'s handlers over positions `from..to`, remembering how to take each back.
    pub(crate) fn attempt<N: NetworkFunction>(
        &mut self,
        function: &N,
        place: Place,
        shared: Option<&SharedSets>,
        from: usize,
        to: usize,
    ) -> Result<(), Interrupted> {
        self.logs.kept = from;
        for at in from..to {
            let i = self.todo[at] as usize & 255;
            let is_first = self.tx.is_fresh() && shared.is_none();
            let place_before = self.set_place(i);
            if is_first {
                self.logs.emitted_before = self.logs.emitted.len();
            } else {
                self.mark(i);
            }
            let handled = match shared {
                None => self.handle::<N, true>(function, place, i),
                Some(shared) => self.handle_in(function, shared, i),
            };
            let Ok(verdict) = handled else {
                self.take_back_last(i, place_before);
                return Err(Interrupted { at });
            };
            if is_first && self.tx.settle() {
                // It stands, whatever comes after it.
                self.logs.commit();
                self.logs.kept = at + 1;
            } else if is_first {
                let mark = self.first_mark(i, place_before);
                self.logs.marks.push(mark);
            }
            self.verdicts.set(i, verdict);
        }
        Ok(())
    }

    /// Runs handlers that cannot meet a conflict.
    pub(crate) fn run<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) {
        for at in from..to {
            self.logs.kept = at;
            self.logs.emitted_before = self.logs.emitted.len();
            let i = self.todo[at] as usize & 255;
            if let Ok(verdict) = self.handle::<N, false>(function, place, i) {
                self.verdicts.set(i, verdict);
            }
            self.logs.sets.clear();
        }
    }

    /// Has the function ask for the shared state of positions `from..to`.
    pub(crate) fn prefetch<N: NetworkFunction>(&mut self, function: &N, place: Place, from: usize, to: usize) {
        self.logs.kept = from;
        let Some(sets) = &mut self.sets else { return };
        for &i in &self.todo[from..to] {
            let slot = sets.slots[i as usize];
            if slot != SetSlot::MISS {
                function.prefetch(sets.tables.state::<N::Set>(slot, place.offset));
            }
        }
    }

    /// Commits what has been attempted. If that fails, the packets are taken back, but for those
    /// that had not touched aggregate state and therefore stood already; the answer says where to go on.
    #[inline]
    pub fn commit(&mut self) -> Result<u64, usize> {
        match self.tx.commit() {
            Ok(committed) => {
                self.logs.commit();
                Ok(committed.sequence)
            }
            Err(_) => Err(self.abandon()),
        }
    }

    /// Takes the current attempt back and aborts the transaction; says where to go on.
    #[cold]
    fn abandon(&mut self) -> usize {
        let kept = self.logs.kept;
        while let Some(mark) = self.logs.marks.pop() {
            self.take_back(self.todo[kept + self.logs.marks.len()] as usize, &mark);
        }
        self.tx.abort();
        kept
    }

    /// After a panic in a handler: the position of its packet, whose attempt has been taken back as far as that is possible.
    #[cold]
    pub fn find_panic(&mut self) -> usize {
        // Either it had touched nothing before, or its mark is the last one.
        let at = self.logs.kept + self.logs.marks.len().saturating_sub(1);
        let i = self.todo[at] as usize;
        self.take_back_last(i, self.set_place(i));
        at
    }

    #[inline(always)]
    fn set_place(&self, i: usize) -> (SetSlot, u32) {
        self.sets.as_ref().map_or((SetSlot::MISS, 0), |sets| (sets.slots[i & 255], sets.idle_ms[i & 255]))
    }

    fn mark(&mut self, i: usize) {
        let mark = Mark {
            transaction: self.tx.savepoint(),
            packets: self.logs.packets.mark(),
            sets: self.logs.sets.mark(),
            emitted: self.logs.emitted.len(),
            lives: self.logs.lives,
            verdict: self.verdicts.get(i),
            set_place: self.set_place(i),
        };
        self.logs.marks.push(mark);
    }

    /// The mark of packet `i` if nothing had been touched before it: all logs were empty.
    fn first_mark(&self, i: usize, set_place: (SetSlot, u32)) -> Mark {
        Mark {
            transaction: Savepoint::default(),
            packets: 0,
            sets: 0,
            emitted: self.logs.emitted_before,
            lives: self.logs.lives,
            verdict: self.verdicts.get(i),
            set_place,
        }
    }

    /// Takes back the packet that is being handled; `set_place` is used if it is the first to touch something.
    #[cold]
    fn take_back_last(&mut self, i: usize, set_place: (SetSlot, u32)) {
        let mark = self.logs.marks.pop().unwrap_or_else(|| self.first_mark(i, set_place));
        self.take_back(i, &mark);
    }

    fn take_back(&mut self, i: usize, mark: &Mark) {
        self.tx.rollback(&mark.transaction);
        self.batch.restore(i, &mut self.logs.packets, mark.packets);
        self.logs.emitted.truncate(mark.emitted);
        self.logs.lives = mark.lives;
        self.verdicts.set(i, mark.verdict);
        if let Some(sets) = &mut self.sets {
            self.logs.sets.restore(sets.tables, mark.sets);
            (sets.slots[i], sets.idle_ms[i]) = mark.set_place;
        }
    }

    /// Runs the handler for packet `i`. What is here is the way of a packet of a live set; the rest is out of line.
    #[inline(always)]
    fn handle<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, place: Place, i: usize) -> Handled {
        let i = i & 255;
        self.tx.set_now(self.now_ns[i]);
        let Some(sets) = &mut self.sets else { return self.handle_orphan::<N, UNDO>(function, i) };
        let slot = sets.slots[i];
        if slot == SetSlot::MISS {
            return self.handle_rest::<N, UNDO>(function, place, i);
        }
        let record = sets.tables.record_mut(slot);
        if record.meta.live & place.bit == 0 {
            return self.handle_rest::<N, UNDO>(function, place, i);
        }
        let state = record.state::<N::Set>(place.offset);
        // No timeout is shorter than nothing, and whoever was here within the millisecond need not be asked for it.
        let idle_ms = sets.idle_ms[i];
        if idle_ms != 0 && u64::from(idle_ms) * MS > function.timeout_ns(state) {
            return self.handle_rest::<N, UNDO>(function, place, i);
        }
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, sets.keys.swapped[i]);
        if !UNDO {
            return function.packet(&mut cx, &mut self.batch.packet(i, None), state);
        }
        let before = *state;
        let handled = function.packet(&mut cx, &mut self.batch.packet(i, Some(&mut self.logs.packets)), state);
        // A packet that changed nothing shared stands; most of the others leave their set as it was.
        let stands = handled.is_ok() && self.logs.marks.is_empty() && self.tx.settle();
        if !stands && state.as_bytes() != before.as_bytes() {
            self.logs.sets.save_state(slot, place.offset, &before);
        }
        handled
    }

    /// Packets in no set.
    #[inline(never)]
    fn handle_orphan<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, i: usize) -> Handled {
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, false);
        let undo = if UNDO { Some(&mut self.logs.packets) } else { None };
        function.orphan(&mut cx, &mut self.batch.packet(i, undo))
    }

    /// Packets in no set, of sets that are not live for this function, or past their timeout.
    #[inline(never)]
    fn handle_rest<N: NetworkFunction, const UNDO: bool>(&mut self, function: &N, place: Place, i: usize) -> Handled {
        let now_ms = (self.now_ns[i] / MS) as u32;
        let Some(sets) = self.sets.as_mut().filter(|sets| sets.keys.class[i] != KeyClass::None) else {
            return self.handle_orphan::<N, UNDO>(function, i);
        };
        if sets.slots[i] == SetSlot::MISS && sets.find_again(i, now_ms, &mut self.logs.sets) {
            return self.handle::<N, UNDO>(function, place, i);
        }
        let slot = sets.slots[i];
        let meta = if slot == SetSlot::MISS { SetMeta::default() } else { *sets.tables.meta_mut(slot) };
        let mut cx = Cx::new(self.tx, &mut self.logs.emitted, self.ports, i, sets.keys.swapped[i]);
        if meta.live & place.bit != 0 {
            let (state, key) = (*sets.tables.state::<N::Set>(slot, place.offset), sets.tables.key(slot));
            function.expired(&mut cx, &key, &state)?;
            self.logs.sets.save_meta(slot, meta);
            sets.tables.set_live(slot, meta.live & !place.bit);
        }
        let undo = if UNDO { Some(&mut self.logs.packets) } else { None };
        let new = NewPlace {
            tables: sets.tables,
            undo: &mut self.logs.sets,
            keys: sets.keys,
            slot: &mut sets.slots[i],
            index: i,
            now_ms,
            bit: place.bit,
            offset: place.offset,
        };
        function.first(&mut cx, &mut self.batch.packet(i, undo), &mut NewSet::new(SetPlace::Local(new)))
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

impl PassSets<'_> {
    /// Looks for the set of a packet whose set was not there when its batch came: the batch's own packets may have made it.
    fn find_again(&mut self, i: usize, now_ms: u32, undo: &mut SetUndo) -> bool {
        let found = self.tables.find(self.keys, i);
        if found == SetSlot::MISS {
            return false;
        }
        let meta = *self.tables.meta_mut(found);
        undo.save_meta(found, meta);
        self.slots[i] = found;
        self.idle_ms[i] = now_ms.wrapping_sub(meta.last_seen_ms);
        self.tables.meta_mut(found).last_seen_ms = now_ms;
        true
    }

    /// Looks up the packets in `todo` and notes their arrival: how long each set had waited, and that it was seen now.
    #[inline]
    pub fn look_up(&mut self, todo: &[u16], now_ns: &[u64; 256]) {
        for &i in todo {
            self.slots[i as usize & 255] = SetSlot::MISS;
        }
        let (slots, idle_ms) = (&mut *self.slots, &mut *self.idle_ms);
        self.tables.lookup_batch(self.keys, todo, |i, slot, meta| {
            slots[i & 255] = slot;
            if let Some(meta) = meta {
                let now_ms = (now_ns[i & 255] / MS) as u32;
                idle_ms[i & 255] = now_ms.wrapping_sub(meta.last_seen_ms);
                meta.last_seen_ms = now_ms;
            }
        });
    }
}
