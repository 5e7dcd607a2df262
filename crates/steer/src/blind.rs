//! Hash keys that make part of what a NIC hashes irrelevant for the choice of the queue.
//!
//! Some NICs hash both addresses or nothing, while a packet set may need, say, the destination alone. The hash is linear in the input, and only
//! its low bits select the entry of the indirection table: the input bit at position *p* reaches the *r* index bits through the key bits
//! *p* + 32 - *r* to *p* + 31. If those are zero, the bit has no influence on the *queue* (it still has on the upper bits of the hash). Zero
//! bits in the key are the trick of NFOS for its policer. Clearing whole windows of 32 bits would leave a source address hardly any
//! influence on the index; clearing only for the index bits costs *r* - 1 neighbours. Maestro (Pereira et al., NSDI 2024) solves for such keys
//! in general.
//!
//! A key serves one layout of the input. IPv4 and IPv6 have their fields at different positions, and a key that is blind for the source of
//! one is blind for half of the destination of the other. So the key is for IPv4, and IPv6 needs another solution.

use std::ops::Range;

use braid_packet::FieldId;

use crate::fields::Fields;
use crate::toeplitz::Key;

/// The bits of a field in the input that a NIC builds from an IPv4 packet; empty for fields that are not part of it.
pub fn ipv4_bits(field: FieldId) -> Range<usize> {
    match field {
        FieldId::IpSrc => 0..32,
        FieldId::IpDst => 32..64,
        FieldId::SrcPort => 64..80,
        FieldId::DstPort => 80..96,
        _ => 0..0,
    }
}

/// A key under which an IPv4 packet's queue depends only on the `kept` ones among the `hashed` fields, for an indirection table of
/// 2^`index_bits` entries. `None` if not every entry could then be reached.
pub fn blind_key(base: &Key, hashed: Fields, kept: Fields, index_bits: u32) -> Option<Key> {
    let r = index_bits as usize;
    let mut key = *base;
    for position in hashed.without(kept).iter().flat_map(ipv4_bits) {
        (position + 32 - r..position + 32).for_each(|bit| key.clear_bit(bit));
    }
    let seen = kept.common(hashed).iter().flat_map(ipv4_bits).map(|position| key.window(position));
    (rank(seen, index_bits) == index_bits).then_some(key)
}

/// Number of independent index bits that inputs with these windows can set: 2^rank entries can be reached.
fn rank(windows: impl Iterator<Item = u32>, index_bits: u32) -> u32 {
    let mask = ((1u64 << index_bits) - 1) as u32;
    // Gaussian elimination over GF(2): `basis[i]` has its highest bit at i.
    let mut basis = [0u32; 32];
    for window in windows {
        let mut rest = window & mask;
        while rest != 0 {
            let high = 31 - rest.leading_zeros() as usize;
            if basis[high] == 0 {
                basis[high] = rest;
                break;
            }
            rest ^= basis[high];
        }
    }
    basis.iter().filter(|&&row| row != 0).count() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reta::{Reta, imbalance};
    use crate::toeplitz::Toeplitz;

    fn check(hashed: Fields, kept: Fields, entries: usize) {
        let reta = Reta::new(entries, 2).unwrap();
        let key = blind_key(&Key::microsoft(), hashed, kept, reta.index_bits());
        let key = key.unwrap_or_else(|| panic!("no key for {kept} of {hashed}"));
        let hash = Toeplitz::new(&key);
        let plain = Toeplitz::new(&Key::microsoft());
        let (mut ignored, mut seen) = (true, 0);
        for bit in hashed.iter().flat_map(ipv4_bits) {
            let mut input = [0u8; 12];
            input[bit / 8] = 1 << (7 - bit % 8);
            let moves = reta.entry(hash.hash(&input)) != 0;
            match kept.iter().any(|field| ipv4_bits(field).contains(&bit)) {
                true => seen += u32::from(moves),
                false => ignored &= !moves,
            }
            assert!(plain.hash(&input) != 0);
        }
        assert!(ignored, "a field outside {kept} moves packets to another queue");
        assert!(seen >= reta.index_bits());
    }

    const SRC: Fields = Fields::of(&[FieldId::IpSrc]);
    const DST: Fields = Fields::of(&[FieldId::IpDst]);

    #[test]
    fn one_address_of_two_can_be_hashed() {
        check(Fields::ADDRESSES, DST, 128);
        check(Fields::ADDRESSES, SRC, 128);
        check(Fields::ADDRESSES, DST, 512);
        check(Fields::ADDRESSES, SRC, 512);
    }

    #[test]
    fn one_address_of_a_four_tuple_can_be_hashed() {
        check(Fields::FOUR_TUPLE, DST, 512);
        check(Fields::FOUR_TUPLE, SRC, 512);
        check(Fields::FOUR_TUPLE, Fields::ADDRESSES, 512);
    }

    #[test]
    fn one_port_of_a_four_tuple_can_be_hashed_but_not_nothing() {
        check(Fields::FOUR_TUPLE, Fields::of(&[FieldId::SrcPort]), 512);
        assert_eq!(blind_key(&Key::microsoft(), Fields::FOUR_TUPLE, Fields::NONE, 7), None);
    }

    #[test]
    fn hosts_of_one_network_spread_evenly_under_a_blind_key() {
        let reta = Reta::new(128, 4).unwrap();
        let hash = Toeplitz::new(&blind_key(&Key::microsoft(), Fields::ADDRESSES, SRC, 7).unwrap());
        let mut load = [0u64; 4];
        for host in 0..4096u16 {
            let [high, low] = host.to_be_bytes();
            load[reta.worker(hash.hash(&[10, 1, high, low, 192, 0, 2, 1]))] += 1;
        }
        assert!(imbalance(&load) < 1.1, "{load:?}");
    }

    proptest! {
        #[test]
        fn source_and_ports_do_not_move_a_destination(dst: [u8; 4], a: [u8; 4], b: [u8; 4], p: [u8; 4], q: [u8; 4]) {
            let hash = Toeplitz::new(&blind_key(&Key::microsoft(), Fields::FOUR_TUPLE, DST, 9).unwrap());
            let reta = Reta::new(512, 5).unwrap();
            let worker = |src: [u8; 4], ports: [u8; 4]| reta.worker(hash.hash(&[src, dst, ports].concat()));
            prop_assert_eq!(worker(a, p), worker(b, q));
        }
    }
}
