//! `braid plan`, `check-rss` and `nf`.

mod support;

use support::Braid;

#[test]
fn a_plan_is_explained_before_it_runs() {
    let braid = Braid::new();
    let json = braid.json("plan --nf flow_counter,rate_limiter --workers 2 --nic mlx5");
    assert_eq!(json["groups"][0]["functions"], serde_json::json!(["flow_counter", "rate_limiter"]));
    assert_eq!(json["functions"][0]["state"][0]["placement"], "local");
    assert!(json["steering"]["fields"].as_array().unwrap().iter().any(|field| field == "ip.src"));
    assert!(json["metadata"]["cache_lines_per_batch"][0].as_u64().unwrap() > 0);
    assert_eq!(json["nic"].as_array().map(Vec::len), Some(1));
    let text = braid.ok("plan --nf bridge");
    assert!(text.contains("bridge.stations (Map") && text.contains("transactional"), "{text}");
}

#[test]
fn every_function_is_explained_and_has_a_page() {
    let braid = Braid::new();
    let list = braid.json("nf list");
    for function in list.as_array().unwrap() {
        let name = function["name"].as_str().unwrap();
        if name != "load_balancer" {
            braid.ok(&format!("plan --nf {name}"));
        }
        assert!(braid.ok(&format!("nf show {name}")).starts_with('#'), "{name}");
    }
}

#[test]
fn nics_are_judged_one_by_one() {
    let braid = Braid::new();
    let text = braid.ok("check-rss --fields ip.src,ip.dst,port.src,port.dst --symmetric");
    for nic in ["mlx5", "ice", "i40e", "ixgbe", "ena", "virtio", "veth"] {
        assert!(text.contains(nic), "{nic} is missing in\n{text}");
    }
    let rows = braid.json("check-rss --fields eth.src,eth.dst --nic e810");
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
    braid.ok("check-rss --nf nat --nic mlx5");
}

#[test]
fn the_rule_that_decides_about_a_packet_is_named() {
    let braid = Braid::new();
    braid.write("edge.rules", "ip saddr 192.0.2.66 drop\ninbound tcp dport { 22, 80-90 } accept\n");
    let packet = "nf firewall explain tcp 192.0.2.9:7 > 10.0.0.5:85 --port 1 --set rules_file=edge.rules";
    let page = braid.ok(packet);
    assert!(page.starts_with("The packet is inbound by port 1 and passes"), "{page}");
    assert!(page.contains("line 2 of the rule file decides: inbound, protocol tcp"), "{page}");
    assert!(braid.ok("nf firewall explain udp 192.0.2.9:7 > 10.0.0.5:85 --port 1").contains("No rule fits"));
    assert!(braid.fails(2, "nf firewall explain upd 192.0.2.9:7").contains("`upd` is no kind of packet"));
    braid.write("edge.rules", "accept\ntcp port 80 drop\n");
    assert!(braid.fails(2, packet).contains("edge.rules:2: `port` is nothing of tcp"));
    braid.write("plan.toml", "[[nf]]\nfunction = \"firewall\"\n[nf.config]\nrules_file = \"none.rules\"\n");
    assert!(braid.fails(2, "plan plan.toml").contains("none.rules"));
}
