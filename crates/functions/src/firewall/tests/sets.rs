//! Sets that packets modify: limits, bans and connection counts, each by address.

use braid_nf::Instance;
use braid_testkit::{Bench, Frame};

use super::check;
use super::known::{bench_of, made};
use super::rules::{PORTS, named, read_text};
use crate::firewall::{When, explain};

/// A firewall for a table with these sets and rules, and policy accept.
fn bench(sets: &str, rules: &str) -> Bench {
    bench_of(&table(sets, rules))
}

fn table(sets: &str, rules: &str) -> String {
    format!(
        "table inet t {{\n{sets}\nchain f {{\ntype filter hook forward priority 0; policy accept;\n{rules}\n}}\n}}\n"
    )
}

fn asks(host: u8, port: u16) -> Frame {
    Frame::udp(&format!("192.0.2.{host}:{port}"), "10.0.0.1:53")
}

fn syn(host: u8, port: u16) -> Frame {
    Frame::tcp(&format!("192.0.2.{host}:{port}"), "10.0.0.1:22").flags("S").numbers(100, 0)
}

const FLOODS: &str = "set floods { type ipv4_addr; size 100; flags dynamic; }";

#[test]
fn each_address_has_its_own_limit() {
    let limited = [
        (FLOODS, "ct state new add @floods { ip saddr limit rate over 1/minute burst 2 packets } drop"),
        (FLOODS, "ct state new update @floods { ip saddr limit rate over 1/minute burst 2 packets } counter drop"),
        ("", "ct state new meter floods size 100 { ip saddr limit rate over 1/minute burst 2 packets } drop"),
        (FLOODS, "ct state new add @floods { ip saddr limit rate 1/minute burst 2 packets } accept; drop"),
    ];
    for (sets, rules) in limited {
        let mut fw = bench(sets, rules);
        for port in 1..3 {
            check(&mut fw, 1, 0, asks(9, port), "pass");
        }
        check(&mut fw, 1, 0, asks(9, 3), "denied");
        check(&mut fw, 1, 0, asks(8, 3), "pass");
        check(&mut fw, 1, 59, asks(9, 3), "denied");
        check(&mut fw, 1, 61, asks(9, 3), "pass");
        check(&mut fw, 1, 61, asks(9, 4), "denied");
    }
}

/// A bucket may take longer to refill than any connection lasts.
#[test]
fn a_burst_may_be_of_many_days() {
    let mut fw = bench("", "udp dport 53 limit rate 1/day accept; drop");
    (1..=5).for_each(|port| check(&mut fw, 1, 0, asks(9, port), "pass"));
    check(&mut fw, 1, 80_000, asks(9, 6), "denied");
    check(&mut fw, 1, 90_000, asks(9, 7), "pass");
    check(&mut fw, 1, 90_000, asks(9, 8), "denied");
}

#[test]
fn elements_are_made_of_several_fields_and_of_networks() {
    let mut fw = bench(FLOODS, "add @floods { ip saddr & 255.255.255.248 limit rate over 1/day burst 1 packets } drop");
    check(&mut fw, 1, 0, asks(9, 1), "pass");
    check(&mut fw, 1, 0, asks(15, 1), "denied");
    check(&mut fw, 1, 0, asks(16, 1), "pass");
    let sets = "set pairs { type ipv4_addr . inet_service; flags dynamic; }";
    let mut fw = bench(sets, "add @pairs { ip saddr . udp sport limit rate over 1/day burst 1 packets } drop");
    check(&mut fw, 1, 0, asks(9, 1), "pass");
    check(&mut fw, 1, 0, asks(9, 1), "denied");
    check(&mut fw, 1, 0, asks(9, 2), "pass");
    check(&mut fw, 1, 0, syn(9, 1), "pass");
}

