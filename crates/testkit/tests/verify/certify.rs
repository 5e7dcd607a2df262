//! Certificates for every function: what several workers did equals what one worker does in the order of commits, packets,
//! state and all, on captures and generated mixes, under seeded schedules and on real threads.

mod broken;
mod configs;
mod inputs;

pub use configs::{busy, others};
pub use inputs::{input, inputs};

use braid_control::certify::{Request, certify_run};
use braid_control::frames::Frames;
use braid_control::profile::certificate::Certificate;
use braid_functions::{catalog, find};

use self::configs::{ASKING, BEHIND_BALANCER, BEHIND_NAT, IN_EVERY_MODE, NOWHERE, ROUTED, RULED, SPREAD, TAGGED};
use self::inputs::{about_tunnels, hairpins, pieces, slow, unknown_neighbours};
use crate::run::Case;

/// Sets by source and sets by destination: no steering keeps both on one worker each. Those without a state object are held by their
/// packets, those with one (a link's bucket) are read and written in the batch's transaction.
fn by_opposite_ends(workers: usize) -> Case {
    Case::new(2, workers, |builder| {
        let build = find("policer").expect("it is in the catalogue").build;
        let mut stages = Vec::new();
        for by in ["source", "destination"] {
            for link in ["", "link = { per_s = 100000, burst = 9000 }"] {
                let config = format!("bytes_per_s = 20000\nburst_bytes = 3000\nby = '{by}'\n{link}");
                let scope = format!("policer_{}", stages.len());
                stages.push(build(&scope, config.parse().expect("TOML"), builder, 2).expect("it can be built"));
            }
        }
        stages
    })
}

fn certificate(case: &Case, chain: &str, name: &str, frames: &Frames, seeds: u64) -> Certificate {
    let request = Request { frames, input: name, runs: seeds, seed: 1, watchdog: None, meanwhile: None };
    certify_run(&case.plan(), vec![chain.to_owned()], request, &mut |_| {}).expect("it runs")
}

/// Certifies every function on every input with 2 and 4 workers.
fn check(test: &str, shared: usize, packets: usize, seeds: u64) {
    for entry in catalog() {
        let (mut runs, mut transactions, mut aborts) = (0, 0, 0);
        let inputs = inputs(entry, test, shared, packets);
        let configs = std::iter::once(busy(entry.name)).chain(others(entry.name).iter().copied());
        let cases = configs.flat_map(|config| [2, 4].map(|workers| (config, workers)));
        for (config, workers) in cases {
            for (name, frames) in &inputs {
                let case = Case { sets: 2048, ..Case::of(entry, config, workers) };
                let certificate = certificate(&case, entry.name, name, frames, seeds);
                assert!(certificate.holds(), "{config}\n{certificate}");
                runs += certificate.runs.len();
                transactions += certificate.runs.iter().map(|run| run.transactions).sum::<usize>();
                aborts += certificate.runs.iter().map(|run| run.aborts).sum::<u64>();
            }
        }
        let name = entry.name;
        eprintln!("{name}: {} inputs, {runs} runs, {transactions} transactions, {aborts} retried: holds", inputs.len());
    }
}

#[test]
fn a_chain_whose_sets_workers_share_is_certified() {
    let entry = find("policer").expect("it is in the catalogue");
    for (name, frames) in inputs(entry, "a_chain_whose_sets_workers_share_is_certified", 0, 300) {
        for workers in [2, 4] {
            let certificate = certificate(&by_opposite_ends(workers), "four policers", &name, &frames, 4);
            assert!(certificate.holds(), "{certificate}");
        }
    }
}

