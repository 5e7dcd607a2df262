//! Inspects and changes workers while they run.
//!
//! A caller leaves an [`Order`] on a worker's desk. The worker looks at its desk once per round (one relaxed load of a line that is
//! written only when there is an order) and carries the order out between two batches, on its own thread and with no work half done. So
//! counters always add up, and tables can be walked and functions exchanged without a lock or a shared written line on the packet path. A
//! worker that has ended leaves its last counters behind.
//!
//! [`Live::hold`] stops all workers between batches, for operations on several of them at once.

pub mod exchange;
pub mod saved;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use braid_io::{Bell, RxCounters, TxCounters};
use braid_state::Domain;
use crossbeam_utils::CachePadded;

use crate::chain::Chain;
use crate::observe::counters::WorkerCounters;
use crate::observe::probe::TimeSplit;
use crate::worker::Worker;

/// Longest time to wait for a worker. A round takes microseconds; a worker that is absent for so long hangs in a handler or gets no
/// processor time.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum number of orders that wait for a worker, so that a worker that hangs does not fill the memory.
const ORDERS_MAX: usize = 1024;

/// Something that a worker does between two batches.
pub type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// Something of which a worker does a piece in every round, until it returns false.
type Task = Box<dyn FnMut(&mut Worker) -> bool + Send>;

/// Why a worker did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The worker does not exist.
    #[error("there is no worker {0}")]
    NoWorker(usize),
    /// The worker has ended.
    #[error("worker {0} has ended")]
    Ended(usize),
    /// The worker has not finished its batch for more than [`PATIENCE`], or too many orders wait for it.
    #[error("worker {0} has not come to the end of its batch for {PATIENCE:?}")]
    Late(usize),
}

/// A snapshot of one worker.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The worker's number.
    pub worker: usize,
    /// Whether it has ended.
    pub ended: bool,
    /// Its counters, taken between two batches.
    pub counters: WorkerCounters,
    /// The counters of its receive queue.
    pub received: RxCounters,
    /// What its sending queue took and could not send.
    pub sent: TxCounters,
    /// Live sets and room for them, by group.
    pub tables: Vec<(usize, usize)>,
    /// Sets that have yet to move from tables which have been replaced.
    pub sets_to_move: usize,
    /// The time that its functions see, in nanoseconds.
    pub now_ns: u64,
    /// How its time was spent since timing began, if it is being measured.
    pub split: Option<TimeSplit>,
}

/// The components of a run; they may be exchanged while it is running.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its functions.
    pub chain: Arc<Chain>,
    /// The domain of its transactions.
    pub domain: Arc<Domain>,
    /// When the run began.
    pub since: Instant,
}

#[derive(Default)]
struct Desk {
    /// There is an order: the only word that a worker reads per round.
    rings: AtomicBool,
    /// What wakes the worker, if it sleeps while it is idle.
    bell: OnceLock<Arc<Bell>>,
    state: Mutex<DeskState>,
}

#[derive(Default)]
struct DeskState {
    orders: Vec<Order>,
    tasks: Vec<Task>,
    last: Option<Seen>,
}

impl DeskState {
    /// Those who left orders see their channels closed.
    fn refuse(&mut self) {
        self.orders.clear();
        self.tasks.clear();
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        // A list of orders cannot be left half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The desks of a run's workers; created before the run, passed to it in [`Control`](crate::Control), usable from any thread.
pub struct Live {
    desks: Box<[CachePadded<Desk>]>,
    running: Mutex<Option<Running>>,
    /// Held while workers are stopped or packet sets move between workers.
    changing: Mutex<()>,
    /// Whether somebody asks for the packets of each port.
    counts_ports: AtomicBool,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("workers", &self.desks.len()).finish_non_exhaustive()
    }
}

impl Live {
    /// Creates the desks for a run of `workers` workers.
    pub fn new(workers: usize) -> Arc<Live> {
        let desks = (0..workers).map(|_| CachePadded::default()).collect();
        let counts_ports = AtomicBool::new(false);
        Arc::new(Live { desks, running: Mutex::default(), changing: Mutex::default(), counts_ports })
    }

    /// Has the workers count packets and bytes by port, which costs a step for each packet; before the run begins.
    pub fn count_ports(&self) {
        // Relaxed: the threads of the run are started later.
        self.counts_ports.store(true, Ordering::Relaxed);
    }