/// A host that knocks too often is locked out for a while; the set or the statement gives the time.
#[test]
fn who_is_put_into_a_set_stays_there_for_its_timeout() {
    for (of_set, of_statement) in [("timeout 1m30s;", ""), ("", "timeout 1m30s")] {
        let sets = format!("set banned {{ type ipv4_addr; flags dynamic,timeout; {of_set} }}\n{FLOODS}");
        let rules = format!(
            "ip saddr @banned drop
            tcp dport 22 ct state new add @floods {{ ip saddr limit rate over 1/hour burst 2 packets }} \
                add @banned {{ ip saddr {of_statement} }} drop"
        );
        let mut fw = bench(&sets, &rules);
        for port in [1, 2] {
            check(&mut fw, 1, 0, syn(9, port), "pass");
        }
        check(&mut fw, 1, 0, asks(9, 7), "pass");
        check(&mut fw, 1, 1, syn(9, 3), "denied");
        check(&mut fw, 1, 2, asks(9, 7), "denied");
        check(&mut fw, 1, 2, asks(8, 7), "pass");
        check(&mut fw, 1, 90, asks(9, 7), "denied");
        check(&mut fw, 1, 92, asks(9, 7), "pass");
    }
}

/// Meters and counts of one table are separate from those of another.
#[test]
fn tables_have_meters_and_sets_of_their_own() {
    let one = |table: &str, port: u16| {
        let rule = format!("udp dport {port} meter m {{ ip saddr limit rate over 1/day burst 1 packets }} drop");
        self::table("", &rule).replace("inet t", &format!("inet {table}"))
    };
    let mut fw = bench_of(&(one("a", 53) + &one("b", 54)));
    let asks = |port: u16| Frame::udp("192.0.2.9:7", &format!("10.0.0.1:{port}"));
    check(&mut fw, 1, 0, asks(53), "pass");
    check(&mut fw, 1, 0, asks(54), "pass");
    check(&mut fw, 1, 0, asks(53), "denied");
    // Within one table a meter is shared, and it is also a set of that name.
    let meter =
        |port: u16| format!("udp dport {port} meter m {{ ip saddr limit rate over 1/day burst 1 packets }} drop\n");
    let mut fw = bench("", &(meter(53) + &meter(54)));
    check(&mut fw, 1, 0, asks(53), "pass");
    check(&mut fw, 1, 0, asks(54), "denied");
    let mut fw = bench("set m { type ipv4_addr; flags dynamic; }", &(meter(53) + "udp dport 54 ip saddr @m drop"));
    check(&mut fw, 1, 0, asks(54), "pass");
    check(&mut fw, 1, 0, asks(53), "pass");
    check(&mut fw, 1, 0, asks(54), "denied");
    // Two counts in one line are separate.
    let mut fw =
        bench("", "tcp dport 22 ct state new ct count over 2 drop; udp dport 53 ct state new ct count over 1 drop");
    check(&mut fw, 1, 0, syn(9, 1), "pass");
    check(&mut fw, 1, 0, syn(9, 2), "pass");
    check(&mut fw, 1, 0, self::asks(9, 1), "pass");
    check(&mut fw, 1, 0, self::asks(9, 2), "denied");
}

#[test]
fn update_lets_elements_live_on_and_add_does_not() {
    for (verb, expected) in [("add", "pass"), ("update", "denied")] {
        let sets = "set seen { type ipv4_addr; flags dynamic; timeout 10s; }";
        let mut fw = bench(sets, &format!("udp dport 53 {verb} @seen {{ ip saddr }} accept\nip saddr @seen drop"));
        check(&mut fw, 1, 0, asks(9, 1), "pass");
        check(&mut fw, 1, 1, syn(9, 1), "denied");
        check(&mut fw, 1, 8, asks(9, 1), "pass");
        check(&mut fw, 1, 12, syn(9, 1), expected);
    }
}

