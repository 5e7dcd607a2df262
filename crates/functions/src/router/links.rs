//! Interfaces by number: those of ports come first, each under its port's number, followed by those of VLANs. A router without
//! VLANs never examines tags.

use braid_nf::packet::{IpAddress, Tagging};
use braid_nf::prelude::*;
use braid_nf::{Cx, Port};
use foldhash::HashSet;

use super::interface::{Interface, broadcasts_of};
use crate::parts::answers::discovery::Message;
use crate::parts::answers::membership::{self, Query};
use crate::parts::headers::scope::is_link_local_v6;
use crate::parts::headers::tags::{self, OuterTag, TAG};

/// The number of an interface.
pub type Link = u16;

/// The number of VLAN IDs.
const VLANS: usize = 4096;
/// The number of no interface.
const NONE: Link = Link::MAX;

/// The interfaces by number, by port and VLAN, and by address.
#[derive(Clone, Debug, Default)]
pub struct Links {
    interfaces: Vec<Option<Interface>>,
    /// For each port, the number of the interface for each VLAN, with untagged frames at index 0; empty for a port without
    /// VLANs.
    by_vlan: Vec<Vec<Link>>,
    /// For each port, the number of the interface for untagged frames; empty if that is its own number for all of them.
    untagged: Vec<Link>,
    /// Whether an interface's number follows from the port alone, which is then its number.
    are_ports: bool,
    /// The addresses of all interfaces.
    own: HashSet<IpAddress>,
    /// The broadcast addresses of their networks, except those that are also the router's own.
    broadcasts: HashSet<IpAddress>,
    /// The addresses of all routers of their networks, likewise.
    anycast: HashSet<IpAddress>,
    /// The addresses that a translator behind this router has too, with their interfaces.
    translated: Vec<(IpAddress, Link)>,
}

braid_nf::plain!(Links);

impl Links {
    /// Numbers the interfaces: one for each of `ports` ports, followed by those of VLANs.
    pub fn new(interfaces: Vec<Option<Interface>>, ports: u16) -> Links {
        let addresses = || interfaces.iter().flatten().flat_map(|one| &one.addresses);
        let own: HashSet<IpAddress> = addresses().map(|(address, _)| *address).collect();
        let broadcasts = addresses().flat_map(|(address, bits)| broadcasts_of(*address, *bits));
        let broadcasts = broadcasts.filter(|address| !own.contains(address)).collect();
        let networks = addresses().map(|(address, bits)| address.prefix(*bits));
        let is_anycast = |address: &IpAddress| interfaces.iter().flatten().any(|one| one.is_anycast(*address));
        let anycast = networks.filter(is_anycast).filter(|address| !own.contains(address)).collect();
        let mut links = Links { interfaces, own, broadcasts, anycast, ..Links::default() };
        let numbered = links.numbered();
        links.translated =
            numbered.flat_map(|(link, one)| one.translated.iter().map(move |own| (*own, link))).collect();
        links.number_ports(ports);
        links.number_vlans(ports);
        links.are_ports = links.untagged.is_empty() && links.by_vlan.is_empty();
        links
    }

    /// Gives the further ports of a link the number of its interface.
    fn number_ports(&mut self, ports: u16) {
        for one in self.interfaces.iter().flatten().filter(|one| one.vlan.is_none() && !one.joined.is_empty()) {
            if self.untagged.is_empty() {
                self.untagged = (0..ports).collect();
            }
            one.joined.iter().for_each(|port| self.untagged[usize::from(*port)] = one.port);
        }
    }

    fn number_vlans(&mut self, ports: u16) {
        for (link, one) in self.interfaces.iter().enumerate() {
            let Some((one, vlan)) = one.as_ref().and_then(|one| Some((one, one.vlan?))) else { continue };
            self.by_vlan.resize(ports.into(), Vec::new());
            for port in one.ports() {
                let of_port = &mut self.by_vlan[usize::from(port)];
                if of_port.is_empty() {
                    of_port.resize(VLANS, NONE);
                    of_port[0] = self.untagged.get(usize::from(port)).copied().unwrap_or(port);
                }
                of_port[usize::from(vlan)] = link as Link;
            }
        }
    }

    /// Whether any interface belongs to a VLAN.
    pub fn have_vlans(&self) -> bool {
        !self.by_vlan.is_empty()
    }

    /// Whether an address is the router's for what comes by this interface: a link-local address of another one may be anybody's there.
    pub fn own_at(&self, interface: &Interface, address: IpAddress) -> bool {
        self.own(address) && (!is_link_local_v6(address) || interface.owns(address))
    }

    /// The interface of an address that a translator behind this router has too.
    pub fn translated(&self, address: IpAddress) -> Option<(Link, &Interface)> {
        let (_, link) = self.translated.iter().find(|(own, _)| *own == address)?;
        Some((*link, self.get(*link)?))
    }

