//! The same of sets that workers share: each worker lets as many go as it has begun, from among its share of them.

use std::slice::from_ref;

use braid_nf::Lives;
use braid_packet::BATCH_MAX;
use braid_state::Share;

use super::{Eviction, FURTHER, SAMPLE};
use crate::attempt::{End, Witness};
use crate::expiry::{Expiring, ROWS_MAX, expire_shared};

/// How many sets a worker has to let go, and where it looks for them.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// Sets that it had begun when it last looked.
    begun: u64,
    /// Sets that it has begun and let none go for, while there were too many.
    sets: usize,
    /// The row of its share at which it goes on.
    row: u32,
}

impl Eviction {
    /// Ends sets of each function of a group of shared ones that are too many. Several workers see the same surplus: each takes off what it
    /// has added, more only if what all have added since their last batches would not find room.
    pub(crate) fn run_shared(
        &mut self,
        now_ns: u64,
        share: Share,
        on: &mut Expiring<'_>,
        lives: &mut Lives,
        witness: &mut dyn Witness,
    ) {
        let chain = on.chain;
        let group = &chain.groups()[on.group];
        let begun = lives.created - std::mem::replace(&mut self.shared.begun, lives.created);
        self.shared.sets = self.shared.sets.saturating_add(begun as usize);
        let (slack, mut is_over) = (group.slack(on.tx.domain().workers()), true);
        for &position in &group.stages {
            let (room, live) = chain.stages()[position].shared_room();
            let surplus = (live + slack).saturating_sub(room);
            let count = surplus.min(self.shared.sets.max(surplus.saturating_sub(slack / 2))).min(BATCH_MAX);
            is_over &= surplus == 0;
            if count == 0 {
                continue;
            }
            self.find_shared((count, position), now_ns, share, on);
            self.shared_choice.choose(count);
            for candidate in self.shared_choice.candidates.drain(..) {
                // What one of them does not know any more the others forget too.
                let ended = group
                    .stages
                    .iter()
                    .map(|&of| expire_shared(of, (from_ref(&candidate.at), End::Chosen), now_ns, on, witness));
                let ended = ended.sum::<u64>();
                lives.ended += ended;
                on.counters.sets_evicted += u64::from(ended > 0);
                self.shared.sets = self.shared.sets.saturating_sub(ended as usize);
            }
        }
        if is_over {
            self.shared.sets = 0;
        }
    }

    /// Finds candidates among the sets of the function at a position so that `count` of them can go.
    fn find_shared(&mut self, (count, position): (usize, usize), now_ns: u64, share: Share, on: &mut Expiring<'_>) {
        self.shared_choice.forget();
        self.look_shared(position, count * SAMPLE, now_ns, share, on);
        if self.shared_choice.wants_others(count) {
            self.look_shared(position, FURTHER, now_ns, share, on);
        }
    }

    /// Looks for so many more, at few rows perhaps twice, and sets apart those of whom a function is assured.
    fn look_shared(&mut self, position: usize, more: usize, now_ns: u64, share: Share, on: &mut Expiring<'_>) {
        let (stages, found) = (on.chain.stages(), &mut self.shared_choice.candidates);
        let (known, room) = (found.len(), stages[position].shared_room().0 as u32);
        let rows = share.rows(room);
        on.tx.set_now(now_ns);
        for _ in 0..rows.min(ROWS_MAX as u32) {
            if found.len() >= known + more {
                break;
            }
            self.shared.row = (self.shared.row + 1) % rows;
            // Somebody may just be writing to one of them: the others count.
            let _ = stages[position].find_candidates_shared(on.tx, share.row(self.shared.row, room), found);
            on.tx.abort();
        }
        let others = on.chain.groups()[on.group].stages.iter().filter(|&&of| of != position);
        for &other in others {
            for candidate in &mut found[known..] {
                candidate.is_assured |= stages[other].is_assured_shared(on.tx, &candidate.at).unwrap_or(false);
                on.tx.abort();
            }
        }
        self.shared_choice.set_apart(known);
    }
}
