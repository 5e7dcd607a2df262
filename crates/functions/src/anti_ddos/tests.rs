//! When a flood is noticed, which flows are let in, what is counted; and that the README shows the listing unchanged.

use braid_nf::packet::FrameInfo;
use braid_testkit::{Bench, Frame};

use super::*;
use crate::find;
use crate::parts::SECOND;

fn bench(sets: usize, config: &str) -> Bench {
    let build = find("anti_ddos").unwrap().build;
    Bench::with_sets(2, sets, |builder| build("guard", config.parse().unwrap(), builder, 2).unwrap())
}

fn counters(bench: &Bench) -> (i64, i64, i64) {
    let all = Counters::read_from_bytes(&bench.object("guard.counters")).unwrap();
    (all.flows, all.one_packet, all.refused)
}

fn syn(flow: u32) -> Vec<u8> {
    let source = format!("10.{}.{}.{}:1000", flow >> 16 & 255, flow >> 8 & 255, flow & 255);
    Frame::tcp(&source, "192.0.2.1:80").flags("S").bytes()
}

/// Sends `honest` flows of two packets each, then a flood, and checks which packet of the flood is the first to be
/// dropped.
#[track_caller]
fn check(config: &str, honest: u32, expected: u32) {
    let mut bench = bench(10_000, config);
    for flow in 0..honest {
        bench.send(0, 0, &syn(flow));
        bench.send(0, 0, &syn(flow));
    }
    let first = (0..10_000).find(|n| bench.send(0, 0, &syn(100_000 + n)).dropped == Some("attack"));
    assert_eq!(first, Some(expected));
}

#[test]
fn a_flood_is_noticed_when_its_share_passes_the_threshold() {
    // 20 honest flows and n others: n + 1 of 21 + n are more than 80 %.
    check("flows_min = 0", 20, 80);
    check("flows_min = 0\nthreshold = 0.5", 20, 20);
    check("flows_min = 0\nthreshold = 0.95\nstaleness_us = 100", 1, 19);
    check("", 0, 99);
}

#[test]
fn with_the_papers_parameters_the_first_flow_of_all_is_an_attack() {
    check("flows_min = 0", 0, 0);
}

#[test]
fn whoever_sends_again_gets_through() {
    let mut bench = bench(100, "flows_min = 0");
    assert_eq!(bench.send(0, 0, &syn(1)).dropped, Some("attack"));
    assert_eq!(counters(&bench), (1, 1, 1));
    assert_eq!(bench.send(0, 1000, &syn(1)).ports(), [1]);
    assert_eq!(counters(&bench), (1, 0, 1));
    assert_eq!(bench.send(0, 1001, &syn(1)).ports(), [1]);
    assert_eq!(counters(&bench), (1, 0, 1));
}

