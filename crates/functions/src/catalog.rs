//! The catalogue: every function by name, with what the command line needs to run it without a plan file.

use std::path::PathBuf;

use braid_nf::state::StateBuilder;
use braid_nf::suggest::nearest;
use braid_nf::{Instance, NetworkFunction, Stage};
use serde::de::DeserializeOwned;

use crate::config::{ConfigError, parse};
use crate::{
    abacus, anti_ddos, asset_monitor, bridge, connection_limiter, dns_tunnel, firewall, flow_counter, forward,
    heavy_hitters, load_balancer, nat, nat64,
};
use crate::{nptv6, policer, port_scan, protocol_classifier, rate_limiter, router, shaper, sidejacking};

/// A function that can be built from a configuration.
pub trait FromConfig: NetworkFunction {
    /// The configuration, as written in a plan file.
    type Config: DeserializeOwned;

    /// Files included by the files that the configuration names (in keys that end in `_file`). A change to one of them is
    /// a change of the configuration.
    fn files(_config: &Self::Config) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Checks the configuration and creates the function with its state objects, for a plan with `ports` ports.
    fn from_config(config: Self::Config, builder: &mut StateBuilder, ports: u16) -> Result<Self, ConfigError>;
}

/// How the packets of a single capture are assigned to ports if none are configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// All packets arrive on port 0.
    Single,
    /// Packets from the inside (private addresses) arrive on port 0, all others on port 1.
    Inside,
    /// By a hash of the Ethernet source, so that every station stays on one port.
    MacHash,
}

/// A function of the catalogue.
pub struct Entry {
    /// Its name in plan files.
    pub name: &'static str,
    /// A one-line description.
    pub summary: &'static str,
    /// The number of ports if none are configured.
    pub ports: u16,
    /// How a single capture is split among its ports.
    pub split: Split,
    /// Whether functions listed before it are between it and the inside, so that packets from outside have to meet it
    /// first.
    pub mirrors: bool,
    /// Whether its configuration has `inside_ports` and `outside_ports`, which are those of the chain if they are not given.
    pub sides: bool,
    /// Whether it decides by which port packets leave, of all ports.
    pub routes: bool,
    /// Whether it writes the Ethernet addresses and VLAN tags of what it sends on.
    pub readdresses: bool,
    /// Makes the function from its name in the plan, its configuration, the builder of its state objects, and the number
    /// of ports.
    pub build: Build,
    /// Its [`FromConfig::files`].
    pub files: fn(toml::Table) -> Vec<PathBuf>,
}

/// Builds a function of the catalogue.
pub type Build = fn(&str, toml::Table, &mut StateBuilder, u16) -> Result<Box<dyn Stage>, ConfigError>;

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry").field("name", &self.name).field("ports", &self.ports).finish_non_exhaustive()
    }
}

impl Entry {
    const fn new<F: FromConfig>(summary: &'static str, ports: u16, split: Split) -> Entry {
        Entry {
            name: F::NAME,
            summary,
            ports,
            split,
            mirrors: false,
            sides: false,
            routes: false,
            readdresses: false,
            build: build::<F>,
            files: files::<F>,
        }
    }

    const fn built_by(self, build: Build) -> Entry {
        Entry { build, ..self }
    }

    const fn mirrors(self) -> Entry {
        Entry { mirrors: true, ..self }
    }

    const fn with_sides(self) -> Entry {
        Entry { sides: true, ..self }
    }

    const fn routes(self) -> Entry {
        Entry { routes: true, ..self }
    }

    const fn readdresses(self) -> Entry {
        Entry { readdresses: true, ..self }
    }
}

fn files<F: FromConfig>(config: toml::Table) -> Vec<PathBuf> {
    parse(config).map_or_else(|_| Vec::new(), |config| F::files(&config))
}

fn build<F: FromConfig>(
    name: &str,
    config: toml::Table,
    builder: &mut StateBuilder,
    ports: u16,
) -> Result<Box<dyn Stage>, ConfigError> {
    let function = F::from_config(parse(config)?, builder.scope(name), ports)?;
    Ok(Box::new(Instance::new(name, function)))
}

