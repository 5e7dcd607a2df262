//! Configuration of a generator.

use super::arrivals::Arrivals;
use super::sizes::{FlowSizes, FrameSizes};
use crate::capture::PortSplit;

/// Describes generated traffic. It is plain data: change any field; [`Generator::new`](super::Generator::new) validates it.
#[derive(Clone, Debug, PartialEq)]
pub struct GenConfig {
    /// The seed; the same seed yields the same packets.
    pub seed: u64,
    /// Total number of packets.
    pub packets: u64,
    /// Number of flows in a cycle. When all of them have been started another cycle begins: with new flows,
    /// or with the same ones if the order is [`Order::RoundRobin`].
    pub flows: u64,
    /// Packets per flow; there are 1000 / mean new flows per 1000 packets. Not used by [`Order::RoundRobin`].
    pub flow_sizes: FlowSizes,
    /// The order in which flows send.
    pub order: Order,
    /// Frame lengths in bytes.
    pub frame_sizes: FrameSizes,
    /// Arrival times.
    pub arrivals: Arrivals,
    /// Share of packets that the server side of a flow sends; 0 generates one direction only. A flow's size counts both directions.
    pub reverse: f64,
    /// Shares of transport protocols among flows.
    pub protocols: Protocols,
    /// The form of TCP flows.
    pub tcp: TcpStyle,
    /// Share of flows over IPv6.
    pub ipv6: f64,
    /// Share of packets that are ARP requests.
    pub arp: f64,
    /// Share of packets that are fragments of an IPv4 datagram, as far as there are sufficiently long packets.
    pub fragments: f64,
    /// How flow numbers map to addresses and ports.
    pub addresses: Addresses,
    /// Number of pairs of Ethernet addresses, at least 1; each flow belongs to one pair.
    pub mac_pairs: u32,
    /// The port on which a frame arrives; `None` selects it by direction: clients' packets on port 0, servers' packets on port 1.
    pub split: Option<PortSplit>,
}

/// The order in which flows send.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// All flows in turn, repeatedly: no locality at all.
    RoundRobin,
    /// Flows begin, last for some time, and end.
    Sessions {
        /// Probability that a flow's next packet follows immediately.
        burst: f64,
        /// Otherwise, the mean number of packets of other flows before it. Large flows send more often, so that they fit into a cycle.
        gap: f64,
    },
}

/// Shares of transport protocols; the rest up to 1 is ICMP echo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Protocols {
    /// Share of TCP.
    pub tcp: f64,
    /// Share of UDP.
    pub udp: f64,
}

/// The form of TCP flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpStyle {
    /// SYN first (and SYN-ACK if there is a reverse direction), FIN at the end, consistent sequence numbers.
    Connections,
    /// SYN segments only, as scanners and floods send them.
    SynOnly,
}

/// The number of bits of a flow's number that select each part of its addresses. Their sum limits the number of distinct flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Client addresses, in 10.0.0.0/8 or 2001:db8:1::/64; at most 24 bits.
    pub client_bits: u32,
    /// Client ports, from 32768 on; at most 15 bits.
    pub client_port_bits: u32,
    /// Server addresses, in 198.18.0.0/15 (RFC 2544) or 2001:db8:2::/64; at most 17 bits.
    pub server_bits: u32,
    /// Server ports, from 0 on; at most 16 bits. With 0 bits the port is `server_port`, or a usual one of the protocol.
    pub server_port_bits: u32,
    /// The servers' only port, if set.
    pub server_port: Option<u16>,
}

impl Default for Addresses {
    fn default() -> Self {
        Addresses { client_bits: 16, client_port_bits: 14, server_bits: 14, server_port_bits: 0, server_port: None }
    }
}

/// Why a configuration is rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A share or probability is not between 0 and 1.
    #[error("{field} is {value}: it must lie between 0 and 1")]
    Share {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: f64,
    },
    /// A number is out of range.
    #[error("{field} is {value}: it must lie between {least} and {most}")]
    Range {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// Minimum.
        least: f64,
        /// Maximum.
        most: f64,
    },
    /// There are more flows than combinations of addresses and ports.
    #[error("{flows} flows do not fit into 2^{bits} combinations of addresses and ports: give more bits")]
    TooFewAddresses {
        /// Number of flows that the run needs.
        flows: u64,
        /// Total number of bits.
        bits: u32,
    },
}

/// Length of the longest generated frame.
pub(crate) const FRAME_MAX: u32 = 9018;

impl GenConfig {
    /// Validates the configuration.
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
        // Adding the shares may have caused a rounding error.
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
