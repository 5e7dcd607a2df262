//! What a plan may say and nobody can have meant: seen in how functions are configured that stand one behind another. A function sees only itself,
//! and control knows none of them, so it is found here.

use braid_control::Plan;
use braid_control::plan::Link;
use braid_functions::parts::Prefix;
use braid_functions::{load_balancer, nat, nat64, router};
use serde::de::DeserializeOwned;

/// What is to be said of a plan before it runs.
pub fn notes(plan: &Plan) -> Vec<String> {
    let chain = || plan.chain.iter().enumerate();
    let (is_mirrored, translators) = (plan.course.outside().is_some(), chain().filter(|(_, link)| translates(link)));
    let mut notes: Vec<String> = match is_mirrored {
        true => translators
            .flat_map(|(at, link)| taken(link, &external(link), (&plan.chain[..at], &plan.chain[at + 1..])))
            .collect(),
        false => translators
            .flat_map(|(at, link)| torn(link, &plan.chain).into_iter().chain(unchecked(link, &plan.chain[at + 1..])))
            .collect(),
    };
    notes.extend(chain().filter_map(|(at, link)| left_to_nobody(link, &plan.chain[at + 1..], is_mirrored)));
    notes
}

/// Whether a function exchanges addresses of both directions of a connection.
fn translates(link: &Link) -> bool {
    match link.entry.name.as_str() {
        "nat" | "nat64" | "nptv6" => true,
        "load_balancer" => config::<load_balancer::Config>(link)
            .is_some_and(|config| config.services.iter().any(|service| service.mode == load_balancer::Mode::Nat)),
        _ => false,
    }
}

/// In one order for all packets a firewall meets both directions of a connection behind the translator, or both before it, and so with different
/// addresses.
fn torn(translator: &Link, chain: &[Link]) -> Vec<String> {
    let note = |firewall: &Link| {
        let (firewall, translator) = (&firewall.name, &translator.name);
        format!(
            "with one order for all packets `{firewall}` meets requests and answers with different addresses, because `{translator}` changes them, and drops \
             the answers; write order = \"mirrored\" in [chain], with `{firewall}` before or behind `{translator}`, and a router first"
        )
    };
    chain.iter().filter(|link| link.entry.name == "firewall").map(note).collect()
}

/// A router that leaves packets to an address to a translator that is not there sends them out.
fn left_to_nobody(router: &Link, behind: &[Link], is_mirrored: bool) -> Option<String> {
    let config: router::Config = Some(router).filter(|link| link.entry.name == "router").and_then(config)?;
    let port = config.interfaces.iter().find(|interface| !interface.translated.is_empty())?.port;
    let has_translator = is_mirrored && behind.iter().any(|link| link.entry.name == "nat");
    (!has_translator).then(|| {
        format!(
            "`{}` leaves packets from inside to its `translated` addresses at port {port} to a translator behind it, but there is none in a mirrored \
             chain, so they leave by that port; leave `translated` out, or put a `nat` behind it",
            router.name
        )
    })
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
fn taken(translator: &Link, external: &[Prefix], (before, behind): (&[Link], &[Link])) -> Vec<String> {
    let routers = behind.iter().filter(|link| !external.is_empty() && link.entry.name == "router");
    let taken = |link: &Link| {
        let config: router::Config = config(link)?;
        let mut own = config.interfaces.iter().flat_map(|interface| &interface.addresses);
        let address = own.find_map(|own| {
            let address = own.split('/').next()?.parse().ok()?;
            external.iter().any(|range| range.contains(address)).then_some(address)
        })?;
        let (router, translator) = (&link.name, &translator.name);
        let instead = match behind.iter().chain(before).any(|link| link.entry.name == "firewall") {
            true => format!(
                "put `{router}` first, before the firewall and `{translator}`, in the same order = \"mirrored\""
            ),
            false => format!("write order = \"same\" in [chain], so that they meet `{translator}` first"),
        };
        Some(format!(
            "packets from outside meet `{router}` before `{translator}`, and those to {address}, which is external to `{translator}`, end there: it is \
             an address of `{router}` too; {instead}"
        ))
    };
    routers.filter_map(taken).collect()
}

/// Routers behind a translator see translated sources, and check the way back of these.
fn unchecked(translator: &Link, behind: &[Link]) -> Vec<String> {
    let translates = matches!(translator.entry.name.as_str(), "nat" | "nat64" | "nptv6");
    let checks = |link: &&Link| {
        let config: Option<router::Config> = config(link).filter(|_| translates && link.entry.name == "router");
        config.is_some_and(|config| {
            config.interfaces.iter().any(|interface| interface.reverse_path == router::ReversePath::Strict)
        })
    };
    let note = |link: &Link| {
        let (router, translator) = (&link.name, &translator.name);
        format!(
            "`{router}` stands behind `{translator}`, so `reverse_path` checks the sources that `{translator}` has written, not those that hosts \
             inside sent: addresses of `{router}` itself always pass, and others are dropped if the route to them leads outside; write \
             order = \"mirrored\" in [chain], with `{router}` before `{translator}`"
        )
    };
    behind.iter().filter(checks).map(note).collect()
}

/// Its configuration; a wrong one is refused elsewhere.
fn config<C: DeserializeOwned>(link: &Link) -> Option<C> {
    braid_functions::parse(link.config.table()).ok()
}
