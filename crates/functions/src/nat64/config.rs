//! The configuration, as written in a plan file and as checked. The README explains each key.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use braid_nf::Port;
use braid_nf::packet::IpAddress;
use serde::Deserialize;

use super::header::Classes;
use super::icmp::Mtus;
use super::prefix::Prefix64;
use crate::config::{ConfigError, capacity, idle_ns};
use crate::mappings;
use crate::mappings::config::{self as shared, AllocationKind, Filtering, ForRouter, Networks, NextHop, Pooling};
use crate::mappings::fixed::{self, Fixed};
use crate::mappings::for_router::LeftToRouter;
use crate::mappings::networks::Nets;
use crate::mappings::pool::Pool;
use crate::mappings::session::Timeouts;
use crate::parts::answers::answer::Router;
use crate::parts::answers::proxy::Proxy;
use crate::parts::answers::syslog::Collector;
use crate::parts::config::prefix;
use crate::parts::forwarding::others::{CountsHops, Others};
use crate::parts::headers::segment_size::{ClampMss, HEADERS_V4, HEADERS_V6, Limit};
use crate::parts::headers::tags::{OuterTag, TagRange};
use crate::parts::{Prefix, Side, Sides, WrittenMac};

/// The smallest MTU of an IPv6 link (RFC 8200 section 5), and the largest one supported.
const MTUS: std::ops::RangeInclusive<u16> = 1280..=9216;

/// The configuration as written in a plan file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    pub prefix: Option<Prefix>,
    pub inside: Vec<Prefix>,
    pub inside_ports: Vec<Port>,
    pub outside_ports: Vec<Port>,
    pub networks: Networks,
    pub vlans: Vec<TagRange>,
    pub outside_vlan: Option<TagRange>,
    pub outer_tag: OuterTag,
    pub next_hops: Vec<NextHop>,
    pub outside_next_hop: Option<WrittenMac>,
    pub mac: Option<WrittenMac>,
    #[serde(deserialize_with = "prefix::with_ends")]
    pub external: Vec<Prefix>,
    #[serde(deserialize_with = "prefix::with_ends")]
    pub draining: Vec<Prefix>,
    pub first_port: u16,
    pub last_port: u16,
    pub allocation: AllocationKind,
    pub block_size: u16,
    pub blocks_per_host: u32,
    pub block_log_max: u32,
    pub block_syslog: Option<Collector>,
    pub ports_per_host: u32,
    pub subscriber_bits: u8,
    pub pooling: Pooling,
    #[serde(rename = "static")]
    pub fixed: Vec<Static>,
    pub private: Others,
    pub filtering: Filtering,
    pub inbound_refresh: bool,
    pub tcp_opening_s: u64,
    pub tcp_established_s: u64,
    pub tcp_closing_s: u64,
    pub udp_s: u64,
    pub icmp_s: u64,
    pub refresh_ms: u64,
    pub rest_s: u64,
    #[serde(deserialize_with = "capacity")]
    pub mappings_max: u32,
    pub mappings_per_network: u32,
    pub fragments_max: u32,
    pub held_max: u32,
    pub fragment_s: u64,
    pub mtu_v4: u16,
    pub mtu_v6: u16,
    pub lowest_mtu_v6: u16,
    pub traffic_class: Option<u8>,
    pub tos: Option<u8>,
    pub clamp_mss: ClampMss,
    pub others: Others,
    pub router: Ipv4Addr,
    pub router_v6: Option<Ipv6Addr>,
    pub for_router: Vec<ForRouter>,
    pub for_router_addresses: Vec<Ipv4Addr>,
    pub counts_hops: CountsHops,
    pub icmp_errors_per_s: u64,
}

/// Mappings that are always there.
pub type Static = shared::Static<SocketAddrV6>;

