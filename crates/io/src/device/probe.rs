//! Tests by trial whether a back end may be used here. Everything that is opened is closed again at once.

use std::fs::OpenOptions;
use std::io;

use super::interface::Interface;
use super::sys;
use crate::af_xdp;

/// Whether AF_PACKET sockets may be opened.
pub fn af_packet() -> io::Result<()> {
    sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)
}

/// Whether the kernel supports AF_XDP and its sockets may be opened.
pub fn af_xdp() -> io::Result<()> {
    sys::socket(libc::AF_XDP, libc::SOCK_RAW, 0).map(drop)
}

/// Whether the XDP program may be loaded.
pub fn xdp_program() -> io::Result<()> {
    af_xdp::probe_program()
}

/// Whether the device that creates TAP interfaces exists and may be opened.
pub fn tap() -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open("/dev/net/tun").map(drop)
}

/// All interfaces of this network namespace.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    // Two heading lines, then one line per interface. Unlike /sys, this file shows the reader's own network namespace.
    let table = std::fs::read_to_string("/proc/self/net/dev")?;
    let names = table.lines().skip(2).filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    Ok(names.filter_map(|name| Interface::ask(name).ok()).collect())
}

/// Name and version of the DPDK that this program was built with; `None` if it was built without DPDK.
pub fn dpdk() -> Option<String> {
    #[cfg(feature = "dpdk")]
    return Some(crate::dpdk::version());
    #[cfg(not(feature = "dpdk"))]
    None
}
