//! The configuration, as written in a plan file. The README explains each key.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};

use braid_nf::Port;
use braid_nf::packet::parse::protocol;
use serde::Deserialize;

use crate::config::capacity;
use crate::parts::WrittenMac;
use crate::parts::endpoints::{End, Endpoints};
use crate::parts::hairpin::Return;
use crate::parts::prefix::{self, Prefix};
use crate::parts::segment_size::ClampMss;
use crate::parts::syslog::Collector;
use crate::parts::tags::{OuterTag, TagRange};

/// The configuration as written in a plan file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Config {
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
    pub exempt: Vec<Prefix>,
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
    pub hairpins: Option<Return>,
    pub counts_hops: CountsHops,
    pub inside_mtu: Option<u16>,
    pub outside_mtu: Option<u16>,
    pub clamp_mss: ClampMss,
    pub icmp_errors_per_s: u64,
}

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

/// Which packets a translator is a hop for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountsHops {
    /// All that it routes.
    #[default]
    All,
    /// Only those that it translates: another function counts the others.
    Translated,
}

/// What happens to packets that are not translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Others {
    /// They pass to the other side.
    Pass,
    /// They are dropped.
    Drop,
}

impl Default for Config {
    fn default() -> Config {
        let ranges = |texts: &[&str]| texts.iter().filter_map(|text| text.parse().ok()).collect();
        Config {
            inside: ranges(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"]),
            inside_ports: Vec::new(),
            outside_ports: Vec::new(),
            networks: Networks::One,
            vlans: Vec::new(),
            outside_vlan: None,
            outer_tag: OuterTag::Service,
            next_hops: Vec::new(),
            outside_next_hop: None,
            mac: None,
            gateways: Vec::new(),
            external: ranges(&["198.51.100.1"]),
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
            fixed: Vec::new(),
            one_to_one: Vec::new(),
            exempt: Vec::new(),
            filtering: Filtering::EndpointIndependent,
            inbound_refresh: false,
            tcp_opening_s: 240,
            tcp_established_s: 7440,
            tcp_closing_s: 240,
            udp_s: 300,
            icmp_s: 60,
            portless_s: 600,
            portless_max: 8192,
            portless_per_host: 256,
            refresh_ms: 30_000,
            rest_s: 120,
            mappings_max: 1 << 20,
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
            hairpins: None,
            counts_hops: CountsHops::All,
            inside_mtu: None,
            outside_mtu: None,
            clamp_mss: ClampMss::Off,
            icmp_errors_per_s: 1000,
        }
    }
}
