//! What an operator reads of packet sets, and of mappings and queries, which have none.

use braid_functions::find;
use braid_testkit::{Bench, Frame};

fn bench_of(function: &str, config: &str, ports: u16) -> Bench {
    let build = find(function).expect("a function").build;
    Bench::with_sets(ports, 1024, |builder| {
        build(function, config.parse().expect("TOML"), builder, ports).expect("a configuration that works")
    })
}

fn bench(function: &str, config: &str) -> Bench {
    bench_of(function, config, 2)
}

const HOST: &str = "10.0.0.1:1100";
const SERVER: &str = "192.0.2.9:80";
const EXTERNAL: &str = "198.51.100.1:1100";

#[test]
fn a_flow_of_a_nat_says_what_it_is_translated_to_and_how_far_it_has_come() {
    let mut nat = bench("nat", "");
    let tcp = |flags| Frame::tcp(HOST, SERVER).flags(flags).bytes();
    let answer = |flags| Frame::tcp(SERVER, EXTERNAL).flags(flags).bytes();
    nat.send(0, 0, &tcp("S"));
    let outward = "10.0.0.1:1100 > 192.0.2.9:80 tcp: source 10.0.0.1:1100 → 198.51.100.1:1100";
    let inward = "192.0.2.9:80 > 198.51.100.1:1100 tcp: destination 198.51.100.1:1100 → 10.0.0.1:1100";
    assert_eq!(nat.described(), [format!("{outward}, SYN sent")]);
    nat.send(1, 1, &answer("SA"));
    nat.send(0, 2, &tcp("A"));
    assert_eq!(nat.described(), [format!("{outward}, established"), format!("{inward}, opening")]);
    nat.send(1, 3, &answer("A"));
    nat.send(0, 4, &tcp("FA"));
    assert_eq!(nat.described(), [format!("{outward}, FIN sent"), format!("{inward}, established")]);
    assert_eq!(nat.entries(), ["mapping tcp 10.0.0.1:1100 → 198.51.100.1:1100, 2 TCP packet sets"]);
}

#[test]
fn datagrams_say_whether_a_second_one_has_come() {
    let mut nat = bench("nat", "");
    let words = "10.0.0.1:1100 > 192.0.2.9:80 udp: source 10.0.0.1:1100 → 198.51.100.1:1100";
    for (ms, count) in [(0, "one packet"), (1, "several packets")] {
        nat.send(0, ms, &Frame::udp(HOST, SERVER).bytes());
        assert_eq!(nat.described(), [format!("{words}, {count}")]);
    }
}

#[test]
fn mappings_of_queries_and_static_ones_are_listed() {
    let fixed = r#"static = [{ protocol = "tcp", inside = "10.0.0.9:80", external = "198.51.100.1:8080" }]"#;
    let mut nat = bench("nat", fixed);
    nat.send(0, 0, &Frame::echo_request("10.0.0.1", "192.0.2.9", 2007, 1).bytes());
    assert_eq!(nat.described(), [""; 0], "queries have no packet set");
    let query = "mapping icmp 10.0.0.1 id 2007 → 198.51.100.1 id 2007";
    let mut entries = nat.entries();
    entries.sort();
    assert_eq!(entries, [query, "mapping tcp 10.0.0.9:80 → 198.51.100.1:8080, static"]);
    // After its time, and before its port has rested.
    nat.send(1, 150_000, &Frame::udp(SERVER, "198.51.100.1:9").bytes());
    let entries = nat.entries();
    assert!(entries.contains(&format!("{query}, ended, its port rests")), "{entries:?}");
}

#[test]
fn a_mapping_that_an_operator_ends_frees_its_port() {
    let fixed = r#"static = [{ protocol = "udp", inside = "10.0.0.9:80", external = "198.51.100.1:8080" }]"#;
    let mut nat = bench("nat", &format!("{fixed}\nports_per_host = 1"));
    let answer = || Frame::udp(SERVER, EXTERNAL).bytes();
    let other = || Frame::udp("10.0.0.1:1101", SERVER).bytes();
    nat.send(0, 0, &Frame::udp(HOST, SERVER).bytes());
    assert_eq!(nat.send(1, 1, &answer()).ports(), [0]);
    assert_eq!(nat.send(0, 1, &other()).dropped, Some("port_quota"));
    assert_eq!(nat.end_entries(|entry| entry.kind == "mapping"), (1, 1), "the static one stays");
    assert_eq!(nat.entries(), ["mapping udp 10.0.0.9:80 → 198.51.100.1:8080, static"]);
    assert_eq!(nat.send(1, 2, &answer()).dropped, Some("no_mapping"), "a set that knew the mapping");
    assert_eq!(nat.send(0, 2, &other()).ports(), [1], "the quota has room again");
    assert_eq!(nat.end_entries(|_| false), (0, 0));
}

