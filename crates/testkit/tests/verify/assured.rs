//! A flood at full tables that evict: sets that have been confirmed stay, however long they wait, and what was never answered goes.

use braid_nf::Instance;
use braid_nf::prelude::*;
use braid_nf::state::StateBuilder;
use braid_packet::FrameInfo;
use braid_runtime::{Course, Full};
use braid_testkit::{Bench, Frame};

use super::course::function;

/// Connections that were there before the flood.
const ESTABLISHED: u16 = 100;
const ROOM: usize = 1000;
const SERVER: &str = "192.0.2.9:80";

const BALANCER: &str = "[[service]]\naddress = \"192.0.2.9\"\nbackends = [{ address = \"100.64.0.1\" }]";

/// Functions on two ports whose table holds [`ROOM`] sets and lets others go; and the same if workers share it.
fn full_of(functions: &[(&str, &str)]) -> [Bench; 2] {
    let course = Course { full: vec![Full::EvictOldest; functions.len()], ..Course::default() };
    let build = |builder: &mut StateBuilder| {
        functions.iter().map(|(name, config)| function(name, name, config, 2, builder)).collect()
    };
    [Bench::on_course(2, ROOM, &course, build), Bench::sharing_on_course(2, ROOM, &course, build)]
}

/// What is sent of a connection: by which port, and the flags if it is TCP.
type Exchange = &'static [(Port, &'static str)];

const HANDSHAKE: Exchange = &[(0, "S"), (1, "SA"), (0, "A")];
const QUESTION_AND_ANSWER: Exchange = &[(0, ""), (1, ""), (0, "")];

/// The packets of one connection.
fn packets(client: &str, exchange: Exchange, ms: u64) -> Vec<(FrameInfo, Vec<u8>)> {
    let frame = |(port, flags): &(Port, &str)| {
        let (from, to) = if *port == 0 { (client, SERVER) } else { (SERVER, client) };
        let (sequence, acknowledgement) = match *flags {
            "SA" => (1, 1),
            "A" => (1, 2),
            _ => (0, 0),
        };
        let frame = match flags.is_empty() {
            true => Frame::udp(from, to),
            false => Frame::tcp(from, to).flags(flags).numbers(sequence, acknowledgement),
        };
        (FrameInfo { port: *port, timestamp_ns: ms * 1_000_000, ..FrameInfo::default() }, frame.bytes())
    };
    exchange.iter().map(frame).collect()
}

fn known(n: u16) -> String {
    format!("10.0.0.1:{}", 1000 + n)
}

/// How many of the established connections begin anew after a flood of others that were never answered.
fn begun_anew(bench: &mut Bench, exchange: Exchange) -> u64 {
    for n in 0..ESTABLISHED {
        packets(&known(n), exchange, 1).into_iter().for_each(|packet| drop(bench.send_batch([packet])));
    }
    for n in 0..6000_u16 {
        let stranger = format!("10.9.{}.{}:77", n >> 8, n & 255);
        bench.send_batch(packets(&stranger, &exchange[..1], 100 + u64::from(n)));
    }
    let before = bench.counters();
    assert!(before.sets_evicted > 4000 && before.sets_refused == 0, "{}", before.sets_evicted);
    for n in 0..ESTABLISHED {
        bench.send_batch(packets(&known(n), &exchange[2..], 7000));
    }
    bench.counters().sets_created - before.sets_created
}

#[track_caller]
fn check(functions: &[(&str, &str)], exchange: Exchange, expected: u64) {
    let functions_of = functions.len() as u64;
    let [mut own, mut shared] = full_of(functions);
    assert_eq!(begun_anew(&mut own, exchange), expected, "{functions:?} {exchange:?}");
    assert_eq!(begun_anew(&mut shared, exchange), expected * functions_of, "shared: {functions:?} {exchange:?}");
}

#[test]
fn a_flood_of_syns_leaves_alone_what_is_established() {
    check(&[("firewall", "")], HANDSHAKE, 0);
    check(&[("nat", "")], HANDSHAKE, 0);
    check(&[("load_balancer", BALANCER)], HANDSHAKE, 0);
    check(&[("connection_limiter", "connections_max = 100000")], HANDSHAKE, 0);
    check(&[("anti_ddos", "flows_min = 1000000")], HANDSHAKE, 0);
}

#[test]
fn a_flood_of_datagrams_leaves_alone_what_has_been_answered_or_went_on() {
    check(&[("firewall", "")], QUESTION_AND_ANSWER, 0);
    check(&[("nat", "")], QUESTION_AND_ANSWER, 0);
    check(&[("load_balancer", BALANCER)], QUESTION_AND_ANSWER, 0);
    check(&[("connection_limiter", "connections_max = 100000")], QUESTION_AND_ANSWER, 0);
}

#[test]
fn of_a_function_that_says_nothing_the_oldest_go() {
    check(&[("flow_counter", "totals = false")], HANDSHAKE, u64::from(ESTABLISHED));
}

#[test]
fn one_function_is_assured_for_all_that_share_its_record() {
    check(&[("flow_counter", "totals = false"), ("load_balancer", BALANCER)], HANDSHAKE, 0);
}

network_function! {
    /// Is assured of every set, or of none.
    struct Sure {
        sure: bool,
    }
}

impl NetworkFunction for Sure {
    type Set = ();
    const NAME: &'static str = "sure";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn is_assured(&self, (): &()) -> bool {
        self.sure
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, ()>) -> Handled {
        assert!(set.register(cx, ()), "there is room");
        Ok(cx.pass())
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, (): &mut ()) -> Handled {
        Ok(cx.pass())
    }
}

#[test]
fn where_all_are_assured_the_oldest_go_too() {
    for sure in [false, true] {
        let course = Course { full: vec![Full::EvictOldest], ..Course::default() };
        let mut bench = Bench::on_course(2, ROOM, &course, |_| vec![Box::new(Instance::new("sure", Sure { sure }))]);
        assert_eq!(begun_anew(&mut bench, HANDSHAKE), u64::from(ESTABLISHED), "{sure}");
    }
}
