//! The checked configuration: services and backends indexed by address and port, with their hash tables built.

use std::time::Duration;

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Exchange, IpAddress, MacAddress};
use foldhash::{HashMap, HashSet};

use super::config::{Backend, Config, Mode, Persistence, Service, Together, Transport, WhenDown, WhenNone};
use super::ends::Exchanges;
use super::maglev::{Candidate, Maglev, is_prime};
use super::ports::{Ends, Ports, shown};
use super::quic::{ServerId, ServerIds};
use super::refusals::{Wrong, check_backend, check_check, check_meant, check_service, check_tunnels};
use super::roster::{Line, Roster};
use super::{FROM_BACKEND, Phase, TO_BACKEND, strays};
use crate::config::{ConfigError, idle_ns, span_ns};
use crate::parts::answers::answer::Router;
use crate::parts::{Across, NS_PER_MS, Prefix, Sides};

/// How often a flow rechecks its backend if nothing in the configuration can change one: an hour, in milliseconds.
const RECHECK_IDLE_MS: i32 = 3_600_000;

/// IPv6's minimum MTU plus the longest outer header.
const MTU_MIN: u16 = 1280 + 48;

/// A service with its hash tables, ready to choose a backend.
#[derive(Clone, Debug)]
pub(super) struct Virtual {
    /// Address, ports and protocol that clients use; protocol 0: TCP and UDP.
    pub(super) end: (IpAddress, Ports, u8),
    pub(super) mode: Mode,
    pub(super) persistence: Persistence,
    /// For IPv4 and IPv6, the prefix length in bits by which clients are grouped for persistence.
    pub(super) together: [u8; 2],
    pub(super) when_none: WhenNone,
    /// Its backends, followed by its backups if it has any.
    pub(super) pools: Vec<Pool>,
    /// Its backends by the server identifiers in QUIC connection identifiers.
    pub(super) server_ids: ServerIds,
}

/// Backends among which one hash table chooses.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    pub(super) table: Maglev,
    /// Backend numbers, in the order of the table's candidates.
    pub(super) backends: Box<[u32]>,
}

/// One backend of any service.
#[derive(Clone, Copy, Debug)]
pub(super) struct Server {
    pub(super) address: IpAddress,
    /// 0: the port that the client used.
    pub(super) port: u16,
    pub(super) weight: u32,
    /// How many connections it may have at a time.
    pub(super) connections_max: Option<u32>,
    /// Whether a backend of its service may be full, so that connections are not where their hash leads.
    pub(super) is_displacing: bool,
    pub(super) mode: Mode,
    /// The number of the first backend at its address, under which path information is kept.
    pub(super) path: u16,
    /// Its Ethernet address, for direct routing.
    pub(super) mac: MacAddress,
    /// Whether it is up when the run starts.
    pub(super) up: bool,
    /// Whether the configuration no longer names it.
    pub(super) has_left: bool,
    /// Whether it gets connections only while no other backend is up.
    pub(super) is_backup: bool,
    /// Whether its connections are remembered.
    pub(super) remembers: bool,
    /// Whether packets of its service may name a backend by a QUIC connection identifier.
    pub(super) may_be_named: bool,
    /// The service's address, which clients see in place of its own.
    pub(super) service_address: IpAddress,
    pub(super) service_ports: Ports,
    /// The protocol of its service; 0: TCP and UDP.
    protocol: u8,
    /// Whether reports name the protocol, because a service of another one has the same address and ports.
    names_protocol: bool,
}

impl Server {
    /// Whether it is asked at this port.
    pub(super) fn serves(&self, port: u16) -> bool {
        if self.port == 0 { self.service_ports.has(port) } else { self.port == port }
    }

    /// A protocol of its service.
    fn some_protocol(&self) -> u8 {
        if self.protocol == 0 { protocol::TCP } else { self.protocol }
    }

