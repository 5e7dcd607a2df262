//! Limits on half-open connections in total, and on connections of each inside host.

use braid_testkit::{Bench, Frame};

use super::{bench, check};

fn syn(fw: &mut Bench, second: u64, host: u8, port: u16, expected: &str) {
    check(fw, 1, second, Frame::tcp(&format!("192.0.2.9:{port}"), &format!("10.0.0.{host}:80")).flags("S"), expected);
}

fn answered(fw: &mut Bench, second: u64, host: u8, port: u16) {
    let (client, server) = (format!("192.0.2.9:{port}"), format!("10.0.0.{host}:80"));
    check(fw, 0, second, Frame::tcp(&server, &client).flags("SA").numbers(1, 2), "pass");
    check(fw, 1, second, Frame::tcp(&client, &server).flags("A").numbers(2, 2), "pass");
}

fn closed(fw: &mut Bench, second: u64, host: u8, port: u16) {
    let (client, server) = (format!("192.0.2.9:{port}"), format!("10.0.0.{host}:80"));
    check(fw, 1, second, Frame::tcp(&client, &server).flags("R").numbers(2, 0), "pass");
}

#[test]
fn a_flood_of_syns_meets_its_limit_and_has_little_time() {
    let mut fw = bench("inbound = 'allow'\nhalf_open_max = 4");
    for port in 1..=4 {
        syn(&mut fw, 0, 1, port, "pass");
    }
    syn(&mut fw, 0, 1, 5, "half_open_limit");
    check(&mut fw, 1, 0, Frame::udp("192.0.2.9:5", "10.0.0.1:80"), "pass");
    answered(&mut fw, 0, 1, 1);
    syn(&mut fw, 0, 1, 5, "pass");
    syn(&mut fw, 0, 1, 6, "half_open_limit");
    // Connections after the first two had five seconds.
    check(&mut fw, 0, 6, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    syn(&mut fw, 7, 1, 6, "pass");
    syn(&mut fw, 7, 1, 7, "pass");
}

/// A flooding client may send anything after its SYNs: without an answer none of it establishes a long-lived connection.
#[test]
fn who_opens_cannot_confirm_alone() {
    for windows in ["strict", "off"] {
        let mut fw = bench(&format!("inbound = 'allow'\nhalf_open_max = 2\nwindows = '{windows}'"));
        let send = |fw: &mut Bench, port: u16, flags: &str, expected: &str| {
            let frame = Frame::tcp(&format!("192.0.2.9:{port}"), "10.0.0.1:80").flags(flags).numbers(2, 0);
            check(fw, 1, 0, frame, expected);
        };
        syn(&mut fw, 0, 1, 1, "pass");
        for flags in ["A", "FA", "SA"] {
            send(&mut fw, 1, flags, "out_of_window");
        }
        syn(&mut fw, 0, 1, 2, "pass");
        syn(&mut fw, 0, 1, 3, "half_open_limit");
        // A reset makes room, and segments after it belong to no connection.
        send(&mut fw, 2, "R", "pass");
        for flags in ["A", "FA"] {
            send(&mut fw, 2, flags, "not_syn");
        }
        // Segments after a reset of the answer are no confirmation either.
        syn(&mut fw, 0, 1, 3, "pass");
        check(&mut fw, 0, 0, Frame::tcp("10.0.0.1:80", "192.0.2.9:3").flags("SA").numbers(1, 2), "pass");
        for flags in ["R", "A", "FA"] {
            send(&mut fw, 3, flags, "pass");
        }
        check(&mut fw, 0, 12, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
        check(&mut fw, 0, 13, Frame::tcp("10.0.0.1:80", "192.0.2.9:3").flags("A"), "not_syn");
    }
}

#[test]
fn a_host_has_its_share_and_no_more() {
    let mut fw = bench("inbound = 'allow'\nhost_connections_max = 2");
    syn(&mut fw, 0, 1, 1, "pass");
    check(&mut fw, 0, 0, Frame::udp("10.0.0.1:7", "192.0.2.9:7"), "pass");
    syn(&mut fw, 0, 1, 2, "host_limit");
    syn(&mut fw, 0, 2, 2, "pass");
    answered(&mut fw, 0, 1, 1);
    closed(&mut fw, 0, 1, 1);
    check(&mut fw, 0, 12, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    syn(&mut fw, 13, 1, 2, "pass");
}

#[test]
fn a_host_has_so_many_half_open_connections() {
    let mut fw = bench("inbound = 'allow'\nhost_half_open_max = 1\nhosts_max = 2");
    syn(&mut fw, 0, 1, 1, "pass");
    syn(&mut fw, 0, 1, 2, "half_open_limit");
    syn(&mut fw, 0, 2, 2, "pass");
    syn(&mut fw, 0, 3, 2, "host_table_full");
    answered(&mut fw, 0, 1, 1);
    syn(&mut fw, 0, 1, 2, "pass");
    closed(&mut fw, 0, 1, 1);
    check(&mut fw, 0, 12, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    syn(&mut fw, 13, 1, 1, "half_open_limit");
}

#[test]
fn what_ends_is_counted_out() {
    let mut fw = bench("inbound = 'allow'\nhost_connections_max = 9\nudp_unanswered_s = 1\ntcp_opening_s = 1");
    for port in 1..=5 {
        syn(&mut fw, 0, 1, port, "pass");
        check(&mut fw, 1, 0, Frame::udp(&format!("192.0.2.9:{port}"), "10.0.0.2:80"), "pass");
    }
    assert!(!fw.object("fw.hosts").is_empty());
    for second in 2..6 {
        check(&mut fw, 0, second, Frame::arp("10.0.0.1", "10.0.0.2"), "pass");
    }
    assert_eq!((fw.object("fw.hosts").len(), fw.object("fw.connections").len()), (0, 0));
}
