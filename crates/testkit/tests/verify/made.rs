//! Packets that functions make: answers that go back through the functions before, and what was held and goes on through those behind.

use braid_functions::find;
use braid_io::NullSink;
use braid_io::generate::Profile;
use braid_nf::prelude::*;
use braid_nf::state::StateBuilder;
use braid_nf::{Instance, Stage};
use braid_packet::{FrameInfo, Link, PortSet};
use braid_runtime::{Course, Order, When};
use braid_testkit::{Bench, Frame};

use crate::generated::traffic;
use crate::run::Case;

const HOST: &str = "10.0.0.1:1100";
const SERVER: &str = "192.0.2.9:80";

/// The last byte of a packet is a list of digits in base four: who has seen it.
fn note(packet: &mut Packet<'_>, digit: u8) {
    if let Some(end) = packet.bytes_mut().last_mut() {
        *end = end.wrapping_mul(4) + digit;
    }
}

fn noted(frame: &[u8]) -> u8 {
    frame.last().copied().unwrap_or_default()
}

network_function! {
    /// Sends every packet by a port, and notes of answers that it has seen them.
    struct Turning {
        digit: u8,
        to: Port,
    }
}

impl NetworkFunction for Turning {
    type Set = ();
    const NAME: &'static str = "turning";

    fn orphan(&self, _: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(Verdict::Forward(self.to))
    }

    const TURNS_BACK: bool = true;

    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        note(packet, self.digit);
        // Where it came from is what its cause was going to be.
        let between = (packet.port() * 16 + cx.leaves_by()) as u8;
        if let Some(byte) = packet.bytes_mut().get_mut(50) {
            *byte = between;
        }
        Ok(cx.pass())
    }
}

network_function! {
    /// Notes that it has seen a packet, answers included: it must not see any.
    struct Watching {
        digit: u8,
    }
}

impl NetworkFunction for Watching {
    type Set = ();
    const NAME: &'static str = "watching";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        note(packet, self.digit);
        Ok(cx.pass())
    }
}

network_function! {
    /// Answers each packet with itself, and drops it.
    struct Refusing {}
}

impl NetworkFunction for Refusing {
    type Set = ();
    const NAME: &'static str = "refusing";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        cx.emit_back(packet.port(), packet.bytes());
        Ok(Verdict::Drop(Reason("refused")))
    }
}

fn function(name: &str, config: &str, ports: u16, builder: &mut StateBuilder) -> Box<dyn Stage> {
    let config = config.parse().expect("TOML");
    let stage = (find(name).expect("in the catalogue").build)(name, config, builder.scope(name), ports);
    stage.expect("a configuration of the tests")
}

fn mirrored() -> Course {
    Course { order: Order::Mirrored { outside: PortSet::ODD }, ..Course::default() }
}

/// An answer to a packet from `port` in a chain of five functions: who has seen it, and as coming by which port and going to which.
#[track_caller]
fn check_back(course: &Course, port: Port, seen: u8, between: [Port; 2]) {
    let mut bench = Bench::on_course(4, 256, course, |_| {
        let turning =
            |name: &str, digit, to| -> Box<dyn Stage> { Box::new(Instance::new(name, Turning { digit, to })) };
        vec![
            turning("first", 1, 3),
            turning("second", 2, 2),
            Box::new(Instance::new("watching", Watching { digit: 0 })),
            Box::new(Instance::new("refusing", Refusing {})),
            turning("last", 3, 1),
        ]
    });
    let sent = bench.send(port, 0, &Frame::udp(HOST, SERVER).payload(&[0; 30]).bytes());
    let (to, frame) = sent.only();
    assert_eq!((to, noted(frame), sent.dropped), (port, seen, Some("refused")), "{course:?} from {port}");
    assert_eq!(frame[50], (between[0] * 16 + between[1]) as u8, "{course:?} from {port}");
    let counters = bench.counters();
    assert_eq!((counters.packets_in, counters.packets_copied, counters.packets_out), (1, 1, 1));
}

#[test]
fn an_answer_goes_back_through_the_functions_before_its_maker_that_turn_back() {
    const SECOND_FIRST: u8 = 2 * 4 + 1;
    check_back(&Course::default(), 0, SECOND_FIRST, [2, 0]);
    check_back(&Course::default(), 1, SECOND_FIRST, [2, 1]);
    check_back(&mirrored(), 0, SECOND_FIRST, [2, 0]);
    check_back(&mirrored(), 1, 3, [1, 1]);
    check_back(&Course { atomic: true, ..mirrored() }, 0, SECOND_FIRST, [2, 0]);
    let only_from_1 = When { came_by: Some(PortSet::of([1])), ..When::default() };
    let when = vec![When::default(), only_from_1, When::default(), When::default(), When::default()];
    check_back(&Course { when, ..Course::default() }, 0, 1, [3, 0]);
}

/// A shaper that lets two packets of 100 bytes through and holds the third for a moment, between two functions.
fn shaped(before: fn(&mut StateBuilder) -> Box<dyn Stage>) -> Bench {
    let config = "bytes_per_s = 100000\nburst_bytes = 200\nqueue_packets = 16";
    Bench::chain(4, 256, |builder| {
        let behind = Box::new(Instance::new("watching", Watching { digit: 3 }));
        vec![before(builder), function("shaper", config, 4, builder), behind]
    })
}