    /// The backend of a roster line that the configuration no longer names.
    fn departed(line: &Line, number: usize) -> Server {
        let name = line.name;
        Server {
            address: name.address,
            port: name.port,
            weight: 0,
            connections_max: None,
            is_displacing: false,
            mode: name.mode(),
            path: number as u16,
            mac: MacAddress(line.mac),
            up: false,
            has_left: true,
            is_backup: false,
            remembers: true,
            may_be_named: false,
            service_address: name.service_address,
            service_ports: name.service_ports(),
            protocol: name.protocol,
            names_protocol: false,
        }
    }

    /// Its service in reports: `192.0.2.53:53`, or `udp 192.0.2.53:53` if there is another one there.
    pub(super) fn service(&self) -> String {
        let service = shown(self.service_address, self.service_ports);
        match (self.names_protocol, self.protocol) {
            (true, protocol::TCP) => format!("tcp {service}"),
            (true, protocol::UDP) => format!("udp {service}"),
            _ => service,
        }
    }

    /// The ports that it listens on.
    pub(super) fn ports(&self) -> Ports {
        if self.port == 0 { self.service_ports } else { Ports::one(self.port) }
    }

    /// The translations, indexed by [`FROM_BACKEND`] and [`TO_BACKEND`]: the service's end replaces the backend's as
    /// source, and the backend's replaces the service's as destination. A service with several ports leaves ports
    /// unchanged.
    fn exchanges(&self) -> Exchanges {
        let written = |port: u16| (port != 0).then_some(port);
        let (backend, service) = ((self.address, self.port), (self.service_address, self.service_ports.number()));
        let from = Exchange::of_src(backend, (service.0, written(service.1)));
        let to = Exchange::of_dst(service, (backend.0, written(backend.1)));
        const { assert!(FROM_BACKEND == 0 && TO_BACKEND == 1) };
        Exchanges([from, to])
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    /// For each port, the port on the other side.
    pub(super) across: Across,
    pub(super) services: Vec<Virtual>,
    /// All backends by number, including those that have left.
    pub(super) servers: Vec<Server>,
    pub(super) roster: Roster,
    /// Per backend, the translation of packets from it, and of packets to it if its service translates.
    pub(super) exchanges: Vec<Exchanges>,
    /// The same for the steady path; empty if traffic is counted, because counting needs a transaction, and if where packets leave
    /// is decided by an earlier function.
    pub(super) steady_exchanges: Vec<Exchanges>,
    pub(super) by_service: Ends<usize>,
    pub(super) by_server: Ends<u16>,
    pub(super) addresses: HashSet<IpAddress>,
    /// Addresses of services.
    pub(super) services_at: HashSet<IpAddress>,
    /// Addresses of backends whose replies are translated.
    pub(super) translated_from: HashSet<IpAddress>,
    /// Numbers of the backends at each address.
    pub(super) by_address: HashMap<IpAddress, Vec<u32>>,
    pub(super) heartbeat_port: Option<u16>,
    pub(super) monitors: Vec<IpAddress>,
    /// Who asks backends under their own addresses, and is answered so.
    pub(super) checkers: Vec<Prefix>,
    pub(super) heartbeat_ns: u64,
    pub(super) when_down: WhenDown,
    /// What clients do that persist on a backend without weight.
    pub(super) when_draining: WhenDown,
    pub(super) recheck_ms: i32,
    /// Idle timeout by the phase of the flow.
    pub(super) idle_ns: [u64; Phase::COUNT],
    pub(super) persistence_ns: u64,
    pub(super) strays_ns: u64,
    pub(super) mtu: u16,
    pub(super) fragment_ns: u64,
    pub(super) router: Router,
}

braid_nf::plain!(Settings);

impl Settings {
    /// Checks a configuration; `former` lists the backends that the function had before.
    pub(super) fn check(config: &Config, ports: u16, former: Roster) -> Result<Settings, ConfigError> {
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
        check_tunnels(config)?;
        let lists = (("backend_ports", &config.backend_ports[..]), ("client_ports", &config.client_ports[..]));
        let sides = Sides::from_lists_named(lists.0, lists.1, ports)?;
        let is_first = former.lines().is_empty();
        let mut settings = Settings {
            sides,
            across: sides.across_all(ports),
            services: Vec::new(),
            servers: former.lines().iter().enumerate().map(|(number, line)| Server::departed(line, number)).collect(),
            exchanges: Vec::new(),
            steady_exchanges: Vec::new(),
            roster: former,
            by_service: Ends::default(),
            by_server: Ends::default(),
            by_address: HashMap::default(),
            addresses: HashSet::default(),
            services_at: HashSet::default(),
            translated_from: HashSet::default(),
            heartbeat_port: config.heartbeat_port,
            monitors: config.monitors.iter().map(|address| (*address).into()).collect(),
            checkers: config.checkers.clone(),
            heartbeat_ns: millis("heartbeat_timeout_ms", config.heartbeat_timeout_ms)?,
            when_down: config.when_down,
            when_draining: config.when_draining,
            recheck_ms: (millis("recheck_ms", config.recheck_ms)? / NS_PER_MS) as i32,
            idle_ns: idle_by_phase(config)?,
            persistence_ns: idle_ns("persistence_s", config.persistence_s)?,
            strays_ns: 0,
            mtu: config.mtu,
            fragment_ns: idle_ns("fragment_s", config.fragment_s)?,
            router: Router::check(("router", config.router), ("router_v6", config.router_v6))?,
        };
        if config.services.is_empty() {
            return Err(ConfigError::new("service", "there is none", "write at least one [[nf.config.service]]"));
        }
        for (number, service) in config.services.iter().enumerate() {
            settings.add(config, number, service)?;
        }
        settings.note_departed();
        settings.name_protocols();
        settings.recheck_ms = settings.recheck_for(config, is_first);
        settings.strays_ns = strays::lifetime_ns(settings.recheck_ms);
        settings.exchanges = settings.servers.iter().map(Server::exchanges).collect();
        if !config.traffic {
            settings.steady_exchanges.clone_from(&settings.exchanges);
        }
        Ok(settings)
    }

