//! What rules examine of a packet.

use braid_nf::Port;
use braid_nf::packet::Packet;
use braid_nf::packet::headers::{Arp, Header, tcp_flags};
use braid_nf::packet::parse::protocol;

use super::extensions;
use super::fields::{Field, Values};
use super::values::number;
use crate::firewall::connection::counts::Counts;
use crate::firewall::connection::ends::Ends;
use crate::firewall::connection::states::State;
use crate::parts::Side;
use crate::parts::headers::lengths;

/// A packet's endpoints, its conntrack state, and the port and side it arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Facts<'a> {
    pub(in crate::firewall) source: u128,
    pub(in crate::firewall) destination: u128,
    pub(in crate::firewall) source_port: u16,
    /// For ICMP, type × 256 + code.
    pub(in crate::firewall) destination_port: u16,
    pub(in crate::firewall) protocol: u8,
    pub(in crate::firewall) flags: u8,
    pub(in crate::firewall) port: Port,
    pub(in crate::firewall) side: Side,
    pub(in crate::firewall) state: State,
    /// For an ICMP error about a connection: the addresses of its opener and of the other end.
    pub(in crate::firewall) opening: [u128; 2],
    /// Rarely examined fields; all absent if no rule examines any.
    pub(in crate::firewall) fields: &'a Values,
}

/// A packet as rules are asked about it: the side that it comes from, and its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Observed {
    pub(in crate::firewall) side: Side,
    pub(in crate::firewall) state: State,
}

/// What rules may examine that is not in the packet.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::firewall) struct Context {
    /// The time in UTC, in nanoseconds.
    pub(in crate::firewall) wall_ns: u64,
    /// The ports by which it may leave, as bits.
    pub(in crate::firewall) exits: u64,
    /// The counters of its connection, if a rule may ask for them.
    pub(in crate::firewall) counts: Option<Counts>,
    /// For an ICMP error, the connection it is about.
    pub(in crate::firewall) quoted: Option<Quoted>,
}

/// The connection that an ICMP error is about: the endpoints of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Quoted {
    pub(in crate::firewall) addresses: [u128; 2],
    /// `None` if its protocol has no ports.
    ports: Option<[u16; 2]>,
}

impl Quoted {
    /// The connection with these endpoints, opened from a side.
    pub(in crate::firewall) fn of(ends: &Ends, opener: Side) -> Quoted {
        let (mut addresses, mut ports) =
            ([ends.inside, ends.outside].map(number), [ends.inside_port, ends.outside_port]);
        if opener == Side::Outside {
            addresses.reverse();
            ports.reverse();
        }
        Quoted { addresses, ports: protocol::has_ports(ends.protocol).then_some(ports) }
    }

    /// Sets the fields of its ports.
    pub(in crate::firewall) fn tell(&self, values: &mut Values) {
        if let Some([source, destination]) = self.ports {
            values.set(Field::OpenerPort, source);
            values.set(Field::AskedPort, destination);
        }
    }
}

impl Facts<'_> {
    /// The first segment of a connection from inside, between no addresses.
    pub(in crate::firewall) const SYN: Facts<'static> = Facts {
        source: 0,
        destination: 0,
        source_port: 0,
        destination_port: 0,
        protocol: protocol::TCP,
        flags: tcp_flags::SYN,
        port: 0,
        side: Side::Inside,
        state: State::New,
        opening: [0; 2],
        fields: &Values::NONE,
    };

    pub(in crate::firewall) fn of(packet: &Packet<'_>, side: Side, state: State) -> Facts<'static> {
        let protocol = extensions::protocol_of(packet);
        let (source_port, destination_port) = match protocol {
            protocol::AH => (0, 0),
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
            protocol,
            flags: packet.tcp_flags().filter(|_| protocol == protocol::TCP).unwrap_or(0),
            port: packet.port(),
            side,
            state,
            opening: [0; 2],
            fields: &Values::NONE,
        }
    }

    /// The facts of an ARP packet: its sender is the source, and who is asked or answered the destination.
    pub(in crate::firewall) fn of_arp(arp: &Arp, port: Port, side: Side) -> Facts<'static> {
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
    pub(in crate::firewall) fn len_of(&self, packet: &Packet<'_>) -> u32 {
        if self.state == State::Arp { Arp::LEN as u32 } else { lengths::ip_len(packet) as u32 }
    }

    /// The facts of a packet in the other direction between the same endpoints, in a plan with two ports.
    pub(in crate::firewall) fn turned(&self) -> Self {
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
