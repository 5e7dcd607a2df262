//! What a plan may say and nobody can have meant: seen in how functions are configured that stand one behind another. A function sees only itself,
//! and control knows none of them, so it is found here.

use braid_control::Plan;
use braid_control::plan::Link;
use braid_functions::parts::Prefix;
use braid_functions::{nat, nat64, router};
use serde::de::DeserializeOwned;

/// What is to be said of a plan before it runs.
pub fn notes(plan: &Plan) -> Vec<String> {
    if plan.course.outside().is_none() {
        return Vec::new();
    }
    let translators = plan.chain.iter().enumerate().map(|(at, link)| (at, link, external(link)));
    translators.flat_map(|(at, link, external)| taken(link, &external, &plan.chain[at + 1..])).collect()
}

/// The external addresses of a translator; of anything else none.
fn external(link: &Link) -> Vec<Prefix> {
    match link.entry.name.as_str() {
        "nat" => config::<nat::Config>(link).map_or(Vec::new(), |config| config.external),
        "nat64" => config::<nat64::Config>(link).map_or(Vec::new(), |config| config.external),
        _ => Vec::new(),
    }
}

/// Routers behind a translator meet packets from outside before it, and take those to their own addresses for themselves.
fn taken(translator: &Link, external: &[Prefix], behind: &[Link]) -> Vec<String> {
    let routers = behind.iter().filter(|link| !external.is_empty() && link.entry.name == "router");
    let taken = |link: &Link| {
        let config: router::Config = config(link)?;
        let mut own = config.interfaces.iter().flat_map(|interface| &interface.addresses);
        let address = own.find_map(|own| {
            let address = own.split('/').next()?.parse().ok()?;
            external.iter().any(|range| range.contains(address)).then_some(address)
        })?;
        let (router, translator) = (&link.name, &translator.name);
        Some(format!(
            "packets from outside meet `{router}` before `{translator}`, and those to {address}, which is external to `{translator}`, end there: it is \
             an address of `{router}` too; write order = \"same\" in [chain], so that they meet `{translator}` first"
        ))
    };
    routers.filter_map(taken).collect()
}

/// Its configuration; a wrong one is refused elsewhere.
fn config<C: DeserializeOwned>(link: &Link) -> Option<C> {
    braid_functions::parse(link.config.table()).ok()
}
