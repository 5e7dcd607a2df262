//! Where workers run: on the processors that the process may use, whatever their numbers.

mod traffic;

use std::sync::{Arc, Mutex};

use braid_io::NullSink;
use braid_io::memory::Repeat;
use braid_nf::prelude::*;
use braid_nf::{Instance, Stage};
use braid_runtime::{AtEnd, Control, Plan, launch};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use traffic::{Sent, replayed};

network_function! {
    struct Passing {}
}

impl NetworkFunction for Passing {
    type Set = ();
    const NAME: &'static str = "passing";

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }
}

/// The processors on which the calling thread may run.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("it can be asked");
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// The processors on which the workers of a run are allowed, if the process is allowed on these.
fn where_workers_run(on: &[usize], workers: usize) -> Vec<Vec<usize>> {
    let mut set = CpuSet::new();
    on.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).expect("fewer processors are always possible");
    let build = |_: &mut StateBuilder| Ok(vec![Box::new(Instance::new("passing", Passing {})) as Box<dyn Stage>]);
    let found = Arc::new(Mutex::new(vec![Vec::new(); workers]));
    let finding = Arc::clone(&found);
    let at_end = AtEnd(Arc::new(move |worker| finding.lock().unwrap()[worker.id()] = allowed()));
    let control = Control { at_end: Some(at_end), ..Control::default() };
    let source = replayed(100, Repeat::Passes(1), |n| Sent { from: n as u16, ..Sent::default() });
    let plan = Plan::for_tests(workers, Arc::new(build));
    launch(&plan, Box::new(source), Box::new(NullSink), &control).expect("it ends");
    let found = found.lock().unwrap();
    found.clone()
}

#[test]
fn a_worker_runs_on_a_processor_that_the_process_may_use() {
    let all = allowed();
    // A thread of its own, whose children inherit the limit.
    let last = *all.last().expect("there is one");
    let found = std::thread::spawn(move || where_workers_run(&[last], 1)).join().expect("no panic");
    assert_eq!(found, [[last]]);
    let each: Vec<Vec<usize>> = all.iter().map(|&cpu| vec![cpu]).collect();
    let workers = std::thread::available_parallelism().map_or(1, |count| count.get());
    let found = std::thread::spawn(move || where_workers_run(&all, workers)).join().expect("no panic");
    assert_eq!(found, each[..workers]);
}
