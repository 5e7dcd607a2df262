//! Moves load between workers by changing the indirection table, after RSS++ (Barbette et al., CoNEXT 2019) and Dyssect (Carvalho et al.,
//! INFOCOM 2022). This is for software distribution, where the dispatcher owns the table.
//!
//! After every so many packets the dispatcher checks how many packets each entry received. If the busiest worker has too many, entries move, and
//! all packet sets of an entry move with it: the dispatcher pauses, waits until the rings are empty, has the old worker take the sets out
//! between two batches and the new one put them in, and only then continues with the new table. So packets of a set keep their order, and a
//! certificate of such a run holds. An entry whose sets find no room, or whose new worker has
//! ended, stays where it was.
//!
//! Nothing moves while sets are moving to other tables after a change of the plan, while somebody else stops the workers, or if a worker hangs. While load is being moved no worker gets packets; to keep
//! this a small part of the time, the next move is delayed in proportion to how long the last one took.

use std::sync::Arc;
use std::time::Instant;

use braid_packet::{Batch, Buffers};
use braid_steer::ring::Dispatcher;
use braid_steer::{Reta, Steering};

use crate::live::{Live, PATIENCE, Unanswered};
use crate::worker::Worker;

/// When load is moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Balance {
    /// Packets between two checks.
    pub every_packets: u64,
    /// The load of the busiest worker relative to the mean up to which nothing moves; at least 1.
    pub goal: f64,
    /// Largest part of the time in which no worker gets packets because sets move: more than 0, at most 1.
    pub held_share: f64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { every_packets: 1 << 17, goal: 1.1, held_share: 0.01 }
    }
}

/// What was moved in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balanced {
    /// Number of checks of the load.
    pub looks: u64,
    /// Entries of the indirection table that moved to another worker.
    pub entries: u64,
    /// Packet sets that moved with them.
    pub sets: u64,
    /// Entries that stayed because their sets found no room.
    pub refused: u64,
    /// Total time in which no worker got packets, in nanoseconds.
    pub held_ns: u64,
    /// The longest of these pauses, in nanoseconds.
    pub held_longest_ns: u64,
}

/// The dispatcher's side of load balancing.
pub(crate) struct Balancer {
    balance: Balance,
    live: Arc<Live>,
    steering: Steering,
    per_entry: Vec<u64>,
    /// Packets until the next check.
    left: u64,
    not_before: Option<Instant>,
    balanced: Balanced,
}

impl Balancer {
    pub(crate) fn new(balance: Balance, live: Arc<Live>, steering: Steering) -> Balancer {
        let per_entry = vec![0; steering.reta().entries().len()];
        let left = balance.every_packets;
        Balancer { balance, live, steering, per_entry, left, not_before: None, balanced: Balanced::default() }
    }

    /// What has been moved so far.
    pub(crate) fn balanced(&self) -> Balanced {
        self.balanced
    }

    /// Dispatches a parsed batch to the workers, and moves load when it is time. `wake` wakes the workers that have been handed packets.
    pub(crate) fn dispatch(
        &mut self,
        dispatcher: &mut Dispatcher,
        batch: &mut Batch,
        buffers: &mut Buffers,
        wake: impl FnOnce(&Dispatcher),
    ) {
        let packets = batch.len() as u64;
        dispatcher.dispatch_counting(batch, &self.steering, buffers, &mut self.per_entry);
        wake(dispatcher);
        self.left = self.left.saturating_sub(packets);
        if self.left == 0 {
            self.left = self.balance.every_packets;
            self.look(dispatcher);
        }
    }

    #[cold]
    fn look(&mut self, dispatcher: &Dispatcher) {
        let begun = Instant::now();
        let mut after = self.steering.reta().clone();
        let per_entry: Vec<u64> = self.per_entry.iter_mut().map(std::mem::take).collect();
        self.balanced.looks += 1;
        if self.not_before.is_some_and(|earliest| begun < earliest)
            || after.rebalance(&per_entry, self.balance.goal).is_empty()
        {
            return;
        }
        // Between a set's departure and its arrival the state of the run must not be inspected.
        let live = Arc::clone(&self.live);
        let Some(_alone) = live.try_alone() else { return };
        if may_move(&live) && has_drained(dispatcher, begun) && may_move(&live) {
            for from in 0..after.workers() {
                // A worker that does not answer has ended, or its desk is full; its sets stay where they are.
                let _ = self.empty(from, &after);
            }
        }
        let held = begun.elapsed();
        self.not_before = Some(Instant::now() + held.mul_f64(1.0 / self.balance.held_share - 1.0));
        self.balanced.held_ns += held.as_nanos() as u64;
        self.balanced.held_longest_ns = self.balanced.held_longest_ns.max(held.as_nanos() as u64);
    }

    /// Moves the entries that leave a worker, with their sets.
    fn empty(&mut self, from: usize, after: &Reta) -> Result<(), Unanswered> {
        let now = self.steering.reta().entries();
        let leaves: Vec<bool> = now.iter().zip(after.entries()).map(|(a, b)| *a as usize == from && a != b).collect();
        if !leaves.contains(&true) {
            return Ok(());
        }
        let (steering, leaving) = (self.steering.clone(), leaves.clone());
        let taken = self.live.await_answer_of(from, move |worker| worker.take_sets(&steering, &leaving))?;
        let mut stay = vec![false; leaves.len()];
        for moving in taken {
            let (entry, sets) = (moving.entry, moving.len() as u64);
            let to = usize::from(after.entries()[entry]);
            match self.live.hand_over(to, moving, Worker::put_sets) {
                Ok(()) => self.balanced.sets += sets,
                Err(refused) => {
                    stay[entry] = true;
                    self.balanced.refused += 1;
                    // They had room there a moment ago, and no packet has arrived since. If that worker has ended too, by a panic, its own sets have.
                    let _ = self.live.hand_over(from, refused, Worker::put_sets);
                }
            }
        }
        for entry in (0..leaves.len()).filter(|&entry| leaves[entry] && !stay[entry]) {
            let to = usize::from(after.entries()[entry]);
            self.balanced.entries += u64::from(self.steering.reta_mut().assign(entry, to).is_ok());
        }
        Ok(())
    }
}

/// Whether no worker hangs or has sets that move to other tables: all of them would have to move at once to be searched.
fn may_move(live: &Live) -> bool {
    let is_in_the_way = |left: Result<usize, Unanswered>| match left {
        Ok(left) => left > 0,
        Err(Unanswered::Late(_)) => true,
        Err(Unanswered::Ended(_) | Unanswered::NoWorker(_)) => false,
    };
    !live.ask_all(|worker| worker.sets_to_move()).into_iter().any(is_in_the_way)
}

/// Waits until the workers have taken all packets that were handed to them; false if one of them does not.
fn has_drained(dispatcher: &Dispatcher, begun: Instant) -> bool {
    while !dispatcher.is_drained() {
        if begun.elapsed() >= PATIENCE {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