    /// Whether a host asks backends under their own addresses: what they answer it is not translated.
    pub(super) fn is_checker(&self, host: IpAddress) -> bool {
        self.checkers.iter().any(|prefix| prefix.contains(host))
    }

    /// Whether a backend is asked at this port: of a list of ports, at none between them.
    pub(super) fn is_asked_at(&self, server: &Server, port: u16) -> bool {
        let end = (server.service_address, Ports::one(port), server.some_protocol());
        let is_its = |number: &usize| self.services.get(*number).is_some_and(|one| one.end.1 == server.service_ports);
        server.serves(port)
            && (server.port != 0 || self.by_service.meeting(end).iter().any(|(_, number)| is_its(number)))
    }

    /// No packet takes the steady path, because it leaves by the port that an earlier function has decided.
    pub(super) fn leave_as_decided(&mut self) {
        self.steady_exchanges.clear();
    }

    /// How often connections have to look at their backend: seldom if no backend of the configuration, which `is_first` to be there, can change.
    fn recheck_for(&self, config: &Config, is_first: bool) -> i32 {
        let mut backends = config.services.iter().flat_map(|service| &service.backends);
        let may_change = config.heartbeat_port.is_some()
            || config.services.iter().any(|service| service.check.is_some())
            || backends.any(|backend| !backend.up || backend.server_id.is_some() || backend.connections_max.is_some());
        // Connections of a former configuration may not be where this one's hash leads.
        let recheck_ms = if !may_change && is_first { RECHECK_IDLE_MS } else { self.recheck_ms };
        // Connections hold clients that stay with their backend.
        match config.services.iter().any(|service| service.persistence == Persistence::Source) {
            true => recheck_ms.min((self.persistence_ns / NS_PER_MS / 4) as i32),
            false => recheck_ms,
        }
    }

    /// Has reports name the protocol where they would otherwise take a service for one of another protocol at its address and ports. Services that are
    /// alone there, as nearly all are, keep the names that they have always had.
    fn name_protocols(&mut self) {
        let of_one = self.services.iter().filter(|service| service.end.2 != 0);
        let ends: HashSet<(IpAddress, Ports, u8)> = of_one.map(|service| service.end).collect();
        for server in &mut self.servers {
            let is_other = |protocol| protocol != server.protocol;
            let mut others = [protocol::TCP, protocol::UDP].into_iter().filter(|protocol| is_other(*protocol));
            server.names_protocol =
                others.any(|other| ends.contains(&(server.service_address, server.service_ports, other)));
        }
    }

