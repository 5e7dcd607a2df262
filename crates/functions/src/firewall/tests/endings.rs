//! Connections that end by timeout, reset or agreement, and connections that reuse their endpoints.

use braid_testkit::{Bench, Frame};

use super::{HOST, SERVER, back, bench, check, connected, to};

#[test]
fn connections_live_as_long_as_their_phase_says() {
    let mut fw = bench("");
    check(&mut fw, 0, 0, to("S"), "pass");
    check(&mut fw, 1, 121, back("SA"), "denied");
    let mut fw = connected("");
    check(&mut fw, 1, 7440, back("A"), "pass");
    check(&mut fw, 1, 14_881, back("A"), "denied");
    let mut fw = connected("");
    check(&mut fw, 0, 0, to("FA"), "pass");
    check(&mut fw, 1, 5000, back("A"), "pass");
    check(&mut fw, 1, 5000, back("FA"), "pass");
    check(&mut fw, 0, 5120, to("A"), "pass");
    check(&mut fw, 1, 5241, back("A"), "denied");
    let mut fw = connected("");
    check(&mut fw, 1, 0, back("R"), "pass");
    check(&mut fw, 1, 11, back("A"), "denied");
    assert_eq!(fw.object("fw.connections").len(), 0, "its ends are forgotten with it");
}

#[test]
fn a_forged_reset_does_not_end_a_connection_that_goes_on() {
    let mut fw = connected("");
    check(&mut fw, 1, 1, back("R"), "pass");
    check(&mut fw, 0, 2, to("A"), "pass");
    check(&mut fw, 1, 1000, back("A"), "pass");
}

#[test]
fn the_same_ends_may_connect_again_by_the_same_rules() {
    let mut fw = connected("");
    check(&mut fw, 0, 0, to("FA"), "pass");
    check(&mut fw, 1, 0, back("FA"), "pass");
    check(&mut fw, 1, 1, back("S"), "denied");
    check(&mut fw, 0, 1, to("S"), "pass");
    check(&mut fw, 1, 1, back("SA"), "pass");
    check(&mut fw, 0, 1, to("A"), "pass");
    check(&mut fw, 1, 1000, back("A"), "pass");
}

/// A firewall with a connection from inside that both ends have closed.
fn closed(config: &str) -> Bench {
    let mut fw = connected(config);
    check(&mut fw, 0, 0, to("FA"), "pass");
    check(&mut fw, 1, 0, back("FA"), "pass");
    fw
}

/// As in conntrack, which deletes the connection before the rules are asked.
#[test]
fn a_syn_that_is_refused_leaves_nothing_of_what_is_over() {
    let error = || Frame::unreachable("203.0.113.9", "10.0.0.1", &Frame::tcp(HOST, SERVER).flags("A").bytes());
    let mut fw = closed("");
    check(&mut fw, 1, 1, error(), "pass");
    check(&mut fw, 1, 1, back("S"), "denied");
    assert!(fw.object("fw.connections").is_empty());
    check(&mut fw, 1, 1, error(), "unrelated");
    check(&mut fw, 0, 1, to("A"), "not_syn");
    check(&mut fw, 1, 1, back("FA"), "denied");
    check(&mut fw, 0, 2, to("S"), "pass");
    check(&mut fw, 1, 2, back("SA"), "pass");
    check(&mut fw, 0, 2, to("A"), "pass");
    assert!(!fw.object("fw.connections").is_empty());
    check(&mut fw, 1, 1000, back("A"), "pass");
    // With `loose` a connection may begin in its middle, from the other side too.
    let mut fw = closed(
        "loose = true\ninbound = 'allow'\nrules = [{ action = 'deny', direction = 'inbound', protocol = 'tcp', tcp_flags = 'syn' }]",
    );
    check(&mut fw, 1, 1, back("S"), "denied");
    check(&mut fw, 1, 1, back("A"), "pass");
    check(&mut fw, 0, 1, to("A"), "pass");
}

#[test]
fn what_has_ended_is_counted_out_once() {
    let mut fw = closed("host_connections_max = 2");
    check(&mut fw, 1, 1, back("S"), "denied");
    check(&mut fw, 1, 1, back("S"), "denied");
    let asks = |port: u16| Frame::udp(&format!("10.0.0.1:{port}"), "192.0.2.9:53");
    check(&mut fw, 0, 1, asks(7), "pass");
    check(&mut fw, 0, 13, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    check(&mut fw, 0, 14, asks(8), "pass");
    check(&mut fw, 0, 14, asks(9), "host_limit");
    check(&mut fw, 0, 14, to("S"), "host_limit");
}
