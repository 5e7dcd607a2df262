//! Tests of how much of a link each address gets, and that it is never more than allowed.

mod fluid;

use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use crate::find;
use crate::parts::NS_PER_MS;
use crate::shaper::tests::departures;

/// Two megabytes a second for all, half of one for each, and all of it for one that is alone.
const SHARED: &str = "bytes_per_s = 500000\nburst_bytes = 2000\nceil_bytes_per_s = 2000000\nceil_burst_bytes = 6000
    queue_bytes = 60000\nlink = { bytes_per_s = 2000000, burst_bytes = 6000 }\n";

fn bench(config: &str) -> Bench {
    let build = find("shaper").unwrap().build;
    Bench::with_sets(2, 64, |builder| build("shape", config.parse().unwrap(), builder, 2).unwrap())
}

fn to(host: u8, len: usize, number: u8) -> Vec<u8> {
    let mut frame = Frame::udp("10.9.9.9:1", &format!("10.0.0.{host}:2")).len(len).without_checksum().bytes();
    frame[len - 1] = number;
    frame
}

/// The bytes that left for each of four hosts, when each is offered this many thousand bytes a second for this long, in packets
/// of a thousand bytes.
fn shares(config: &str, offered: [u64; 4], lasting_ms: u64) -> [u64; 4] {
    let (mut bench, mut left) = (bench(config), [0; 4]);
    for ms in 0..lasting_ms {
        for (host, thousands) in offered.iter().enumerate() {
            // The packets that have become due in this millisecond, one after another.
            for n in ms * thousands / 1000..(ms + 1) * thousands / 1000 {
                let at = ms * NS_PER_MS + n * 7919 % NS_PER_MS;
                for (_, frame) in
                    bench.send_at(1, ms * NS_PER_MS + at % NS_PER_MS / 1000, &to(host as u8, 1000, 0)).sent
                {
                    left[usize::from(frame[33])] += frame.len() as u64;
                }
            }
        }
    }
    left
}

/// Checks the shares in thousands of bytes a second: the sum within a thousandth, each within a twentieth.
#[track_caller]
fn check(config: &str, offered: [u64; 4], expected: [u64; 4]) {
    const SECONDS: u64 = 2;
    let found = shares(config, offered, SECONDS * 1000);
    let expected = expected.map(|thousands| thousands * 1000 * SECONDS);
    // 7000 for the burst at the beginning, and the next packet at the end.
    let near = |found: u64, expected: u64, part: u64| found.abs_diff(expected) <= expected / part + 7000;
    assert!(near(found.iter().sum(), expected.iter().sum(), 1000), "{found:?}, not {expected:?} together");
    assert!(
        found.iter().zip(expected).all(|(found, expected)| near(*found, expected, 20)),
        "{found:?}, not {expected:?}"
    );
}

#[test]
fn one_alone_has_all_of_the_link() {
    check(SHARED, [3000, 0, 0, 0], [2000, 0, 0, 0]);
}

#[test]
fn those_who_ask_for_more_share_what_others_leave() {
    check(SHARED, [3000, 3000, 100, 0], [950, 950, 100, 0]);
    check(SHARED, [3000, 3000, 3000, 3000], [500, 500, 500, 500]);
    check(SHARED, [3000, 3000, 450, 0], [775, 775, 450, 0]);
    // Each has a higher rate than the link.
    check(&SHARED.replace("500000", "2000000"), [3000, 3000, 0, 3000], [667, 667, 0, 666]);
}

#[test]
fn nobody_goes_above_the_ceiling() {
    let low = SHARED.replace("ceil_bytes_per_s = 2000000", "ceil_bytes_per_s = 800000");
    check(&low, [3000, 0, 0, 0], [800, 0, 0, 0]);
    check(&low, [3000, 3000, 0, 0], [800, 800, 0, 0]);
    check(&low, [3000, 3000, 3000, 0], [667, 667, 666, 0]);
}

