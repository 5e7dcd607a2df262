//! Tests of when packets leave, in which order, and which do not.

use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::*;
use crate::find;
use crate::parts::NS_PER_MS;

fn bench(config: &str) -> Bench {
    let build = find("shaper").unwrap().build;
    Bench::with_sets(2, 10, |builder| build("shape", config.parse().unwrap(), builder, 2).unwrap())
}

/// A frame of `len` bytes to a host, with a number in its last byte.
fn to(host: &str, len: usize, number: u8) -> Vec<u8> {
    let to = if host.contains(':') { format!("[{host}]:2") } else { format!("{host}:2") };
    let from = if host.contains(':') { "[2001:db8::f]:1" } else { "10.9.9.9:1" };
    let mut frame = Frame::udp(from, &to).len(len).without_checksum().bytes();
    frame[len - 1] = number;
    frame
}

/// Lets time pass and returns the numbers of the packets that left meanwhile, by port 0.
fn left(bench: &mut Bench, ms: u64) -> Vec<u8> {
    let pulse = Frame::arp("10.0.0.1", "10.0.0.2").bytes();
    let sent = bench.send(1, ms, &pulse).sent;
    sent.iter()
        .filter(|(port, frame)| *port == 0 && frame.len() > 60)
        .map(|(_, frame)| frame[frame.len() - 1])
        .collect()
}

/// A frame to one of the hosts of 10.0.0.0/24.
fn to_host(host: u8, len: usize, number: u8) -> Vec<u8> {
    to(&format!("10.0.0.{host}"), len, number)
}

/// What left, and when: the host, the length and the number of its frame.
type Departures = Vec<(u64, u8, u64, u8)>;

/// Sends numbered packets, each so many milliseconds after the one before, to a host and of a length; then lets time pass in so many steps of
/// so many milliseconds. Returns what left. All that was accepted did, for each host in its order.
pub(super) fn departures(
    bench: &mut Bench,
    packets: Vec<(u64, u8, usize)>,
    frame: impl Fn(u8, usize, u8) -> Vec<u8>,
    (steps, step_ms): (usize, u64),
) -> Departures {
    let (mut now, mut came, mut went) = (0, Vec::new(), Vec::new());
    let mut note = |now: u64, sent: &[(Port, Vec<u8>)]| {
        let frames = sent.iter().filter(|(_, frame)| frame[12..14] == [8, 0]);
        went.extend(frames.map(|(_, frame)| (now, frame[33], frame.len() as u64, frame[frame.len() - 1])));
    };
    for (n, (gap, host, len)) in packets.into_iter().enumerate() {
        now += gap;
        let outcome = bench.send(1, now, &frame(host, len, n as u8));
        if matches!(outcome.dropped, None | Some("waits_for_credit")) {
            came.push((host, n as u8));
        }
        note(now, &outcome.sent);
    }
    for _ in 0..steps {
        now += step_ms;
        note(now, &bench.send(1, now, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).sent);
    }
    let mut by_host: Vec<(u8, u8)> = went.iter().map(|(_, host, _, n)| (*host, *n)).collect();
    // Stable sorts keep the order within a host.
    by_host.sort_by_key(|(host, _)| *host);
    came.sort_by_key(|(host, _)| *host);
    assert_eq!(came, by_host);
    went
}

/// A thousand bytes a second with a burst of a thousand: one packet of 500 bytes in half a second.
const SLOW: &str = "bytes_per_s = 1000\nburst_bytes = 1000\nqueue_bytes = 3000\n";

#[test]
fn packets_wait_for_credit_and_leave_in_order() {
    let mut bench = bench(SLOW);
    let outcomes: Vec<_> = (1..=4).map(|n| bench.send(1, 0, &to("10.0.0.1", 500, n)).dropped).collect();
    assert_eq!(outcomes, [None, None, Some("waits_for_credit"), Some("waits_for_credit")]);
    assert_eq!(left(&mut bench, 499), [0; 0]);
    assert_eq!(left(&mut bench, 503), [3]);
    assert_eq!(bench.send(1, 504, &to("10.0.0.1", 100, 5)).dropped, Some("waits_for_credit"), "behind the fourth");
    assert_eq!(left(&mut bench, 999), [0; 0]);
    assert_eq!(left(&mut bench, 1003), [4]);
    assert_eq!(left(&mut bench, 1103), [5]);
    assert_eq!(bench.send(1, 2200, &to("10.0.0.1", 1000, 6)).ports(), [0], "nothing waits, and there is credit");
}

