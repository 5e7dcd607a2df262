//! System calls without a safe wrapper: leaving the network namespace, naming a TAP device, sockets for frames.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl};
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::net::netdevice::name_to_index;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, Protocol, SocketType, bind, socket};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Moves the calling thread into a new, empty network namespace, which its child processes inherit.
pub fn leave_network() -> io::Result<()> {
    // SAFETY: NEWNET does not affect the file table or memory; the flags that make unshare unsafe (FILES) are not set.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
}

/// Attaches `device` (`/dev/net/tun`, open) to a new TAP interface with this name in the thread's namespace. Frames carry no packet
/// information header. A name has at most 15 bytes.
pub fn name_tap(device: &File, name: &str) -> io::Result<()> {
    let mut request = InterfaceRequest { name: [0; 16], flags: IFF_TAP | IFF_NO_PI, rest: [0; 22] };
    if name.len() >= request.name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("interface name too long: {name}")));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the opcode takes a pointer to an ifreq, which `InterfaceRequest` is (see there).
    unsafe { ioctl(device, request) }.map_err(io::Error::from)
}

/// Opens a socket in the calling thread's namespace that sends complete frames through an interface and receives none.
pub fn frame_sender(interface: &str) -> io::Result<OwnedFd> {
    frame_socket(interface, 0)
}

/// Opens a socket that receives all frames and waits for one at most a tenth of a second.
pub fn frame_receiver(interface: &str) -> io::Result<OwnedFd> {
    let socket = frame_socket(interface, ALL_PROTOCOLS.to_be())?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100)))?;
    Ok(socket)
}

/// Opens a socket that receives all IP packets of a protocol for the thread's namespace, reassembled if they were fragmented. IPv4
/// packets begin with their header, IPv6 packets with their payload.
pub fn packet_receiver(protocol: u8, is_v6: bool) -> io::Result<OwnedFd> {
    let family = if is_v6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let protocol = NonZeroU32::new(protocol.into()).map(Protocol::from_raw);
    let socket = socket(family, SocketType::RAW, protocol)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100)))?;
    Ok(socket)
}

fn frame_socket(interface: &str, protocol: u16) -> io::Result<OwnedFd> {
    let socket = socket(AddressFamily::PACKET, SocketType::RAW, None)?;
    let address = LinkAddress { interface: name_to_index(&socket, interface)?, protocol, ..LinkAddress::default() };
    bind(&socket, &address)?;
    Ok(socket)
}

/// `ETH_P_ALL` of include/uapi/linux/if_ether.h.
const ALL_PROTOCOLS: u16 = 3;

/// `struct sockaddr_ll` of include/uapi/linux/if_packet.h, 20 bytes.
#[derive(Default)]
#[repr(C)]
struct LinkAddress {
    family: PacketFamily,
    /// In network byte order; 0 to receive nothing.
    protocol: u16,
    interface: u32,
    hardware_type: u16,
    packet_type: u8,
    address_len: u8,
    address: [u8; 8],
}

/// `AF_PACKET` as an address family.
#[repr(transparent)]
struct PacketFamily(u16);

impl Default for PacketFamily {
    fn default() -> PacketFamily {
        PacketFamily(AddressFamily::PACKET.as_raw())
    }
}

// SAFETY: pointer and length describe the whole structure, which has the layout of a `sockaddr_ll` and lives during the call.
unsafe impl SocketAddrArg for LinkAddress {
    unsafe fn with_sockaddr<R>(&self, f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R) -> R {
        f(std::ptr::from_ref(self).cast(), size_of::<LinkAddress>() as SocketAddrLen)
    }
}

/// include/uapi/linux/if_tun.h
const TUNSETIFF: Opcode = 0x4004_54ca;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;

/// `struct ifreq` of include/uapi/linux/if.h, 40 bytes, with its union as `ifr_flags`.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

// SAFETY: opcode and type match; the pointer is valid for the 40 bytes that the kernel reads and writes.
unsafe impl Ioctl for InterfaceRequest {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        TUNSETIFF
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::from_mut(self).cast()
    }

    // SAFETY: nothing is read through the pointer.
    unsafe fn output_from_ptr(_: IoctlOutput, _: *mut c_void) -> rustix::io::Result<()> {
        Ok(())
    }
}
