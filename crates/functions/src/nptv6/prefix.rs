//! The mapping of RFC 6296: exchanges the prefix, and adjusts one word so that the sum of all words is unchanged.

use braid_nf::packet::IpAddress;
use braid_nf::packet::checksum::add;

/// The number of 16-bit words in an address.
const WORDS: usize = 8;

/// The bits of an address that are its interface identifier.
const IDENTIFIER: u128 = u64::MAX as u128;

/// Why an address cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unmapped {
    /// Its subnet is all ones, or beyond what both prefixes have (RFC 6296 section 3.2).
    Subnet,
    /// Its interface identifier is all ones or all zeros, or would become so; with prefixes longer than 48 bits (section
    /// 3.7).
    Identifier,
}

/// Maps addresses of one prefix to another of the same length, at most 64 bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    from: u128,
    to: u128,
    mask: u128,
    /// The first word that may be adjusted. It is the only one for prefixes of up to 48 bits (section 3.4); for longer
    /// ones the first word from here on that is not all ones is adjusted (section 3.5).
    word: usize,
    adjustment: u16,
}

impl Mapping {
    pub(super) fn new(from: u128, to: u128, bits: u32) -> Mapping {
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let adjustment = add(sum(from & mask), !sum(to & mask));
        Mapping { from: from & mask, to: to & mask, mask, word: if bits <= 48 { 3 } else { 4 }, adjustment }
    }

    /// The mapped address, if there is one.
    pub(super) fn map(&self, address: IpAddress) -> Result<IpAddress, Unmapped> {
        let address = u128::from_be_bytes(address.octets());
        if address & self.mask != self.from {
            return Err(Unmapped::Subnet);
        }
        let at = match self.word {
            3 if word(address, 3) == 0xffff => return Err(Unmapped::Subnet),
            3 => 3,
            _ if address & IDENTIFIER == 0 => return Err(Unmapped::Identifier),
            first => (first..WORDS).find(|at| word(address, *at) != 0xffff).ok_or(Unmapped::Identifier)?,
        };
        // Zero and all ones are equal in one's complement: zero is written (section 3.2).
        let adjusted = match add(word(address, at), self.adjustment) {
            0xffff => 0,
            sum => sum,
        };
        let shift = 16 * (WORDS - 1 - at);
        let mapped = (address & !self.mask | self.to) & !(0xffff << shift) | u128::from(adjusted) << shift;
        // Such an address could not be mapped back.
        if self.word != 3 && mapped & IDENTIFIER == 0 {
            return Err(Unmapped::Identifier);
        }
        Ok(IpAddress::from_v6(mapped.to_be_bytes()))
    }
}

fn word(address: u128, at: usize) -> u16 {
    (address >> (16 * (WORDS - 1 - at))) as u16
}

/// Sum of all words in one's complement.
fn sum(address: u128) -> u16 {
    (0..WORDS).fold(0, |total, at| add(total, word(address, at)))
}
