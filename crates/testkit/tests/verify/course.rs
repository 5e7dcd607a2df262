//! Chains whose packets take different courses: reverse order from outside, conditions, and keys after another function's edits.

use braid_functions::find;
use braid_nf::prelude::*;
use braid_nf::state::StateBuilder;
use braid_nf::{Instance, Stage};
use braid_packet::{FrameInfo, PortSet};
use braid_runtime::{Course, Full, Order, When};
use braid_testkit::{Bench, Frame};

const HOST: &str = "10.0.0.1:1100";
const SERVER: &str = "192.0.2.9:80";
/// What a translator whose only port is 2000 makes of the host.
const TRANSLATED: &str = "198.51.100.1:2000";
const NAT: &str = "first_port = 2000\nlast_port = 2000";

network_function! {
    /// Writes a port of its set's key into the last two bytes of each packet: what it takes the packet for.
    struct Label {}
}

impl NetworkFunction for Label {
    type Set = [u8; 2];
    const NAME: &'static str = "label";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, [u8; 2]>) -> Handled {
        let mut state = set.key().five_tuple().map_or([0; 2], |tuple| tuple.src_port.to_be_bytes());
        assert!(set.register(cx, state), "there is room");
        self.packet(cx, packet, &mut state)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, state: &mut [u8; 2]) -> Handled {
        if let Some(end) = packet.bytes_mut().last_chunk_mut() {
            *end = *state;
        }
        Ok(cx.pass())
    }
}

fn label(name: &str) -> Box<dyn Stage> {
    Box::new(Instance::new(name, Label {}))
}

/// A function of the catalogue, called so.
pub(super) fn function(
    name: &str,
    called: &str,
    config: &str,
    ports: u16,
    builder: &mut StateBuilder,
) -> Box<dyn Stage> {
    let config = config.parse().expect("TOML");
    let stage = (find(name).expect("in the catalogue").build)(called, config, builder.scope(called), ports);
    stage.expect("a configuration of the tests")
}

fn mirrored() -> Course {
    Course { order: Order::Mirrored { outside: PortSet::ODD }, ..Course::default() }
}

fn gateway() -> Bench {
    Bench::on_course(2, 256, &mirrored(), |builder| {
        vec![function("firewall", "firewall", "", 2, builder), function("nat", "nat", NAT, 2, builder)]
    })
}

fn info(port: Port) -> FrameInfo {
    FrameInfo { port, wire_len: 60, ..FrameInfo::default() }
}

