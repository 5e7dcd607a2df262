//! Looks up the sets of a batch: all packets together, and again one by one where the batch itself may have created the
//! set.

use braid_packet::Flagged;
use braid_packet::key::KeyClass;
use braid_packet::time::NS_PER_MS;

use super::{Found, PassSets, Place};
use crate::sets::{SetSlot, SetUndo};

/// Out of line, because otherwise the compiler divides for every packet of a capture, even if its time has not changed.
#[inline(never)]
fn to_ms(ns: u64) -> u32 {
    (ns / NS_PER_MS) as u32
}

/// Returns the arrival time of the last of some packets, in nanoseconds, and whether all of them arrived then. Times
/// follow the order of packets in the batch.
#[inline(always)]
pub(super) fn latest(todo: &[u16], now_ns: &[u64; 256]) -> (u64, bool) {
    let (first, last) = todo.iter().fold((255, 0), |(first, last), &i| (i.min(first), i.max(last)));
    let latest_ns = now_ns[usize::from(last) & 255];
    (latest_ns, now_ns[usize::from(first) & 255] == latest_ns)
}

impl PassSets<'_> {
    /// Returns whether packet `i`'s set is not live for the function at `place`, or had no record when it was looked
    /// up.
    #[inline(always)]
    pub(super) fn is_first(&self, place: Place, i: usize) -> bool {
        let slot = self.found.slots[i];
        slot == SetSlot::MISS || self.tables.meta(slot).live & place.bit == 0
    }

    /// Looks again for the set of a packet that had none when the batch was looked up: an earlier packet of the batch
    /// may have created it.
    pub(super) fn find_again(&mut self, i: usize, now_ms: u32, undo: &mut SetUndo) {
        let found = self.tables.find(self.keys, i);
        if found == SetSlot::MISS {
            return;
        }
        let meta = *self.tables.meta_mut(found);
        undo.save_meta(found, meta);
        self.found.slots[i] = found;
        self.found.since_ms[i] = meta.since_ms(now_ms);
        self.tables.meta_mut(found).last_seen_ms = now_ms;
    }

    /// Looks up the packets in `todo` and records their arrival: how long each set had waited, and that it was seen
    /// now.
    #[inline(never)]
    pub fn look_up(&mut self, todo: &[u16], now_ns: &[u64; 256]) {
        let mut latest_ns;
        (latest_ns, self.found.alike) = latest(todo, now_ns);
        let mut now_ms = to_ms(latest_ns);
        if self.found.alike {
            // Always the case on live ports.
            return self.look_up_at(todo, |_| now_ms);
        }
        self.look_up_at(todo, |i| {
            if now_ns[i & 255] != latest_ns {
                latest_ns = now_ns[i & 255];
                now_ms = to_ms(latest_ns);
            }
            now_ms
        });
    }

    /// Like [`look_up`](Self::look_up), given the time of each packet in milliseconds.
    #[inline(always)]
    fn look_up_at(&mut self, todo: &[u16], mut now_ms: impl FnMut(usize) -> u32) {
        let Found { slots, since_ms, missed, live, all, longest_ms, .. } = &mut *self.found;
        (*missed, *all) = (Flagged::default(), true);
        if self.keys.of_all == KeyClass::None {
            todo.iter().for_each(|&i| slots[i as usize & 255] = SetSlot::MISS);
        }
        let (mut all_live, mut longest) = (u16::MAX, 0);
        self.tables.look_up(self.keys, todo, |i, slot, meta| {
            slots[i & 255] = slot;
            let Some(meta) = meta else {
                missed.set(i);
                *all = false;
                return;
            };
            let now_ms = now_ms(i);
            let since = meta.since_ms(now_ms);
            since_ms[i & 255] = since;
            meta.last_seen_ms = now_ms;
            all_live &= meta.live;
            // ORs all values instead of taking the maximum: nearly always all are zero, and this takes one instruction.
            longest |= since;
        });
        // Packets without a key are not looked up, so `all` must be cleared if there are any.
        let has_key = |&i: &u16| self.keys.class[i as usize & 255] != KeyClass::None;
        *all = *all && (self.keys.of_all != KeyClass::None || todo.iter().all(has_key));
        (*live, *longest_ms) = (all_live, longest);
    }
}
