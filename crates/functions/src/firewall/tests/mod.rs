//! Firewall tests: one worker, capture time, frames built and decoded by an independent library.

use braid_nf::Instance;
use braid_testkit::{Bench, Frame};
use proptest::prelude::*;

mod amounts;
mod around;
mod arp;
mod chains;
mod classifier;
mod conditions;
mod counts;
mod declared;
mod edits;
mod elsewhere;
mod endings;
mod exits;
mod extensions;
mod files;
mod headers;
mod includes;
mod known;
mod limits;
mod maps;
mod marks;
mod payload;
mod rules;
mod sets;
mod tables;
mod times;
mod transport;
mod untracked;
mod windows;

use super::{Config, Firewall};
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::parts::testing::show;

fn bench(config: &str) -> Bench {
    bench_with(config, 1024)
}

fn bench_with(config: &str, sets: usize) -> Bench {
    let config: Config = parse(config.parse().unwrap()).unwrap();
    Bench::with_sets(2, sets, |builder| {
        let firewall = Firewall::from_config(config, builder.scope("fw"), 2).expect("a configuration that works");
        Box::new(Instance::new("fw", firewall))
    })
}

/// Sends a packet on a port at a given second, and checks that it leaves unchanged by the other port, or why it is
/// dropped.
#[track_caller]
fn check(bench: &mut Bench, port: u16, seconds: u64, frame: Frame, expected: &str) {
    let bytes = frame.bytes();
    let outcome = bench.send(port, seconds * 1000, &bytes);
    match expected {
        "pass" => assert_eq!(outcome.sent, [(port ^ 1, bytes)], "dropped: {:?}", outcome.dropped),
        reason => assert_eq!((outcome.dropped, outcome.sent.len()), (Some(reason), 0)),
    }
}

const HOST: &str = "10.0.0.1:1100";
const SERVER: &str = "192.0.2.9:80";

fn to(flags: &str) -> Frame {
    Frame::tcp(HOST, SERVER).flags(flags)
}

fn back(flags: &str) -> Frame {
    Frame::tcp(SERVER, HOST).flags(flags)
}

/// A firewall with a connection from inside, established at second 0.
fn connected(config: &str) -> Bench {
    let mut fw = bench(config);
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 0, back("SA"), "pass");
    check(&mut fw, 0, 0, to("A"), "pass");
    fw
}

#[test]
fn inside_hosts_may_ask_and_are_answered() {
    let mut fw = bench("");
    check(&mut fw, 1, 0, Frame::udp(SERVER, HOST), "denied");
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER), "pass");
    check(&mut fw, 1, 0, Frame::udp(SERVER, HOST), "pass");
    check(&mut fw, 1, 0, Frame::udp("192.0.2.9:81", HOST), "denied");
    check(&mut fw, 1, 0, Frame::udp("192.0.2.8:80", HOST), "denied");
    check(&mut fw, 0, 0, Frame::udp("[2001:db8::1]:5", "[2001:db8:1::2]:6"), "pass");
    check(&mut fw, 1, 0, Frame::udp("[2001:db8:1::2]:6", "[2001:db8::1]:5"), "pass");
    check(&mut fw, 1, 0, Frame::udp("[2001:db8:1::2]:7", "[2001:db8::1]:5"), "denied");
}

#[test]
fn a_tcp_connection_begins_with_a_syn() {
    let mut fw = bench("");
    check(&mut fw, 0, 0, to("A"), "not_syn");
    check(&mut fw, 0, 0, to("SA"), "not_syn");
    check(&mut fw, 0, 0, to("R"), "not_syn");
    check(&mut fw, 1, 0, back("S"), "denied");
    let mut fw = bench("loose = true");
    check(&mut fw, 0, 0, to("R"), "not_syn");
    check(&mut fw, 0, 0, to("FA"), "not_syn");
    check(&mut fw, 0, 0, to("A"), "pass");
    check(&mut fw, 1, 0, back("A"), "pass");
}

#[test]
fn flags_that_no_tcp_sends_are_dropped() {
    let mut fw = bench("");
    for flags in ["", "SF", "SR", "F", "P", "SAF"] {
        check(&mut fw, 0, 0, to(flags), "invalid_tcp_flags");
    }
    let mut fw = connected("");
    check(&mut fw, 1, 0, back("SF"), "invalid_tcp_flags");
    check(&mut fw, 1, 0, back("PA"), "pass");
}

