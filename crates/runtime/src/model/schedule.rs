//! A seeded scheduler: workers are threads, but only one runs at a time, and at every yield point of a transaction a random choice decides
//! which one continues. The same seed gives the same schedule, so a violation that it finds can be reproduced.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use braid_stm::{Tx, YieldPoint};

/// Decides which worker runs.
#[derive(Debug)]
pub struct Scheduler {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The worker that runs.
    current: usize,
    /// Workers that have not ended.
    alive: Vec<bool>,
    /// Workers that have arrived at the start; none runs before all have.
    arrived: Vec<bool>,
    random: u64,
    /// On average one in so many yield points is a switch.
    one_in: u64,
    /// Number of yield points passed.
    steps: u64,
}

impl State {
    /// The next value of xorshift64.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn switch(&mut self) {
        let alive: Vec<usize> = (0..self.alive.len()).filter(|&worker| self.alive[worker]).collect();
        if !alive.is_empty() {
            let pick = self.next() as usize % alive.len();
            self.current = alive[pick];
        }
    }
}

impl Scheduler {
    /// Creates a schedule for `workers` workers.
    pub fn new(workers: usize, seed: u64) -> Arc<Scheduler> {
        let mut state = State {
            current: 0,
            alive: vec![true; workers],
            arrived: vec![false; workers],
            random: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            one_in: 1,
            steps: 0,
        };
        // Some schedules switch at nearly every point and some rarely, to provoke different kinds of conflicts.
        state.one_in = 1 << (state.next() % 6);
        state.switch();
        Arc::new(Scheduler { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn(&self, mut state: MutexGuard<'_, State>, worker: usize) {
        while state.current != worker || state.arrived.contains(&false) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Registers a worker whose thread has started, and returns when it is the worker's turn.
    pub fn enter(&self, worker: usize) {
        let mut state = self.lock();
        state.arrived[worker] = true;
        self.changed.notify_all();
        self.wait_for_turn(state, worker);
    }

    /// A yield point of the running worker; with `must` the next worker is always chosen anew.
    pub fn at(&self, worker: usize, must: bool) {
        let mut state = self.lock();
        state.steps += 1;
        if must || state.next().is_multiple_of(state.one_in) {
            state.switch();
            if state.current != worker {
                self.changed.notify_all();
                self.wait_for_turn(state, worker);
            }
        }
    }

    /// The running worker, and the number of yield points passed by all workers.
    pub fn progress(&self) -> (usize, u64) {
        let state = self.lock();
        (state.current, state.steps)
    }

    /// Removes a worker that has ended, or never came.
    pub fn leave(&self, worker: usize) {
        let mut state = self.lock();
        state.alive[worker] = false;
        state.arrived[worker] = true;
        state.switch();
        self.changed.notify_all();
    }

    /// Makes a worker's transaction yield to this scheduler.
    pub fn govern(self: &Arc<Self>, worker: usize, tx: &mut Tx) {
        let scheduler = Arc::clone(self);
        tx.yield_with(move |point| {
            if point.is_switch() {
                scheduler.at(worker, point == YieldPoint::Wait);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which three workers pass their yield points under a seed.
    fn order(seed: u64) -> Vec<usize> {
        let scheduler = Scheduler::new(3, seed);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (scheduler, order) = (&scheduler, &order);
                scope.spawn(move || {
                    scheduler.enter(worker);
                    for _ in 0..50 {
                        order.lock().expect("no panic").push(worker);
                        scheduler.at(worker, false);
                    }
                    scheduler.leave(worker);
                });
            }
        });
        order.into_inner().expect("no panic")
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        for seed in 0..20 {
            assert_eq!(order(seed), order(seed), "seed {seed}");
        }
    }

    #[test]
    fn different_seeds_give_different_schedules_and_everybody_runs() {
        let orders: std::collections::BTreeSet<_> = (0..20).map(order).collect();
        assert!(orders.len() > 10);
        assert!(orders.iter().all(|order| order.len() == 150));
    }
}
