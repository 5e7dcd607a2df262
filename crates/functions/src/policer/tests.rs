//! Destinations held to their rate, whoever sends and whatever is forgotten meanwhile.

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
    assert_eq!(bench.send(1, 0, &tagged[..30]).ports(), [0]);
}

#[test]
fn a_port_that_the_plan_has_not_is_refused() {
    let config = Config { from_port: Some(2), ..Config::default() };
    let error = config.checked_port(2).unwrap_err();
    assert_eq!(error.to_string(), "`from_port`: the plan has no port 2; write a number from 0 to 1");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever comes whenever, also across forgotten buckets: never more than burst + rate × time to one address.
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
        for first in 0..passed.len() {
            let mut sum = 0;
            for (at, len) in &passed[first..] {
                sum += len;
                let most = u128::from(burst) * 1_000_000_000 + u128::from(rate) * u128::from(at - passed[first].0);
                prop_assert!(u128::from(sum) * 1_000_000_000 <= most);
            }
        }
    }
}
