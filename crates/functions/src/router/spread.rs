//! Several ways to one destination: each pair of addresses keeps to one of them, by the weights.

use super::config::{HopConfig, Interface, RouteConfig, Way};
use super::neighbours::Hop;
use crate::ConfigError;

/// Most neighbours by way of whom a route leads.
const HOPS_MAX: usize = 64;

/// Neighbours by way of whom packets go, each by its share of hash values (hash-threshold, RFC 2992).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Each with the sum of the weights up to it.
    hops: Vec<(Hop, u32)>,
}

braid_nf::plain!(Spread);

impl Spread {
    /// Its hops, the one that this hash value chooses first.
    pub fn from(&self, hash: u64) -> impl Iterator<Item = Hop> {
        let total = self.hops.last().map_or(1, |(_, sum)| *sum);
        let at = ((u128::from(hash) * u128::from(total)) >> 64) as u32;
        let first = self.hops.partition_point(|(_, sum)| *sum <= at);
        self.hops.iter().cycle().skip(first).take(self.hops.len()).map(|(hop, _)| *hop)
    }
}

impl RouteConfig {
    /// Several ways.
    pub(super) fn spread(
        &self,
        written: &[HopConfig],
        interfaces: &[Option<Interface>],
    ) -> Result<Spread, ConfigError> {
        let wrong = |reason: String, instead: &str| Err(ConfigError::new("route.hops", reason, instead));
        if self.via.is_some() || self.port.is_some() || self.refuse.is_some() {
            return wrong(format!("{} has another way as well", self.to), "keep `hops` alone");
        }
        let (mut hops, mut sum) = (Vec::<(Hop, u32)>::new(), 0);
        for one in written {
            let single = RouteConfig { via: Some(one.via), port: one.port, hops: Vec::new(), ..self.clone() };
            let Way::To(port, Some(via)) = single.way(interfaces)? else { continue };
            let hop = Hop::new(via, port);
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
