//! Frames that go back by the port by which they came: a packet from an inside host for another one's external address. Who sent the
//! frame is the station on that link to which it goes: the router of the inside, or the host that reaches itself.

use braid_nf::Packet;
use braid_nf::packet::headers::{Ethernet, Header};

/// Exchanges the Ethernet addresses, unless one of them is a group's.
pub fn turn(packet: &mut Packet<'_>) {
    let Some(ethernet) = packet.ethernet_mut() else { return };
    let (source, destination) = (ethernet.source(), ethernet.destination());
    if !destination.is_group() {
        ethernet.set_source(destination);
        ethernet.set_destination(source);
    }
}

/// The same of a frame in bytes, of which the IP header stands at `ip`.
pub fn turn_frame(frame: &mut [u8], ip: usize) {
    const ADDRESS: usize = 6;
    let is_group = frame.first().is_none_or(|byte| byte & 1 == 1);
    if ip >= Ethernet::LEN && !is_group && frame.len() >= 2 * ADDRESS {
        frame[..2 * ADDRESS].rotate_left(ADDRESS);
    }
}
