//! Passively lists the hosts of a network, their operating systems and the services they offer, as PRADS does.

mod config;
mod system;

pub use config::Config;
pub use system::System;

use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol::{TCP, UDP};
use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::{FieldUse, Relaxation};

use crate::config::{READS_WIRE_LEN, idle_ns};
use crate::parts::headers::protocols::{Protocol, Transport, by_payload, by_port};
use crate::parts::{Alerts, NS_PER_MS, Prefix, Volume};
use crate::{ConfigError, FromConfig};

/// How far a session has been examined.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Context {
    /// The number of server payloads that revealed nothing, or [`KNOWN`].
    looked: u8,
    /// Whether the server's packets run against the direction of the set's key.
    server_reversed: u8,
    zero: [u8; 2],
    /// When the host entry of each end was last updated, in milliseconds.
    touched_ms: [u32; 2],
}

/// The service of the session is known.
const KNOWN: u8 = u8::MAX;
/// After this many payloads of a server its port decides.
const LOOKS: u8 = 4;

/// A host of the network.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Host {
    first_ns: u64,
    last_ns: u64,
    mac: MacAddress,
    system: u8,
    zero: u8,
}

/// The endpoint at which a service is offered.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Service {
    host: IpAddress,
    port: u16,
    transport: u8,
    zero: [u8; 5],
}

/// Packets and bytes by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Traffic {
    /// Traffic of TCP and UDP sessions.
    pub sessions: Volume,
    /// All other traffic.
    pub other: Volume,
}

network_function! {
    /// Lists hosts and services; see the README beside this file.
    #[derive(Debug)]
    pub struct AssetMonitor {
        home: Vec<Prefix>,
        refresh_ms: u32,
        idle_timeout_ns: u64,
        hosts: Alerts<IpAddress, Host>,
        services: Alerts<Service, u64>,
        traffic: Distributed<Traffic>,
    }
}

impl FromConfig for AssetMonitor {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<AssetMonitor, ConfigError> {
        Ok(AssetMonitor {
            refresh_ms: config.refresh_ms()?,
            idle_timeout_ns: idle_ns("idle_timeout_s", config.idle_timeout_s)?,
            hosts: Alerts::named(builder, "hosts", config.hosts_max)
                .map_err(|e| ConfigError::state("hosts_max", &e))?,
            services: Alerts::named(builder, "services", config.services_max)
                .map_err(|e| ConfigError::state("services_max", &e))?,
            traffic: config.traffic(builder)?,
            home: config.home()?,
        })
    }
}

impl NetworkFunction for AssetMonitor {
    type Set = Context;
    const NAME: &'static str = "asset_monitor";

