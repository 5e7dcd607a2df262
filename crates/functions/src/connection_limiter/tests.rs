//! Whose connections are counted, when they begin and end, and what happens to those beyond the limit.

use std::collections::HashMap;

use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::*;
use crate::find;
use crate::parts::testing::show;

fn bench(config: &str) -> Bench {
    let build = find("connection_limiter").unwrap().build;
    Bench::with_sets(2, 100, |builder| build("limit", config.parse().unwrap(), builder, 2).unwrap())
}

fn tcp(from: &str, to: &str, flags: &str) -> Vec<u8> {
    Frame::tcp(from, to).flags(flags).bytes()
}

const SERVER: &str = "192.0.2.1:80";
const TWO: &str = "connections_max = 2";

/// Opens a connection from a port of a host at a given time; returns the reason if it was refused.
fn open(bench: &mut Bench, ms: u64, host: &str, port: u16) -> Option<&'static str> {
    bench.send(0, ms, &tcp(&format!("{host}:{port}"), SERVER, "S")).dropped
}

#[test]
fn a_host_has_so_many_connections_and_no_more() {
    let mut bench = bench(TWO);
    let opened: Vec<_> = (1..=3).map(|port| open(&mut bench, 0, "10.0.0.1", port)).collect();
    assert_eq!(opened, [None, None, Some("too_many_connections")]);
    assert_eq!(open(&mut bench, 0, "10.0.0.1", 1), None, "it is there already");
    assert_eq!(open(&mut bench, 0, "10.0.0.2", 1), None, "another host");
    let findings = bench.findings();
    assert_eq!(findings.list()[0].subject, "10.0.0.1");
    assert_eq!(findings.list()[0].detail, "refused a connection first at 0.000 s, to tcp port 80");
}

/// Opens two connections, sends packets of the first, waits `ms`, and checks whether there is room for a third.
#[track_caller]
fn check(packets: &[(&str, &str, &str)], ms: u64, has_room: bool) {
    let mut bench = bench("connections_max = 2\nopening_s = 5\ntcp_s = 100\nclosing_s = 2\nudp_s = 20");
    assert_eq!(open(&mut bench, 0, "10.0.0.1", 2), None);
    for (from, to, flags) in packets {
        assert_eq!(bench.send(0, 0, &tcp(from, to, flags)).dropped, None);
    }
    assert_eq!(bench.send(0, ms - 1, &tcp("10.0.0.1:2", SERVER, "S")).dropped, None, "the second stays");
    assert_eq!(open(&mut bench, ms, "10.0.0.1", 3).is_none(), has_room, "{packets:?} {ms}");
}

const A: &str = "10.0.0.1:1";
const SHAKEN: [(&str, &str, &str); 3] = [(A, SERVER, "S"), (SERVER, A, "SA"), (A, SERVER, "A")];

#[test]
fn connections_count_until_their_time_is_over() {
    check(&SHAKEN[..1], 4_900, false);
    check(&SHAKEN[..1], 5_100, true);
    check(&SHAKEN[..2], 5_100, true);
}

