//! What panics: the handler of a set that ends affects only that set; a worker's thread ends the run, and none waits for it.

mod traffic;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use braid_io::NullSink;
use braid_io::memory::Repeat;
use braid_nf::Stage;
use braid_nf::packet::key::{SetDef, SetKey};
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, VectorConfig};
use braid_runtime::{Control, Live, Plan, Watchdog, launch};
use traffic::{Sent, replayed};

/// What the state object held at the end of the run.
static COUNTED: AtomicU64 = AtomicU64::new(0);

network_function! {
    struct Counting { ended: Vector<u64> }
}

impl NetworkFunction for Counting {
    type Set = u64;
    const NAME: &'static str = "counting";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        1_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        let flow = packet.ports().map_or(0, |(source, _)| u64::from(source));
        assert!(set.register(cx, flow), "there is room");
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut u64) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, flow: &u64) -> Result<(), Conflict> {
        self.ended.update(cx, 0, |ended| *ended += 1)?;
        assert_ne!(*flow, POISON, "the end of this one goes wrong");
        Ok(())
    }

    fn stop(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        COUNTED.store(self.ended.get(cx, 0)?.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }
}

/// Number of flows that fall silent, the source port of one of them, and the number of packets of another flow until long after.
const FLOWS: u64 = 40;
const POISON: u64 = 21;
const PACKETS: u64 = 20_000;

fn plan(workers: usize) -> Plan {
    let build = |builder: &mut StateBuilder| {
        let config = VectorConfig { name: "ended".into(), len: 1 };
        let ended = Vector::new(builder, &config, 0).expect("there is memory");
        Ok(vec![Box::new(braid_nf::Instance::new("counting", Counting { ended })) as Box<dyn Stage>])
    };
    Plan::for_tests(workers, Arc::new(build))
}

#[test]
fn a_set_whose_end_panics_leaves_the_others_their_end() {
    let plan = plan(1);
    let packet = |n: u64| Sent {
        port: n.min(FLOWS) as u16,
        at_ns: if n < FLOWS { 0 } else { 5_000_000_000 + n * 1_000_000 },
        ..Sent::default()
    };
    let source = replayed(PACKETS, Repeat::Passes(1), packet);
    let report = launch(&plan, Box::new(source), Box::new(NullSink), &Control::default()).expect("it ends");
    assert_eq!((report.total.packets_out, report.total.sets_expired), (PACKETS, FLOWS));
    assert_eq!(report.total.panics, 1, "it is counted once, though it was tried together with others first");
    assert_eq!(COUNTED.load(Ordering::Relaxed), FLOWS - 1, "what it did was taken back, what the others did stands");
}

#[test]
fn a_worker_that_panics_ends_the_run_and_does_not_leave_it_half_dead() {
    let live = Live::new(2);
    let control = Control { live: Some(Arc::clone(&live)), ..Control::default() };
    let run = std::thread::spawn(move || {
        let source = replayed(PACKETS, Repeat::Forever, |n| Sent { port: (n % FLOWS) as u16, ..Sent::default() });
        launch(&plan(2), Box::new(source), Box::new(NullSink), &control).map(drop)
    });
    while live.see().iter().any(Result::is_err) {
        std::thread::yield_now();
    }
    let answer = live.ask(1, |_| -> () { panic!("an order goes wrong") });
    assert!(answer.is_err());
    let panic = run.join().expect_err("the panic goes on to whom started the run");
    assert_eq!(panic.downcast_ref(), Some(&"an order goes wrong"));
}

network_function! {
    struct Divides {}
}

impl NetworkFunction for Divides {
    type Set = u32;
    const NAME: &'static str = "divides";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, set: &u32) -> u64 {
        1_000_000_000 / u64::from(*set)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u32>) -> Handled {
        // One set in sixteen has a timeout that cannot be computed.
        assert!(set.register(cx, u32::from(packet.ports().unwrap_or_default().0 % 16)), "there is room");
        Ok(cx.pass())
    }
}

/// Runs two workers until one of them panics, and returns what it said.
fn panic_of(schedule: Option<u64>, live: bool) -> String {
    let build =
        |_: &mut StateBuilder| Ok(vec![Box::new(braid_nf::Instance::new("divides", Divides {})) as Box<dyn Stage>]);
    let source =
        replayed(256, Repeat::Passes(1), |n| Sent { port: n as u16 + 1, at_ns: n * 100_000_000, ..Sent::default() });
    let watchdog = Watchdog { limit: Duration::from_secs(60), tell: Arc::new(|name| panic!("{name} hangs")) };
    let live = live.then(|| Live::new(2));
    let control = Control { schedule, watchdog: Some(watchdog), live: live.clone(), ..Control::default() };
    let plan = Plan::for_tests(2, Arc::new(build));
    let run = || launch(&plan, Box::new(source), Box::new(NullSink), &control);
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("it panics");
    assert!(live.is_none_or(|live| live.has_ended()), "a desk is open");
    panic.downcast_ref::<&str>().map(ToString::to_string).unwrap_or_default()
}

#[test]
fn a_timeout_that_panics_ends_the_run() {
    for schedule in [None, Some(3)] {
        for live in [false, true] {
            assert_eq!(panic_of(schedule, live), "attempt to divide by zero", "{schedule:?} {live}");
        }
    }
}
