//! What a generator is told.

use super::arrivals::Arrivals;
use super::sizes::{FlowSizes, FrameSizes};
use crate::capture::PortSplit;

/// Generated traffic, described. Plain data: change any field; [`Generator::new`](super::Generator::new) checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct GenConfig {
    /// The same seed gives the same packets.
    pub seed: u64,
    /// Packets in all.
    pub packets: u64,
    /// Flows of a cycle. When all have been started another cycle begins: with new flows, or with the same ones if the order is
    /// [`Order::RoundRobin`].
    pub flows: u64,
    /// Packets per flow; new flows per 1000 packets are 1000 / mean. Not used by [`Order::RoundRobin`].
    pub flow_sizes: FlowSizes,
    /// Which flow is next.
    pub order: Order,
    /// Bytes per frame.
    pub frame_sizes: FrameSizes,
    /// Time stamps.
    pub arrivals: Arrivals,
    /// Share of packets that the server side of a flow sends; 0 is one direction only. A flow's size counts both directions.
    pub reverse: f64,
    /// Shares of transport protocols among flows.
    pub protocols: Protocols,
    /// What TCP flows look like.
    pub tcp: TcpStyle,
    /// Share of flows over IPv6.
    pub ipv6: f64,
    /// Share of packets that are ARP requests.
    pub arp: f64,
    /// Share of packets that are fragments of an IPv4 datagram, as far as there are packets long enough.
    pub fragments: f64,
    /// How flow numbers spread over addresses and ports.
    pub addresses: Addresses,
    /// Pairs of Ethernet addresses, at least 1; a flow belongs to one.
    pub mac_pairs: u32,
    /// By which port a frame comes in; none is by direction: clients' packets by port 0, servers' by port 1.
    pub split: Option<PortSplit>,
}

/// Which flow the next packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Each flow in turn, for ever: no locality at all.
    RoundRobin,
    /// Flows begin, last and end.
    Sessions {
        /// Probability that a flow's next packet follows at once.
        burst: f64,
        /// Otherwise, packets of other flows before it, on average. Large flows come more often, so that they fit into a cycle.
        gap: f64,
    },
}

/// Shares of transport protocols; what is left of 1 is ICMP echo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocols {
    /// TCP.
    pub tcp: f64,
    /// UDP.
    pub udp: f64,
}

/// What TCP flows look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpStyle {
    /// SYN first (and SYN-ACK if there is a reverse direction), FIN at the end, sequence numbers that fit.
    Connections,
    /// Nothing but SYN, as scanners and floods send.
    SynOnly,
}

/// How many bits of a flow's number choose each part of its address. Their sum bounds the number of distinct flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Clients: addresses in 10.0.0.0/8 or 2001:db8:1::/64; at most 24 bits.
    pub client_bits: u32,
    /// Ports of a client, from 32768 on; at most 15 bits.
    pub client_port_bits: u32,
    /// Servers: addresses in 198.18.0.0/15 (RFC 2544) or 2001:db8:2::/64; at most 17 bits.
    pub server_bits: u32,
    /// Ports of a server, from 0 on; at most 16 bits. With 0 bits it is the port below or a usual one of the protocol.
    pub server_port_bits: u32,
    /// The only port of the servers.
    pub server_port: Option<u16>,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses { client_bits: 16, client_port_bits: 14, server_bits: 14, server_port_bits: 0, server_port: None }
    }
}

/// Why a configuration is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share or probability that is none.
    #[error("{field} is {value}: it must lie between 0 and 1")]
    Share {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// A number outside its range.
    #[error("{field} is {value}: it must lie between {least} and {most}")]
    Range {
        /// Its name.
        field: &'static str,
        /// Its value.
        value: f64,
        /// Smallest value.
        least: f64,
        /// Largest value.
        most: f64,
    },
    /// More flows than addresses and ports.
    #[error("{flows} flows do not fit into 2^{bits} combinations of addresses and ports: give more bits")]
    TooFewAddresses {
        /// Flows that the run needs.
        flows: u64,
        /// Bits of all parts.
        bits: u32,
    },
}

/// Longest frame that is generated.
pub(crate) const FRAME_MAX: u32 = 9018;

impl GenConfig {
    /// Whether it makes sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        let share = |field, value: f64| {
            if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(ConfigError::Share { field, value }) }
        };
        let range = |field, value: f64, least: f64, most: f64| {
            if (least..=most).contains(&value) { Ok(()) } else { Err(ConfigError::Range { field, value, least, most }) }
        };
        share("reverse", self.reverse)?;
        share("protocols.tcp", self.protocols.tcp)?;
        share("protocols.udp", self.protocols.udp)?;
        // The shares may have been added with a rounding error.
        range("protocols.tcp + protocols.udp", self.protocols.tcp + self.protocols.udp, 0.0, 1.0 + 1e-9)?;
        share("ipv6", self.ipv6)?;
        share("arp", self.arp)?;
        share("fragments", self.fragments)?;
        range("flows", self.flows as f64, 1.0, (1u64 << 40) as f64)?;
        range("mac_pairs", f64::from(self.mac_pairs), 1.0, f64::from(u32::MAX))?;
        range("arrivals.rate_pps", self.arrivals.rate_pps, 1e-3, 1e12)?;
        range("arrivals.cv", self.arrivals.cv, 0.0, 1000.0)?;
        match self.flow_sizes {
            FlowSizes::Zipf { s, mean } => {
                range("flow_sizes.s", s, 0.0, 5.0)?;
                range("flow_sizes.mean", mean, 1.0, 1e9)?;
            }
            FlowSizes::LogNormal { one_packet, mu, sigma, .. } => {
                share("flow_sizes.one_packet", one_packet)?;
                range("flow_sizes.mu", mu, -10.0, 20.0)?;
                range("flow_sizes.sigma", sigma, 0.0, 5.0)?;
            }
        }
        let (least, most) = (60.0, f64::from(FRAME_MAX));
        match self.frame_sizes {
            FrameSizes::Fixed(len) => range("frame_sizes", f64::from(len), least, most)?,
            FrameSizes::Range(from, to) => {
                range("frame_sizes", f64::from(from), least, f64::from(to).min(most))?;
                range("frame_sizes", f64::from(to), least, most)?;
            }
            FrameSizes::Mix(weights) => {
                for weight in weights {
                    range("frame_sizes", weight, 0.0, 1e9)?;
                }
                range("sum of frame_sizes", weights.iter().sum(), 1e-9, 1e10)?;
            }
        }
        if let Order::Sessions { burst, gap } = self.order {
            share("order.burst", burst)?;
            range("order.gap", gap, 0.0, 1e12)?;
        }
        let Addresses { client_bits, client_port_bits, server_bits, server_port_bits, .. } = self.addresses;
        range("addresses.client_bits", f64::from(client_bits), 0.0, 24.0)?;
        range("addresses.client_port_bits", f64::from(client_port_bits), 0.0, 15.0)?;
        range("addresses.server_bits", f64::from(server_bits), 0.0, 17.0)?;
        range("addresses.server_port_bits", f64::from(server_port_bits), 0.0, 16.0)?;
        let bits = client_bits + client_port_bits + server_bits + server_port_bits;
        if self.flows > 1u64.checked_shl(bits).unwrap_or(u64::MAX) {
            return Err(ConfigError::TooFewAddresses { flows: self.flows, bits });
        }
        Ok(())
    }
}