impl Default for Config {
    fn default() -> Config {
        let of_mappings = mappings::Config::default();
        Config {
            prefix: "64:ff9b::/96".parse().ok(),
            inside: "::/0".parse().into_iter().collect(),
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            networks: of_mappings.networks,
            vlans: Vec::new(),
            outside_vlan: None,
            outer_tag: of_mappings.outer_tag,
            next_hops: Vec::new(),
            outside_next_hop: None,
            mac: None,
            external: of_mappings.external,
            draining: Vec::new(),
            first_port: of_mappings.first_port,
            last_port: of_mappings.last_port,
            allocation: of_mappings.allocation,
            block_size: of_mappings.block_size,
            blocks_per_host: of_mappings.blocks_per_host,
            block_log_max: of_mappings.block_log_max,
            block_syslog: None,
            ports_per_host: of_mappings.ports_per_host,
            subscriber_bits: 64,
            pooling: of_mappings.pooling,
            fixed: Vec::new(),
            private: Others::Drop,
            filtering: Filtering::EndpointIndependent,
            // Packets of both directions prolong a session (RFC 6146 section 3.5.1).
            inbound_refresh: true,
            tcp_opening_s: of_mappings.tcp_opening_s,
            tcp_established_s: of_mappings.tcp_established_s,
            tcp_closing_s: of_mappings.tcp_closing_s,
            udp_s: of_mappings.udp_s,
            icmp_s: of_mappings.icmp_s,
            refresh_ms: of_mappings.refresh_ms,
            rest_s: of_mappings.rest_s,
            mappings_max: of_mappings.mappings_max,
            mappings_per_network: of_mappings.mappings_per_network,
            fragments_max: 4096,
            held_max: 256,
            fragment_s: 30,
            mtu_v4: 1500,
            mtu_v6: 1500,
            lowest_mtu_v6: 1280,
            traffic_class: None,
            tos: None,
            clamp_mss: ClampMss::Off,
            others: Others::Pass,
            // The IPv4 dummy address (RFC 7600 section 4.8), for routers that have no address of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
            for_router: Vec::new(),
            for_router_addresses: Vec::new(),
            counts_hops: CountsHops::All,
            icmp_errors_per_s: 1000,
        }
    }
}

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) sides: Sides,
    pub(super) prefix: Prefix64,
    pub(super) pool: Pool,
    pub(super) networks: Nets,
    pub(super) fixed: Box<[Fixed]>,
    /// Whether private IPv4 addresses may be reached.
    pub(super) private: bool,
    pub(super) timeouts: Timeouts,
    pub(super) fragment_ns: u64,
    pub(super) mtus: Mtus,
    /// The length in bytes above which IPv4 packets are fragmented if they may be and would be longer over IPv6.
    pub(super) lowest_mtu: u16,
    pub(super) classes: Classes,
    /// What segments announce at most that begin a TCP connection, on either side.
    pub(super) segments: Limit,
    pub(super) others: Others,
    pub(super) router: Router,
    /// Which packets to an external address are for the router behind.
    pub(super) for_router: LeftToRouter,
    pub(super) counts_hops: CountsHops,
    pub(super) proxy: Option<Proxy>,
}

braid_nf::plain!(Settings);

impl Settings {
    /// Whether a packet is for this function's own address, so that it goes no further: a router behind takes it. An
    /// external address does not count, because it is shared.
    pub(super) fn is_for_router(&self, to: IpAddress) -> bool {
        Some(to) == self.router.v6 || (to == self.router.v4 && !self.pool.is_external(to))
    }

