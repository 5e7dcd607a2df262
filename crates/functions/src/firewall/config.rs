//! The configuration, as written in a plan file and as checked.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use braid_nf::packet::IpAddress;
use braid_nf::state::Decided;
use braid_nf::{Packet, Port};
use serde::Deserialize;

use super::conditions::clock::UtcOffset;
use super::conditions::extensions::{self, RoutingHeader0};
use super::conditions::output_ports::Exits;
use super::conditions::values::{Addresses, Forward};
use super::connection::limits::Most;
use super::connection::permit::Ways;
use super::connection::timeouts::Timeouts;
use super::non_ip::NonIp;
use super::policy::Policy;
use super::rule_file::{Hooks, Ports};
use super::rules::{Action, Rule};
use crate::config::{ConfigError, idle_ns};
use crate::parts::answers::answer::Router;
use crate::parts::forwarding::others::Others;
use crate::parts::{Side, Sides};

/// The IPv4 dummy address (RFC 7600 section 4.8), for routers that have no address of their own.
const DUMMY: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);
/// Default time in seconds for a half-open connection to complete while there are many.
const HURRIED_S: u64 = 5;

/// The configuration as written in a plan file. The README explains each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    pub inside_ports: Vec<Port>,
    pub outside_ports: Vec<Port>,
    pub outbound: Action,
    pub inbound: Action,
    pub rules: Vec<Rule>,
    pub rules_file: Option<PathBuf>,
    pub rules_hook: Hooks,
    pub interfaces: Vec<String>,
    pub networks: Vec<Vec<Addresses>>,
    pub forwards: Option<Vec<Forward>>,
    pub utc_offset: UtcOffset,
    pub windows: WindowCheck,
    pub loose: bool,
    pub tcp_opening_s: u64,
    pub tcp_answered_s: u64,
    pub tcp_hurried_s: Option<u64>,
    pub tcp_established_s: u64,
    pub tcp_half_closed_s: u64,
    pub tcp_closing_s: u64,
    pub tcp_reset_s: u64,
    pub udp_s: u64,
    pub udp_unanswered_s: u64,
    pub icmp_s: u64,
    pub other_s: u64,
    pub half_open_max: u32,
    pub host_connections_max: u32,
    pub host_half_open_max: u32,
    pub hosts_max: u32,
    pub connections_max: u32,
    pub queries_max: u32,
    pub fragments_max: u32,
    pub held_max: u32,
    pub fragment_s: u64,
    pub non_ip: Others,
    pub non_ip_types: Option<Vec<u16>>,
    pub routing_header_0: RoutingHeader0,
    pub ttl: Ttl,
    pub router: Option<Ipv4Addr>,
    pub router_v6: Option<Ipv6Addr>,
    pub icmp_errors_per_s: u64,
}

/// Whether the firewall counts as a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ttl {
    /// It is transparent and leaves the TTL unchanged.
    Keep,
    /// It acts as a router and decrements the TTL.
    Decrement,
}

/// What happens to TCP segments outside of what their connection's ends may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowCheck {
    /// They are dropped.
    Strict,
    /// Only resets are dropped.
    Liberal,
    /// Windows are not checked.
    Off,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            outbound: Action::Allow,
            inbound: Action::Deny,
            rules: Vec::new(),
            rules_file: None,
            rules_hook: Hooks::Forward,
            interfaces: Vec::new(),
            networks: Vec::new(),
            forwards: None,
            utc_offset: UtcOffset::default(),
            windows: WindowCheck::Strict,
            loose: false,
            tcp_opening_s: 120,
            tcp_answered_s: 60,
            tcp_hurried_s: None,
            tcp_established_s: 7440,
            tcp_half_closed_s: 7440,
            tcp_closing_s: 120,
            tcp_reset_s: 10,
            udp_s: 180,
            udp_unanswered_s: 120,
            icmp_s: 30,
            other_s: 600,
            half_open_max: 65_536,
            host_connections_max: 0,
            host_half_open_max: 0,
            hosts_max: 65_536,
            connections_max: 1 << 20,
            queries_max: 65_536,
            fragments_max: 4096,
            held_max: 256,
            fragment_s: 30,
            non_ip: Others::Pass,
            non_ip_types: None,
            routing_header_0: RoutingHeader0::Drop,
            ttl: Ttl::Keep,
            router: None,
            router_v6: None,
            icmp_errors_per_s: 1000,
        }
    }
}

impl Config {
    /// Rejects keys that refine limits which are not set.
    fn limits_are_there(&self) -> Result<(), ConfigError> {
        if self.half_open_max == 0 && self.tcp_hurried_s.is_some() {
            let instead = "leave it out, or write a `half_open_max`";
            return Err(ConfigError::new(
                "tcp_hurried_s",
                "nobody hurries where nothing limits half-open connections",
                instead,
            ));
        }
        let counts_hosts = self.host_connections_max != 0 || self.host_half_open_max != 0;
        if !counts_hosts && self.hosts_max != Config::default().hosts_max {
            let instead = "leave it out, or write `host_connections_max` or `host_half_open_max`";
            return Err(ConfigError::new("hosts_max", "no hosts are counted", instead));
        }
        Ok(())
    }
}

