//! A packet that waits until its neighbour answers, complete except for its Ethernet destination, and what is needed to tell
//! its sender if no answer comes.

use braid_nf::packet::{IpAddress, Link};
use braid_nf::prelude::*;
use braid_nf::{Came, Cx};

use super::fragment;
use super::interface::Interface;
use super::neighbours::Station;
use crate::parts::answers::answer::{Cause, datagram, may_be_answered};

/// The longest frame that waits.
const HELD_MAX: usize = 1520;
/// The longest link header that is kept for an answer: Ethernet with two tags.
const LINK_MAX: usize = 22;

/// A waiting packet.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WaitingPacket {
    pub(super) since_ns: u64,
    len: u32,
    /// The offset of the IP header in the frame to be sent.
    l3: u16,
    /// The port on which it arrived, and the VLAN on that port; 0: none.
    port: u16,
    vlan: u16,
    /// Bytes of the IP packet without link padding; 0 if its sender must not be told.
    quoted: u16,
    /// The length of the link header with which it arrived, and the header itself.
    link_len: u16,
    link: [u8; LINK_MAX],
    unused: [u8; 4],
    /// The sender's address.
    sender: [u8; 16],
    bytes: [u8; HELD_MAX],
}

impl WaitingPacket {
    /// Records a packet as it arrived by an interface, without its bytes so far.
    pub fn new(packet: &Packet<'_>, came: &Interface, now_ns: u64) -> WaitingPacket {
        let header = packet.bytes().get(..packet.record().l3.into()).filter(|header| header.len() <= LINK_MAX);
        let (mut link, header) = ([0; LINK_MAX], header.unwrap_or_default());
        link[..header.len()].copy_from_slice(header);
        let quoted = datagram(packet).filter(|_| !header.is_empty() && may_be_answered(packet));
        WaitingPacket {
            since_ns: now_ns,
            len: 0,
            l3: 0,
            port: packet.port(),
            vlan: came.vlan.unwrap_or(0),
            quoted: quoted.map_or(0, |packet| packet.len() as u16),
            link_len: header.len() as u16,
            link,
            unused: [0; 4],
            sender: packet.src_ip().octets(),
            bytes: [0; HELD_MAX],
        }
    }

    /// Adds the frame to be sent; `None` if it is too long to wait.
    pub fn with(mut self, packet: &Packet<'_>) -> Option<WaitingPacket> {
        let frame = packet.bytes();
        self.bytes.get_mut(..frame.len())?.copy_from_slice(frame);
        (self.len, self.l3) = (frame.len() as u32, packet.record().l3.into());
        Some(self)
    }

    /// The port on which it arrived, and the VLAN on that port; 0: none.
    pub fn came_by(&self) -> (Port, u16) {
        (self.port, self.vlan)
    }

    /// Sends it to a neighbour that has answered, whose link has this MTU.
    pub fn send(&mut self, cx: &mut Cx<'_>, Station { mac, port }: Station, mtu: u16) {
        self.bytes[..6].copy_from_slice(&mac);
        let (came, frame, l3) =
            (Came { by: self.port, link: Link::Ethernet, may_be_cut: true }, self.frame(), usize::from(self.l3));
        let is_long = frame.len() > l3 + usize::from(mtu);
        if !(is_long && fragment::cut_frame(frame, l3, mtu, |piece| cx.emit_held(came, port, piece))) {
            cx.emit_held(came, port, frame);
        }
    }

    fn frame(&self) -> &[u8] {
        &self.bytes[..HELD_MAX.min(self.len as usize)]
    }

    /// What an error about it answers, and the bytes that it quotes; `to` is the port by which it would have left. `None` if no
    /// error may be sent.
    pub fn cause(&self, to: Port) -> Option<(Cause<'_>, &[u8])> {
        let quoted = self.frame().get(self.l3.into()..)?.get(..self.quoted.into())?;
        let (sender, link) = (IpAddress::from_v6(self.sender), self.link.get(..self.link_len.into())?);
        let cause = Cause { port: self.port, was_going: Some(to), sender, link, is_ethernet: true };
        Some((cause, quoted)).filter(|_| self.quoted > 0)
    }
}
