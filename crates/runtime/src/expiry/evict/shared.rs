//! Eviction of shared sets: each worker ends as many sets as it has begun, from its share of the table.

use std::slice::from_ref;

use braid_nf::Lives;
use braid_packet::BATCH_MAX;
use braid_state::Share;

use super::{Eviction, FURTHER, SAMPLE};
use crate::attempt::{End, Witness};
use crate::expiry::{Expiring, ROWS_MAX, expire_shared};

/// How many sets a worker has to end, and where it searches for them.
#[derive(Debug, Default)]
pub(super) struct Owed {
    /// The number of sets that it had begun when it last looked.
    begun: u64,
    /// Sets that it has begun without ending others, while there were too many.
    sets: usize,
    /// The row of its share at which it continues.
    row: u32,
}

impl Eviction {
    /// Ends surplus sets of each function of a group of shared sets. Several workers see the same surplus, so each removes as many as it has added,
    /// and more only if the sets that all workers have added since their last batches might not fit.
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
                // A set that ends for one function ends for the others too.
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

    /// Finds candidates among the sets of the function at `position` from which `count` can be selected.
    fn find_shared(&mut self, (count, position): (usize, usize), now_ns: u64, share: Share, on: &mut Expiring<'_>) {
        self.shared_choice.forget();
        self.look_shared(position, count * SAMPLE, now_ns, share, on);
        if self.shared_choice.wants_others(count) {
            self.look_shared(position, FURTHER, now_ns, share, on);
        }
    }

    /// Searches for `more` candidates, perhaps in a few rows twice, and sets assured ones apart.
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
            // Another worker may be writing to one of the sets; those found before count.
            let _ = stages[position].find_candidates_shared(on.tx, share.row(self.shared.row, room), found);
            on.tx.abandon();
        }
        let others = on.chain.groups()[on.group].stages.iter().filter(|&&of| of != position);
        for &other in others {
            for candidate in &mut found[known..] {
                candidate.is_assured |= stages[other].is_assured_shared(on.tx, &candidate.at).unwrap_or(false);
                on.tx.abandon();
            }
        }
        self.shared_choice.set_apart(known);
    }
}