    pub(crate) fn counts_ports(&self) -> bool {
        self.counts_ports.load(Ordering::Relaxed)
    }

    /// The number of workers.
    pub fn workers(&self) -> usize {
        self.desks.len()
    }

    /// The components of the run; `None` before it has begun.
    pub fn running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the components of the run.
    pub fn announce(&self, running: Running) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Whether all workers have ended.
    pub fn has_ended(&self) -> bool {
        self.desks.iter().all(|desk| desk.lock().last.is_some())
    }

    /// Rings this bell whenever there is an order for the worker.
    pub(crate) fn call_by(&self, worker: usize, bell: Arc<Bell>) {
        // A desk has one worker, which does this once.
        let _ = self.desks[worker].bell.set(bell);
    }

    /// Whether a worker has an order. Relaxed: a lock protects the order itself, and noticing it a round later does no harm.
    #[inline(always)]
    pub(crate) fn rings(&self, worker: usize) -> bool {
        self.desks[worker].rings.load(Ordering::Relaxed)
    }

    /// Carries out a worker's orders, on its thread.
    #[cold]
    pub(crate) fn serve(&self, id: usize, worker: &mut Worker) {
        let desk = &self.desks[id];
        // Done first, so that an order to stop leaves nothing to copy.
        worker.bring_objects();
        let (orders, mut tasks) = {
            let mut state = desk.lock();
            desk.rings.store(false, Ordering::Relaxed);
            (std::mem::take(&mut state.orders), std::mem::take(&mut state.tasks))
        };
        orders.into_iter().for_each(|order| order(worker));
        tasks.retain_mut(|task| task(worker));
        if !tasks.is_empty() {
            desk.lock().tasks.append(&mut tasks);
            desk.rings.store(true, Ordering::Relaxed);
            // A worker that has no packets goes on at once, too.
            if let Some(bell) = desk.bell.get() {
                bell.ring();
            }
        }
        // State objects and packet sets that are being moved: a few of them each round, until all have moved.
        if worker.move_sets() | worker.is_bringing() {
            desk.rings.store(true, Ordering::Relaxed);
        }
    }

    /// Closes the desk of a worker that ends: no more orders are accepted, so what is saved of it afterwards is what it ended with.
    pub(crate) fn close(&self, id: usize, worker: &mut Worker) {
        self.serve(id, worker);
        worker.bring_objects();
        self.note_last(id, worker);
    }

    /// Notes how an ended worker is, for those who ask later.
    pub(crate) fn note_last(&self, id: usize, worker: &mut Worker) {
        let seen = Seen { ended: true, ..worker.seen() };
        let mut state = self.desks[id].lock();
        state.last = Some(seen);
        state.refuse();
    }

    /// Closes the desk of a worker that has ended by a panic, and is not to be looked at any more.
    pub(crate) fn abandon(&self, id: usize) {
        let mut state = self.desks[id].lock();
        state.last.get_or_insert_with(|| Seen { worker: id, ended: true, ..Seen::default() });
        state.refuse();
    }

    /// Leaves an order on a worker's desk.
    fn order(&self, worker: usize, order: Order) -> Result<(), Unanswered> {
        self.leave(worker, |state| state.orders.push(order))
    }

    fn leave(&self, worker: usize, leave: impl FnOnce(&mut DeskState)) -> Result<(), Unanswered> {
        self.leave_among(ORDERS_MAX, worker, leave)
    }

    /// Leaves something on a desk on which fewer than `orders_max` orders wait.
    fn leave_among(
        &self,
        orders_max: usize,
        worker: usize,
        leave: impl FnOnce(&mut DeskState),
    ) -> Result<(), Unanswered> {
        let desk = self.desks.get(worker).ok_or(Unanswered::NoWorker(worker))?;
        let mut state = desk.lock();
        if state.last.is_some() {
            return Err(Unanswered::Ended(worker));
        }
        if state.orders.len() + state.tasks.len() >= orders_max {
            return Err(Unanswered::Late(worker));
        }
        leave(&mut state);
        desk.rings.store(true, Ordering::Relaxed);
        if let Some(bell) = desk.bell.get() {
            bell.ring();
        }
        Ok(())
    }

