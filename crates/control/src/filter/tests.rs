//! Filters applied to packets and keys, and texts that are not valid filters.

use super::*;

fn facts(source: &str, destination: &str, protocol: u8) -> Facts<'static> {
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
fn filters_as_people_type_them_for_tcpdump() {
    check("tcp port http", true);
    check("port domain or http", true);
    check("src or dst port 80", true);
    check("src and dst port 80", false);
    check("tcp src or dst portrange 80-81", true);
    check("src host 10.0.0.1 and dst port 80", true);
    check("src 10.0.0.1 or dst 10.0.0.1", true);
    // A value alone means what the one before it does.
    check("tcp dst port 443 or 80", true);
    check("tcp src port 443 or 80", false);
    check("udp port 443 or 80", false);
    check("src host 10.0.0.2 or 198.18.0.1", false);
    check("port 443 or 10.0.0.1", true);
    check("not host 10.0.0.2 and 10.0.0.3", false);
}

/// A TCP SYN of 54 bytes with a TTL of 64, as an Ethernet frame.
const SYN: &str = "020000000001 020000000002 0800 4500002800014000 40060000 0a000001 c6120001 04d20050 00000001 00000000 5002ffff 00000000";

#[test]
fn bytes_of_headers_are_compared() {
    let digits: Vec<u32> = SYN.chars().filter_map(|c| c.to_digit(16)).collect();
    let frame: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    let facts = Facts::of_frame(&frame, braid_runtime::nf::packet::Link::Ethernet);
    let check = |filter: &str, matches: bool| {
        let parsed = Filter::parse(filter).unwrap_or_else(|error| panic!("{filter}: {error}; {}", error.help));
        assert_eq!(parsed.matches(&facts), matches, "{filter}: {parsed:?}");
    };
    check("tcp[13] & 2 != 0", true);
    check("tcp[13]&2!=0", true);
    check("tcp[tcpflags] & (tcp-syn|tcp-ack) == tcp-syn", true);
    check("tcp[tcpflags] == tcp-ack", false);
    check("(tcp[tcpflags] & tcp-rst) != 0 or port 80", true);
    check("not (tcp[tcpflags] & (tcp-rst | tcp-fin) != 0) and (port 80)", true);
    check("ip[8] < 65 and ip[8] >= 64 and ip[8]<=64 and not ip[8]>64", true);
    check("ip[6:2] & 0x1fff = 0 and ip[6:2] & 0x4000 == 0x4000", true);
    check("ip[16:4] = 0xc6120001", true);
    check("ether[0] & 1 = 0 and ether[12:2] = 0x0800", true);
    // What is not there does not match, whatever the comparison.
    check("udp[0:2] != 99 or icmp[icmptype] != icmp-echo or ip6[7] != 1 or tcp[40] = 0 or tcp[40] != 0", false);
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
    check("port htpp", "`htpp`");
    check("tcp[99] = 1", "`99`");
    check("tcp[0:3] = 1", "`0:3`");
    check("tcp[13", "ends too early");
    check("tcp[13]", "ends too early");
    check("tcp[13] & 2", "ends too early");
    check("tcp[13] & 2 and port 80", "`and`");
    check("tcp[tcpflag] = 2", "`tcpflag`");
    check("ip[2:2] << 2 = 8", "not calculated");
    check("80", "`80` at character 1");
}

proptest::proptest! {
    #[test]
    fn no_text_harms_the_parser(text in "\\PC{0,80}", words in proptest::collection::vec(
        proptest::sample::select(vec!["tcp", "port", "80", "and", "or", "not", "(", ")", "host", "10.0.0.1", "net", "src", "!", "vlan", "é", "[", "]", "13", "&", "|", "=", "!=", "<", "or dst"]), 0..40)) {
        let _ = Filter::parse(&text);
        let _ = Filter::parse(&words.join(" "));
    }
}