fn end(frame: &[u8]) -> u16 {
    frame.last_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

/// The label that the last of three functions has written.
fn last_label(order: [&str; 3], frames: &[Frame]) -> Vec<u16> {
    let mut bench = Bench::chain(2, 256, |builder| {
        let build = |name: &str| if name == "nat" { function("nat", "nat", NAT, 2, builder) } else { label(name) };
        order.map(build).into()
    });
    let labels = frames.iter().map(|frame| end(bench.send(0, 0, &frame.clone().payload(&[0; 8]).bytes()).only().1));
    labels.collect()
}

#[test]
fn a_function_behind_a_translator_has_sets_of_what_was_translated() {
    let frames = [Frame::udp(HOST, SERVER), Frame::udp(HOST, SERVER)];
    assert_eq!(last_label(["before", "nat", "behind"], &frames), [2000, 2000]);
    assert_eq!(last_label(["a", "b", "nat"], &frames), [1100, 1100]);
}

#[test]
fn from_outside_the_last_function_is_met_first() {
    let mut bench = Bench::on_course(2, 256, &mirrored(), |builder| {
        vec![label("inner"), function("nat", "nat", NAT, 2, builder), label("outer")]
    });
    let sent = bench.send(0, 0, &Frame::udp(HOST, SERVER).payload(&[0; 8]).bytes());
    assert_eq!(end(sent.only().1), 2000, "the outer one has the last word");
    let answer = bench.send(1, 0, &Frame::udp(SERVER, TRANSLATED).payload(&[0; 8]).bytes());
    assert_eq!(end(answer.only().1), 80);
    assert_eq!(answer.only().0, 0);
}

#[test]
fn a_whole_exchange_in_one_batch_keeps_its_order() {
    let mut gateway = gateway();
    let frames = [
        (0, Frame::tcp(HOST, SERVER).flags("S")),
        (1, Frame::tcp(SERVER, TRANSLATED).flags("SA")),
        (0, Frame::tcp(HOST, SERVER).flags("A")),
        (0, Frame::tcp(HOST, SERVER).flags("PA").payload(b"GET /")),
        (1, Frame::tcp(SERVER, TRANSLATED).flags("PA").payload(b"200 OK")),
        (1, Frame::tcp(SERVER, "198.51.100.1:9").flags("S")),
    ];
    let sent = gateway.send_batch(frames.map(|(port, frame)| (info(port), frame.bytes())));
    let ports: Vec<Port> = sent.iter().map(|(port, _)| *port).collect();
    assert_eq!(ports, [1, 0, 1, 1, 0], "in the order in which they came, but for the stranger");
    let drops: Vec<_> =
        gateway.counters().drops.iter().map(|(function, reason, n)| (function.to_owned(), reason, n)).collect();
    assert_eq!(drops, [("nat".to_owned(), "no_mapping", 1)], "a drop is counted where it happened");
}

#[test]
fn what_nobody_asked_for_ends_at_the_firewall_behind_an_open_translator() {
    let mut gateway = gateway();
    gateway.send(0, 0, &Frame::udp(HOST, SERVER).bytes());
    // Endpoint-independent filtering: the translator lets everybody in, the firewall does not.
    let stranger = gateway.send(1, 0, &Frame::udp("203.0.113.7:53", TRANSLATED).bytes());
    assert_eq!(stranger.dropped, Some("denied"));
    let answer = gateway.send(1, 0, &Frame::udp(SERVER, TRANSLATED).bytes());
    assert_eq!(answer.ports(), [0]);
}

/// Three ports, a condition for the second of two labels; who has labelled a packet from `port`.
#[track_caller]
fn check_when(when: When, port: Port, expected: u16) {
    let course = Course { when: vec![When::default(), when], ..Course::default() };
    let mut bench =
        Bench::on_course(3, 256, &course, |builder| vec![function("bridge", "bridge", "", 3, builder), label("label")]);
    let station = |n: u8| [2, 0, 0, 0, 0, n];
    bench.send(0, 0, &Frame::udp(SERVER, HOST).mac(station(1), station(9)).bytes());
    let known = Frame::udp(HOST, SERVER).mac(station(2), station(1)).payload(&[0; 8]);
    let sent = bench.send(port, 0, &known.bytes());
    assert_eq!(end(sent.only().1), expected, "{when:?} {port}");
    let unknown = Frame::udp(HOST, SERVER).mac(station(2), station(7)).payload(&[0; 8]);
    let flooded = bench.send(port, 0, &unknown.bytes());
    let labelled = flooded.sent.iter().all(|(_, frame)| end(frame) == 1100);
    assert_eq!(labelled, when.admits(port, Verdict::Flood), "{when:?} {port}");
}

#[test]
fn conditions_let_some_packets_pass_a_function_by() {
    let ports = |port: Port| Some(PortSet::of([port]));
    check_when(When::default(), 1, 1100);
    check_when(When { came_by: ports(1), ..When::default() }, 1, 1100);
    check_when(When { came_by: ports(1), ..When::default() }, 2, 0);
    check_when(When { leaves_by: ports(0), ..When::default() }, 2, 1100);
    check_when(When { leaves_by: ports(1), ..When::default() }, 2, 0);
    check_when(When { passes: ports(0), ..When::default() }, 2, 1100);
    check_when(When { passes: ports(2), ..When::default() }, 2, 1100);
    check_when(When { passes: ports(1), ..When::default() }, 2, 0);
    check_when(When { flooded: Some(true), ..When::default() }, 2, 0);
    check_when(When { flooded: Some(false), ..When::default() }, 2, 1100);
}

#[test]
fn the_same_function_twice_has_two_states() {
    let rates = ["bytes_per_s = 1000000\nburst_bytes = 1500", "bytes_per_s = 1000\nburst_bytes = 200"];
    let mut bench = Bench::chain(2, 256, |builder| {
        vec![function("policer", "wide", rates[0], 2, builder), function("policer", "narrow", rates[1], 2, builder)]
    });
    let frame = || Frame::udp(HOST, SERVER).len(100).bytes();
    let sent: Vec<bool> = (0..3).map(|_| !bench.send(0, 0, &frame()).sent.is_empty()).collect();
    assert_eq!(sent, [true, true, false], "two packets fill the burst of the narrow one");
    let drops: Vec<_> = bench.counters().drops.iter().map(|(function, _, n)| (function.to_owned(), n)).collect();
    assert_eq!(drops, [("narrow".to_owned(), 1)]);
}

#[test]
fn functions_that_meet_other_packets_share_no_record() {
    let only_0 = When { came_by: Some(PortSet::of([0])), ..When::default() };
    let course = Course { when: vec![When::default(), only_0], ..Course::default() };
    let mut bench = Bench::on_course(2, 256, &course, |_| vec![label("all"), label("some")]);
    bench.send(0, 0, &Frame::udp(HOST, SERVER).bytes());
    bench.send(1, 0, &Frame::udp(SERVER, HOST).bytes());
    assert_eq!(bench.counters().sets_created, 3, "two sets of the one, one of the other");
}

#[test]
fn a_full_table_refuses_or_lets_the_oldest_set_go() {
    let all = [(Full::Refuse, 4, 0), (Full::EvictOldest, 7, 3)];
    for ((full, created, evicted), is_shared) in all.into_iter().flat_map(|case| [(case, false), (case, true)]) {
        let course = Course { full: vec![full], ..Course::default() };
        let build = |builder: &mut StateBuilder| vec![function("flow_counter", "flows", "totals = false", 2, builder)];
        let mut bench = match is_shared {
            false => Bench::on_course(2, 4, &course, build),
            true => Bench::sharing_on_course(2, 4, &course, build),
        };
        let mut send = |port: u16, ms: u64| {
            bench.send(0, ms, &Frame::udp(&format!("10.0.0.1:{port}"), SERVER).bytes());
        };
        (1..=4).for_each(|port| send(port, u64::from(port)));
        send(1, 5); // the first one is the youngest now
        (5..=7).for_each(|port| send(port, 5 + u64::from(port)));
        send(1, 20); // and is still there
        let counters = bench.counters();
        assert_eq!(
            (counters.sets_created, counters.sets_evicted, counters.sets_live),
            (created, evicted, 4),
            "{full:?}, shared: {is_shared}"
        );
        assert_eq!(counters.sets_refused == 0, full == Full::EvictOldest, "{full:?}, shared: {is_shared}");
    }
}

/// A counter of flows with so much room, which lets the oldest go.
fn full_of(sets: usize) -> Bench {
    let course = Course { full: vec![Full::EvictOldest], ..Course::default() };
    Bench::on_course(2, sets, &course, |builder| vec![function("flow_counter", "flows", "totals = false", 2, builder)])
}

/// The `n`th batch of 256 packets, each the first of a flow; one comes every so many microseconds.
fn batch_of_first_ones(n: u16, every_us: u64) -> impl Iterator<Item = (FrameInfo, Vec<u8>)> {
    let host = move |of: u16| Frame::udp(&format!("10.1.{}.{}:{of}", n >> 8, n & 255), SERVER).bytes();
    (1..=256).map(move |of| (FrameInfo { timestamp_ns: u64::from(n) * every_us * 1000, ..info(0) }, host(of)))
}

#[test]
fn a_full_table_of_many_sets_finds_room_for_each_new_one() {
    let mut bench = full_of(300_000);
    (0..1600).for_each(|n| drop(bench.send_batch(batch_of_first_ones(n, 2000))));
    let counters = bench.counters();
    assert_eq!((counters.sets_created, counters.sets_refused), (409_600, 0));
    assert_eq!(counters.sets_created - counters.sets_evicted, counters.sets_live);
}

network_function! {
    /// Remembers a set for a tenth of a second.
    struct Brief {}
}

impl NetworkFunction for Brief {
    type Set = [u8; 2];
    const NAME: &'static str = "brief";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &[u8; 2]) -> u64 {
        self.shortest_timeout_ns()
    }

    fn shortest_timeout_ns(&self) -> u64 {
        100_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, [u8; 2]>) -> Handled {
        Ok(if set.register(cx, [0; 2]) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }
}

/// 900 of 1000 sets are over at once. A scan that takes a second for its round has found some 70 of them 40 ms later: of sets that
/// come and go, those that are over would fill the part of the table in front of it.
#[test]
fn where_a_table_is_nearly_full_sets_hardly_outlive_their_timeout() {
    let mut bench = Bench::on_course(2, 1000, &Course::default(), |_| vec![Box::new(Instance::new("brief", Brief {}))]);
    (0..4).for_each(|n| drop(bench.send_batch(batch_of_first_ones(n, 0).take(225))));
    assert_eq!(bench.counters().sets_live, 900);
    (1..=140).for_each(|ms| drop(bench.send(0, ms, &Frame::udp(HOST, SERVER).bytes())));
    let live = bench.counters().sets_live;
    assert!(live <= 760, "{live}");
}

#[test]
fn a_few_sets_with_long_keys_that_are_in_use_stay_when_many_with_short_ones_go() {
    let mut bench = full_of(300_000);
    for n in 0..1600 {
        bench.send_batch(batch_of_first_ones(n, 2000));
        let long = |host: u8| Frame::udp(&format!("[2001:db8::{host}]:5"), "[2001:db8:9::1]:53").bytes();
        let later = FrameInfo { timestamp_ns: u64::from(n) * 2_000_000 + 1_000_000, ..info(0) };
        bench.send_batch((1..=4).map(|host| (later, long(host))));
    }
    let counters = bench.counters();
    assert_eq!((counters.sets_created, counters.sets_refused), (409_604, 0), "none of the four began again");
}

#[test]
fn a_gateway_whose_chain_is_one_transaction_answers_as_any_other() {
    let course = Course { atomic: true, ..mirrored() };
    let mut whole = Bench::on_course(2, 256, &course, |builder| {
        vec![function("firewall", "firewall", "", 2, builder), function("nat", "nat", NAT, 2, builder)]
    });
    let mut each = gateway();
    let frames = [
        (0, Frame::tcp(HOST, SERVER)),
        (1, Frame::tcp(SERVER, TRANSLATED)),
        (1, Frame::tcp("192.0.2.66:80", "198.51.100.1:2001")),
        (0, Frame::udp("10.0.0.2:5", "192.0.2.9:53")),
    ];
    for (port, frame) in frames {
        let bytes = frame.bytes();
        let [expected, found] = [&mut each, &mut whole].map(|bench| {
            let sent = bench.send_info(info(port), &bytes);
            (sent.ports(), format!("{sent:?}"))
        });
        assert_eq!(found, expected);
    }
    let counters = whole.counters();
    assert_eq!((counters.commits, counters.drops.total()), (4, each.counters().drops.total()));
}

network_function! {
    /// Writes its number behind those that are there already, in base four, into the last byte of each packet; drops those that it counts too
    /// high.
    struct Visited {
        number: u8,
        most: u8,
    }
}

impl NetworkFunction for Visited {
    type Set = ();
    const NAME: &'static str = "visited";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let Some(end) = packet.bytes_mut().last_mut() else { return Ok(cx.pass()) };
        *end = end.wrapping_mul(4) + self.number;
        Ok(if *end > self.most { Verdict::Drop(Reason("visited")) } else { cx.pass() })
    }
}

