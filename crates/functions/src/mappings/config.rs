//! The part of a configuration that all functions with mappings have.
//!
//! Each of them lists these keys among its own: serde's `flatten` neither refuses unknown keys nor tells where in the file a wrong value stands.

use std::net::SocketAddrV4;

use braid_nf::Port;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use crate::parts::answers::syslog::Collector;
use crate::parts::config::endpoints::{End, Endpoints};
use crate::parts::headers::tags::{OuterTag, TagRange};
use crate::parts::{Prefix, WrittenMac};

/// The keys of the mappings, with their defaults. The README of [`nat`](crate::nat) explains each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Whose blocks are counted, if the allocation is deterministic.
    pub inside: Vec<Prefix>,
    pub networks: Networks,
    pub vlans: Vec<TagRange>,
    pub outside_vlan: Option<TagRange>,
    pub outer_tag: OuterTag,
    pub next_hops: Vec<NextHop>,
    pub outside_next_hop: Option<WrittenMac>,
    pub mac: Option<WrittenMac>,
    pub external: Vec<Prefix>,
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
    pub tcp_opening_s: u64,
    pub tcp_established_s: u64,
    pub tcp_closing_s: u64,
    pub udp_s: u64,
    pub icmp_s: u64,
    pub refresh_ms: u64,
    pub rest_s: u64,
    pub mappings_max: u32,
    pub mappings_per_network: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            inside: Vec::new(),
            networks: Networks::One,
            vlans: Vec::new(),
            outside_vlan: None,
            outer_tag: OuterTag::Service,
            next_hops: Vec::new(),
            outside_next_hop: None,
            mac: None,
            external: "198.51.100.1".parse().into_iter().collect(),
            draining: Vec::new(),
            first_port: 1024,
            last_port: u16::MAX,
            allocation: AllocationKind::Shared,
            block_size: 512,
            blocks_per_host: 4,
            block_log_max: 65_536,
            block_syslog: None,
            ports_per_host: 0,
            pooling: Pooling::Paired,
            tcp_opening_s: 240,
            tcp_established_s: 7440,
            tcp_closing_s: 240,
            udp_s: 300,
            icmp_s: 60,
            refresh_ms: 30_000,
            rest_s: 120,
            mappings_max: 1 << 20,
            mappings_per_network: 0,
        }
    }
}

/// Takes the keys of the mappings out of a function's configuration.
macro_rules! keys_of {
    ($config:expr, $inside:expr) => {
        $crate::mappings::config::Config {
            inside: $inside,
            networks: $config.networks,
            vlans: $config.vlans.clone(),
            outside_vlan: $config.outside_vlan.clone(),
            outer_tag: $config.outer_tag,
            next_hops: $config.next_hops.clone(),
            outside_next_hop: $config.outside_next_hop,
            mac: $config.mac,
            external: $config.external.clone(),
            draining: $config.draining.clone(),
            first_port: $config.first_port,
            last_port: $config.last_port,
            allocation: $config.allocation,
            block_size: $config.block_size,
            blocks_per_host: $config.blocks_per_host,
            block_log_max: $config.block_log_max,
            block_syslog: $config.block_syslog,
            ports_per_host: $config.ports_per_host,
            pooling: $config.pooling,
            tcp_opening_s: $config.tcp_opening_s,
            tcp_established_s: $config.tcp_established_s,
            tcp_closing_s: $config.tcp_closing_s,
            udp_s: $config.udp_s,
            icmp_s: $config.icmp_s,
            refresh_ms: $config.refresh_ms,
            rest_s: $config.rest_s,
            mappings_max: $config.mappings_max,
            mappings_per_network: $config.mappings_per_network,
        }
    };
}
pub(crate) use keys_of;

/// Permanent mappings: packets to an external port go to an inside one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, bound = "A: End")]
#[allow(missing_docs)]
pub struct Static<A = SocketAddrV4> {
    pub protocol: StaticProtocol,
    pub external: Endpoints<SocketAddrV4>,
    pub inside: Endpoints<A>,
    /// The port of the plan behind which its network is, if there are several.
    #[serde(default)]
    pub network: Option<Port>,
    /// The VLAN that it is in, if there are several.
    #[serde(default)]
    pub vlan: Option<TagRange>,
}

/// The station that packets translated into a network are sent to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct NextHop {
    #[serde(default)]
    pub network: Option<Port>,
    pub vlan: TagRange,
    pub mac: WrittenMac,
}

/// Which inside hosts may have the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Networks {
    /// None: all inside ports lead to one network.
    One,
    /// Hosts behind different ports: each port leads to a network of its own.
    ByPort,
    /// Hosts whose packets have different VLAN tags, on any inside port.
    ByVlan,
    /// Hosts behind different ports, and hosts behind one port whose packets have different VLAN tags.
    ByPortAndVlan,
}

/// Protocols with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum StaticProtocol {
    Tcp,
    Udp,
}

impl StaticProtocol {
    /// The number in IP headers.
    pub(crate) fn number(self) -> u8 {
        match self {
            StaticProtocol::Tcp => protocol::TCP,
            StaticProtocol::Udp => protocol::UDP,
        }
    }
}

/// How external ports are allocated to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AllocationKind {
    /// All hosts of an external address share its ports.
    Shared,
    /// A host gets blocks of ports as it needs them.
    Blocks,
    /// A host has one block, which its address determines (RFC 7422).
    Deterministic,
}

/// The allocation with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allocation {
    Shared,
    Blocks { size: u16, most: usize },
    Deterministic { size: u16 },
}

impl Allocation {
    /// Whether mappings made under another allocation may be kept under this one. The maximum number of blocks does not
    /// matter for the blocks that a host has.
    pub(crate) fn keeps_those_of(self, other: Allocation) -> bool {
        match (self, other) {
            (Allocation::Blocks { size, .. }, Allocation::Blocks { size: former, .. }) => size == former,
            (now, before) => now == before,
        }
    }
}

/// What happens if the external address of a host has no free port (RFC 4787 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// The packet is dropped: a host never has two external addresses.
    Paired,
    /// Other external addresses are tried.
    Arbitrary,
}

/// Which outside hosts may send to a mapping (RFC 4787 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Filtering {
    /// All hosts.
    EndpointIndependent,
    /// Hosts with an address to which the mapping's owner has sent.
    AddressDependent,
    /// Hosts with an address and port to which the mapping's owner has sent.
    AddressAndPortDependent,
}

/// Which packets to the address of a router behind are left to it, if they match no mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForRouter {
    /// Echo requests.
    Echo,
    /// UDP, so that the router reports that it has no such port.
    Udp,
}
