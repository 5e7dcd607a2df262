//! Packets that a function holds back leave when they are due, in a capture too, and are in the right place in the output, on any number of workers.

use std::sync::Arc;
use std::time::Duration;

use braid_io::memory::{CollectedPacket, MemorySink, Repeat};
use braid_io::{FrameStream, Next, ReplaySource};
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, VectorConfig};
use braid_nf::{Came, Instance, Stage};
use braid_packet::{FrameInfo, Link};
use braid_runtime::{Control, Distribution, Plan, launch};

const MS: u64 = 1_000_000;
/// How long a packet waits at least, in milliseconds; it waits at most one millisecond longer.
const WAIT_MS: u64 = 8;
const PACKETS: u64 = 2000;
/// Number of places for packets that wait.
const ROOM: u32 = 4096;
/// The bytes of a test frame that hold its number.
const NUMBER: std::ops::Range<usize> = 42..50;

#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Waiting {
    due_ns: u64,
    number: u64,
}

/// How many packets have arrived, and how many have left.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Line {
    come: u64,
    gone: u64,
}

network_function! {
    /// Lets every packet wait.
    struct Holding {
        line: Vector<Line>,
        waiting: Vector<Waiting>,
    }
}

impl Holding {
    fn first_one(&self, cx: &mut Cx<'_>, line: Line) -> Result<Option<Waiting>, Conflict> {
        let at = (line.gone % u64::from(ROOM)) as u32;
        Ok(if line.gone < line.come { self.waiting.get(cx, at)? } else { None })
    }
}

impl NetworkFunction for Holding {
    type Set = ();
    const NAME: &'static str = "holding";

    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_nanos(MS)]
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let number = packet.bytes()[NUMBER].try_into().map_or(0, u64::from_le_bytes);
        let mut line = self.line.get(cx, 0)?.unwrap_or_default();
        // Packets of one millisecond are due together, so it does not matter which of them was handled first.
        let due_ns = (cx.now() / MS + WAIT_MS) * MS;
        self.waiting.set(cx, (line.come % u64::from(ROOM)) as u32, Waiting { due_ns, number })?;
        line.come += 1;
        self.line.set(cx, 0, line)?;
        Ok(Verdict::Drop(Reason("waits")))
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        let mut line = self.line.get(cx, 0)?.unwrap_or_default();
        while let Some(first) = self.first_one(cx, line)?.filter(|first| first.due_ns <= cx.now()) {
            cx.emit_held(Came { by: 0, link: Link::default(), may_be_cut: false }, 1, &frame(first.number));
            line.gone += 1;
        }
        self.line.set(cx, 0, line)?;
        Ok(())
    }

    const HOLDS: bool = true;

    fn holds(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let line = self.line.get(cx, 0)?.unwrap_or_default();
        Ok(self.first_one(cx, line)?.map(|first| first.due_ns))
    }
}

/// The frame with a number: ten in a row are of one flow, and most flows end long before the capture does.
fn frame(number: u64) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    let flow = if number < PACKETS / 2 { number / 10 % 16 } else { 3 };
    frame[34..40].copy_from_slice(&[0, flow as u8, 0, 53, 0, 26]);
    frame[NUMBER].copy_from_slice(&number.to_le_bytes());
    frame
}

/// The arrival time: three packets per millisecond, and a pause of nearly half a second after every fifty.
fn came_ns(number: u64) -> u64 {
    1_700_000_000_000 * MS + number * 300_000 + number / 50 * 400 * MS
}

struct Traffic {
    next: u64,
    frame: [u8; 60],
}

impl FrameStream for Traffic {
    fn advance(&mut self) -> Next {
        self.frame = frame(self.next);
        self.next += 1;
        if self.next <= PACKETS { Next::Frame } else { Next::End }
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let sequence = self.next - 1;
        let info = FrameInfo { timestamp_ns: came_ns(sequence), wire_len: 60, sequence, ..FrameInfo::default() };
        (&self.frame, info)
    }
}

fn number(packet: &CollectedPacket) -> u64 {
    packet.bytes[NUMBER].try_into().map_or(0, u64::from_le_bytes)
}

/// The packets that come out, in the order of the input.
fn outcome(workers: usize, in_order: bool, distribution: Distribution, schedule: Option<u64>) -> Vec<CollectedPacket> {
    let build = |builder: &mut StateBuilder| {
        let config = |name: &str, len| VectorConfig { name: name.into(), len };
        let line = Vector::new(builder, &config("line", 1), Line::default()).expect("small");
        let waiting = Vector::new(builder, &config("waiting", ROOM), Waiting::default()).expect("small");
        Ok(vec![Box::new(Instance::new("holding", Holding { line, waiting })) as Box<dyn Stage>])
    };
    let plan = Plan { in_order, distribution, ..Plan::for_tests(workers, Arc::new(build)) };
    let traffic = &mut Traffic { next: 0, frame: [0; 60] };
    let source = ReplaySource::load("bursts", traffic, PACKETS, Repeat::Passes(1));
    let (sink, collected) = MemorySink::new();
    let control = Control { schedule, ..Control::default() };
    let report = launch(&plan, Box::new(source), Box::new(sink), &control).expect("it runs");
    assert_eq!((report.total.panics, report.total.packets_out), (0, PACKETS));
    collected.packets()
}

#[test]
fn what_waits_goes_on_when_it_is_due_on_any_number_of_workers() {
    let times = |packets: &[CollectedPacket]| {
        let mut times: Vec<_> = packets.iter().map(|packet| (packet.timestamp_ns, number(packet))).collect();
        times.sort_unstable();
        times
    };
    let alone = times(&outcome(1, false, Distribution::Hardware, None));
    for &(went_ns, number) in &alone {
        let waited_ns = went_ns - came_ns(number);
        assert!((WAIT_MS - 1) * MS < waited_ns && waited_ns <= (WAIT_MS + 1) * MS, "{number} waited {waited_ns} ns");
    }
    for workers in [1, 2, 4] {
        for (in_order, distribution, schedule) in [
            (false, Distribution::Hardware, None),
            (false, Distribution::Hardware, Some(3)),
            (true, Distribution::Hardware, None),
            (false, Distribution::Software, None),
        ] {
            let packets = outcome(workers, in_order, distribution, schedule);
            let context = format!("{workers} workers, in order: {in_order}, {distribution:?}, {schedule:?}");
            assert!(times(&packets) == alone, "{context}: not when with one worker");
            // It precedes all packets that arrived later.
            let early = packets.iter().find(|packet| came_ns(packet.sequence) < packet.timestamp_ns);
            assert!(early.is_none_or(|packet| packet.sequence == PACKETS), "{context}: {early:?}");
            assert!(packets.is_sorted_by_key(|packet| packet.timestamp_ns), "{context}");
        }
    }
}