    /// Connections of backends that have left go on until they move or end: of those at addresses that nobody reaches otherwise now.
    fn note_departed(&mut self) {
        for (number, server) in (0u32..).zip(&self.servers).filter(|(_, server)| server.has_left) {
            let known = self.by_address.entry(server.address).or_default();
            if known.iter().all(|other| self.servers[*other as usize].mode == server.mode) {
                known.push(number);
            }
            if server.mode == Mode::Nat {
                self.translated_from.insert(server.address);
            }
        }
    }

    fn add(&mut self, config: &Config, number: usize, service: &Service) -> Result<(), ConfigError> {
        let wrong = |key: &str, (reason, instead): (String, &str)| {
            ConfigError::new(&format!("service[{number}].{key}"), reason, instead)
        };
        check_service(service, config).map_err(|(key, error)| wrong(key, error))?;
        if let Some(check) = &service.check {
            check_check(check, service, config).map_err(|error| wrong("check", error))?;
        }
        let protocols: &[u8] = match service.protocol {
            Some(Transport::Tcp) => &[protocol::TCP],
            Some(Transport::Udp) => &[protocol::UDP],
            None => &[protocol::TCP, protocol::UDP],
        };
        let (address, ports) = (IpAddress::from(service.address), service.ports());
        for (transport, range) in
            protocols.iter().flat_map(|one| service.ranges().iter().map(move |range| (one, range)))
        {
            let end = (address, *range, *transport);
            if let Some(rival) = self.by_service.rival(end) {
                let instead = "name it once, or with fewer ports: where services meet, the one of the fewest counts";
                let what = match rival == *range {
                    true => format!("{address} has this service already, {range}"),
                    false => format!("{range} and {rival} of {address} meet, and are as many"),
                };
                return Err(wrong("address", (what, instead)));
            }
            self.by_service.insert(end, number);
        }
        let only = if let [only] = protocols { *only } else { 0 };
        // Its clients and backends are known by the first and the last port.
        let is_alike = |other: &Virtual| other.end.0 == address && other.end.1 == ports;
        if self.services.iter().any(|other| is_alike(other) && (other.end.2 == only || other.end.2 == 0 || only == 0)) {
            let what = format!("two services of {address} begin and end with the same ports, {ports}");
            return Err(wrong("port", (what, "give one of them another first or last port")));
        }
        let (mut server_ids, mut all) = (ServerIds::default(), Vec::new());
        for (place, backend) in service.backends.iter().enumerate() {
            let wrong = |error| wrong(&format!("backends[{place}]"), error);
            let at = self.add_server(service, backend, protocols).map_err(wrong)?;
            if let Some(id) = &backend.server_id {
                let id = id.parse::<ServerId>().map_err(wrong)?;
                server_ids.add(id, at).map_err(wrong)?;
            }
            all.push(at);
        }
        let (backups, others): (Vec<u32>, Vec<u32>) =
            all.into_iter().partition(|number| self.servers[*number as usize].is_backup);
        let pools = [others, backups].into_iter().filter(|backends| !backends.is_empty());
        let Together { v4, v6 } = service.persistence_prefix.unwrap_or_default();
        self.services.push(Virtual {
            end: (address, ports, only),
            mode: service.mode,
            persistence: service.persistence,
            together: [v4, v6],
            when_none: service.when_none,
            pools: pools.map(|backends| self.pool(config.table_size, backends)).collect(),
            server_ids,
        });
        Ok(())
    }

    fn pool(&self, table_size: u32, backends: Vec<u32>) -> Pool {
        let candidate = |number: &u32| {
            let server = &self.servers[*number as usize];
            Candidate { name: format!("{} {}", server.address, server.port), weight: server.weight }
        };
        let candidates: Vec<Candidate> = backends.iter().map(candidate).collect();
        Pool { table: Maglev::new(table_size, &candidates), backends: backends.into() }
    }

