//! Maps a flow's number to its addresses.

use super::config::{Addresses, GenConfig};
use crate::random::{hash, unit};

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    /// Echo requests and replies.
    Icmp,
}

/// A flow's addresses. `client` and `server` are numbers within their networks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flow {
    pub(crate) number: u64,
    pub(crate) v6: bool,
    pub(crate) transport: Transport,
    pub(crate) client: u32,
    pub(crate) server: u32,
    pub(crate) client_port: u16,
    pub(crate) server_port: u16,
    pub(crate) mac_pair: u32,
}

/// The mapping from numbers to flows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory {
    seed: u64,
    addresses: Addresses,
    bits: u32,
    tcp: f64,
    udp: f64,
    ipv6: f64,
    mac_pairs: u32,
}

/// First client port, above the ports of services.
const CLIENT_PORTS: u16 = 32768;

impl Directory {
    pub(crate) fn new(config: &GenConfig) -> Directory {
        let Addresses { client_bits, client_port_bits, server_bits, server_port_bits, .. } = config.addresses;
        Directory {
            seed: config.seed,
            addresses: config.addresses,
            bits: client_bits + client_port_bits + server_bits + server_port_bits,
            tcp: config.protocols.tcp,
            udp: config.protocols.udp,
            ipv6: config.ipv6,
            mac_pairs: config.mac_pairs,
        }
    }

    /// The flow with this number. Numbers below 2^bits yield distinct addresses and ports.
    pub(crate) fn flow(&self, number: u64) -> Flow {
        let traits = hash(self.seed, number);
        let share = unit(traits);
        let transport = if share < self.tcp {
            Transport::Tcp
        } else if share < self.tcp + self.udp {
            Transport::Udp
        } else {
            Transport::Icmp
        };
        let mut rest = spread_bits(number.wrapping_add(self.seed << 8), self.bits);
        let mut draw = |bits: u32| {
            let drawn = rest & ((1 << bits) - 1);
            rest >>= bits;
            drawn
        };
        let Addresses { client_bits, client_port_bits, server_bits, server_port_bits, server_port } = self.addresses;
        let client = draw(client_bits) as u32;
        let client_port = CLIENT_PORTS + draw(client_port_bits) as u16;
        let server = draw(server_bits) as u32;
        let drawn_port = draw(server_port_bits) as u16;
        let server_port = match server_port {
            Some(port) => port,
            None if server_port_bits > 0 => drawn_port,
            None => usual_port(transport, traits),
        };
        Flow {
            number,
            v6: (traits as u32 as f64) < self.ipv6 * f64::from(u32::MAX),
            transport,
            client,
            server,
            client_port,
            server_port,
            mac_pair: (((traits >> 8 & 0xffff_ffff) * u64::from(self.mac_pairs)) >> 32) as u32,
        }
    }
}

/// Permutes the lowest `bits` bits: multiplication by an odd number and adding higher bits to lower ones are bijective.
fn spread_bits(number: u64, bits: u32) -> u64 {
    let mask = 1u64.checked_shl(bits).map_or(u64::MAX, |bound| bound - 1);
    let half = bits / 2 + 1;
    let mut x = number & mask;
    for odd in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        x = x.wrapping_mul(odd) & mask;
        x ^= x >> half;
    }
    x
}

fn usual_port(transport: Transport, traits: u64) -> u16 {
    let choice = (traits >> 3 & 15) as usize;
    match transport {
        Transport::Tcp => [443, 443, 443, 443, 443, 443, 443, 443, 443, 80, 80, 80, 22, 25, 993, 8080][choice],
        Transport::Udp => [53, 53, 53, 53, 53, 53, 443, 443, 443, 443, 443, 443, 123, 123, 4500, 3478][choice],
        Transport::Icmp => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_is_bijective_for_every_width() {
        for bits in 0..=16 {
            let mut seen = vec![false; 1 << bits];
            (0..1u64 << bits).for_each(|number| seen[spread_bits(number, bits) as usize] = true);
            assert!(seen.into_iter().all(|seen| seen), "{bits} bits");
        }
    }
}
