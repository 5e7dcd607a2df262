//! The end of a capture: what is over by then has ended, however many workers there were.

use std::sync::Arc;

use braid_io::memory::Repeat;
use braid_io::{FrameStream, Next, NullSink, ReplaySource};
use braid_nf::packet::key::{SetDef, SetKey};
use braid_nf::prelude::*;
use braid_nf::{Instance, Stage};
use braid_packet::FrameInfo;
use braid_runtime::{Control, Plan, launch};

network_function! {
    /// Tells of each set that ends, in a packet.
    struct Telling { by_flow: bool }
}

impl NetworkFunction for Telling {
    type Set = u64;
    const NAME: &'static str = "telling";

    /// Flows are what workers are told apart by; sources have packets on all of them.
    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by_flow { SetDef::five_tuple() } else { SetDef::src_ip() })
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        TIMEOUT_MS * MS
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        // There is room, so only a conflict makes it false. What the handler makes of that has never happened, a panic included.
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
/// One packet of each flow and source, one every millisecond.
const PACKETS: u64 = 2500;

struct Traffic {
    frame: [u8; 60],
    sent: u64,
}

impl FrameStream for Traffic {
    fn advance(&mut self) -> Next {
        self.sent += 1;
        // Source address and source port.
        for at in [28, 34] {
            self.frame[at..at + 2].copy_from_slice(&(self.sent as u16).to_be_bytes());
        }
        if self.sent <= PACKETS { Next::Frame } else { Next::End }
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let (sequence, timestamp_ns) = (self.sent - 1, self.sent * MS);
        (&self.frame, FrameInfo { timestamp_ns, sequence, wire_len: 60, ..FrameInfo::default() })
    }
}

/// Sets that ended, those that live, and packets out.
fn run(by_flow: bool, workers: usize, schedule: Option<u64>) -> [u64; 3] {
    let build =
        move |_: &mut StateBuilder| Ok(vec![Box::new(Instance::new("telling", Telling { by_flow })) as Box<dyn Stage>]);
    let plan = Plan { sets: 1 << 13, ..Plan::for_tests(workers, Arc::new(build)) };
    let mut frame = [0; 60];
    frame[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..40].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1, 0, 0, 0, 53, 0, 26]);
    let source = ReplaySource::load("flows", &mut Traffic { frame, sent: 0 }, PACKETS, Repeat::Passes(1));
    let control = Control { schedule, ..Control::default() };
    let report = launch(&plan, Box::new(source), Box::new(NullSink), &control).expect("it ends");
    assert_eq!(report.total.panics, 0);
    [report.total.sets_expired, report.total.sets_live, report.total.packets_out]
}

#[test]
fn sets_that_are_over_when_a_capture_ends_have_ended_on_any_number_of_workers() {
    let live = TIMEOUT_MS + 1;
    let over = PACKETS - live;
    for by_flow in [true, false] {
        for workers in [1, 2, 3, 5] {
            for schedule in [None, Some(7)] {
                let ended = run(by_flow, workers, schedule);
                assert_eq!(ended, [over, live, PACKETS + over], "{workers} workers, by flow: {by_flow}, {schedule:?}");
            }
        }
    }
}
