//! What can be configured, as it stands in a plan file. The README explains each key.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use braid_nf::Port;
use serde::Deserialize;

use super::maglev::SIZE_DEFAULT;
use super::ports::Ports;
use crate::bridge::WrittenMac;
use crate::parts::units;

/// The greatest weight of a backend.
pub(super) const WEIGHT_MAX: u32 = 1000;

/// The whole of it.
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
    pub when_down: WhenDown,
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

/// A virtual service: what clients see.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its address.
    pub address: IpAddr,
    /// Its port or ports; none: all.
    #[serde(default)]
    pub port: Option<Ports>,
    /// Its protocol; none: TCP and UDP.
    #[serde(default)]
    pub protocol: Option<Transport>,
    /// How its packets reach the backends.
    #[serde(default)]
    pub mode: Mode,
    /// What stays with one backend.
    #[serde(default)]
    pub persistence: Persistence,
    /// Which clients stay together, if they do.
    #[serde(default)]
    pub persistence_prefix: Option<Together>,
    /// What becomes of packets while none of its backends is up.
    #[serde(default)]
    pub when_none: WhenNone,
    /// How `braid health` asks whether its backends are up; the function itself asks nobody.
    #[serde(default)]
    pub check: Option<Check>,
    /// Who does the work.
    pub backends: Vec<Backend>,
}

/// How a backend is asked whether it is up.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Check {
    /// What is asked.
    pub kind: CheckKind,
    /// At which port; none: the backend's, else the service's.
    pub port: Option<u16>,
    /// Which page, for HTTP.
    pub path: String,
    /// Of which host, for HTTP; none: the backend's address.
    pub host: Option<String>,
    /// How often, in milliseconds.
    pub every_ms: u64,
    /// How long an answer may take, in milliseconds; a second, or `every_ms` if that is less.
    pub timeout_ms: Option<u64>,
    /// Good answers in a row after which a backend that was down is up.
    pub rise: u32,
    /// Bad ones after which it is down.
    pub fall: u32,
}

/// What a backend is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckKind {
    /// Whether it accepts a connection.
    Tcp,
    /// Whether it has a page: status 200 to 399.
    Http,
}

impl Check {
    /// How long an answer may take, in milliseconds.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.unwrap_or(self.every_ms.min(1000))
    }
}

impl Default for Check {
    fn default() -> Check {
        Check {
            kind: CheckKind::Tcp,
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

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its address; of the service's family, but with tunnels.
    pub address: IpAddr,
    /// Its port; none: the one that the client asked for.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its share of new connections; 0: none, it drains.
    #[serde(default = "one", deserialize_with = "units::up_to::<_, WEIGHT_MAX>")]
    pub weight: u32,
    /// Whether it gets connections only while no other one is up.
    #[serde(default)]
    pub backup: bool,
    /// Its Ethernet address, for direct routing.
    #[serde(default)]
    pub mac: Option<WrittenMac>,
    /// Whether it is up when the run begins.
    #[serde(default = "yes")]
    pub up: bool,
    /// What QUIC connection identifiers that it makes contain, in hexadecimal digits.
    #[serde(default)]
    pub server_id: Option<String>,
}

impl Service {
    /// What clients may ask for.
    pub fn ports(&self) -> Ports {
        self.port.unwrap_or(Ports::ALL)
    }

    /// Whether it has connections of a protocol, and remembers them.
    pub fn remembers(&self, transport: Transport) -> bool {
        self.protocol.is_none_or(|only| only == transport) && self.persistence != Persistence::None
    }
}

impl Backend {
    /// A backend with all defaults.
    pub fn new(address: IpAddr) -> Backend {
        Backend { address, port: None, weight: 1, backup: false, mac: None, up: true, server_id: None }
    }
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// How packets reach a backend, and how its answers come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Addresses are translated; answers come back this way and are translated again.
    #[default]
    Nat,
    /// In IP (RFC 2003, RFC 2473); answers go to the client directly.
    Ipip,
    /// In GRE (RFC 2784).
    Gre,
    /// In UDP (generic UDP encapsulation, variant 1).
    Gue,
    /// As they are, to the backend's Ethernet address (direct routing, `-g` of IPVS).
    Direct,
}

impl Mode {
    pub(super) const ALL: [Mode; 5] = [Mode::Nat, Mode::Ipip, Mode::Gre, Mode::Gue, Mode::Direct];

    /// Whether packets go within others.
    pub fn is_tunnel(self) -> bool {
        matches!(self, Mode::Ipip | Mode::Gre | Mode::Gue)
    }
}

/// What stays with one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    /// A connection.
    #[default]
    Connection,
    /// All that a client address sends.
    Source,
    /// Nothing: each packet goes by its hash, and no connection is remembered.
    None,
}

/// Clients whose addresses have so many first bits in common stay together.
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

/// What becomes of packets while no backend of their service is up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenNone {
    /// They end here, and nobody is told.
    #[default]
    Drop,
    /// Their senders are told: a reset for TCP, an ICMP error for UDP.
    Reject,
}

/// Protocols that are balanced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Transport {
    Tcp,
    Udp,
}

/// What becomes of the connections of a backend that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenDown {
    /// They go to another backend.
    Move,
    /// They stay.
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
            when_down: WhenDown::Move,
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
            // The dummy address of RFC 7600 section 4.8, for routers that have none of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
            icmp_errors_per_s: 1000,
            traffic: false,
        }
    }
}
