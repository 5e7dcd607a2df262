//! What rules examine of a packet.

use braid_nf::Port;
use braid_nf::packet::Packet;
use braid_nf::packet::headers::{Arp, Header};
use braid_nf::packet::parse::protocol;

use super::counts::Counts;
use super::ends::Ends;
use super::fields::{Field, Values};
use super::states::State;
use super::values::number;
use crate::parts::{Side, lengths};

/// A packet's endpoints, its conntrack state, and the port and side it arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts<'a> {
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) source_port: u16,
    /// For ICMP, type × 256 + code.
    pub(super) destination_port: u16,
    pub(super) protocol: u8,
    pub(super) flags: u8,
    pub(super) port: Port,
    pub(super) side: Side,
    pub(super) state: State,
    /// For an ICMP error about a connection: the addresses of its opener and of the other end.
    pub(super) opening: [u128; 2],
    /// Rarely examined fields; all absent if no rule examines any.
    pub(super) fields: &'a Values,
}

/// A packet as rules are asked about it: the side that it comes from, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Observed {
    pub(super) side: Side,
    pub(super) state: State,
}

/// What rules may examine that is not in the packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Context {
    /// The time in UTC, in nanoseconds.
    pub(super) wall_ns: u64,
    /// The ports by which it may leave, as bits.
    pub(super) exits: u64,
    /// The counters of its connection, if a rule may ask for them.
    pub(super) counts: Option<Counts>,
    /// For an ICMP error, the connection it is about.
    pub(super) quoted: Option<Quoted>,
}

/// The connection that an ICMP error is about: the endpoints of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quoted {
    pub(super) addresses: [u128; 2],
    /// `None` if its protocol has no ports.
    ports: Option<[u16; 2]>,
}

impl Quoted {
    /// The connection with these endpoints, opened from a side.
    pub(super) fn of(ends: &Ends, opener: Side) -> Quoted {
        let (mut addresses, mut ports) =
            ([ends.inside, ends.outside].map(number), [ends.inside_port, ends.outside_port]);
        if opener == Side::Outside {
            addresses.reverse();
            ports.reverse();
        }
        Quoted { addresses, ports: protocol::has_ports(ends.protocol).then_some(ports) }
    }

    /// Sets the fields of its ports.
    pub(super) fn tell(&self, values: &mut Values) {
        if let Some([source, destination]) = self.ports {
            values.set(Field::OpenerPort, source);
            values.set(Field::AskedPort, destination);
        }
    }
}

impl Facts<'_> {
    pub(super) fn of(packet: &Packet<'_>, side: Side, state: State) -> Facts<'static> {
        let (source_port, destination_port) = match packet.protocol() {
            protocol::ICMP | protocol::ICMPV6 => {
                let head = packet.l4_offset().and_then(|at| packet.bytes().get(at..)?.first_chunk::<2>());
                (0, head.map_or(0, |head| u16::from_be_bytes(*head)))
            }
            _ => packet.ports().unwrap_or_default(),
        };
        Facts {
            source: number(packet.src_ip()),
            destination: number(packet.dst_ip()),
            source_port,
            destination_port,
            protocol: packet.protocol(),
            flags: packet.tcp_flags().unwrap_or(0),
            port: packet.port(),
            side,
            state,
            opening: [0; 2],
            fields: &Values::NONE,
        }
    }

    /// The facts of an ARP packet: its sender is the source, and who is asked or answered the destination.
    pub(super) fn of_arp(arp: &Arp, port: Port, side: Side) -> Facts<'static> {
        Facts {
            source: number(arp.sender_ip()),
            destination: number(arp.target_ip()),
            source_port: 0,
            destination_port: 0,
            protocol: 0,
            flags: 0,
            port,
            side,
            state: State::Arp,
            opening: [0; 2],
            fields: &Values::NONE,
        }
    }

    /// The length that counters and limits take for a packet, in bytes from the header behind Ethernet's on.
    pub(super) fn len_of(&self, packet: &Packet<'_>) -> u32 {
        if self.state == State::Arp { Arp::LEN as u32 } else { lengths::ip_len(packet) as u32 }
    }

    /// The facts of a packet in the other direction between the same endpoints, in a plan with two ports.
    pub(super) fn turned(&self) -> Self {
        Facts {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            port: self.port ^ 1,
            side: self.side.other(),
            state: self.state.turned(),
            ..*self
        }
    }
}
