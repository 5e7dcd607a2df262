//! The end of a capture: sets that have timed out by then have ended, however many workers there were.

mod traffic;

use std::sync::Arc;

use braid_io::memory::{CollectedPacket, MemorySink, Repeat};
use braid_nf::packet::key::{SetDef, SetKey};
use braid_nf::prelude::*;
use braid_nf::{Instance, Stage};
use braid_runtime::{Control, Plan, launch};
use traffic::{Sent, replayed};

network_function! {
    /// Tells of each set that ends, in a packet.
    struct Telling { by_flow: bool }
}

impl NetworkFunction for Telling {
    type Set = u64;
    const NAME: &'static str = "telling";

    /// By flow, sets are local to the workers; by source, packets of a set reach all of them.
    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by_flow { SetDef::five_tuple() } else { SetDef::src_ip() })
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        TIMEOUT_MS * MS
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        // There is room, so only a conflict makes it false; then nothing the handler does takes effect, not even a panic.
        assert!(set.register(cx, 1), "there is room");
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut u64) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, _: &u64) -> Result<(), Conflict> {
        cx.emit(1, &[0; 60]);
        Ok(())
    }
}

const MS: u64 = 1_000_000;
const TIMEOUT_MS: u64 = 1000;
/// One packet for each flow and source, one per millisecond.
const PACKETS: u64 = 2500;

fn plan(by_flow: bool, workers: usize) -> Plan {
    let build =
        move |_: &mut StateBuilder| Ok(vec![Box::new(Instance::new("telling", Telling { by_flow })) as Box<dyn Stage>]);
    Plan { sets: 1 << 13, ..Plan::for_tests(workers, Arc::new(build)) }
}

/// Runs with packets at these milliseconds; returns the numbers of ended sets, live sets and packets out, and the packets that came out.
fn run(plan: &Plan, schedule: Option<u64>, at_ms: fn(u64) -> u64) -> ([u64; 3], Vec<CollectedPacket>) {
    let packet = |n| Sent { from: n as u16, port: n as u16, at_ns: at_ms(n) * MS, ..Sent::default() };
    let source = replayed(PACKETS, Repeat::Passes(1), packet);
    let control = Control { schedule, ..Control::default() };
    let (sink, collected) = MemorySink::new();
    let report = launch(plan, Box::new(source), Box::new(sink), &control).expect("it ends");
    assert_eq!(report.total.panics, 0);
    ([report.total.sets_expired, report.total.sets_live, report.total.packets_out], collected.packets())
}

#[test]
fn sets_that_are_over_when_a_capture_ends_have_ended_on_any_number_of_workers() {
    let live = TIMEOUT_MS + 1;
    let over = PACKETS - live;
    for by_flow in [true, false] {
        for workers in [1, 2, 3, 5] {
            for schedule in [None, Some(7)] {
                let (ended, packets) = run(&plan(by_flow, workers), schedule, |n| n + 1);
                // What is sent at the end has the number after the last packet's.
                let (early, last) = packets.split_at(packets.partition_point(|packet| packet.sequence < PACKETS));
                assert!(last.iter().all(|packet| packet.sequence == PACKETS && packet.bytes == [0; 60]));
                assert!(!last.is_empty() && early.iter().filter(|packet| packet.sequence == 0).count() == 1);
                assert_eq!(ended, [over, live, PACKETS + over], "{workers} workers, by flow: {by_flow}, {schedule:?}");
            }
        }
    }
}

#[test]
fn where_packets_keep_their_order_a_capture_that_goes_back_in_time_does_so_for_no_worker() {
    for by_flow in [true, false] {
        for workers in [1, 2, 3, 5] {
            let plan = Plan { in_order: true, ..plan(by_flow, workers) };
            let (ended, _) = run(&plan, None, |n| if n == 0 { 10 * TIMEOUT_MS } else { n });
            assert_eq!(ended, [0, PACKETS, PACKETS], "{workers} workers, by flow: {by_flow}");
        }
    }
}
