//! Workers looked at and changed while they run.
//!
//! Whoever asks leaves an [`Order`] on a worker's desk; the worker looks at its desk once per round (one relaxed load of a
//! line that is written only when there is an order) and carries it out between two batches, on its own thread and with
//! nothing half done. So counters always add up, tables can be walked, and functions exchanged, without any lock or shared
//! written line on a packet's way. A worker that has ended leaves its last counters behind.
//!
//! [`Live::hold`] stops all workers between batches, for what concerns several of them at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use braid_io::{RxCounters, TxCounters};
use braid_state::Domain;
use crossbeam_utils::CachePadded;

use crate::chain::Chain;
use crate::counters::WorkerCounters;
use crate::probe::TimeSplit;
use crate::worker::Worker;

/// Longest time that a worker is waited for. A round takes microseconds; a worker that is away so long hangs in a handler or
/// has no processor.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Most orders that wait for a worker: one that hangs does not fill the memory.
const ORDERS_MAX: usize = 1024;

/// What a worker does between two batches.
pub type Order = Box<dyn FnOnce(&mut Worker) + Send>;

/// Why a worker did not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// No such worker.
    #[error("there is no worker {0}")]
    NoWorker(usize),
    /// Its packets have come to an end.
    #[error("worker {0} has ended")]
    Ended(usize),
    /// It is in the middle of something for more than [`PATIENCE`].
    #[error("worker {0} has not come to the end of its batch for {PATIENCE:?}")]
    Late(usize),
}

/// What one worker is seen to have done.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Its number.
    pub worker: usize,
    /// Whether it has ended.
    pub ended: bool,
    /// What it counted, between two batches.
    pub counters: WorkerCounters,
    /// What its queue delivered and could not deliver.
    pub received: RxCounters,
    /// What its sending queue took and could not send.
    pub sent: TxCounters,
    /// Live sets and room for them, by group.
    pub tables: Vec<(usize, usize)>,
    /// Sets that are still in tables which others took the place of.
    pub sets_to_move: usize,
    /// The time of its functions, in nanoseconds.
    pub now_ns: u64,
    /// Where its time went since somebody began to ask for it.
    pub split: Option<TimeSplit>,
}

/// What the run consists of; may be exchanged while it runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// Its functions.
    pub chain: Arc<Chain>,
    /// Their transactions.
    pub domain: Arc<Domain>,
    /// When it began.
    pub since: Instant,
}

#[derive(Default)]
struct Desk {
    /// There is an order: the only word that a worker reads per round.
    rings: AtomicBool,
    state: Mutex<DeskState>,
}

#[derive(Default)]
struct DeskState {
    orders: Vec<Order>,
    last: Option<Seen>,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, DeskState> {
        // A list of orders cannot be half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The desks of a run's workers. Made before the run, given to it in [`Control`](crate::Control), asked by anybody.
pub struct Live {
    desks: Box<[CachePadded<Desk>]>,
    running: Mutex<Option<Running>>,
    /// Held while workers stand still or packet sets move from one to another.
    changing: Mutex<()>,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("workers", &self.desks.len()).finish_non_exhaustive()
    }
}

impl Live {
    /// For a run of so many workers.
    pub fn new(workers: usize) -> Arc<Live> {
        let desks = (0..workers).map(|_| CachePadded::default()).collect();
        Arc::new(Live { desks, running: Mutex::default(), changing: Mutex::default() })
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.desks.len()
    }

    /// What runs; none before it has begun.
    pub fn running(&self) -> Option<Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what runs.
    pub fn announce(&self, running: Running) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
    }

    /// Whether all workers have ended.
    pub fn has_ended(&self) -> bool {
        self.desks.iter().all(|desk| desk.lock().last.is_some())
    }

    /// Whether a worker has an order. Relaxed: the order itself is behind a lock, and a round later will do.
    #[inline(always)]
    pub(crate) fn rings(&self, worker: usize) -> bool {
        self.desks[worker].rings.load(Ordering::Relaxed)
    }

    /// Carries out a worker's orders, on its thread.
    #[cold]
    pub(crate) fn serve(&self, id: usize, worker: &mut Worker) {
        let desk = &self.desks[id];
        // First, so that an order to stand still finds nothing left.
        worker.bring_objects();
        let orders = {
            let mut state = desk.lock();
            desk.rings.store(false, Ordering::Relaxed);
            std::mem::take(&mut state.orders)
        };
        orders.into_iter().for_each(|order| order(worker));
        // State objects and packet sets on their way to others: a few of them each round, until all are there.
        if worker.move_sets() | worker.is_bringing() {
            desk.rings.store(true, Ordering::Relaxed);
        }
    }

