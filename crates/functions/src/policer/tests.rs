//! Addresses held to their rate, whoever sends, and even if buckets are forgotten meanwhile.

use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

use super::*;
use crate::find;

fn bench(sets: usize, config: &str) -> Bench {
    let build = find("policer").unwrap().build;
    Bench::with_sets(2, sets, |builder| build("police", config.parse().unwrap(), builder, 2).unwrap())
}

fn to(address: &str, len: usize) -> Vec<u8> {
    let (from, to) = if address.contains(':') {
        ("[2001:db8::f]:1".to_owned(), format!("[{address}]:2"))
    } else {
        ("10.9.9.9:1".to_owned(), format!("{address}:2"))
    };
    Frame::udp(&from, &to).len(len).bytes()
}

const KILOBYTE: &str = "bytes_per_s = 1000\nburst_bytes = 1000\n";

#[test]
fn a_destination_is_held_to_its_rate_whoever_sends() {
    let mut bench = bench(10, KILOBYTE);
    let from = |port: u16| Frame::tcp(&format!("10.9.9.9:{port}"), "10.0.0.1:80").len(500).bytes();
    assert_eq!(bench.send(1, 0, &from(1)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &from(2)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &from(3)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(1, 499, &from(3)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(1, 500, &from(3)).ports(), [0]);
    assert_eq!(bench.send(1, 500, &to("10.0.0.2", 1000)).ports(), [0]);
    assert_eq!(bench.send(1, 500, &to("2001:db8::1", 1000)).ports(), [0]);
    assert_eq!(bench.send(1, 500, &to("2001:db8::1", 100)).dropped, Some("rate_exceeded"));
}

#[test]
fn a_packet_larger_than_the_burst_is_dropped_first_or_later_and_costs_nothing() {
    let mut bench = bench(10, KILOBYTE);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1001)).dropped, Some("larger_than_burst"));
    assert_eq!(bench.counters().sets_created, 0);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 600)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1001)).dropped, Some("larger_than_burst"));
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 400)).ports(), [0]);
}

#[test]
fn only_one_direction_is_policed_if_asked() {
    let mut bench = bench(10, &format!("{KILOBYTE}from_port = 1"));
    for _ in 0..3 {
        assert_eq!(bench.send(0, 0, &to("10.0.0.1", 900)).ports(), [1]);
    }
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 900)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 900)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(0, 0, &to("10.0.0.1", 1100)).ports(), [1]);
}

#[test]
fn a_full_table_lets_no_new_destination_pass_until_an_old_one_is_forgotten() {
    let mut bench = bench(1, KILOBYTE);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 100)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 100)).dropped, Some("set_table_full"));
    bench.send(1, 1002, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    assert_eq!(bench.counters().sets_expired, 1);
    assert_eq!(bench.send(1, 1003, &to("10.0.0.2", 100)).ports(), [0]);
}

#[test]
fn what_is_not_ip_passes_and_tags_change_nothing() {
    let mut bench = bench(10, KILOBYTE);
    for _ in 0..20 {
        assert_eq!(bench.send(1, 0, &Frame::arp("10.0.0.1", "10.0.0.2").bytes()).ports(), [0]);
    }
    let tagged = Frame::udp("10.9.9.9:1", "10.0.0.1:2").vlan(3).len(1000).bytes();
    assert_eq!(bench.send(1, 0, &tagged).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 100)).dropped, Some("rate_exceeded"));
    // What says that it is IP, and is not, evades nothing.
    assert_eq!(bench.send(1, 0, &tagged[..30]).dropped, Some("malformed"));
}

/// The type of service of an IPv4 frame without VLAN tags.
fn tos(frame: &[u8]) -> u8 {
    frame[15]
}

#[test]
fn two_rates_three_colours_are_marked_and_the_checksum_stays_right() {
    let config = "meter = 'trtcm'\nbytes_per_s = 1000\nburst_bytes = 1000\npeak_per_s = 2000\npeak_burst = 2000
        [dscp]\ngreen = 10\nyellow = 12";
    let mut bench = bench(10, config);
    let mut mark = || {
        let outcome = bench.send(1, 0, &to("10.0.0.1", 1000));
        outcome.sent.first().map(|(_, frame)| {
            braid_testkit::assert_checksums(frame);
            tos(frame) >> 2
        })
    };
    assert_eq!([mark(), mark(), mark()], [Some(10), Some(12), None]);
    let v6 = bench.send(1, 0, &to("2001:db8::1", 1000)).sent;
    assert_eq!(u16::from_be_bytes([v6[0].1[14], v6[0].1[15]]) >> 6 & 63, 10);
}

