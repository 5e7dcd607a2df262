//! What the configuration means once it has been checked: services and backends by their ends, tables made.

use std::time::Duration;

use braid_nf::Port;
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Exchange, IpAddress, MacAddress};
use foldhash::{HashMap, HashSet};

use super::config::{Backend, Config, Mode, Persistence, Service, Transport, WhenDown};
use super::maglev::{Candidate, Maglev, is_prime};
use super::quic::{ServerId, ServerIds};
use super::refusals::{Wrong, check_backend, check_check, check_meant, check_service};
use super::{FROM_BACKEND, Flow, MS, TO_BACKEND};
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::answer::Router;
use crate::parts::{Across, Side, Sides};

/// Address, port and protocol; port 0 stands for all.
pub(super) type End = (IpAddress, u16, u8);

/// IPv6's least, and the longest outer header.
const MTU_MIN: u16 = 1280 + 48;

/// A service, ready to choose.
#[derive(Clone, Debug)]
pub(super) struct Virtual {
    pub(super) number: u32,
    pub(super) mode: Mode,
    pub(super) persistence: Persistence,
    pub(super) table: Maglev,
    /// Numbers of its backends, in the order of the table's candidates.
    pub(super) backends: Box<[u32]>,
    /// Backends by what QUIC connection identifiers contain.
    pub(super) server_ids: ServerIds,
}

/// One of all backends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) address: IpAddress,
    /// 0: as the client asked.
    pub(super) port: u16,
    pub(super) weight: u32,
    pub(super) mode: Mode,
    /// The number of the first backend at its address: what is known of the way there stands under it.
    pub(super) path: u16,
    /// Its Ethernet address, if packets go there as they are.
    pub(super) mac: MacAddress,
    /// Whether it is up at the start.
    pub(super) up: bool,
    /// What clients see of it.
    pub(super) service_address: IpAddress,
    pub(super) service_port: u16,
}

impl Server {
    /// By [`FROM_BACKEND`] and [`TO_BACKEND`]: the service's end over the backend's source, and the backend's over the service's
    /// destination. A service of all ports leaves them as they are.
    fn exchanges(&self) -> [Exchange; 2] {
        let written = |port: u16| (port != 0).then_some(port);
        let (backend, service) = ((self.address, self.port), (self.service_address, self.service_port));
        let from = Exchange::of_src(backend, (service.0, written(service.1)));
        let to = Exchange::of_dst(service, (backend.0, written(backend.1)));
        const { assert!(FROM_BACKEND == 0 && TO_BACKEND == 1) };
        [from, to]
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    /// For each port the one on the other side.
    across: Across,
    pub(super) services: Vec<Virtual>,
    pub(super) servers: Vec<Server>,
    /// For each of them what is written into packets from it, and to it if its service translates.
    exchanges: Vec<[Exchange; 2]>,
    by_service: HashMap<End, usize>,
    by_server: HashMap<End, u16>,
    addresses: HashSet<IpAddress>,
    /// Those of services.
    services_at: HashSet<IpAddress>,
    /// Those of backends whose answers are translated.
    translated_from: HashSet<IpAddress>,
    /// Numbers of the backends at an address.
    by_address: HashMap<IpAddress, Vec<u32>>,
    pub(super) heartbeat_port: Option<u16>,
    pub(super) monitors: Vec<IpAddress>,
    pub(super) heartbeat_ns: u64,
    pub(super) when_down: WhenDown,
    /// `i32::MAX` if backends never change.
    pub(super) recheck_ms: i32,
    /// By the phase of the flow.
    pub(super) idle_ns: [u64; 4],
    pub(super) persistence_ns: u64,
    pub(super) mtu: u16,
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
        if config.mtu < MTU_MIN {
            let reason = format!("{} leaves IPv6 less than the 1280 bytes that it needs within a tunnel", config.mtu);
            return Err(ConfigError::new("mtu", reason, format!("write {MTU_MIN} to 65535")));
        }
        check_meant(config)?;
        let lists = (("backend_ports", &config.backend_ports[..]), ("client_ports", &config.client_ports[..]));
        let sides = Sides::from_lists_named(lists.0, lists.1, ports)?;
        let (tcp_ns, udp_ns) = (seconds("tcp_s", config.tcp_s)?, seconds("udp_s", config.udp_s)?);
        let closing_ns = seconds("tcp_closing_s", config.tcp_closing_s)?;
        let mut settings = Settings {
            sides,
            across: sides.across_all(ports),
            services: Vec::new(),
            servers: Vec::new(),
            exchanges: Vec::new(),
            by_service: HashMap::default(),
            by_server: HashMap::default(),
            by_address: HashMap::default(),
            addresses: HashSet::default(),
            services_at: HashSet::default(),
            translated_from: HashSet::default(),
            heartbeat_port: config.heartbeat_port,
            monitors: config.monitors.iter().map(|address| (*address).into()).collect(),
            heartbeat_ns: millis("heartbeat_timeout_ms", config.heartbeat_timeout_ms)?,
            when_down: config.when_down,
            // An hour at most.
            recheck_ms: (millis("recheck_ms", config.recheck_ms)? / MS) as i32,
            idle_ns: [udp_ns, tcp_ns, closing_ns, closing_ns],
            persistence_ns: seconds("persistence_s", config.persistence_s)?,
            mtu: config.mtu,
            fragment_ns: seconds("fragment_s", config.fragment_s)?,
            router: Router::check(("router", config.router), ("router_v6", config.router_v6))?,
        };
        if config.services.is_empty() {
            return Err(ConfigError::new("service", "there is none", "write at least one [[nf.config.service]]"));
        }
        for (number, service) in config.services.iter().enumerate() {
            settings.add(config, number, service)?;
        }
        if config.heartbeat_port.is_none() && config.services.iter().all(|service| service.check.is_none()) {
            settings.recheck_ms = i32::MAX;
        }
        Ok(settings)
    }