impl Config {
    /// Rejects keys that only a rule file uses if there is none.
    fn rule_file_is_there(&self) -> Result<(), ConfigError> {
        let said = [
            ("rules_hook", self.rules_hook != Hooks::Forward),
            ("interfaces", !self.interfaces.is_empty()),
            ("networks", !self.networks.is_empty()),
            ("forwards", self.forwards.is_some()),
            ("utc_offset", self.utc_offset != UtcOffset::default()),
        ];
        let is_asked = self.rules_file.is_some() || self.rules.iter().any(|rule| rule.line != 0);
        match said.iter().find(|(_, is_said)| *is_said) {
            Some(("networks", _)) if self.rules.iter().any(|rule| !rule.out_ports.0.is_empty()) => Ok(()),
            Some((key, _)) if !is_asked => {
                let instead = "leave it out, or name the file under `rules_file`: tables under `rules` name ports by their numbers, and ask for no time";
                Err(ConfigError::new(key, "only a rule file asks for it, and there is none", instead))
            }
            _ => Ok(()),
        }
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    /// For each port, what packets of a connection must match to pass without asking the rules.
    pub(super) ways: Ways,
    pub(super) policy: Policy,
    /// By which ports packets leave.
    pub(super) exits: Exits,
    pub(super) windows: WindowCheck,
    pub(super) loose: bool,
    pub(super) timeouts: Timeouts,
    pub(super) most: Most,
    pub(super) query_ns: u64,
    pub(super) fragment_ns: u64,
    routing_header_0: RoutingHeader0,
    pub(super) non_ip: NonIp,
    pub(super) ttl: Ttl,
    pub(super) router: Router,
    /// The addresses of both families from which hosts inside hear of a refusal; without one, from the packet's destination.
    refuses_as: [Option<IpAddress>; 2],
}

braid_nf::plain!(Settings);

impl Settings {
    /// How many hops the firewall subtracts from the TTL.
    pub(super) fn hops(&self) -> u8 {
        u8::from(self.ttl == Ttl::Decrement)
    }

    /// Whether a packet is dropped because of where a header of it says that it goes on.
    #[inline(always)]
    pub(super) fn refuses_route(&self, packet: &Packet<'_>) -> bool {
        extensions::are_routing(packet) && self.routing_header_0 == RoutingHeader0::Drop
    }

    /// The address from which the sender hears that a packet from a side is refused.
    pub(super) fn refuser(&self, packet: &Packet<'_>, side: Side) -> IpAddress {
        let own = self.refuses_as[usize::from(!packet.dst_ip().is_v4())];
        own.filter(|_| side == Side::Inside).unwrap_or(packet.dst_ip())
    }

    /// `decided`: where it is decided by which port packets leave, from inside and from outside; `readdressed`: whether they come
    /// with Ethernet headers that another function has written.
    pub(super) fn check(
        mut config: Config,
        ports: u16,
        (decided, readdressed): ([Decided; 2], [bool; 2]),
    ) -> Result<Settings, ConfigError> {
        let timeouts = Timeouts {
            tcp_ns: [
                idle_ns("tcp_opening_s", config.tcp_opening_s)?,
                idle_ns("tcp_answered_s", config.tcp_answered_s)?,
                idle_ns("tcp_established_s", config.tcp_established_s)?,
                idle_ns("tcp_half_closed_s", config.tcp_half_closed_s)?,
                idle_ns("tcp_closing_s", config.tcp_closing_s)?,
                idle_ns("tcp_reset_s", config.tcp_reset_s)?,
                idle_ns("tcp_reset_s", config.tcp_reset_s)?,
                idle_ns("tcp_reset_s", config.tcp_reset_s)?,
            ],
            hurried_ns: idle_ns("tcp_hurried_s", config.tcp_hurried_s.unwrap_or(config.tcp_opening_s.min(HURRIED_S)))?,
            udp_ns: [idle_ns("udp_unanswered_s", config.udp_unanswered_s)?, idle_ns("udp_s", config.udp_s)?],
            other_ns: idle_ns("other_s", config.other_s)?,
        };
        if timeouts.hurried_ns > timeouts.tcp_ns[0] {
            let reason = format!("longer than tcp_opening_s = {}", config.tcp_opening_s);
            let instead = "write at most as many seconds: it is for having less time";
            return Err(ConfigError::new("tcp_hurried_s", reason, instead));
        }
        config.limits_are_there()?;
        let sides = Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?;
        if config.interfaces.len() > usize::from(ports) {
            let reason = format!("{} names, but the plan has {ports} ports", config.interfaces.len());
            return Err(ConfigError::new("interfaces", reason, "write a name for each port, in their order"));
        }
        let is_named_twice = |(at, name): (usize, &String)| config.interfaces[..at].contains(name);
        if let Some(name) = config.interfaces.iter().enumerate().find(|one| is_named_twice(*one)).map(|(_, name)| name)
        {
            let reason = format!("two ports are named `{name}`");
            return Err(ConfigError::new("interfaces", reason, "give each port a name of its own, in their order"));
        }
        if config.networks.len() > usize::from(ports) {
            let reason = format!("networks of {} ports, but the plan has {ports}", config.networks.len());
            return Err(ConfigError::new("networks", reason, "write a list for each port, in their order"));
        }
        config.rule_file_is_there()?;
        let ports = Ports { count: ports, sides, decided, readdressed };
        let policy = Policy::check(&mut config, ports)?;
        Ok(Settings {
            sides,
            ways: Ways::new(sides, policy.permit),
            exits: Exits::new(ports, &config.networks),
            policy,
            timeouts,
            windows: config.windows,
            loose: config.loose,
            most: Most {
                half_open: config.half_open_max.into(),
                host_connections: config.host_connections_max,
                host_half_open: config.host_half_open_max,
            },
            query_ns: idle_ns("icmp_s", config.icmp_s)?,
            fragment_ns: idle_ns("fragment_s", config.fragment_s)?,
            non_ip: NonIp::check(config.non_ip, config.non_ip_types)?,
            routing_header_0: config.routing_header_0,
            ttl: config.ttl,
            refuses_as: [config.router.map(IpAddress::from), config.router_v6.map(IpAddress::from)],
            router: Router::check(("router", config.router.unwrap_or(DUMMY)), ("router_v6", config.router_v6))?,
        })
    }
}
