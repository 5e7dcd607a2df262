//! SYN cookies: a number that encodes a SYN, so that nothing about it has to be stored.
//!
//! A cookie is the initial sequence number of the answer, made almost as in Linux (`net/ipv4/syncookies.c`, after D. J.
//! Bernstein): 8 bits of time in minutes, 2 bits for the client's segment size and 22 check bits, all combined with a
//! keyed hash. A cookie that is older than two minutes or belongs to other endpoints is refused; of 2^32 guesses eight
//! are valid. Linux adds the client's initial sequence number instead of hashing it, and encodes segment sizes as
//! neighbouring values, so numbers close to a cookie can be valid too. That would matter here, where a cookie may replace
//! the set of an old connection.
//!
//! The client's other options are kept in the low bits of the time stamp that it echoes, as in Linux's
//! `nf_synproxy_core.c`.

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::{Tcp, TcpOption, View};
use braid_nf::prelude::*;
use siphasher::sip::SipHasher24;

/// Segment sizes that a cookie can encode, by IP version: the most frequent ones, as in Linux's `msstab`.
const SIZES: [[u16; 4]; 2] = [[536, 1300, 1440, 1460], [1220, 1420, 1440, 8940]];
/// How long a cookie is valid, in minutes.
const AGE_MAX: u32 = 2;
const MINUTE_NS: u64 = 60_000_000_000;
const LOW: u32 = 0x00ff_ffff;
/// The position of the size's index; the bits below must be zero once the hash is subtracted.
const NUMBER_SHIFT: u32 = 22;

/// Low bits of the time stamp: the client's window scale, or [`NO_SHIFT`] if it offered none, and whether it permits
/// selective acknowledgements.
const SHIFT: u32 = 0x0f;
const NO_SHIFT: u32 = 0x0f;
const SACK: u32 = 0x10;
/// All bits of the time stamp that do not hold time.
const SAID: u32 = 0x3f;

/// The endpoints of a connection, which a cookie is made for and by which ICMP errors are looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ends {
    pub(super) client: IpAddress,
    pub(super) server: IpAddress,
    pub(super) client_port: u16,
    pub(super) server_port: u16,
}

impl Ends {
    /// The endpoints of a segment that a client has sent.
    pub(super) fn of(packet: &Packet<'_>, tcp: &View<'_, Tcp>) -> Ends {
        Ends {
            client: packet.src_ip(),
            server: packet.dst_ip(),
            client_port: tcp.source_port(),
            server_port: tcp.destination_port(),
        }
    }

    fn sizes(&self) -> &'static [u16; 4] {
        &SIZES[usize::from(!self.client.is_v4())]
    }
}

/// The key of the hash; whoever knows it can forge cookies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub(super) [u8; 16]);

braid_nf::plain!(Secret);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The cookie for a SYN with initial sequence number `first`, whose sender accepts segments of `size` bytes.
    pub(super) fn cookie(&self, ends: &Ends, first: u32, size: u16, now_ns: u64) -> u32 {
        let minute = minute(now_ns);
        // The largest size that the client accepts; the smallest of the table if it accepts none of them.
        let number = ends.sizes().iter().rposition(|known| *known <= size).unwrap_or(0) as u32;
        let low = self.hash(ends, first, Some(minute)).wrapping_add(number << NUMBER_SHIFT) & LOW;
        self.hash(ends, first, None).wrapping_add(minute << 24).wrapping_add(low)
    }

    /// The segment size encoded in a cookie, if the cookie was made for these endpoints and this initial sequence number
    /// recently enough.
    pub(super) fn check(&self, ends: &Ends, first: u32, cookie: u32, now_ns: u64) -> Option<u16> {
        let minute = minute(now_ns);
        let rest = cookie.wrapping_sub(self.hash(ends, first, None));
        let age = minute.wrapping_sub(rest >> 24) & 0xff;
        if age >= AGE_MAX {
            return None;
        }
        let number = rest.wrapping_sub(self.hash(ends, first, Some(minute.wrapping_sub(age)))) & LOW;
        let fits = number & ((1 << NUMBER_SHIFT) - 1) == 0;
        ends.sizes().get((number >> NUMBER_SHIFT) as usize).copied().filter(|_| fits)
    }

    fn hash(&self, ends: &Ends, first: u32, minute: Option<u32>) -> u32 {
        let mut bytes = [0; size_of::<Ends>() + 9];
        let (of_ends, rest) = bytes.split_at_mut(size_of::<Ends>());
        of_ends.copy_from_slice(ends.as_bytes());
        let (of_first, of_time) = rest.split_at_mut(4);
        of_first.copy_from_slice(&first.to_le_bytes());
        if let Some(minute) = minute {
            of_time[0] = 1;
            of_time[1..].copy_from_slice(&minute.to_le_bytes());
        }
        SipHasher24::new_with_key(&self.0).hash(&bytes) as u32
    }
}

