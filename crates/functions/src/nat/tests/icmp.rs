//! ICMP errors about translated packets, by what they quote.

use super::*;

#[test]
fn icmp_errors_are_translated_with_the_packet_that_they_quote() {
    let mut nat = bench(Config::default());
    let sent = nat.send(0, 0, &Frame::udp(HOST, SERVER).payload(b"question").bytes());
    let router = Frame::unreachable("203.0.113.9", "198.51.100.1", sent.only().1);
    let expected = "0: unreachable 203.0.113.9 > 10.0.0.1 [udp 10.0.0.1:1100 > 192.0.2.9:80] ttl 63";
    check(&mut nat, 1, 0, router, expected);
    let sent = nat.send(1, 0, &Frame::udp(SERVER, EXTERNAL).payload(b"answer").bytes());
    let host = Frame::unreachable("10.0.0.1", "192.0.2.9", sent.only().1);
    let expected = "1: unreachable 198.51.100.1 > 192.0.2.9 [udp 192.0.2.9:80 > 198.51.100.1:1100] ttl 63";
    check(&mut nat, 0, 0, host, expected);
    let sent = nat.send(0, 0, &Frame::echo_request("10.0.0.1", "192.0.2.9", 4000, 1).bytes());
    let unreachable = Frame::unreachable("192.0.2.9", "198.51.100.1", sent.only().1);
    check(
        &mut nat,
        1,
        0,
        unreachable,
        "0: unreachable 192.0.2.9 > 10.0.0.1 [ping 10.0.0.1 > 192.0.2.9 id 4000] ttl 63",
    );
}

#[test]
fn icmp_errors_about_hairpins_are_translated_at_both_ends() {
    let mut nat = bench(Config::default());
    nat.send(0, 0, &Frame::udp("10.0.0.2:2200", SERVER).bytes());
    let sent = nat.send(0, 0, &Frame::udp(HOST, "198.51.100.1:2200").bytes());
    let error = Frame::unreachable("10.0.0.2", "198.51.100.1", sent.only().1);
    let expected = "0: unreachable 198.51.100.1 > 10.0.0.1 [udp 10.0.0.1:1100 > 198.51.100.1:2200] ttl 63";
    check(&mut nat, 0, 0, error, expected);
}

#[test]
fn icmp_errors_about_nothing_are_dropped() {
    let mut nat = bench(Config::default());
    let quoted = Frame::udp(EXTERNAL, SERVER).bytes();
    check(&mut nat, 1, 0, Frame::unreachable("203.0.113.9", "198.51.100.1", &quoted), "drop no_mapping");
    let quoted = Frame::udp(SERVER, HOST).bytes();
    check(&mut nat, 0, 0, Frame::unreachable("10.0.0.1", "192.0.2.9", &quoted), "drop no_mapping");
}

#[test]
fn icmp_errors_with_wrong_checksums_are_dropped() {
    let mut nat = bench(Config::default());
    let sent = nat.send(0, 0, &Frame::udp(HOST, SERVER).payload(b"question").bytes());
    let good = Frame::unreachable("203.0.113.9", "198.51.100.1", sent.only().1).bytes();
    assert_eq!(nat.send(1, 0, &good).ports(), [0]);
    // Corrupts the code of the message, its checksum, and the TTL of the quoted header, the last with a corrected message
    // checksum.
    for at in [35, 36] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(nat.send(1, 0, &bad).dropped, Some("bad_checksum"));
    }
    let mut quoted = sent.only().1.to_vec();
    quoted[22] ^= 1;
    let bad = Frame::unreachable("203.0.113.9", "198.51.100.1", &quoted).bytes();
    assert_eq!(nat.send(1, 0, &bad).dropped, Some("bad_checksum"));
}
