//! More than one port on a side: where answers come from, and by which port a packet leaves.

use braid_nf::Instance;
use braid_nf::state::{Decided, Surroundings};
use braid_testkit::{Bench, Frame};

use super::{Config, Firewall, HOST, SERVER};
use crate::catalog::FromConfig;
use crate::config::parse;

/// A firewall in a plan with so many ports whose chain decides there by which one a packet leaves: if before, by the one opposite to its
/// own.
fn bench(ports: u16, decided: Decided, config: &str) -> Bench {
    let config: Config = parse(config.parse().unwrap()).unwrap();
    Bench::with_sets(ports, 1024, |builder| {
        builder.place(Surroundings { decided: [decided; 2], ..Surroundings::default() });
        let firewall = Firewall::from_config(config, builder.scope("fw"), ports).expect("a configuration that works");
        Box::new(Instance::new("fw", firewall))
    })
}

#[track_caller]
fn check(bench: &mut Bench, port: u16, frame: Frame, expected: Option<&str>) {
    assert_eq!(bench.send(port, 0, &frame.bytes()).dropped, expected);
}

fn asks(port: u16) -> Frame {
    Frame::udp(&format!("10.0.0.1:{port}"), SERVER)
}

fn answers(port: u16) -> Frame {
    Frame::udp(SERVER, &format!("10.0.0.1:{port}"))
}

const TWO_EACH: &str = "inside_ports = [0, 1]\noutside_ports = [2, 3]\n";
const ONE_INSIDE: &str = "inside_ports = [0]\noutside_ports = [1, 2]\n";

#[test]
fn a_connection_may_have_both_ends_on_one_side() {
    let mut fw = bench(4, Decided::Before, TWO_EACH);
    check(&mut fw, 0, Frame::tcp(HOST, SERVER).flags("S"), None);
    check(&mut fw, 2, Frame::tcp(SERVER, HOST).flags("SA"), Some("wrong_side"));
    check(&mut fw, 1, Frame::tcp(SERVER, HOST).flags("SA"), None);
    check(&mut fw, 0, Frame::tcp(HOST, SERVER).flags("A"), None);
    for _ in 0..2 {
        check(&mut fw, 1, Frame::tcp(SERVER, HOST).flags("A"), None);
        check(&mut fw, 2, Frame::tcp(SERVER, HOST).flags("A"), Some("wrong_side"));
        check(&mut fw, 3, Frame::tcp(HOST, SERVER).flags("A"), Some("wrong_side"));
    }
}

#[test]
fn between_ports_of_the_outside_the_default_for_inbound_decides() {
    let mut fw = bench(4, Decided::Before, TWO_EACH);
    check(&mut fw, 2, asks(1), Some("denied"));
    let mut fw = bench(4, Decided::Before, &format!("{TWO_EACH}inbound = 'allow'"));
    check(&mut fw, 2, asks(1), None);
    check(&mut fw, 0, answers(1), Some("wrong_side"));
    check(&mut fw, 3, answers(1), None);
    check(&mut fw, 2, asks(1), None);
}

#[test]
fn where_the_port_is_decided_later_the_first_answer_shows_the_side() {
    let mut fw = bench(4, Decided::Behind, TWO_EACH);
    for (port, right, wrong) in [(1, 1, 3), (2, 2, 0)] {
        check(&mut fw, 0, asks(port), None);
        check(&mut fw, 0, asks(port), None);
        check(&mut fw, right, answers(port), None);
        check(&mut fw, wrong, answers(port), Some("wrong_side"));
        check(&mut fw, right, answers(port), None);
        check(&mut fw, 0, asks(port), None);
    }
    let mut fw = bench(3, Decided::Behind, ONE_INSIDE);
    check(&mut fw, 0, asks(1), None);
    check(&mut fw, 0, answers(1), Some("wrong_side"));
    check(&mut fw, 2, answers(1), None);
}

#[test]
fn without_a_router_or_bridge_the_ends_are_on_two_sides() {
    let mut fw = bench(4, Decided::Nowhere, TWO_EACH);
    check(&mut fw, 0, asks(1), None);
    check(&mut fw, 1, answers(1), Some("wrong_side"));
    check(&mut fw, 3, answers(1), None);
}

