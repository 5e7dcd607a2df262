//! Several next hops to one destination: each pair of addresses, or each connection, keeps to one of them, in proportion to
//! their weights. Those of routes with a greater metric stand by: they are used while none of the others is there.

use braid_nf::Packet;
use braid_nf::state::hash::mixed;

use crate::ConfigError;
use crate::router::config::{Hash, HopConfig, NeighbourConfig, RouteConfig, Way};
use crate::router::interface::Interface;
use crate::router::neighbours::Hop;

/// The most next hops of a route.
const HOPS_MAX: usize = 64;

/// Next hops among which packets are spread, each with its share of the hash values (hash-threshold, RFC 2992): the sum of the weights up
/// to and including its own.
pub(in crate::router) type Tier = Vec<(Hop, u32)>;

/// The next hops of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Those of the least metric, then those that stand by for them.
    tiers: Vec<Tier>,
}

braid_nf::plain!(Spread);

impl Spread {
    /// The next hops of several routes to one destination, each with its metric, which are all different.
    pub(in crate::router) fn ranked(mut routes: Vec<(u32, Tier)>) -> Result<Spread, ConfigError> {
        routes.sort_by_key(|(metric, _)| *metric);
        let tiers: Vec<Tier> = routes.into_iter().map(|(_, tier)| tier).collect();
        let mut hops: Vec<Hop> = tiers.iter().flatten().map(|(hop, _)| *hop).collect();
        while let Some(hop) = hops.pop() {
            if hops.contains(&hop) {
                let reason = format!("{} stands by for itself", hop.address);
                return Err(ConfigError::new("route.via", reason, "name it in one of the routes"));
            }
        }
        Ok(Spread { tiers })
    }

    /// Its next hops, starting with the one that this hash value selects of those of the least metric.
    pub fn from(&self, hash: u64) -> impl Iterator<Item = Hop> {
        self.tiers.iter().flat_map(move |hops| {
            let total = hops.last().map_or(1, |(_, sum)| *sum);
            let at = ((u128::from(hash) * u128::from(total)) >> 64) as u32;
            let first = hops.partition_point(|(_, sum)| *sum <= at);
            hops.iter().cycle().skip(first).take(hops.len()).map(|(hop, _)| *hop)
        })
    }
}

impl Hash {
    /// The hash that selects a packet's next hop. Packets without ports and all fragments, including the first, are hashed by
    /// their addresses alone, so that all fragments of a datagram take the same next hop (like Linux with
    /// fib_multipath_hash_policy=1).
    pub(in crate::router) fn of(self, packet: &Packet<'_>, seed: u64) -> u64 {
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
    /// Checks the next hops of a route that has several.
    pub(in crate::router) fn spread(
        &self,
        written: &[HopConfig],
        interfaces: &[Option<Interface>],
        neighbours: &[NeighbourConfig],
    ) -> Result<Spread, ConfigError> {
        Ok(Spread { tiers: vec![self.several(written, interfaces, neighbours)?] })
    }

    /// The next hop or hops of a route that stands by for another one, or has another one that does.
    pub(in crate::router) fn tier(
        &self,
        interfaces: &[Option<Interface>],
        neighbours: &[NeighbourConfig],
    ) -> Result<Tier, ConfigError> {
        if !self.hops.is_empty() {
            return self.several(&self.hops, interfaces, neighbours);
        }
        let hop = match self.way(interfaces, neighbours)? {
            Way::To(link, Some(via)) => {
                interfaces.get(usize::from(link)).and_then(Option::as_ref).map(|out| Hop::new(via, out.place()))
            }
            _ => None,
        };
        hop.map(|hop| vec![(hop, 1)]).ok_or_else(|| {
            let reason = format!("of several routes to {} this one has no next hop that could be missed", self.to);
            ConfigError::new("route.metric", reason, "write `via` or `hops`, or keep one route")
        })
    }

    fn several(
        &self,
        written: &[HopConfig],
        interfaces: &[Option<Interface>],
        neighbours: &[NeighbourConfig],
    ) -> Result<Tier, ConfigError> {
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
        Ok(hops)
    }
}