#[test]
fn a_connection_goes_on_by_another_mapping_when_an_operator_ends_the_first() {
    let mut nat = bench("nat", "");
    let ours = |flags| Frame::tcp(HOST, SERVER).flags(flags).bytes();
    nat.send(0, 0, &ours("S"));
    nat.send(1, 1, &Frame::tcp(SERVER, EXTERNAL).flags("SA").bytes());
    assert_eq!(nat.end_entries(|_| true), (1, 0));
    assert_eq!(nat.entries(), [""; 0]);
    assert_eq!(nat.send(0, 2, &ours("A")).ports(), [1]);
    assert_eq!(nat.entries(), ["mapping tcp 10.0.0.1:1100 → 198.51.100.1:1100, 1 TCP packet set"]);
    // The sets of the first one, which end now, do not count at the second, which nobody has answered yet.
    nat.send(0, 200_000, &ours("A"));
    nat.send(1, 300_000, &Frame::udp(SERVER, "198.51.100.1:9").bytes());
    let entries = nat.entries();
    assert!(entries.len() == 1 && entries[0].ends_with("1 TCP packet set"), "{entries:?}");
}

#[test]
fn a_mapping_of_nat64_that_an_operator_ends_rests_until_flows_have_looked() {
    let mut nat = bench("nat64", "mappings_max = 64\nrefresh_ms = 1000");
    let answer = || Frame::udp(SERVER, EXTERNAL).bytes();
    nat.send(0, 1_000_000, &Frame::udp("[2001:db8:1::5]:1100", "[64:ff9b::192.0.2.9]:80").bytes());
    nat.send(1, 1_000_001, &answer());
    assert_eq!(nat.end_entries(|_| true), (1, 0));
    assert_eq!(nat.send(1, 1_001_100, &answer()).dropped, Some("no_mapping"));
    for ms in [1_004_000, 1_004_010] {
        nat.send(1, ms, &Frame::udp(SERVER, "198.51.100.1:9").bytes());
    }
    assert_eq!(nat.entries(), [""; 0], "it does not rest as long as one that has expired");
}

#[test]
fn networks_with_the_same_addresses_are_told_apart() {
    let mut nat = bench_of("nat", "networks = 'by_port'\ninside_ports = [0, 2]\noutside_ports = [1]", 3);
    for port in [0, 2] {
        nat.send(port, 0, &Frame::udp(HOST, SERVER).bytes());
    }
    let (described, entries) = (nat.described(), nat.entries());
    assert_eq!((described.len(), entries.len()), (2, 2));
    for network in ["network 0", "network 2"] {
        let named = format!(", {network}, one packet");
        assert!(described.iter().any(|words| words.ends_with(&named)), "{described:?}");
        assert!(entries.iter().any(|entry| entry.ends_with(&format!(", {network}"))), "{entries:?}");
    }
}

#[test]
fn a_flow_of_nat64_says_what_it_is_translated_to() {
    let mut nat = bench("nat64", "");
    nat.send(0, 0, &Frame::udp("[2001:db8:1::5]:1100", "[64:ff9b::192.0.2.9]:80").bytes());
    nat.send(1, 1, &Frame::udp(SERVER, EXTERNAL).bytes());
    let described = nat.described();
    let [inward, outward] = &described[..] else { panic!("both directions: {described:?}") };
    assert!(outward.ends_with(": source [2001:db8:1::5]:1100 → 198.51.100.1:1100, one packet"), "{outward}");
    assert!(inward.ends_with(": destination 198.51.100.1:1100 → [2001:db8:1::5]:1100, one packet"), "{inward}");
    assert_eq!(nat.entries(), ["mapping udp [2001:db8:1::5]:1100 → 198.51.100.1:1100"]);
}

#[test]
fn a_connection_of_a_firewall_says_who_opened_it_and_how_far_it_has_come() {
    let mut firewall = bench("firewall", "");
    let ours = |flags, (seq, ack)| Frame::tcp(HOST, SERVER).flags(flags).numbers(seq, ack).bytes();
    let theirs = |flags, (seq, ack)| Frame::tcp(SERVER, HOST).flags(flags).numbers(seq, ack).bytes();
    let segments = [
        (0, ours("S", (1, 0)), "SYN not answered"),
        (1, theirs("SA", (100, 2)), "answered, not confirmed"),
        (0, ours("A", (2, 101)), "established"),
        (0, ours("FA", (2, 101)), "closed by one end"),
        (1, theirs("FA", (101, 3)), "closed by both ends"),
    ];
    for (port, segment, words) in segments {
        firewall.send(port, 0, &segment);
        let described = firewall.described();
        let end = format!(": opened from inside by 10.0.0.1:1100, {words}");
        assert!(described.len() == 1 && described[0].ends_with(&end), "{described:?}");
    }
}

