//! The cookie itself: a number that stands for a SYN, so that nothing has to be remembered of it.
//!
//! It is the first sequence number of the answer, made nearly as Linux makes it (`net/ipv4/syncookies.c`, after D. J. Bernstein):
//! 8 bits of time in minutes, 2 bits for the client's segment size, 22 bits that must fit, all under a keyed hash. One that is
//! older than two minutes, or of other ends, is refused; of 2^32 guesses eight are right. In Linux the client's first number is
//! added and not hashed, and sizes are neighbours: there the number of any byte near a cookie may be one too, which would matter
//! here, where a cookie may end an old connection's set.
//!
//! What else the client offered stands in the low bits of the time stamp that it will echo, as in Linux' `nf_synproxy_core.c`.

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::{Tcp, TcpOption, View};
use braid_nf::prelude::*;
use siphasher::sip::SipHasher24;

/// Segment sizes that a cookie can tell, by family: those that occur most, Linux' `msstab`.
const SIZES: [[u16; 4]; 2] = [[536, 1300, 1440, 1460], [1220, 1420, 1440, 8940]];
/// Minutes in which a cookie is good.
const AGE_MAX: u32 = 2;
const MINUTE_NS: u64 = 60_000_000_000;
const LOW: u32 = 0x00ff_ffff;
/// Where the number of the size stands; what is below it must be zero without the hash.
const NUMBER_SHIFT: u32 = 22;

/// Low bits of the time stamp: the client's shift, [`NO_SHIFT`] if it offered none, and whether it takes selective
/// acknowledgements.
const SHIFT: u32 = 0x0f;
const NO_SHIFT: u32 = 0x0f;
const SACK: u32 = 0x10;
/// All bits that are not time.
const SAID: u32 = 0x3f;

/// Ends of a connection: what a cookie is made for, and what ICMP errors are looked up by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ends {
    pub(super) client: IpAddress,
    pub(super) server: IpAddress,
    pub(super) client_port: u16,
    pub(super) server_port: u16,
}

impl Ends {
    /// Of a segment that a client has sent.
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

/// The key of the hash: who knows it can forge cookies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub(super) [u8; 16]);

braid_nf::plain!(Secret);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// The cookie for a SYN with this first number whose sender takes segments of `size` bytes.
    pub(super) fn cookie(&self, ends: &Ends, first: u32, size: u16, now_ns: u64) -> u32 {
        let minute = minute(now_ns);
        // The largest that the client takes; a smaller one is never offered.
        let number = ends.sizes().iter().rposition(|known| *known <= size).unwrap_or(0) as u32;
        let low = self.hash(ends, first, Some(minute)).wrapping_add(number << NUMBER_SHIFT) & LOW;
        self.hash(ends, first, None).wrapping_add(minute << 24).wrapping_add(low)
    }

    /// The segment size that a cookie tells, if it was made for these ends and this first number not long ago.
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

/// What one end offers in its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Largest segment that it takes; 0: not said.
    pub(super) size: u16,
    /// By how much its windows are shifted.
    pub(super) shift: Option<u8>,
    /// Whether it takes selective acknowledgements.
    pub(super) sack: bool,
    /// Its time stamp and the one that it echoes.
    pub(super) stamps: Option<(u32, u32)>,
}

impl Offer {
    /// What a segment says.
    pub(super) fn of(tcp: &View<'_, Tcp>) -> Offer {
        let mut offer = Offer::default();
        for option in tcp.options() {
            match option {
                TcpOption::MaximumSegment(size) => offer.size = size,
                // RFC 7323 section 2.3: more than 14 means 14.
                TcpOption::WindowScale(shift) => offer.shift = Some(shift.min(14)),
                TcpOption::SackPermitted => offer.sack = true,
                TcpOption::Timestamps(value, echo) => offer.stamps = Some((value, echo)),
                _ => {}
            }
        }
        offer
    }

    /// What of it the answer can accept: shift and selective acknowledgements only with a time stamp to keep them in.
    pub(super) fn accepted(self, allowed: &Offer) -> Offer {
        let stamps = self.stamps.filter(|_| allowed.stamps.is_some());
        Offer {
            size: self.size,
            shift: self.shift.filter(|_| stamps.is_some() && allowed.shift.is_some()),
            sack: self.sack && stamps.is_some() && allowed.sack,
            stamps,
        }
    }

    /// The time stamp of the answer, which says what was accepted.
    pub(super) fn stamp(&self, now_ns: u64) -> u32 {
        let milliseconds = (now_ns / 1_000_000) as u32;
        milliseconds & !SAID | self.shift.map_or(NO_SHIFT, u32::from) | if self.sack { SACK } else { 0 }
    }

    /// What a client accepted that echoes such a stamp; `stamps` are its own and the echo.
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
