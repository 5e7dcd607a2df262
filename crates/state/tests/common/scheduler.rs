//! A token that one thread holds at a time; a seeded generator decides which thread gets it next.

use std::sync::{Arc, Condvar, Mutex};

use super::Random;

struct Inner {
    running: Option<usize>,
    waiting: Vec<usize>,
    expected: usize,
    random: Random,
}

/// The scheduler, shared by all workers of a run.
#[derive(Clone)]
pub struct Scheduler(Arc<(Mutex<Inner>, Condvar)>);

impl Scheduler {
    /// Creates a scheduler. The run begins when all workers have entered, so that the schedule depends on the seed alone.
    pub fn new(workers: usize, seed: u64) -> Scheduler {
        let inner = Inner { running: None, waiting: Vec::new(), expected: workers, random: Random::new(seed) };
        Scheduler(Arc::new((Mutex::new(inner), Condvar::new())))
    }

    pub fn enter(&self, worker: usize) {
        let mut inner = self.0.0.lock().unwrap();
        inner.waiting.push(worker);
        inner.waiting.sort_unstable();
        inner.expected -= 1;
        if inner.expected == 0 {
            self.next(&mut inner);
        }
        self.wait(inner, worker);
    }

    pub fn switch(&self, worker: usize) {
        let mut inner = self.0.0.lock().unwrap();
        inner.waiting.push(worker);
        inner.waiting.sort_unstable();
        self.next(&mut inner);
        self.wait(inner, worker);
    }

    pub fn leave(&self, _worker: usize) {
        self.next(&mut self.0.0.lock().unwrap());
    }

    fn next(&self, inner: &mut Inner) {
        inner.running = None;
        if !inner.waiting.is_empty() {
            let n = inner.random.below(inner.waiting.len() as u64) as usize;
            inner.running = Some(inner.waiting.remove(n));
        }
        self.0.1.notify_all();
    }

    fn wait(&self, mut inner: std::sync::MutexGuard<'_, Inner>, worker: usize) {
        while inner.running != Some(worker) {
            inner = self.0.1.wait(inner).unwrap();
        }
    }
}