#[test]
fn addresses_belong_to_the_side_from_which_they_came_first() {
    let mut fw = bench("");
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER), "pass");
    check(&mut fw, 1, 0, Frame::udp(HOST, SERVER), "wrong_side");
    check(&mut fw, 0, 0, Frame::udp(SERVER, HOST), "wrong_side");
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = r#"
        outbound = "deny"
        rules = [
            { action = "deny", source = "10.0.0.66" },
            { action = "allow", direction = "outbound", protocol = "udp", destination_ports = 53 },
            { action = "allow", direction = "inbound", protocol = "tcp", destination = "10.0.0.0/24", destination_ports = "80-90" },
            { action = "allow", protocol = 47 },
        ]"#;
    let mut fw = bench(rules);
    check(&mut fw, 0, 0, Frame::udp("10.0.0.1:5", "192.0.2.9:53"), "pass");
    check(&mut fw, 0, 0, Frame::udp("10.0.0.66:5", "192.0.2.9:53"), "denied");
    check(&mut fw, 0, 0, Frame::udp("10.0.0.1:5", "192.0.2.9:54"), "denied");
    check(&mut fw, 1, 0, Frame::tcp("192.0.2.9:7", "10.0.0.5:90").flags("S"), "pass");
    check(&mut fw, 0, 0, Frame::tcp("10.0.0.5:90", "192.0.2.9:7").flags("SA"), "pass");
    check(&mut fw, 1, 0, Frame::tcp("192.0.2.9:7", "10.0.0.5:91").flags("S"), "denied");
    check(&mut fw, 1, 0, Frame::tcp("192.0.2.9:7", "10.0.1.5:90").flags("S"), "denied");
    check(&mut fw, 0, 0, Frame::tcp("10.0.0.5:7", "10.0.0.6:90").flags("S"), "denied");
    check(&mut fw, 1, 0, Frame::ip("192.0.2.9", "10.0.0.1", 47).payload(&[0; 8]), "pass");
}

#[test]
fn who_is_rejected_is_told() {
    let mut fw = bench("inbound = 'reject'\noutbound = 'reject'");
    let told = |fw: &mut Bench, port, frame: Frame| show::outcome(&fw.send(port, 0, &frame.bytes()));
    assert_eq!(told(&mut fw, 1, back("S")), "1: tcp 10.0.0.1:1100 > 192.0.2.9:80 RA ttl 64, drop rejected");
    assert_eq!(told(&mut fw, 1, back("A")), "1: tcp 10.0.0.1:1100 > 192.0.2.9:80 R ttl 64, drop rejected");
    assert_eq!(told(&mut fw, 1, back("R")), "drop rejected");
    let expected = "0: unreachable 192.0.2.9 > 10.0.0.1 [udp 10.0.0.1:1100 > 192.0.2.9:80] ttl 64, drop rejected";
    assert_eq!(told(&mut fw, 0, Frame::udp(HOST, SERVER)), expected);
    let expected =
        "1: unreachable 2001:db8::1 > 2001:db8:1::2 [udp [2001:db8:1::2]:7 > [2001:db8::1]:5] ttl 64, drop rejected";
    assert_eq!(told(&mut fw, 1, Frame::udp("[2001:db8:1::2]:7", "[2001:db8::1]:5")), expected);
}

#[test]
fn a_reset_for_a_syn_acknowledges_it_and_its_data() {
    let mut fw = bench("inbound = 'reject'");
    let syn = back("S").numbers(1000, 0).payload(b"fast open");
    let outcome = fw.send(1, 0, &syn.bytes());
    let reset = etherparse::TcpSlice::from_slice(&outcome.only().1[34..]).unwrap().to_header();
    assert_eq!((reset.sequence_number, reset.acknowledgment_number), (0, 1010));
}