/// A key with a constant from the rule: who has knocked at one port may knock at the next.
#[test]
fn who_knocks_in_order_is_let_in() {
    let sets =
        "set waiting { type ipv4_addr . inet_service; flags timeout; }\nset known { type ipv4_addr; flags timeout; }";
    let rules = "tcp dport 1001 add @waiting { ip saddr . 1002 timeout 10s }
        tcp dport 1002 ip saddr . tcp dport @waiting add @waiting { ip saddr . 1003 timeout 10s }
        tcp dport 1003 ip saddr . tcp dport @waiting add @known { ip saddr timeout 1m }
        tcp dport 22 ip saddr @known accept
        tcp dport { 22, 1001-1003 } drop";
    let mut fw = bench(sets, rules);
    let mut port = 0;
    let mut knock = |seconds: u64, host: u8, at: u16| {
        port += 1;
        let frame = Frame::tcp(&format!("192.0.2.{host}:{port}"), &format!("10.0.0.1:{at}")).flags("S");
        fw.send(1, seconds * 1000, &frame.bytes()).dropped.is_none()
    };
    for at in [1001, 1003, 1002] {
        assert!(!knock(0, 8, at) && !knock(0, 8, 22));
    }
    for at in [1001, 1002, 1003] {
        assert!(!knock(0, 9, 22) && !knock(0, 9, at));
    }
    assert!(knock(1, 9, 22) && !knock(1, 7, 22));
    // Too late for the third port.
    for (seconds, at) in [(1, 1001), (2, 1002), (13, 1003)] {
        assert!(!knock(seconds, 7, at));
    }
    assert!(!knock(13, 7, 22) && knock(59, 9, 22) && !knock(62, 9, 22));
}

/// An address is the same element whether it is the source or the destination.
#[test]
fn a_set_knows_addresses_from_both_ends() {
    let sets = "set banned { type ipv4_addr; flags dynamic; }";
    let mut fw = bench(sets, "tcp dport 22 ct state new add @banned { ip saddr } drop\nip daddr @banned drop");
    let out = || Frame::udp("10.0.0.1:7", "192.0.2.9:7");
    check(&mut fw, 0, 0, out(), "pass");
    check(&mut fw, 1, 0, syn(9, 1), "denied");
    check(&mut fw, 0, 0, out(), "denied");
}

/// Whatever its flags: if no rule adds to a set and its elements have no timeout they stay, networks too.
#[test]
fn a_set_that_nothing_changes_has_the_elements_of_its_file() {
    for flags in ["dynamic", "timeout", "dynamic,timeout", "timeout, interval"] {
        let sets = format!(
            "set banned {{ type ipv4_addr; size 100; flags {flags}; elements = {{ 192.0.2.9, 192.0.2.16/28 }} }}"
        );
        let mut fw = bench(&format!("{sets}\n{FLOODS}"), "ip saddr @banned drop\nadd @floods { ip saddr }");
        for (host, expected) in [(8, "pass"), (9, "denied"), (17, "denied"), (32, "pass")] {
            check(&mut fw, 1, 0, asks(host, 1), expected);
            check(&mut fw, 1, 90_000, asks(host, 1), expected);
        }
    }
    // Elements may be added after the table.
    let sets = "set banned { type ipv4_addr; flags timeout; }";
    let mut fw = bench_of(&(table(sets, "ip saddr @banned drop") + "add element inet t banned { 192.0.2.9 }\n"));
    check(&mut fw, 1, 0, asks(9, 1), "denied");
    check(&mut fw, 1, 0, asks(8, 1), "pass");
}

/// A blocklist as a live machine lists it: the remaining time of each element counts, and starts with the rules.
#[test]
fn elements_of_a_file_leave_after_what_is_left_of_their_time() {
    let sets = "set blocked { type ipv4_addr; flags interval,timeout; elements = {
            192.0.2.1 timeout 4h expires 1m30s120ms comment \"timeout 1s\", 192.0.2.2,
            192.0.2.16-192.0.2.19 timeout 10s, 192.0.2.64/26 expires 2m } }
        set named { type ipv4_addr . inet_service; timeout 20s; elements = { 192.0.2.1 . http, 192.0.2.3 . 53 timeout 1h expires 5s } }";
    let rules = "udp dport 53 ip saddr @blocked drop\nip saddr . th dport @named drop";
    let mut fw = bench(sets, rules);
    let asked = |fw: &mut Bench, seconds: u64, expected: [bool; 6]| {
        let seen = [1, 2, 18, 20, 70, 3].map(|host| {
            let port = 1000 + seconds as u16;
            fw.send(1, seconds * 1000, &asks(host, port).bytes()).dropped.is_none()
        });
        assert_eq!(seen, expected, "at {seconds} s");
    };
    asked(&mut fw, 0, [false, false, false, true, false, false]);
    asked(&mut fw, 4, [false, false, false, true, false, false]);
    asked(&mut fw, 6, [false, false, false, true, false, true]);
    asked(&mut fw, 11, [false, false, true, true, false, true]);
    asked(&mut fw, 90, [false, false, true, true, false, true]);
    asked(&mut fw, 92, [true, false, true, true, false, true]);
    asked(&mut fw, 121, [true, false, true, true, true, true]);
    let mut config = named();
    read_text(&table(sets, rules), &mut config, PORTS).expect("rules that can be read");
    let page = explain(config, 2, (1, &asks(70, 1).bytes()), When::Utc(0)).expect("a packet");
    assert!(page.contains("line 8 of the rule file decides") && page.contains("is dropped"), "{page}");
}