#[test]
fn who_is_within_the_rate_goes_before_who_borrows() {
    let mut bench = bench(SHARED);
    for n in 0..20 {
        bench.send(1, 0, &to(1, 1000, n));
    }
    assert_eq!(bench.send(1, 3, &to(2, 1000, 99)).ports().first(), Some(&0), "at once, though others wait");
}

#[test]
fn queues_are_bounded_and_the_reasons_are_told() {
    let mut bench = bench(&format!("{SHARED}queue_packets = 8\naddresses_max = 2"));
    let outcomes: Vec<_> = (0..20).map(|n| bench.send(1, 0, &to(1, 1000, n)).dropped).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_none()).count(), 6);
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Some("waits_for_credit")).count(), 8);
    assert_eq!(outcomes[19], Some("no_room_to_wait"));
    assert_eq!(bench.send(1, 0, &to(1, 2001, 1)).dropped, Some("larger_than_burst"));
    assert_eq!(bench.send(1, 0, &to(1, 1600, 1)).dropped, Some("too_long_to_wait"));
    bench.send(1, 1, &to(2, 1000, 0));
    assert_eq!(bench.send(1, 1, &to(3, 1000, 0)).dropped, Some("address_table_full"));
    let mut bytes = self::bench(&SHARED.replace("queue_bytes = 60000", "queue_bytes = 2000"));
    assert_eq!((0..9).filter_map(|n| bytes.send(1, 0, &to(1, 1000, n)).dropped).last(), Some("queue_full"));
}

