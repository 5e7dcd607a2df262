//! Tests checksums against a plain word-by-word loop.

use proptest::prelude::*;

use super::*;
use crate::testing::naive_checksum;

/// The example of RFC 1071 section 3.
#[test]
fn the_example_of_the_standard_comes_out() {
    assert_eq!(Sum::default().add_bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).fold(), 0xddf2);
}

/// The example of RFC 1624 section 4: the old equation gives 0xffff.
#[test]
fn an_update_never_gives_the_wrong_zero() {
    assert_eq!(Change::NONE.u16(0x5555, 0x3285).apply(0xdd2f), 0x0000);
}

#[test]
fn zero_of_udp_means_none() {
    assert_eq!(Change::NONE.u16(1, 2).apply_udp(0), 0);
    // The sum becomes zero, which is sent as all ones.
    assert_eq!(Change::NONE.u16(0, 1).apply(0x0001), 0);
    assert_eq!(Change::NONE.u16(0, 1).apply_udp(0x0001), 0xffff);
}

#[test]
fn a_change_in_one_word_knows_both_zeroes() {
    for (old, new) in
        [(0, 0), (u32::MAX, 0), (u32::MAX, u32::MAX), (0, u32::MAX), (1, 0), (0xffff, 0), (0xffff_0000, 0)]
    {
        for checksum in [0, 1, 0xfffe, 0xffff] {
            let (short, long) = (ShortChange::of_u32(old, new), Change::NONE.u32(old, new));
            assert_eq!(short.apply(checksum), long.apply(checksum), "{old:x} {new:x} {checksum:x}");
            assert_eq!(short.apply_udp(checksum), long.apply_udp(checksum), "{old:x} {new:x} {checksum:x}");
        }
    }
}

proptest! {
    #[test]
    fn a_change_in_one_word_makes_the_same_checksums(old: u32, new: u32, word: (u16, u16), checksum: u16) {
        let short = ShortChange::of_u32(old, new).u16(word.0, word.1);
        let long = Change::NONE.u32(old, new).u16(word.0, word.1);
        prop_assert_eq!(short.apply(checksum), long.apply(checksum));
        prop_assert_eq!(short.apply_udp(checksum), long.apply_udp(checksum));
    }

    #[test]
    fn a_word_that_sank_is_a_word_that_was_replaced(before: u16, by: u16, rest: (u32, u32), checksum: u16) {
        prop_assume!(before >= by);
        let change = ShortChange::of_u32(rest.0, rest.1);
        prop_assert_eq!(change.sunk(by).apply(checksum), change.u16(before, before - by).apply(checksum));
    }

    #[test]
    fn the_sum_equals_that_of_a_plain_loop(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        prop_assert_eq!(Sum::default().add_bytes(&bytes).checksum(), naive_checksum(&[&bytes]));
    }

    #[test]
    fn an_update_equals_full_recomputation(
        mut bytes in prop::collection::vec(any::<u8>(), 2..100), at: prop::sample::Index, new in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        // A nonzero word keeps the sum from being zero, as in every real header.
        bytes.extend([0, 0, 0, 1][bytes.len() % 2..].iter());
        let at = at.index(bytes.len() / 2) * 2;
        let new = &new[..new.len().min(bytes.len() - at)];
        // An odd number of bytes in the middle would change only half of a word.
        let new = if at + new.len() == bytes.len() { new } else { &new[..new.len() & !1] };
        prop_assume!(bytes.len() - at - new.len() >= 2 || at > 0);
        let before = naive_checksum(&[&bytes]);
        let change = Change::NONE.bytes(&bytes[at..at + new.len()], new);
        bytes[at..at + new.len()].copy_from_slice(new);
        prop_assume!(bytes.iter().any(|byte| *byte != 0));
        prop_assert_eq!(change.apply(before), naive_checksum(&[&bytes]));
    }

    #[test]
    fn words_of_any_width_change_alike(old: u32, new: u32, checksum: u16) {
        let halves = Change::NONE.u16((old >> 16) as u16, (new >> 16) as u16).u16(old as u16, new as u16);
        let bytes = Change::NONE.bytes(&old.to_be_bytes(), &new.to_be_bytes());
        let whole = Change::NONE.u32(old, new);
        prop_assert_eq!(halves.apply(checksum) % 0xffff, whole.apply(checksum) % 0xffff);
        prop_assert_eq!(halves.apply(checksum) % 0xffff, bytes.apply(checksum) % 0xffff);
    }

    #[test]
    fn etherparse_computes_the_same_for_tcp(src: [u8; 4], dst: [u8; 4], payload in prop::collection::vec(any::<u8>(), 0..64)) {
        let header = etherparse::TcpHeader::new(1, 2, 3, 4);
        let expected = header.calc_checksum_ipv4_raw(src, dst, &payload).unwrap();
        let segment = [&header.to_bytes()[..], &payload].concat();
        let (src, dst) = (IpAddress::from_v4(src), IpAddress::from_v4(dst));
        prop_assert_eq!(transport(src, dst, 6, &segment), expected);
    }

    #[test]
    fn etherparse_computes_the_same_for_udp_over_ipv6(
        src: [u8; 16], dst: [u8; 16], payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut header = etherparse::UdpHeader::without_ipv4_checksum(1, 2, payload.len()).unwrap();
        header.checksum = 0;
        let expected = header.calc_checksum_ipv6_raw(src, dst, &payload).unwrap();
        let segment = [&header.to_bytes()[..], &payload].concat();
        let (src, dst) = (IpAddress::from_v6(src), IpAddress::from_v6(dst));
        prop_assert_eq!(udp_zero(transport(src, dst, 17, &segment)), expected);
    }
}
