//! The configuration as written in a plan file. The README explains each key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use braid_nf::Port;
use serde::Deserialize;

use super::maglev::SIZE_DEFAULT;
use super::ports::{PortList, Ports};
use crate::parts::config::units;
use crate::parts::{Prefix, WrittenMac};

/// The maximum weight of a backend.
pub(super) const WEIGHT_MAX: u32 = 1000;

/// The configuration of the function.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    #[serde(rename = "service")]
    pub services: Vec<Service>,
    pub backend_ports: Vec<Port>,
    pub client_ports: Vec<Port>,
    pub table_size: u32,
    pub heartbeat_port: Option<u16>,
    pub heartbeat_timeout_ms: u64,
    pub monitors: Vec<IpAddr>,
    pub checkers: Vec<Prefix>,
    pub when_down: WhenDown,
    pub when_draining: WhenDown,
    pub recheck_ms: u64,
    pub tcp_s: u64,
    pub tcp_opening_s: u64,
    pub tcp_closing_s: u64,
    pub udp_s: u64,
    pub persistence_s: u64,
    pub persistence_max: u32,
    pub strays_max: u32,
    pub mtu: u16,
    pub fragments_max: u32,
    pub held_max: u32,
    pub fragment_s: u64,
    pub router: Ipv4Addr,
    pub router_v6: Option<Ipv6Addr>,
    pub icmp_errors_per_s: u64,
    pub traffic: bool,
}

/// A virtual service: the address and ports that clients use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its address.
    pub address: IpAddr,
    /// Its port or ports; `None`: all.
    #[serde(default)]
    pub port: Option<PortList>,
    /// Its protocol; `None`: TCP and UDP.
    #[serde(default)]
    pub protocol: Option<Transport>,
    /// How its packets reach the backends.
    #[serde(default)]
    pub mode: Mode,
    /// What stays on one backend.
    #[serde(default)]
    pub persistence: Persistence,
    /// The prefix lengths that group clients for persistence, if they are grouped.
    #[serde(default)]
    pub persistence_prefix: Option<Together>,
    /// What happens to packets while none of its backends is up.
    #[serde(default)]
    pub when_none: WhenNone,
    /// How `braid health` checks its backends; the function itself sends no checks.
    #[serde(default)]
    pub check: Option<Check>,
    /// The servers behind it.
    pub backends: Vec<Backend>,
}

/// How to check whether a backend is up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// The kind of check.
    pub kind: CheckKind,
    /// What is sent (UDP), as hexadecimal digits.
    pub payload: String,
    /// Whether silence is bad (UDP).
    pub must_answer: bool,
    /// The name that is asked for (DNS).
    pub name: String,
    /// The type of record that is asked for (DNS).
    pub record: Record,
    /// The port to check; `None`: the backend's, else the service's.
    pub port: Option<u16>,
    /// The path to request (HTTP).
    pub path: String,
    /// The host name to request (HTTP); `None`: the backend's address.
    pub host: Option<String>,
    /// The interval between checks, in milliseconds.
    pub every_ms: u64,
    /// How long a reply may take, in milliseconds; by default one second, or `every_ms` if that is less.
    pub timeout_ms: Option<u64>,
    /// Successful checks in a row after which a backend that was down is up.
    pub rise: u32,
    /// Failed checks in a row after which it is down.
    pub fall: u32,
}

/// What a check tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// The backend accepts a TCP connection.
    Tcp,
    /// The backend answers an HTTP request with a status from 200 to 399.
    Http,
    /// The backend does not refuse a datagram, or answers it (`UDP_CHECK` of keepalived).
    Udp,
    /// The backend answers a question about a name without an error (`DNS_CHECK` of keepalived).
    Dns,
}

/// Types of DNS records (RFC 1035 section 3.2.2, RFC 3596, RFC 2782).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum Record {
    A = 1,
    Ns = 2,
    Cname = 5,
    Soa = 6,
    Mx = 15,
    Txt = 16,
    Aaaa = 28,
    Srv = 33,
}

impl Check {
    /// The bytes of `payload`; `None` if it is not in hexadecimal digits, or too long for a datagram without fragments.
    pub fn payload(&self) -> Option<Vec<u8>> {
        const MOST: usize = 1024;
        let digits = self.payload.as_bytes();
        let is_hexadecimal = digits.iter().all(u8::is_ascii_hexdigit) && digits.len().is_multiple_of(2);
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        (is_hexadecimal && digits.len() <= 2 * MOST).then(|| digits.chunks(2).map(byte).collect()).flatten()
    }

    /// The question about `name` as in a message (RFC 1035 section 4.1.2); `None` if it is no name.
    pub fn question(&self) -> Option<Vec<u8>> {
        const NAME_MAX: usize = 255;
        let (mut question, name) = (Vec::new(), self.name.strip_suffix('.').unwrap_or(&self.name));
        for label in name.split('.').filter(|_| !name.is_empty()) {
            let len = u8::try_from(label.len()).ok().filter(|len| (1..=63).contains(len) && label.is_ascii())?;
            question.push(len);
            question.extend(label.bytes());
        }
        question.push(0);
        const INTERNET: u8 = 1;
        let is_name = question.len() <= NAME_MAX && !self.name.contains(char::is_whitespace);
        question.extend([0, self.record as u8, 0, INTERNET]);
        is_name.then_some(question)
    }

    /// Whether backends are asked by UDP.
    pub fn is_by_udp(&self) -> bool {
        matches!(self.kind, CheckKind::Udp | CheckKind::Dns)
    }