    /// Puts a question to a worker: where the answer comes. One that nobody waits for any more is thrown away.
    fn put<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<Receiver<T>, Unanswered> {
        let (answer, answered) = channel();
        self.order(worker, Box::new(move |worker| drop(answer.send(question(worker)))))?;
        Ok(answered)
    }

    /// Has a worker answer a question between two batches.
    pub fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let answered = self.put(worker, question)?;
        await_answer(worker, &answered, Instant::now() + PATIENCE)
    }

    /// Has a worker answer a question in portions, one between every two batches, until it returns `None`. A long answer so takes as many rounds as
    /// it has portions, not as many times as both threads take to wake each other. Dropping the portions ends the question.
    pub fn ask_in_portions<T: Send + 'static>(
        &self,
        worker: usize,
        mut question: impl FnMut(&mut Worker) -> Option<T> + Send + 'static,
    ) -> Result<Portions<T>, Unanswered> {
        let (answer, answered) = channel();
        let task = move |worker: &mut Worker| {
            let portion = question(worker);
            let goes_on = portion.is_some();
            answer.send(portion).is_ok() && goes_on
        };
        self.leave(worker, |state| state.tasks.push(Box::new(task)))?;
        Ok(Portions { worker, answered })
    }

    /// Asks all workers that are still running at the same time; [`PATIENCE`] applies to all of them together.
    pub fn ask_all<T: Send + 'static>(
        &self,
        question: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Vec<Result<T, Unanswered>> {
        let asked: Vec<_> = (0..self.desks.len()).map(|worker| self.put(worker, question.clone())).collect();
        let until = Instant::now() + PATIENCE;
        let answer = |(worker, asked): (usize, Result<Receiver<T>, Unanswered>)| await_answer(worker, &asked?, until);
        asked.into_iter().enumerate().map(answer).collect()
    }

    /// As [`ask`](Live::ask), however long it takes: what the worker gives away is not lost because it was late.
    pub(crate) fn await_answer_of<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.put(worker, question)?.recv().map_err(|_| Unanswered::Ended(worker))
    }

    /// Hands something over to a worker, however long it takes and however many orders wait on its desk. Returns what `put` could not take, and all
    /// of it if the worker has ended or ends before: nothing is lost on the way.
    pub(crate) fn hand_over<T: Send + 'static>(
        &self,
        worker: usize,
        what: T,
        put: impl FnOnce(&mut Worker, T) -> Result<(), T> + Send + 'static,
    ) -> Result<(), T> {
        let on_the_way = Arc::new(Mutex::new(Some(what)));
        let take = |from: &Mutex<Option<T>>| from.lock().unwrap_or_else(PoisonError::into_inner).take();
        let there = Arc::clone(&on_the_way);
        let (answer, answered) = channel();
        let order: Order = Box::new(move |worker| {
            drop(answer.send(take(&there).map_or(Ok(()), |what| put(worker, what))));
        });
        let left = self.leave_among(usize::MAX, worker, |state| state.orders.push(order));
        let put = left.ok().and_then(|()| answered.recv().ok());
        put.unwrap_or_else(|| take(&on_the_way).map_or(Ok(()), Err))
    }

    /// Prevents others from stopping the workers or moving packet sets until the guard is dropped.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        // The mutex guards no data that could be left half changed.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`alone`](Live::alone), but does not wait for others: `None` while one of them stops the workers.
    pub(crate) fn try_alone(&self) -> Option<MutexGuard<'_, ()>> {
        match self.changing.try_lock() {
            Ok(alone) => Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Snapshots of all workers; for a worker that has ended, its last one.
    pub fn see(&self) -> Vec<Result<Seen, Unanswered>> {
        let answers = self.ask_all(Worker::seen).into_iter().enumerate();
        answers.map(|(worker, answer)| self.or_last(worker, answer)).collect()
    }

    fn or_last(&self, worker: usize, answer: Result<Seen, Unanswered>) -> Result<Seen, Unanswered> {
        answer.or_else(|unanswered| self.desks[worker].lock().last.clone().ok_or(unanswered))
    }

    /// Stops all running workers between two batches until the result is dropped. If one does not stop in time, the others continue.
    pub fn hold(&self) -> Result<Stopped<'_>, Unanswered> {
        let mut held = Stopped { workers: Vec::new(), _alone: self.alone() };
        let mut arrivals = Vec::new();
        for id in 0..self.desks.len() {
            let ((arrive, arrived), (orders, waiting)) = (channel(), channel::<Order>());
            let stay = move |worker: &mut Worker| {
                // A worker whose holder has gone or given up finds the channel closed and continues.
                let _ = arrive.send(());
                waiting.into_iter().for_each(|order| order(worker));
            };
            match self.order(id, Box::new(stay)) {
                Ok(()) => {
                    held.workers.push((id, orders));
                    arrivals.push((id, arrived));
                }
                Err(Unanswered::Ended(_)) => {}
                Err(other) => return Err(other),
            }
        }
        let until = Instant::now() + PATIENCE;
        arrivals.iter().try_for_each(|(id, arrived)| await_answer(*id, arrived, until))?;
        Ok(held)
    }
}