    /// That of replies of a backend's end it is clear in whose name they are.
    fn check_replies(&self, service: &Service, end: (IpAddress, Ports, u8)) -> Result<(), Wrong> {
        let (address, ports, _) = end;
        // Services at one address that keep the clients' ports share their answers.
        let answers_alike = |(_, other): &(Ports, u16)| {
            let other = &self.servers[usize::from(*other)];
            service.ranges().contains(&ports)
                && other.service_address == IpAddress::from(service.address)
                && other.port == other.service_ports.number()
        };
        let all_met = self.by_server.meeting(end);
        let Some((met, _)) = all_met.iter().find(|met| !answers_alike(met)) else { return Ok(()) };
        let met = if met.only().is_some() { met } else { &ports };
        let reason = format!("{address} with {met} is a backend twice, so its replies are ambiguous");
        Err((reason, "give each service ports or addresses of its own on it, or reach it by a mode other than \"nat\""))
    }

    /// Adds a backend; its number.
    fn add_server(&mut self, service: &Service, backend: &Backend, protocols: &[u8]) -> Result<u32, Wrong> {
        let (address, service_address) = (IpAddress::from(backend.address), IpAddress::from(service.address));
        check_backend(service, backend)?;
        let line = Line::of(service, backend);
        let Some(number) = self.roster.number(line) else {
            let instead = "use fewer, several load balancers, or begin without that state";
            return Err(("with those that have left there are more than 65535 of them".into(), instead));
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
        if self.servers.get(usize::from(number)).is_some_and(|known| !known.has_left) {
            return Err((format!("{address} is a backend of this service twice"), "name it once, with a `weight`"));
        }
        let own = backend.port.map(|port| [Ports::one(port)]);
        let ranges = own.as_ref().map_or(service.ranges(), |own| &own[..]);
        let ends = || protocols.iter().flat_map(|one| ranges.iter().map(move |range| (address, *range, *one)));
        // In other modes replies do not pass through the balancer.
        if service.mode == Mode::Nat {
            ends().try_for_each(|end| self.check_replies(service, end))?;
            ends().for_each(|end| self.by_server.insert(end, number));
        }
        self.addresses.extend([address, service_address]);
        self.services_at.insert(service_address);
        if service.mode == Mode::Nat {
            self.translated_from.insert(address);
        }
        let server = Server {
            address,
            port: line.name.port,
            weight: backend.weight,
            connections_max: backend.connections_max,
            is_displacing: service.backends.iter().any(|backend| backend.connections_max.is_some()),
            mode: service.mode,
            path: self.servers_at(address).next().map_or(number, |(first, _)| first as u16),
            mac,
            up: backend.up,
            has_left: false,
            is_backup: backend.backup,
            remembers: service.persistence != Persistence::None,
            may_be_named: service.backends.iter().any(|backend| backend.server_id.is_some()),
            service_address,
            service_ports: service.ports(),
            protocol: line.name.protocol,
            names_protocol: false,
        };
        self.by_address.entry(address).or_default().push(u32::from(number));
        match self.servers.get_mut(usize::from(number)) {
            Some(departed) => *departed = server,
            None => self.servers.push(server),
        }
        Ok(number.into())
    }
}

/// After how long without a packet connections are forgotten, by [`Phase`].
fn idle_by_phase(config: &Config) -> Result<[u64; Phase::COUNT], ConfigError> {
    let mut by_phase = [idle_ns("tcp_s", config.tcp_s)?; Phase::COUNT];
    let udp_ns = idle_ns("udp_s", config.udp_s)?;
    [Phase::Udp, Phase::Single].iter().for_each(|phase| by_phase[*phase as usize] = udp_ns);
    by_phase[Phase::Opening as usize] = idle_ns("tcp_opening_s", config.tcp_opening_s)?;
    by_phase[Phase::Closing as usize] = idle_ns("tcp_closing_s", config.tcp_closing_s)?;
    Ok(by_phase)
}