#[test]
fn queries_of_a_firewall_are_listed_from_who_asks_to_who_is_asked() {
    let mut firewall = bench("firewall", "");
    let answer = || Frame::echo_reply("192.0.2.9", "10.0.0.1", 7, 1).bytes();
    let query = "query icmp 10.0.0.1 id 7 → 192.0.2.9 id 7, type 8";
    firewall.send(0, 0, &Frame::echo_request("10.0.0.1", "192.0.2.9", 7, 1).bytes());
    assert_eq!(firewall.entries(), [format!("{query}, not answered")]);
    firewall.send(1, 0, &answer());
    assert_eq!(firewall.entries(), [format!("{query}, answered")]);
    firewall.send(1, 3_600_000, &answer());
    assert_eq!(firewall.entries(), [""; 0], "too old to be answered");
}

#[test]
fn a_query_that_an_operator_ends_is_answered_no_more() {
    let mut firewall = bench("firewall", "");
    firewall.send(0, 0, &Frame::echo_request("10.0.0.1", "192.0.2.9", 7, 1).bytes());
    assert_eq!(firewall.end_entries(|entry| entry.kind == "query"), (1, 0));
    assert_eq!(firewall.entries(), [""; 0]);
    let answer = Frame::echo_reply("192.0.2.9", "10.0.0.1", 7, 1).bytes();
    assert_eq!(firewall.send(1, 0, &answer).dropped, Some("no_query"));
}

#[test]
fn a_neighbour_that_an_operator_ends_is_asked_for_again() {
    let config = "[[interface]]\nport = 0\nmac = '02:00:00:00:0f:00'\naddresses = ['10.0.0.1/24']
        [[interface]]\nport = 1\nmac = '02:00:00:00:0f:01'\naddresses = ['192.0.2.1/24']
        [[neighbour]]\naddress = '192.0.2.254'\nmac = '02:00:00:00:00:fe'\nport = 1\n";
    let mut router = bench("router", config);
    let to_host = || Frame::udp("192.0.2.254:1", "10.0.0.7:2").mac([2, 0, 0, 0, 0, 0xfe], [2, 0, 0, 0, 0xf, 1]).bytes();
    router.send(0, 0, &Frame::arp("10.0.0.7", "10.0.0.1").mac([2, 0, 0, 0, 0, 7], [0xff; 6]).bytes());
    assert_eq!(router.send(1, 0, &to_host()).ports(), [0]);
    assert_eq!(router.end_entries(|entry| entry.kind == "neighbour"), (1, 1), "the static one stays");
    let sent = router.send(1, 0, &to_host());
    assert_eq!(sent.dropped, Some("waits_for_neighbour"), "also by a set that knew it");
    assert!(router.entries().contains(&"neighbour 10.0.0.7 → port 0, asked 1 of 3 times".to_owned()));
}

#[test]
fn stations_and_groups_that_an_operator_ends_are_forgotten() {
    let config = "snooping = { enabled = true }\nstatic = [{ mac = '02:00:00:00:09:09', port = 2 }]";
    let mut bridge = bench_of("bridge", config, 4);
    let mac = |station: u8| [2, 0, 0, 0, 0, station];
    let between = |from, to| Frame::udp("10.0.0.1:1", "10.0.0.2:2").mac(mac(from), mac(to)).bytes();
    // IGMPv2: 239.1.2.3 is wanted.
    let report = Frame::ip("10.0.0.1", "239.1.2.3", 2).payload(&[0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3]);
    bridge.send(1, 0, &report.mac(mac(1), [1, 0, 0x5e, 1, 2, 3]).bytes());
    assert_eq!(bridge.send(0, 0, &between(0, 1)).ports(), [1]);
    let fixed = "station 02:00:00:00:09:09 → port 2, static";
    let mut entries = bridge.entries();
    entries.sort();
    let learnt = ["station 02:00:00:00:00:00 → port 0", "station 02:00:00:00:00:01 → port 1"];
    assert_eq!(entries, ["group 239.1.2.3 → port 1", learnt[0], learnt[1], fixed]);
    assert_eq!(bridge.end_entries(|_| true), (3, 1), "the static station stays");
    assert_eq!(bridge.entries(), [fixed]);
    assert_eq!(bridge.send(0, 0, &between(0, 1)).ports().len(), 3, "flooded, also by a set that knew the station");
}