network_function! {
    /// Has each packet followed by two more like it, one of which goes straight.
    struct Tripled {}
}

impl NetworkFunction for Tripled {
    type Set = ();
    const NAME: &'static str = "tripled";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let across = cx.opposite(packet.port());
        cx.emit(across, packet.bytes());
        cx.emit_onward(across, packet.bytes());
        Ok(cx.pass())
    }
}

/// Functions 1, `Tripled`, 2 and 3, the last of which drops what it counts higher than `most`.
fn tripled(course: &Course, most: u8) -> Bench {
    Bench::on_course(2, 256, course, |_| {
        let visited =
            |name: &str, number, most| -> Box<dyn Stage> { Box::new(Instance::new(name, Visited { number, most })) };
        let tripled = Box::new(Instance::new("tripled", Tripled {}));
        vec![visited("first", 1, u8::MAX), tripled, visited("second", 2, u8::MAX), visited("third", 3, most)]
    })
}

/// Which functions the packets met that are sent for one from `port`: the one that goes straight, itself, the one that goes on.
#[track_caller]
fn check_onward(course: &Course, port: Port, expected: [u8; 3]) {
    let mut bench = tripled(course, u8::MAX);
    let sent = bench.send(port, 0, &Frame::udp(HOST, SERVER).payload(&[0; 8]).bytes());
    let mut visits: Vec<u8> = sent.sent.iter().map(|(_, frame)| frame[frame.len() - 1]).collect();
    visits.sort_unstable();
    assert_eq!((visits, sent.ports()), (expected.to_vec(), vec![port ^ 1; 3]), "{course:?} from {port}");
    let counters = bench.counters();
    assert_eq!((counters.packets_in, counters.packets_copied, counters.packets_out), (1, 2, 3));
}

