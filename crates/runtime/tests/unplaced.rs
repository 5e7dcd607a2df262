//! Restored sets for which a run has no room end, so that what counts them counts them no longer.

mod traffic;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use braid_io::NullSink;
use braid_io::memory::Repeat;
use braid_nf::Stage;
use braid_nf::packet::key::{SetDef, SetKey};
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, VectorConfig};
use braid_runtime::live::saved::Saved;
use braid_runtime::{AtEnd, Control, Live, Plan, launch};
use traffic::{Sent, replayed};

/// The number of live sets according to the state object, at the end of the run.
static COUNTED: AtomicU64 = AtomicU64::new(0);

network_function! {
    struct Counting { live: Vector<u64> }
}

impl NetworkFunction for Counting {
    type Set = u64;
    const NAME: &'static str = "counting";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        1_000_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        if set.register(cx, 1) {
            self.live.update(cx, 0, |live| *live += 1)?;
        }
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut u64) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, weight: &u64) -> Result<(), Conflict> {
        self.live.update(cx, 0, |live| *live -= weight)?;
        Ok(())
    }

    fn stop(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        COUNTED.store(self.live.get(cx, 0)?.unwrap_or_default(), Ordering::Relaxed);
        Ok(())
    }
}

const FLOWS: u64 = 400;

fn plan(workers: usize, sets: usize) -> Plan {
    let build = |builder: &mut StateBuilder| {
        let config = VectorConfig { name: "live".into(), len: 1 };
        let live = Vector::new(builder, &config, 0).expect("there is memory");
        Ok(vec![Box::new(braid_nf::Instance::new("counting", Counting { live })) as Box<dyn Stage>])
    };
    Plan { sets, ..Plan::for_tests(workers, Arc::new(build)) }
}

/// The state after one packet of each flow.
fn saved(workers: usize) -> Saved {
    let plan = plan(workers, 2048);
    let (live, sets) = (Live::new(workers), Arc::new(Mutex::new(Vec::new())));
    let into = Arc::clone(&sets);
    let at_end = AtEnd(Arc::new(move |worker| into.lock().unwrap().extend(worker.copy_sets().into_saved())));
    let control = Control { live: Some(Arc::clone(&live)), at_end: Some(at_end), ..Control::default() };
    let source = replayed(FLOWS, Repeat::Passes(1), |n| Sent { port: n as u16, ..Sent::default() });
    launch(&plan, Box::new(source), Box::new(NullSink), &control).expect("it ends");
    assert_eq!(COUNTED.load(Ordering::Relaxed), FLOWS);
    let chain = live.running().expect("it ran").chain;
    let sets = std::mem::take(&mut *sets.lock().unwrap());
    Saved { sets, ..Saved::of_chain(&chain, plan.ports, 0) }
}

#[test]
fn restored_sets_without_a_place_end_and_the_others_go_on() {
    for (before, after, sets) in [(1, 1, 16), (1, 1, 2048), (2, 1, 100), (1, 2, 64), (2, 3, 64)] {
        let control = Control { restore: Some(Arc::new(saved(before))), ..Control::default() };
        // It belongs to a set that is there, or to one that finds no room again.
        let source = replayed(1, Repeat::Passes(1), |_| Sent { port: 0, ..Sent::default() });
        let report = launch(&plan(after, sets), Box::new(source), Box::new(NullSink), &control);
        let (report, counted) = (report.expect("it ends"), COUNTED.load(Ordering::Relaxed));
        let (left_out, live) = (report.sets_left_out, report.total.sets_live);
        assert_eq!(left_out + live, FLOWS, "{before} workers, then {after} with {sets} sets");
        assert_eq!(left_out == 0, sets == 2048);
        assert_eq!(counted, live, "{before} workers, then {after} with {sets} sets");
    }
}
