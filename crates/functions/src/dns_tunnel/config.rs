//! The configuration of `dns_tunnel`, as written in a plan file.

use std::net::IpAddr;
use std::time::Duration;

use braid_nf::packet::IpAddress;
use serde::Deserialize;

use crate::config::{ConfigError, span_ns};
use crate::parts::headers::dns::Name;

/// Configuration of [`DnsTunnel`](super::DnsTunnel).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Orphan answers to one client about one zone within a window that make a tunnel.
    pub orphans: u32,
    /// The least number of bytes that their names and data must carry.
    pub bytes: u32,
    /// Length of the window in seconds, which is also how long a client has to contact an address.
    pub window_s: u64,
    /// Capacity for answers, and for pairs of client and zone.
    pub answers_max: u32,
    /// How many tunnels the report has room for.
    pub alerts_max: u32,
    /// Lists that are queried by name or hash: answers below them do not count.
    pub lists: Vec<String>,
    /// Hosts that query for others: their answers are cleared when any host contacts the address.
    pub resolvers: Vec<IpAddr>,
}

/// Hosts that query on behalf of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Resolvers(Vec<IpAddress>);

braid_nf::plain!(Resolvers);

impl Resolvers {
    /// Who may have queried for a host: the host itself, and every resolver.
    pub(super) fn asking_for(&self, host: IpAddress) -> impl Iterator<Item = IpAddress> {
        std::iter::once(host).chain(self.0.iter().copied().filter(move |resolver| *resolver != host))
    }
}

/// The maximum number of resolvers: every flow that begins makes a look-up for each.
const RESOLVERS_MAX: usize = 16;

impl Default for Config {
    fn default() -> Config {
        Config {
            orphans: 30,
            bytes: 1000,
            window_s: 60,
            answers_max: 65_536,
            alerts_max: 4096,
            lists: Vec::new(),
            resolvers: Vec::new(),
        }
    }
}

impl Config {
    /// The number of orphan answers that makes a tunnel.
    pub(super) fn orphans_max(&self) -> Result<u64, ConfigError> {
        match self.orphans {
            0 => {
                Err(ConfigError::new("orphans", "0 answers lead nowhere to anybody", "write 1 for every one that does"))
            }
            orphans => Ok(orphans.into()),
        }
    }

    pub(super) fn lists(&self) -> Result<Vec<Name>, ConfigError> {
        self.lists.iter().map(|name| list(name)).collect()
    }

    pub(super) fn resolvers(&self) -> Result<Resolvers, ConfigError> {
        let count = self.resolvers.len();
        if count > RESOLVERS_MAX {
            let instead = format!("write at most {RESOLVERS_MAX}: every flow that begins looks for each");
            return Err(ConfigError::new("resolvers", format!("{count} are too many"), instead));
        }
        match (1..count).find(|at| self.resolvers[..*at].contains(&self.resolvers[*at])) {
            Some(at) => {
                let reason = format!("{} is there twice", self.resolvers[at]);
                Err(ConfigError::new("resolvers", reason, "name it once"))
            }
            None => Ok(Resolvers(self.resolvers.iter().map(|address| (*address).into()).collect())),
        }
    }

    pub(super) fn window_ns(&self) -> Result<u64, ConfigError> {
        span_ns("window_s", Duration::from_secs(self.window_s), Duration::from_secs(1), Duration::from_secs(86_400))
    }
}

/// Parses the name of a list.
fn list(text: &str) -> Result<Name, ConfigError> {
    let wrong = |what: &str| {
        let instead = "write the name of a list, such as \"multi.surbl.org\"";
        Err(ConfigError::new("lists", format!("`{text}` {what}"), instead))
    };
    match Name::parse(text) {
        None => wrong("is no name of DNS"),
        Some(name) if name.depth() < 2 => wrong("is all below a top-level domain"),
        Some(name) => Ok(name),
    }
}
