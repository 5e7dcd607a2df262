//! An end that always takes the place of the same one: what that does to checksums is known before a packet comes.
//!
//! For packets without detours alone: TCP and UDP behind IPv4 without options ([`PLAIN`]) or IPv6 without extension headers
//! ([`PLAIN_V6_TCP`], [`PLAIN_V6_UDP`]). All others go the long way with the same end.

use super::{PLAIN, Side, load_u16, load_u32, store_u16, sunk_by, write_plain};
use crate::address::IpAddress;
use crate::checksum::ShortChange;

/// Bytes from the IPv6 header on, with the checksum of UDP behind it.
pub(crate) const PLAIN_V6_UDP: usize = 48;
/// The same with TCP's fixed header.
pub(crate) const PLAIN_V6_TCP: usize = 60;

/// One end of packets, to be written over another one that is known beforehand: then what that does to checksums is, too. Two share
/// a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
pub struct Exchange {
    pub(crate) address: IpAddress,
    pub(crate) port: Option<u16>,
    /// The address, if it is one of IPv4.
    pub(crate) v4: Option<[u8; 4]>,
    /// What it does to the checksum of an IPv4 header that counts one hop.
    header: ShortChange,
    /// What it does to one that covers address and port.
    transport: ShortChange,
    pub(crate) side: Side,
}

const _: () = assert!(size_of::<Exchange>() == 32);

impl Exchange {
    /// Of packets that come with the source `old`, which gets the address `new` and, if there is one, that port.
    pub fn of_src(old: (IpAddress, u16), new: (IpAddress, Option<u16>)) -> Exchange {
        Exchange::new(Side::Source, old, new)
    }

    /// The same for the destination.
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
        // Packets of IPv4 have but the last word of an address.
        let all = if address.is_v4() { last } else { (0..3).fold(last, |change, i| change.u32(from[i], to[i])) };
        let transport = port.map_or(all, |port| all.u16(old.1.to_be(), port.to_be()));
        Exchange { address, port, v4: address.v4(), header: last.sunk(sunk_by(1)), transport, side }
    }

    /// Writes the end into a packet that has the one that is exchanged; one hop is counted, of which there must be one.
    #[inline(always)]
    pub(crate) fn write(&self, ip: &mut [u8; PLAIN], udp: bool, address: [u8; 4]) {
        debug_assert!(self.is_from(ip), "the packet has another end than the one that is exchanged");
        write_plain(ip, (self.side, udp), (address, self.port), 1, (self.header, self.transport));
    }

    /// The same for IPv6 with UDP ([`PLAIN_V6_UDP`] bytes) or TCP ([`PLAIN_V6_TCP`]).
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

    /// Whether a packet has the end that is exchanged, as far as the checksums can tell.
    fn is_from(&self, ip: &[u8; PLAIN]) -> bool {
        let (address_at, port_at) = self.side.places();
        let address = IpAddress::from_v4(load_u32(ip, address_at).to_ne_bytes());
        let here = Exchange::new(self.side, (address, u16::from_be(load_u16(ip, port_at))), (self.address, self.port));
        (here.header.apply(1), here.transport.apply(1)) == (self.header.apply(1), self.transport.apply(1))
    }
}