/// Hosts banned when the rules were listed stay banned; those caught now are added for as long as a rule says.
#[test]
fn a_set_may_have_elements_of_the_file_and_of_packets() {
    let sets = "set banned { type ipv4_addr; flags dynamic,timeout; timeout 1h; elements = {
        192.0.2.1 expires 10s, 192.0.2.2 timeout 30s expires 20s limit rate 5/second burst 3 packets } }";
    let rules = "tcp dport 22 add @banned { ip saddr timeout 5s }\ntcp dport 23 update @banned { ip saddr timeout 40s }\nip saddr @banned drop";
    let mut fw = bench(sets, rules);
    let knocks = |host: u8, port: u16| {
        Frame::tcp(&format!("192.0.2.{host}:7"), &format!("10.0.0.1:{port}")).flags("S").numbers(100, 0)
    };
    check(&mut fw, 1, 0, asks(1, 1), "denied");
    check(&mut fw, 1, 0, asks(3, 1), "pass");
    // An existing element keeps its expiry time, or its lifetime starts again.
    check(&mut fw, 1, 1, knocks(1, 22), "denied");
    check(&mut fw, 1, 1, knocks(2, 23), "denied");
    check(&mut fw, 1, 1, knocks(3, 22), "denied");
    check(&mut fw, 1, 7, asks(3, 2), "pass");
    check(&mut fw, 1, 9, asks(1, 3), "denied");
    check(&mut fw, 1, 11, asks(1, 4), "pass");
    check(&mut fw, 1, 40, asks(2, 5), "denied");
    check(&mut fw, 1, 42, asks(2, 6), "pass");
}

/// As in the kernel: a rule that finds no room does not match.
#[test]
fn a_full_set_takes_no_more() {
    let sets = "set floods { type ipv4_addr; size 1; flags dynamic; }";
    let mut fw = bench(sets, "add @floods { ip saddr limit rate 1/hour burst 5 packets } accept; drop");
    check(&mut fw, 1, 0, asks(9, 1), "pass");
    check(&mut fw, 1, 0, asks(8, 1), "denied");
    check(&mut fw, 1, 0, asks(9, 2), "pass");
}

#[test]
fn live_connections_are_counted_by_who_opened_them() {
    let counted = "tcp dport 22 ct state new add @floods { ip saddr ct count over 2 } drop";
    let mut fw = bench(FLOODS, counted);
    let back = |port: u16, flags: &str, seq, ack| {
        Frame::tcp("10.0.0.1:22", &format!("192.0.2.9:{port}")).flags(flags).numbers(seq, ack)
    };
    check(&mut fw, 1, 0, syn(9, 1), "pass");
    check(&mut fw, 1, 0, syn(9, 2), "pass");
    check(&mut fw, 1, 0, syn(9, 3), "denied");
    check(&mut fw, 1, 0, syn(8, 3), "pass");
    // A repeated packet belongs to the same connection.
    check(&mut fw, 1, 0, syn(9, 2), "pass");
    check(&mut fw, 1, 0, asks(9, 3), "pass");
    // A refused connection is over.
    check(&mut fw, 0, 0, back(2, "RA", 0, 101), "pass");
    check(&mut fw, 1, 0, syn(9, 3), "pass");
    check(&mut fw, 1, 0, syn(9, 4), "denied");
    // The others time out.
    check(&mut fw, 1, 121, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 1, 122, syn(9, 4), "pass");
    let mut fw = bench("", "tcp dport 22 ct state new ct count over 1 drop");
    check(&mut fw, 1, 0, syn(9, 1), "pass");
    check(&mut fw, 1, 0, syn(8, 1), "denied");
    let mut fw = bench("", "tcp dport 22 ct state new ct count 1 accept; tcp dport 22 ct state new drop");
    check(&mut fw, 1, 0, syn(9, 1), "pass");
    check(&mut fw, 1, 0, syn(8, 1), "denied");
}