    fn add(&mut self, config: &Config, number: usize, service: &Service) -> Result<(), ConfigError> {
        let wrong = |key: &str, (reason, instead): (String, &str)| {
            ConfigError::new(&format!("service[{number}].{key}"), reason, instead)
        };
        check_service(service, config).map_err(|error| wrong("backends", error))?;
        if let Some(check) = &service.check {
            check_check(check, config).map_err(|error| wrong("check", error))?;
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
                return Err(wrong("address", (format!("{address} has this service already"), "name it once")));
            }
        }
        let (mut numbers, mut candidates, mut server_ids) = (Vec::new(), Vec::new(), ServerIds::default());
        for (place, backend) in service.backends.iter().enumerate() {
            let at = self.servers.len();
            let wrong = |error| wrong(&format!("backends[{place}]"), error);
            let server = self.add_server(service, backend, protocols).map_err(wrong)?;
            if let Some(id) = &backend.server_id {
                let id = id.parse::<ServerId>().map_err(wrong)?;
                server_ids.add(id, at as u32).map_err(wrong)?;
            }
            candidates.push(Candidate { name: format!("{} {}", server.address, server.port), weight: backend.weight });
            numbers.push(at as u32);
        }
        self.services.push(Virtual {
            number: number as u32,
            mode: service.mode,
            persistence: service.persistence,
            table: Maglev::new(config.table_size, &candidates),
            backends: numbers.into(),
            server_ids,
        });
        Ok(())
    }

    fn add_server(&mut self, service: &Service, backend: &Backend, protocols: &[u8]) -> Result<Server, Wrong> {
        let (address, service_address) = (IpAddress::from(backend.address), IpAddress::from(service.address));
        check_backend(service, backend)?;
        let Ok(number) = u16::try_from(self.servers.len()) else {
            return Err(("there are more than 65536 of them in all".into(), "use fewer, or several load balancers"));
        };
        if let Some((_, other)) = self.servers_at(address).find(|(_, other)| other.mode != service.mode) {
            let reason = format!("{address} is reached in two modes, {:?} and {:?}", other.mode, service.mode);
            return Err((reason.to_lowercase(), "give each mode an address of its own"));
        }
        let mac = backend.mac.map(|written| written.0).unwrap_or_default();
        if let Some((_, other)) = self.servers_at(address).find(|(_, other)| other.mac != mac) {
            return Err((
                format!("{address} has two Ethernet addresses, {} and {mac}", other.mac),
                "write one of them",
            ));
        }
        let port = backend.port.or(service.port).unwrap_or(0);
        // Answers of other modes do not come this way.
        for transport in protocols.iter().filter(|_| service.mode == Mode::Nat) {
            let known = |port| self.by_server.contains_key(&(address, port, *transport));
            let is_ambiguous =
                known(port) || known(0) || (port == 0 && self.servers_at(address).any(|(_, other)| known(other.port)));
            if is_ambiguous {
                let twice = match port {
                    0 => format!("{address} with all its ports"),
                    port => format!("{address} port {port}"),
                };
                let reason = format!("{twice} is a backend twice, so its replies are ambiguous");
                return Err((reason, "give each service ports or addresses of its own on it"));
            }
            self.by_server.insert((address, port, *transport), number);
        }
        self.addresses.extend([address, service_address]);
        self.services_at.insert(service_address);
        if service.mode == Mode::Nat {
            self.translated_from.insert(address);
        }
        let server = Server {
            address,
            port,
            weight: backend.weight,
            mode: service.mode,
            path: self.servers_at(address).next().map_or(number, |(first, _)| first as u16),
            mac,
            up: backend.up,
            service_address,
            service_port: service.port.unwrap_or(0),
        };
        self.by_address.entry(address).or_default().push(u32::from(number));
        self.servers.push(server);
        self.exchanges.push(server.exchanges());
        Ok(server)
    }

    /// The service at an end, if there is one.
    pub(super) fn service(&self, end: End) -> Option<&Virtual> {
        self.services.get(*either(&self.by_service, end)?)
    }

    /// The backend at an end, if there is one.
    pub(super) fn server(&self, end: End) -> Option<&Server> {
        self.servers.get(usize::from(self.server_number(end)?))
    }

    /// Its number.
    pub(super) fn server_number(&self, end: End) -> Option<u16> {
        either(&self.by_server, end).copied()
    }

    /// The backend of a flow.
    #[inline(always)]
    pub(super) fn server_of(&self, flow: &Flow) -> Option<&Server> {
        self.servers.get(usize::from(flow.backend))
    }

    /// What is written into the packets of a flow; none if they go to their backend in another mode.
    #[inline(always)]
    pub(super) fn exchange(&self, flow: &Flow) -> Option<&Exchange> {
        self.exchanges.get(usize::from(flow.backend))?.get(usize::from(flow.way))
    }

    /// The backends at an address, with their numbers.
    pub(super) fn servers_at(&self, address: IpAddress) -> impl Iterator<Item = (u32, &Server)> {
        let numbers = self.by_address.get(&address).map_or(&[][..], Vec::as_slice);
        numbers.iter().filter_map(|&number| Some((number, self.servers.get(number as usize)?)))
    }

    /// Whether an address is that of a service or a backend.
    pub(super) fn knows(&self, address: IpAddress) -> bool {
        self.addresses.contains(&address)
    }

    /// Whether an address is that of a service.
    pub(super) fn is_service(&self, address: IpAddress) -> bool {
        self.services_at.contains(&address)
    }

    /// Whether packets between two addresses go to a service or come from a backend, at some port.
    pub(super) fn may_change(&self, source: IpAddress, destination: IpAddress) -> bool {
        self.is_service(destination) || self.translated_from.contains(&source)
    }

    /// By which port a packet leaves for a backend, whole: a client may be on the backends' side too.
    pub(super) fn to_backends(&self, port: Port) -> Port {
        if self.sides.of(port) == Some(Side::Inside) { port } else { self.across(port) }
    }

    /// By which port a packet leaves for the other side.
    #[inline(always)]
    pub(super) fn across(&self, port: Port) -> Port {
        self.across.of(port)
    }
}

/// What stands at a port, else at all ports.
fn either<V>(map: &HashMap<End, V>, (address, port, number): End) -> Option<&V> {
    map.get(&(address, port, number)).or_else(|| map.get(&(address, 0, number)))
}
