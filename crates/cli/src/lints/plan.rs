//! What a plan may say and nobody can have meant: seen in how functions are configured that stand one behind another. A function sees only itself,
//! and control knows none of them, so it is found here.

use std::net::IpAddr;

use braid_control::Plan;
use braid_control::plan::PlannedFunction;
use braid_control::runtime::io::generate::TcpStyle;
use braid_functions::parts::Prefix;
use braid_functions::{load_balancer, nat, nat64, router};
use serde::de::DeserializeOwned;

use crate::input::generated;

/// What is to be said of a plan before it runs.
pub fn notes(plan: &Plan) -> Vec<String> {
    let chain = || plan.chain.iter().enumerate();
    let (is_mirrored, translators) = (plan.course.outside().is_some(), chain().filter(|(_, link)| translates(link)));
    let mut notes: Vec<String> = one_sided(plan);
    notes.extend(without_partner(plan));
    notes.extend(examples(plan));
    notes.extend(same_addresses(&plan.chain));
    notes.extend(plan.chain.iter().flat_map(short_bursts));
    notes.extend(match is_mirrored {
        true => translators
            .flat_map(|(at, link)| taken(link, &external(link), (&plan.chain[..at], &plan.chain[at + 1..])))
            .collect::<Vec<_>>(),
        false => translators
            .flat_map(|(at, link)| torn(link, &plan.chain).into_iter().chain(unchecked(link, &plan.chain[at + 1..])))
            .collect::<Vec<_>>(),
    });
    for (at, link) in chain() {
        let (before, behind) = (&plan.chain[..at], &plan.chain[at + 1..]);
        notes.extend(left_to_nobody(link, (before, behind), is_mirrored));
        notes.extend(unheard(link, if is_mirrored { behind } else { &[] }));
    }
    notes
}

/// Built-in functions that choose the port by which a packet leaves; the others send it by the opposite port.
const CHOOSE_PORTS: [&str; 6] = ["bridge", "router", "nat", "nat64", "nptv6", "load_balancer"];

/// Of an odd number of ports the last one is its own opposite.
fn without_partner(plan: &Plan) -> Option<String> {
    let passes_on = |link: &PlannedFunction| {
        let name = link.entry.name.as_str();
        braid_functions::find(name).is_ok() && !CHOOSE_PORTS.contains(&name)
    };
    let is_odd = plan.ports > 1 && plan.ports % 2 == 1 && plan.chain.iter().all(passes_on);
    is_odd.then(|| {
        let last = plan.ports - 1;
        format!(
            "what arrives by port {last} leaves by it again, because ports are pairs (0 and 1, 2 and 3) and it is the only one of its pair; put a `bridge` or a \
             `router` into the chain, or write another number of ports"
        )
    })
}

/// Functions whose defaults are addresses of documentation (RFC 5737, RFC 3849), the key that replaces them, and what comes of it between interfaces.
const EXAMPLES: [(&str, &str, &str); 5] = [
    ("nat", "external", "hosts leave with 198.51.100.1, an address for examples to which no answer comes"),
    ("nat64", "external", "hosts leave with 198.51.100.1, an address for examples to which no answer comes"),
    (
        "nptv6",
        "outside",
        "hosts leave with addresses of 2001:db8:1::/48, a range for examples to which no answer comes",
    ),
    (
        "load_balancer",
        "service",
        "its only service is 198.51.100.10, an address for examples, with backends 10.0.0.1 to 10.0.0.4",
    ),
    ("router", "interface", "its interfaces are 10.0.0.1/8 and 192.0.2.1/24, addresses for examples"),
];

/// Defaults with which a capture can be tried, and no network can be served.
fn examples(plan: &Plan) -> Vec<String> {
    let note = |link: &PlannedFunction| {
        let (_, key, what) = EXAMPLES.iter().find(|(function, ..)| *function == link.entry.name)?;
        let is_left_out = !link.config.table().contains_key(*key);
        is_left_out.then(|| format!("`{}`: {what}, because `{key}` is left out: write it into [nf.config]", link.name))
    };
    if plan.devices.is_empty() { Vec::new() } else { plan.chain.iter().filter_map(note).collect() }
}

/// Length of the longest frame of Ethernet, without jumbo frames.
const FRAME: i64 = 1514;

