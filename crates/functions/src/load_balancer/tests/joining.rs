//! Backends and services that join, leave and return while the state is kept.

use braid_nf::state::StateBuilder;
use braid_nf::{Instance, NetworkFunction, Stage};
use braid_testkit::{Bench, Frame};

use super::show;
use crate::catalog::FromConfig;
use crate::config::parse;
use crate::load_balancer::{Config, LoadBalancer};

pub(super) fn build(text: &str) -> impl FnOnce(&mut StateBuilder) -> Box<dyn Stage> {
    let config: Config = parse(text.parse().unwrap()).unwrap();
    move |builder| {
        let balancer = LoadBalancer::from_config(config, builder.scope("lb"), 2).expect("a configuration that works");
        Box::new(Instance::new("lb", balancer))
    }
}

/// A service with persistent clients and these backends, named by the last byte of their address.
fn service(backends: &str) -> String {
    let list: Vec<_> = backends.split_whitespace().map(|last| format!("{{ address = '10.0.0.{last}' }}")).collect();
    format!(
        "[[service]]\naddress = '203.0.113.10'\nport = 80\npersistence = 'source'\nbackends = [{}]\n",
        list.join(", ")
    )
}

fn other(last: u8) -> String {
    let stays = "port = 53\npersistence = 'source'\n";
    format!("[[service]]\naddress = '203.0.113.{last}'\n{stays}backends = [{{ address = '10.0.9.{last}' }}]\n")
}

/// The backends of 60 clients, by the last byte of their address.
fn backends(lb: &mut Bench, ms: u64) -> Vec<String> {
    let of = |host: u32| {
        let outcome = lb.send(1, ms, &Frame::tcp(&format!("192.0.2.{host}:9"), "203.0.113.10:80").flags("S").bytes());
        let sent = show::outcome(&outcome);
        let to = sent.split(' ').nth(4).expect("it is sent to a backend");
        to.trim_start_matches("10.0.0.").trim_end_matches(":80").to_owned()
    };
    (1..=60).map(of).collect()
}

fn told(lb: Bench) -> Vec<String> {
    lb.findings().list().iter().map(|told| format!("{} {}", told.subject, told.detail)).collect()
}

#[test]
fn one_that_joins_any_service_takes_no_client_from_others() {
    let before = service("1 2 3") + &other(53);
    let mut lb = Bench::with_sets(2, 1024, build(&before));
    let chosen = backends(&mut lb, 0);
    assert!(["1", "2", "3"].iter().all(|backend| chosen.iter().any(|chosen| chosen == backend)));
    // The backend joins in the middle of the first service, and a service is added ahead of it.
    let after = other(54) + &service("2 9 1 3") + &other(53);
    let mut lb = lb.succeeded(build(&after));
    assert_eq!(backends(&mut lb, 1), chosen);
    let mut lb = lb.restored(build(&after));
    assert_eq!(backends(&mut lb, 2), chosen);
    // New clients also go to the backend that joined.
    assert!((61..=120).any(|host| {
        let frame = Frame::tcp(&format!("192.0.2.{host}:9"), "203.0.113.10:80").flags("S");
        show::outcome(&lb.send(1, 3, &frame.bytes())).contains("10.0.0.9:80")
    }));
}

#[test]
fn the_clients_of_one_that_leaves_go_elsewhere_and_no_others_do() {
    let mut lb = Bench::with_sets(2, 1024, build(&(service("1 2 3") + &other(53))));
    let chosen = backends(&mut lb, 0);
    let mut lb = lb.succeeded(build(&(service("3 1") + &other(53))));
    for (before, after) in chosen.iter().zip(backends(&mut lb, 1)) {
        assert!(if before == "2" { after != "2" } else { after == *before }, "{before} {after}");
    }
    // A new backend does not take over its number, so it inherits neither clients nor counts.
    let mut lb = lb.succeeded(build(&(service("7 3 1") + &other(53))));
    assert!(backends(&mut lb, 2).iter().all(|backend| backend != "7"));
    // It returns, and gets the clients whose hash selects it.
    let mut lb = lb.succeeded(build(&(service("1 2 3") + &other(53))));
    assert!((61..=120).any(|host| {
        let frame = Frame::tcp(&format!("192.0.2.{host}:9"), "203.0.113.10:80").flags("S");
        show::outcome(&lb.send(1, 3, &frame.bytes())).contains("10.0.0.2:80")
    }));
}