fn minute(now_ns: u64) -> u32 {
    (now_ns / MINUTE_NS) as u32
}

/// The options that one end offers in its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// The maximum segment size in bytes; 0: not given.
    pub(super) size: u16,
    /// The window scale.
    pub(super) shift: Option<u8>,
    /// Whether it permits selective acknowledgements.
    pub(super) sack: bool,
    /// Its time stamp and the one that it echoes.
    pub(super) stamps: Option<(u32, u32)>,
}

impl Offer {
    /// The options of a segment.
    pub(super) fn of(tcp: &View<'_, Tcp>) -> Offer {
        let mut offer = Offer::default();
        for option in tcp.options() {
            match option {
                TcpOption::MaximumSegment(size) => offer.size = size,
                // A window scale above 14 counts as 14 (RFC 7323 section 2.3).
                TcpOption::WindowScale(shift) => offer.shift = Some(shift.min(14)),
                TcpOption::SackPermitted => offer.sack = true,
                TcpOption::Timestamps(value, echo) => offer.stamps = Some((value, echo)),
                _ => {}
            }
        }
        offer
    }

    /// The options that the answer can accept. Window scale and selective acknowledgements need a time stamp to be
    /// encoded in.
    pub(super) fn accepted(self, allowed: &Offer) -> Offer {
        let stamps = self.stamps.filter(|_| allowed.stamps.is_some());
        Offer {
            size: self.size,
            shift: self.shift.filter(|_| stamps.is_some() && allowed.shift.is_some()),
            sack: self.sack && stamps.is_some() && allowed.sack,
            stamps,
        }
    }

    /// The time stamp of the answer, which encodes the accepted options.
    pub(super) fn stamp(&self, now_ns: u64) -> u32 {
        let milliseconds = (now_ns / 1_000_000) as u32;
        milliseconds & !SAID | self.shift.map_or(NO_SHIFT, u32::from) | if self.sack { SACK } else { 0 }
    }

    /// The options that a client accepted, decoded from the time stamp it echoes; `stamps` are its own and the echoed
    /// one.
    pub(super) fn from_echo(size: u16, stamps: Option<(u32, u32)>) -> Offer {
        let Some((_, echo)) = stamps else { return Offer { size, ..Offer::default() } };
        let shift = (echo & SHIFT != NO_SHIFT).then_some((echo & SHIFT) as u8);
        Offer { size, shift, sack: echo & SACK != 0, stamps }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ends(host: u8, port: u16) -> Ends {
        let (client, server) = (IpAddress::from_v4([10, 0, 0, host]), IpAddress::from_v4([192, 0, 2, 1]));
        Ends { client, server, client_port: port, server_port: 80 }
    }

    proptest! {
        #[test]
        fn a_cookie_tells_the_size_for_two_minutes_and_to_its_ends_only(
            key: [u8; 16], host: u8, port: u16, first: u32, size: u16, start in 0..1u64 << 60, age in 0..300u64,
        ) {
            let (secret, ends) = (Secret(key), ends(host, port));
            let cookie = secret.cookie(&ends, first, size, start);
            let later = start + age * 1_000_000_000;
            let told = secret.check(&ends, first, cookie, later);
            let minutes = later / MINUTE_NS - start / MINUTE_NS;
            let expected = SIZES[0].iter().rev().find(|known| **known <= size).or(SIZES[0].first()).copied();
            prop_assert_eq!(told, expected.filter(|_| minutes < 2));
            prop_assert_eq!(secret.check(&ends, first.wrapping_add(0x1000), cookie, start), None);
        }

        #[test]
        fn an_echo_tells_what_was_accepted(shift in proptest::option::of(0..15u8), sack: bool, now: u64) {
            let offer = Offer { size: 1460, shift, sack, stamps: Some((7, 0)) };
            let echoed = Offer::from_echo(1460, Some((7, offer.stamp(now))));
            prop_assert_eq!((echoed.shift, echoed.sack), (shift, sack));
        }
    }

    #[test]
    fn few_guesses_are_right() {
        let secret = Secret([7; 16]);
        let right = (0..1 << 20).filter(|guess: &u32| {
            secret.check(&ends(1, 1), 5, guess.wrapping_mul(0x9e37_79b1), 90_000_000_000).is_some()
        });
        assert!(right.count() <= 1, "8 of 2^32, so none of 2^20");
    }
}
