//! Log lines that leave as packets: syslog (RFC 5424) over UDP (RFC 5426), to a collector behind a port of the plan.
//!
//! A line is a packet that a handler makes, so it leaves if and only if the handler's transaction commits: no line is lost
//! before the link, none is sent twice, and a certificate covers them. Beyond that the network may lose or duplicate them like
//! any datagram.

use std::fmt::Arguments;
use std::io::Write;
use std::net::SocketAddrV4;

use braid_nf::packet::headers::{Ethernet, Header, Ipv4, Udp, ether_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, checksum};
use braid_nf::{Cx, Port};
use serde::Deserialize;

use crate::config::{ConfigError, check_port};
use crate::parts::WrittenMac;

/// Facility local0, severity informational (RFC 5424 section 6.2.1).
const PRIORITY: u8 = 16 * 8 + 6;
/// The longest line, in bytes; every receiver accepts 480 bytes (RFC 5424 section 6.1).
const LINE: usize = 480;
const HEADERS: usize = Ethernet::LEN + Ipv4::LEN + Udp::LEN;

/// Where a log is sent, as a plan file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Collector {
    pub port: Port,
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub from_mac: WrittenMac,
    pub to_mac: WrittenMac,
}

/// A log that is sent as it is written.
#[derive(Clone, Copy, Debug)]
pub struct Syslog(Collector);

impl Syslog {
    /// Checks that the plan has the collector's port; `key` is the collector's name in a plan file.
    pub fn check(key: &'static str, collector: Collector, ports: u16) -> Result<Syslog, ConfigError> {
        check_port(key, collector.port, ports)?;
        Ok(Syslog(collector))
    }

    /// Sends a line of this kind; a line that is too long is truncated.
    #[cold]
    pub fn send(&self, cx: &mut Cx<'_>, kind: &str, text: Arguments<'_>) {
        let Collector { port, from, to, from_mac, to_mac } = self.0;
        let mut frame = [0; HEADERS + LINE];
        let mut rest = &mut frame[HEADERS..];
        // The collector adds the time. The only possible error is a full buffer.
        let _ = write!(rest, "<{PRIORITY}>1 - {} braid - {kind} - {text}", from.ip());
        let len = LINE - rest.len();

        let mut link = Ethernet::default();
        link.set_source(from_mac.0);
        link.set_destination(to_mac.0);
        link.set_ether_type(ether_type::IPV4);
        link.emit(&mut frame);
        let mut ip = Ipv4::new(protocol::UDP, (Udp::LEN + len) as u16);
        ip.set_source(from.ip().octets());
        ip.set_destination(to.ip().octets());
        ip.emit(&mut frame[Ethernet::LEN..]);
        ip.set_checksum(checksum::ipv4_header(&frame[Ethernet::LEN..][..Ipv4::LEN]));
        ip.emit(&mut frame[Ethernet::LEN..]);
        let datagram = &mut frame[Ethernet::LEN + Ipv4::LEN..HEADERS + len];
        let mut udp = Udp::new(from.port(), to.port(), len as u16);
        udp.emit(datagram);
        let ends = [from.ip(), to.ip()].map(|address| IpAddress::from_v4(address.octets()));
        udp.set_checksum(checksum::udp_zero(checksum::transport(ends[0], ends[1], protocol::UDP, datagram)));
        udp.emit(datagram);
        cx.emit(port, &frame[..HEADERS + len]);
    }
}