#[test]
fn clients_stay_with_a_backend_that_drains_until_they_are_forgotten() {
    let with = |keys: &str, weight: u8| {
        let drains = format!("{{ address = '10.0.0.1', weight = {weight} }}");
        format!(
            "tcp_opening_s = 5\npersistence_s = 60\n{keys}\n{}",
            service("1 2").replace("{ address = '10.0.0.1' }", &drains)
        )
    };
    let mut lb = Bench::with_sets(2, 1024, build(&with("", 1)));
    let chosen = backends(&mut lb, 0);
    let mut lb = lb.succeeded(build(&with("", 0)));
    let again = |lb: &mut Bench, host: usize, port: u16, ms: u64| {
        let frame = Frame::tcp(&format!("192.0.2.{host}:{port}"), "203.0.113.10:80").flags("S");
        let sent = show::outcome(&lb.send(1, ms, &frame.bytes()));
        sent.split(' ').nth(4).unwrap_or("?").trim_start_matches("10.0.0.").trim_end_matches(":80").to_owned()
    };
    // Another connection of each client, while its first one is open.
    let second: Vec<String> = (1..=60).map(|host| again(&mut lb, host, 10, 1000)).collect();
    assert_eq!(second, chosen);
    // New clients go elsewhere.
    assert!((61..=120).all(|host| again(&mut lb, host, 9, 1000) == "2"));
    // Who has had no connection for a minute is forgotten.
    for ms in (2..200).map(|second| second * 1000) {
        lb.send(1, ms, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    }
    assert!((1..=60).all(|host| again(&mut lb, host, 11, 200_000) == "2"));
    // Where clients are to move, their next connection does.
    let mut lb = Bench::with_sets(2, 1024, build(&with("", 1)));
    assert_eq!(backends(&mut lb, 0), chosen);
    let mut lb = lb.succeeded(build(&with("when_draining = 'move'", 0)));
    assert!((1..=60).all(|host| again(&mut lb, host, 10, 1000) == "2"));
}

#[test]
fn one_that_has_left_is_told_as_long_as_it_has_connections() {
    let config = |backends: &str| {
        format!("udp_s = 10\n[[service]]\naddress = '203.0.113.10'\nport = 53\nbackends = [{backends}]")
    };
    let (first, second) = ("{ address = '10.0.0.1' }", "{ address = '10.0.0.2' }");
    let mut lb = Bench::with_sets(2, 64, build(&config(first)));
    for port in 1..=5 {
        lb.send(1, 0, &Frame::udp(&format!("192.0.2.8:{port}"), "203.0.113.10:53").bytes());
    }
    let lb = lb.succeeded(build(&config(second)));
    assert_eq!(
        told(lb),
        [
            "203.0.113.10:53 at 10.0.0.1:53 left, weight 0, connections: 5 remembered, 5 in all",
            "203.0.113.10:53 at 10.0.0.2:53 up, weight 1, connections: 0 remembered, 0 in all",
        ]
    );
}

#[test]
fn one_that_returns_begins_as_configured_whatever_was_heard_of_it() {
    let config = |backends: &str| {
        format!(
            "heartbeat_port = 7000\nmonitors = ['10.0.9.9']\n[[service]]\naddress = '203.0.113.10'\nport = 80\nbackends = [{backends}]"
        )
    };
    let (first, second) = ("{ address = '10.0.0.1' }", "{ address = '10.0.0.2', weight = 0 }");
    let both = config(&format!("{first}, {second}"));
    let to = |lb: &mut Bench, ms: u64| {
        let outcome = lb.send(1, ms, &Frame::tcp("192.0.2.8:9", "203.0.113.10:80").flags("S").bytes());
        show::outcome(&outcome)
    };
    let mut lb = Bench::with_sets(2, 64, build(&both));
    lb.send(0, 1, &Frame::udp("10.0.9.9:9", "203.0.113.10:7000").payload(b"down 10.0.0.1").bytes());
    assert_eq!(to(&mut lb, 2), "drop no_backend");
    let mut lb = lb.succeeded(build(&config("{ address = '10.0.0.3', weight = 1 }")));
    assert!(to(&mut lb, 3).contains("10.0.0.3:80"));
    lb.send(0, 5000, &Frame::arp("10.0.0.1", "10.0.0.2").bytes());
    let mut lb = lb.succeeded(build(&both));
    assert!(to(&mut lb, 5001).contains("10.0.0.1:80"));
    // A backend that joins is down if configured so.
    let more = config(&format!("{first}, {second}, {{ address = '10.0.0.4', up = false, weight = 1000 }}"));
    let mut lb = lb.succeeded(build(&more));
    assert!((1..50).all(|port| {
        let frame = Frame::tcp(&format!("192.0.2.9:{port}"), "203.0.113.10:80").flags("S");
        show::outcome(&lb.send(1, 5002, &frame.bytes())).contains("10.0.0.1:80")
    }));
}

#[test]
fn only_sides_stay() {
    let make = |text: &str| {
        let mut builder = StateBuilder::new(&braid_nf::state::Domain::new(1), braid_nf::state::HugePages::Never);
        let config: Config = parse(text.parse().unwrap()).unwrap();
        LoadBalancer::from_config(config, &mut builder, 4).expect("a configuration that works")
    };
    let (older, newer) =
        (make(&service("1 2")), make(&(other(5) + &service("3").replace("port", "mode = 'ipip'\nport"))));
    assert_eq!(newer.inherits(&older), Ok(()));
    let turned = make(&format!("backend_ports = [1]\nclient_ports = [0]\n{}", service("1 2")));
    assert!(turned.inherits(&older).is_err());
}