#[test]
fn red_packets_pass_marked_if_they_have_a_mark_and_ecn_stays() {
    let mut bench = bench(10, "bytes_per_s = 1000\nburst_bytes = 500\n[dscp]\nred = 14");
    let mut frame = to("10.0.0.1", 501);
    frame[15] = 0b11;
    frame[24..26].fill(0);
    let sum = braid_nf::packet::checksum::ipv4_header(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    for _ in 0..2 {
        let outcome = bench.send(1, 0, &frame);
        let (_, sent) = outcome.only();
        braid_testkit::assert_checksums(sent);
        assert_eq!(tos(sent), 14 << 2 | 0b11);
    }
}

#[test]
fn an_aware_meter_keeps_what_was_marked_upstream() {
    let config = "meter = 'srtcm'\nbytes_per_s = 1000\nburst_bytes = 1000\nexcess_burst = 1000\ncolour_aware = true";
    let mut bench = bench(10, config);
    let marked = |dscp: u8| {
        let mut frame = to("10.0.0.1", 1000);
        frame[15] = dscp << 2;
        frame
    };
    assert_eq!(bench.send(1, 0, &marked(14)).dropped, Some("rate_exceeded"), "red stays red");
    assert_eq!(bench.send(1, 0, &marked(12)).ports(), [0], "yellow takes from the excess burst");
    assert_eq!(bench.send(1, 0, &marked(12)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(1, 0, &marked(0)).ports(), [0], "the committed burst is untouched");
}

#[test]
fn sources_are_policed_if_asked_and_packets_counted() {
    let mut bench = bench(10, "by = 'source'\npackets_per_s = 10\nburst_packets = 2");
    let from = |host: u8| Frame::udp(&format!("10.0.0.{host}:1"), "192.0.2.1:2").len(1400).bytes();
    let passed = |bench: &mut Bench, ms| (0..5).filter(|_| bench.send(0, ms, &from(1)).dropped.is_none()).count();
    assert_eq!([passed(&mut bench, 0), passed(&mut bench, 99), passed(&mut bench, 100)], [2, 0, 1]);
    assert_eq!(bench.send(0, 100, &from(2)).ports(), [1]);
}

#[test]
fn addresses_of_a_range_share_its_rate() {
    let config = format!("{KILOBYTE}[prefix]\nv4 = 24\nv6 = 64\ncapacity = 2");
    let mut bench = bench(10, &config);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 600)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 600)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 400)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("2001:db8::1", 600)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("2001:db8::2", 600)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(1, 0, &to("10.0.1.1", 600)).dropped, Some("table_full"));
    assert_eq!(bench.send(1, 600, &to("10.0.0.9", 600)).ports(), [0]);
    bench.send(1, 3000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    assert_eq!(bench.send(1, 3000, &to("10.0.1.1", 600)).ports(), [0], "full buckets are forgotten");
}

#[test]
fn a_link_holds_all_addresses_together_and_charges_nobody_for_what_it_refuses() {
    let config = format!("{KILOBYTE}link = {{ per_s = 1500, burst = 1500 }}");
    let mut bench = bench(10, &config);
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1000)).ports(), [0]);
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 1000)).dropped, Some("link_exceeded"));
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 500)).ports(), [0]);
    assert_eq!(bench.send(1, 500, &to("10.0.0.2", 750)).ports(), [0], "it still has what the link refused");
    assert_eq!(bench.send(1, 1000, &to("10.0.0.1", 1001)).dropped, Some("larger_than_burst"));
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    let made = crate::parse::<Config>(config.parse().unwrap()).and_then(|config| {
        config.link_limit()?;
        config.meter()
    });
    assert_eq!(made.unwrap_err().to_string(), expected);
}

