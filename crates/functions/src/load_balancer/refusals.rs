//! Checks that reject a configuration, each with advice on what to write instead.

use std::net::IpAddr;

use braid_nf::packet::MacAddress;

use super::config::{Backend, Check, CheckKind, Config, Mode, Persistence, Service, Together, Transport, WEIGHT_MAX};
use super::ports::Ports;
use crate::config::ConfigError;
use crate::parts::headers::scope::{is_host_v4, is_routed_v6};

/// What is wrong, and what to write instead.
pub(super) type Wrong = (String, &'static str);

/// Checks a service; the error names the key that is wrong.
pub(super) fn check_service(service: &Service, config: &Config) -> Result<(), (&'static str, Wrong)> {
    let wrong = |key, reason: String, instead| Err((key, (reason, instead)));
    if !is_host(service.address) {
        return wrong(
            "address",
            format!("{} is no host's address", service.address),
            "write the address that clients ask for",
        );
    }
    let in_v6 = || std::iter::once(service.address).chain(service.backends.iter().map(|backend| backend.address));
    if service.mode.is_tunnel()
        && config.router_v6.is_none()
        && let Some(end) = in_v6().find(IpAddr::is_ipv6)
    {
        let reason = match end == service.address {
            true => format!("the tunnels of {end} have no address to come from, and to speak from to its clients"),
            false => format!("the tunnels to {end} have no address to come from"),
        };
        return wrong("mode", reason, "write router_v6 = \"…\" beside the services: an address of this machine's");
    }
    if service.ranges().contains(&Ports::one(0)) {
        return wrong("port", "0 is no port".into(), "write the port that clients ask for, or leave it out for all");
    }
    if service.backends.iter().all(|backend| backend.backup) {
        let reason = if service.backends.is_empty() { "there is none" } else { "all are backups" };
        return wrong("backends", reason.into(), "name one or more that are no backups");
    }
    const TOGETHER: &str = "persistence_prefix";
    match (service.persistence, service.persistence_prefix) {
        (Persistence::Connection | Persistence::None, Some(_)) => {
            return wrong(TOGETHER, "it has no effect without persistence".into(), "add persistence = \"source\"");
        }
        (_, Some(Together { v4: bits @ 33.., .. })) => {
            return wrong(TOGETHER, format!("no IPv4 address has {bits} bits"), "write at most 32 for `v4`");
        }
        (_, Some(Together { v6: bits @ 129.., .. })) => {
            return wrong(TOGETHER, format!("no IPv6 address has {bits} bits"), "write at most 128 for `v6`");
        }
        (_, Some(Together { v6: 128, .. })) if service.address.is_ipv6() => {
            return wrong(
                TOGETHER,
                "with 128 bits for `v6` no clients are grouped".into(),
                "write fewer, or leave it out",
            );
        }
        (_, Some(Together { v4: 32, .. })) if service.address.is_ipv4() => {
            return wrong(
                TOGETHER,
                "with 32 bits for `v4` no clients are grouped".into(),
                "write fewer, or leave it out",
            );
        }
        (_, Some(Together { v6: 0, .. })) if service.address.is_ipv6() => {
            return wrong(TOGETHER, all_at_one(6), BACKUPS);
        }
        (_, Some(Together { v4: 0, .. })) if service.address.is_ipv4() => {
            return wrong(TOGETHER, all_at_one(4), BACKUPS);
        }
        _ => {}
    }
    if service.backends.len() * 10 > config.table_size as usize {
        return wrong("backends", "too many for `table_size`".into(), "write a prime `table_size` of 100 for each");
    }
    Ok(())
}

/// The reason for refusing a prefix of 0 bits.
fn all_at_one(version: u8) -> String {
    format!("all clients of IPv{version} are one, and go to one backend")
}

const BACKUPS: &str = "write some bits; where one backend serves alone, the others are `backup = true`";

/// Checks that replies can arrive before the next check is due, and that only one source reports health.
pub(super) fn check_check(check: &Check, service: &Service, config: &Config) -> Result<(), Wrong> {
    if config.heartbeat_port.is_some() {
        return Err(("`heartbeat_port` says already who is up".into(), "keep one of both"));
    }
    if check.port == Some(0) {
        return Err(("0 is no port".into(), "write where backends are asked, or leave it out"));
    }
    let ports = |backend: &Backend| check.port.or(backend.port).or(service.ports().only());
    if let Some(backend) = service.backends.iter().find(|backend| ports(backend).is_none()) {
        let reason = format!("nothing says at which port {} is asked, for the service has several", backend.address);
        return Err((reason, "write the `port` into the check, such as check = { port = 80 }"));
    }
    if !(10..=3_600_000).contains(&check.every_ms) || !(1..=check.every_ms).contains(&check.timeout_ms()) {
        let reason = format!("an answer within {} ms every {} ms cannot be", check.timeout_ms(), check.every_ms);
        return Err((reason, "write every_ms = 10 to 3600000, and timeout_ms = 1 to every_ms"));
    }
    if check.rise == 0 || check.fall == 0 {
        return Err(("no answer at all decides nothing".into(), "write a `rise` and a `fall` of 1 or more"));
    }
    if check.kind != CheckKind::Http && (check.path != "/" || check.host.is_some()) {
        let reason = match check.kind {
            CheckKind::Tcp => "a connection alone asks for no page",
            _ => "a datagram asks for no page",
        };
        return Err((reason.into(), "write kind = \"http\", or leave out `path` and `host`"));
    }
    let usual = Check::default();
    if check.kind != CheckKind::Udp && (check.payload != usual.payload || check.must_answer) {
        let reason = "only a check by UDP has a payload, and a choice whether silence is bad";
        return Err((reason.into(), "write kind = \"udp\", or leave out `payload` and `must_answer`"));
    }
    if check.kind != CheckKind::Dns && (check.name != usual.name || check.record != usual.record) {
        let reason = "only a check by DNS asks for a name";
        return Err((reason.into(), "write kind = \"dns\", or leave out `name` and `record`"));
    }
    if check.payload().is_none() {
        let reason = format!("`{}` are no bytes in hexadecimal digits, or more than 1024", check.payload);
        return Err((reason, "write payload = \"0102ff\", two digits for each byte"));
    }
    if check.question().is_none() {
        return Err((format!("`{}` is no name of DNS", check.name), "write name = \"www.example.com\", or \".\""));
    }
    if !check.path.starts_with('/') || check.path.contains(char::is_whitespace) {
        return Err((format!("`{}` is no path of a page", check.path), "write path = \"/health\""));
    }
    if check.host.as_ref().is_some_and(|host| host.is_empty() || host.contains(char::is_whitespace)) {
        return Err(("`host` is no name of a host".into(), "write host = \"www.example.com\", or leave it out"));
    }
    if service.protocol == Some(Transport::Udp) && check.port.is_none() && !check.is_by_udp() {
        let reason = "a check opens a TCP connection, which no backend accepts at a UDP port";
        return Err((
            reason.into(),
            "write kind = \"udp\" or \"dns\", a `port` at which they accept TCP, or use heartbeat_port, with monitors",
        ));
    }
    if service.protocol == Some(Transport::Tcp) && check.port.is_none() && check.is_by_udp() {
        let reason = "a check asks by UDP, which no backend answers at a TCP port";
        return Err((reason.into(), "write a `port` at which they answer UDP, or kind = \"tcp\" or \"http\""));
    }
    Ok(())
}

pub(super) fn check_backend(service: &Service, backend: &Backend) -> Result<(), Wrong> {
    if backend.address.is_ipv4() != service.address.is_ipv4() && !service.mode.is_tunnel() {
        let reason = format!("{} is of another family than {}", backend.address, service.address);
        return Err((reason, "use one family, or a mode with tunnels: \"ipip\", \"gre\" or \"gue\""));
    }
    // A loopback address gets no packets, but can be meant for trying out health checks.
    if !(is_host(backend.address) || backend.address.is_loopback()) || backend.address == service.address {
        let reason = format!("{} is no address of a backend of {}", backend.address, service.address);
        return Err((reason, "write the address that the backend has besides"));
    }
    if backend.port == Some(0) {
        return Err(("0 is no port".into(), "write where the backend listens, or leave it out"));
    }
    if backend.weight > WEIGHT_MAX {
        return Err((format!("weight {} is out of range", backend.weight), "write 0 to 1000"));
    }
    if backend.connections_max == Some(0) {
        return Err(("connections_max = 0 lets no connection in".into(), "write weight = 0, or 1 or more"));
    }
    if backend.connections_max.is_some() && service.persistence == Persistence::None {
        let reason = format!("{} has a `connections_max`, but no connection is remembered", backend.address);
        return Err((reason, "remove it, or write another `persistence`"));
    }
    if backend.port.is_some() && service.ports().only().is_none() {
        let (address, several) = (backend.address, service.ports());
        let reason = match &service.port {
            None => format!("{address} has a port but the service has none"),
            Some(_) => format!("{address} has a port, but its answers do not say which of {several} was asked"),
        };
        return Err((reason, "remove it: the port stays; or give the service one `port`"));
    }
    if backend.port.is_some() && service.mode != Mode::Nat {
        let reason = format!("{} has a port, but only mode = \"nat\" changes ports", backend.address);
        return Err((reason, "remove `port`: it listens where the service does"));
    }
    match (service.mode, backend.mac.map(|written| written.0)) {
        (Mode::Direct, None) => {
            return Err((format!("{} has no Ethernet address", backend.address), "write mac = \"02:00:00:00:00:01\""));
        }
        (Mode::Direct, Some(mac)) if mac.is_group() => {
            return Err((format!("{mac} is a group address"), "write the one of the backend"));
        }
        (Mode::Direct, Some(MacAddress([0, 0, 0, 0, 0, 0]))) => {
            return Err(("no host has the Ethernet address of zeros".into(), "write the one of the backend"));
        }
        (Mode::Direct, Some(_)) | (_, None) => {}
        (_, Some(_)) => {
            let reason = format!("{} has an Ethernet address, but only mode = \"direct\" writes it", backend.address);
            return Err((reason, "remove `mac`, or write mode = \"direct\""));
        }
    }
    if backend.server_id.is_some() && service.protocol == Some(Transport::Tcp) {
        return Err((format!("{} has a `server_id`, but TCP has none", backend.address), "write protocol = \"udp\""));
    }
    Ok(())
}

/// Checks that no tunnel originates from an address of its own backends, which would drop packets from it.
pub(super) fn check_tunnels(config: &Config) -> Result<(), ConfigError> {
    let tunnels = || config.services.iter().filter(|service| service.mode.is_tunnel());
    let ends = || tunnels().flat_map(|service| service.backends.iter().map(|it| it.address).chain([service.address]));
    let routers = [("router", Some(config.router.into())), ("router_v6", config.router_v6.map(IpAddr::from))];
    match routers.into_iter().find(|(_, router)| ends().any(|end| Some(end) == *router)) {
        Some((key, _)) => {
            let reason = "backends have this address, and take no tunnel that comes from it";
            Err(ConfigError::new(key, reason, "write another address, of this machine's"))
        }
        None => Ok(()),
    }
}

/// Checks that every key that is set affects some service.
pub(super) fn check_meant(config: &Config) -> Result<(), ConfigError> {
    let usual = Config::default();
    let has = |meets: fn(&Service) -> bool| config.services.iter().any(meets);
    let (hears, keeps) = (config.heartbeat_port.is_some(), has(|service| service.persistence == Persistence::Source));
    let has_tunnels = has(|service| service.mode.is_tunnel());
    let (tcp, udp) =
        (has(|service| service.remembers(Transport::Tcp)), has(|service| service.remembers(Transport::Udp)));
    let (of_tcp, of_udp) = ("add a service that remembers connections of TCP", "add a service that remembers UDP");
    let (hear, keep) = ("add heartbeat_port", "add persistence = \"source\" to a service");
    let translates = has(|service| service.mode == Mode::Nat);
    let idle = [
        ("checkers", !translates && !config.checkers.is_empty(), "add a service with mode = \"nat\""),
        ("monitors", !hears && !config.monitors.is_empty(), hear),
        ("heartbeat_timeout_ms", !hears && config.heartbeat_timeout_ms != usual.heartbeat_timeout_ms, hear),
        ("persistence_s", !keeps && config.persistence_s != usual.persistence_s, keep),
        ("persistence_max", !keeps && config.persistence_max != usual.persistence_max, keep),
        ("when_draining", !keeps && config.when_draining != usual.when_draining, keep),
        ("tcp_s", !tcp && config.tcp_s != usual.tcp_s, of_tcp),
        ("tcp_opening_s", !tcp && config.tcp_opening_s != usual.tcp_opening_s, of_tcp),
        ("tcp_closing_s", !tcp && config.tcp_closing_s != usual.tcp_closing_s, of_tcp),
        ("udp_s", !udp && config.udp_s != usual.udp_s, of_udp),
        ("mtu", !has_tunnels && config.mtu != usual.mtu, "add a mode with tunnels to a service"),
    ];
    if let Some((key, _, instead)) = idle.into_iter().find(|(_, is_idle, _)| *is_idle) {
        return Err(ConfigError::new(key, "says nothing to any service", format!("{instead}, or leave it out")));
    }
    match config.heartbeat_port {
        Some(0) => Err(ConfigError::new("heartbeat_port", "0 is no port", "write the one that backends send to")),
        _ => Ok(()),
    }
}

fn is_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_host_v4(v4.octets()),
        IpAddr::V6(v6) => is_routed_v6(v6.into()),
    }
}