/// A ping is a connection, identified by its number, until it times out.
#[test]
fn pings_are_counted_as_connections() {
    let sets = "set pingers { type ipv4_addr; flags dynamic; }\nset protocols { type inet_proto; flags dynamic; }";
    let rules = "icmp type echo-request ct state new add @pingers { ip saddr ct count over 2 } drop
        icmpv6 type echo-request ct state new add @protocols { meta l4proto ct count over 1 } drop";
    let mut fw = bench(sets, rules);
    let ping = |host: u8, id| Frame::echo_request(&format!("192.0.2.{host}"), "10.0.0.1", id, 1);
    let pong = |host: u8, id| Frame::echo_reply("10.0.0.1", &format!("192.0.2.{host}"), id, 1);
    check(&mut fw, 1, 0, ping(9, 1), "pass");
    check(&mut fw, 1, 0, ping(9, 2), "pass");
    // A repeated or answered ping is the same connection.
    check(&mut fw, 1, 0, ping(9, 2), "pass");
    check(&mut fw, 0, 0, pong(9, 2), "pass");
    check(&mut fw, 1, 20, ping(9, 2), "pass");
    check(&mut fw, 1, 20, ping(9, 3), "denied");
    check(&mut fw, 1, 20, ping(8, 3), "pass");
    // One has timed out, the other is alive.
    for tenths in 0..600 {
        fw.send(1, 21_000 + tenths * 100, &ping(9, 2).bytes());
    }
    check(&mut fw, 1, 82, ping(9, 3), "pass");
    check(&mut fw, 1, 82, ping(9, 4), "denied");
    // A ping that reuses the number of an expired one is a new connection.
    check(&mut fw, 1, 113, ping(9, 2), "pass");
    check(&mut fw, 1, 113, ping(9, 3), "pass");
    let ping6 = |id| Frame::echo_request("2001:db8::9", "2001:db8:1::1", id, 1);
    check(&mut fw, 1, 113, ping6(1), "pass");
    check(&mut fw, 1, 113, ping6(2), "denied");
}

/// No host is banned yet.
#[test]
fn rules_are_explained_as_of_the_first_packet() {
    let rules = "ip saddr @floods drop\nlimit rate over 5/second drop\nct count over 3 drop\nudp dport 53 limit rate 5/second accept\ndrop";
    let mut config = named();
    read_text(&table(FLOODS, rules), &mut config, PORTS).expect("rules that can be read");
    let page = explain(config, 2, (1, &asks(9, 1).bytes()), When::Utc(0)).expect("a packet");
    assert!(page.contains("line 8 of the rule file decides"), "{page}");
    let unfit = |line: u32| {
        format!("line {line} of the rule file does not fit by its set, mark or limit, as long as nothing is counted")
    };
    assert!([5, 6, 7].into_iter().all(|line| page.contains(&unfit(line))), "{page}");
}

/// Frames of one station, whichever host sends them through it.
#[test]
fn stations_are_elements_too() {
    const STATIONS: &str = "set stations { type ether_addr; size 100; flags dynamic,timeout; timeout 1m; }";
    let by = |station: u8, host, port| {
        let mut bytes = asks(host, port).bytes();
        bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 9, station]);
        bytes
    };
    let mut fw =
        bench(STATIONS, "udp dport 53 ether saddr @stations drop\nudp sport 1 update @stations { ether saddr }");
    let mut decides = |seconds: u64, bytes: &[u8], dropped| {
        assert_eq!(fw.send(1, seconds * 1000, bytes).dropped, dropped, "at {seconds}");
    };
    decides(0, &by(1, 9, 2), None);
    decides(0, &by(1, 9, 1), None);
    decides(1, &by(1, 8, 2), Some("denied"));
    decides(1, &by(2, 9, 2), None);
    decides(62, &by(1, 8, 3), None);
    let mut fw = bench(
        &STATIONS.replace("ether_addr", "ether_addr . inet_service"),
        "add @stations { ether saddr . udp dport limit rate over 1/minute burst 1 packets } drop",
    );
    assert_eq!(fw.send(1, 0, &by(1, 9, 1)).dropped, None);
    assert_eq!(fw.send(1, 0, &by(1, 8, 2)).dropped, Some("denied"));
    assert_eq!(fw.send(1, 0, &by(2, 8, 3)).dropped, None);
}

