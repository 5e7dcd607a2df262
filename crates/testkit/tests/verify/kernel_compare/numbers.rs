//! What few rules look at (lengths, hops, code points, flags, codes, numbers of TCP and of queries) against the kernel, on packets made for it.

use braid_testkit::Frame;

use super::*;

const RULES: &str = include_str!("numbers.nft");

/// Packets of connections that nobody answers, from a seed.
fn openings(seed: u64, count: usize) -> Vec<(usize, Vec<u8>)> {
    let mut state = seed;
    let mut below = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % n
    };
    let mut made = Vec::new();
    for number in 0..count {
        let (v6, outward, kind) = (below(2) == 1, below(4) > 0, below(6));
        // TCP that begins in its middle counts as answered here and is new to the kernel: with hosts of its own. Everything else comes
        // again and again without an answer.
        let at = if (2..4).contains(&kind) { number } else { number % 40 };
        let outside = if v6 { format!("2001:db8::{at:x}") } else { format!("203.0.{}.{}", at / 250, at % 250 + 1) };
        let (inside, outside) = (if v6 { "fd00:1::9" } else { "10.1.0.9" }, outside.as_str());
        let (from, to) = if outward { (inside, outside) } else { (outside, inside) };
        let written =
            |address: &str, port: u64| if v6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") };
        let (source, destination) = (written(from, 1024 + at as u64), written(to, [53, 80, 443][below(3) as usize]));
        let mut frame = match kind {
            0 | 1 => Frame::udp(&source, &destination),
            // What a connection may begin with for the kernel too.
            2 | 3 => Frame::tcp(&source, &destination)
                .flags(["S", "A", "PA"][below(3) as usize])
                .numbers(below(8) as u32 * 0x2000_0000, below(3) as u32)
                .window([0, 500, 8192, 65535][below(4) as usize]),
            4 => Frame::echo_request(from, to, at as u16, below(4) as u16),
            _ => Frame::ip(from, to, 47),
        };
        let lengths = [0, 8, 13, 60, 400, 1000];
        frame = frame.payload(&vec![7; lengths[below(6) as usize]]);
        let points = [0, 8, 10, 46, 63];
        frame =
            frame.ttl([2, 3, 9, 64, 65, 255][below(6) as usize]).tos((points[below(5) as usize] << 2 | below(4)) as u8);
        made.push((if outward { INSIDE } else { OUTSIDE }, frame.bytes()));
    }
    made
}

#[test]
fn the_firewall_decides_by_the_numbers_of_a_packet_as_the_kernel_does() {
    let test = "the_firewall_decides_by_the_numbers_of_a_packet_as_the_kernel_does";
    if skipped(test) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/kernel_compare/numbers.nft");
    let config = format!("rules_file = {path:?}\nloose = true\nttl = 'decrement'\nwindows = 'liberal'");
    let mut kernel = match KernelOracle::ruleset(OFFICE, RULES) {
        Ok(kernel) => kernel,
        Err(reason) => return note(test, &reason),
    };
    let (mut ours, mut comparison, mut passed) = (bench("firewall", &config, 2), Comparison::default(), 0);
    for (n, (port, frame)) in openings(0x9e37_79b9_7f4a_7c15, 3000).iter().enumerate() {
        let expected = packets(kernel.feed(*port, frame).expect("the kernel takes it"));
        let outcome = ours.send(*port as u16, 0, frame);
        let sent = packets(by_port(outcome.sent));
        passed += usize::from(!expected.is_empty());
        comparison.note(&format!("packet {n}: {}", hex(frame)), &expected, &sent, outcome.dropped);
    }
    assert!((500..2500).contains(&passed), "{passed} passed: the table tells too few apart");
    comparison.check(3000);
}