    pub(super) fn check(config: &Config, ports: u16) -> Result<Settings, ConfigError> {
        let prefix = check_written(config)?;
        let sides = Sides::from_lists(&config.inside_ports, &config.outside_ports, ports)?;
        let of_mappings = shared::keys_of!(config, Vec::new());
        let networks = Nets::check(&of_mappings, sides, ports)?;
        let pool = Pool::check(&of_mappings, ports, networks.list.clone())?;
        let pool = Pool { subscriber_bits: config.subscriber_bits, inside: config.inside.clone().into(), ..pool };
        let home = (0..ports).find(|port| sides.of(*port) == Some(Side::Inside)).unwrap_or(0);
        let fitting = (config.mtu_v4 - HEADERS_V4).min(config.mtu_v6 - HEADERS_V6);
        Ok(Settings {
            sides,
            prefix,
            fixed: fixed(config, &pool, prefix, (&networks, home))?,
            networks,
            private: config.private == Others::Pass || !prefix.is_well_known(),
            timeouts: Timeouts::check(&of_mappings)?,
            fragment_ns: idle_ns("fragment_s", config.fragment_s)?,
            segments: config.clamp_mss.limit(Some(fitting), "`mtu_v4`")?,
            mtus: Mtus { v4: config.mtu_v4, v6: config.mtu_v6 },
            lowest_mtu: config.lowest_mtu_v6,
            classes: Classes { v4: config.tos, v6: config.traffic_class },
            others: config.others,
            counts_hops: config.counts_hops,
            for_router: LeftToRouter::check(
                &config.for_router,
                ("router", config.router),
                &config.for_router_addresses,
                |address| pool.is_external_v4(address.octets()),
            )?,
            router: Router::check(("router", config.router), ("router_v6", config.router_v6))?,
            proxy: Proxy::check(config.mac)?,
            pool,
        })
    }
}

/// The prefix, if it and what else can be judged by itself is as it has to be.
fn check_written(config: &Config) -> Result<Prefix64, ConfigError> {
    let prefix = config.prefix.ok_or_else(|| ConfigError::new("prefix", "missing", "write 64:ff9b::/96"))?;
    let prefix = Prefix64::check(prefix)?;
    if config.private == Others::Pass && !prefix.is_well_known() {
        let reason = "behind another prefix than 64:ff9b::/96 private addresses are reached anyway";
        return Err(ConfigError::new("private", reason, "leave it out"));
    }
    if let Some(range) = config.inside.iter().find(|range| range.is_v4()) {
        return Err(ConfigError::new("inside", format!("{range} is not IPv6"), "name IPv6 ranges only"));
    }
    if config.inside.is_empty() {
        return Err(ConfigError::new("inside", "names no range", "write for example inside = [\"::/0\"]"));
    }
    prefix::apart("inside", &config.inside)?;
    if config.inside.iter().all(|range| prefix.covers(range)) {
        let reason = "all of it lies behind the prefix, and nobody sends from there";
        return Err(ConfigError::new("inside", reason, "name where hosts of IPv6 are, such as \"2001:db8:1::/48\""));
    }
    if let Some(router) = config.router_v6.filter(|router| prefix.contains((*router).into())) {
        let reason = format!("{router} lies behind the prefix, so it is a host of IPv4");
        return Err(ConfigError::new("router_v6", reason, "write an address of this machine's"));
    }
    if !(1..=128).contains(&config.subscriber_bits) {
        let reason = format!("{} is no length of a prefix", config.subscriber_bits);
        return Err(ConfigError::new("subscriber_bits", reason, "write 1 to 128, mostly 56 or 64"));
    }
    if config.allocation == AllocationKind::Deterministic {
        let reason = "IPv6 hosts are too many to have ports that follow from their addresses";
        return Err(ConfigError::new("allocation", reason, "write `shared` or `blocks`"));
    }
    for (key, mtu) in [("mtu_v4", config.mtu_v4), ("mtu_v6", config.mtu_v6), ("lowest_mtu_v6", config.lowest_mtu_v6)] {
        if !MTUS.contains(&mtu) {
            let instead = format!("write {} to {}", MTUS.start(), MTUS.end());
            return Err(ConfigError::new(key, format!("{mtu} is out of range"), instead));
        }
    }
    if config.lowest_mtu_v6 > config.mtu_v6 {
        let reason = format!("{} is more than `mtu_v6`, {}", config.lowest_mtu_v6, config.mtu_v6);
        return Err(ConfigError::new("lowest_mtu_v6", reason, format!("write 1280 to {}", config.mtu_v6)));
    }
    Ok(prefix)
}

fn fixed(config: &Config, pool: &Pool, prefix: Prefix64, place: (&Nets, Port)) -> Result<Box<[Fixed]>, ConfigError> {
    let is_inside = |address| !prefix.contains(address) && config.inside.iter().any(|range| range.contains(address));
    fixed::check((&config.fixed, config.mappings_max), pool, place, is_inside)
}
