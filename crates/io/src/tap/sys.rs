//! Two requests on an open `/dev/net/tun`: attach it to a TAP interface, and query to which interface it is attached.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::device::sys::{self, InterfaceRequest};

// include/uapi/linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const TUNGETIFF: libc::c_ulong = 0x8004_54d2;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_MULTI_QUEUE: u16 = 0x0100;

/// Opens a TAP interface with this name, and creates it if necessary; reads and writes do not block.
pub(super) fn open(name: &str) -> io::Result<File> {
    attach(name, IFF_TAP | IFF_NO_PI).or_else(|error| match error.raw_os_error() {
        // An interface that was created with several queues requires this flag.
        Some(libc::EINVAL) => attach(name, IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE),
        _ => Err(error),
    })
}

fn attach(name: &str, flags: u16) -> io::Result<File> {
    let device = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
    let [a, b] = flags.to_ne_bytes();
    InterfaceRequest::new(name, [a, b, 0, 0])?.send(device.as_raw_fd(), TUNSETIFF)?;
    Ok(device)
}

/// Takes ownership of the TAP descriptor that the previous program in this process left open under this number, and determines its
/// interface. `None` if there is no such descriptor, or if it has already been adopted.
pub(super) fn adopt(fd: RawFd) -> Option<(String, File)> {
    let name = InterfaceRequest::new("any", [0; 4]).and_then(|request| request.name(fd, TUNGETIFF)).ok()?;
    // SAFETY: it is attached to a TAP interface, which is done only here, and std opens files that exec closes, unless they are left open.
    Some((name, unsafe { sys::adopt(fd) }?.into()))
}
