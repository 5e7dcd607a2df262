//! The threads of a run: one per worker, one for the dispatcher, and one that watches for handlers that hang.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, Thread};
use std::time::Instant;

use rustix::thread::CpuSet;

use super::{AtEnd, AtStart, Control, Present};
use crate::dispatch::{Dispatched, Dispatching};
use crate::model::schedule::Scheduler;
use crate::observe::watchdog::watch;
use crate::pacing::idle::{Ending, NAP, Patience};
use crate::worker::{Ended, Step, Worker};

/// What a run leaves: its workers, and what its dispatcher did.
type Left = (Vec<Ended>, Option<Dispatched>);

/// Holds the threads of a run back until all of them are there: those that are must not begin if another one cannot be made.
#[derive(Default)]
struct Start {
    given: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Start {
    /// Lets the threads begin, or end at once.
    fn give(&self, begin: bool) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
        self.changed.notify_all();
    }

    /// Waits for the start; false if there will be none.
    fn is_given(&self) -> bool {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let given = self.changed.wait_while(given, |given| given.is_none());
        *given.unwrap_or_else(PoisonError::into_inner) == Some(true)
    }
}

/// Runs the workers, and the dispatcher if there is one, until all have ended. If a thread cannot be created, fails before any has started.
/// `left_out` is the number of restored sets that found no room.
pub(super) fn run_threads(
    present: &Present<'_>,
    mut workers: Vec<Worker>,
    dispatcher: Option<Dispatching>,
    (control, left_out): (&Control, u64),
) -> io::Result<Left> {
    let scheduler = control.schedule.map(|seed| Scheduler::new(workers.len(), seed));
    let deadline = control.duration.map(|duration| Instant::now() + duration);
    // With a dispatcher, the workers empty their rings before they end; the dispatcher is the one that is told to stop.
    let obeys = match &dispatcher {
        Some(_) => Control { live: control.live.clone(), at_end: control.at_end.clone(), ..Control::default() },
        None => control.clone(),
    };
    let deadline_of_workers = if dispatcher.is_some() { None } else { deadline };
    let (obeys, pin) = (&obeys, workers.len() + usize::from(dispatcher.is_some()) <= processors());
    let allowed = if pin && scheduler.is_none() { allowed() } else { Vec::new() };
    let (done, start) = (AtomicBool::new(false), &Start::default());
    std::thread::scope(|scope| {
        let watching = control.watchdog.as_ref().map(|watchdog| {
            let pulses: Vec<_> = workers.iter_mut().map(Worker::pulse).collect();
            let (scheduler, done) = (scheduler.clone(), &done);
            let thread = scope.spawn(move || watch(watchdog, || present.chain(), &pulses, scheduler.as_deref(), done));
            Watching { done, thread: thread.thread().clone() }
        });
        let dispatch = |dispatching: Dispatching| {
            Builder::new().spawn_scoped(scope, move || {
                let _guard = EndsWithPanic { control, worker: None };
                start.is_given().then(|| dispatching.run(deadline))
            })
        };
        let spawn = |(id, worker): (usize, Worker)| {
            let (scheduler, processor) = (scheduler.clone(), allowed.get(id).copied());
            Builder::new().spawn_scoped(scope, move || {
                let _guard = EndsWithPanic { control, worker: Some((id, scheduler.clone())) };
                // Dropped before the guard: what it has begun is undone while the others still wait.
                let mut worker = worker;
                if !start.is_given() {
                    return worker;
                }
                if let Some(processor) = processor {
                    pin_to(processor);
                }
                match scheduler {
                    Some(scheduler) => {
                        worker.govern(&scheduler, id);
                        scheduler.enter(id);
                        work(id, &mut worker, obeys, deadline_of_workers, Some((&scheduler, id)));
                        worker.leave();
                        scheduler.leave(id);
                    }
                    None => {
                        work(id, &mut worker, obeys, deadline_of_workers, None);
                        worker.leave();
                    }
                }
                worker
            })
        };
        let dispatcher = dispatcher.map(dispatch).transpose();
        let handles: io::Result<Vec<_>> = workers.into_iter().enumerate().map(spawn).collect();
        let all = dispatcher.and_then(|dispatcher| Ok((handles?, dispatcher)));
        if let (Ok(_), Some(AtStart(begun))) = (&all, &control.at_start) {
            begun(left_out);
        }
        start.give(all.is_ok());
        let left =
            all.map(|(handles, dispatcher)| (handles.into_iter().map(join).collect(), dispatcher.and_then(join)));
        drop(watching);
        left.map(|(left, dispatched)| (conclude(left, control.at_last.as_ref()), dispatched))
    })
}