#[test]
fn what_a_function_sends_on_meets_the_functions_behind_it() {
    const ONE_TWO_THREE: u8 = 0o33;
    const THREE_TWO_ONE: u8 = 3 * 16 + 2 * 4 + 1;
    check_onward(&Course::default(), 0, [1, ONE_TWO_THREE, ONE_TWO_THREE]);
    check_onward(&Course::default(), 1, [1, ONE_TWO_THREE, ONE_TWO_THREE]);
    check_onward(&mirrored(), 0, [1, ONE_TWO_THREE, ONE_TWO_THREE]);
    check_onward(&mirrored(), 1, [3 * 4 + 2, THREE_TWO_ONE, THREE_TWO_ONE]);
    check_onward(&Course { atomic: true, ..mirrored() }, 1, [3 * 4 + 2, THREE_TWO_ONE, THREE_TWO_ONE]);
    let only_from_1 = When { came_by: Some(PortSet::of([1])), ..When::default() };
    let when = vec![When::default(), When::default(), only_from_1, When::default()];
    check_onward(&Course { when, ..Course::default() }, 0, [1, 7, 7]);
}

#[test]
fn what_is_sent_on_may_be_dropped_and_is_counted_there() {
    let mut bench = tripled(&Course::default(), 0);
    let sent = bench.send(0, 0, &Frame::udp(HOST, SERVER).payload(&[0; 8]).bytes());
    assert_eq!(sent.sent.len(), 1, "the one that goes straight");
    let counters = bench.counters();
    assert_eq!((counters.packets_in + counters.packets_copied, counters.packets_out), (3, 1));
    assert_eq!(counters.drops.iter().map(|(_, reason, n)| (reason, n)).collect::<Vec<_>>(), [("visited", 2)]);
}