#[test]
fn what_cannot_be_said_of_a_set_is_refused() {
    let refused = |sets: &str, rules: &str, expected: &str| {
        let error = read_text(&table(sets, rules), &mut named(), PORTS).expect_err(rules);
        let said = format!("{}; {}", error.reason, error.instead);
        assert!(said.contains(expected), "{said}");
    };
    refused("", "add @floods { ip saddr } drop", "`@floods` is no set that packets change; write set floods");
    refused(FLOODS, "add @floods { ether type } drop", "elements are not made of `ether type`");
    let stations = "set s { type ether_addr; flags dynamic; }";
    refused(stations, "add @s { ether saddr ct count over 2 } drop", "connections are not counted by stations");
    refused(FLOODS, "add @floods { ip saddr & 255.0 } drop", "`255.0` is no mask");
    refused(FLOODS, "add @floods { ip saddr timeout soon } drop", "`soon` is no time; write 30s, 10m, 1h or 1d");
    refused(FLOODS, "add @floods { ip saddr ct count over many } drop", "`many` is no number from 1 on");
    for (said, refusal) in [
        ("10.0.0.1 timeout soon", "`soon` is no time; write 30s"),
        ("10.0.0.1 expires never", "`never` is no time; write expires 59m12s"),
        ("somebody timeout 1h", "`somebody` is no ipv4_addr as an element of the set `s`"),
        ("10.0.0.0/8 . 22 timeout 1h", "`10.0.0.0/8` is a range among joined fields"),
        ("10.0.0.0/8 timeout 1h, 10.1.0.0/16", "have addresses in common; write each address once"),
        ("10.0.0.1 . 2 timeout 1h", "an element with 2 of the 1 fields of the set `s`"),
        ("2001:db8::1 timeout 1h", "`2001:db8::1` is no ipv4_addr"),
    ] {
        refused(
            &format!("set s {{ type ipv4_addr; flags timeout; elements = {{ {said} }}; }}"),
            "ip saddr @s drop",
            refusal,
        );
    }
    refused("", "delete @floods { ip saddr }", "`@floods` is no set that packets change");
    refused(FLOODS, "delete @floods { ip saddr timeout 5s }", "`timeout` is not said of an element that leaves");
    let given = "set s { type ipv4_addr; flags dynamic; elements = { 10.0.0.1 }; }";
    refused(given, "delete @s { ip saddr }", "elements of the set `s` stand in the file, and what stands there stays");
}