    /// How long a reply may take, in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(self.every_ms.min(1000))
    }
}

impl Default for Check {
    fn default() -> Check {
        Check {
            kind: CheckKind::Tcp,
            payload: String::new(),
            must_answer: false,
            // As keepalived asks: every server of names knows something about the root.
            name: ".".to_owned(),
            record: Record::Soa,
            port: None,
            path: "/".to_owned(),
            host: None,
            every_ms: 2000,
            timeout_ms: None,
            rise: 2,
            fall: 3,
        }
    }
}

/// A server behind a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its address, of the service's family unless the mode is a tunnel.
    pub address: IpAddr,
    /// Its port; `None`: the port that the client used.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its relative share of new connections; 0: none, it drains.
    #[serde(default = "one", deserialize_with = "units::up_to::<_, WEIGHT_MAX>")]
    pub weight: u32,
    /// How many connections it may have at a time; `None`: any number.
    #[serde(default)]
    pub connections_max: Option<u32>,
    /// Whether it gets connections only while no other backend is up.
    #[serde(default)]
    pub backup: bool,
    /// Its Ethernet address, for [`Mode::Direct`].
    #[serde(default)]
    pub mac: Option<WrittenMac>,
    /// Whether it is up when the run starts.
    #[serde(default = "yes")]
    pub up: bool,
    /// The server identifier in the QUIC connection identifiers that it issues, in hexadecimal digits.
    #[serde(default)]
    pub server_id: Option<String>,
}

impl Service {
    /// From the first to the last of the ports that clients may use.
    pub fn ports(&self) -> Ports {
        self.port.as_ref().map_or(Ports::ALL, PortList::span)
    }

    /// The ports that clients may use, none of which meets another.
    pub fn ranges(&self) -> &[Ports] {
        self.port.as_ref().map_or(&[Ports::ALL], PortList::ranges)
    }

    /// Whether the service carries this protocol and remembers its connections.
    pub fn remembers(&self, transport: Transport) -> bool {
        self.protocol.is_none_or(|only| only == transport) && self.persistence != Persistence::None
    }
}

impl Backend {
    /// A backend with default settings.
    pub fn new(address: IpAddr) -> Backend {
        Backend {
            address,
            port: None,
            weight: 1,
            connections_max: None,
            backup: false,
            mac: None,
            up: true,
            server_id: None,
        }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// How packets reach a backend, and how its replies come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Addresses are translated; replies come back through the balancer and are translated again.
    #[default]
    Nat,
    /// Encapsulated in IP (RFC 2003, RFC 2473); replies go to the client directly.
    Ipip,
    /// Encapsulated in GRE (RFC 2784).
    Gre,
    /// Encapsulated in UDP (generic UDP encapsulation, variant 1).
    Gue,
    /// Unchanged, to the backend's Ethernet address (direct routing, `-g` of IPVS).
    Direct,
}

impl Mode {
    pub(super) const ALL: [Mode; 5] = [Mode::Nat, Mode::Ipip, Mode::Gre, Mode::Gue, Mode::Direct];

    /// Whether packets are encapsulated.
    pub fn is_tunnel(self) -> bool {
        matches!(self, Mode::Ipip | Mode::Gre | Mode::Gue)
    }
}

/// What stays on one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    /// Each connection.
    #[default]
    Connection,
    /// Everything that a client address sends.
    Source,
    /// Nothing: each packet follows its hash, and no connection is remembered.
    None,
}

/// Prefix lengths in bits: clients whose addresses share that prefix persist on the same backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Together {
    pub v4: u8,
    pub v6: u8,
}

impl Default for Together {
    fn default() -> Together {
        Together { v4: 32, v6: 128 }
    }
}

/// What happens to packets while no backend of their service is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenNone {
    /// They are dropped silently.
    #[default]
    Drop,
    /// They are dropped, and their senders get a reset (TCP) or an ICMP error (UDP).
    Reject,
}

/// Protocols that can be balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Transport {
    Tcp,
    Udp,
}

/// What happens to the connections of a backend that goes down, or to clients that persist on one that drains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenDown {
    /// They move to another backend.
    Move,
    /// They stay on it.
    Keep,
}

impl Default for Config {
    fn default() -> Config {
        let backend = |last| Backend::new(Ipv4Addr::new(10, 0, 0, last).into());
        let service = Service {
            address: Ipv4Addr::new(198, 51, 100, 10).into(),
            port: None,
            protocol: None,
            mode: Mode::Nat,
            persistence: Persistence::Connection,
            persistence_prefix: None,
            when_none: WhenNone::Drop,
            check: None,
            backends: (1..=4).map(backend).collect(),
        };
        Config {
            services: vec![service],
            backend_ports: Vec::new(),
            client_ports: Vec::new(),
            table_size: SIZE_DEFAULT,
            heartbeat_port: None,
            heartbeat_timeout_ms: 3000,
            monitors: Vec::new(),
            checkers: Vec::new(),
            when_down: WhenDown::Move,
            when_draining: WhenDown::Keep,
            recheck_ms: 1000,
            tcp_s: 900,
            tcp_opening_s: 60,
            tcp_closing_s: 120,
            udp_s: 300,
            persistence_s: 600,
            persistence_max: 65_536,
            strays_max: 65_536,
            mtu: 1500,
            fragments_max: 4096,
            held_max: 256,
            fragment_s: 30,
            // The IPv4 dummy address (RFC 7600 section 4.8), for routers that have no address of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
            icmp_errors_per_s: 1000,
            traffic: false,
        }
    }
}
