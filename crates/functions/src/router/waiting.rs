//! A packet that waits until its neighbour answers, complete but for its Ethernet destination; and what is needed to tell its sender
//! if nobody does.

use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;

use crate::parts::answer::{Cause, may_be_answered};

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
    /// 1 if its sender may be told.
    may_be_answered: u32,
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
            may_be_answered: may_be_answered(packet).into(),
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
        if self.may_be_answered == 0 {
            return None;
        }
        self.bytes[..12].copy_from_slice(&self.link);
        let (link, quoted) = self.frame().split_at_checked(self.l3.into())?;
        let sender = match quoted.first()? >> 4 {
            4 => IpAddress::from_v4(*quoted.get(12..)?.first_chunk()?),
            _ => IpAddress::from_v6(*quoted.get(8..)?.first_chunk()?),
        };
        // Padding of the link is not quoted.
        let promised = match quoted.first()? >> 4 {
            4 => usize::from(u16::from_be_bytes(*quoted.get(2..)?.first_chunk()?)),
            _ => 40 + usize::from(u16::from_be_bytes(*quoted.get(4..)?.first_chunk()?)),
        };
        let cause = Cause { port: self.came, sender, link, is_ethernet: true };
        Some((cause, &quoted[..promised.min(quoted.len())]))
    }
}
