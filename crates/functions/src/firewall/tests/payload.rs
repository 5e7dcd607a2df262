//! Bits named by their place, and header fields that are read the same way, from frames. The testkit compares them with
//! the kernel.

use braid_testkit::Frame;

use super::known::bench_of;
use super::rules::{PORTS, named, read_text};
use crate::firewall::{When, explain};

fn table(condition: &str) -> String {
    format!("table inet t {{ chain f {{ type filter hook forward priority 0; policy drop; {condition} accept; }} }}")
}

/// Checks whether a condition lets a frame from inside through.
#[track_caller]
fn check(condition: &str, frame: &Frame, expected: bool) {
    let bytes = frame.clone().bytes();
    let outcome = bench_of(&table(condition)).send(0, 0, &bytes);
    assert_eq!(!outcome.sent.is_empty(), expected, "{condition}");
}

/// As in the kernel: the type behind the addresses is that of the outermost tag, and `vlan` behind `vlan type 8021q` is the inner one.
#[test]
fn tags_of_both_kinds_are_told_apart() {
    let plain = Frame::udp("10.0.0.1:1100", "192.0.2.9:53");
    let [one, two] = [plain.clone().vlan(5), plain.clone().vlan(5).vlan(6)];
    for (condition, expected) in [
        ("ether type 8021ad", [false, false, true]),
        ("ether type 0x88a8", [false, false, true]),
        ("ether type != 8021ad", [true, true, false]),
        ("ether type { 8021q, 8021ad }", [false, true, true]),
        ("ether type { ip, 8021ad }", [true, false, true]),
        ("ether type vlan", [false, true, true]),
        ("ether type != vlan", [true, false, false]),
        ("ether type ip", [true, true, true]),
        ("ether type > 0x800", [false, true, true]),
        ("ether type & 0xff00 == 0x8800", [false, false, true]),
        ("vlan id 5", [false, true, true]),
        ("vlan type 8021q", [false, false, true]),
        ("ether type 8021ad vlan id 5 vlan type 8021q vlan id 6", [false, false, true]),
        ("ether type 8021ad vlan id 5 vlan type vlan vlan id 5", [false, false, false]),
        ("vlan id 5 vlan type vlan vlan id 4-7 vlan pcp 0 vlan type ip", [false, false, true]),
        ("vlan type ip", [false, true, true]),
        ("ether daddr 02:00:00:00:00:00/40", [true, true, true]),
        ("ether daddr 01:80:c2:00:00:00/40", [false, false, false]),
    ] {
        for (frame, expected) in [&plain, &one, &two].into_iter().zip(expected) {
            check(condition, frame, expected);
        }
    }
    let text = table("vlan type vlan vlan type vlan");
    let error = read_text(&text, &mut named(), PORTS).expect_err("three tags").to_string();
    assert!(error.contains("no more than two tags are looked at"), "{error}");
}

#[test]
fn bits_are_asked_for_by_their_place() {
    let asks = Frame::udp("10.0.0.1:1100", "192.0.2.9:53").payload(&[0x12, 0x34, 1, 0, 0, 1]);
    let short = Frame::udp("10.0.0.1:1100", "192.0.2.9:53").payload(&[0x12]);
    let opens = Frame::tcp("10.0.0.1:1100", "192.0.2.9:80").flags("S").numbers(7, 0);
    let v6 = Frame::udp("[fd00::1]:1100", "[2001:db8::9]:53").payload(&[0x12, 0x34]);
    for (condition, [of_asks, of_short, of_opens, of_v6]) in [
        ("@th,16,16 53", [true, true, false, true]),
        ("@th,16,16 != 53", [false, false, true, false]),
        ("@th,0,16 { 1100, 7 }", [true, true, true, true]),
        ("@th,16,16 & 0x0f == 5", [true, true, false, true]),
        ("@th,20,12 > 60", [false, false, true, false]),
        ("@nh,0,4 4", [true, true, true, false]),
        ("@nh,4,4 5 @nh,72,8 17", [true, true, false, false]),
        ("@nh,128,32 0xc0000209", [true, true, true, false]),
        ("@nh,48,8 17", [false, false, false, true]),
        ("@ll,96,16 0x0800", [true, true, true, false]),
        // A packet that is too short matches nothing, not even an inequality.
        ("@ih,0,16 0x1234", [true, false, false, true]),
        ("@ih,0,16 != 0x1234", [false; 4]),
        ("@ih,0,16 & 0xff != 0", [true, false, false, true]),
        ("@ih,40,8 1", [true, false, false, false]),
        ("@ih,48,8 0-255", [false; 4]),
        ("@th,16,16 . @nh,0,4 { 53 . 4, 80 . 6 }", [true, true, false, false]),
        ("@th,16,16 . @ih,0,8 != { 53 . 0x34 }", [true, true, false, true]),
        ("@th,16,16 vmap { 53 : accept, 54 : drop }; ct state invalid", [true, true, false, true]),
    ] {
        check(condition, &asks, of_asks);
        check(condition, &short, of_short);
        check(condition, &opens, of_opens);
        check(condition, &v6, of_v6);
    }
    let page = |condition: &str| {
        let mut config = named();
        read_text(&table(condition), &mut config, PORTS).expect("rules");
        explain(config, 2, (0, &asks.clone().bytes()), When::Utc(0)).expect("a whole packet")
    };
    assert!(page("@th,16,16 & 0xff == 53").contains("bits @th,16,16 & 0xff 53: accept"), "{}", page("@th,16,16 53"));
}