#[test]
fn what_a_shaper_held_leaves_by_the_port_that_was_decided_before_and_meets_the_functions_behind() {
    let mut bench = shaped(|_| Box::new(Instance::new("first", Turning { digit: 1, to: 3 })));
    let frame = Frame::udp(HOST, SERVER).payload(&[0; 58]).bytes();
    for _ in 0..2 {
        assert_eq!(bench.send(0, 0, &frame).only().0, 3);
    }
    assert_eq!(bench.send(0, 0, &frame).dropped, Some("waits_for_credit"));
    let other = Frame::udp(HOST, "192.0.2.77:80").payload(&[0; 8]).bytes();
    let sent = bench.send(0, 20, &other).sent;
    let seen: Vec<_> = sent.iter().map(|(port, frame)| (*port, noted(frame))).collect();
    assert_eq!(seen, [(3, 3), (3, 3)], "the one that was held and the one that let time pass");
    let counters = bench.counters();
    assert_eq!((counters.packets_in + counters.packets_copied, counters.packets_out), (5, 4));
}

#[test]
fn what_a_shaper_held_behind_a_bridge_goes_to_its_station_or_to_everybody() {
    let mut bench = shaped(|builder| function("bridge", "", 4, builder));
    let station = |n: u8| [2, 0, 0, 0, 0, n];
    let sized = |frame: Frame| frame.payload(&[0; 58]).bytes();
    bench.send(2, 0, &Frame::udp("10.9.9.9:1", "10.9.9.8:1").mac(station(1), station(9)).payload(&[0; 8]).bytes());
    let known = sized(Frame::udp(HOST, SERVER).mac(station(2), station(1)));
    let unknown = sized(Frame::udp(HOST, SERVER).mac(station(2), station(7)));
    for frame in [&known, &known] {
        assert_eq!(bench.send(0, 1, frame).ports(), [2]);
    }
    for frame in [&known, &unknown] {
        assert_eq!(bench.send(0, 1, frame).dropped, Some("waits_for_credit"));
    }
    let later = Frame::udp(HOST, "192.0.2.77:80").mac(station(2), station(1)).payload(&[0; 8]).bytes();
    let sent = bench.send(0, 50, &later).sent;
    let mut ports: Vec<_> = sent.iter().map(|(port, frame)| (*port, noted(frame))).collect();
    ports.sort_unstable();
    assert_eq!(ports, [(1, 3), (2, 3), (2, 3), (2, 3), (3, 3)], "known, unknown three times, and the later one");
}

#[test]
fn what_a_shaper_held_is_still_a_frame_of_its_link() {
    let shaper = "bytes_per_s = 100000\nburst_bytes = 100\nqueue_packets = 16";
    let mut bench = Bench::chain(2, 256, |builder| {
        [("shaper", shaper), ("nat", "")].map(|(name, config)| function(name, config, 2, builder)).into()
    });
    // No Ethernet before the IP header.
    let bytes = Frame::udp(HOST, SERVER).payload(&[0; 50]).bytes().split_off(14);
    let mut send = |ms: u64| {
        let timestamp_ns = ms * 1_000_000;
        let wire_len = bytes.len() as u32;
        bench.send_info(FrameInfo { link: Link::RawIp, timestamp_ns, wire_len, ..FrameInfo::default() }, &bytes)
    };
    assert_eq!(send(0).sent.len(), 1);
    assert_eq!(send(0).dropped, Some("waits_for_credit"));
    // It comes before the period that sends the one that waits.
    let later = send(50);
    assert_eq!(later.dropped, Some("waits_for_credit"));
    assert_eq!(later.only().1[12..16], [198, 51, 100, 1], "it is translated");
}

/// Frames of the mixes are for other stations; no route leads out.
const ROUTER: &str = "promiscuous = true\ncounts_hops = false\nwaiting_max = 64\nicmp_errors_per_s = 1000000
    interface = [{ port = 0, addresses = ['10.0.0.254/8'] }, { port = 1, addresses = ['198.51.100.1/24'] }]";

#[test]
fn no_packet_is_lost_where_some_wait_go_on_and_are_answered() {
    let shaper =
        "bytes_per_s = 100000000\nqueue_packets = 40000\nlink = { bytes_per_s = 1000000, burst_bytes = 10000 }";
    for workers in [1, 2, 4] {
        let case = Case::new(2, workers, move |builder| {
            [("shaper", shaper), ("nat", ""), ("router", ROUTER)]
                .map(|(name, config)| function(name, config, 2, builder))
                .into()
        });
        let report = case.run(traffic(Profile::Edge, 10_000, 7), NullSink).expect("it runs");
        let count = |wanted: &str| -> u64 {
            report.total.drops.iter().filter(|(_, reason, _)| *reason == wanted).map(|(.., count)| count).sum()
        };
        let (waited, refused) = (count("waits_for_credit"), count("no_route"));
        assert!(waited > 1000 && refused > 1000, "{workers} workers: {waited} waited, {refused} had no route");
        assert_eq!(count("made_before_translator"), 0, "{workers} workers");
    }
}
