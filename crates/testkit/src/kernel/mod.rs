//! The Linux kernel as an oracle, packet by packet: what would it have sent?
//!
//! A [`KernelOracle`] is a network namespace with TAP devices as ports. The kernel has processed a frame fed to a port when the
//! write returns, so the frames read next are its consequence: inputs and outputs correspond one to one.
//!
//! Several effects would make such a comparison wrong. They are handled as follows:
//!
//! - *The kernel speaks by itself* (neighbour discovery, multicast reports). Interfaces have no link-local addresses, an output
//!   rule drops the rest, and what still arrives before a frame is fed is thrown away and counted ([`KernelOracle::noise`]).
//! - *A router's Ethernet addresses are its own.* [`KernelOracle::nat`] and [`KernelOracle::firewall`] write theirs into a frame
//!   before they feed it: compare what [`network_packet`] returns, not frames. The bridge changes nothing.
//! - *Wrong checksums and segments outside the window are INVALID* for connection tracking, hence not translated and dropped by
//!   a firewall. [`Tracking::Liberal`] accepts both; [`Tracking::Strict`] is the kernel's default.
//! - *A connection that is first seen by its FIN or RST is INVALID* under either. [`Screen`] finds these packets, and the others
//!   which cannot be compared, with the reason.
//! - *Fragments are reassembled, translated and cut again*: nothing leaves until the last fragment, and then several frames.
//!   [`Screen`] names them; compare whole datagrams.
//! - *Time-outs run on the real clock*, not on capture time. A capture fed in one go sees no expiry;
//!   [`KernelOracle::track`] sets them in seconds for tests of expiry that really wait.
//! - *Source NAT keeps the port while the five-tuple is unique*, so two inside hosts may share one outside port towards two
//!   servers. A NAT with endpoint-independent mapping cannot: compare modulo the port, which [`Replies`] learns.
//! - *Replies in a capture recorded inside name the inside host.* [`Replies`] readdresses them to what the NAT chose.

mod bridge;
mod namespace;
mod replies;
mod router;
mod screen;
mod sys;

use std::io;
use std::net::Ipv4Addr;
use std::thread::sleep;
use std::time::Duration;

pub use self::namespace::Namespace;
use self::namespace::Tap;
pub use self::replies::Replies;
pub use self::screen::{Reason, Screen, network_packet};

/// The inside port of a NAT or firewall.
pub const INSIDE: usize = 0;
/// The outside port of a NAT or firewall.
pub const OUTSIDE: usize = 1;

/// Why there is no oracle on this machine.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The process is not root, or namespaces are forbidden.
    #[error("no network namespace ({0}): needs root")]
    Namespace(#[source] io::Error),
    /// There are no TAP devices.
    #[error("no TAP device ({0}): needs /dev/net/tun")]
    Tun(#[source] io::Error),
    /// A program is not installed.
    #[error("no program {0}: needs iproute2 and nftables")]
    Program(&'static str),
    /// The kernel lacks a feature that the oracle needs.
    #[error("the kernel refused `{command}`: {complaint}")]
    Kernel {
        /// The attempted command.
        command: String,
        /// The error message of the kernel or of the program.
        complaint: String,
    },
}

/// How strictly connection tracking judges packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracking {
    /// The kernel's default: checksums and TCP windows are verified.
    Strict,
    /// Checksums and windows are taken on trust, as most network functions do.
    Liberal,
}

/// The kernel, processing packets between ports.
#[derive(Debug)]
pub struct KernelOracle {
    namespace: Namespace,
    ports: Vec<Tap>,
    /// Ethernet destination and source that a frame on each port needs to be routed; `None` if frames are fed unchanged.
    addresses: Option<Vec<[u8; 12]>>,
    noise: u64,
}

impl KernelOracle {
    /// Checks whether all three oracles work here; the error says why not.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn probe() -> Result<(), Unavailable> {
        KernelOracle::nat(&["10.0.0.0/8"], Ipv4Addr::new(192, 0, 2, 1), Tracking::Strict)?;
        KernelOracle::firewall(&["10.0.0.0/8", "fd00::/8"], Tracking::Strict)?;
        KernelOracle::bridge(2).map(drop)
    }

    /// Feeds a frame to a port; returns what the kernel sent in response, as (port, frame) in the order of ports.
    ///
    /// # Errors
    /// Reading from or writing to the TAP devices fails. A frame that the kernel does not accept (shorter
    /// than an Ethernet header) is also an error.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn feed(&mut self, port: usize, frame: &[u8]) -> io::Result<Vec<(usize, Vec<u8>)>> {
        self.discard()?;
        match &self.addresses {
            Some(addresses) if frame.len() >= 14 => {
                let mut routed = frame.to_vec();
                routed[..12].copy_from_slice(&addresses[port]);
                self.ports[port].send(&routed)?;
            }
            _ => self.ports[port].send(frame)?,
        }
        let mut sent = Vec::new();
        for (number, tap) in self.ports.iter_mut().enumerate() {
            sent.extend(tap.drain()?.into_iter().map(|frame| (number, frame)));
        }
        Ok(sent)
    }

    /// Number of frames that the kernel sent without being fed: 0 unless the machine is configured in an unexpected way.
    pub fn noise(&self) -> u64 {
        self.noise
    }

    /// The rules with their counters, as nft lists them.
    ///
    /// # Errors
    /// The error message of nft.
    pub fn listing(&self) -> Result<String, Unavailable> {
        self.namespace.run("nft", "list ruleset")
    }

    /// Number of tracked connections, including expired ones that have not been collected yet.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn connections(&self) -> io::Result<u64> {
        self.namespace.read("netfilter/nf_conntrack_count")
    }

    /// Sets what connection tracking goes by: a time-out in seconds, for example `udp_timeout`, or a switch, for example `tcp_loose`.
    ///
    /// # Errors
    /// If there is no such thing.
    pub fn track(&self, name: &str, value: u64) -> Result<(), Unavailable> {
        self.namespace.set(&format!("netfilter/nf_conntrack_{name}"), value)
    }

    /// Discards what the kernel sends at startup, without counting it as noise.
    fn settle(&mut self) -> Result<(), Unavailable> {
        sleep(Duration::from_millis(50));
        self.discard().map_err(Unavailable::Tun)?;
        self.noise = 0;
        Ok(())
    }

    fn discard(&mut self) -> io::Result<()> {
        for tap in &mut self.ports {
            self.noise += tap.drain()?.len() as u64;
        }
        Ok(())
    }
}
