//! Readdresses the replies of a capture to what a NAT chose.
//!
//! A capture from inside shows replies as they are after translation. To feed them to a NAT from outside, they must be addressed to
//! the address and port that this NAT (the kernel's or ours) assigned to the connection. Each NAT under comparison gets its own
//! [`Replies`], which learns from what that NAT sent; in the end the NAT should deliver each reply as recorded. IPv4 only.

use std::collections::HashMap;
use std::net::Ipv4Addr;

use super::screen::{fold, network_offset, network_packet, sum};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A connection from inside: protocol, inside address and port, remote address and port. For an echo, the
/// inside port is its identifier and the remote port is 0.
type Connection = (u8, Ipv4Addr, u16, Ipv4Addr, u16);

/// The addresses and ports that one NAT chose for the connections it has seen.
#[derive(Debug, Default)]
pub struct Replies {
    outside: HashMap<Connection, (Ipv4Addr, u16)>,
}

impl Replies {
    /// Learns how a frame from inside (`before`) left on the outside (`after`). Frames without ports are ignored.
    pub fn learn(&mut self, before: &[u8], after: &[u8]) {
        let (Some(before), Some(after)) = (network_packet(before), network_packet(after)) else { return };
        let (Some(before), Some(after)) = (Ports::of(before), Ports::of(after)) else { return };
        self.outside.insert(before.connection(), (after.source, after.source_port));
    }

    /// The address and port that the NAT assigned to the connection of this frame from inside.
    pub fn chosen_for(&self, frame: &[u8]) -> Option<(Ipv4Addr, u16)> {
        self.outside.get(&Ports::of(network_packet(frame)?)?.connection()).copied()
    }

    /// Readdresses a frame that was received inside to the outside of the NAT; correct checksums stay correct. The packet that an
    /// ICMP error quotes is also changed. `None` if the frame belongs to no known connection.
    pub fn readdress(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let start = network_offset(frame)?;
        let packet = network_packet(frame)?;
        let mut readdressed = frame[..start + packet.len()].to_vec();
        let whole = &mut readdressed[start..];
        match quoted_at(packet) {
            Some(quote) => {
                let ports = Ports::of(&packet[quote..])?;
                let (address, port) = *self.outside.get(&ports.connection())?;
                ports.change_source(&mut whole[quote..], address, port);
                write_address(whole, 16, address, &[10]);
                renew_icmp_sum(&mut whole[header_len(packet)..]);
            }
            None => {
                let ports = Ports::of(packet)?;
                let (address, port) = *self.outside.get(&ports.reverse().connection())?;
                ports.change_destination(whole, address, port);
            }
        }
        Some(readdressed)
    }
}

/// Addresses and ports of a packet, and their positions.
struct Ports {
    header: usize,
    protocol: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    source_port: u16,
    destination_port: u16,
}

impl Ports {
    /// Parses a packet that need not be complete: a quote may end eight bytes after its IP header.
    fn of(packet: &[u8]) -> Option<Ports> {
        if packet.len() < 20 || packet[0] >> 4 != 4 || is_later_fragment(packet) {
            return None;
        }
        let header = header_len(packet);
        let transport = packet.get(header..header + 8)?;
        let word = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
        let protocol = packet[9];
        let (source_port, destination_port) = match (protocol, transport[0]) {
            (TCP | UDP, _) => (word(0), word(2)),
            (ICMP, 8) => (word(4), 0), // echo request
            (ICMP, 0) => (0, word(4)), // echo reply
            _ => return None,
        };
        let address = |at: usize| Ipv4Addr::new(packet[at], packet[at + 1], packet[at + 2], packet[at + 3]);
        Some(Ports { header, protocol, source: address(12), destination: address(16), source_port, destination_port })
    }

    fn connection(&self) -> Connection {
        (self.protocol, self.source, self.source_port, self.destination, self.destination_port)
    }

    fn reverse(&self) -> Ports {
        Ports {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }

    fn change_source(&self, packet: &mut [u8], address: Ipv4Addr, port: u16) {
        self.change(packet, 12, address, 0, port);
    }

    fn change_destination(&self, packet: &mut [u8], address: Ipv4Addr, port: u16) {
        self.change(packet, 16, address, 2, port);
    }

    fn change(&self, packet: &mut [u8], address_at: usize, address: Ipv4Addr, port_at: usize, port: u16) {
        let transport_sum = self.header + if self.protocol == TCP { 16 } else { 6 };
        match self.protocol {
            ICMP => {
                write_address(packet, address_at, address, &[10]);
                write_word(packet, self.header + 4, port, &[self.header + 2]);
            }
            UDP if packet[transport_sum..transport_sum + 2] == [0, 0] => {
                write_address(packet, address_at, address, &[10]);
                write_word(packet, self.header + port_at, port, &[]);
            }
            _ => {
                write_address(packet, address_at, address, &[10, transport_sum]);
                write_word(packet, self.header + port_at, port, &[transport_sum]);
            }
        }
    }
}

/// Where the packet quoted by an ICMP error begins.
fn quoted_at(packet: &[u8]) -> Option<usize> {
    let header = header_len(packet);
    let is_error = packet[0] >> 4 == 4 && packet[9] == ICMP && matches!(packet.get(header)?, 3 | 4 | 5 | 11 | 12);
    (is_error && packet.len() > header + 8).then_some(header + 8)
}

fn header_len(packet: &[u8]) -> usize {
    usize::from(packet[0] & 0xf) * 4
}

fn is_later_fragment(packet: &[u8]) -> bool {
    u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff != 0
}

fn write_address(packet: &mut [u8], at: usize, address: Ipv4Addr, sums: &[usize]) {
    let [a, b, c, d] = address.octets();
    write_word(packet, at, u16::from_be_bytes([a, b]), sums);
    write_word(packet, at + 2, u16::from_be_bytes([c, d]), sums);
}

/// Writes a word and adjusts the checksums at `sums` (RFC 1624, equation 3), except for a checksum beyond the end of a quote.
fn write_word(packet: &mut [u8], at: usize, new: u16, sums: &[usize]) {
    let old = u16::from_be_bytes([packet[at], packet[at + 1]]);
    packet[at..at + 2].copy_from_slice(&new.to_be_bytes());
    for &at in sums {
        if let Some([high, low]) = packet.get_mut(at..at + 2) {
            let before = !u16::from_be_bytes([*high, *low]);
            let after = !fold(u64::from(before) + u64::from(!old) + u64::from(new));
            [*high, *low] = after.to_be_bytes();
        }
    }
}

fn renew_icmp_sum(message: &mut [u8]) {
    message[2..4].fill(0);
    let renewed = !fold(sum(message));
    message[2..4].copy_from_slice(&renewed.to_be_bytes());
}