#[test]
fn addresses_wait_for_themselves_alone() {
    let mut bench = bench(SLOW);
    for n in 1..=2 {
        bench.send(1, 0, &to("10.0.0.1", 1000, n));
    }
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 1000, 3)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("2001:db8::1", 1000, 4)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("2001:db8::1", 500, 5)).dropped, Some("waits_for_credit"));
    assert_eq!(left(&mut bench, 503), [5]);
    assert_eq!(left(&mut bench, 1003), [2]);
}

#[test]
fn queues_are_bounded_in_bytes_and_packets() {
    let mut bytes = bench(SLOW);
    let outcomes: Vec<_> = (1..=6).map(|n| bytes.send(1, 0, &to("10.0.0.1", 1000, n)).dropped).collect();
    let waits = Some("waits_for_credit");
    assert_eq!(outcomes, [None, waits, waits, waits, Some("queue_full"), Some("queue_full")]);
    assert_eq!(bytes.send(1, 1100, &to("10.0.0.1", 1000, 7)).dropped, waits, "there is room again");

    let mut packets = bench(&format!("{SLOW}queue_packets = 2"));
    let outcomes: Vec<_> = (1..=5).map(|n| packets.send(1, 0, &to("10.0.0.1", 500, n)).dropped).collect();
    assert_eq!(outcomes, [None, None, waits, waits, Some("no_room_to_wait")]);
    assert_eq!(left(&mut packets, 503), [3]);
    assert_eq!(packets.send(1, 504, &to("10.0.0.1", 500, 6)).dropped, waits);
}

#[test]
fn the_link_holds_all_addresses_together() {
    let mut bench = bench("bytes_per_s = 10000\nlink = { bytes_per_s = 1000, burst_bytes = 1000 }");
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1000, 1)).ports(), [0]);
    for (host, n) in [("10.0.0.2", 2), ("10.0.0.3", 3), ("10.0.0.1", 4)] {
        assert_eq!(bench.send(1, 0, &to(host, 500, n)).dropped, Some("waits_for_credit"));
    }
    assert_eq!(left(&mut bench, 499), [0; 0]);
    assert_eq!(left(&mut bench, 503), [2]);
    assert_eq!(left(&mut bench, 1502), [3, 4], "in the order in which they came");
}

#[test]
fn what_cannot_be_shaped_is_dropped_and_what_need_not_passes() {
    let mut bench = bench(&format!("{SLOW}from_port = 1"));
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1001, 1)).dropped, Some("larger_than_burst"));
    for _ in 0..5 {
        assert_eq!(bench.send(0, 0, &to("10.0.0.1", 1000, 1)).ports(), [1], "the other direction");
        assert_eq!(bench.send(1, 0, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).ports(), [0]);
    }
    let tagged = Frame::udp("10.9.9.9:1", "10.0.0.1:2").vlan(3).len(600).bytes();
    assert_eq!(bench.send(1, 0, &tagged).ports(), [0]);
    assert_eq!(bench.send(1, 0, &tagged).dropped, Some("waits_for_credit"));
    let sent = bench.send(1, 300, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).sent;
    assert!(sent.contains(&(0, tagged)), "with its tag");
}

#[test]
fn long_frames_cannot_wait() {
    let mut bench = bench("bytes_per_s = 2000\nburst_bytes = 2000\nqueue_bytes = 9000");
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1600, 1)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1529, 1)).dropped, Some("too_long_to_wait"));
    let full = Frame::udp("10.9.9.9:1", "10.0.0.1:2").vlan(3).vlan(4).len(1522).bytes();
    assert_eq!(bench.send(1, 0, &full).dropped, Some("waits_for_credit"), "a full frame with two tags");
    let pulse = Frame::arp("10.0.0.1", "10.0.0.2").bytes();
    assert_eq!(bench.send(1, 600, &pulse).sent.iter().filter(|(_, frame)| *frame == full).count(), 1);
}

