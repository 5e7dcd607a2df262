//! One request: which TAP interface an open `/dev/net/tun` is the wire of.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use crate::device::sys::InterfaceRequest;

// include/uapi/linux/if_tun.h
const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TAP: u16 = 0x0002;
const IFF_NO_PI: u16 = 0x1000;
const IFF_MULTI_QUEUE: u16 = 0x0100;

/// The wire of a TAP interface of that name, which is made if there is none; reads and writes do not wait.
pub(super) fn open(name: &str) -> io::Result<File> {
    attach(name, IFF_TAP | IFF_NO_PI).or_else(|error| match error.raw_os_error() {
        // An interface that was made for several queues wants to hear that.
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
