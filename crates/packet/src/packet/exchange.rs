//! Replaces one end of a packet (address and port) by another, where both are known in advance ([`Exchange`]).

use super::{Packet, Translated};
use crate::edit::{Exchange, PLAIN, PLAIN_V6_TCP, PLAIN_V6_UDP};
use crate::record::{Flags, Record};

impl Packet<'_> {
    /// Like [`Packet::translate_src_if`] or [`Packet::translate_dst_if`], for a packet that has the end to be replaced.
    /// `plainly_v6` is the counterpart of `plainly` for IPv6 without extension headers; it gets the bytes from the IPv6
    /// header to the transport checksum.
    #[inline(always)]
    pub fn exchange_if(
        &mut self,
        exchange: &Exchange,
        (plainly, plainly_v6): (impl Fn(&[u8; PLAIN], bool) -> bool, impl Fn(&[u8], bool) -> bool),
        otherwise: impl FnOnce(&Packet<'_>) -> bool,
    ) -> Translated {
        // Separate paths for UDP and TCP, so that the protocol is tested only once.
        let done = match self.record.parsed() {
            Record::PLAINEST_UDP => self.exchange_plain::<true>(14, exchange, &plainly),
            Record::PLAINEST_TCP => self.exchange_plain::<false>(14, exchange, &plainly),
            _ => None,
        };
        done.unwrap_or_else(|| {
            self.out_of_line(|packet| {
                let done = match exchange.v4 {
                    Some(_) => packet.exchange_tagged(exchange, plainly),
                    None => packet.exchange_v6(exchange, plainly_v6),
                };
                done.unwrap_or_else(|| match otherwise(packet) {
                    true => packet.exchange_slowly(exchange),
                    false => Translated::Refused,
                })
            })
        })
    }

    /// [`exchange_if`](Self::exchange_if) for a plain IPv4 packet whose header begins at `at`, if `plainly` accepts it. `UDP`
    /// tells the transport protocol.
    #[inline(always)]
    fn exchange_plain<const UDP: bool>(
        &mut self,
        at: usize,
        exchange: &Exchange,
        plainly: impl Fn(&[u8; PLAIN], bool) -> bool,
    ) -> Option<Translated> {
        let new = exchange.v4?;
        let ip = self.change_chunk(at)?;
        if !plainly(ip, UDP) {
            return None;
        }
        if ip[8] <= 1 {
            return Some(Translated::Expired);
        }
        exchange.write(ip, UDP, new);
        Some(Translated::Done)
    }

    /// [`exchange_if`](Self::exchange_if) for a plain IPv4 packet at any offset, for example in tagged frames.
    #[inline(never)]
    fn exchange_tagged(
        &mut self,
        exchange: &Exchange,
        plainly: impl Fn(&[u8; PLAIN], bool) -> bool,
    ) -> Option<Translated> {
        match self.plain_at(Flags::FRAGMENT | Flags::LATER_FRAGMENT)? {
            (at, true) => self.exchange_plain::<true>(at, exchange, plainly),
            (at, false) => self.exchange_plain::<false>(at, exchange, plainly),
        }
    }

    /// Out of line together with its arguments, which would take registers from the loop that exchanges packets.
    #[inline(never)]
    fn exchange_slowly(&mut self, exchange: &Exchange) -> Translated {
        self.translate_slowly(exchange.side, exchange.address, exchange.port)
    }

    /// [`exchange_if`](Self::exchange_if) for IPv6 without extension headers, if `plainly` accepts it; `None` for anything else.
    #[inline(never)]
    fn exchange_v6(&mut self, exchange: &Exchange, plainly: impl Fn(&[u8], bool) -> bool) -> Option<Translated> {
        let l3 = self.record.l3 as usize;
        match self.is_plain_v6_udp()? {
            true => exchange_at::<PLAIN_V6_UDP>(self.change_chunk(l3)?, exchange, |ip| plainly(ip, true)),
            false => exchange_at::<PLAIN_V6_TCP>(self.change_chunk(l3)?, exchange, |ip| plainly(ip, false)),
        }
    }
}

/// Writes an end into an IPv6 packet that `plainly` accepts, if it has a hop left.
#[inline(always)]
fn exchange_at<const N: usize>(
    ip: &mut [u8; N],
    exchange: &Exchange,
    plainly: impl Fn(&[u8]) -> bool,
) -> Option<Translated> {
    if !plainly(ip) {
        return None;
    }
    if ip[7] <= 1 {
        return Some(Translated::Expired);
    }
    exchange.write_v6(ip);
    Some(Translated::Done)
}
