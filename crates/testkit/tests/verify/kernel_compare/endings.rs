//! Connections that end, and begin again between the same ends, against the kernel: by rules that let so many begin and no more.

use braid_testkit::Frame;

use super::*;

/// Lets this many connections begin.
fn rules(most: u32) -> String {
    format!(
        "table inet t {{
    chain forward {{
        type filter hook forward priority filter; policy drop;
        ct state established,related accept
        ct state new tcp dport 80 limit rate 1/hour burst {most} packets accept
    }}
}}
"
    )
}

/// A segment between a host inside and a server: who sends it, flags and numbers.
fn said(from_server: bool, flags: &str, numbers: (u32, u32)) -> (usize, Frame) {
    let (client, server) = ("10.1.0.9:1100", "203.0.113.9:80");
    let (from, to) = if from_server { (server, client) } else { (client, server) };
    (usize::from(from_server), Frame::tcp(from, to).flags(flags).numbers(numbers.0, numbers.1))
}

#[test]
fn a_syn_ends_what_is_over_even_if_it_is_refused_as_in_the_kernel() {
    let test = "a_syn_ends_what_is_over_even_if_it_is_refused_as_in_the_kernel";
    if skipped(test) {
        return;
    }
    let path = std::env::temp_dir().join(format!("braid-endings-{}.nft", std::process::id()));
    for (most, expected) in [(1, [false; 4]), (2, [true; 4])] {
        let mut kernel = match KernelOracle::ruleset(OFFICE, &rules(most)) {
            Ok(kernel) => kernel,
            Err(reason) => return note(test, &reason),
        };
        std::fs::write(&path, rules(most)).expect("a file");
        let config = format!("rules_file = {path:?}\nloose = true\nttl = 'decrement'\nwindows = 'liberal'");
        let (mut ours, mut comparison) = (bench("firewall", &config, 2), Comparison::default());
        let mut feed = |(port, frame): (usize, Frame)| {
            let bytes = frame.bytes();
            let sent = packets(kernel.feed(port, &bytes).expect("the kernel takes it"));
            let outcome = ours.send(port as u16, 0, &bytes);
            comparison.note(&hex(&bytes), &sent, &packets(by_port(outcome.sent)), outcome.dropped);
            !sent.is_empty()
        };
        let whole = [
            said(false, "S", (1000, 0)),
            said(true, "SA", (5000, 1001)),
            said(false, "A", (1001, 5001)),
            said(false, "FA", (1001, 5001)),
            said(true, "A", (5001, 1002)),
            said(true, "FA", (5001, 1002)),
            said(false, "A", (1002, 5002)),
        ];
        assert!(whole.into_iter().all(&mut feed));
        let late = said(true, "A", (5002, 1002)).1.bytes();
        // Without a new one nothing is left of the old one, for errors about it either.
        let behind = [
            said(false, "S", (90_000, 0)),
            said(true, "SA", (70_000, 90_001)),
            (0, Frame::unreachable("10.1.0.77", "203.0.113.9", &late)),
            said(false, "A", (90_001, 70_001)),
        ];
        assert_eq!(behind.map(&mut feed), expected, "of {most}");
        comparison.check(11);
    }
    std::fs::remove_file(&path).expect("it is there");
}