#[test]
fn a_confirmed_connection_counts_longer_a_reset_one_not_for_long_and_a_closed_one_not_at_all() {
    let kept = |more: &[(&str, &str, &str)], ms: u64| {
        let mut bench = bench("connections_max = 1\nopening_s = 5\ntcp_s = 100\nclosing_s = 2");
        for (from, to, flags) in SHAKEN.iter().chain(more) {
            bench.send(0, 0, &tcp(from, to, flags));
        }
        // An ended connection is no longer counted after the batch in which the scan finds it.
        bench.send(0, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
        open(&mut bench, ms, "10.0.0.1", 3).is_some()
    };
    assert!(kept(&[], 99_000));
    assert!(!kept(&[], 101_000));
    let fin = [(A, SERVER, "FA"), (SERVER, A, "FA")];
    assert!(kept(&fin[..1], 99_000), "half closed is open");
    assert!(!kept(&fin, 0), "both ends have closed it");
    assert!(kept(&[(SERVER, A, "R")], 1_900));
    assert!(!kept(&[(SERVER, A, "R")], 2_100));
    let ended = [fin[0], fin[1], (A, SERVER, "A"), (SERVER, A, "FA"), (A, SERVER, "R")];
    assert!(!kept(&ended, 0), "its last segments change nothing");
}

#[test]
fn ports_that_are_used_again_open_another_connection() {
    let mut bench = bench("connections_max = 1\nconnections_per_s = 2");
    for (from, to, flags) in SHAKEN {
        bench.send(0, 0, &tcp(from, to, flags));
    }
    bench.send(0, 0, &tcp(A, SERVER, "R"));
    assert_eq!(bench.send(0, 0, &tcp(A, SERVER, "S")).dropped, None, "in the place of the old one");
    assert_eq!(open(&mut bench, 0, "10.0.0.1", 9), Some("too_many_connections"));
    bench.send(0, 0, &tcp(A, SERVER, "R"));
    let again = bench.send(0, 0, &tcp(A, SERVER, "S")).dropped;
    assert_eq!(again, Some("too_many_new_connections"), "the third in a second");
}

#[test]
fn new_connections_have_a_rate() {
    let mut bench = bench("connections_max = 0\nconnections_per_s = 10\nburst = 3");
    let opened = |bench: &mut Bench, ms: u64, from: u16| {
        (from..from + 5).filter(|port| open(bench, ms, "10.0.0.1", *port).is_none()).count()
    };
    assert_eq!(opened(&mut bench, 0, 10), 3);
    assert_eq!(opened(&mut bench, 99, 20), 0);
    assert_eq!(opened(&mut bench, 100, 30), 1);
    assert_eq!(open(&mut bench, 100, "10.0.0.2", 1), None);
}

#[test]
fn ranges_servers_and_subscribers_have_limits() {
    let mut by_range = bench("connections_max = 1\nprefix = { v4 = 24, v6 = 48 }");
    assert_eq!(open(&mut by_range, 0, "10.0.0.1", 1), None);
    assert_eq!(open(&mut by_range, 0, "10.0.0.2", 1), Some("too_many_connections"));
    assert_eq!(open(&mut by_range, 0, "10.0.1.2", 1), None);
    let v6 = |host: &str| Frame::udp(&format!("[2001:db8:{host}::1]:1"), "[2001:db8:ff::1]:53").bytes();
    assert_eq!(by_range.send(0, 0, &v6("1")).dropped, None);
    assert_eq!(by_range.send(0, 0, &v6("1:2")).dropped, Some("too_many_connections"));
    assert_eq!(by_range.send(0, 0, &v6("2")).dropped, None);

    let mut by_server = bench("connections_max = 1\nby = 'destination'");
    assert_eq!(open(&mut by_server, 0, "10.0.0.1", 1), None);
    assert_eq!(open(&mut by_server, 0, "10.0.0.2", 1), Some("too_many_connections"));

    let mut by_subscriber = bench("connections_max = 1\nby = 'subscriber'");
    assert_eq!(open(&mut by_subscriber, 0, "10.0.0.1", 1), None);
    let from_outside = tcp("203.0.113.1:5", "10.0.0.1:22", "S");
    assert_eq!(by_subscriber.send(1, 0, &from_outside).dropped, Some("too_many_connections"));
}

#[test]
fn who_is_rejected_is_told() {
    let mut bench = bench("connections_max = 1\naction = 'reject'");
    let udp = |port: u16| Frame::udp(&format!("10.0.0.1:{port}"), "192.0.2.1:53").vlan(5).bytes();
    assert_eq!(bench.send(0, 0, &udp(1)).ports(), [1]);
    let refused = bench.send(0, 0, &udp(2));
    assert!(show::outcome(&refused).starts_with("0: unreachable 192.0.2.1 > 10.0.0.1"), "{}", show::outcome(&refused));
    assert_eq!(&refused.sent[0].1[12..16], [0x81, 0, 0, 5], "the tag is kept");
    let reset = bench.send(0, 0, &tcp("10.0.0.1:3", SERVER, "S"));
    assert!(show::outcome(&reset).starts_with("0: tcp 192.0.2.1:80 > 10.0.0.1:3"), "{}", show::outcome(&reset));
}

#[test]
fn what_opens_no_connection_passes_and_is_not_counted() {
    let mut bench = bench("connections_max = 1");
    let others = [
        tcp("10.0.0.1:7", SERVER, "R"),
        tcp("10.0.0.1:8", SERVER, "FA"),
        Frame::echo_request("10.0.0.1", "192.0.2.1", 1, 1).bytes(),
        Frame::arp("10.0.0.1", "10.0.0.2").bytes(),
        Frame::ip("10.0.0.1", "192.0.2.1", 6).payload(&[0; 24]).fragment(1, 3, false).bytes(),
    ];
    for frame in others {
        assert_eq!(bench.send(0, 0, &frame).only(), (1, &frame[..]));
    }
    assert_eq!(open(&mut bench, 0, "10.0.0.1", 1), None);
    assert_eq!(bench.send(1, 0, &tcp(SERVER, "10.0.0.2:4", "SA")).dropped, None, "an answer to nothing");
    assert_eq!(open(&mut bench, 0, "10.0.0.2", 5), None);
    assert_eq!(open(&mut bench, 0, "10.0.0.2", 6), Some("too_many_connections"));
}

#[test]
fn full_tables_admit_nobody_and_are_swept() {
    let mut bench = bench("owners_max = 1\nudp_s = 1\nconnections_per_s = 10\nburst = 10");
    let udp = |host: u8| Frame::udp(&format!("10.0.0.{host}:1"), "192.0.2.1:53").bytes();
    assert_eq!(bench.send(0, 0, &udp(1)).dropped, None);
    assert_eq!(bench.send(0, 0, &udp(2)).dropped, Some("owner_table_full"));
    for ms in [2_000, 2_500, 3_000] {
        bench.send(0, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    assert_eq!(bench.send(0, 3_001, &udp(2)).dropped, None);
    assert!(bench.findings().list().is_empty(), "nobody is at a limit");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// UDP exchanges against a model: admitted while fewer than three of a host are alive.
    #[test]
    fn an_owner_never_has_more_than_it_may(packets in prop::collection::vec((0u64..900, 0u8..3, 1u16..8), 1..150)) {
        let mut bench = bench("connections_max = 3\nudp_s = 1");
        let (mut now, mut alive): (u64, HashMap<(u8, u16), u64>) = (0, HashMap::new());
        for (gap, host, port) in packets {
            now += gap;
            alive.retain(|_, seen| now - *seen <= 1000);
            let known = alive.contains_key(&(host, port));
            let may = known || alive.keys().filter(|(owner, _)| *owner == host).count() < 3;
            let frame = Frame::udp(&format!("10.0.0.{host}:{port}"), "192.0.2.1:53").bytes();
            let admitted = bench.send(0, now, &frame).dropped.is_none();
            // Exchanges end with a tolerance of some milliseconds, and are uncounted when the scan finds them.
            let is_clear = alive.values().all(|seen| now - *seen < 990);
            prop_assert!(!admitted || may || !is_clear);
            prop_assert!(admitted || !known || !is_clear);
            if admitted {
                alive.insert((host, port), now);
            }
        }
    }
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    let config: Config = crate::parse(config.parse().unwrap()).unwrap();
    let lengths = config.most().map(drop).and(config.lengths().map(drop));
    let error = lengths.and(config.timeouts().map(drop)).and(config.sides(2).map(drop)).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn impossible_values_are_refused() {
    let nothing = "`connections_max`: nothing is limited; write a number above 0, or `connections_per_s`";
    refuse("connections_max = 0", nothing);
    refuse("burst = 1", "`burst`: there is no `connections_per_s`; add it");
    refuse("prefix = { v4 = 33 }", "`prefix.v4`: no IPv4 address has 33 bits; write at most 32");
    refuse("udp_s = 0", "`udp_s`: 0 is out of range; write 1 to 2073600 seconds");
    let sides = "`inside_ports`: the host that opens a connection is on no side; leave the lists out, or write `by = \"subscriber\"`";
    refuse("inside_ports = [0]\noutside_ports = [1]", sides);
    refuse("outside_ports = [1]", &sides.replace("inside_ports", "outside_ports"));
}

#[test]
fn who_finds_no_room_passes_uncounted_if_that_is_wanted() {
    let mut bench = bench("connections_max = 1\nowners_max = 4\nwhen_full = 'pass'");
    let hosts: Vec<String> = (1..=20).map(|host| format!("10.0.0.{host}")).collect();
    for host in &hosts {
        assert_eq!(open(&mut bench, 0, host, 1), None, "{host}");
    }
    // Counted hosts have a limit, others have none. Uncounted connections go on, and replies to them count for nobody.
    let uncounted = hosts.iter().filter(|host| open(&mut bench, 1, host, 2).is_none()).count() as u64;
    assert!((1..20).contains(&uncounted), "{uncounted}");
    for host in &hosts {
        let answer = bench.send(1, 2, &tcp(SERVER, &format!("{host}:1"), "A"));
        assert_eq!(answer.dropped, None, "{host}");
    }
    assert_eq!(bench.findings().sums().get("connections_not_counted"), Some(&(2 * uncounted)));
}