    /// Whether an address is that of all routers of a connected network. Of `fe80::` each link has its own.
    pub fn is_anycast(&self, address: IpAddress) -> bool {
        !address.is_v4() && self.anycast.contains(&address)
    }

    /// Whether an address belongs to an interface.
    pub fn own(&self, address: IpAddress) -> bool {
        self.own.contains(&address)
    }

    /// Whether an address is the broadcast address of a connected network, from which no packet can come.
    pub fn is_broadcast(&self, address: IpAddress) -> bool {
        self.broadcasts.contains(&address)
    }

    /// The interface with this number.
    #[inline(always)]
    pub fn get(&self, link: Link) -> Option<&Interface> {
        self.interfaces.get(usize::from(link))?.as_ref()
    }

    /// The interface by which a packet arrived; the number of no interface if none matches its tags.
    #[inline(always)]
    pub fn of(&self, packet: &Packet<'_>) -> Link {
        if self.are_ports { packet.port() } else { self.by_tags(packet) }
    }

    /// The interface at a port, or in a VLAN of it if `vlan` is not 0.
    pub fn at(&self, port: Port, vlan: u16) -> Link {
        match self.by_vlan.get(usize::from(port)).filter(|of_port| !of_port.is_empty()) {
            Some(of_port) => of_port.get(usize::from(vlan)).copied().unwrap_or(NONE),
            None if vlan == 0 => self.untagged.get(usize::from(port)).copied().unwrap_or(port),
            None => NONE,
        }
    }

    /// Finds the interface by port and tags. A port with VLANs accepts frames with the tag of one of them, and as untagged
    /// those without a tag or with a priority tag.
    fn by_tags(&self, packet: &Packet<'_>) -> Link {
        let port = packet.port();
        if self.by_vlan.get(usize::from(port)).is_none_or(Vec::is_empty) {
            return self.at(port, 0);
        }
        let mut tags = packet.vlans().map(|tag| tag.id());
        match (tags.next(), tags.next()) {
            (vlan, None) => self.at(port, vlan.unwrap_or(0)),
            _ => NONE,
        }
    }

    /// Whether a packet has the tag of a VLAN though its interface has none: it comes from another link than that of the interface.
    pub fn is_of_other_vlan(&self, packet: &Packet<'_>, interface: &Interface) -> bool {
        interface.vlan.is_none() && packet.vlans().any(|tag| tag.id() != 0)
    }

    /// Gives a packet the tag of the interface by which it leaves. Returns false if there is no room for it.
    #[inline(always)]
    pub fn retag(&self, packet: &mut Packet<'_>, to: &Interface) -> bool {
        self.by_vlan.is_empty() || self.exchange(packet, to)
    }

    /// All interfaces with their numbers.
    pub fn numbered(&self) -> impl Iterator<Item = (Link, &Interface)> {
        let numbered = self.interfaces.iter().enumerate();
        numbered.filter_map(|(link, one)| Some((link as Link, one.as_ref()?)))
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

impl Interface {
    /// Its port, and its VLAN on that port.
    pub fn place(&self) -> (Port, Option<u16>) {
        (self.port, self.vlan)
    }

    /// Whether it is at a port, alone or with others.
    pub fn has_port(&self, port: Port) -> bool {
        self.ports().any(|own| own == port)
    }

    /// Announces its addresses by a port, so that neighbours who knew them elsewhere learn where they are now, and its groups: ARP
    /// announcements (RFC 5227 section 2.3), unsolicited neighbour advertisements (RFC 4861 section 7.2.6), MLD reports (RFC 3810 section 6.1).
    pub fn announce(&self, cx: &mut Cx<'_>, port: Port) {
        for (own, _) in &self.addresses {
            self.say(cx, port, Message::announcement(self.mac, *own).bytes());
        }
        self.report_groups(cx, port, None);
    }

    /// Sends a frame of the router's own, which has no tag yet, by one of its ports.
    pub fn say(&self, cx: &mut Cx<'_>, port: Port, frame: &[u8]) {
        let Some(vlan) = self.vlan else { return cx.emit(port, frame) };
        let mut tagged = vec![0; frame.len() + TAG];
        // The type follows both addresses, and the packet follows the type.
        if let Some(len) = tags::exchanged(frame, 14, Tagging::one(vlan), OuterTag::Customer, &mut tagged) {
            cx.emit(port, &tagged[..len]);
        }
    }

    /// Reports by a port in which IPv6 groups it is: in those that a query asks for, or in all, unasked.
    pub fn report_groups(&self, cx: &mut Cx<'_>, port: Port, query: Option<Query>) {
        let own: Vec<IpAddress> = self.addresses.iter().map(|(own, _)| *own).collect();
        membership::reports(self.mac, &own, query).iter().for_each(|frame| self.say(cx, port, frame));
    }

    /// Asks everybody on its link: by all of its ports.
    pub fn ask(&self, cx: &mut Cx<'_>, question: &[u8]) {
        self.ports().for_each(|port| self.say(cx, port, question));
    }
}
