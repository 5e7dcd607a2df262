//! Queries a network interface of this network namespace with `ioctl(2)`, because `/sys` may show those of another namespace.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::links;
use super::sys::{self, InterfaceRequest, Plain};
use crate::source::OpenError;

// include/uapi/linux/sockios.h
const SIOCGIFNAME: libc::c_ulong = 0x8910;
const SIOCGIFFLAGS: libc::c_ulong = 0x8913;
const SIOCSIFFLAGS: libc::c_ulong = 0x8914;
const SIOCGIFADDR: libc::c_ulong = 0x8915;
const SIOCGIFMTU: libc::c_ulong = 0x8921;
const SIOCGIFHWADDR: libc::c_ulong = 0x8927;
const SIOCGIFINDEX: libc::c_ulong = 0x8933;
/// include/uapi/linux/if.h
const IFF_UP: u16 = 1;
const IFF_RUNNING: u16 = 0x40;
// include/uapi/linux/if_arp.h: what precedes a packet on the interface; on loopback it is an Ethernet header of zeros.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
// include/uapi/linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`: the command, followed by strings of 32 bytes of which the first is the driver; 196 bytes.
type DriverInfo = [u32; 49];
/// `struct ethtool_channels`: command, the four maxima, then the current numbers of rx, tx, other and combined channels.
type Channels = [u32; 9];

/// Suggestion for interfaces whose packets have no Ethernet headers.
pub const NO_ETHERNET: &str =
    "have the kernel route between it and a port that has them: `tap:braid0`, say, with an address of its own";

/// An existing interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// Maximum size of a packet without its Ethernet header, in bytes.
    pub mtu: usize,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Whether its packets have Ethernet headers. Those of TUN, WireGuard, PPP and IP tunnels begin with IP.
    pub is_ethernet: bool,
    /// Whether it has an IPv4 address; if so, the kernel also answers for it.
    pub has_address: bool,
    /// Name of its driver, or empty if the driver does not report it.
    pub driver: String,
    /// Number of receive queues.
    pub queues: usize,
    /// The bridge, bond or VRF that it belongs to; if there is one, the kernel handles its packets too.
    pub master: Option<String>,
}

/// The status of an interface that may change while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its interface index; a different value means that it is another interface.
    pub index: u32,
    /// Whether it is up and has carrier.
    pub is_running: bool,
    /// Maximum size of a packet without its Ethernet header, in bytes.
    pub mtu: u32,
}

impl Interface {
    /// The current status of the interface with this name; `None` if there is no such interface. An error says nothing about it.
    pub fn stands(name: &str) -> io::Result<Option<Standing>> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let number = |request| ask(&socket, name, request).map(u32::from_ne_bytes);
        let standing = || {
            let running = IFF_UP | IFF_RUNNING;
            let is_running = number(SIOCGIFFLAGS)? as u16 & running == running;
            Ok(Standing { index: number(SIOCGIFINDEX)?, is_running, mtu: number(SIOCGIFMTU)? })
        };
        match standing() {
            Err(error) if io::Error::raw_os_error(&error) == Some(libc::ENODEV) => Ok(None),
            standing => standing.map(Some),
        }
    }

    /// The current name of the interface with this index.
    pub fn called(index: u32) -> io::Result<String> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        // The kernel writes the answer to the name of the request.
        InterfaceRequest::new("?", index.to_ne_bytes())?.name(socket.as_raw_fd(), SIOCGIFNAME)
    }

    /// Queries all properties; fails, with a remedy, if the interface does not exist, is down, or cannot be a port.
    pub fn find(name: &str) -> Result<Interface, OpenError> {
        let interface = Interface::ask(name).map_err(|error| missing(name, &error))?;
        let (what, mend) = match (interface.is_ethernet, interface.is_up) {
            (true, true) => return Ok(interface),
            (true, false) => ("is down", format!("sudo ip link set {name} up")),
            (false, _) => ("its packets have no Ethernet headers, as those of a port have", NO_ETHERNET.to_owned()),
        };
        Err(OpenError::Device { device: name.to_owned(), what: what.to_owned(), mend })
    }

    /// Queries all properties, whether or not the interface is up.
    pub fn ask(name: &str) -> io::Result<Interface> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let number = |request| ask(&socket, name, request).map(u32::from_ne_bytes);
        let (driver, queues) = (driver(&socket, name).unwrap_or_default(), channels(&socket, name));
        let (link_type, mac) = hardware(&socket, name)?;
        Ok(Interface {
            name: name.to_owned(),
            index: number(SIOCGIFINDEX)?,
            mtu: number(SIOCGIFMTU)? as usize,
            is_up: number(SIOCGIFFLAGS)? as u16 & IFF_UP != 0,
            mac,
            is_ethernet: matches!(link_type, ARPHRD_ETHER | ARPHRD_LOOPBACK),
            has_address: number(SIOCGIFADDR).is_ok(),
            driver,
            queues,
            master: links::master(number(SIOCGIFINDEX)?).and_then(|master| Interface::called(master).ok()),
        })
    }

    /// Whether its packets come from this machine, so that the kernel may have left checksums and segmentation to be done.
    pub fn is_virtual(&self) -> bool {
        matches!(self.driver.as_str(), "veth" | "bridge" | "tun" | "dummy" | "virtio_net" | "macvlan" | "vxlan")
    }

    /// Whether its device delivers unicast frames for its own Ethernet address only, or its host may: MACVLAN, functions of a network card that
    /// are given to guests, and the cards of virtual machines.
    pub fn hears_own_address_only(&self) -> bool {
        const GUESTS: [&str; 8] = ["macvlan", "iavf", "ixgbevf", "igbvf", "vmxnet3", "hv_netvsc", "ena", "gve"];
        GUESTS.contains(&self.driver.as_str())
    }

    /// Whether AF_PACKET is the better back end although the driver runs XDP programs. Of a veth pair AF_PACKET takes TCP segments of 64 KiB
    /// whole, and they are cut here; for AF_XDP the kernel cuts them, at several times the cost, and they flood the rings (decision 18).
    pub fn prefers_af_packet(&self) -> bool {
        self.driver == "veth"
    }

    /// Brings the interface with this name up.
    pub fn bring_up(name: &str) -> io::Result<()> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let [a, b, ..] = ask(&socket, name, SIOCGIFFLAGS)?;
        let [a, b] = (u16::from_ne_bytes([a, b]) | IFF_UP).to_ne_bytes();
        InterfaceRequest::new(name, [a, b, 0, 0])?.send(socket.as_raw_fd(), SIOCSIFFLAGS).map(drop)
    }
}

