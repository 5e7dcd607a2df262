//! Predefined traffic profiles. The figures come from published traces. Each is a mean of several traces, so the tests check ranges.

use std::fmt;
use std::str::FromStr;

use super::arrivals::Arrivals;
use super::config::{Addresses, GenConfig, Order, Protocols, TcpStyle};
use super::sizes::{FlowSizes, FrameSizes, SizeTable};

/// Frame lengths of a provider's link in 2010, mean 548 bytes.
const PROVIDER: FrameSizes = FrameSizes::Mix([24.0, 26.0, 10.0, 5.0, 6.0, 2.0, 28.0]);
/// Frame lengths of a busy link with much video, mean 891 bytes.
const HEAVY: FrameSizes = FrameSizes::Mix([10.0, 20.0, 8.0, 3.0, 3.0, 13.0, 44.0]);

/// A few clients that probe many hosts on all of their ports.
const SCANNED: Addresses =
    Addresses { client_bits: 1, client_port_bits: 4, server_bits: 17, server_port_bits: 16, server_port: None };
/// Any number of clients that all send to one port of one host.
const FLOODED: Addresses =
    Addresses { client_bits: 24, client_port_bits: 15, server_bits: 0, server_port_bits: 0, server_port: Some(80) };

/// A kind of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// P1: a backbone link; Zipf with exponent 0.83 as in CAIDA's traces, 21 packets per flow.
    Backbone,
    /// P2: a campus or an office; log-normal flow sizes, mean 21, median 3.
    Campus,
    /// P3: an edge with short flows; half of them have one packet, 200 new flows per 1000 packets.
    Edge,
    /// P4: DNS; 1.1 packets per flow.
    Dns,
    /// P5: a port scan; one packet per flow, few sources.
    Scan,
    /// P5: a SYN flood; one packet per flow, one destination.
    SynFlood,
    /// P6: an adversary of load balancing; a few flows contain most packets (Zipf 1.2).
    Skewed,
    /// P7: all flows in turn; no locality.
    Uniform,
    /// P8: one flow.
    Single,
}

impl Profile {
    /// All profiles, by number.
    pub const ALL: [Profile; 9] = [
        Profile::Backbone,
        Profile::Campus,
        Profile::Edge,
        Profile::Dns,
        Profile::Scan,
        Profile::SynFlood,
        Profile::Skewed,
        Profile::Uniform,
        Profile::Single,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Backbone => "backbone",
            Profile::Campus => "campus",
            Profile::Edge => "edge",
            Profile::Dns => "dns",
            Profile::Scan => "scan",
            Profile::SynFlood => "syn_flood",
            Profile::Skewed => "skewed",
            Profile::Uniform => "uniform",
            Profile::Single => "single",
        }
    }

    /// A configuration with this many packets: one cycle of the corresponding number of flows. [`Profile::Uniform`] has a million
    /// flows, or as many as packets if those are fewer.
    pub fn config(self, packets: u64) -> GenConfig {
        let mut config = self.description();
        config.packets = packets;
        config.flows = match self {
            Profile::Uniform => packets.clamp(1, 1_000_000),
            Profile::Single => 1,
            _ => {
                let mean = SizeTable::new(config.flow_sizes, 100_000).mean;
                ((packets as f64 / mean).round() as u64).max(1)
            }
        };
        config
    }

    fn description(self) -> GenConfig {
        let base = usual();
        let lognormal = |one_packet, least, mu, sigma| FlowSizes::LogNormal { one_packet, least, mu, sigma };
        match self {
            Profile::Backbone => GenConfig { frame_sizes: HEAVY, ipv6: 0.1, fragments: 0.002, ..base },
            Profile::Campus => GenConfig {
                flow_sizes: lognormal(0.0, 1, 1.24, 1.9),
                order: Order::Sessions { burst: 0.2, gap: 150.0 },
                arrivals: Arrivals { rate_pps: 2e5, cv: 4.0 },
                ipv6: 0.2,
                arp: 0.005,
                fragments: 0.002,
                mac_pairs: 200,
                ..base
            },
            Profile::Edge => GenConfig {
                flow_sizes: lognormal(0.5, 2, 1.38, 1.2),
                order: Order::Sessions { burst: 0.2, gap: 100.0 },
                ..base
            },
            Profile::Dns => GenConfig {
                flow_sizes: lognormal(0.89, 2, 0.5, 0.5),
                order: Order::Sessions { burst: 0.75, gap: 400.0 },
                frame_sizes: FrameSizes::Range(70, 95),
                protocols: Protocols { tcp: 0.0, udp: 1.0 },
                addresses: Addresses { server_bits: 3, client_bits: 20, server_port: Some(53), ..base.addresses },
                ..base
            },
            Profile::Scan => GenConfig {
                flow_sizes: lognormal(0.98, 2, 0.0, 0.0),
                order: Order::Sessions { burst: 0.9, gap: 100.0 },
                frame_sizes: FrameSizes::Fixed(60),
                protocols: Protocols { tcp: 0.82, udp: 0.08 },
                tcp: TcpStyle::SynOnly,
                addresses: SCANNED,
                ..base
            },
            Profile::SynFlood => GenConfig {
                flow_sizes: lognormal(0.995, 2, 0.0, 0.0),
                order: Order::Sessions { burst: 0.0, gap: 10_000.0 },
                frame_sizes: FrameSizes::Fixed(60),
                protocols: Protocols { tcp: 1.0, udp: 0.0 },
                tcp: TcpStyle::SynOnly,
                addresses: FLOODED,
                ..base
            },
            Profile::Skewed => GenConfig { flow_sizes: FlowSizes::Zipf { s: 1.2, mean: 21.0 }, ..base },
            Profile::Uniform | Profile::Single => GenConfig {
                order: Order::RoundRobin,
                frame_sizes: FrameSizes::Fixed(64),
                arrivals: Arrivals { cv: 0.0, ..base.arrivals },
                protocols: Protocols { tcp: 0.0, udp: 1.0 },
                ..base
            },
        }
    }
}

/// The common base of the profiles: a provider's link with a single flow.
fn usual() -> GenConfig {
    GenConfig {
        seed: 1,
        packets: 0,
        flows: 1,
        flow_sizes: FlowSizes::Zipf { s: 0.83, mean: 21.0 },
        order: Order::Sessions { burst: 0.1, gap: 400.0 },
        frame_sizes: PROVIDER,
        arrivals: Arrivals { rate_pps: 1e6, cv: 2.0 },
        reverse: 0.0,
        protocols: Protocols { tcp: 0.80, udp: 0.19 },
        tcp: TcpStyle::Connections,
        ipv6: 0.0,
        arp: 0.0,
        fragments: 0.0,
        addresses: Addresses::default(),
        mac_pairs: 1,
        split: None,
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no profile with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no profile {name:?}; there are {}", Profile::ALL.map(Profile::name).join(", "))]
pub struct UnknownProfile {
    /// The name.
    pub name: String,
}

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Profile, UnknownProfile> {
        let plain = name.to_ascii_lowercase().replace('-', "_");
        let found = Profile::ALL.into_iter().find(|profile| profile.name() == plain);
        found.ok_or_else(|| UnknownProfile { name: name.to_owned() })
    }
}
