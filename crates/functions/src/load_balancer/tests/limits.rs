//! Backends that may have so many connections at a time.

use std::collections::HashMap;

use braid_testkit::{Bench, Frame};

use super::joining::build;
use super::{backend, bench_with, show};

fn service(most: [u32; 3]) -> String {
    let [a, b, c] = most;
    format!(
        "tcp_opening_s = 5\ntcp_closing_s = 5\n[[service]]\naddress = '203.0.113.10'\nport = 80\nprotocol = 'tcp'
        backends = [{{ address = '10.0.0.1', connections_max = {a} }}, {{ address = '10.0.0.2', connections_max = {b} }},
            {{ address = '10.0.0.3', connections_max = {c} }}]"
    )
}

/// How many of these clients got each backend, or a reason.
fn shares(lb: &mut Bench, clients: std::ops::Range<u16>, ms: u64, flags: &str) -> HashMap<String, u32> {
    let mut shares = HashMap::new();
    clients.for_each(|client| *shares.entry(backend(lb, client, ms, flags)).or_default() += 1);
    shares
}

#[test]
fn no_backend_has_more_connections_than_it_may_whatever_happens() {
    let mut lb = Bench::with_sets(2, 1024, build(&service([7, 20, 9])));
    let all = [("10.0.0.1:80", 7), ("10.0.0.2:80", 20), ("10.0.0.3:80", 9), ("backends_full", 64)];
    let all: HashMap<String, u32> = all.into_iter().map(|(to, many)| (to.to_owned(), many)).collect();
    assert_eq!(shares(&mut lb, 0..100, 0, "S"), all);
    let established = shares(&mut lb, 0..100, 1, "A");
    assert_eq!(established, all, "each where it was");
    // Over a change, which lowers one limit and raises another, the counts go on.
    let mut lb = lb.succeeded(build(&service([3, 20, 11])));
    let more = shares(&mut lb, 100..200, 3, "S");
    assert_eq!((more.get("10.0.0.3:80"), more.get("backends_full")), (Some(&2), Some(&98)), "{more:?}");
    // And over a snapshot.
    let mut lb = lb.restored(build(&service([3, 20, 11])));
    assert_eq!(shares(&mut lb, 200..300, 4, "S").get("backends_full"), Some(&100));
}

#[test]
fn a_client_that_stays_with_its_backend_is_given_another_one_if_that_is_full() {
    let text = service([1, 1, 1]).replace("protocol = 'tcp'", "protocol = 'tcp'\npersistence = 'source'");
    let mut lb = Bench::with_sets(2, 1024, build(&text));
    let to = |lb: &mut Bench, port: u16, flags: &str| {
        let frame = Frame::tcp(&format!("192.0.2.7:{port}"), "203.0.113.10:80").flags(flags);
        let outcome = lb.send(1, 0, &frame.bytes());
        show::outcome(&outcome).split(' ').nth(4).unwrap_or(outcome.dropped.unwrap_or("?")).to_owned()
    };
    let given: Vec<String> = (1..=4).map(|port| to(&mut lb, port, "S")).collect();
    let mut backends = given[..3].to_vec();
    backends.sort();
    assert_eq!(backends, ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"]);
    assert_eq!(given[3], "backends_full");
    assert!((1..=3).all(|port| to(&mut lb, port, "A") == given[usize::from(port) - 1]), "they keep what they have");
}

#[test]
fn who_cannot_be_counted_gets_no_backend_with_a_limit() {
    let mut lb = bench_with(&service([50, 50, 50]), 1);
    let first = shares(&mut lb, 0..50, 0, "S");
    assert_eq!(first.get("set_table_full"), Some(&49), "{first:?}");
}