#[test]
fn the_rate_is_exact_within_a_thousandth() {
    // Twice what is allowed, for ten seconds: 1,000 bytes every half millisecond against a million a second.
    let mut bench = bench("bytes_per_s = 1000000\nburst_bytes = 1000\nqueue_bytes = 50000");
    let mut bytes = 0;
    for n in 0..20_000u64 {
        let sent = bench.send_at(1, n * NS_PER_MS / 2, &to("10.0.0.1", 1000, 0)).sent;
        bytes += sent.iter().map(|(_, frame)| frame.len() as u64).sum::<u64>();
    }
    // What is due in the last turn has not left yet.
    assert!((9_990_000..=10_001_000).contains(&bytes), "{bytes} bytes in ten seconds");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever arrives, no packet overtakes another to the same address, none is lost, and none leaves before it has credit.
    #[test]
    fn order_stays_and_nothing_leaves_too_early(
        packets in prop::collection::vec((0u64..400, 0u8..3, 60usize..1000), 1..80),
    ) {
        let mut bench = bench("bytes_per_s = 5000\nburst_bytes = 1000\nqueue_bytes = 20000");
        let went = departures(&mut bench, packets, to_host, (200, 100));
        for host in 0..3 {
            let mut sum = 0;
            for (at, _, len, _) in went.iter().filter(|(_, to, ..)| *to == host) {
                sum += len;
                prop_assert!(sum <= 1000 + 5 * at, "{sum} bytes by {at} ms");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever arrives, and however long the link lets it wait: packets of an address leave in order, none is lost, and over any
    /// period no address exceeds its rate, nor all together the link.
    #[test]
    fn a_link_breaks_neither_order_nor_the_rate_of_an_address(
        packets in prop::collection::vec((0u64..4, 0u8..6, 60usize..1500), 1..200),
    ) {
        let config = "bytes_per_s = 300000\nburst_bytes = 2000\nqueue_bytes = 30000
            link = { bytes_per_s = 500000, burst_bytes = 3000 }";
        let went = departures(&mut bench(config), packets, to_host, (900, 1));
        // A tick sends what was due since the last one, which is at most as long ago as the bench's steps, and turns are longer.
        let late = 6;
        for (first, (from, ..)) in went.iter().enumerate() {
            let mut all = [0; 7];
            for (at, host, len, _) in &went[first..] {
                all[6] += len;
                all[usize::from(*host)] += len;
                let ms = at - from + late;
                prop_assert!(all[6] <= 3000 + 500 * ms, "{} of the link in {ms} ms", all[6]);
                let own = all[usize::from(*host)];
                prop_assert!(own <= 2000 + 300 * ms, "{own} to {host} in {ms} ms");
            }
        }
    }
}

#[test]
fn addresses_of_which_packets_wait_for_the_link_are_bounded() {
    let mut bench = bench("addresses_max = 2\nlink = { bytes_per_s = 1000, burst_bytes = 2000 }");
    let outcomes: Vec<_> =
        (1..=4).map(|host| bench.send(1, 0, &to(&format!("10.0.0.{host}"), 1500, host)).dropped).collect();
    assert_eq!(outcomes, [None, Some("waits_for_credit"), Some("waits_for_credit"), Some("address_table_full")]);
    assert_eq!(left(&mut bench, 1003), [2]);
    assert_eq!(left(&mut bench, 2503), [3]);
    // The second address, of which nothing waits any more, gives its place to another.
    assert_eq!(bench.send(1, 4100, &to("10.0.0.2", 100, 5)).ports(), [0]);
    assert_eq!(bench.send(1, 4100, &to("10.0.0.4", 1510, 6)).dropped, Some("waits_for_credit"));
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    crate::parts::testing::refuse::refuse("shaper", config, expected);
}

#[test]
fn impossible_values_are_refused() {
    refuse("bytes_per_s = 0", "`bytes_per_s`: a rate of 0 lets nothing pass; write a number of at least 1");
    refuse("from_port = 2", "`from_port`: the plan has no port 2; write a number from 0 to 1");
    let long =
        "`queue_bytes`: at 1000 a second a queue of 20000 bytes takes longer than seven seconds; write at most 7516";
    refuse("bytes_per_s = 1000\nqueue_bytes = 20000", long);
    let none = "every packet is longer than a burst of 9, so none would pass; write at least 20, and 1514 for full";
    refuse(
        "addresses_max = 9",
        "`addresses_max`: without a link each address waits for itself, and has no place in a table; give `link`, or leave it out",
    );
    for (config, key) in [
        ("bytes_per_s = 100\nburst_bytes = 9", "burst_bytes"),
        ("link = { bytes_per_s = 100, burst_bytes = 9 }", "link.burst_bytes"),
    ] {
        refuse(config, &format!("`{key}`: {none} frames of Ethernet"));
    }
    let groups = "ceil_bytes_per_s = 20000000\nlink = { bytes_per_s = 30000000, burst_bytes = 100000 }\n\
                  group = [{ prefixes = '10.0.0.0/8', total = { bytes_per_s = 1000 } }, \
                           { prefixes = ['10.1.0.0/16', '10.0.0.1/8'], each = { bytes_per_s = 1000 } }]";
    let twice =
        "`group[1].prefixes`: 10.0.0.0/8 stands there twice; write it once, in one group with `total` and `each`";
    refuse(groups, twice);
}

#[test]
fn bytes_are_counted_as_configured() {
    // 244 bytes of a frame, and 256 bytes of overhead added further on.
    let mut bench = bench(&format!("{SLOW}overhead = 256"));
    let outcomes: Vec<_> = (1..=3).map(|n| bench.send(1, 0, &to("10.0.0.1", 244, n)).dropped).collect();
    assert_eq!(outcomes, [None, None, Some("waits_for_credit")]);
    assert_eq!(left(&mut bench, 499), [0; 0]);
    assert_eq!(left(&mut bench, 503), [3]);
}

/// The congestion bits with which three packets leave, of which the third waits for half a second.
fn bits(config: &str, tos: u8, to: &str) -> Vec<u8> {
    let mut bench = bench(config);
    let from = if to.contains('[') { "[2001:db8::f]:1" } else { "10.9.9.9:1" };
    let frame = Frame::udp(from, to).tos(tos).len(500).bytes();
    let mut sent = Vec::new();
    for _ in 0..3 {
        sent.extend(bench.send(1, 0, &frame).sent);
    }
    sent.extend(bench.send(1, 520, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).sent);
    let of = |(_, frame): &(u16, Vec<u8>)| {
        braid_testkit::assert_checksums(frame);
        if frame[12] == 8 { frame[15] & 3 } else { frame[15] >> 4 & 3 }
    };
    sent.iter().filter(|(_, frame)| frame.len() == 500).map(of).collect()
}

#[test]
fn who_waits_too_long_is_marked_if_its_ends_take_part() {
    let borrowing =
        "bytes_per_s = 1000\nburst_bytes = 1528\nceil_bytes_per_s = 1000\nceil_burst_bytes = 1530\nqueue_bytes = 3000
        link = { bytes_per_s = 1000000, burst_bytes = 10000 }\n";
    for to in ["10.0.0.1:2", "[2001:db8::1]:2"] {
        assert_eq!(bits(&format!("{SLOW}ecn_ms = 400"), 1, to), [1, 1, 3]);
        assert_eq!(bits(&format!("{SLOW}ecn_ms = 400"), 2, to), [2, 2, 3]);
        assert_eq!(bits(&format!("{SLOW}ecn_ms = 600"), 2, to), [2, 2, 2], "it does not wait for that long");
        assert_eq!(bits(&format!("{SLOW}ecn_ms = 400"), 0, to), [0, 0, 0], "its ends do not take part");
        assert_eq!(bits(SLOW, 2, to), [2, 2, 2]);
    }
    let mut waiting = bench(&format!("{borrowing}ecn_ms = 100"));
    let frame = Frame::udp("10.9.9.9:1", "10.0.0.1:2").tos(1).len(500).bytes();
    let dropped: Vec<_> = (0..4).map(|_| waiting.send(1, 0, &frame).dropped).collect();
    assert_eq!(dropped, [None, None, None, Some("waits_for_credit")]);
    let sent = waiting.send(1, 600, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).sent;
    assert!(sent.iter().any(|(_, frame)| frame.len() == 500 && frame[15] == 3));
}

#[test]
fn the_report_says_how_many_were_marked() {
    let mut bench = bench(&format!("{SLOW}ecn_ms = 100"));
    let frame = Frame::udp("10.9.9.9:1", "10.0.0.1:2").tos(1).len(500).bytes();
    for _ in 0..5 {
        bench.send(1, 0, &frame);
    }
    // The third one leaves after half a second; what still waits leaves when the run ends, and then nothing waits.
    bench.send(1, 520, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let told = bench.findings();
    assert_eq!((told.sums()["packets_waiting"], told.sums()["congestion_marked"]), (0, 3));
}

#[test]
fn a_time_to_be_marked_after_is_one_that_packets_can_wait() {
    for (ms, expected) in [(0, "`ecn_ms`: 0 is out of range"), (8000, "`ecn_ms`: 8000 is out of range")] {
        crate::parts::testing::refuse::refuse(
            "shaper",
            &format!("ecn_ms = {ms}"),
            &format!("{expected}; write 1 to 7000 milliseconds"),
        );
    }
}

#[test]
fn a_time_to_be_marked_after_is_none_that_a_queue_cannot_hold() {
    let refuse = |config: &str, expected: &str| crate::parts::testing::refuse::refuse("shaper", config, expected);
    let long = "`ecn_ms`: a full queue of an address takes 100 ms, so nothing waits for 101; write at most 100, or a larger `queue_bytes`";
    refuse("ecn_ms = 101", long);
    let short = "`ecn_ms`: a full queue of an address takes 0 ms, so nothing waits for 1; write a larger `queue_bytes`, or leave it out";
    refuse("queue_bytes = 2000\necn_ms = 1", short);
    for config in ["ecn_ms = 100", "queue_bytes = 2500000\necn_ms = 200"] {
        bench(config);
    }
    // With a link, packets wait longer than their own queue takes.
    bench("ecn_ms = 7000\nlink = { bytes_per_s = 1000, burst_bytes = 2000 }");
}
