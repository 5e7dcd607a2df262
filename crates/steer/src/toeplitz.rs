//! The Toeplitz hash of receive-side scaling, exactly as NICs compute it, by table.
//!
//! The hash of an input is the exclusive or, over every set bit, of the 32 key bits that begin at that bit's position (Microsoft, *RSS hashing
//! functions*, `ComputeHash`). It is linear, so each input byte has a table of 256 results, and an input of 12 bytes costs 12 look-ups. Two
//! consequences are used throughout this crate:
//!
//! - a zero byte contributes nothing: a field is left out by masking it to zero, and its neighbours keep their positions;
//! - whoever knows the key can construct colliding inputs: use a random key where that matters ([`Key::random`]).
//!
//! The caller lays inputs out in the order in which NICs concatenate them: source address, destination address, source port, destination port,
//! all in network byte order.

use std::fmt;

/// Length of the shortest key: 40 bytes, to hash the 36 bytes of an IPv6 address pair and two ports.
pub const KEY_MIN: usize = 40;
/// Length of the longest key that software accepts; Intel's 700 and 800 series take 52 bytes.
pub const KEY_MAX: usize = 80;

/// Microsoft's verification key, which most drivers install by default (*Verifying the RSS hash calculation*).
pub const MICROSOFT_KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b,
    0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
    0x01, 0xfa,
];

/// Why some bytes are not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The length is outside the range for a Toeplitz key here.
    #[error("a hash key has {KEY_MIN} to {KEY_MAX} bytes, not {0}")]
    Length(usize),
}

/// A hash key of [`KEY_MIN`] to [`KEY_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Key {
    bytes: [u8; KEY_MAX],
    len: usize,
}

impl Key {
    /// Creates a key from bytes as given by a driver or `ethtool -X … hkey`.
    pub fn new(bytes: &[u8]) -> Result<Key, KeyError> {
        if !(KEY_MIN..=KEY_MAX).contains(&bytes.len()) {
            return Err(KeyError::Length(bytes.len()));
        }
        let mut key = Key { bytes: [0; KEY_MAX], len: bytes.len() };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(key)
    }

    /// Microsoft's key, 40 bytes.
    pub fn microsoft() -> Key {
        Key::from_fn(40, |i| MICROSOFT_KEY[i])
    }

    /// The key that repeats 0x6d5a: both directions of a connection hash alike, because swapping fields moves bits by multiples of 16.
    ///
    /// From Woo and Park, *Scalable TCP session monitoring with symmetric receive-side scaling*, 2012. It makes any NIC symmetric, but yields only
    /// 16 different bits (the two halves of the hash are equal).
    pub fn symmetric(len: usize) -> Key {
        Key::from_fn(len, |i| [0x6d, 0x5a][i % 2])
    }

    /// A key derived from a seed, the same on every machine.
    pub fn random(len: usize, seed: u64) -> Key {
        let mut state = seed;
        Key::from_fn(len, |_| (mix(&mut state) >> 32) as u8)
    }

    /// This key, extended by bytes that depend on it, because software hashes more fields than a NIC's key covers.
    pub fn extended(&self, len: usize) -> Key {
        let mut state = self.bytes().iter().fold(0u64, |sum, &byte| sum.rotate_left(9) ^ u64::from(byte));
        Key::from_fn(len.max(self.len), |i| if i < self.len { self.bytes[i] } else { (mix(&mut state) >> 32) as u8 })
    }

    fn from_fn(len: usize, mut byte: impl FnMut(usize) -> u8) -> Key {
        let len = len.clamp(KEY_MIN, KEY_MAX);
        let mut key = Key { bytes: [0; KEY_MAX], len };
        for (i, place) in key.bytes[..len].iter_mut().enumerate() {
            *place = byte(i);
        }
        key
    }

    /// The bytes of the key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Number of input bytes that the key covers.
    pub fn input_max(&self) -> usize {
        self.len - 4
    }

    /// Whether bit `i`, counted from the first byte's highest, is set.
    pub fn bit(&self, i: usize) -> bool {
        self.bytes[i / 8] >> (7 - i % 8) & 1 != 0
    }

    /// Clears bit `i`.
    pub fn clear_bit(&mut self, i: usize) {
        self.bytes[i / 8] &= !(1 << (7 - i % 8));
    }

    /// The 32 key bits that begin at bit `i`: what an input bit at `i` contributes to the hash.
    pub fn window(&self, i: usize) -> u32 {
        (i..i + 32).fold(0, |window, bit| window << 1 | u32::from(self.bit(bit)))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// Formats the key as `ethtool -X … hkey` takes it: hexadecimal bytes between colons.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.bytes().iter().enumerate() {
            write!(f, "{}{byte:02x}", if i == 0 { "" } else { ":" })?;
        }
        Ok(())
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): one step of a small generator.
fn mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// A key expanded to tables: 1 KiB for each input byte.
#[derive(Clone)]
pub struct Toeplitz {
    tables: Box<[[u32; 256]]>,
    key: Key,
}

impl Toeplitz {
    /// Builds the tables.
    pub fn new(key: &Key) -> Toeplitz {
        let tables = (0..key.input_max()).map(|position| byte_table(key, position)).collect();
        Toeplitz { tables, key: *key }
    }

    /// The key.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The hash of an input that begins at byte 0. Bytes beyond what the key covers are ignored.
    #[inline]
    pub fn hash(&self, input: &[u8]) -> u32 {
        self.hash_at(0, input)
    }

    /// The contribution of an input that begins at byte `start`; contributions at different positions combine by exclusive or.
    #[inline]
    pub fn hash_at(&self, start: usize, input: &[u8]) -> u32 {
        let tables = self.tables.get(start..).unwrap_or_default();
        input.iter().zip(tables).fold(0, |hash, (&byte, table)| hash ^ table[byte as usize])
    }

