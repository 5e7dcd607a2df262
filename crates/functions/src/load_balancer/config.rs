//! What can be configured, and what it means once it has been checked.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use super::maglev::{Candidate, Maglev, SIZE_DEFAULT, is_prime};
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::Sides;
use crate::parts::answer::Router;

/// As it stands in a plan file. The README explains each key.
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
    pub when_down: WhenDown,
    pub recheck_ms: u64,
    pub tcp_s: u64,
    pub tcp_closing_s: u64,
    pub udp_s: u64,
    pub fragments_max: u32,
    pub fragment_s: u64,
    pub router: Ipv4Addr,
    pub router_v6: Option<Ipv6Addr>,
}

/// A virtual service: what clients see.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Its address.
    pub address: IpAddr,
    /// Its port; none: all ports.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its protocol; none: TCP and UDP.
    #[serde(default)]
    pub protocol: Option<Transport>,
    /// Who does the work.
    pub backends: Vec<Backend>,
}

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Backend {
    /// Its address, of the service's family.
    pub address: IpAddr,
    /// Its port; none: the one that the client asked for.
    #[serde(default)]
    pub port: Option<u16>,
    /// Its share of new connections; 0: none, it drains.
    #[serde(default = "one")]
    pub weight: u32,
}

fn one() -> u32 {
    1
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
        let backend = |last| Backend { address: Ipv4Addr::new(10, 0, 0, last).into(), port: None, weight: 1 };
        let address = Ipv4Addr::new(198, 51, 100, 10).into();
        Config {
            services: vec![Service { address, port: None, protocol: None, backends: (1..=4).map(backend).collect() }],
            backend_ports: Vec::new(),
            client_ports: Vec::new(),
            table_size: SIZE_DEFAULT,
            heartbeat_port: None,
            heartbeat_timeout_ms: 3000,
            when_down: WhenDown::Move,
            recheck_ms: 1000,
            tcp_s: 900,
            tcp_closing_s: 120,
            udp_s: 300,
            fragments_max: 4096,
            fragment_s: 30,
            // The dummy address of RFC 7600 section 4.8, for routers that have none of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
        }
    }
}

/// Address, port and protocol; port 0 stands for all.
pub(super) type End = (IpAddress, u16, u8);

/// A service, ready to choose.
#[derive(Clone, Debug)]
pub(super) struct Virtual {
    pub(super) table: Maglev,
    /// Numbers of its backends, in the order of the table's candidates.
    pub(super) backends: Box<[u32]>,
}

