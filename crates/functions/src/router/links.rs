//! Interfaces by their numbers: those of ports come first, each under its port's number, those of VLANs behind them. A function without
//! VLANs never looks at tags.

use braid_nf::packet::{IpAddress, Tagging};
use braid_nf::prelude::*;
use braid_nf::{Cx, Port};
use foldhash::HashSet;

use super::interface::Interface;
use crate::parts::tags::{self, OuterTag};

/// The number of an interface.
pub type Link = u16;

/// Values of a tag.
const VLANS: usize = 4096;
/// Behind all interfaces.
const NONE: Link = Link::MAX;
/// The longest of the router's own frames, and a tag.
const ROOM: usize = 86 + 4;

/// The interfaces.
#[derive(Clone, Debug, Default)]
pub struct Links {
    interfaces: Vec<Option<Interface>>,
    /// By port the number of the interface for each VLAN, at 0 for frames without a tag; nothing for a port without VLANs.
    by_vlan: Vec<Vec<Link>>,
    /// The addresses of all interfaces.
    own: HashSet<IpAddress>,
    /// Those of all hosts of their networks, but for the router's own.
    broadcasts: HashSet<IpAddress>,
}

braid_nf::plain!(Links);

impl Links {
    /// Those of `ports` ports, and behind them those of VLANs.
    pub fn new(interfaces: Vec<Option<Interface>>, ports: u16) -> Links {
        let addresses = || interfaces.iter().flatten().flat_map(|one| &one.addresses);
        let own: HashSet<IpAddress> = addresses().map(|(address, _)| *address).collect();
        let broadcasts = addresses().filter_map(|(address, bits)| broadcast_of(*address, *bits));
        let broadcasts = broadcasts.filter(|address| !own.contains(address)).collect();
        let mut links = Links { interfaces, by_vlan: Vec::new(), own, broadcasts };
        for (link, one) in links.interfaces.iter().enumerate() {
            let Some((port, Some(vlan))) = one.as_ref().map(Interface::place) else { continue };
            links.by_vlan.resize(ports.into(), Vec::new());
            let of_port = &mut links.by_vlan[usize::from(port)];
            if of_port.is_empty() {
                of_port.resize(VLANS, NONE);
                of_port[0] = port;
            }
            of_port[usize::from(vlan)] = link as Link;
        }
        links
    }

    /// Whether some interface is a VLAN's.
    pub fn have_vlans(&self) -> bool {
        !self.by_vlan.is_empty()
    }

    /// Whether an address is that of an interface.
    pub fn own(&self, address: IpAddress) -> bool {
        self.own.contains(&address)
    }

    /// Whether an address is that of all hosts of a network that is here, so that nobody sends from it.
    pub fn is_broadcast(&self, address: IpAddress) -> bool {
        self.broadcasts.contains(&address)
    }

    /// The interface with this number.
    #[inline(always)]
    pub fn get(&self, link: Link) -> Option<&Interface> {
        self.interfaces.get(usize::from(link))?.as_ref()
    }

    /// The interface by which a packet has come; one that is not there, if no interface has its tags.
    #[inline(always)]
    pub fn of(&self, packet: &Packet<'_>) -> Link {
        if self.by_vlan.is_empty() { packet.port() } else { self.by_tags(packet) }
    }

    /// The interface of a port, or of a VLAN there if that is not 0.
    pub fn at(&self, port: Port, vlan: u16) -> Link {
        match self.by_vlan.get(usize::from(port)).filter(|of_port| !of_port.is_empty()) {
            Some(of_port) => of_port.get(usize::from(vlan)).copied().unwrap_or(NONE),
            None if vlan == 0 => port,
            None => NONE,
        }
    }

    /// A port with VLANs takes frames with the tag of one of them, and frames without a tag or with one that gives a priority alone.
    fn by_tags(&self, packet: &Packet<'_>) -> Link {
        let port = packet.port();
        if self.by_vlan.get(usize::from(port)).is_none_or(Vec::is_empty) {
            return port;
        }
        let mut tags = packet.vlans().map(|tag| tag.id());
        match (tags.next(), tags.next()) {
            (vlan, None) => self.at(port, vlan.unwrap_or(0)),
            _ => NONE,
        }
    }

    /// Gives a packet that goes from one interface to another the tag of that one. False if there is no room for it.
    #[inline(always)]
    pub fn retag(&self, packet: &mut Packet<'_>, to: &Interface) -> bool {
        self.by_vlan.is_empty() || self.exchange(packet, to)
    }

    fn exchange(&self, packet: &mut Packet<'_>, to: &Interface) -> bool {
        let from_vlan = self.get(self.of(packet)).is_some_and(|from| from.vlan.is_some());
        match to.vlan {
            Some(vlan) => tags::exchange(packet, Tagging::one(vlan), OuterTag::Customer),
            None if from_vlan => tags::exchange(packet, Tagging::NONE, OuterTag::Customer),
            // Between ports without VLANs tags are kept.
            None => true,
        }
    }
}

/// The address of all hosts of an IPv4 network; of two hosts on a link nobody is all (RFC 3021).
fn broadcast_of(address: IpAddress, bits: u8) -> Option<IpAddress> {
    let host = u32::MAX.checked_shr(bits.into()).filter(|_| bits < 31)?;
    Some(IpAddress::from_v4((u32::from_be_bytes(address.v4()?) | host).to_be_bytes()))
}

impl Interface {
    /// Its port, and its VLAN there.
    pub fn place(&self) -> (Port, Option<u16>) {
        (self.port, self.vlan)
    }

    /// Sends a frame of the router's own, which has no tag yet.
    pub fn say(&self, cx: &mut Cx<'_>, frame: &[u8]) {
        let Some(vlan) = self.vlan else { return cx.emit(self.port, frame) };
        let mut tagged = [0; ROOM];
        // The type stands behind both addresses, and the packet behind the type.
        if let Some(len) = tags::exchanged(frame, 14, Tagging::one(vlan), OuterTag::Customer, &mut tagged) {
            cx.emit(self.port, &tagged[..len]);
        }
    }
}