#[test]
fn impossible_meters_are_refused() {
    refuse(
        "bytes_per_s = '10mbps'",
        "`bytes_per_s`: invalid value: string \"10mbps\"; write a number of bytes a second, or \"10mbit\", \"1.25MB/s\"",
    );
    refuse(
        "burst_bytes = '15k'",
        "`burst_bytes`: invalid value: string \"15k\"; write a number of bytes, or \"15kB\", \"15KiB\"",
    );
    refuse(
        "packets_per_s = 5\nlink = { per_s = '1mbit', burst = 9 }",
        "`link.per_s`: packets are counted, and this is of bytes; write a number of packets",
    );
    refuse(
        "packets_per_s = 5\nlink = { bytes_per_s = 9, burst = 9 }",
        "`link.bytes_per_s`: packets are counted, and this is of bytes; write `per_s = …`, a number of packets",
    );
    refuse("link = { bytes_per_s = 9 }", "`link.burst`: missing; write `burst = …` there");
    refuse(
        "link = { burst = 9, burst_bytes = 9, per_s = 9 }",
        "`link.burst`: two keys there mean `burst`; keep one of them",
    );
    refuse("meter = 'srtcm'", "`excess_burst`: missing for `srtcm`; add it");
    refuse("peak_per_s = 5", "`peak_per_s`: the meter `single` has none; leave it out, or choose another `meter`");
    refuse(
        "meter = 'trtcm'\nbytes_per_s = 5\nburst_bytes = 5\npeak_per_s = 4\npeak_burst = 9",
        "`peak_per_s`: 4 is below the committed rate of 5; write at least that (RFC 2698 section 2)",
    );
    refuse(
        "[dscp]\nred = 64",
        "`dscp.red`: `64` is no code point; write 0 to 63 or a name such as \"af11\", \"ef\", \"cs1\"",
    );
    refuse(
        "[dscp]\nyellow = 12",
        "`dscp.yellow`: the meter `single` makes no packet yellow; leave it out, or choose another `meter`, or colour_aware = true",
    );
    refuse(
        "drop = 'yellow'",
        "`drop`: the meter `single` makes no packet yellow; leave it out, or choose another `meter`, or colour_aware = true",
    );
    refuse(
        "colour_aware = true\ndrop = 'yellow'\n[dscp]\nred = 12",
        "`drop`: yellow and red packets are dropped, so nothing is written into them; leave it out, or `yellow` and `red` of `dscp`",
    );
    refuse("burst_packets = 5", "`burst_packets`: there is no `packets_per_s`; add it");
}

#[test]
fn a_burst_that_no_packet_fits_is_refused() {
    let none = |key: &str, burst: u64, least: u64, full: u64| {
        format!(
            "`{key}`: every packet is longer than a burst of {burst}, so none would pass; \
             write at least {least}, and {full} for full frames of Ethernet"
        )
    };
    refuse("bytes_per_s = 100\nburst_bytes = 19", &none("burst_bytes", 19, 20, 1514));
    refuse("bytes_of = 'line'\nburst_bytes = 83", &none("burst_bytes", 83, 84, 1538));
    refuse("link = { per_s = 100, burst = 9 }\noverhead = 4", &none("link.burst", 9, 24, 1518));
    let two = "meter = 'trtcm'\nbytes_per_s = 100\nburst_bytes = 1\npeak_per_s = 100\npeak_burst = 9";
    refuse(two, &none("peak_burst", 9, 20, 1514));
    for config in [
        "packets_per_s = 100\nburst_packets = 1\nlink = { per_s = 100, burst = 1 }",
        "bytes_per_s = 100\nburst_bytes = 1\ndscp = { red = 'cs1' }",
        "bytes_per_s = 100\nburst_bytes = 20",
    ] {
        bench(1, config);
    }
}

#[test]
fn a_port_that_the_plan_has_not_is_refused() {
    let config = Config { from_port: Some(2), ..Config::default() };
    let error = config.checked_port(2).unwrap_err();
    assert_eq!(error.to_string(), "`from_port`: the plan has no port 2; write a number from 0 to 1");
}