#[test]
fn an_address_that_is_forgotten_gives_its_place_to_another() {
    let mut bench = bench(&format!("{SHARED}addresses_max = 1"));
    assert_eq!(bench.send(1, 0, &to(1, 1000, 0)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to(2, 1000, 0)).dropped, Some("address_table_full"));
    bench.send(1, 11_000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    assert_eq!(bench.send(1, 11_001, &to(2, 1000, 0)).ports(), [0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever arrives, all accepted packets of an address leave in order, and over any period no address exceeds its ceiling,
    /// nor all together the link.
    #[test]
    fn order_stays_and_no_bound_is_broken(packets in prop::collection::vec((0u64..6, 0u8..4, 60usize..1500), 1..150)) {
        let mut bench = bench(&SHARED.replace("ceil_bytes_per_s = 2000000", "ceil_bytes_per_s = 900000"));
        let went = departures(&mut bench, packets, to, (400, 1));
        // A late tick sends what was due before; ticks are at most as far apart as the bench's steps.
        let late = 7;
        for (first, (from, ..)) in went.iter().enumerate() {
            let mut all = [0; 5];
            for (at, host, len, _) in &went[first..] {
                all[4] += len;
                all[usize::from(*host)] += len;
                let ms = at - from + late;
                prop_assert!(all[4] <= 6000 + 2000 * ms, "{} of the link in {ms} ms", all[4]);
                prop_assert!(all[usize::from(*host)] <= 6000 + 900 * ms);
            }
        }
    }
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    crate::parts::testing::refuse::refuse("shaper", config, expected);
}

#[test]
fn impossible_values_are_refused() {
    refuse("quantum_bytes = 1", "`quantum_bytes`: nobody borrows; give `ceil_bytes_per_s`");
    refuse("priority = [{ dscp = 46 }]", "`priority`: nobody borrows; give `ceil_bytes_per_s`");
    let with = |more: &str| format!("{SHARED}{more}");
    refuse(
        &with("priority = [{}]"),
        "`priority[0]`: nothing is said about which packets; write `dscp`, `ports` or `addresses`, such as { dscp = 46 }",
    );
    refuse(
        &with("priority = [{ dscp = [46, 48] }, { dscp = 8, ports = 53 }, { dscp = 46 }]"),
        "`priority[2].dscp`: code point 46 is of priority[0] already, which comes first; write it once; what is more special stands in the higher priority",
    );
    refuse(
        &with("priority = [{ ports = [53, 123] }, { dscp = 46, ports = 123 }]"),
        "`priority[1].ports`: port 123 is of priority[0] already, which comes first; write it once; what is more special stands in the higher priority",
    );
    refuse(
        &with("priority = [{ addresses = '10.0.0.0/8' }, { addresses = ['10.2.0.0/16'] }]"),
        "`priority[1].addresses`: 10.2.0.0/16 is of priority[0] already, which comes first; write it once; what is more special stands in the higher priority",
    );
    refuse(
        &with("priority = [{ dscp = 64 }]"),
        "`priority[0].dscp`: `64` is no code point; write 0 to 63 or a name such as \"af11\", \"ef\", \"cs1\"",
    );
    refuse(
        &with("group = [{ prefixes = '10.0.0.0/8', total = { bytes_per_s = 1000000, burst_bytes = 3000 } }]"),
        "`group.total.burst_bytes`: 3000 bytes are less than two ticks' worth and a packet; write at least 3528",
    );
    refuse(
        &with("group = [{ prefixes = '10.0.0.0/8', each = { bytes_per_s = 10, ceil_bytes_per_s = 5 } }]"),
        "`group.each.ceil_bytes_per_s`: 5 is less than `bytes_per_s`; write at least 10",
    );
    refuse(
        &with("group = [{ prefixes = '10.0.0.0/8' }]"),
        "`group[0]`: nothing is said about what its addresses have; write `total`, `each` or both, or leave it out",
    );
    refuse(&with("quantum_bytes = 0"), "`quantum_bytes`: 0 bytes are no turn; write 1514 or more: a whole packet");
    refuse(
        "ceil_bytes_per_s = 20000000",
        "`link`: there is nothing to borrow from; give `link`, such as { bytes_per_s = 12500000, burst_bytes = 50000 }",
    );
    refuse(
        "bytes_per_s = 1000\nceil_bytes_per_s = 10",
        "`ceil_bytes_per_s`: 10 is less than `bytes_per_s`; write at least 1000",
    );
    refuse(
        "bytes_per_s = 1000\nceil_bytes_per_s = 2000\nlink = { bytes_per_s = 5000000, burst_bytes = 10000 }",
        "`link.burst_bytes`: 10000 bytes are less than two ticks' worth and a packet; write at least 11528",
    );
}

/// Two groups with a rate of a megabyte a second; the second may not borrow.
const GROUPED: &str = "group = [
    { prefixes = '10.0.0.0/31', total = { bytes_per_s = 1000000, ceil_bytes_per_s = 2000000, burst_bytes = 6000 } },
    { prefixes = ['10.0.0.2/31', '10.0.0.64/26'], total = { bytes_per_s = 1000000, burst_bytes = 6000 } } ]\n";

fn grouped() -> String {
    format!("{}{GROUPED}", SHARED.replace("500000", "100000"))
}

#[test]
fn addresses_borrow_of_their_group_before_the_link_lends() {
    check(&grouped(), [3000, 0, 3000, 3000], [1000, 0, 500, 500]);
    check(&grouped(), [3000, 3000, 3000, 0], [500, 500, 1000, 0]);
    check(&grouped(), [3000, 3000, 3000, 3000], [500, 500, 500, 500]);
}

#[test]
fn a_group_borrows_of_the_link_up_to_its_ceiling() {
    check(&grouped(), [3000, 3000, 0, 0], [1000, 1000, 0, 0]);
    check(&grouped(), [3000, 3000, 300, 0], [850, 850, 300, 0]);
    check(&grouped(), [0, 0, 3000, 3000], [0, 0, 500, 500]);
}

/// Its two hosts have rates of 600 out of the group's 620, and now and then a packet finds less credit than it costs.
#[test]
fn a_group_pays_what_it_owes_before_it_lends() {
    let tight = "group = [{ prefixes = '10.0.0.0/31',
        total = { bytes_per_s = 620000, ceil_bytes_per_s = 2000000, burst_bytes = 5600 } }]\n";
    let config = format!("{}{tight}", SHARED.replace("500000", "300000"));
    check(&config, [3000, 3000, 3000, 0], [670, 670, 660, 0]);
}