/// A ban that asks for another type than the set has would never match, as nftables says of it too (`datatype mismatch`).
#[test]
fn fields_have_the_types_that_the_set_declares() {
    let sets = "set v4 { type ipv4_addr; flags dynamic; timeout 60s; }
        set v6 { typeof ip6 saddr; flags dynamic; timeout 60s; }
        set pairs { type ipv4_addr . inet_service; flags dynamic; timeout 60s; }
        set given { typeof ip saddr . tcp dport; flags timeout; elements = { 10.0.0.1 . ssh timeout 1h } }
        set protocols { typeof meta l4proto; flags dynamic; }";
    for rules in [
        "ip saddr & 255.255.255.0 @v4 drop\nadd @v4 { ip daddr }",
        "add @v6 { ip6 saddr & ffff:ffff:: } drop\nip6 daddr != @v6 drop",
        "add @pairs { ip saddr . udp sport }\nip daddr . th dport @pairs drop\nadd @pairs { ip saddr . 22 }",
        "ip saddr . udp dport @given drop",
        "add @protocols { ip protocol } drop",
        "meter own { tcp dport limit rate 5/second } accept",
    ] {
        read_text(&table(sets, rules), &mut named(), PORTS).unwrap_or_else(|error| panic!("{rules}: {error}"));
    }
    for (rules, expected) in [
        ("tcp dport @v4 drop", "elements of the set `v4` are of type ipv4_addr, and not inet_service"),
        ("ip6 saddr @v4 drop", "of type ipv4_addr, and not ipv6_addr"),
        ("ip saddr @v6 drop", "of type ipv6_addr, and not ipv4_addr"),
        ("add @v4 { tcp dport }", "of type ipv4_addr, and not inet_service"),
        ("delete @v4 { 22 }", "of type ipv4_addr, and not a number"),
        ("update @v4 { ip saddr . tcp dport }", "of type ipv4_addr, and not ipv4_addr . inet_service"),
        ("add @pairs { ip saddr }", "of type ipv4_addr . inet_service, and not ipv4_addr"),
        ("add @pairs { tcp dport . ip saddr }", "of type ipv4_addr . inet_service, and not inet_service . ipv4_addr"),
        ("add @pairs { ip saddr . 10.0.0.1 }", "and not ipv4_addr . ipv4_addr"),
        ("ip saddr @pairs drop", "of type ipv4_addr . inet_service, and not ipv4_addr"),
        ("ip saddr @given drop", "of type ipv4_addr . inet_service, and not ipv4_addr"),
        ("meter v4 { tcp dport limit rate 5/second } accept", "of type ipv4_addr, and not inet_service"),
    ] {
        let error = read_text(&table(sets, rules), &mut named(), PORTS).expect_err(rules);
        assert!(error.reason.contains(expected), "{rules}: {error}");
    }
}

#[test]
fn rules_that_contradict_each_other_about_a_set_are_refused() {
    let refused = |rules: &str, expected: &str| {
        let mut error = None;
        Bench::with_sets(2, 16, |builder| {
            error = made(&table(FLOODS, rules), builder).err().map(|error| error.to_string());
            Box::new(Instance::new("fw", made(&table("", "accept"), builder).expect("a rule")))
        });
        assert!(error.as_ref().is_some_and(|said| said.contains(expected)), "{error:?}");
    };
    refused(
        "udp dport 1 add @floods { ip saddr ct count over 2 } drop\nadd @floods { ip saddr ct count over 3 } drop",
        "two rules ask elements of the set `floods` for different things; write a set for each limit",
    );
    refused(
        "add @floods { ip saddr ct count over 2 } drop\nadd @floods { ip daddr ct count over 2 } drop",
        "two rules count connections in the set `floods` by different fields or timeouts; write a set for each",
    );
    refused(
        "add @floods { ip saddr ct count over 2 } drop\nudp dport 1 delete @floods { ip saddr }",
        "a rule deletes elements of the set `floods`, in which live connections are counted; leave it out",
    );
}

/// A host that proves itself is let out of a ban, and who was in no set is none the worse.
#[test]
fn packets_delete_what_packets_have_put_in() {
    let sets = "set banned { type ipv4_addr; flags dynamic,timeout; timeout 1h; }";
    let rules = "udp dport 54 add @banned { ip saddr } drop
        udp dport 55 delete @banned { ip saddr } counter accept
        ip saddr @banned drop";
    let mut fw = bench(sets, rules);
    let sends = |host: u8, port: u16| Frame::udp(&format!("192.0.2.{host}:{port}"), &format!("10.0.0.1:{port}"));
    for second in [0, 100] {
        for host in [8, 9] {
            check(&mut fw, 1, second, sends(host, 55), "pass");
            check(&mut fw, 1, second, sends(host, 53), "pass");
            check(&mut fw, 1, second, sends(host, 54), "denied");
            check(&mut fw, 1, second, sends(host, 53), "denied");
        }
        check(&mut fw, 1, second, sends(9, 55), "pass");
        check(&mut fw, 1, second, sends(9, 53), "pass");
        check(&mut fw, 1, second, sends(8, 53), "denied");
    }
}
