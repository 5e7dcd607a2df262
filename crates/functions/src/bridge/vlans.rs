//! Which VLANs each port belongs to, and in which form frames arrive and leave (IEEE 802.1Q clause 8.6).
//!
//! An untagged frame, or one tagged with VLAN 0 (priority only), belongs to the native VLAN of its port; a tagged one to the
//! VLAN of its tag, if the port is a member. It leaves a port untagged if its VLAN is that port's native one, and otherwise
//! tagged. Only tags of type 0x8100 are recognised: a frame with another outer tag counts as untagged.

use braid_nf::packet::headers::{Ethernet, Header, ether_type};
use braid_nf::{Packet, Port};

use crate::parts::headers::tags::{self, TAG, VLAN_MAX};

/// Priority and drop eligibility.
const PRIORITY: u16 = 0xf000;
const VLAN: u16 = 0x0fff;

/// The most ports of a bridge that filters VLANs, because they are bits of a word.
pub const PORTS_MAX: u16 = 64;

/// The ports of a VLAN, as bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Members {
    all: u64,
    untagged: u64,
}

/// The VLANs of all ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vlans {
    members: Vec<Members>,
    /// Native VLAN of each port; 0: none.
    native: Vec<u16>,
}

braid_nf::plain!(Vlans);

/// The outer tag of a frame: its control information, if it has one of type 0x8100.
pub type Tag = Option<u16>;

/// The tag of a frame.
#[inline(always)]
pub fn tag_of(packet: &Packet<'_>) -> Tag {
    let [.., a, b, c, d] = packet.bytes().first_chunk::<{ Ethernet::LEN + 2 }>()?;
    (u16::from_be_bytes([*a, *b]) == ether_type::VLAN).then_some(u16::from_be_bytes([*c, *d]))
}

/// Encodes in one number whether there is a tag, and which VLAN it names.
#[inline(always)]
pub fn form(tag: Tag) -> u16 {
    tag.map_or(0, |control| control & VLAN | 1 << 15)
}

impl Vlans {
    /// Creates the VLANs of `ports` ports, with no members so far.
    pub fn new(ports: u16) -> Vlans {
        Vlans { members: vec![Members::default(); usize::from(VLAN_MAX) + 2], native: vec![0; ports.into()] }
    }

    /// Adds a port to a VLAN whose frames it carries tagged.
    pub fn add_tagged(&mut self, port: Port, vlan: u16) {
        self.members[usize::from(vlan)].all |= 1 << port;
    }

    /// Adds a port to the VLAN whose frames it carries untagged.
    pub fn add_native(&mut self, port: Port, vlan: u16) {
        self.add_tagged(port, vlan);
        self.members[usize::from(vlan)].untagged |= 1 << port;
        self.native[usize::from(port)] = vlan;
    }

    /// Whether frames may leave with another tag than they arrived with, because some port carries a VLAN untagged.
    pub fn change_tags(&self) -> bool {
        self.native.iter().any(|vlan| *vlan != 0)
    }

    /// The VLAN of a frame that arrives by `port`; `None` if the port does not carry it.
    pub fn classify(&self, port: Port, tag: Tag) -> Option<u16> {
        let named = tag.map_or(0, |control| control & VLAN);
        let vlan = if named == 0 { *self.native.get(usize::from(port))? } else { named };
        self.has(vlan, port).then_some(vlan)
    }

    /// Whether a port is in a VLAN.
    pub fn has(&self, vlan: u16, port: Port) -> bool {
        self.members[usize::from(vlan)].all.checked_shr(port.into()).unwrap_or(0) & 1 != 0
    }

    /// The ports of a VLAN except `except`: those that carry it untagged, and those that carry it tagged.
    pub fn ports(&self, vlan: u16, except: Port) -> (u64, u64) {
        let Members { all, untagged } = self.members[usize::from(vlan)];
        let others = !1u64.checked_shl(except.into()).unwrap_or(0);
        (untagged & others, all & !untagged & others)
    }

    /// Whether a port carries a VLAN untagged.
    pub fn is_untagged(&self, vlan: u16, port: Port) -> bool {
        self.members[usize::from(vlan)].untagged.checked_shr(port.into()).unwrap_or(0) & 1 != 0
    }
}

/// Gives a frame the tag of `vlan`, with the priority of the tag that it arrived with, or no tag for VLAN 0. Returns false,
/// with nothing done, if there is no room for a tag. Inlined, so that the packet is not borrowed by a call and can stay in
/// registers.
#[inline(always)]
pub fn retag(packet: &mut Packet<'_>, came: Tag, vlan: u16) -> bool {
    let old = tag_of(packet);
    let new = (vlan != 0).then_some(vlan | came.unwrap_or(0) & PRIORITY);
    if old == new {
        return true;
    }
    let tag = new.map(|control| tags::tag(ether_type::VLAN, control));
    let (old, new) = (if old.is_some() { TAG } else { 0 }, tag.as_ref().map_or(&[][..], |tag| tag));
    packet.out_of_line(|packet| tags::put(packet, old, new))
}
