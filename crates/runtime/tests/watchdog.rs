//! A handler that spins without touching its transaction is named: for a packet, for the end of a set, and in a replay; under a seeded
//! schedule and on real threads.

mod traffic;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use braid_io::memory::Repeat;
use braid_io::{NullSink, ReplaySource};
use braid_nf::Stage;
use braid_nf::packet::key::{SetDef, SetKey};
use braid_nf::prelude::*;
use braid_nf::state::StateBuilder;
use braid_runtime::launch::build;
use braid_runtime::replay::Replay;
use braid_runtime::{Control, Plan, Report, Watchdog, launch};
use braid_state::Tx;
use traffic::{Sent, replayed};

/// Ends the spinning, because a thread cannot be ended from outside.
static RELEASED: AtomicBool = AtomicBool::new(false);

/// Lets one test run at a time, because the tests release one another's handlers.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

network_function! {
    struct Stuck { at_the_end_of_sets: bool }
}

fn spin() {
    while !RELEASED.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

impl NetworkFunction for Stuck {
    type Set = ();
    const NAME: &'static str = "stuck";

    fn packet_set(&self) -> Option<SetDef> {
        self.at_the_end_of_sets.then(SetDef::five_tuple)
    }

    fn timeout_ns(&self, _: &()) -> u64 {
        1_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, ()>) -> Handled {
        assert!(set.register(cx, ()), "there is room");
        Ok(cx.pass())
    }

    fn expired(&self, _: &mut Cx<'_>, _: &SetKey, _: &()) -> Result<(), Conflict> {
        spin();
        Ok(())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        if !self.at_the_end_of_sets {
            spin();
        }
        Ok(cx.pass())
    }
}

fn plan(at_the_end_of_sets: bool) -> Plan {
    let build = move |_: &mut StateBuilder| {
        let stuck = Stuck { at_the_end_of_sets };
        Ok(vec![Box::new(braid_nf::Instance::new("guard", stuck)) as Box<dyn Stage>])
    };
    Plan::for_tests(2, Arc::new(build))
}

/// Number of UDP packets, each of its own flow, so that every worker gets some: half of them at the beginning, half five seconds later.
const PACKETS: u64 = 32;

fn source() -> ReplaySource {
    let packet = |n| Sent { port: n as u16, at_ns: n / (PACKETS / 2) * 5_000_000_000, ..Sent::default() };
    replayed(PACKETS, Repeat::Passes(1), packet)
}

/// A watchdog that releases the handler when it is called, and the names it was called with.
fn watchdog() -> (Watchdog, Arc<Mutex<Vec<String>>>) {
    let names = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&names);
    let tell = move |name: &str| {
        told.lock().expect("no panic").push(name.to_owned());
        RELEASED.store(true, Ordering::Relaxed);
    };
    (Watchdog { limit: Duration::from_millis(80), tell: Arc::new(tell) }, names)
}

fn run(at_the_end_of_sets: bool, control: &Control) -> Report {
    let plan = plan(at_the_end_of_sets);
    let report = launch(&plan, Box::new(source()), Box::new(NullSink), control).expect("it ends");
    assert_eq!(report.total.packets_out, PACKETS);
    report
}

/// The names that the watchdog reports in a run.
fn told(at_the_end_of_sets: bool, schedule: Option<u64>) -> Vec<String> {
    RELEASED.store(false, Ordering::Relaxed);
    let (watchdog, names) = watchdog();
    run(at_the_end_of_sets, &Control { schedule, watchdog: Some(watchdog), ..Control::default() });
    let names = names.lock().expect("no panic");
    names.clone()
}

#[test]
fn a_handler_that_does_not_come_back_is_named() {
    let _alone = ONE_AT_A_TIME.lock();
    for at_the_end_of_sets in [false, true] {
        assert_eq!(told(at_the_end_of_sets, None), ["guard"]);
        assert_eq!(told(at_the_end_of_sets, Some(4)), ["guard"]);
    }
}

#[test]
fn a_handler_that_does_not_come_back_in_a_replay_is_named() {
    let _alone = ONE_AT_A_TIME.lock();
    for at_the_end_of_sets in [false, true] {
        RELEASED.store(true, Ordering::Relaxed);
        let report = run(at_the_end_of_sets, &Control { record: true, ..Control::default() });
        let record = report.record.expect("it was recorded");
        let fresh = build(&plan(at_the_end_of_sets)).expect("builds again");
        let mut tx = Tx::new(&fresh.domain, 0);
        tx.replay(0, Vec::new());
        let replay = Replay::new(Arc::clone(&fresh.chain), tx, 128, 2, 512).expect("memory");
        RELEASED.store(false, Ordering::Relaxed);
        let (watchdog, names) = watchdog();
        let (differences, _) = replay.run_watched(&record.logs, &watchdog);
        assert!(differences.is_empty(), "{differences:#?}");
        assert_eq!(*names.lock().expect("no panic"), ["guard"]);
    }
}