fn await_answer<T>(worker: usize, answered: &Receiver<T>, until: Instant) -> Result<T, Unanswered> {
    use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
    answered.recv_timeout(until.saturating_duration_since(Instant::now())).map_err(|error| match error {
        Timeout => Unanswered::Late(worker),
        Disconnected => Unanswered::Ended(worker),
    })
}

/// The portions of an answer, in the order in which the worker gives them. An error is the last one.
#[derive(Debug)]
pub struct Portions<T> {
    worker: usize,
    answered: Receiver<Option<T>>,
}

impl<T> Iterator for Portions<T> {
    type Item = Result<T, Unanswered>;

    fn next(&mut self) -> Option<Result<T, Unanswered>> {
        await_answer(self.worker, &self.answered, Instant::now() + PATIENCE).transpose()
    }
}

/// Workers stopped between two batches; they continue when it is dropped.
#[derive(Debug)]
pub struct Stopped<'a> {
    workers: Vec<(usize, Sender<Order>)>,
    _alone: MutexGuard<'a, ()>,
}

impl Stopped<'_> {
    /// The numbers of the stopped workers: all that had not ended.
    pub fn workers(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().map(|(id, _)| *id)
    }

    /// Has one of the workers run something, and waits for the result however long it takes.
    pub fn tell<T: Send + 'static>(
        &self,
        worker: usize,
        what: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        self.put(worker, what)?.recv().map_err(|_| Unanswered::Ended(worker))
    }

    fn put<T: Send + 'static>(
        &self,
        worker: usize,
        what: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<Receiver<T>, Unanswered> {
        let (_, orders) = self.workers.iter().find(|(id, _)| *id == worker).ok_or(Unanswered::Ended(worker))?;
        let (answer, answered) = channel();
        let order: Order = Box::new(move |worker| drop(answer.send(what(worker))));
        orders.send(order).map_err(|_| Unanswered::Ended(worker))?;
        Ok(answered)
    }

    /// Has each of the workers run something, all at the same time.
    pub fn tell_all<T: Send + 'static>(
        &self,
        what: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Unanswered> {
        let told: Vec<_> = self.workers().map(|id| Ok((id, self.put(id, what.clone())?))).collect::<Result<_, _>>()?;
        told.into_iter().map(|(id, answered)| answered.recv().map_err(|_| Unanswered::Ended(id))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A desk on which as many orders wait as may.
    fn full_desk() -> Arc<Live> {
        let live = Live::new(1);
        (0..ORDERS_MAX).for_each(|_| live.order(0, Box::new(|_| ())).expect("there is room"));
        assert_eq!(live.order(0, Box::new(|_| ())), Err(Unanswered::Late(0)));
        live
    }

    #[test]
    fn what_is_handed_over_finds_a_place_on_a_full_desk_and_comes_back_if_the_worker_ends() {
        let live = full_desk();
        let giver = Arc::clone(&live);
        let handing = std::thread::spawn(move || giver.hand_over(0, "a set", |_, _| Ok(())));
        while live.desks[0].lock().orders.len() == ORDERS_MAX {
            std::thread::yield_now();
        }
        live.abandon(0);
        assert_eq!(handing.join().expect("it ends"), Err("a set"));
    }

    #[test]
    fn what_is_handed_to_a_worker_that_has_ended_comes_back() {
        let live = Live::new(1);
        live.abandon(0);
        assert_eq!(live.hand_over(0, "a set", |_, _| Ok(())), Err("a set"));
        assert_eq!(live.hand_over(1, "a set", |_, _| Ok(())), Err("a set"), "there is no such worker");
    }
}
