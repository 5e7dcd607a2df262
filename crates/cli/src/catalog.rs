//! Converts the functions of this binary to the catalog that control expects.

use std::sync::Arc;

use braid_control::catalog::{BuildFunction, Refusal};
use braid_control::runtime::nf::state::StateBuilder;
use braid_control::runtime::nf::{Instance, Stage};
use braid_control::{Catalog, DefaultSplit, Entry};
use braid_functions::{ConfigError, FromConfig, Split};

/// The user's own functions, followed by those that come with Braid.
pub fn catalog(own: Vec<Entry>) -> Catalog {
    let shipped = braid_functions::catalog().iter().map(entry);
    Catalog::new(own.into_iter().chain(shipped).collect())
}

/// Makes the entry of a user's own function.
pub fn own<F: FromConfig>(summary: &str, ports: u16) -> Entry {
    let build = |name: &str, config: toml::Table, builder: &mut StateBuilder, ports: u16| {
        let function = braid_functions::parse(config)
            .and_then(|config| F::from_config(config, builder.scope(name), ports))
            .map_err(refusal)?;
        Ok(Box::new(Instance::new(name, function)) as Box<dyn Stage>)
    };
    Entry {
        name: F::NAME.to_owned(),
        summary: summary.to_owned(),
        ports,
        split: DefaultSplit::Single,
        mirrors: false,
        sides: false,
        routes: false,
        readdresses: false,
        page: String::new(),
        build: Arc::new(build),
        files: |config| braid_functions::parse(config).map_or_else(|_| Vec::new(), |config| F::files(&config)),
    }
}

fn entry(entry: &braid_functions::Entry) -> Entry {
    let make = entry.build;
    let build = move |name: &str, config: toml::Table, builder: &mut StateBuilder, ports: u16| {
        make(name, config, builder, ports).map_err(refusal)
    };
    let build: Arc<BuildFunction> = Arc::new(build);
    Entry {
        name: entry.name.to_owned(),
        summary: entry.summary.to_owned(),
        ports: entry.ports,
        split: match entry.split {
            Split::Single => DefaultSplit::Single,
            Split::Inside => DefaultSplit::Inside,
            Split::MacHash => DefaultSplit::MacHash,
        },
        mirrors: entry.mirrors,
        sides: entry.sides,
        routes: entry.routes,
        readdresses: entry.readdresses,
        page: page(entry.name).to_owned(),
        build,
        files: entry.files,
    }
}

/// The README of a function that comes with Braid; empty for other names.
fn page(name: &str) -> &'static str {
    macro_rules! pages {
        ($($name:literal),+ $(,)?) => {
            match name {
                $($name => include_str!(concat!("../../functions/src/", $name, "/README.md")),)+
                _ => "",
            }
        };
    }
    pages!(
        "forward",
        "flow_counter",
        "rate_limiter",
        "policer",
        "shaper",
        "anti_ddos",
        "bridge",
        "nat",
        "nat64",
        "nptv6",
        "router",
        "firewall",
        "load_balancer",
        "port_scan",
        "heavy_hitters",
        "connection_limiter",
        "dns_tunnel",
        "sidejacking",
        "protocol_classifier",
        "asset_monitor",
        "abacus",
    )
}

fn refusal(error: ConfigError) -> Refusal {
    Refusal { key: error.key, reason: error.reason, instead: error.instead }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_its_page() {
        for entry in catalog(Vec::new()).entries() {
            assert!(entry.page.contains(&entry.name), "{} has no README here", entry.name);
        }
    }
}