    /// Hosts and services stay known under any configuration.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[TCP, UDP]).symmetric())
    }

    fn timeout_ns(&self, _: &Context) -> u64 {
        self.idle_timeout_ns
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let meaning = "a host's last packet is noted so many milliseconds late";
        let (object, against) = ("hosts", &["update", "insert"] as &[_]);
        vec![Relaxation { key: "refresh_ms", object, against, candidates: &[100, 1000, 10_000], meaning }]
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Context>) -> Handled {
        // The client is the end that opens the connection or sends the request; without its SYN, the end with the higher
        // port.
        let answers = match packet.tcp_flags() {
            Some(flags) if flags & tcp_flags::SYN != 0 => flags & tcp_flags::ACK != 0,
            _ => packet.ports().is_some_and(|(source, destination)| source < destination),
        };
        let server_reversed = u8::from(answers == cx.reversed());
        let mut context = Context { server_reversed, ..Context::default() };
        self.touch(cx, packet, &mut context)?;
        let verdict = self.packet(cx, packet, &mut context)?;
        // If the set table is full, every packet of the session updates its hosts again: slower, but not wrong.
        let _room = set.register(cx, context);
        Ok(verdict)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, context: &mut Context) -> Handled {
        let since = ((cx.now() / NS_PER_MS) as u32).wrapping_sub(context.touched_ms[usize::from(cx.reversed())]);
        let opens = packet.tcp_flags().is_some_and(|flags| flags & tcp_flags::SYN != 0);
        if opens || (since > self.refresh_ms && since < u32::MAX / 2) {
            self.touch(cx, packet, context)?;
        }
        let from_server = u8::from(cx.reversed()) == context.server_reversed;
        if context.looked != KNOWN && from_server && self.is_home(packet.src_ip()) {
            self.look(cx, packet, context)?;
        }
        self.traffic.update(cx, |own| own.sessions.count(packet))?;
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if let Some((address, mac)) = packet.arp().map(|arp| (arp.sender_ip(), arp.sender_mac())) {
            self.see(cx, address, mac, System::Unknown)?;
        } else if packet.is_ip() {
            self.see(cx, packet.src_ip(), MacAddress::default(), System::Unknown)?;
        }
        self.traffic.update(cx, |own| own.other.count(packet))?;
        Ok(cx.pass())
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.hosts.report(cx, into, |address, host, into| {
            let system = System::from_number(host.system).name();
            let seen = format!("seen for {} s", (host.last_ns - host.first_ns) / 1_000_000_000);
            let mac = if host.mac == MacAddress::default() { String::new() } else { format!("{}, ", host.mac) };
            into.find("host", address, format!("{mac}{system}, {seen}"));
        })?;
        self.services.report(cx, into, |service, protocol, into| {
            let transport = if service.transport == TCP { "tcp" } else { "udp" };
            let name = Protocol::from_number(*protocol as u8).name();
            into.find("service", service.host, format!("{transport} {}: {name}", service.port));
        })?;
        let all = self.traffic.read(cx, Traffic::add)?;
        all.sessions.tell(into, |what| format!("{what} of sessions"));
        all.other.tell(into, |what| format!("{what} of other traffic"));
        Ok(())
    }
}

impl AssetMonitor {
    fn is_home(&self, address: IpAddress) -> bool {
        self.home.iter().any(|range| range.contains(address))
    }

    /// Notes that the sender is alive, and from a SYN which system it runs.
    fn touch(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, context: &mut Context) -> Result<(), Conflict> {
        context.touched_ms[usize::from(cx.reversed())] = (cx.now() / NS_PER_MS) as u32;
        self.see(cx, packet.src_ip(), MacAddress::default(), System::of(packet))
    }

    fn see(&self, cx: &mut Cx<'_>, address: IpAddress, mac: MacAddress, system: System) -> Result<(), Conflict> {
        if !self.is_home(address) {
            return Ok(());
        }
        let (now, known) = (cx.now(), self.hosts.known(cx, &address)?);
        let mut host = known.unwrap_or(Host { first_ns: now, ..Host::default() });
        if mac != MacAddress::default() {
            host.mac = mac;
        }
        host.system = host.system.max(system as u8);
        let is_said = |known: &Host| (known.mac, known.system) == (host.mac, host.system);
        let lag_ns = now.saturating_sub(host.last_ns);
        if !known.as_ref().is_some_and(is_said) || lag_ns > u64::from(self.refresh_ms) * NS_PER_MS {
            host.last_ns = host.last_ns.max(now);
            self.hosts.write(cx, &address, &host)?;
        }
        Ok(())
    }

    /// Identifies the service from a packet that its server sends.
    fn look(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, context: &mut Context) -> Result<(), Conflict> {
        let Some((port, client)) = packet.ports() else { return Ok(()) };
        let payload = packet.payload();
        if payload.is_empty() {
            return Ok(());
        }
        let transport = if packet.protocol() == TCP { Transport::Tcp } else { Transport::Udp };
        context.looked += 1;
        let protocol = match by_payload(transport, (port, client), payload) {
            None if context.looked < LOOKS => return Ok(()),
            None => by_port(transport, (port, port)),
            Some(protocol) => protocol,
        };
        context.looked = KNOWN;
        let service = Service { host: packet.src_ip(), port, transport: packet.protocol(), zero: [0; 5] };
        match self.services.known(cx, &service)? {
            Some(known) if known == protocol as u64 => Ok(()),
            _ => self.services.write(cx, &service, &(protocol as u64)),
        }
    }
}

impl Traffic {
    fn add(&mut self, part: &Traffic) {
        self.sessions = self.sessions.plus(part.sessions);
        self.other = self.other.plus(part.other);
    }
}

#[cfg(test)]
mod tests;