#[test]
fn pings_are_answered_only_if_asked() {
    let mut fw = bench("");
    let ping = |id| Frame::echo_request("10.0.0.1", "192.0.2.9", id, 1);
    let pong = |id| Frame::echo_reply("192.0.2.9", "10.0.0.1", id, 1);
    check(&mut fw, 1, 0, pong(5), "no_query");
    check(&mut fw, 0, 0, ping(5), "pass");
    check(&mut fw, 1, 30, pong(5), "pass");
    check(&mut fw, 1, 30, pong(6), "no_query");
    check(&mut fw, 1, 31, pong(5), "no_query");
    let time_stamp = |kind| Frame::icmp("10.0.0.1", "192.0.2.9", kind, 0, [0, 7, 0, 1]).payload(&[0; 12]);
    check(&mut fw, 0, 31, time_stamp(13), "pass");
    check(&mut fw, 1, 31, pong(7), "no_query");
    check(&mut fw, 1, 0, Frame::echo_request("192.0.2.9", "10.0.0.1", 5, 1), "denied");
    check(&mut fw, 0, 31, Frame::echo_request("2001:db8::1", "2001:db8::2", 5, 1), "pass");
    check(&mut fw, 1, 31, Frame::echo_reply("2001:db8::2", "2001:db8::1", 5, 1), "pass");
}

#[test]
fn icmp_errors_pass_if_they_quote_a_live_connection() {
    let mut fw = bench("");
    let sent = Frame::udp(HOST, SERVER).payload(b"question").bytes();
    let error = |quoted: &[u8]| Frame::unreachable("203.0.113.9", "10.0.0.1", quoted);
    check(&mut fw, 1, 0, error(&sent), "unrelated");
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER), "pass");
    check(&mut fw, 1, 0, error(&sent), "pass");
    check(&mut fw, 1, 0, Frame::unreachable("203.0.113.9", "10.0.0.2", &sent), "unrelated");
    check(&mut fw, 1, 0, error(&Frame::udp(SERVER, HOST).bytes()), "unrelated");
    check(&mut fw, 0, 0, Frame::unreachable("10.0.0.1", "192.0.2.9", &Frame::udp(SERVER, HOST).bytes()), "pass");
    check(&mut fw, 0, 0, Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 1), "pass");
    check(&mut fw, 1, 0, error(&Frame::echo_request("10.0.0.1", "192.0.2.9", 5, 1).bytes()), "pass");
    // Once the connection has expired, errors about it are refused too.
    check(&mut fw, 0, 181, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 1, 182, Frame::udp(SERVER, HOST), "denied");
    check(&mut fw, 1, 182, error(&sent), "unrelated");
}

#[test]
fn later_fragments_follow_the_first() {
    let mut fw = bench("held_max = 0");
    let first = Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(9, 0, true);
    let later = Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(9, 2, false).payload(&[7; 24]);
    check(&mut fw, 0, 0, later.clone(), "fragment_before_first");
    check(&mut fw, 0, 0, first.clone(), "pass");
    check(&mut fw, 0, 1, later.clone(), "pass");
    check(&mut fw, 1, 1, later.clone(), "fragment_before_first");
    check(&mut fw, 0, 31, later, "fragment_before_first");
    let mut fw = bench("held_max = 1");
    check(
        &mut fw,
        0,
        0,
        Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(9, 2, false).payload(&[7; 24]),
        "fragment_held",
    );
    check(
        &mut fw,
        0,
        0,
        Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(8, 2, false).payload(&[7; 24]),
        "fragment_before_first",
    );
    assert_eq!(fw.send(0, 0, &first.clone().bytes()).ports(), [1, 1], "the one that waited goes on");
    let overwrites = Frame::ip("10.0.0.1", "192.0.2.9", 6).fragment(9, 1, false).payload(&[7; 24]);
    check(&mut fw, 0, 0, overwrites, "tiny_fragment");
    let mut fw = bench("fragments_max = 1");
    check(&mut fw, 0, 0, first, "pass");
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(10, 0, true), "fragment_table_full");
    // An entry that is seconds old makes room.
    check(&mut fw, 0, 2, Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(11, 0, true), "pass");
}

#[test]
fn what_is_not_ip_passes_and_so_does_neighbour_discovery() {
    let mut fw = bench("");
    check(&mut fw, 1, 0, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 1, 0, Frame::ethernet(0x88cc), "pass");
    check(&mut fw, 1, 0, Frame::icmp("fe80::1", "ff02::1", 134, 0, [0; 4]).ttl(255), "pass");
    check(&mut fw, 1, 0, Frame::echo_request("fe80::1", "ff02::1", 1, 1).ttl(255), "denied");
    let mut cut = Frame::udp(HOST, SERVER).bytes();
    cut.truncate(30);
    assert_eq!(fw.send(0, 0, &cut).dropped, Some("malformed"));
    let mut cut = to("S").bytes();
    cut.truncate(40);
    assert_eq!(fw.send(0, 0, &cut).dropped, Some("malformed"));
}

