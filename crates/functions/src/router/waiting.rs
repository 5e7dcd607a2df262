//! A packet that waits until its neighbour answers, complete but for its Ethernet destination; and what is needed to tell its sender
//! if nobody does.

use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;

use crate::parts::answer::{Cause, datagram, may_be_answered};

/// The longest frame that waits.
const HELD_MAX: usize = 1520;

/// The packet.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Held {
    pub(super) since_ns: u64,
    len: u32,
    /// Where its IP header begins.
    l3: u16,
    /// The port by which it came.
    came: u16,
    /// The Ethernet addresses with which it came.
    link: [u8; 12],
    /// Bytes of the IP packet, without padding of the link; 0: its sender may not be told.
    quoted: u32,
    /// Who sent it.
    sender: [u8; 16],
    bytes: [u8; HELD_MAX],
}

impl Held {
    /// A packet as it came, still without its bytes.
    pub fn new(packet: &Packet<'_>, now_ns: u64) -> Held {
        let mut link = [0; 12];
        if let Some(addresses) = packet.bytes().get(..12) {
            link.copy_from_slice(addresses);
        }
        Held {
            since_ns: now_ns,
            len: 0,
            l3: packet.record().l3.into(),
            came: packet.port(),
            link,
            quoted: datagram(packet).filter(|_| may_be_answered(packet)).map_or(0, |ip| ip.len() as u32),
            sender: packet.src_ip().octets(),
            bytes: [0; HELD_MAX],
        }
    }

    /// The same with the frame that is to leave; none if it is too long to wait.
    pub fn with(mut self, frame: &[u8]) -> Option<Held> {
        self.bytes.get_mut(..frame.len())?.copy_from_slice(frame);
        self.len = frame.len() as u32;
        Some(self)
    }

    /// The port by which it came.
    pub fn came(&self) -> Port {
        self.came
    }

    /// The frame, for a neighbour that has answered.
    pub fn addressed(&mut self, mac: MacAddress) -> &[u8] {
        self.bytes[..6].copy_from_slice(&mac.0);
        self.frame()
    }

    fn frame(&self) -> &[u8] {
        &self.bytes[..HELD_MAX.min(self.len as usize)]
    }

    /// What an error about it answers and quotes; none if there may be none. Called once: the frame's link header becomes what it was.
    pub fn cause(&mut self) -> Option<(Cause<'_>, &[u8])> {
        if self.quoted == 0 {
            return None;
        }
        self.bytes[..12].copy_from_slice(&self.link);
        let (link, packet) = self.frame().split_at_checked(self.l3.into())?;
        let cause = Cause { port: self.came, sender: IpAddress::from_v6(self.sender), link, is_ethernet: true };
        Some((cause, packet.get(..self.quoted as usize)?))
    }
}