    /// The hash of an input whose length is known at compile time, so that no loop remains.
    #[inline(always)]
    pub fn hash_fixed<const N: usize>(&self, input: &[u8; N]) -> u32 {
        const { assert!(N <= KEY_MIN - 4, "every key covers it") };
        let Some(tables) = self.tables.first_chunk::<N>() else { unreachable!("a key covers at least 36 bytes") };
        let mut hash = 0;
        for (table, &byte) in tables.iter().zip(input) {
            hash ^= table[byte as usize];
        }
        hash
    }
}

impl fmt::Debug for Toeplitz {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Toeplitz").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The results for every value of the input byte at `position`, each computed from the one without its lowest set bit.
fn byte_table(key: &Key, position: usize) -> [u32; 256] {
    let mut table = [0; 256];
    for value in 1..256usize {
        let lowest = value.trailing_zeros() as usize;
        table[value] = table[value & (value - 1)] ^ key.window(position * 8 + 7 - lowest);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

    use proptest::prelude::*;

    use super::*;

    /// The definition, bit by bit, as an oracle.
    fn by_definition(key: &Key, input: &[u8]) -> u32 {
        let set = |bit: &usize| input[bit / 8] >> (7 - bit % 8) & 1 != 0;
        (0..input.len() * 8).filter(set).fold(0, |hash, bit| hash ^ key.window(bit))
    }

    fn input(source: &str, destination: &str) -> (Vec<u8>, usize) {
        let (source, destination): (SocketAddr, SocketAddr) = (source.parse().unwrap(), destination.parse().unwrap());
        let mut bytes = Vec::new();
        for end in [source, destination] {
            match end.ip() {
                std::net::IpAddr::V4(ip) => bytes.extend(Ipv4Addr::octets(&ip)),
                std::net::IpAddr::V6(ip) => bytes.extend(Ipv6Addr::octets(&ip)),
            }
        }
        let addresses = bytes.len();
        bytes.extend(source.port().to_be_bytes());
        bytes.extend(destination.port().to_be_bytes());
        (bytes, addresses)
    }

    fn check(destination: &str, source: &str, with_ports: u32, addresses_only: u32) {
        let (bytes, addresses) = input(source, destination);
        let hash = Toeplitz::new(&Key::microsoft());
        assert_eq!(hash.hash(&bytes), with_ports);
        assert_eq!(hash.hash(&bytes[..addresses]), addresses_only);
        if let Ok(fixed) = bytes.as_slice().try_into() {
            assert_eq!(hash.hash_fixed::<12>(fixed), with_ports);
        }
    }

    /// Microsoft, *Verifying the RSS hash calculation*; the same table is in Intel's 82599 data sheet, 7.1.2.8.3.
    #[test]
    fn microsofts_verification_vectors_hold() {
        check("161.142.100.80:1766", "66.9.149.187:2794", 0x51cc_c178, 0x323e_8fc2);
        check("65.69.140.83:4739", "199.92.111.2:14230", 0xc626_b0ea, 0xd718_262a);
        check("12.22.207.184:38024", "24.19.198.95:12898", 0x5c2b_394a, 0xd2d0_a5de);
        check("209.142.163.6:2217", "38.27.205.30:48228", 0xafc7_327f, 0x8298_9176);
        check("202.188.127.2:1303", "153.39.163.191:44251", 0x10e8_28a2, 0x5d18_09c5);
        check("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x4020_7d3d, 0x2cc1_8cd5);
        check("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0xdde5_1bbf, 0x0f0c_461c);
        check(
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x02d1_feef,
            0x4b61_e985,
        );
    }

    #[test]
    fn keys_shorter_or_longer_than_any_hardware_takes_are_refused() {
        assert_eq!(Key::new(&[1; 39]), Err(KeyError::Length(39)));
        assert_eq!(Key::new(&[1; 81]), Err(KeyError::Length(81)));
        assert_eq!(Key::new(&[1; 52]).map(|key| key.input_max()), Ok(48));
    }

    #[test]
    fn a_key_is_printed_as_ethtool_takes_it() {
        assert!(Key::microsoft().to_string().starts_with("6d:5a:56:da:25"));
    }

    proptest! {
        #[test]
        fn tables_agree_with_the_definition(seed: u64, len in 40usize..=80, input: [u8; 36], used in 0usize..=36) {
            let (key, bytes) = (Key::random(len, seed), &input[..used]);
            prop_assert_eq!(Toeplitz::new(&key).hash(bytes), by_definition(&key, bytes));
        }

        #[test]
        fn the_repeated_key_hashes_both_directions_alike(a: [u8; 4], b: [u8; 4], p: [u8; 2], q: [u8; 2]) {
            let hash = Toeplitz::new(&Key::symmetric(52));
            prop_assert_eq!(hash.hash(&[&a[..], &b, &p, &q].concat()), hash.hash(&[&b[..], &a, &q, &p].concat()));
        }

        #[test]
        fn parts_combine_by_exclusive_or(bytes: [u8; 40], cut in 0usize..40) {
            let hash = Toeplitz::new(&Key::random(52, 7));
            prop_assert_eq!(hash.hash(&bytes), hash.hash(&bytes[..cut]) ^ hash.hash_at(cut, &bytes[cut..]));
        }

        #[test]
        fn an_extended_key_hashes_short_inputs_as_before(bytes: [u8; 36]) {
            let key = Key::microsoft();
            prop_assert_eq!(Toeplitz::new(&key).hash(&bytes), Toeplitz::new(&key.extended(80)).hash(&bytes));
        }
    }
}