#[test]
fn connections_that_find_no_room_are_dropped() {
    let mut fw = bench_with("", 1);
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER), "pass");
    check(&mut fw, 0, 0, to("S"), "set_table_full");
    check(&mut fw, 1, 0, Frame::udp(SERVER, HOST), "pass");
    let mut fw = bench("connections_max = 1");
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER), "pass");
    check(&mut fw, 0, 0, to("S"), "connection_table_full");
}

#[test]
fn a_firewall_that_is_a_hop_counts_it() {
    let mut fw = bench("ttl = 'decrement'");
    let sent = show::outcome(&fw.send(0, 0, &Frame::udp(HOST, SERVER).bytes()));
    assert_eq!(sent, "1: udp 10.0.0.1:1100 > 192.0.2.9:80 ttl 63");
    let sent = show::outcome(&fw.send(0, 0, &Frame::udp(HOST, SERVER).ttl(1).bytes()));
    assert_eq!(sent, "0: exceeded 192.0.0.8 > 10.0.0.1 [udp 10.0.0.1:1100 > 192.0.2.9:80] ttl 64, drop ttl_exceeded");
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let error = match parse::<Config>(text.parse().unwrap()) {
        Err(error) => error.to_string(),
        Ok(config) => super::Settings::check(config, 2, Default::default()).unwrap_err().to_string(),
    };
    assert!(error.contains(expected), "{error}");
}