/// Bursts through which no full frame fits: a limiter then drops the packets of every bulk transfer.
fn short_bursts(link: &PlannedFunction) -> Vec<String> {
    if !["shaper", "policer", "rate_limiter"].contains(&link.entry.name.as_str()) {
        return Vec::new();
    }
    let table = link.config.table();
    let of_link = table.get("link").and_then(toml::Value::as_table);
    let counts_bytes = table.contains_key("bytes_per_s");
    let written = [
        ("burst_bytes", table.get("burst_bytes")),
        ("link.burst_bytes", of_link.and_then(|of_link| of_link.get("burst_bytes"))),
        ("link.burst", of_link.and_then(|of_link| of_link.get("burst")).filter(|_| counts_bytes)),
    ];
    let note = |(key, burst): (&str, Option<&toml::Value>)| {
        let burst = burst?.as_integer().filter(|burst| *burst < FRAME)?;
        Some(format!(
            "`{}`: no full frame of Ethernet fits into `{key}` = {burst}, so those are dropped as larger_than_burst: write at least {FRAME}",
            link.name
        ))
    };
    written.into_iter().filter_map(note).collect()
}

/// Translators that translate to the same addresses: what the first has translated is for the second an external address already.
fn same_addresses(chain: &[PlannedFunction]) -> Vec<String> {
    let translators: Vec<(&PlannedFunction, Vec<Prefix>)> = chain.iter().map(|link| (link, external(link))).collect();
    let note = |(at, (link, own)): (usize, &(&PlannedFunction, Vec<Prefix>))| {
        let (other, _) = translators[..at].iter().find(|(_, ranges)| ranges.iter().any(|range| own.contains(range)))?;
        let (first, second) = (&other.name, &link.name);
        Some(format!(
            "`{first}` and `{second}` have the same `external` addresses, so `{second}` drops what `{first}` has translated; give each its own"
        ))
    };
    translators.iter().enumerate().filter_map(note).collect()
}

/// Generated traffic knows nothing of the chain: without answers a firewall sees connections that never open, and answers go to the clients' own
/// addresses, whatever a translator made of them.
fn one_sided(plan: &Plan) -> Vec<String> {
    let Some((text, traffic)) =
        plan.from.iter().find_map(|text| Some((text, generated::config(text.strip_prefix("gen:")?).ok()?)))
    else {
        return Vec::new();
    };
    let named = |names: &[&str]| {
        plan.chain.iter().find(|link| names.contains(&link.entry.name.as_str())).map(|link| &link.name)
    };
    let has_connections = traffic.protocols.tcp > 0.0 && traffic.tcp == TcpStyle::Connections;
    let firewall = named(&["firewall"]).filter(|_| traffic.reverse == 0.0 && has_connections).map(|firewall| {
        let joint = if text.contains('?') { '&' } else { '?' };
        format!(
            "generated connections get no answers, so `{firewall}` drops what follows their first segments as out_of_window; --in '{text}{joint}reverse=0.4' has answers"
        )
    });
    let translator = named(&["nat", "nat64"]).filter(|_| traffic.reverse > 0.0).map(|translator| {
        format!(
            "generated answers go to the addresses of the clients, not to those that `{translator}` gives them, so it drops answers as no_mapping, and a \
             firewall before it sees none; a recorded capture, or no `reverse`, tries a translator"
        )
    });
    firewall.into_iter().chain(translator).collect()
}

/// Whether a function exchanges addresses of both directions of a connection.
fn translates(link: &PlannedFunction) -> bool {
    match link.entry.name.as_str() {
        "nat" | "nat64" | "nptv6" => true,
        "load_balancer" => config::<load_balancer::Config>(link)
            .is_some_and(|config| config.services.iter().any(|service| service.mode == load_balancer::Mode::Nat)),
        _ => false,
    }
}

/// In one order for all packets a firewall meets both directions of a connection behind the translator, or both before it, and so with different
/// addresses.
fn torn(translator: &PlannedFunction, chain: &[PlannedFunction]) -> Vec<String> {
    let note = |firewall: &PlannedFunction| {
        let (firewall, translator) = (&firewall.name, &translator.name);
        format!(
            "with one order for all packets `{firewall}` meets requests and answers with different addresses, because `{translator}` changes them, and drops \
             the answers; write order = \"mirrored\" in [chain], with `{firewall}` before or behind `{translator}`, and a router first"
        )
    };
    chain.iter().filter(|link| link.entry.name == "firewall").map(note).collect()
}

