//! Frames that leave by the port on which they arrived, such as a packet from one inside host to the external address of
//! another.
//!
//! The station that sent the frame is also the one to send it to: the inside router, or the host that sends to itself.

use braid_nf::Packet;
use braid_nf::packet::headers::{Ethernet, Header};

/// Exchanges the Ethernet addresses, unless the destination is a group address.
pub fn turn(packet: &mut Packet<'_>) {
    let Some(ethernet) = packet.ethernet_mut() else { return };
    let (source, destination) = (ethernet.source(), ethernet.destination());
    if !destination.is_group() {
        ethernet.set_source(destination);
        ethernet.set_destination(source);
    }
}

/// Like [`turn`], for a frame in bytes whose IP header is at `ip`.
pub fn turn_frame(frame: &mut [u8], ip: usize) {
    const ADDRESS: usize = 6;
    let is_group = frame.first().is_none_or(|byte| byte & 1 == 1);
    if ip >= Ethernet::LEN && !is_group && frame.len() >= 2 * ADDRESS {
        frame[..2 * ADDRESS].rotate_left(ADDRESS);
    }
}
