//! What can be configured, and what it means once it has been checked.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use braid_nf::Port;
use serde::Deserialize;

use super::connection::Timeouts;
use super::rules::{Action, Rule};
use crate::config::{ConfigError, IDLE_MAX, span_ns};
use crate::parts::Sides;
use crate::parts::answer::Router;

/// As it stands in a plan file. The README explains each key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    pub inside_ports: Vec<Port>,
    pub outside_ports: Vec<Port>,
    pub outbound: Action,
    pub inbound: Action,
    pub rules: Vec<Rule>,
    pub loose: bool,
    pub tcp_opening_s: u64,
    pub tcp_established_s: u64,
    pub tcp_closing_s: u64,
    pub tcp_reset_s: u64,
    pub udp_s: u64,
    pub icmp_s: u64,
    pub other_s: u64,
    pub connections_max: u32,
    pub queries_max: u32,
    pub fragments_max: u32,
    pub fragment_s: u64,
    pub ttl: Ttl,
    pub router: Ipv4Addr,
    pub router_v6: Option<Ipv6Addr>,
}

/// Whether the firewall counts as a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ttl {
    /// It is a bump in the wire.
    Keep,
    /// It is a router.
    Decrement,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            outbound: Action::Allow,
            inbound: Action::Deny,
            rules: Vec::new(),
            loose: false,
            tcp_opening_s: 120,
            tcp_established_s: 7440,
            tcp_closing_s: 120,
            tcp_reset_s: 10,
            udp_s: 180,
            icmp_s: 30,
            other_s: 600,
            connections_max: 1 << 20,
            queries_max: 65_536,
            fragments_max: 4096,
            fragment_s: 30,
            ttl: Ttl::Keep,
            // The dummy address of RFC 7600 section 4.8, for routers that have none of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
        }
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) rules: Box<[Rule]>,
    /// What no rule matches: from inside, from outside.
    pub(super) otherwise: [Action; 2],
    pub(super) loose: bool,
    pub(super) timeouts: Timeouts,
    pub(super) query_ns: u64,
    pub(super) fragment_ns: u64,
    pub(super) ttl: Ttl,
    pub(super) router: Router,
}

braid_nf::plain!(Settings);

impl Settings {
    pub(super) fn check(config: &Config, ports: u16) -> Result<Settings, ConfigError> {
        let seconds = |key, value| span_ns(key, Duration::from_secs(value), Duration::from_secs(1), IDLE_MAX);
        config.rules.iter().enumerate().try_for_each(|(number, rule)| rule.check(number))?;
        Ok(Settings {
            sides: Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?,
            rules: config.rules.clone().into(),
            otherwise: [config.outbound, config.inbound],
            loose: config.loose,
            timeouts: Timeouts {
                opening_ns: seconds("tcp_opening_s", config.tcp_opening_s)?,
                established_ns: seconds("tcp_established_s", config.tcp_established_s)?,
                closing_ns: seconds("tcp_closing_s", config.tcp_closing_s)?,
                reset_ns: seconds("tcp_reset_s", config.tcp_reset_s)?,
                udp_ns: seconds("udp_s", config.udp_s)?,
                other_ns: seconds("other_s", config.other_s)?,
            },
            query_ns: seconds("icmp_s", config.icmp_s)?,
            fragment_ns: seconds("fragment_s", config.fragment_s)?,
            ttl: config.ttl,
            router: Router { v4: config.router.into(), v6: config.router_v6.map(Into::into) },
        })
    }
}