fn ask(socket: &OwnedFd, name: &str, request: libc::c_ulong) -> io::Result<[u8; 4]> {
    InterfaceRequest::new(name, [0; 4])?.send(socket.as_raw_fd(), request)
}

/// The hardware type of the interface, one of `ARPHRD_…`, and its address (`struct sockaddr`).
fn hardware(socket: &OwnedFd, name: &str) -> io::Result<(u16, [u8; 6])> {
    let union = InterfaceRequest::new(name, [0; 4])?.union(socket.as_raw_fd(), SIOCGIFHWADDR)?;
    let [a, b, mac @ ..] = union;
    Ok((u16::from_ne_bytes([a, b]), [mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]))
}

fn ethtool<T: Plain>(socket: &OwnedFd, name: &str, mut structure: T) -> io::Result<T> {
    InterfaceRequest::new(name, [0; 4])?.ethtool(socket.as_raw_fd(), &mut structure)?;
    Ok(structure)
}

fn driver(socket: &OwnedFd, name: &str) -> io::Result<String> {
    let mut request: DriverInfo = [0; 49];
    request[0] = ETHTOOL_GDRVINFO;
    let info = ethtool(socket, name, request)?;
    let bytes: Vec<u8> = info[1..9].iter().flat_map(|word| word.to_ne_bytes()).chain([0]).collect();
    Ok(CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default())
}

/// Number of receive queues; 1 if the interface does not report it.
fn channels(socket: &OwnedFd, name: &str) -> usize {
    let request: Channels = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    let channels = ethtool(socket, name, request).unwrap_or_default();
    ((channels[5] + channels[8]) as usize).max(1)
}

fn missing(name: &str, error: &io::Error) -> OpenError {
    let (what, mend) = match error.raw_os_error() {
        Some(libc::ENODEV) => {
            let mend = format!(
                "`ip -brief link` lists those that are; for a trial: sudo ip link add {name} type veth peer name {name}-far"
            );
            ("there is no such interface here".to_owned(), mend)
        }
        _ => (error.to_string(), "`ip -brief link` lists the interfaces".to_owned()),
    };
    OpenError::Device { device: name.to_owned(), what, mend }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_known() {
        let loopback = Interface::ask("lo").expect("every network namespace has one");
        assert!(loopback.index > 0 && loopback.mtu > 0 && loopback.queues == 1 && loopback.is_ethernet);
    }

    #[test]
    fn a_missing_interface_is_an_error_with_a_command() {
        let error = Interface::find("no-such-if").unwrap_err();
        let OpenError::Device { device, mend, .. } = &error else { panic!("{error}") };
        assert!(device == "no-such-if" && mend.contains("ip -brief link"), "{error}");
    }
}