/// Functions one behind the other, under their configurations.
fn one_behind_the_other(functions: Vec<(&'static str, String)>, workers: usize) -> Case {
    Case {
        sets: 2048,
        ..Case::new(2, workers, move |builder| {
            let build = |(name, config): &(&'static str, String)| {
                let entry = find(name).expect("it is in the catalogue");
                (entry.build)(name, config.parse().expect("TOML"), builder, 2).expect("it can be built")
            };
            functions.iter().map(build).collect()
        })
    }
}

/// A function, and a router behind it.
fn before_a_router(name: &'static str, config: String, router: &'static str, workers: usize) -> Case {
    one_behind_the_other(vec![(name, config), ("router", router.to_owned())], workers)
}

/// What goes on and what goes back: on one worker, on two and on four.
fn check_made(functions: &[(&'static str, &str)], name: &str, frames: &Frames) {
    let chain: Vec<&str> = functions.iter().map(|(function, _)| *function).collect();
    for workers in [1, 2, 4] {
        let functions = functions.iter().map(|(name, config)| (*name, (*config).to_owned())).collect();
        let case = one_behind_the_other(functions, workers);
        let certificate = certificate(&case, &chain.join(", "), name, frames, 4);
        assert!(certificate.holds(), "{certificate}");
    }
}

/// Slow enough that most of what comes waits.
const SLOW: &str = "bytes_per_s = 20000\nburst_bytes = 1600\nqueue_packets = 64";

#[test]
fn what_a_shaper_held_goes_on_through_a_router_or_a_translator_and_is_certified() {
    let nat = "fragments_max = 64\nheld_max = 32";
    let borrows = format!(
        "{SLOW}\nceil_bytes_per_s = 40000\nceil_burst_bytes = 1700\nlink = {{ bytes_per_s = 60000, burst_bytes = 3000 }}"
    );
    let inputs = inputs(find("router").expect("it is in the catalogue"), "shaped", 0, 200);
    for (name, frames) in inputs.iter().step_by(3).chain([&("pieces".to_owned(), pieces(300, 2))]) {
        check_made(&[("shaper", SLOW), ("router", SPREAD)], name, frames);
        check_made(&[("shaper", &borrows), ("nat", nat)], name, frames);
        check_made(&[("shaper", SLOW), ("nat", nat), ("router", BEHIND_NAT)], name, frames);
    }
}

#[test]
fn what_waited_for_a_neighbour_goes_on_through_the_functions_behind_and_is_certified() {
    let ruled = format!("{}\n{RULED}", busy("firewall"));
    let nat = "external = ['198.51.100.1']\nfragments_max = 64\nheld_max = 32";
    let frames = unknown_neighbours(400);
    check_made(&[("router", ASKING), ("flow_counter", ""), ("firewall", &ruled)], "neighbours", &frames);
    check_made(&[("router", ASKING), ("nat", nat)], "neighbours", &frames);
    check_made(
        &[("nat", nat), ("router", ASKING), ("policer", "bytes_per_s = 2000\nburst_bytes = 3000")],
        "neighbours",
        &frames,
    );
}

#[test]
fn answers_that_go_back_through_a_translator_are_certified() {
    let nat = "fragments_max = 64\nheld_max = 32\nrouter = '10.0.0.254'\noutside_router = '198.51.100.1'";
    let inputs = inputs(find("nat").expect("it is in the catalogue"), "answered", 0, 200);
    for (name, frames) in inputs.iter().step_by(3).chain([&("pieces".to_owned(), pieces(300, 2))]) {
        check_made(&[("nat", nat), ("router", NOWHERE)], name, frames);
        check_made(&[("nat", nat), ("firewall", "inbound = 'reject'\noutbound = 'reject'")], name, frames);
        check_made(&[("flow_counter", ""), ("nat", nat), ("router", NOWHERE)], name, frames);
    }
}

#[test]
fn pieces_that_go_on_behind_a_translator_are_certified() {
    let config = "fragments_max = 64\nheld_max = 32\nrouter = '10.0.0.254'\noutside_router = '198.51.100.1'";
    for workers in [1, 2, 4] {
        let case = before_a_router("nat", config.to_owned(), BEHIND_NAT, workers);
        let certificate = certificate(&case, "nat, router", "pieces", &pieces(600, 2), 8);
        assert!(certificate.holds(), "{certificate}");
    }
}

#[test]
fn a_bridge_behind_a_function_that_turns_frames_round_is_certified() {
    for (function, config) in [
        ("nat", ""),
        ("nat", "networks = 'by_vlan'\nvlans = ['untagged']\noutside_next_hop = '02:00:00:00:00:64'"),
        ("nat64", ""),
        ("nptv6", ""),
    ] {
        let frames = hairpins(function, 300);
        check_made(&[(function, config), ("bridge", busy("bridge"))], "hairpins", &frames);
        check_made(&[("router", ROUTED), (function, config), ("bridge", busy("bridge"))], "hairpins", &frames);
    }
    check_made(&[("router", SPREAD), ("bridge", busy("bridge"))], "neighbours", &unknown_neighbours(300));
}

#[test]
fn pieces_that_go_whole_to_backends_behind_a_router_are_certified() {
    // Some are cut once more in their tunnels.
    for (workers, eights) in [1, 2, 4].into_iter().flat_map(|workers| [(workers, 2), (workers, 172)]) {
        let case = before_a_router("load_balancer", IN_EVERY_MODE.to_owned(), BEHIND_BALANCER, workers);
        let certificate = certificate(&case, "load_balancer, router", "pieces", &pieces(600, eights), 8);
        assert!(certificate.holds(), "{certificate}");
    }
}

#[test]
fn what_routers_say_about_tunnels_is_certified() {
    let frames = about_tunnels(400);
    check_made(&[("load_balancer", IN_EVERY_MODE)], "errors about tunnels", &frames);
    check_made(&[("load_balancer", IN_EVERY_MODE), ("router", BEHIND_BALANCER)], "errors about tunnels", &frames);
}

#[test]
fn a_firewall_before_a_router_is_certified() {
    let entry = find("router").expect("it is in the catalogue");
    for (name, frames) in inputs(entry, "a_firewall_before_a_router_is_certified", 0, 300) {
        for (config, workers) in [SPREAD, TAGGED].into_iter().flat_map(|config| [(config, 2), (config, 4)]) {
            let ruled = format!("{}\n{RULED}", busy("firewall"));
            let case = before_a_router("firewall", ruled, config, workers);
            let certificate = certificate(&case, "firewall, router", &name, &frames, 4);
            assert!(certificate.holds(), "{config}\n{certificate}");
        }
    }
}

#[test]
fn what_goes_when_it_is_old_is_certified_where_workers_are_at_different_times() {
    // What is old for one worker has just been used for another, which is behind.
    let functions = [
        ("policer", "bytes_per_s = 20000\nburst_bytes = 3000\nby = 'source'\nprefix = { capacity = 8 }"),
        ("connection_limiter", "connections_per_s = 4\nburst = 1\nudp_s = 1\nprefix = { v4 = 24 }\nowners_max = 8"),
        ("nat", "external = ['198.51.100.1']\nudp_s = 2\nmappings_max = 16\nrest_s = 0"),
    ];
    for (name, config) in functions {
        let case = one_behind_the_other(vec![(name, config.to_owned())], 4);
        let certificate = certificate(&case, name, "slow datagrams", &slow(400), 24);
        assert!(certificate.holds(), "{certificate}");
    }
}

#[test]
fn every_function_is_certified_on_a_few_seeds() {
    check("every_function_is_certified_on_a_few_seeds", 0, 300, 4);
}

#[test]
#[ignore = "minutes: cargo xtask certify"]
fn every_function_is_certified() {
    let seeds = std::env::var("BRAID_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100);
    check("every_function_is_certified", 12, 400, seeds);
}
