//! Interfaces: their checked configuration, and what they imply about addresses.

use std::ops::RangeInclusive;

use braid_nf::Port;
use braid_nf::packet::{IpAddress, MacAddress};
use foldhash::HashSet;

use super::advertise::AdvertiseConfig;
use super::config::{Config, InterfaceConfig};
use super::fragment::MTU_MAX;
use super::neighbours::Station;
use super::routing::reverse_path::ReversePath;
use crate::config::{ConfigError, check_port};
use crate::parts::headers::scope::{is_host_v4, is_link_local_v6, is_routed_v6};
use crate::parts::headers::tags::VLAN_MAX;

/// A checked interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its port of the plan, the first one if its link has several.
    pub port: Port,
    /// The further ports of its link, which a bridge joins with the first.
    pub joined: Vec<Port>,
    /// Its VLAN; `None` for frames that arrive on the port untagged.
    pub vlan: Option<u16>,
    /// Its Ethernet address.
    pub mac: MacAddress,
    /// The MTU: the most bytes of an IP packet.
    pub mtu: u16,
    /// Its addresses with their prefix lengths.
    pub addresses: Vec<(IpAddress, u8)>,
    /// The reverse-path check for packets that arrive here.
    pub reverse_path: ReversePath,
    /// What it advertises to IPv6 hosts.
    pub advertise: Option<AdvertiseConfig>,
    /// Those of its addresses that a translator behind this router has too, which returns what inside hosts send there.
    pub translated: Vec<IpAddress>,
}

braid_nf::plain!(Interface);

/// The most interfaces, counting those of ports and of VLANs.
pub(super) const LINKS_MAX: usize = 4096;
/// The MTU where nothing says what the link takes: that of Ethernet (RFC 894).
const MTU_UNKNOWN: u16 = 1500;
/// The smallest MTUs (RFC 791, RFC 8200 section 5).
const MTU_MIN: u16 = 68;
const MTU_MIN_V6: u16 = 1280;

impl Config {
    /// Checks the interfaces: one entry for each port, followed by the interfaces of VLANs.
    pub(super) fn interfaces(
        &self,
        ports: u16,
        mtu_of: &dyn Fn(Port) -> Option<u16>,
    ) -> Result<Vec<Option<Interface>>, ConfigError> {
        let (mut interfaces, mut networks) = (vec![None; ports.into()], HashSet::default());
        for (number, written) in self.interfaces.iter().enumerate() {
            let added = written.add_to(&mut interfaces, &mut networks, (ports, mtu_of));
            added.map_err(|error| error.of("interface", number))?;
        }
        Ok(interfaces)
    }
}

impl InterfaceConfig {
    /// Adds this interface to those before it. No two may have the same place or the same network.
    fn add_to(
        &self,
        interfaces: &mut Vec<Option<Interface>>,
        networks: &mut HashSet<(IpAddress, u8)>,
        (ports, mtu_of): (u16, &dyn Fn(Port) -> Option<u16>),
    ) -> Result<(), ConfigError> {
        let place = usize::from(check_port("interface.port", self.port, ports)?);
        self.check_joined(ports)?;
        let interface = self.checked(mtu_of)?;
        let is_taken = |port: &Port| interfaces.iter().flatten().any(|one| one.is_at(*port, interface.vlan));
        if let Some(port) = interface.ports().find(is_taken) {
            let vlan = interface.vlan.map_or_else(String::new, |vlan| format!(" for VLAN {vlan}"));
            let reason = format!("port {port} has two interfaces{vlan}");
            let instead = "write all `addresses` in one, or give each a `vlan` of its own";
            return Err(ConfigError::new("interface.port", reason, instead));
        }
        // Each link has a link-local network of its own (RFC 4007 section 5).
        let mut only_here = interface.networks().into_iter().filter(|(first, _)| !is_link_local_v6(*first));
        if let Some((first, bits)) = only_here.find(|network| !networks.insert(*network)) {
            let reason = format!("{first}/{bits} is at two interfaces");
            let instead = "give each a network of its own, or join the links: `joined` names the further ports of one interface, which a `bridge` before the router joins";
            return Err(ConfigError::new("interface.addresses", reason, instead));
        }
        match interface.vlan {
            None => interfaces[place] = Some(interface),
            Some(_) if interfaces.len() == LINKS_MAX => {
                let reason = format!("more than {LINKS_MAX} interfaces");
                return Err(ConfigError::new("interface.vlan", reason, "put some into another router"));
            }
            Some(_) => interfaces.push(Some(interface)),
        }
        Ok(())
    }