#[test]
fn a_flow_of_a_load_balancer_says_which_backend_it_has_and_how_that_stands() {
    let service = |backend: &str| {
        let backends = format!("[{{ address = '10.0.0.9' {backend} }}, {{ address = '10.0.0.8', weight = 1000 }}]");
        format!("[[service]]\naddress = '203.0.113.53'\nport = 53\nprotocol = 'udp'\nbackends = {backends}")
    };
    let words = |backend: &str| {
        let mut balancer = bench("load_balancer", &service(backend));
        balancer.send(0, 0, &Frame::udp("10.0.0.9:53", "192.0.2.1:1024").bytes());
        balancer.described().concat()
    };
    let reply = "10.0.0.9:53 > 192.0.2.1:1024 udp: from backend 10.0.0.9:53, of service 203.0.113.53:53";
    assert_eq!(words(""), format!("{reply}, one packet"));
    assert_eq!(words(", up = false"), format!("{reply}, which is down, one packet"));
    assert_eq!(words(", weight = 0"), format!("{reply}, which drains, one packet"));
    let mut balancer = bench("load_balancer", &service(", weight = 0"));
    for (ms, count) in [(0, "one packet"), (1, "several packets")] {
        balancer.send(1, ms, &Frame::udp("192.0.2.1:1024", "203.0.113.53:53").bytes());
        let flow = "192.0.2.1:1024 > 203.0.113.53:53 udp: to backend 10.0.0.8:53";
        assert_eq!(balancer.described(), [format!("{flow}, {count}")]);
    }
}

#[test]
fn meters_say_how_much_credit_is_left() {
    let to = |host: u8, len| Frame::udp("10.9.9.9:1", &format!("10.0.0.{host}:2")).len(len).bytes();
    let limit = "bytes_per_s = 1000\nburst_bytes = 1000";
    let mut policer = bench("policer", limit);
    policer.send(1, 0, &to(1, 600));
    assert_eq!(policer.described(), ["to 10.0.0.1: 400 of 1000 bytes left"]);
    policer.send(1, 300, &to(2, 100));
    assert_eq!(policer.described()[0], "to 10.0.0.1: 700 of 1000 bytes left", "as of now");
    let mut two = bench("policer", &format!("meter = 'trtcm'\n{limit}\npeak_per_s = 2000\npeak_burst = 3000"));
    two.send(1, 0, &to(1, 600));
    let second = "second bucket 2400 of 3000 bytes left";
    assert_eq!(two.described(), [format!("to 10.0.0.1: 400 of 1000 bytes left, {second}")]);
    let mut limiter = bench("rate_limiter", "packets_per_s = 1\nburst_packets = 5");
    limiter.send(0, 0, &to(1, 100));
    assert_eq!(limiter.described(), ["10.9.9.9:1 > 10.0.0.1:2 udp: 4 of 5 packets left"]);
    let mut counter = bench("flow_counter", "");
    counter.send(0, 0, &to(1, 100));
    counter.send(0, 1, &to(1, 100));
    assert_eq!(counter.described(), ["10.9.9.9:1 > 10.0.0.1:2 udp: 2 packets, 200 bytes"]);
}

#[test]
fn a_bridge_says_where_frames_between_two_stations_go() {
    let (a, b) = ([2, 0, 0, 0, 0, 0xa], [2, 0, 0, 0, 0, 0xb]);
    let frame = |from, to| Frame::ethernet(0x88b5).mac(from, to).bytes();
    let mut bridge = bench_of("bridge", "", 4);
    let ends = |bridge: &mut Bench, ends: &[&str]| {
        let described = bridge.described();
        let fits = described.iter().zip(ends).all(|(words, end)| words.ends_with(end));
        assert!(fits && described.len() == ends.len(), "{described:?}");
    };
    bridge.send(0, 0, &frame(a, b));
    ends(&mut bridge, &[": from port 0, decided frame by frame"]);
    bridge.send(2, 1, &frame(b, a));
    bridge.send(0, 2, &frame(a, b));
    ends(&mut bridge, &[": from port 0 to port 2", ": from port 2 to port 0"]);
    // One station has moved.
    bridge.send(1, 3, &frame(a, b));
    ends(&mut bridge, &[": from port 1 to port 2", ": from port 2 to port 0, to be decided anew"]);
}
