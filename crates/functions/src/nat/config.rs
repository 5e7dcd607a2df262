//! The configuration, as written in a plan file. The README explains each key.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use braid_nf::Port;
use serde::Deserialize;

use crate::config::capacity;
use crate::mappings;
use crate::mappings::config::{AllocationKind, Filtering, ForRouter, Networks, NextHop, Pooling, Static};
use crate::parts::WrittenMac;
use crate::parts::answers::syslog::Collector;
use crate::parts::config::endpoints::Endpoints;
use crate::parts::config::prefix::{self, Prefix};
use crate::parts::forwarding::hairpin::Return;
use crate::parts::forwarding::others::{CountsHops, Others};
use crate::parts::headers::segment_size::ClampMss;
use crate::parts::headers::tags::{OuterTag, TagRange};

/// The configuration as written in a plan file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
    #[serde(deserialize_with = "prefix::with_ends")]
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
    pub gateways: Vec<Ipv4Addr>,
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
    pub pooling: Pooling,
    #[serde(rename = "static")]
    pub fixed: Vec<Static>,
    pub one_to_one: Vec<OneToOne>,
    #[serde(deserialize_with = "prefix::with_ends")]
    pub exempt: Vec<Prefix>,
    pub only_to: Vec<Endpoints<SocketAddrV4>>,
    pub filtering: Filtering,
    pub inbound_refresh: bool,
    pub tcp_opening_s: u64,
    pub tcp_established_s: u64,
    pub tcp_closing_s: u64,
    pub udp_s: u64,
    pub icmp_s: u64,
    pub portless_s: u64,
    pub portless_max: u32,
    pub portless_per_host: u32,
    pub refresh_ms: u64,
    pub rest_s: u64,
    #[serde(deserialize_with = "capacity")]
    pub mappings_max: u32,
    pub mappings_per_network: u32,
    pub fragments_max: u32,
    pub held_max: u32,
    pub fragment_s: u64,
    pub ipv6: Others,
    pub non_ip: Others,
    pub router: Ipv4Addr,
    pub router_v6: Option<Ipv6Addr>,
    pub outside_router: Option<Ipv4Addr>,
    pub outside_router_v6: Option<Ipv6Addr>,
    pub for_router: Vec<ForRouter>,
    pub for_router_addresses: Vec<Ipv4Addr>,
    pub hairpins: Option<Return>,
    pub counts_hops: CountsHops,
    pub inside_mtu: Option<u16>,
    pub outside_mtu: Option<u16>,
    pub clamp_mss: ClampMss,
    pub icmp_errors_per_s: u64,
}

/// External addresses that each stand for one inside address, for all protocols.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct OneToOne {
    pub external: Prefix,
    pub inside: Prefix,
    #[serde(default)]
    pub network: Option<Port>,
    #[serde(default)]
    pub vlan: Option<TagRange>,
}

impl Config {
    /// The keys of the mappings.
    pub(crate) fn of_mappings(&self) -> mappings::Config {
        mappings::config::keys_of!(self, self.inside.clone())
    }
}

impl Default for Config {
    fn default() -> Config {
        let of_mappings = mappings::Config::default();
        let ranges = |texts: &[&str]| texts.iter().filter_map(|text| text.parse().ok()).collect();
        Config {
            inside: ranges(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"]),
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            networks: of_mappings.networks,
            vlans: of_mappings.vlans,
            outside_vlan: of_mappings.outside_vlan,
            outer_tag: of_mappings.outer_tag,
            next_hops: of_mappings.next_hops,
            outside_next_hop: of_mappings.outside_next_hop,
            mac: of_mappings.mac,
            gateways: Vec::new(),
            external: of_mappings.external,
            draining: of_mappings.draining,
            first_port: of_mappings.first_port,
            last_port: of_mappings.last_port,
            allocation: of_mappings.allocation,
            block_size: of_mappings.block_size,
            blocks_per_host: of_mappings.blocks_per_host,
            block_log_max: of_mappings.block_log_max,
            block_syslog: of_mappings.block_syslog,
            ports_per_host: of_mappings.ports_per_host,
            pooling: of_mappings.pooling,
            fixed: Vec::new(),
            one_to_one: Vec::new(),
            exempt: Vec::new(),
            only_to: Vec::new(),
            filtering: Filtering::EndpointIndependent,
            inbound_refresh: false,
            tcp_opening_s: of_mappings.tcp_opening_s,
            tcp_established_s: of_mappings.tcp_established_s,
            tcp_closing_s: of_mappings.tcp_closing_s,
            udp_s: of_mappings.udp_s,
            icmp_s: of_mappings.icmp_s,
            portless_s: 600,
            portless_max: 8192,
            portless_per_host: 256,
            refresh_ms: of_mappings.refresh_ms,
            rest_s: of_mappings.rest_s,
            mappings_max: of_mappings.mappings_max,
            mappings_per_network: of_mappings.mappings_per_network,
            fragments_max: 4096,
            held_max: 256,
            fragment_s: 30,
            ipv6: Others::Pass,
            non_ip: Others::Pass,
            // The IPv4 dummy address (RFC 7600 section 4.8), for routers that have no address of their own.
            router: Ipv4Addr::new(192, 0, 0, 8),
            router_v6: None,
            outside_router: None,
            outside_router_v6: None,
            for_router: Vec::new(),
            for_router_addresses: Vec::new(),
            hairpins: None,
            counts_hops: CountsHops::All,
            inside_mtu: None,
            outside_mtu: None,
            clamp_mss: ClampMss::Off,
            icmp_errors_per_s: 1000,
        }
    }
}
