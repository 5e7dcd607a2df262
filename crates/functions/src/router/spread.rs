//! Several next hops to one destination: each pair of addresses, or each connection, keeps to one of them, in proportion to
//! their weights.

use braid_nf::Packet;
use braid_nf::state::hash::mixed;

use super::config::{Hash, HopConfig, NeighbourConfig, RouteConfig, Way};
use super::interface::Interface;
use super::neighbours::Hop;
use crate::ConfigError;

/// The most next hops of a route.
const HOPS_MAX: usize = 64;

/// Next hops among which packets are spread, each with its share of the hash values (hash-threshold, RFC 2992).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Each next hop with the sum of the weights up to and including its own.
    hops: Vec<(Hop, u32)>,
}

braid_nf::plain!(Spread);

impl Spread {
    /// Its next hops, starting with the one that this hash value selects.
    pub fn from(&self, hash: u64) -> impl Iterator<Item = Hop> {
        let total = self.hops.last().map_or(1, |(_, sum)| *sum);
        let at = ((u128::from(hash) * u128::from(total)) >> 64) as u32;
        let first = self.hops.partition_point(|(_, sum)| *sum <= at);
        self.hops.iter().cycle().skip(first).take(self.hops.len()).map(|(hop, _)| *hop)
    }
}

impl Hash {
    /// The hash that selects a packet's next hop. Packets without ports and all fragments, including the first, are hashed by
    /// their addresses alone, so that all fragments of a datagram take the same next hop (like Linux with
    /// fib_multipath_hash_policy=1).
    pub(super) fn of(self, packet: &Packet<'_>, seed: u64) -> u64 {
        let mut flow = [0; 37];
        flow[..16].copy_from_slice(&packet.src_ip().octets());
        flow[16..32].copy_from_slice(&packet.dst_ip().octets());
        let ports = packet.ports().filter(|_| self == Hash::Ports && !packet.is_fragment());
        let Some((source, destination)) = ports else { return mixed(&flow[..32], seed) };
        flow[32] = packet.protocol();
        flow[33..35].copy_from_slice(&source.to_be_bytes());
        flow[35..].copy_from_slice(&destination.to_be_bytes());
        mixed(&flow, seed)
    }
}

impl RouteConfig {
    /// Checks the several next hops of a route.
    pub(super) fn spread(
        &self,
        written: &[HopConfig],
        interfaces: &[Option<Interface>],
        neighbours: &[NeighbourConfig],
    ) -> Result<Spread, ConfigError> {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("route.hops", reason, instead));
        if self.via.is_some() || self.port.is_some() || self.vlan.is_some() || self.refuse.is_some() {
            return wrong(format!("{} has another way as well", self.to), "keep `hops` alone");
        }
        let (mut hops, mut sum) = (Vec::<(Hop, u32)>::new(), 0);
        for (number, one) in written.iter().enumerate() {
            let of_hop = |error: ConfigError| {
                let rest = error.key.strip_prefix("route").unwrap_or_default();
                ConfigError { key: format!("route.hops[{number}]{rest}"), ..error }
            };
            let single =
                RouteConfig { via: Some(one.via), port: one.port, vlan: one.vlan, hops: Vec::new(), ..self.clone() };
            let Way::To(link, Some(via)) = single.way(interfaces, neighbours).map_err(of_hop)? else { continue };
            let Some(out) = interfaces.get(usize::from(link)).and_then(Option::as_ref) else { continue };
            let hop = Hop::new(via, out.place());
            if one.weight == 0 || hops.iter().any(|(known, _)| *known == hop) {
                let reason = format!("{} has no weight or stands there twice", one.via);
                return wrong(reason, "write each neighbour once, with a weight of 1 or more");
            }
            sum += u32::from(one.weight);
            hops.push((hop, sum));
        }
        if hops.len() > HOPS_MAX {
            return wrong(format!("{} neighbours", hops.len()), "write 64 at most");
        }
        Ok(Spread { hops })
    }
}