/// That in no stretch of time more has passed, of packets with their times and lengths, than burst + rate × time.
fn check_bound(passed: &[(u64, u64)], (rate, burst): (u64, u64)) -> Result<(), TestCaseError> {
    for first in 0..passed.len() {
        let mut sum = 0;
        for (at, len) in &passed[first..] {
            sum += len;
            let most = u128::from(burst) * 1_000_000_000 + u128::from(rate) * u128::from(at - passed[first].0);
            prop_assert!(u128::from(sum) * 1_000_000_000 <= most);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Any arrival pattern, also across forgotten buckets: never more than burst + rate × time to one address.
    #[test]
    fn the_bound_holds_over_every_stretch(
        rate in 1_000u64..1_000_000,
        burst in 100u64..2_000,
        packets in prop::collection::vec((0u64..3, 0u64..700_000_000, 60usize..1500), 1..120),
    ) {
        let mut bench = bench(10, &format!("bytes_per_s = {rate}\nburst_bytes = {burst}"));
        let (mut now, mut passed) = (0u64, Vec::new());
        for (kind, gap, len) in packets {
            now += [0, gap / 1000, gap][kind as usize];
            if bench.send_at(1, now, &to("10.0.0.1", len)).dropped.is_none() {
                passed.push((now, len as u64));
            }
        }
        check_bound(&passed, (rate, burst))?;
    }

    /// However many addresses send, and whatever passes marked: never more than the link's burst + rate × time.
    #[test]
    fn the_link_carries_no_more_than_its_limit_whatever_is_marked(
        rate in 1_000u64..1_000_000,
        burst in 100u64..2_000,
        meter in prop::sample::select(vec!["", "meter = 'srtcm'\nexcess_burst = 500", "prefix = { v4 = 24 }"]),
        packets in prop::collection::vec((0u64..3, 0u64..700_000_000, 60usize..1500, 0u8..3), 1..120),
    ) {
        let config = format!(
            "bytes_per_s = 1000\nburst_bytes = 400\n{meter}\ndscp = {{ red = 14 }}\nlink = {{ per_s = {rate}, burst = {burst} }}"
        );
        let mut bench = bench(10, &config);
        let (mut now, mut passed) = (0u64, Vec::new());
        for (kind, gap, len, host) in packets {
            now += [0, gap / 1000, gap][kind as usize];
            if bench.send_at(1, now, &to(&format!("10.0.0.{host}"), len)).dropped.is_none() {
                passed.push((now, len as u64));
            }
        }
        check_bound(&passed, (rate, burst))?;
    }
}

/// The same meter, written with units and without.
#[test]
fn rates_and_bursts_have_units() {
    let read = |text: &str| crate::config::parse::<Config>(text.parse().unwrap()).unwrap();
    let plain =
        "bytes_per_s = 1_250_000\nburst_bytes = 15_000\nmeter = 'trtcm'\npeak_per_s = 2_500_000\npeak_burst = 30_720
        link = { per_s = 125_000_000, burst = 1_500_000 }\ndscp = { green = 10, red = 46 }";
    let units =
        "bytes_per_s = '10mbit'\nburst_bytes = '15kB'\nmeter = 'trtcm'\npeak_per_s = '2.5MB/s'\npeak_burst = '30KiB'
        link = { bytes_per_s = '1gbit', burst_bytes = '1.5MB' }\ndscp = { green = 'af11', red = 'ef' }";
    let (plain, units) = (read(plain), read(units));
    assert_eq!(units.meter().unwrap(), plain.meter().unwrap());
    assert_eq!((units.bytes_per_s, units.burst_bytes, units.dscp), (plain.bytes_per_s, plain.burst_bytes, plain.dscp));
    let link = |config: &Config| config.link_limit().unwrap();
    assert_eq!(link(&units), link(&plain));
}

/// How many frames pass at once with this burst.
fn passed(more: &str, burst: usize, frame: &[u8]) -> usize {
    let mut bench = bench(10, &format!("bytes_per_s = 1000\nburst_bytes = {burst}\n{more}"));
    (0..50).filter(|_| bench.send(1, 0, frame).dropped.is_none()).count()
}

#[test]
fn bytes_are_those_of_the_frame_the_packet_or_the_line() {
    let counts: [(&str, usize); 6] = [
        ("", 100),
        ("bytes_of = 'ip'", 86),
        ("bytes_of = 'line'", 124),
        ("overhead = 8", 108),
        ("bytes_of = 'ip'\noverhead = -6", 80),
        ("bytes_of = 'line'\noverhead = 4\ncolour_aware = true", 128),
    ];
    for (more, cost) in counts {
        for host in ["10.0.0.1", "2001:db8::1"] {
            assert_eq!(passed(more, 10 * cost, &to(host, 100)), 10, "{more}");
            assert_eq!(passed(more, 10 * cost - 1, &to(host, 100)), 9, "{more}");
        }
    }
    // A VLAN tag belongs to the frame, not to the packet.
    let tagged = Frame::udp("10.9.9.9:1", "10.0.0.1:2").vlan(3).len(104).bytes();
    assert_eq!([passed("bytes_of = 'ip'", 860, &tagged), passed("", 1040, &tagged)], [10, 10]);
}

#[test]
fn what_fills_a_short_frame_is_none_of_the_packet_but_the_line_carries_it() {
    let mut short = Frame::udp("10.9.9.9:1", "10.0.0.1:2").bytes();
    assert_eq!(short.len(), 42);
    assert_eq!(passed("bytes_of = 'line'", 840, &short), 10, "a driver fills it up");
    short.resize(60, 0);
    assert_eq!([passed("bytes_of = 'ip'", 280, &short), passed("bytes_of = 'line'", 840, &short)], [10, 10]);
    // The header's total length is not trusted if it declares most of a long frame to be padding.
    let mut liar = to("10.0.0.1", 500);
    liar[16..18].copy_from_slice(&28u16.to_be_bytes());
    assert_eq!(passed("bytes_of = 'ip'", 4860, &liar), 10);
}

#[test]
fn a_rate_of_packets_has_no_bytes() {
    for more in ["overhead = 4", "bytes_of = 'ip'"] {
        let key = more.split(' ').next().unwrap();
        let expected = format!("`{key}`: packets are counted, and no bytes of them; leave it out");
        crate::parts::testing::refuse::refuse("policer", &format!("packets_per_s = 10\n{more}"), &expected);
    }
}

#[test]
fn ranges_of_other_lengths_begin_full_and_one_that_was_there_keeps_its_credit() {
    let with = |bits: u8, burst: u32| {
        let text = format!("bytes_per_s = 1000\nburst_bytes = {burst}\nprefix = {{ v4 = {bits} }}");
        let build = find("policer").unwrap().build;
        move |builder: &mut StateBuilder| build("police", text.parse().unwrap(), builder, 2).unwrap()
    };
    let mut bench = Bench::with_sets(2, 10, with(24, 1000));
    assert_eq!(bench.send(1, 0, &to("10.0.0.1", 1000)).ports(), [0]);
    let mut bench = bench.succeeded(with(16, 800));
    assert_eq!(bench.send(1, 0, &to("10.0.9.9", 100)).dropped, Some("rate_exceeded"));
    assert_eq!(bench.send(1, 100, &to("10.0.9.9", 100)).ports(), [0]);
    assert_eq!(bench.send(1, 100, &to("10.1.0.1", 801)).dropped, Some("larger_than_burst"));
    assert_eq!(bench.send(1, 100, &to("10.1.0.1", 800)).ports(), [0]);
}

fn counts_of(bench: Bench) -> Vec<String> {
    let findings = bench.findings();
    let mut counts: Vec<_> =
        findings.list().iter().map(|found| format!("{} {}", found.subject, found.detail)).collect();
    counts.sort_unstable();
    counts
}

#[test]
fn what_got_which_colour_is_counted() {
    let marks = "dscp = { green = 'af11', yellow = 'af12', red = 'af13' }";
    let mut bench = bench(
        10,
        &format!(
            "{KILOBYTE}meter = 'srtcm'\nexcess_burst = 500\n{marks}\nlink = {{ per_s = 1000, burst = 2000 }}\ncounts = true"
        ),
    );
    for len in [600, 400, 500, 300] {
        assert_eq!(bench.send(1, 0, &to("10.0.0.1", len)).ports(), [0]);
    }
    assert_eq!(bench.send(1, 0, &to("10.0.0.2", 900)).dropped, Some("link_exceeded"));
    let expected =
        ["green 2 times, 1000 bytes", "link_exceeded once, 900 bytes", "red once, 300 bytes", "yellow once, 500 bytes"];
    assert_eq!(counts_of(bench), expected);
}

#[test]
fn a_plain_policer_counts_what_it_drops_and_a_silent_one_nothing() {
    let mut plain = bench(10, &format!("{KILOBYTE}counts = true"));
    for (len, expected) in [(800, None), (300, Some("rate_exceeded")), (1001, Some("larger_than_burst"))] {
        assert_eq!(plain.send(1, 0, &to("10.0.0.1", len)).dropped, expected);
    }
    // Such a packet alone makes no entry, and is counted.
    assert_eq!(plain.send(1, 0, &to("10.0.0.2", 1001)).dropped, Some("larger_than_burst"));
    assert_eq!(counts_of(plain), ["green once, 800 bytes", "red 3 times, 2302 bytes"]);
    let mut silent = bench(10, KILOBYTE);
    assert_eq!(silent.send(1, 0, &to("10.0.0.1", 800)).dropped, None);
    assert!(counts_of(silent).is_empty());
}
