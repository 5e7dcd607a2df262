//! Every plan in `examples/` runs as it is, accounts for every packet, and is certified.

mod support;

use std::path::{Path, PathBuf};

use support::{Braid, conserved};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[track_caller]
fn check(plan: &str, chain: &[&str]) {
    let braid = Braid::at(root());
    let report = braid.json(&format!("run examples/{plan}.toml"));
    conserved(&report);
    assert_eq!(report["chain"].as_array().map(Vec::len), Some(chain.len()), "{report}");
    assert!(chain.iter().zip(report["chain"].as_array().into_iter().flatten()).all(|(a, b)| a == b), "{report}");
    assert!(report["packets_out"].as_u64() > Some(300), "hardly anything came out: {report}");
    let certificate = braid.json(&format!("certify examples/{plan}.toml --runs 2 --packets 500 --workers 3"));
    assert_eq!(certificate["violation"], serde_json::Value::Null, "{certificate}");
    let listed = std::fs::read_to_string(root().join("examples/README.md")).expect("the list of examples");
    assert!(listed.contains(&format!("({plan}.toml)")), "{plan} is not in examples/README.md");
}

#[test]
fn a_home_gateway() {
    check("01-home-gateway", &["firewall", "nat"]);
}

#[test]
fn a_gateway_lets_answers_in_and_does_not_depend_on_the_batch() {
    let braid = Braid::at(root());
    let plan = std::fs::read_to_string(root().join("examples/01-home-gateway.toml")).expect("the example");
    let run = |batch: usize| {
        let path = std::env::temp_dir().join(format!("braid-gateway-{}-{batch}.toml", std::process::id()));
        std::fs::write(&path, plan.replace("workers = 2", &format!("workers = 1\nbatch = {batch}"))).expect("a plan");
        let report = braid.json(&format!("run {}", path.display()));
        std::fs::remove_file(path).expect("the plan");
        report
    };
    let (one, many) = (run(1), run(256));
    for key in ["packets_out", "bytes_out", "dropped_by_nf", "sets"] {
        assert_eq!(one[key], many[key], "{key}");
    }
    let dropped = one["dropped_by_nf"]["firewall"].as_object().map_or(0, serde_json::Map::len);
    assert_eq!(dropped, 0, "all answers were asked for: {one}");
}

#[test]
fn several_workers_in_the_order_of_the_capture_do_what_one_does() {
    let braid = Braid::at(root());
    let run = |args: &str| braid.json(&format!("run examples/01-home-gateway.toml {args}"));
    let one = run("--workers 1");
    for args in ["--workers 2 --in-order", "--workers 3 --in-order --distribution software"] {
        let many = run(args);
        for key in ["packets_out", "bytes_out", "dropped_by_nf"] {
            assert_eq!(one[key], many[key], "{key} with {args}");
        }
        conserved(&many);
    }
}

#[test]
fn the_edge_of_a_data_centre() {
    check("02-edge", &["anti_ddos", "flow_counter", "load_balancer", "policer"]);
}

#[test]
fn a_load_balancer_behind_its_own_router() {
    check("09-load-balancer", &["load_balancer", "router"]);
}

#[test]
fn a_gateway_by_itself() {
    check("10-gateway", &["nat", "router"]);
}

#[test]
fn a_gateway_by_itself_that_filters() {
    check("11-gateway-with-firewall", &["router", "firewall", "nat"]);
}

#[test]
fn a_gateway_with_several_ports_inside() {
    check("12-gateway-with-switch", &["bridge", "router", "firewall", "nat"]);
}

#[test]
fn a_chain_with_one_packet_set() {
    check("03-fajita-stateful", &["flow_counter", "rate_limiter", "load_balancer"]);
}

#[test]
fn a_chain_with_three_packet_sets() {
    check("04-fajita-shared", &["source_counter", "policer", "load_balancer"]);
}

#[test]
fn a_line_that_both_directions_share() {
    check("06-shared-line", &["up", "down"]);
}

#[test]
fn hosts_with_ipv6_only() {
    check("07-ipv6-only", &["firewall", "nat64"]);
    let report = Braid::at(root()).json("run examples/07-ipv6-only.toml");
    assert_eq!(report["dropped_by_nf"], serde_json::json!({}), "all of it was asked for, and nothing got lost");
}

#[test]
fn subscribers_who_borrow() {
    check("08-subscribers", &["shaper"]);
}

#[test]
fn a_switch_with_rates() {
    check("05-bridge-policer", &["bridge", "policer"]);
}
