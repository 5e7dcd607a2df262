//! Fragmented datagrams: fragments after the first follow it, earlier ones wait for it.

use super::*;

#[test]
fn later_fragments_follow_the_first() {
    let mut nat = bench(Config::default());
    let later = |id| Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(id, 2, false).payload(&[7; 24]);
    let first = Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(9, 0, true);
    check(&mut nat, 0, 0, later(9), "drop fragment_held");
    assert_eq!(nat.send(0, 0, &first.clone().bytes()).ports(), [1, 1], "the one that waited goes on");
    check(&mut nat, 0, 1, later(9), "1: ip 198.51.100.1 > 192.0.2.9 proto 17 ttl 63");
    check(&mut nat, 0, 1, later(8), "drop fragment_held");
    check(&mut nat, 0, 40, later(9), "drop fragment_held");
    assert_eq!(nat.send(0, 80_000, &first.bytes()).ports(), [1], "what waited for too long is gone");
    let back = |id| Frame::ip("192.0.2.9", "198.51.100.1", 17).fragment(id, 2, false).payload(&[7; 24]);
    let first = Frame::udp(SERVER, EXTERNAL).payload(&[7; 8]).fragment(5, 0, true);
    assert_eq!(nat.send(1, 41_000, &first.bytes()).ports(), [0]);
    check(&mut nat, 1, 41, back(5), "0: ip 192.0.2.9 > 10.0.0.1 proto 17 ttl 63");
}

#[test]
fn all_but_the_first_of_a_datagram_in_many_fragments_wait() {
    let mut nat = bench(Config::default());
    let later = |n: u16| Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(9, 60 * n, n < 110).payload(&[n as u8; 480]);
    for n in (1..=110).rev() {
        check(&mut nat, 0, 0, later(n), "drop fragment_held");
    }
    let first = Frame::udp(HOST, SERVER).payload(&[7; 472]).fragment(9, 0, true);
    let outcome = nat.send(0, 0, &first.bytes());
    assert_eq!(outcome.ports(), [1; 111]);
    let numbers = outcome.sent.iter().map(|(_, frame)| frame[34]).filter(|n| *n != 0x04 && *n != 7);
    assert!(numbers.eq((1..=110).rev().filter(|n| *n != 4 && *n != 7)), "in order of arrival");
    // More than this wait for no datagram.
    for n in 0..129u16 {
        let expected = if n < 128 { "drop fragment_held" } else { "drop fragment_before_first" };
        check(
            &mut nat,
            0,
            0,
            Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(8, 60 + n, true).payload(&[7; 8]),
            expected,
        );
    }
}

#[test]
fn fragments_that_find_no_place_to_wait_are_dropped() {
    let later = |id| Frame::ip("10.0.0.1", "192.0.2.9", 17).fragment(id, 2, false).payload(&[7; 24]);
    let mut nat = bench(Config { held_max: 1, ..Config::default() });
    check(&mut nat, 0, 0, later(1), "drop fragment_held");
    check(&mut nat, 0, 0, later(2), "drop fragment_before_first");
    let mut nat = bench(Config { held_max: 0, ..Config::default() });
    check(&mut nat, 0, 0, later(1), "drop fragment_before_first");
}

#[test]
fn fragments_that_find_no_room_are_dropped() {
    let mut nat = bench(Config { fragments_max: 1, ..Config::default() });
    let first = |id| Frame::udp(HOST, SERVER).payload(&[7; 8]).fragment(id, 0, true);
    assert_eq!(nat.send(0, 0, &first(1).bytes()).ports(), [1]);
    check(&mut nat, 0, 0, first(2), "drop fragment_table_full");
}