#[rustfmt::skip] // one line each
static CATALOG: &[Entry] = &[
    Entry::new::<forward::Forward>("sends every packet out by the opposite port", 2, Split::Single),
    Entry::new::<flow_counter::FlowCounter>("counts packets and bytes of every flow", 2, Split::Single),
    Entry::new::<rate_limiter::RateLimiter>("holds every flow to a rate", 2, Split::Single),
    Entry::new::<policer::Policer>("holds the traffic to every destination address to a rate", 2, Split::Inside),
    Entry::new::<shaper::Shaper>("holds the traffic to every address to a rate by letting packets wait", 2, Split::Inside).built_by(shaper::build),
    Entry::new::<anti_ddos::AntiDdos>("tells an attack by its share of flows with a single packet", 2, Split::Single).built_by(anti_ddos::build),
    Entry::new::<bridge::Bridge>("joins Ethernet segments and learns where stations are", 4, Split::MacHash).routes(),
    Entry::new::<nat::Nat>("translates addresses and ports of inside hosts to external ones", 2, Split::Inside).mirrors().with_sides(),
    Entry::new::<nat64::Nat64>("lets hosts with IPv6 reach servers with IPv4", 2, Split::Inside).mirrors().with_sides(),
    Entry::new::<nptv6::Nptv6>("exchanges IPv6 prefixes, one to one and without state", 2, Split::Inside).mirrors().with_sides(),
    Entry::new::<firewall::Firewall>("lets in what inside hosts have asked for, and what rules allow", 2, Split::Inside).with_sides(),
    Entry::new::<router::Router>("routes IPv4 and IPv6 between its interfaces", 2, Split::Inside).routes().readdresses(),
    Entry::new::<load_balancer::LoadBalancer>("spreads the connections to a service over its backends", 2, Split::Inside),
    Entry::new::<port_scan::PortScan>("tells hosts that scan ports by how few of those they ask answer", 2, Split::Single),
    Entry::new::<heavy_hitters::HeavyHitters>("tells who sends or receives more than a threshold", 2, Split::Single),
    Entry::new::<connection_limiter::ConnectionLimiter>("limits the connections of every host", 2, Split::Inside),
    Entry::new::<dns_tunnel::DnsTunnel>("tells DNS tunnels by answers that lead nowhere", 2, Split::Single),
    Entry::new::<sidejacking::Sidejacking>("tells stolen HTTP sessions by cookies that change hosts", 2, Split::Single),
    Entry::new::<protocol_classifier::ProtocolClassifier>("says what protocol every session speaks", 2, Split::Single),
    Entry::new::<asset_monitor::AssetMonitor>("lists hosts, their systems and services by looking on", 2, Split::Single),
    Entry::new::<abacus::Abacus>("accounts the TCP traffic of subscribers, repeated bytes apart", 2, Split::Inside),
];

/// All functions.
pub fn catalog() -> &'static [Entry] {
    CATALOG
}

/// There is no function with that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no function is named `{name}`; {}", hint(*.nearest))]
pub struct UnknownFunction {
    /// The name that was looked up.
    pub name: String,
    /// The most similar name, if there is one.
    pub nearest: Option<&'static str>,
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let names: Vec<_> = CATALOG.iter().map(|entry| entry.name).collect();
            format!("there are {}", names.join(", "))
        }
    }
}

/// Finds a function by name; `-` and `_` are equivalent.
pub fn find(name: &str) -> Result<&'static Entry, UnknownFunction> {
    let wanted = name.replace('-', "_");
    CATALOG.iter().find(|entry| entry.name == wanted).ok_or_else(|| UnknownFunction {
        name: name.to_owned(),
        nearest: nearest(&wanted, CATALOG.iter().map(|entry| entry.name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: Result<&str, Option<&str>>) {
        assert_eq!(find(typed).map(|entry| entry.name).map_err(|unknown| unknown.nearest), expected);
    }

    #[test]
    fn functions_are_found_by_name_and_typing_errors_are_guessed() {
        check("forward", Ok("forward"));
        check("flow-counter", Ok("flow_counter"));
        check("forwrad", Err(Some("forward")));
        check("polcier", Err(Some("policer")));
        check("antiddos", Err(Some("anti_ddos")));
        check("rate", Err(Some("rate_limiter")));
        check("teapot", Err(None));
        check("", Err(None));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = catalog().iter().map(|entry| entry.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), catalog().len());
    }
}