    /// Refuses ports that the plan does not have, or that stand there twice.
    fn check_joined(&self, ports: u16) -> Result<(), ConfigError> {
        for (number, port) in self.joined.iter().enumerate() {
            let key = format!("interface.joined[{number}]");
            check_port(&key, *port, ports)?;
            if *port == self.port || self.joined[..number].contains(port) {
                let reason = format!("port {port} stands there twice");
                return Err(ConfigError::new(&key, reason, "name each further port of the link once"));
            }
        }
        Ok(())
    }

    /// The ports of its link, the first one first.
    pub fn ports(&self) -> impl Iterator<Item = Port> + '_ {
        all_ports(self.port, &self.joined)
    }

    /// Its Ethernet address: as written, or one that follows from its port.
    pub fn mac(&self) -> MacAddress {
        let [high, low] = self.port.to_be_bytes();
        self.mac.map_or(MacAddress([2, 0, 0, 1, high, low]), |written| written.0)
    }

    /// Its MTU where the interface at its port takes `device` bytes: as written, else as many, as far as the router can.
    pub fn mtu_at(&self, device: u16) -> u16 {
        let possible = self.mtus();
        self.mtu.unwrap_or(device.clamp(*possible.start(), *possible.end()))
    }

    /// The MTUs that it can have.
    fn mtus(&self) -> RangeInclusive<u16> {
        let has_v6 = self.addresses.iter().any(|address| address.contains(':'));
        if has_v6 { MTU_MIN_V6..=MTU_MAX } else { MTU_MIN..=MTU_MAX }
    }

    fn checked(&self, mtu_of: &dyn Fn(Port) -> Option<u16>) -> Result<Interface, ConfigError> {
        let mac = self.mac();
        if mac.is_group() {
            return Err(ConfigError::new(
                "interface.mac",
                format!("{mac} is a group address"),
                "write one of a station",
            ));
        }
        if let Some(vlan) = self.vlan.filter(|vlan| !(1..=VLAN_MAX).contains(vlan)) {
            let instead = format!("write 1 to {VLAN_MAX}; without `vlan` an interface has what comes without a tag");
            return Err(ConfigError::new("interface.vlan", format!("{vlan} is no VLAN"), instead));
        }
        let mut addresses = Vec::new();
        for (number, text) in self.addresses.iter().enumerate() {
            let key = format!("interface.addresses[{number}]");
            let wrong =
                || ConfigError::new(&key, format!("`{text}` is no address with a length"), "write `192.0.2.1/24`");
            let without_length = |address: IpAddress| {
                let usual = if address.is_v4() { 24 } else { 64 };
                let help = format!("write the network's, such as `{text}/{usual}`");
                ConfigError::new(&key, format!("`{text}` has no prefix length"), help)
            };
            let split = text.split_once('/');
            let (address, bits) = split.ok_or_else(|| text.parse().map_or_else(|_| wrong(), without_length))?;
            let address: IpAddress = address.parse().map_err(|_| wrong())?;
            let bits = bits.parse().ok().filter(|bits: &u8| *bits <= if address.is_v4() { 32 } else { 128 });
            if !is_host(address) {
                let reason = format!("{address} is no host's address");
                return Err(ConfigError::new(&key, reason, "write the address of a host"));
            }
            addresses.push((address, bits.ok_or_else(wrong)?));
        }
        let translated: Vec<IpAddress> = self.translated.iter().map(|address| (*address).into()).collect();
        for (number, address) in translated.iter().enumerate() {
            if !is_host(*address) {
                let (key, reason) =
                    (format!("interface.translated[{number}]"), format!("{address} is no host's address"));
                return Err(ConfigError::new(&key, reason, "write an external address of the translator"));
            }
            if addresses.iter().all(|(own, _)| own != address) {
                addresses.push((*address, 32));
            }
        }
        let checked = Interface {
            port: self.port,
            joined: self.joined.clone(),
            vlan: self.vlan,
            mac,
            mtu: self.mtu_at(self.ports().filter_map(mtu_of).min().unwrap_or(MTU_UNKNOWN)),
            addresses,
            reverse_path: self.reverse_path,
            advertise: self.advertise.clone(),
            translated,
        };
        self.advertise.iter().try_for_each(|advertise| advertise.check(&checked.addresses))?;
        if let Some(number) = checked.addresses.iter().position(|(own, _)| checked.is_broadcast(*own)) {
            let reason = format!("{} is the network or all of its hosts", checked.addresses[number].0);
            let key = format!("interface.addresses[{number}]");
            return Err(ConfigError::new(&key, reason, "write the address of a host"));
        }
        let possible = self.mtus();
        if let Some(mtu) = self.mtu.filter(|mtu| !possible.contains(mtu)) {
            let instead = format!("write {} to {MTU_MAX}", possible.start());
            return Err(ConfigError::new("interface.mtu", format!("{mtu} is not possible"), instead));
        }
        Ok(checked)
    }
}