#[test]
fn members_of_a_group_have_terms_of_their_own() {
    let gold = "group = [{ prefixes = '10.0.0.1', each = { bytes_per_s = 1000000, burst_bytes = 4000, ceil_bytes_per_s = 1500000 } },
        { prefixes = '10.0.0.2', each = { bytes_per_s = 100000, burst_bytes = 2000 } }]\n";
    let config = format!("{}{gold}", SHARED.replace("500000", "100000"));
    check(&config, [3000, 3000, 3000, 0], [500, 1400, 100, 0]);
    check(&config, [0, 3000, 3000, 0], [0, 1500, 100, 0]);
}

#[test]
fn a_group_that_is_asked_for_too_much_shares_it_packet_by_packet() {
    let tight = SHARED.to_owned()
        + "group = [{ prefixes = '10.0.0.0/30', total = { bytes_per_s = 900000, burst_bytes = 3500 } }]\n";
    check(&tight, [3000, 3000, 3000, 0], [300, 300, 300, 0]);
    check(&tight, [3000, 0, 0, 0], [900, 0, 0, 0]);
    // Each has a higher rate than the group.
    check(&tight.replace("500000", "1000000"), [3000, 3000, 0, 0], [450, 450, 0, 0]);
}

/// The expedited class and signalling first, then everything of the second pair of hosts.
const RANKED: &str = "priority = [{ dscp = [46, 48], ports = 5060 }, { addresses = '10.0.0.2/31' }]\n";

#[test]
fn who_has_priority_borrows_first() {
    let config = format!("{}{RANKED}", SHARED.replace("500000", "100000"));
    check(&config, [3000, 3000, 3000, 0], [100, 100, 1800, 0]);
    check(&config, [3000, 3000, 700, 700], [300, 300, 700, 700]);
}

#[test]
fn a_packet_of_priority_overtakes_those_of_its_own_address() {
    let slow = SHARED.replace("2000000", "500000").replace("6000", "2600");
    let mut bench = bench(&format!("{slow}{RANKED}"));
    let marked = |number| {
        let mut frame = Frame::udp("10.9.9.9:1", "10.0.0.0:2").tos(46 << 2).len(1000).without_checksum().bytes();
        frame[999] = number;
        frame
    };
    for n in 0..6 {
        bench.send(1, 0, &to(0, 1000, n));
    }
    let mut left = bench.send(1, 1, &marked(100)).sent;
    let mut call = Frame::udp("10.9.9.9:1", "10.0.0.0:5060").len(1000).without_checksum().bytes();
    call[999] = 101;
    left.extend(bench.send(1, 2, &call).sent);
    left.extend((3..20).flat_map(|ms| bench.send(1, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).sent));
    let numbers: Vec<u8> = left.iter().filter(|(_, frame)| frame.len() == 1000).map(|(_, frame)| frame[999]).collect();
    assert_eq!(numbers, [100, 101, 2, 3, 4, 5]);
}

#[test]
fn a_full_queue_of_one_priority_leaves_room_for_another() {
    let mut bench = bench(&format!("{}{RANKED}", SHARED.replace("queue_bytes = 60000", "queue_bytes = 3000")));
    assert_eq!((0..20).filter_map(|n| bench.send(1, 0, &to(0, 1000, n)).dropped).last(), Some("queue_full"));
    let call = Frame::udp("10.9.9.9:5060", "10.0.0.0:2").len(1000).bytes();
    assert_eq!(bench.send(1, 0, &call).dropped, Some("waits_for_credit"));
}

#[test]
fn what_is_added_to_each_packet_is_of_the_link_too() {
    check(&format!("{SHARED}overhead = 250"), [3000, 0, 0, 0], [1600, 0, 0, 0]);
}