/// A router that leaves packets to an address to a translator that is not there sends them out.
fn left_to_nobody(
    router: &PlannedFunction,
    (before, behind): (&[PlannedFunction], &[PlannedFunction]),
    is_mirrored: bool,
) -> Option<String> {
    let config: router::Config = Some(router).filter(|link| link.entry.name == "router").and_then(config)?;
    let port = config.interfaces.iter().find(|interface| !interface.translated.is_empty())?.port;
    // A balancer before the router writes such addresses as sources; one behind it hears what is sent to them.
    let meets = |link: &PlannedFunction| is_mirrored && matches!(link.entry.name.as_str(), "nat" | "load_balancer");
    let has_translator = behind.iter().any(meets) || before.iter().any(|link| link.entry.name == "load_balancer");
    (!has_translator).then(|| {
        format!(
            "`{}` leaves packets from inside to its `translated` addresses at port {port} to a translator behind it, but there is none in a mirrored \
             chain, so they leave by that port; leave `translated` out, or put a `nat` or a `load_balancer` behind it",
            router.name
        )
    })
}

/// Heartbeats to an address that a router before the balancer has too end at that router.
fn unheard(router: &PlannedFunction, behind: &[PlannedFunction]) -> Vec<String> {
    let routes: Option<router::Config> = Some(router).filter(|link| link.entry.name == "router").and_then(config);
    let interfaces = routes.map_or(Vec::new(), |routes| routes.interfaces);
    let ends_there = |address: IpAddr| {
        interfaces.iter().any(|interface| {
            let is_its =
                |own: &String| own.split('/').next().and_then(|own| own.parse::<IpAddr>().ok()) == Some(address);
            interface.addresses.iter().any(is_its)
                && !interface.translated.iter().any(|own| IpAddr::from(*own) == address)
        })
    };
    let note = |balancer: &PlannedFunction| {
        let config: load_balancer::Config =
            Some(balancer).filter(|link| link.entry.name == "load_balancer").and_then(config)?;
        config.heartbeat_port?;
        let address = config.services.iter().map(|service| service.address).find(|address| ends_there(*address))?;
        let (router, balancer) = (&router.name, &balancer.name);
        Some(format!(
            "heartbeats and reports that are sent to {address} end at `{router}`, which has this address too and meets them before `{balancer}`; \
             write translated = [\"{address}\"] at its interface (IPv4), or have them sent to an address beyond `{balancer}`"
        ))
    };
    behind.iter().filter_map(note).collect()
}

/// The external addresses of a translator; of anything else none.
fn external(link: &PlannedFunction) -> Vec<Prefix> {
    match link.entry.name.as_str() {
        "nat" => config::<nat::Config>(link).map_or(Vec::new(), |config| config.external),
        "nat64" => config::<nat64::Config>(link).map_or(Vec::new(), |config| config.external),
        _ => Vec::new(),
    }
}

/// Routers behind a translator meet packets from outside before it, and take those to their own addresses for themselves.
fn taken(
    translator: &PlannedFunction,
    external: &[Prefix],
    (before, behind): (&[PlannedFunction], &[PlannedFunction]),
) -> Vec<String> {
    let routers = behind.iter().filter(|link| !external.is_empty() && link.entry.name == "router");
    let taken = |link: &PlannedFunction| {
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
fn unchecked(translator: &PlannedFunction, behind: &[PlannedFunction]) -> Vec<String> {
    let translates = matches!(translator.entry.name.as_str(), "nat" | "nat64" | "nptv6");
    let checks = |link: &&PlannedFunction| {
        let config: Option<router::Config> = config(link).filter(|_| translates && link.entry.name == "router");
        config.is_some_and(|config| {
            config.interfaces.iter().any(|interface| interface.reverse_path == router::ReversePath::Strict)
        })
    };
    let note = |link: &PlannedFunction| {
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
fn config<C: DeserializeOwned>(link: &PlannedFunction) -> Option<C> {
    braid_functions::parse(link.config.table()).ok()
}