#[test]
fn pings_are_answered_from_their_side() {
    let echo = |from, to, kind| Frame::icmp(from, to, kind, 0, [0, 7, 0, 1]);
    let (there, back) = (echo("10.0.0.1", "192.0.2.9", 8), echo("192.0.2.9", "10.0.0.1", 0));
    let mut fw = bench(4, Decided::Before, TWO_EACH);
    check(&mut fw, 0, there.clone(), None);
    check(&mut fw, 2, back.clone(), Some("no_query"));
    check(&mut fw, 1, back.clone(), None);
    check(&mut fw, 0, there.clone(), None);
    check(&mut fw, 1, back.clone(), None);
    let mut fw = bench(4, Decided::Behind, TWO_EACH);
    check(&mut fw, 0, there, None);
    check(&mut fw, 3, back.clone(), None);
    check(&mut fw, 1, back, Some("no_query"));
}

#[test]
fn rules_ask_by_which_port_a_packet_leaves() {
    let rule = |action: &str, ports: &str| {
        format!("{ONE_INSIDE}outbound = 'deny'\nrules = [{{ action = '{action}', out_ports = {ports} }}]\n")
    };
    let passes = |decided, config: &str| bench(3, decided, config).send(0, 0, &asks(1).bytes()).dropped.is_none();
    assert!(passes(Decided::Before, &rule("allow", "1")) && !passes(Decided::Before, &rule("allow", "2")));
    // It may leave by 1 and by 2.
    for decided in [Decided::Behind, Decided::Nowhere] {
        assert!(passes(decided, &rule("allow", "[1, 2]")), "{decided:?}");
        assert!(!passes(decided, &rule("allow", "1")) && !passes(decided, &rule("allow", "[2, 0]")), "{decided:?}");
        let refuses = |ports| !passes(decided, &rule("deny", ports).replace("outbound = 'deny'", "outbound = 'allow'"));
        assert!(refuses("1") && refuses("2") && !refuses("0"), "{decided:?}");
        let networks = "networks = [['10.0.0.0/8'], ['0.0.0.0/0'], ['192.0.2.0/24']]";
        let known = |ports| passes(decided, &format!("{}{networks}", rule("allow", ports)));
        assert!(known("2") && !known("1"), "the smallest network: {decided:?}");
    }
}

/// What the report says of a rule file behind a router that packets from inside meet before.
fn told(rule: &str) -> String {
    let path = std::env::temp_dir().join(format!("braid-exits-{}-{}.nft", std::process::id(), rule.len()));
    let seen = "set seen { type ether_addr; flags dynamic; }";
    let chain = format!("chain c {{ type filter hook forward priority 0; {rule} drop; }}");
    std::fs::write(&path, format!("table inet f {{ {seen}\n {chain} }}")).unwrap();
    let config = format!("interfaces = ['lan', 'wan']\nrules_file = '{}'", path.display());
    let config: Config = parse(config.parse().unwrap()).unwrap();
    let fw = Bench::with_sets(2, 64, |builder| {
        let decided = [Decided::Before, Decided::Behind];
        builder.place(Surroundings { decided, readdressed: [true, false], ..Surroundings::default() });
        let firewall = Firewall::from_config(config, builder.scope("fw"), 2).expect("a configuration that works");
        Box::new(Instance::new("fw", firewall))
    });
    std::fs::remove_file(path).unwrap();
    format!("{:?}", fw.findings())
}

/// What is said of rules about Ethernet headers there.
const WRITTEN_BY_ROUTER: &str = "packets from inside come with the Ethernet addresses and the VLAN that the router before the firewall has \
    written, and not as they arrived: write addresses and interfaces, or put the firewall before the router in the chain";

#[test]
fn rules_about_frames_that_a_router_has_written_are_pointed_out() {
    for rule in ["iifname lan vlan id 20", "ether saddr 02:00:00:00:00:0c", "add @seen { ether saddr timeout 1m }"] {
        let said = told(rule);
        assert!(said.contains(WRITTEN_BY_ROUTER), "{rule}: {said}");
    }
    for rule in ["iifname wan ether saddr 02:00:00:00:00:0c", "iifname lan ip saddr 10.0.0.1"] {
        assert!(!told(rule).contains("Ethernet"), "{rule}");
    }
}
