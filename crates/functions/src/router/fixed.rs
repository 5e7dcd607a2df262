//! Static neighbours: those given in the plan.

use super::config::{Config, NeighbourConfig, RouteConfig, is_own, link, place};
use super::interface::Interface;
use super::neighbours::{Hop, Station};
use crate::config::{ConfigError, check_port};

/// A static neighbour from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed(pub(super) Hop, pub(super) Station);

braid_nf::plain!(Fixed);

impl NeighbourConfig {
    /// The interface where it is. Refuses a place that has none, and an address that cannot be a neighbour's there.
    fn check<'a>(
        &self,
        interfaces: &'a [Option<Interface>],
        routes: &[RouteConfig],
        ports: u16,
    ) -> Result<&'a Interface, ConfigError> {
        check_port("neighbour.port", self.port, ports)?;
        let wrong = |key: &str, reason: String, instead: &str| Err(ConfigError::new(key, reason, instead));
        let there = link(interfaces, self.port, self.vlan).and_then(|link| interfaces[usize::from(link)].as_ref());
        let Some(interface) = there else {
            let reason = format!("{} has no interface", place(self.port, self.vlan));
            return match self.vlan {
                Some(_) => wrong("neighbour.vlan", reason, "write the `vlan` of an [[interface]], or none"),
                None => wrong("neighbour.port", reason, "write the `port` of an [[interface]], and its `vlan`"),
            };
        };
        if is_own(interfaces, self.address.into(), (Some(self.port), self.vlan)) {
            return wrong("neighbour.address", format!("{} is this router's own", self.address), "leave it out");
        }
        if !interface.reaches(self.address.into()) && !routes.iter().any(|route| route.leads_to(self)) {
            let reason = format!(
                "{} is in no network of {}, and no route leads to it",
                self.address,
                place(self.port, self.vlan)
            );
            let instead = "write an address in a network of that interface, the port where it is, or a [[route]] by way of it with its `port`";
            return wrong("neighbour.address", reason, instead);
        }
        if interface.is_broadcast(self.address.into()) {
            let reason = format!("{} is a network or all of its hosts", self.address);
            return wrong("neighbour.address", reason, "write the address of one host");
        }
        if self.mac.0.is_group() {
            return wrong("neighbour.mac", format!("{} is a group address", self.mac.0), "write one of a station");
        }
        Ok(interface)
    }
}

impl Config {
    /// Checks the static neighbours: each is given once, and there are no more than the table can hold.
    pub(super) fn fixed(&self, interfaces: &[Option<Interface>], ports: u16) -> Result<Vec<Fixed>, ConfigError> {
        if self.neighbours.len() > self.neighbours_max as usize {
            let reason = format!("there are {} in the plan", self.neighbours.len());
            return Err(ConfigError::new("neighbours_max", reason, "write a larger number: they need room too"));
        }
        let mut fixed = Vec::<Fixed>::with_capacity(self.neighbours.len());
        for (number, neighbour) in self.neighbours.iter().enumerate() {
            let wrong = |error: ConfigError| error.of("neighbour", number);
            let interface = neighbour.check(interfaces, &self.routes, ports).map_err(wrong)?;
            let hop = Hop::new(neighbour.address.into(), interface.place());
            if fixed.iter().any(|Fixed(known, _)| *known == hop) {
                let reason = format!("{} stands there twice", neighbour.address);
                let twice = ConfigError::new("neighbour.address", reason, "keep one: a neighbour is in one place");
                return Err(wrong(twice));
            }
            fixed.push(Fixed(hop, Station { mac: neighbour.mac.0.0, port: neighbour.port }));
        }
        Ok(fixed)
    }
}
