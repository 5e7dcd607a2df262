//! Replaces an end (address and port) that is known in advance, so that the effect on checksums can be precomputed.
//!
//! Only for the most common packets: TCP and UDP over IPv4 without options ([`PLAIN`]) or IPv6 without extension headers
//! ([`PLAIN_V6_TCP`], [`PLAIN_V6_UDP`]). All others take the slow path with the same end.

use super::{PLAIN, Side, load_u16, load_u32, store_u16, sunk_by, write_plain};
use crate::address::IpAddress;
use crate::checksum::ShortChange;

/// Length of the bytes from the IPv6 header through the UDP checksum.
pub(crate) const PLAIN_V6_UDP: usize = 48;
/// Length of the IPv6 header and TCP's fixed header in bytes.
pub(crate) const PLAIN_V6_TCP: usize = 60;

/// One end of packets that replaces another, where both are known in advance, with the precomputed changes of checksums. Two
/// of these share a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Exchange {
    pub(crate) address: IpAddress,
    pub(crate) port: Option<u16>,
    /// The address, if it is IPv4.
    pub(crate) v4: Option<[u8; 4]>,
    /// Change of an IPv4 header checksum, including the decrement of the hop count.
    header: ShortChange,
    /// Change of a checksum that covers address and port.
    transport: ShortChange,
    pub(crate) side: Side,
}

const _: () = assert!(size_of::<Exchange>() == 32);

impl Exchange {
    /// Creates an exchange for packets with the source `old`, which get the address `new` and, if given, the port.
    pub fn of_src(old: (IpAddress, u16), new: (IpAddress, Option<u16>)) -> Exchange {
        Exchange::new(Side::Source, old, new)
    }

    /// Creates an exchange for packets with the destination `old`, like [`of_src`](Self::of_src).
    pub fn of_dst(old: (IpAddress, u16), new: (IpAddress, Option<u16>)) -> Exchange {
        Exchange::new(Side::Destination, old, new)
    }

    fn new(side: Side, old: (IpAddress, u16), (address, port): (IpAddress, Option<u16>)) -> Exchange {
        let words = |address: IpAddress| -> [u32; 4] {
            let octets = address.octets();
            std::array::from_fn(|i| octets[i * 4..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word)))
        };
        let (from, to) = (words(old.0), words(address));
        let last = ShortChange::of_u32(from[3], to[3]);
        // An IPv4 address differs only in the last word of its mapped form.
        let all = if address.is_v4() { last } else { (0..3).fold(last, |change, i| change.u32(from[i], to[i])) };
        let transport = port.map_or(all, |port| all.u16(old.1.to_be(), port.to_be()));
        Exchange { address, port, v4: address.v4(), header: last.sunk(sunk_by(1)), transport, side }
    }

    /// Writes the new end into a packet with the old one, and decrements the hop count, which must be at least one.
    #[inline(always)]
    pub(crate) fn write(&self, ip: &mut [u8; PLAIN], udp: bool, address: [u8; 4]) {
        debug_assert!(self.is_from(ip), "the packet has another end than the one that is exchanged");
        write_plain(ip, (self.side, udp), (address, self.port), 1, (self.header, self.transport));
    }

    /// Like [`write`](Self::write), for IPv6 with UDP ([`PLAIN_V6_UDP`] bytes) or TCP ([`PLAIN_V6_TCP`]).
    #[inline(always)]
    pub(crate) fn write_v6<const N: usize>(&self, ip: &mut [u8; N]) {
        const { assert!(N == PLAIN_V6_UDP || N == PLAIN_V6_TCP) };
        let (address_at, port_at) = if self.side == Side::Source { (8, 40) } else { (24, 42) };
        ip[address_at..address_at + 16].copy_from_slice(&self.address.octets());
        ip[7] -= 1;
        if let Some(port) = self.port {
            store_u16(ip, port_at, port.to_be());
        }
        if N == PLAIN_V6_UDP {
            store_u16(ip, 46, self.transport.apply_udp(load_u16(ip, 46)));
        } else {
            store_u16(ip, 56, self.transport.apply(load_u16(ip, 56)));
        }
    }

    /// Returns whether a packet has the old end, as far as the checksum changes can tell.
    fn is_from(&self, ip: &[u8; PLAIN]) -> bool {
        let (address_at, port_at) = self.side.places();
        let address = IpAddress::from_v4(load_u32(ip, address_at).to_ne_bytes());
        let here = Exchange::new(self.side, (address, u16::from_be(load_u16(ip, port_at))), (self.address, self.port));
        (here.header.apply(1), here.transport.apply(1)) == (self.header.apply(1), self.transport.apply(1))
    }
}
