//! Tests of fragments for the router itself, however they are cut and in whatever order they arrive.

use braid_nf::packet::{IpAddress, checksum};
use braid_testkit::{Frame, assert_checksums};
use proptest::prelude::*;

use super::{CONFIG, HOST, OURS, bench};

/// The ends of an echo request over IPv4 and over IPv6, and the offset of its ICMP message in a frame.
const ENDS: [(&str, &str, usize); 2] = [("10.0.0.7", "10.0.0.1", 34), ("2001:db8:1::7", "2001:db8:1::1", 54)];
/// Bytes of the IPv6 fragment header.
const PIECE: usize = 8;

/// The ICMP message of an echo request with `len` bytes of data.
fn request(v6: usize, len: usize) -> Vec<u8> {
    let (from, to, start) = ENDS[v6];
    let payload: Vec<u8> = (0..len).map(|n| ((n * 7) >> 3) as u8).collect();
    Frame::echo_request(from, to, 5, 6).payload(&payload).bytes().split_off(start)
}

/// A fragment of it.
fn piece(v6: usize, bytes: &[u8], offset: usize, more: bool) -> Vec<u8> {
    let (from, to, _) = ENDS[v6];
    if v6 == 0 {
        return Frame::ip(from, to, 1)
            .mac(HOST, OURS[0])
            .payload(bytes)
            .fragment(77, (offset / 8) as u16, more)
            .bytes();
    }
    let [high, low] = (offset as u16 | u16::from(more)).to_be_bytes();
    let header = [58, 0, high, low, 0, 1, 0, 77];
    Frame::ip(from, to, 44).mac(HOST, OURS[0]).payload(&[&header, bytes].concat()).bytes()
}

/// Reassembles the fragments of a reply; each byte must arrive exactly once.
fn put_together(v6: usize, sent: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let start = ENDS[v6].2;
    let mut whole = Vec::new();
    for (port, frame) in sent {
        assert_eq!((*port, &frame[..6], &frame[6..12]), (0, &HOST[..], &OURS[0][..]));
        assert!(frame.len() <= 14 + 1400, "{} bytes are more than the link takes", frame.len());
        let (offset, bytes) = match v6 {
            0 => (u16::from_be_bytes([frame[20], frame[21]]) & 0x1fff, &frame[start..]),
            _ if frame[20] == 44 => (u16::from_be_bytes([frame[56], frame[57]]) >> 3, &frame[start + PIECE..]),
            _ => (0, &frame[start..]),
        };
        if v6 == 0 {
            assert!(checksum::ipv4_header_ok(&frame[14..34]));
        }
        whole.push((usize::from(offset) * 8, bytes.to_vec()));
    }
    whole.sort();
    let mut reply = Vec::new();
    for (offset, bytes) in whole {
        assert_eq!(offset, reply.len(), "pieces that follow each other");
        reply.extend(bytes);
    }
    reply
}