/// The first port of a link and its further ones.
fn all_ports(first: Port, joined: &[Port]) -> impl Iterator<Item = Port> + '_ {
    std::iter::once(first).chain(joined.iter().copied())
}

/// The addresses of an IPv4 network that no host has (RFC 1122 section 3.2.1.3): that of all its hosts, and the network's own, the former
/// form of the same. None for prefixes of 31 bits (RFC 3021) and 32 bits.
pub(super) fn broadcasts_of(address: IpAddress, bits: u8) -> impl Iterator<Item = IpAddress> {
    let host = u32::MAX.checked_shr(bits.into()).filter(|_| bits < 31);
    let both = address.v4().zip(host).map(|(v4, host)| {
        let address = u32::from_be_bytes(v4);
        [address | host, address & !host].map(|none| IpAddress::from_v4(none.to_be_bytes()))
    });
    both.into_iter().flatten()
}

/// Whether an address may be a router's: not a group, loopback, broadcast or unspecified; it may be link-local.
fn is_host(address: IpAddress) -> bool {
    match address.v4() {
        Some(v4) => is_host_v4(v4),
        None => is_link_local_v6(address) || is_routed_v6(address),
    }
}

impl Interface {
    /// The ports of its link, the first one first.
    pub fn ports(&self) -> impl Iterator<Item = Port> + '_ {
        all_ports(self.port, &self.joined)
    }

    /// Whether it is the interface for this VLAN of a port; `None`: for what comes there untagged.
    pub fn is_at(&self, port: Port, vlan: Option<u16>) -> bool {
        self.vlan == vlan && self.ports().any(|own| own == port)
    }

    /// The port by which a station is reached: where it was last heard, if that is still a port of this link.
    pub fn port_of(&self, station: Station) -> Port {
        if self.joined.contains(&station.port) { station.port } else { self.port }
    }

    /// The networks of its addresses, each once.
    fn networks(&self) -> Vec<(IpAddress, u8)> {
        let mut networks: Vec<_> = self.addresses.iter().map(|(own, bits)| (own.prefix(*bits), *bits)).collect();
        networks.sort_unstable();
        networks.dedup();
        networks
    }

    /// The networks into which packets are forwarded; nothing is into the one that every link has.
    pub fn routed(&self) -> impl Iterator<Item = (IpAddress, u8)> {
        self.addresses.iter().filter(|(own, _)| !is_link_local_v6(*own)).map(|(own, bits)| (own.prefix(*bits), *bits))
    }

    /// Whether this is one of its networks.
    pub fn has_network(&self, first: IpAddress, bits: u8) -> bool {
        self.networks().contains(&(first, bits))
    }

    /// Whether it has this address.
    pub fn owns(&self, address: IpAddress) -> bool {
        self.addresses.iter().any(|(own, _)| *own == address)
    }

    /// Whether an address is in one of its networks; a link-local IPv6 address always is.
    pub fn reaches(&self, address: IpAddress) -> bool {
        let same = |(own, bits): &(IpAddress, u8)| {
            own.is_v4() == address.is_v4() && own.prefix(*bits) == address.prefix(*bits)
        };
        is_link_local_v6(address) || self.addresses.iter().any(same)
    }

    /// Whether an IPv4 address is the broadcast address of one of its networks, or of the network itself.
    pub fn is_broadcast(&self, address: IpAddress) -> bool {
        self.addresses.iter().any(|(own, bits)| broadcasts_of(*own, *bits).any(|none| none == address))
    }

    /// Whether an address is that of all routers of one of its IPv6 networks: the network's own (RFC 4291 section 2.6.1). A link of two
    /// routers has none (RFC 6164 section 5).
    pub fn is_anycast(&self, address: IpAddress) -> bool {
        let mut networks = self.addresses.iter().filter(|(own, bits)| !own.is_v4() && *bits < 127);
        !address.is_v4() && networks.any(|(own, bits)| own.prefix(*bits) == address && *own != address)
    }

    /// The address that it speaks with to `to`: of the same network, else the first of the family, a link-local one only if there is no
    /// other (RFC 6724 section 5 rule 2).
    pub fn address_towards(&self, to: IpAddress) -> Option<IpAddress> {
        let family = || self.addresses.iter().filter(|(own, _)| own.is_v4() == to.is_v4());
        let near = family().find(|(own, bits)| own.prefix(*bits) == to.prefix(*bits));
        let wide = || family().find(|(own, _)| !is_link_local_v6(*own));
        near.or_else(wide).or_else(|| family().next()).map(|(own, _)| *own)
    }
}