    /// A worker ends: no order is taken any more.
    pub(crate) fn close(&self, id: usize, worker: &mut Worker) {
        self.serve(id, worker);
        worker.bring_objects();
        let mut seen = worker.seen();
        seen.ended = true;
        let mut state = self.desks[id].lock();
        state.last = Some(seen);
        // Whoever came in between sees its channel closed.
        state.orders.clear();
    }

    /// Leaves an order on a worker's desk.
    fn order(&self, worker: usize, order: Order) -> Result<(), Unanswered> {
        let desk = self.desks.get(worker).ok_or(Unanswered::NoWorker(worker))?;
        let mut state = desk.lock();
        if state.last.is_some() {
            return Err(Unanswered::Ended(worker));
        }
        if state.orders.len() >= ORDERS_MAX {
            return Err(Unanswered::Late(worker));
        }
        state.orders.push(order);
        desk.rings.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has a worker answer a question between two batches.
    pub fn ask<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (answer, answered) = channel();
        // An answer that nobody waits for any more is thrown away.
        self.order(worker, Box::new(move |worker| drop(answer.send(question(worker)))))?;
        await_answer(worker, &answered, Instant::now() + PATIENCE)
    }

    /// Has every worker that still runs answer, all at the same time: [`PATIENCE`] is for all of them together.
    pub fn ask_all<T: Send + 'static>(
        &self,
        question: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Vec<Result<T, Unanswered>> {
        let begin = |worker: usize| {
            let ((answer, answered), question) = (channel(), question.clone());
            let order = self.order(worker, Box::new(move |worker| drop(answer.send(question(worker)))));
            order.map(|()| answered)
        };
        let asked: Vec<_> = (0..self.desks.len()).map(begin).collect();
        let until = Instant::now() + PATIENCE;
        let answer = |(worker, asked): (usize, Result<Receiver<T>, Unanswered>)| await_answer(worker, &asked?, until);
        asked.into_iter().enumerate().map(answer).collect()
    }

    /// The same, however long it takes: what the worker gives away is not lost because it was late.
    pub(crate) fn await_answer_of<T: Send + 'static>(
        &self,
        worker: usize,
        question: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (answer, answered) = channel();
        self.order(worker, Box::new(move |worker| drop(answer.send(question(worker)))))?;
        answered.recv().map_err(|_| Unanswered::Ended(worker))
    }

    /// Keeps others from stopping the workers, or from moving packet sets, until the result is dropped.
    pub(crate) fn alone(&self) -> MutexGuard<'_, ()> {
        // Nothing is behind it that could be half changed.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each worker has done; of one that has ended, its last word.
    pub fn see(&self) -> Vec<Result<Seen, Unanswered>> {
        let answers = self.ask_all(Worker::seen).into_iter().enumerate();
        answers.map(|(worker, answer)| self.or_last(worker, answer)).collect()
    }

    fn or_last(&self, worker: usize, answer: Result<Seen, Unanswered>) -> Result<Seen, Unanswered> {
        answer.or_else(|unanswered| self.desks[worker].lock().last.clone().ok_or(unanswered))
    }

    /// Stops all workers that still run between two batches until the result is dropped. If one does not come, the others go
    /// on.
    pub fn hold(&self) -> Result<Held<'_>, Unanswered> {
        let mut held = Held { workers: Vec::new(), _alone: self.alone() };
        let mut arrivals = Vec::new();
        for id in 0..self.desks.len() {
            let ((arrive, arrived), (orders, waiting)) = (channel(), channel::<Order>());
            let stay = move |worker: &mut Worker| {
                // A worker whose holder has gone or given up finds its channel closed and goes on.
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

/// Workers that stand still between two batches. Dropping it lets them go on.
#[derive(Debug)]
pub struct Held<'a> {
    workers: Vec<(usize, Sender<Order>)>,
    _alone: MutexGuard<'a, ()>,
}

impl Held<'_> {
    /// The numbers of those that stand still: all that had not ended.
    pub fn workers(&self) -> impl Iterator<Item = usize> {
        self.workers.iter().map(|(id, _)| *id)
    }

    /// Has one of them do something and waits for it, however long it takes.
    pub fn tell<T: Send + 'static>(
        &self,
        worker: usize,
        what: impl FnOnce(&mut Worker) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let (_, orders) = self.workers.iter().find(|(id, _)| *id == worker).ok_or(Unanswered::Ended(worker))?;
        let (answer, answered) = channel();
        let order: Order = Box::new(move |worker| drop(answer.send(what(worker))));
        orders.send(order).map_err(|_| Unanswered::Ended(worker))?;
        answered.recv().map_err(|_| Unanswered::Ended(worker))
    }

    /// Has each of them do something, one after another.
    pub fn tell_all<T: Send + 'static>(
        &self,
        what: impl Fn(&mut Worker) -> T + Clone + Send + 'static,
    ) -> Result<Vec<T>, Unanswered> {
        self.workers().map(|id| self.tell(id, what.clone())).collect()
    }
}