#[test]
fn headers_of_other_protocols_are_looked_at() {
    let of = |protocol: u8, bytes: &[u8]| Frame::ip("10.0.0.1", "192.0.2.9", protocol).payload(bytes);
    let esp = of(50, &[0, 0, 0, 100, 0, 0, 0, 9]);
    let ah = of(51, &[6, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]);
    let igmp = of(2, &[0x16, 5, 0, 0, 224, 0, 0, 251]);
    let comp = of(108, &[6, 0, 0, 3]);
    let udplite = of(136, &[0, 7, 0, 53, 0, 8, 0, 0]);
    let dccp = of(33, &[0, 7, 0, 53, 4, 0, 0, 0, 2 << 1, 0, 0, 0]);
    let sctp = of(132, &[0, 7, 0, 53, 0, 0, 0, 5, 0, 0, 0, 0, 1, 0, 0, 20]);
    for (frame, good, bad) in [
        (&esp, "esp spi 100 esp sequence < 10", "esp spi { 101-200 }"),
        (&ah, "ah spi 256 ah nexthdr tcp ah hdrlength 4", "ah spi != 256"),
        (
            &igmp,
            "igmp type membership-report-v2 igmp group 224.0.0.251 igmp mrt 5",
            "igmp type { membership-query, 0x17 }",
        ),
        (&comp, "comp cpi 3 comp nexthdr tcp", "comp cpi != 3"),
        (&udplite, "udplite dport domain udplite sport 7", "udplite dport 54"),
        (&dccp, "dccp type data dccp dport 53", "dccp type request"),
        (&sctp, "sctp vtag 5 sctp dport 53", "sctp vtag 6"),
        (&esp, "esp spi . ip saddr { 100 . 10.0.0.1 }", "esp spi . ip saddr != { 100 . 10.0.0.1 }"),
    ] {
        check(good, frame, true);
        check(bad, frame, false);
        check(bad, &Frame::tcp("10.0.0.1:1100", "192.0.2.9:80").flags("S"), false);
    }
    // Over IPv6 too, whatever stands behind it.
    let protected =
        [&[6, 4, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1][..], &[0; 12], &[0, 7, 0, 22, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2], &[0; 6]];
    let over_v6 = |protocol, bytes: &[u8]| Frame::ip("fd00::1", "2001:db8::9", protocol).payload(bytes);
    let ah = over_v6(51, &protected.concat());
    for (condition, fits) in [
        ("ah spi 256 meta l4proto ah @th,0,8 6", true),
        ("tcp dport 22", false),
        ("tcp flags syn", false),
        ("meta l4proto tcp", false),
        ("@ih,0,8 0-255", false),
    ] {
        check(condition, &ah, fits);
    }
    check("igmp type 0x16", &over_v6(2, &[0x16, 5, 0, 0, 224, 0, 0, 251]), false);
    check("@ih,0,8 0x45", &of(4, &[0x45; 20]), true);
    let tagged = Frame::udp("10.0.0.1:1100", "192.0.2.9:53").vlan(5 << 13 | 10);
    check("vlan pcp 5 vlan dei 0 vlan id 10", &tagged, true);
    check("vlan pcp != 5", &tagged, false);
    check("vlan pcp != 5", &Frame::udp("10.0.0.1:1100", "192.0.2.9:53"), false);
}

#[test]
fn places_that_are_none_are_refused() {
    let many: String = (0..9).map(|at| format!("@th,{},8 1 accept; ", at * 8)).collect();
    for (rule, told) in [
        ("@th,16 53", "a place without its first bit and its length; write @th,16,16 53"),
        ("@th,64,64 0", "64 bits from 64 on: 1 to 48 are compared at once; write two of them"),
        ("@ih,0,0 0", "0 bits from 0 on: 1 to 48 are compared at once; write @th,16,16 53"),
        ("@th,16,8 256", "`256` is not a number such as"),
        (
            "@admins 5",
            "`@admins` is no condition; write @ll, @nh, @th or @ih; a set stands behind what it is asked for",
        ),
        ("esp sequnce 5", "`sequnce` of esp is not looked at; write one of esp spi, sequence"),
        (many.as_str(), "the rules look at more than 8 places of packets; write fields by their names"),
    ] {
        let error = read_text(&table(rule), &mut named(), PORTS).expect_err(rule).to_string();
        assert!(error.contains(told), "{error}");
    }
}