/// Concludes and ends the workers, one after another, once all have left.
fn conclude(mut left: Vec<Worker>, at_last: Option<&AtEnd>) -> Vec<Ended> {
    let latest_ns = left.iter().map(Worker::last_ns).max().unwrap_or(0);
    let next = left.iter().map(Worker::next).max().unwrap_or(0);
    left.iter_mut().for_each(|worker| worker.conclude(latest_ns, next));
    if let Some(worker) = left.first_mut() {
        worker.count_held();
    }
    if let Some(AtEnd(look)) = at_last {
        left.iter_mut().for_each(|worker| look(worker));
    }
    left.into_iter().map(Worker::end).collect()
}

fn join<T>(handle: std::thread::ScopedJoinHandle<'_, T>) -> T {
    handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Ends the watchdog when it is dropped, also by a panic: its thread would outlive all others, and the run never end.
struct Watching<'a> {
    done: &'a AtomicBool,
    thread: Thread,
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // Relaxed: the flag carries no data.
        self.done.store(true, Ordering::Relaxed);
        self.thread.unpark();
    }
}

/// Ends the run when a thread of it panics: without one of them it would go on half dead, and nobody would start it anew. Nobody waits for
/// that thread any more.
struct EndsWithPanic<'a> {
    control: &'a Control,
    /// The number of a worker, and the schedule under which it runs.
    worker: Option<(usize, Option<Arc<Scheduler>>)>,
}

impl Drop for EndsWithPanic<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        // Relaxed: the flag carries no data.
        self.control.stop.store(true, Ordering::Relaxed);
        let Some((id, scheduler)) = &self.worker else { return };
        if let Some(live) = &self.control.live {
            live.abandon(*id);
        }
        if let Some(scheduler) = scheduler {
            scheduler.leave(*id);
        }
    }
}

/// The main loop of a worker's thread.
fn work(
    id: usize,
    worker: &mut Worker,
    control: &Control,
    deadline: Option<Instant>,
    schedule: Option<(&Arc<Scheduler>, usize)>,
) {
    worker.begin();
    let live = control.live.as_deref();
    if let Some((live, bell)) = live.zip(worker.bell()) {
        live.call_by(id, bell);
    }
    let (mut rounds, mut patience, mut ending) = (0u32, Patience::default(), Ending::default());
    loop {
        let mut has_waited = false;
        match worker.step() {
            Step::Busy => patience = Patience::default(),
            Step::End => break,
            Step::Idle => match &schedule {
                Some((scheduler, id)) => scheduler.at(*id, true),
                // While sets or objects are being moved, some of them each round, there is more to do than to wait.
                None if live.is_some_and(|live| live.rings(id)) => std::thread::sleep(NAP),
                None => has_waited = patience.wait(|at_most| worker.wait(at_most)),
            },
        }
        if let Some(live) = live.filter(|live| live.rings(id)) {
            live.serve(id, worker);
        }
        rounds = rounds.wrapping_add(1);
        let late =
            (has_waited || rounds.is_multiple_of(64)) && deadline.is_some_and(|deadline| Instant::now() >= deadline);
        // Relaxed: the flag carries no data, and noticing it a batch late does no harm.
        if (late || control.stop.load(Ordering::Relaxed)) && ending.is_over(|| worker.close()) {
            break;
        }
    }
    if let Some(live) = live {
        live.close(id, worker);
    }
    worker.settle_sets();
    if let Some(AtEnd(last)) = &control.at_end {
        last(worker);
    }
    if let Some(live) = live {
        live.note_last(id, worker);
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The processors on which this thread may run, as `taskset`, a service manager or a container has limited them; empty if unknown.
fn allowed() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or(Vec::new(), |set| (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

fn pin_to(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    // Without permission the worker runs wherever the kernel schedules it: slower, but correct.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
