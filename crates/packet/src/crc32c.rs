//! CRC32c as used by SCTP (RFC 9260 appendix A), with an incremental update.
//!
//! A CRC is linear: the effect of an edit depends on the changed bits and on the number of bytes after them, not on the
//! values of those bytes. So a port can be rewritten without reading the packet, even if the packet is cut, and a wrong
//! checksum stays wrong.

/// Castagnoli's polynomial, least significant bit first.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut register = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            register = if register & 1 != 0 { register >> 1 ^ POLYNOMIAL } else { register >> 1 };
            bit += 1;
        }
        table[byte] = register;
        byte += 1;
    }
    table
};

#[inline]
fn shift_in(register: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(register, |register, byte| TABLE[(register as u8 ^ byte) as usize] ^ register >> 8)
}

/// Computes the CRC32c of some bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    !shift_in(!0, bytes)
}

/// Computes the checksum of an SCTP packet, treating its checksum field (bytes 8 to 12) as zero.
pub fn sctp(packet: &[u8]) -> u32 {
    let (before, rest) = packet.split_at(packet.len().min(8));
    let register = shift_in(shift_in(!0, before), &[0; 4][..rest.len().min(4)]);
    !shift_in(register, rest.get(4..).unwrap_or_default())
}

/// Returns the value to XOR into the CRC when `old` is replaced by `new` and `following` bytes come after them.
pub fn change(old: [u8; 4], new: [u8; 4], following: usize) -> u32 {
    let difference = (u32::from_ne_bytes(old) ^ u32::from_ne_bytes(new)).to_ne_bytes();
    multiply(zero_bytes(following), shift_in(0, &difference))
}

/// Returns x to the power of 8 · `count` modulo the polynomial: the factor by which shifting in `count` zero bytes multiplies
/// a register.
fn zero_bytes(count: usize) -> u32 {
    // The most significant bit is x^0.
    let (mut product, mut power, mut count) = (1 << 31, 1 << 23, count);
    while count != 0 {
        if count & 1 != 0 {
            product = multiply(product, power);
        }
        power = multiply(power, power);
        count >>= 1;
    }
    product
}

fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    for bit in (0..32).rev() {
        if a >> bit & 1 != 0 {
            product ^= b;
        }
        b = if b & 1 != 0 { b >> 1 ^ POLYNOMIAL } else { b >> 1 };
    }
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn vectors_of_rfc_3720_come_out() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    proptest! {
        #[test]
        fn a_change_equals_full_recomputation(
            mut packet in prop::collection::vec(any::<u8>(), 4..300), at in any::<prop::sample::Index>(), new: [u8; 4],
        ) {
            let at = at.index(packet.len() - 3);
            let before = crc32c(&packet);
            let old = packet[at..at + 4].try_into().unwrap();
            packet[at..at + 4].copy_from_slice(&new);
            prop_assert_eq!(before ^ change(old, new, packet.len() - at - 4), crc32c(&packet));
        }

        #[test]
        fn the_checksum_field_counts_as_zero(mut packet in prop::collection::vec(any::<u8>(), 0..64)) {
            let sum = sctp(&packet);
            for byte in packet.iter_mut().skip(8).take(4) {
                *byte = 0;
            }
            prop_assert_eq!(sum, crc32c(&packet));
        }
    }
}