#[test]
fn expired_flows_are_counted_no_more() {
    let mut bench = bench(100, "idle_timeout_s = 1\naction = 'pass'");
    bench.send(0, 0, &syn(1));
    bench.send(0, 0, &syn(2));
    bench.send(0, 0, &syn(2));
    assert_eq!(counters(&bench), (2, 1, 0));
    bench.send(0, 1001, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    assert_eq!(counters(&bench), (0, 0, 0));
    // A packet that arrives before the scan has visited its expired flow begins a new one.
    bench.send(0, 2000, &syn(3));
    bench.send(0, 4000, &syn(3));
    assert_eq!(counters(&bench), (1, 1, 0));
}

#[test]
fn with_pass_an_attack_is_counted_only() {
    let mut bench = bench(2, "flows_min = 0\naction = 'pass'");
    for flow in 0..5 {
        assert_eq!(bench.send(0, 0, &syn(flow)).ports(), [1]);
    }
    // Of those for which there was no room it is not known whether they had begun before.
    assert_eq!(counters(&bench), (2, 2, 2));
    let told = [("flows that began under attack", 2), ("packets of flows for which there was no room", 3)];
    let findings = bench.findings();
    told.iter().for_each(|(name, count)| assert_eq!(findings.sums().get(*name), Some(count), "{name}"));
}

#[test]
fn with_limit_each_source_may_begin_so_many() {
    let mut bench = bench(100, "flows_min = 0\naction = 'limit'\nflows_per_s = 10\nflows_burst = 2\nsources_max = 2");
    let from = |host: u8, port: u16| Frame::tcp(&format!("10.0.0.{host}:{port}"), "192.0.2.1:80").flags("S").bytes();
    let mut begun = |ms: u64, host: u8| {
        let ports = 1000 + ms as u16 * 10..1004 + ms as u16 * 10;
        ports.filter(|port| bench.send(0, ms, &from(host, *port)).dropped.is_none()).count()
    };
    assert_eq!([begun(0, 1), begun(0, 2), begun(0, 3)], [2, 2, 0], "there is room for two");
    assert_eq!([begun(99, 1), begun(100, 1)], [0, 1]);
    bench.send(0, 5000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    assert_eq!(bench.send(0, 5001, &from(3, 9)).ports(), [1], "rested sources are forgotten");
    assert_eq!(bench.findings().sums()["flows whose source found no room"], 4, "those of the third one");
}

#[test]
fn where_there_is_no_room_for_sources_rested_ones_make_some_at_once() {
    const MOST: u32 = 2000;
    let config = format!("flows_min = 0\naction = 'limit'\nflows_per_s = 10\nflows_burst = 2\nsources_max = {MOST}");
    let mut bench = bench(16_384, &config);
    let mut begun = |second: u64, from: u32| {
        let info = FrameInfo { timestamp_ns: second * SECOND, ..FrameInfo::default() };
        bench.send_batch((from..from + MOST).map(|flow| (info, syn(flow)))).len()
    };
    assert_eq!([begun(0, 0), begun(0, MOST)], [MOST as usize, 0]);
    // A sweep frees some hundred sources; insertion reclaims nearly all others.
    let again = begun(5, 2 * MOST);
    assert!(again > 1800, "{again}");
}

#[test]
fn with_mark_flows_pass_with_another_code_point() {
    let mut bench = bench(100, "flows_min = 0\naction = 'mark'\ndscp = 8");
    let outcome = bench.send(0, 0, &syn(1));
    let (_, sent) = outcome.only();
    braid_testkit::assert_checksums(sent);
    assert_eq!(sent[15], 8 << 2);
    assert_eq!(bench.send(0, 1, &syn(1)).only(), (1, &syn(1)[..]), "who sends again is not marked");
    assert_eq!(bench.findings().sums()["flows that began under attack"], 1);
}

#[track_caller]
fn refuse(config: &str, expected: &str) {
    crate::parts::testing::refuse::refuse("anti_ddos", config, expected);
}

#[test]
fn keys_of_other_actions_are_refused() {
    refuse("flows_per_s = 1", "`flows_per_s`: no source is limited; write `action = \"limit\"`");
    refuse("prefix = { v6 = 64 }", "`prefix`: no source is limited; write `action = \"limit\"`");
    refuse("action = 'limit'\nprefix = { v6 = 129 }", "`prefix.v6`: no IPv6 address has 129 bits; write at most 128");
    refuse("dscp = 1", "`dscp`: nothing is marked; write `action = \"mark\"`");
    refuse("action = 'mark'", "`dscp`: missing for `mark`; write a code point, such as 8");
    refuse("action = 'mark'\ndscp = 64", "`dscp`: 64 is no code point; write 0 to 63");
}

#[test]
fn a_full_table_drops_new_flows() {
    let mut bench = bench(2, "");
    assert_eq!(bench.send(0, 0, &syn(1)).ports(), [1]);
    assert_eq!(bench.send(0, 0, &syn(2)).ports(), [1]);
    assert_eq!(bench.send(0, 0, &syn(3)).dropped, Some("set_table_full"));
    assert_eq!(bench.send(0, 0, &syn(2)).ports(), [1]);
    assert_eq!(counters(&bench), (2, 1, 0));
    let findings = bench.findings();
    assert_eq!(findings.sums().get("packets of flows for which there was no room"), Some(&1));
    assert_eq!(findings.sums().get("flows that began under attack"), None);
}

#[test]
fn only_tcp_is_looked_at() {
    let mut bench = bench(100, "flows_min = 0");
    let others = [
        Frame::udp("10.0.0.1:1", "10.0.0.2:2").bytes(),
        Frame::arp("10.0.0.1", "10.0.0.2").bytes(),
        Frame::echo_request("2001:db8::1", "2001:db8::2", 1, 1).bytes(),
        Frame::ip("10.0.0.1", "10.0.0.2", 6).payload(&[0; 24]).fragment(1, 3, false).bytes(),
        syn(1)[..36].to_vec(),
    ];
    for frame in others {
        assert_eq!(bench.send(0, 0, &frame).only(), (1, &frame[..]));
    }
    assert_eq!(counters(&bench), (0, 0, 0));
    let v6 = Frame::tcp("[2001:db8::1]:1", "[2001:db8::2]:2").flags("S").vlan(3).bytes();
    assert_eq!(bench.send(0, 0, &v6).dropped, Some("attack"));
}

/// The code of `mod.rs` between its markers, without doc comments and attributes; handlers without the indentation of
/// their `impl`.
fn listing() -> String {
    let (mut code, mut within, mut indent) = (String::new(), false, "");
    for line in include_str!("mod.rs").lines() {
        match line.trim_start() {
            marker if marker.starts_with("// listing: ") => {
                within = marker.ends_with("begin");
                indent = line.split("//").next().unwrap();
            }
            text if within && !text.starts_with("///") && !text.starts_with("#[") => {
                code.push_str(line.strip_prefix(indent).unwrap_or(line));
                code.push('\n');
            }
            _ => {}
        }
    }
    code
}

#[test]
fn the_listing_is_no_longer_than_the_papers_and_the_readme_shows_it() {
    let listing = listing();
    let lines = listing.lines().filter(|line| !line.is_empty()).count();
    assert!(lines <= 37, "{lines} lines");
    let readme = include_str!("README.md");
    assert!(readme.contains(&listing), "README.md should show:\n{listing}");
    assert!(readme.contains(&format!("{lines} lines")), "README.md should say {lines} lines");
}

#[test]
fn a_threshold_is_a_share() {
    for threshold in [0.0, 1.0, -1.0, 80.0, f64::NAN] {
        let error = Config { threshold, ..Config::default() }.threshold().unwrap_err();
        assert!(error.to_string().ends_with("is no share; write a number above 0 and below 1, such as 0.2"), "{error}");
    }
}
