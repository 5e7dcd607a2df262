//! Filters applied to packets and keys, and texts that are not valid filters.

use super::*;

fn facts(source: &str, destination: &str, protocol: u8) -> Facts {
    let end = |text: &str| {
        let (ip, port) = text.rsplit_once('@').expect("ADDRESS@PORT");
        (ip.parse::<IpAddress>().ok(), port.parse::<u16>().ok())
    };
    let (a, b) = (end(source), end(destination));
    Facts { ips: [a.0, b.0], ports: [a.1, b.1], protocol: Some(protocol), len: Some(60), ..Facts::default() }
}

#[track_caller]
fn check(filter: &str, matches: bool) {
    let facts = facts("10.0.0.1@1234", "198.18.0.1@80", protocol::TCP);
    let filter = Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}"));
    assert_eq!(filter.matches(&facts), matches, "{filter:?}");
}

#[test]
fn packets_are_found_by_hosts_nets_ports_and_protocols() {
    check("", true);
    check("host 10.0.0.1", true);
    check("10.0.0.1", true);
    check("dst host 10.0.0.1", false);
    check("src 10.0.0.1 and dst port 80", true);
    check("net 198.18.0.0/16", true);
    check("src net 198.18.0.0/16", false);
    check("portrange 80-90", true);
    check("portrange 90-80", true);
    check("tcp port 80", true);
    check("udp port 80", false);
    check("ip and not icmp", true);
    check("ip6 or arp", false);
    check("greater 60 && less 60", true);
    check("ip proto 6", true);
    check("vlan", false);
    check("host 2001:db8::1", false);
}

#[test]
fn and_binds_stronger_than_or_and_parentheses_more_than_both() {
    check("tcp or udp and port 53", true);
    check("(tcp or udp) and port 53", false);
    check("!(port 80)", false);
    check("not not port 80", true);
    let many: Vec<String> = (1..=80).map(|port| format!("tcp port {port}")).collect();
    check(&many.join(" or "), true);
}

#[test]
fn of_a_symmetric_key_either_end_is_the_source() {
    let facts = Facts { either_way: true, ..facts("10.0.0.1@1234", "198.18.0.1@80", protocol::TCP) };
    assert!(Filter::parse("src port 80").unwrap().matches(&facts));
}

#[test]
fn slips_are_named_with_their_place() {
    let check = |filter: &str, part: &str| {
        let error = Filter::parse(filter).expect_err(filter);
        assert!(error.what.contains(part), "{filter}: {error}");
    };
    check("hots 10.0.0.1", "`hots` at character 1");
    check("host 10.0.0.300", "`10.0.0.300` at character 6");
    check("port 80 90", "`90` at character 9");
    check("port 70000", "`70000`");
    check("(port 80", "ends too early");
    check("tcp and", "ends too early");
    check("net 10.0.0.0/33", "`10.0.0.0/33`");
    check(&"(".repeat(1000), "nested too deeply");
    check(&"not ".repeat(1000), "nested too deeply");
    check("ether host 1:2:3", "`1:2:3`");
    check("ether host 02:00:00:00:00:01:zz", "`02:00:00:00:00:01:zz`");
    check("port & 80", "`&`");
}

proptest::proptest! {
    #[test]
    fn no_text_harms_the_parser(text in "\\PC{0,80}", words in proptest::collection::vec(
        proptest::sample::select(vec!["tcp", "port", "80", "and", "or", "not", "(", ")", "host", "10.0.0.1", "net", "src", "!", "vlan", "é"]), 0..40)) {
        let _ = Filter::parse(&text);
        let _ = Filter::parse(&words.join(" "));
    }
}
