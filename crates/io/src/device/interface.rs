//! What can be asked about a network interface of this network namespace, by `ioctl(2)`: `/sys` may show another namespace's.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

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
// include/uapi/linux/if_arp.h: what stands before a packet there; loopback has Ethernet headers of zeros.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;
// include/uapi/linux/ethtool.h
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_drvinfo`: the command, then strings of 32 bytes, driver first; 196 bytes.
type DriverInfo = [u32; 49];
/// `struct ethtool_channels`: command, the four maxima, then the numbers of rx, tx, other and combined channels.
type Channels = [u32; 9];

/// What to do instead where packets have no Ethernet headers.
pub const NO_ETHERNET: &str =
    "have the kernel route between it and a port that has them: `tap:braid0`, say, with an address of its own";

/// An interface that exists.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number.
    pub index: u32,
    /// Largest packet without its Ethernet header, in bytes.
    pub mtu: usize,
    /// Whether it is up.
    pub is_up: bool,
    /// Whether its packets have Ethernet headers: those of TUN, WireGuard, PPP and tunnels of IP begin with IP.
    pub is_ethernet: bool,
    /// Whether it has an IPv4 address: then the kernel answers for it as well.
    pub has_address: bool,
    /// Its driver, if it says so.
    pub driver: String,
    /// Receive queues.
    pub queues: usize,
}

/// What may change of an interface while it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its number; another one means that it is another interface.
    pub index: u32,
    /// Whether it is up and has a carrier.
    pub is_running: bool,
}

impl Interface {
    /// How the interface of this name stands.
    pub fn stands(name: &str) -> io::Result<Standing> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let number = |request| ask(&socket, name, request).map(u32::from_ne_bytes);
        let running = IFF_UP | IFF_RUNNING;
        Ok(Standing { index: number(SIOCGIFINDEX)?, is_running: number(SIOCGIFFLAGS)? as u16 & running == running })
    }

    /// What the interface with this number is called by now.
    pub fn called(index: u32) -> io::Result<String> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        // The name of the request is where the answer goes.
        InterfaceRequest::new("?", index.to_ne_bytes())?.name(socket.as_raw_fd(), SIOCGIFNAME)
    }

    /// Asks for everything; an interface that is not there, not up, or no port is an error that says how to mend it.
    pub fn find(name: &str) -> Result<Interface, OpenError> {
        let interface = Interface::ask(name).map_err(|error| missing(name, &error))?;
        let (what, mend) = match (interface.is_ethernet, interface.is_up) {
            (true, true) => return Ok(interface),
            (true, false) => ("is down", format!("sudo ip link set {name} up")),
            (false, _) => ("its packets have no Ethernet headers, as those of a port have", NO_ETHERNET.to_owned()),
        };
        Err(OpenError::Device { device: name.to_owned(), what: what.to_owned(), mend })
    }

    /// Asks for everything, whether it is up or not.
    pub fn ask(name: &str) -> io::Result<Interface> {
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let number = |request| ask(&socket, name, request).map(u32::from_ne_bytes);
        let (driver, queues) = (driver(&socket, name).unwrap_or_default(), channels(&socket, name));
        Ok(Interface {
            name: name.to_owned(),
            index: number(SIOCGIFINDEX)?,
            mtu: number(SIOCGIFMTU)? as usize,
            is_up: number(SIOCGIFFLAGS)? as u16 & IFF_UP != 0,
            is_ethernet: matches!(link_type(&socket, name)?, ARPHRD_ETHER | ARPHRD_LOOPBACK),
            has_address: number(SIOCGIFADDR).is_ok(),
            driver,
            queues,
        })
    }

    /// Whether its packets come from this machine, so that the kernel may have left checksums and segments undone.
    pub fn is_virtual(&self) -> bool {
        matches!(self.driver.as_str(), "veth" | "bridge" | "tun" | "dummy" | "virtio_net" | "macvlan" | "vxlan")
    }

    /// Brings an interface up.
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

/// One of `ARPHRD_…`: the family of the hardware address.
fn link_type(socket: &OwnedFd, name: &str) -> io::Result<u16> {
    let [a, b, ..] = ask(socket, name, SIOCGIFHWADDR)?;
    Ok(u16::from_ne_bytes([a, b]))
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

/// Receive queues; an interface that cannot tell has one.
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