/// The tests' router, with an MTU on the first link that is less than a full frame.
fn config() -> String {
    CONFIG.replacen("port = 0\nmac", "port = 0\nmtu = 1400\nmac", 1)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the length, the cuts, the order and the repetitions, the reply carries what the request carried, in fragments
    /// that fit the link.
    #[test]
    fn what_is_put_together_is_what_was_cut(
        len in 8usize..20_000,
        cuts in prop::collection::btree_set(1usize..2500, 1..40),
        order in any::<u64>(),
        again in any::<prop::sample::Index>(),
        v6 in 0usize..2,
    ) {
        let asked = request(v6, len);
        let ends: Vec<usize> = cuts.into_iter().map(|cut| cut * 8).filter(|cut| *cut < asked.len()).chain([asked.len()]).collect();
        let mut pieces = Vec::new();
        let mut from = 0;
        for &to in &ends {
            // No frame of the bench is longer than a buffer.
            for at in (from..to).step_by(1400) {
                let end = to.min(at + 1400);
                pieces.push(piece(v6, &asked[at..end], at, end < asked.len()));
            }
            from = to;
        }
        prop_assume!(pieces.len() > 1);
        let mut chance = order | 1;
        for place in (1..pieces.len()).rev() {
            chance = chance.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            pieces.swap(place, (chance >> 33) as usize % (place + 1));
        }
        let mut bench = bench(10, &config());
        let (last, others) = pieces.split_last().expect("there are some");
        let again = again.index(others.len());
        for (number, frame) in others.iter().enumerate() {
            prop_assert_eq!(bench.send(0, 0, frame).dropped, Some("waits_for_pieces"));
            if number == again {
                prop_assert_eq!(bench.send(0, 0, frame).dropped, Some("piece_again"));
            }
        }
        let outcome = bench.send(0, 0, last);
        prop_assert_eq!(outcome.dropped, Some("for_this_router"));
        let reply = put_together(v6, &outcome.sent);
        prop_assert_eq!(&reply[4..], &asked[4..], "number, and what was sent");
        prop_assert_eq!(reply[0], [0, 129][v6]);
        let ends = [ENDS[v6].1, ENDS[v6].0].map(|end| end.parse::<IpAddress>().expect("an address"));
        let is_right = if v6 == 0 { checksum::ipv4_header_ok(&reply) } else { checksum::transport_ok(ends[0], ends[1], 58, &reply) };
        prop_assert!(is_right);
    }

    /// Fragments with arbitrary contents, even with a correct checksum: one or two, which may overlap partly.
    #[test]
    fn pieces_of_anything_do_no_harm(
        bytes in prop::collection::vec(any::<u8>(), 1..60),
        protocol in prop::sample::select(vec![1u8, 6, 17, 58, 44, 0, 60, 51, 253]),
        (cut, overlap) in (0usize..8, 0usize..2),
        v6 in 0usize..2,
        first in any::<bool>(),
    ) {
        let (from, to, start) = ENDS[v6];
        let ends = [from, to].map(|end| end.parse::<IpAddress>().expect("an address"));
        let mut bytes = bytes;
        if bytes.len() > 3 {
            bytes[2..4].fill(0);
            let sum = if v6 == 0 { checksum::ipv4_header(&bytes) } else { checksum::transport(ends[0], ends[1], protocol, &bytes) };
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        let at = (cut * 8).min(bytes.len());
        let mut bench = bench(10, &config());
        let rest = at.saturating_sub(overlap * 8);
        for (offset, part, more) in [(0, &bytes[..at], true), (rest, &bytes[rest..], false)] {
            if part.is_empty() || first && offset > 0 {
                continue;
            }
            let mut frame = piece(v6, part, offset, more);
            // As the header that follows the fragment header, or the IPv4 header.
            let named = if v6 == 0 { 23 } else { start };
            frame[named] = protocol;
            if v6 == 0 {
                frame[24..26].fill(0);
                let sum = checksum::ipv4_header(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let outcome = bench.send(0, 0, &frame);
            prop_assert!(outcome.dropped.is_some_and(|reason| reason != "handler_panic"), "{:?}", outcome.dropped);
        }
    }

    /// Two fragments that overlap other than with the same bytes: nothing is ever answered, and no byte is kept.
    #[test]
    fn pieces_that_overlap_end_their_datagram(at in 1usize..100, len in 1usize..100, v6 in 0usize..2) {
        let asked = request(v6, 1592);
        let mut other = asked.clone();
        other.iter_mut().for_each(|byte| *byte = !*byte);
        let mut bench = bench(10, &config());
        let (from, to) = (at * 8, (at + len).min(199) * 8);
        prop_assert_eq!(bench.send(0, 0, &piece(v6, &asked[..808], 0, true)).dropped, Some("waits_for_pieces"));
        let met = bench.send(0, 0, &piece(v6, &other[from..to], from, true)).dropped;
        prop_assert_eq!(met, Some(if from < 808 { "pieces_overlap" } else { "waits_for_pieces" }));
        if from < 808 {
            let rest = bench.send(0, 0, &piece(v6, &asked[808..], 808, false));
            prop_assert_eq!((rest.dropped, rest.sent.len()), (Some("pieces_overlap"), 0));
        }
    }
}

#[test]
fn a_piece_that_is_all_of_its_datagram_waits_for_nothing() {
    for v6 in [0, 1] {
        let mut bench = bench(10, &config());
        let asked = request(v6, 100);
        // Another datagram with the same identification.
        assert_eq!(bench.send(0, 0, &piece(v6, &[9; 80], 0, true)).dropped, Some("waits_for_pieces"));
        let outcome = bench.send(0, 0, &piece(v6, &asked, 0, false));
        let (port, reply) = outcome.only();
        assert_checksums(reply);
        assert_eq!((port, &reply[ENDS[v6].2 + 4..]), (0, &asked[4..]));
    }
}

#[test]
fn pieces_whose_time_is_over_are_none_of_a_datagram_that_takes_their_number() {
    for v6 in [0, 1] {
        let mut bench = bench(10, &config());
        let asked = request(v6, 1592);
        assert_eq!(bench.send(0, 0, &piece(v6, &[9; 808], 0, true)).dropped, Some("waits_for_pieces"));
        // Nothing happens in between, not even a sweep.
        assert_eq!(bench.send(0, 60_001, &piece(v6, &asked[..400], 0, true)).dropped, Some("waits_for_pieces"));
        let outcome = bench.send(0, 60_001, &piece(v6, &asked[400..], 400, false));
        assert_eq!(put_together(v6, &outcome.sent)[4..], asked[4..]);
    }
}

/// A flood of first fragments takes all the room; a datagram that arrives a few seconds later is reassembled nevertheless.
#[test]
fn datagrams_that_have_waited_longest_make_room() {
    let mut router = bench(64, &format!("reassembly_max = 64\n{CONFIG}"));
    let first = |n: u16| {
        let frame = Frame::ip(&format!("10.0.0.{}", 8 + n % 90), ENDS[0].1, 1).mac(HOST, OURS[0]);
        frame.payload(&[8; 800]).fragment(1000 + n, 0, true).bytes()
    };
    for n in 0..64 {
        assert_eq!(router.send(0, 0, &first(n)).dropped, Some("waits_for_pieces"));
    }
    assert_eq!(router.send(0, 0, &first(64)).dropped, Some("no_room_for_pieces"), "all have come just now");
    let bytes = request(0, 1500);
    router.send(0, 3000, &piece(0, &bytes[800..], 800, false));
    let sent = router.send(0, 3000, &piece(0, &bytes[..800], 0, true)).sent;
    assert!(!sent.is_empty(), "both kilobytes found room");
    let findings = router.findings();
    let [in_vain, crowded_out] = ["pieces_in_vain", "pieces_crowded_out"].map(|name| findings.sums().get(name));
    // Some were crowded out, the others have waited in vain at the end.
    assert!(crowded_out.is_some_and(|crowded_out| *crowded_out < 64), "{:?}", findings.sums());
    assert_eq!(in_vain, Some(&64));
}

#[test]
fn an_echo_request_that_is_cut_short_is_none() {
    let ends = [ENDS[1].0, ENDS[1].1].map(|end| end.parse::<IpAddress>().expect("an address"));
    let short = |word: u16| [&[128][..], &word.to_be_bytes()].concat();
    let mut right = (0..=u16::MAX).map(short).filter(|bytes| checksum::transport_ok(ends[0], ends[1], 58, bytes));
    let bytes = right.next().expect("one whose checksum is right");
    let outcome = bench(10, &config()).send(0, 0, &piece(1, &bytes, 0, false));
    assert_eq!((outcome.dropped, outcome.sent.len()), (Some("malformed"), 0));
}

#[test]
fn a_piece_behind_the_longest_datagram_is_refused() {
    for v6 in [0, 1] {
        let mut bench = bench(10, &config());
        let outcome = bench.send(0, 0, &piece(v6, &[9; 80], 65_528, false));
        assert_eq!(outcome.dropped, Some("malformed"));
        if v6 == 1 {
            let (_, told) = outcome.only();
            assert_checksums(told);
            assert_eq!((told[54], &told[58..62]), (4, &[0, 0, 0, 42][..]), "parameter problem, at the offset");
        }
    }
}
