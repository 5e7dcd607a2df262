//! Whether a back end would be allowed to work here, found out by trying. Everything that is opened closes again at once.

use std::fs::OpenOptions;
use std::io;

use super::interface::Interface;
use super::sys;
use crate::af_xdp;

/// Whether AF_PACKET sockets may be opened.
pub fn af_packet() -> io::Result<()> {
    sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)
}

/// Whether the kernel has AF_XDP, and its sockets may be opened.
pub fn af_xdp() -> io::Result<()> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map(drop)
}

/// Whether the XDP program may be loaded.
pub fn xdp_program() -> io::Result<()> {
    af_xdp::probe_program()
}

/// Whether the device from which TAP interfaces are made is there and may be opened.
pub fn tap() -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop)
}

/// All interfaces of this network namespace.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    // One line each behind two of headings; unlike /sys it is of the namespace of whoever reads it.
    let table = std::fs::read_to_string("/proc/self/net/dev")?;
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    Ok(names.filter_map(|name| Interface::ask(name).ok()).collect())
}

/// Name and version of the DPDK that this program was built with; none if it was built without.
pub fn dpdk() -> Option<String> {
    #[cfg(feature = "dpdk")]
    return Some(crate::dpdk::version());
    #[cfg(not(feature = "dpdk"))]
    None
}
