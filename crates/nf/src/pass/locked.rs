//! The loop for packets of shared sets, for functions that have no other state object.
//!
//! A packet of a live set has a transaction of its own that locks the set. This transaction cannot fail, so the packet
//! needs no mark and is final at once. Memory is prefetched in two steps, so that cache misses overlap. At the start of
//! a batch, the locations of the sets are fetched: from the worker's own [`Index`] for known sets, from the map's
//! buckets for others. The entry of a set is fetched only shortly before the packet's turn; if it were fetched much
//! earlier, other workers would have taken the cache line away again.

use braid_packet::key::{KeyClass, Keys};
use braid_packet::time::NS_PER_MS;

use braid_state::Locked;

use super::handlers::handle_packet;
use super::look_up::latest;
use super::steady::{Reached, is_late};
use super::{Interrupted, Pass, Place, TakenBack};
use crate::NetworkFunction;
use crate::cx::Cx;
use crate::index::Index;
use crate::shared::{Entry, SharedSets, WORDS, entry, idle_ms, state};

/// How many packets ahead the entry of a shared set is prefetched: at least this many, at most twice as many.
pub const AHEAD: usize = 16;

/// Marks an unknown entry; no entry has this number.
const NO_GUESS: u32 = u32::MAX;

/// Probable entries of the sets of a batch's packets.
struct Guesses {
    /// By position in the pass.
    entries: [u32; 256],
    /// Position up to which the entries have been prefetched.
    until: usize,
    /// Position at which the next entries must be prefetched: the first of the last [`AHEAD`] prefetched ones, if there
    /// are more.
    due: usize,
}

impl Guesses {
    /// Guesses the entries from position `from` to the end of `todo` from the index. For sets that the index does not
    /// know, prefetches the map's buckets.
    #[inline(always)]
    fn new(sets: &SharedSets, index: &Index, keys: &Keys, todo: &[u16], from: usize) -> Guesses {
        let mut entries = [NO_GUESS; 256];
        for (guess, &i) in entries[from..].iter_mut().zip(&todo[from..]) {
            let hash = keys.hash[usize::from(i) & 255];
            match index.entry(hash) {
                Some(entry) => *guess = entry,
                None => sets.map.prefetch_hashed(hash),
            }
        }
        Guesses { entries, until: from, due: from }
    }

    /// Prefetches the next [`AHEAD`] entries, of whose values the first `words` words will be changed. It is out of
    /// line because the calling loop needs the registers.
    #[inline(never)]
    fn go_on(&mut self, sets: &SharedSets, index: &Index, words: usize, keys: &Keys, todo: &[u16]) {
        let end = todo.len().min(self.until + AHEAD);
        for (guess, &i) in self.entries[self.until..end].iter_mut().zip(&todo[self.until..end]) {
            if *guess != NO_GUESS {
                sets.map.ask(*guess, words);
            } else if let Some(entry) = sets.map.guess(keys.hash[usize::from(i) & 255], words) {
                index.note(keys.hash[usize::from(i) & 255], entry);
                *guess = entry;
            }
        }
        self.until = end;
        self.due = if end < todo.len() { (end + 1).saturating_sub(AHEAD) } else { usize::MAX };
    }
}

impl Pass<'_> {
    /// Runs handlers over positions `from..to` of a function whose only state object is its sets; returns the position
    /// reached.
    ///
    /// Packets in no live set (first packets, orphans) have ordinary transactions. If the run is recorded or replayed,
    /// each call handles one packet.
    pub(crate) fn attempt_held<N: NetworkFunction>(
        &mut self,
        function: &N,
        sets: &SharedSets,
        from: usize,
        to: usize,
    ) -> Result<usize, Interrupted> {
        (self.logs.kept, self.logs.emitted_before) = (from, self.logs.emitted.len());
        let is_recorded = self.tx.is_recording() || self.tx.is_replaying();
        let to = if is_recorded { to.min(from + 1) } else { to };
        let Some(keys) = self.sets.as_ref().map(|pass| pass.keys) else {
            return self.attempt(function, Place::default(), Some(sets), from, to);
        };
        let unknown;
        let index = match self.index {
            Some(index) => index,
            None => {
                unknown = Index::default();
                &unknown
            }
        };
        let mut guesses = Guesses::new(sets, index, keys, &self.todo[..to], from);
        let is_plain = self.batch.is_ordinary() && latest(&self.todo[from..to], self.now_ns).1;
        let mut at = from;
        while at < to {
            let last;
            (at, last) = match is_plain {
                true => self.attempt_held_of::<N, true>(function, sets, (&mut guesses, index), at, to),
                false => self.attempt_held_of::<N, false>(function, sets, (&mut guesses, index), at, to),
            };
            self.logs.stood = last.filter(|_| is_recorded);
            if at < to {
                self.attempt_one(function, Place::default(), Some(sets), at)?;
                if is_recorded {
                    // The recorder commits it.
                    return Ok(to);
                }
                self.commit().map_err(|TakenBack { at, .. }| Interrupted { at })?;
                at += 1;
                self.logs.kept = at;
            }
        }
        Ok(to)
    }

    /// Runs the handlers of packets whose sets are live and where they were guessed to be. Returns the position of the
    /// first other packet, and the position in the commit order of the last one handled. `PLAIN`: all packets arrived
    /// at the same time and lie whole in ordinary buffers.
    #[inline(never)]
    fn attempt_held_of<N: NetworkFunction, const PLAIN: bool>(
        &mut self,
        function: &N,
        sets: &SharedSets,
        (guesses, index): (&mut Guesses, &Index),
        from: usize,
        to: usize,
    ) -> (usize, Option<u64>) {
        let (mut last, words) = (None, 1 + size_of::<N::Set>().div_ceil(8));
        let Some(keys) = self.sets.as_ref().map(|pass| pass.keys) else { return (from, last) };
        let times = self.times::<PLAIN>(from);
        let (todo, logs) = (self.todo.part(0..to), &mut *self.logs);
        let mut cx = Cx::new(self.tx, &mut logs.emitted, self.ports, 0, false);
        let mut reached = Reached::<PLAIN>::new(self.batch, from, todo.part(from..to), &mut logs.kept);
        loop {
            let at = reached.at();
            while at >= guesses.due {
                guesses.go_on(sets, index, words, keys, &todo);
            }
            let Some(turn) = reached.step() else { return (to, last) };
            let i = turn.index();
            if keys.class[i] == KeyClass::None {
                return (at, last);
            }
            let now_ns = times.of(i);
            cx.turn_to(i, keys.swapped[i], now_ns);
            let is_own = |held: &Locked<'_>| keys.is(i, |k| held.key_word(k));
            let Some(held) = sets.map.hold_if(&mut cx, guesses.entries[at & 255], is_own) else {
                index.forget(keys.hash[i]);
                return (at, last);
            };
            let (mut found, now_ms): (Entry, _) = ([0; 1 + WORDS], (now_ns / NS_PER_MS) as u32);
            held.copy_to(&mut found[..words]);
            let mut set = state::<N::Set>(&found);
            if is_late(function, &set, idle_ms(now_ms, &found)) {
                return (at, last);
            }
            let Ok(verdict) = handle_packet(function, &mut cx, &mut turn.packet(None), &mut set) else {
                panic!("{} met a conflict on a state object that its `objects` does not name", N::NAME)
            };
            self.verdicts.set(i, verdict);
            last = Some(sets.map.give_back(&mut cx, held, &entry(now_ms, &set)[..words]).sequence);
            reached.note();
        }
    }
}
