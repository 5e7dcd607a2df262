//! What the report says about each inside network.

use super::*;

/// The report's lines about networks.
fn told(nat: Bench) -> Vec<String> {
    let findings = nat.findings();
    let networks = findings.list().iter().filter(|found| found.kind == "network");
    networks.map(|found| format!("{}: {}", found.subject, found.detail)).collect()
}

/// Checks them after mappings of three hosts, at a given second.
#[track_caller]
fn check(at_s: u64, expected: [&str; 2]) {
    let text = "networks = 'by_vlan'\nvlans = [10, 20, 30]\nports_per_host = 2\nudp_s = 10\nrest_s = 0\n\
        first_port = 1024\nlast_port = 1279";
    let mut nat = bench(parse(text.parse().unwrap()).unwrap());
    for (vlan, port) in [(10, 1), (10, 2), (10, 3), (10, 1), (20, 1)] {
        nat.send(0, 0, &Frame::udp(&format!("10.0.0.1:{port}"), SERVER).vlan(vlan).bytes());
    }
    for second in at_s..at_s + 3 {
        nat.send(0, second * 1000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    assert_eq!(told(nat), expected);
}

#[test]
fn each_network_has_its_count_of_mappings() {
    check(0, ["vlan 10: mappings: 2 now, 2 in all, 1 refused", "vlan 20: mappings: 1 now, 1 in all, 0 refused"]);
    check(100, ["vlan 10: mappings: 0 now, 2 in all, 1 refused", "vlan 20: mappings: 0 now, 1 in all, 0 refused"]);
}

#[test]
fn counts_stay_when_networks_are_added_whatever_their_numbers() {
    let config = |more: &str| -> Config {
        let text = format!("networks = 'by_vlan'\nvlans = [10, 20{more}]\nmappings_max = 100");
        parse(text.parse().unwrap()).unwrap()
    };
    let mut nat = bench(config(""));
    nat.send(0, 0, &Frame::udp("10.0.0.1:1", SERVER).vlan(10).bytes());
    let nat = nat.succeeded(|builder| {
        let more = config(", '100.1-4094', '101.1-4094'");
        let nat = Nat::from_config(more, builder.scope("nat"), 2).expect("a configuration that works");
        Box::new(Instance::new("nat", nat))
    });
    assert_eq!(told(nat), ["vlan 10: mappings: 1 now, 1 in all, 0 refused"]);
}

#[test]
fn one_network_is_not_told_of() {
    let mut nat = bench(small());
    nat.send(0, 0, &Frame::udp("10.0.0.1:1", SERVER).bytes());
    assert!(told(nat).is_empty());
}