#[test]
fn configurations_that_cannot_work_are_refused_with_what_to_write() {
    check_error("inbound = 'alow'", "unknown variant `alow`");
    check_error("rules = [{ action = 'allow', destination_ports = 80 }]", "`rules[0]`: ports without a protocol");
    check_error(
        "rules = [{ action = 'deny', source = '10.0.0.0/8', destination = '2001:db8::/32' }]",
        "of two families, which no packet is; write two rules",
    );
    check_error("rules = [{ action = 'deny', protocol = 'tpc' }]", "`tpc` is no protocol");
    check_error(
        "rules = [{ action = 'deny', protocol = 'tcp', source_ports = '9-8' }]",
        "`9-8` ends before it begins; write \"8-9\"",
    );
    check_error(
        "rules = [{ action = 'deny', source = '10.0.0.9-10.0.0.1' }]",
        "`10.0.0.9-10.0.0.1` ends before it begins; write \"10.0.0.1-10.0.0.9\"",
    );
    check_error(
        "rules = [{ action = 'deny', protocol = 'tcp', destination_ports = 70000 }]",
        "`70000` is no range of ports; write 80, \"6000-6063\" or a name such as \"ssh\"",
    );
    check_error(
        "rules = [{ action = 'deny', protocol = 'tcp', destination_ports = [80, true] }]",
        "neither a number nor a text; write such as 80 or \"ssh\", or several in a list",
    );
    check_error("rules = [{ action = 'deny', protocol = -1 }]", "`-1` is no protocol");
    check_error(
        "half_open_max = 0\ntcp_hurried_s = 5",
        "`tcp_hurried_s`: nobody hurries where nothing limits half-open",
    );
    check_error("hosts_max = 500", "`hosts_max`: no hosts are counted; leave it out, or write `host_connections_max`");
    check_error(
        "ttl = 'decrement'\nrouter = '0.0.0.0'",
        "`router`: 0.0.0.0 is no host's address; write an address that this",
    );
    check_error(
        "ttl = 'decrement'\nrouter_v6 = 'ff02::1'",
        "`router_v6`: ff02::1 is no host's address beyond its link",
    );
    for (direction, port, from) in [("inbound", 0, "outside"), ("outbound", 1, "inside")] {
        check_error(
            &format!("rules = [{{ action = 'deny', direction = '{direction}', ports = [{port}] }}]"),
            &format!(
                "`rules[0]`: nothing comes from {from} by port {port}; write ports of that side, or leave out `direction`"
            ),
        );
    }
    check_error("rules = [{ action = 'deny', ports = [0, 5] }]", "`rules[0]`: the plan has no port 5; write its ports");
    check_error("rules_file = 5", "write a text in quotes");
    check_error("udp_s = 0", "`udp_s`: 0 is out of range; write 1 to 2073600 seconds");
    check_error("tcp_hurried_s = 30\ntcp_opening_s = 29", "`tcp_hurried_s`: longer than tcp_opening_s = 29");
    check_error("interfaces = ['lan', 'lan']", "`interfaces`: two ports are named `lan`");
    for (key, value) in [
        ("interfaces", "['lan', 'wan']"),
        ("networks", "[['10.0.0.0/8'], ['0.0.0.0/0']]"),
        ("forwards", "[]"),
        ("rules_hook", "'host'"),
        ("utc_offset", "'+02:00'"),
    ] {
        check_error(
            &format!("{key} = {value}"),
            &format!(
                "`{key}`: only a rule file asks for it, and there is none; leave it out, or name the file under `rules_file`"
            ),
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is sent in any order: nothing passes inwards between endpoints unless something went outwards before.
    #[test]
    fn nothing_comes_in_unasked(
        packets in prop::collection::vec((any::<bool>(), 0u8..3, 0u8..3, 0usize..5, 0u64..40), 1..150),
    ) {
        let mut fw = bench("");
        let mut asked = std::collections::HashSet::new();
        let mut now = 0;
        for (inward, host, server, kind, pause) in packets {
            now += pause * 1000;
            let (host, server) = (format!("10.0.0.{host}:9"), format!("192.0.2.{server}:80"));
            let (from, to) = if inward { (&server, &host) } else { (&host, &server) };
            let frame = match kind {
                0 => Frame::udp(from, to),
                flags => Frame::tcp(from, to).flags(["S", "SA", "A", "FA"][flags - 1]),
            };
            let passed = fw.send(inward.into(), now, &frame.bytes()).dropped.is_none();
            let ends = (host.clone(), server.clone(), kind == 0);
            prop_assert!(!passed || !inward || asked.contains(&ends));
            if passed && !inward {
                asked.insert(ends);
            }
        }
    }

    /// Bytes that are not packets, and packets that are altered or truncated, pass or are dropped; nothing panics.
    #[test]
    fn damaged_packets_do_no_harm(flips in prop::collection::vec((0usize..80, any::<u8>()), 0..6), cut in 1usize..90, port in 0u16..2) {
        let mut fw = bench("inbound = 'reject'\nttl = 'decrement'");
        let quoted = Frame::udp(HOST, SERVER).bytes();
        let frames = [
            to("S").bytes(),
            Frame::udp(HOST, SERVER).payload(&[1; 8]).fragment(3, 0, true).bytes(),
            Frame::unreachable("192.0.2.9", "10.0.0.1", &quoted).bytes(),
            Frame::udp("[2001:db8::1]:5", "[2001:db8:1::2]:6").bytes(),
        ];
        for mut frame in frames {
            for (at, value) in &flips {
                if let Some(byte) = frame.get_mut(*at) {
                    *byte = *value;
                }
            }
            frame.truncate(cut);
            let outcome = fw.send(port, 0, &frame);
            prop_assert!(outcome.dropped != Some("handler_panic"));
        }
    }
}

#[test]
fn rules_with_a_counter_say_how_often_they_decided() {
    let mut fw = bench(
        "inbound = 'allow'
        rules = [{ action = 'deny', source = '192.0.2.9', counter = true, comment = 'him' }, { action = 'allow', protocol = 'udp' },
                 { action = 'allow', protocol = 'tcp', counter = true }]",
    );
    check(&mut fw, 1, 0, Frame::udp(SERVER, HOST), "denied");
    check(&mut fw, 1, 0, Frame::udp(SERVER, HOST), "denied");
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 0, back("SA"), "pass");
    check(&mut fw, 0, 0, Frame::udp(HOST, SERVER), "pass");
    let told: Vec<_> = fw.findings().list().iter().map(|told| format!("{} {}", told.subject, told.detail)).collect();
    assert_eq!(told, ["rules[0] (him) decided 2 times, 56 bytes", "rules[2] decided once, 40 bytes"]);
}