/// One of all backends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) address: IpAddress,
    /// 0: as the client asked.
    pub(super) port: u16,
    pub(super) weight: u32,
    /// What clients see of it.
    pub(super) service_address: IpAddress,
    pub(super) service_port: u16,
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) services: Vec<Virtual>,
    pub(super) servers: Vec<Server>,
    by_service: HashMap<End, usize>,
    by_server: HashMap<End, usize>,
    addresses: HashSet<IpAddress>,
    pub(super) heartbeat_port: Option<u16>,
    pub(super) heartbeat_ns: u64,
    pub(super) when_down: WhenDown,
    pub(super) recheck_ns: u64,
    pub(super) tcp_ns: u64,
    pub(super) closing_ns: u64,
    pub(super) udp_ns: u64,
    pub(super) fragment_ns: u64,
    pub(super) router: Router,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16) -> Result<Settings, ConfigError> {
        let seconds = |key, value| span_ns(key, Duration::from_secs(value), Duration::from_secs(1), IDLE_MAX);
        let millis = |key, value| {
            span_ns(key, Duration::from_millis(value), Duration::from_millis(1), Duration::from_secs(3600))
        };
        if !is_prime(config.table_size) || !(101..=1 << 24).contains(&config.table_size) {
            let reason = format!("{} is no prime number from 101 to 16777216", config.table_size);
            return Err(ConfigError::new("table_size", reason, "write 65537, or 655373 for many backends"));
        }
        let mut settings = Settings {
            sides: Sides::from_lists_named(
                ("backend_ports", &config.backend_ports),
                ("client_ports", &config.client_ports),
                ports,
            )?,
            services: Vec::new(),
            servers: Vec::new(),
            by_service: HashMap::new(),
            by_server: HashMap::new(),
            addresses: HashSet::new(),
            heartbeat_port: config.heartbeat_port,
            heartbeat_ns: millis("heartbeat_timeout_ms", config.heartbeat_timeout_ms)?,
            when_down: config.when_down,
            recheck_ns: millis("recheck_ms", config.recheck_ms)?,
            tcp_ns: seconds("tcp_s", config.tcp_s)?,
            closing_ns: seconds("tcp_closing_s", config.tcp_closing_s)?,
            udp_ns: seconds("udp_s", config.udp_s)?,
            fragment_ns: seconds("fragment_s", config.fragment_s)?,
            router: Router { v4: config.router.into(), v6: config.router_v6.map(Into::into) },
        };
        if config.services.is_empty() {
            return Err(ConfigError::new("service", "there is none", "write at least one [[service]]"));
        }
        for (number, service) in config.services.iter().enumerate() {
            settings.add(config, number, service)?;
        }
        Ok(settings)
    }

    fn add(&mut self, config: &Config, number: usize, service: &Service) -> Result<(), ConfigError> {
        let wrong = |key: &str, reason: String, instead: &str| {
            Err(ConfigError::new(&format!("service[{number}].{key}"), reason, instead))
        };
        if service.backends.iter().all(|backend| backend.weight == 0) {
            return wrong("backends", "none has a weight".into(), "name one or more with a weight of 1 or more");
        }
        if service.backends.len() * 10 > config.table_size as usize {
            return wrong("backends", "too many for `table_size`".into(), "write a prime `table_size` of 100 for each");
        }
        let protocols: &[u8] = match service.protocol {
            Some(Transport::Tcp) => &[protocol::TCP],
            Some(Transport::Udp) => &[protocol::UDP],
            None => &[protocol::TCP, protocol::UDP],
        };
        let address = IpAddress::from(service.address);
        for transport in protocols {
            let end = (address, service.port.unwrap_or(0), *transport);
            if self.by_service.insert(end, number).is_some() {
                return wrong("address", format!("{address} has this service already"), "name it once");
            }
        }
        let mut numbers = Vec::new();
        let mut candidates = Vec::new();
        for backend in &service.backends {
            let server = IpAddress::from(backend.address);
            if server.is_v4() != address.is_v4() {
                return wrong("backends", format!("{server} is of another family than {address}"), "use one family");
            }
            if backend.weight > 1000 {
                return wrong("backends", format!("weight {} is too great", backend.weight), "write 0 to 1000");
            }
            if backend.port.is_some() && service.port.is_none() {
                return wrong(
                    "backends",
                    format!("{server} has a port but the service has none"),
                    "add `port`, or remove it",
                );
            }
            let port = backend.port.or(service.port).unwrap_or(0);
            let at = self.servers.len();
            for transport in protocols {
                let is_ambiguous = self.by_server.keys().any(|(other, known, number)| {
                    (*other, *number) == (server, *transport) && (*known == port || *known == 0 || port == 0)
                });
                if is_ambiguous {
                    let reason = format!("{server} port {port} is a backend twice, so its replies are ambiguous");
                    return wrong("backends", reason, "give each service ports or addresses of its own on it");
                }
                self.by_server.insert((server, port, *transport), at);
            }
            self.addresses.extend([server, address]);
            candidates.push(Candidate { name: format!("{server} {port}"), weight: backend.weight });
            numbers.push(at as u32);
            self.servers.push(Server {
                address: server,
                port,
                weight: backend.weight,
                service_address: address,
                service_port: service.port.unwrap_or(0),
            });
        }
        self.services.push(Virtual { table: Maglev::new(config.table_size, &candidates), backends: numbers.into() });
        Ok(())
    }

    /// The service at an end, if there is one.
    pub(super) fn service(&self, end: End) -> Option<&Virtual> {
        self.services.get(*either(&self.by_service, end)?)
    }

    /// The backend at an end, if there is one.
    pub(super) fn server(&self, end: End) -> Option<&Server> {
        self.servers.get(*either(&self.by_server, end)?)
    }

    /// Numbers of the backends at an address.
    pub(super) fn servers_at(&self, address: IpAddress) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.servers).filter(move |(_, server)| server.address == address).map(|(number, _)| number)
    }

    /// Whether an address is that of a service or a backend.
    pub(super) fn knows(&self, address: IpAddress) -> bool {
        self.addresses.contains(&address)
    }
}

/// What stands at a port, else at all ports.
fn either<V>(map: &HashMap<End, V>, (address, port, number): End) -> Option<&V> {
    map.get(&(address, port, number)).or_else(|| map.get(&(address, 0, number)))
}
