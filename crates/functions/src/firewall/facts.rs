//! What rules look at of a packet.

use braid_nf::Port;
use braid_nf::packet::Packet;
use braid_nf::packet::parse::protocol;

use super::connection::Ends;
use super::fields::{Field, Values};
use super::states::State;
use super::values::number;
use crate::parts::Side;

/// The ends of a packet, what it is of a connection, and what it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts<'a> {
    pub(super) source: u128,
    pub(super) destination: u128,
    pub(super) source_port: u16,
    /// Of ICMP the type, times 256, and the code.
    pub(super) destination_port: u16,
    pub(super) protocol: u8,
    pub(super) flags: u8,
    pub(super) port: Port,
    pub(super) side: Side,
    pub(super) state: State,
    /// Of an ICMP error about a connection: from whom to whom that was opened.
    pub(super) opening: [u128; 2],
    /// What few rules look at; nothing if none does.
    pub(super) fields: &'a Values,
}

/// Of a connection about which an ICMP error comes: the ends of its first packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quoted {
    pub(super) addresses: [u128; 2],
    /// If it has some.
    ports: Option<[u16; 2]>,
}

impl Quoted {
    /// Of a connection with these ends, opened from a side.
    pub(super) fn of(ends: &Ends, opener: Side) -> Quoted {
        let (mut addresses, mut ports) =
            ([ends.inside, ends.outside].map(number), [ends.inside_port, ends.outside_port]);
        if opener == Side::Outside {
            addresses.reverse();
            ports.reverse();
        }
        Quoted { addresses, ports: protocol::has_ports(ends.protocol).then_some(ports) }
    }

    /// Puts its ports where rules look at them.
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

    /// Of a packet that goes the other way between the same ends, in a plan with two ports.
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
