//! `firewall` and `nat` against the Linux kernel on traffic that captures seldom have: ICMP errors about what was sent, pieces of
//! datagrams in any order, and TCP segments that do not fit into their connection's windows.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use braid_functions::find;
use braid_packet::checksum;
use braid_testkit::kernel::{INSIDE, KernelOracle, OUTSIDE, Tracking, network_packet};
use braid_testkit::skip::skip;
use braid_testkit::{Bench, Frame};

const NAT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const PRIVATE: [&str; 1] = ["10.0.0.0/8"];
const NAT: &str = "external = ['198.51.100.2']\ninside = ['10.0.0.0/8']\nfirst_port = 1";

fn skipped(test: &str) -> bool {
    KernelOracle::probe().inspect_err(|reason| skip(test, reason)).is_err()
}

fn bench(function: &str, config: &str) -> Bench {
    let entry = find(function).expect("a function of the catalogue");
    let build = |builder: &mut _| (entry.build)(function, config.parse().expect("TOML"), builder, 2);
    Bench::with_sets(2, 1024, |builder| build(builder).expect("a configuration of the tests"))
}

/// A kernel and ours, asked the same.
struct Pair {
    kernel: KernelOracle,
    ours: Bench,
    is_nat: bool,
}

impl Pair {
    fn nat() -> Pair {
        let kernel = KernelOracle::nat(&PRIVATE, NAT_ADDRESS, Tracking::Liberal).expect("probed");
        Pair { kernel, ours: bench("nat", NAT), is_nat: true }
    }

    fn firewall(tracking: Tracking) -> Pair {
        let kernel = KernelOracle::firewall(&PRIVATE, tracking).expect("probed");
        let windows = if tracking == Tracking::Strict { "strict" } else { "liberal" };
        let config = format!("loose = true\nttl = 'decrement'\nheld_max = 16\nwindows = '{windows}'");
        Pair { kernel, ours: bench("firewall", &config), is_nat: false }
    }

    /// What both send because of a frame, as IP packets: the kernel, then ours.
    fn feed(&mut self, port: usize, frame: &[u8]) -> [Vec<(usize, Vec<u8>)>; 2] {
        let ip = |frame: &[u8]| network_packet(frame).unwrap_or(frame).to_vec();
        let sent = self.kernel.feed(port, frame).expect("the kernel takes it");
        let by_kernel = sent.iter().map(|(port, frame)| (*port, ip(frame))).collect();
        let sent = self.ours.send(port as u16, 0, frame).sent;
        [by_kernel, sent.iter().map(|(port, frame)| (usize::from(*port), ip(frame))).collect()]
    }

    /// Neither lets a frame pass; what is invalid for the kernel's NAT leaves untranslated there, or not at all.
    #[track_caller]
    fn refuse(&mut self, port: usize, frame: &[u8]) {
        let [kernel, ours] = self.feed(port, frame);
        assert!(ours.is_empty(), "{ours:?}");
        assert!(kernel.iter().all(|(_, packet)| self.is_nat && packet[12..16] == frame[26..30]), "{kernel:?}");
    }

    /// Both send the same, which is returned.
    #[track_caller]
    fn agree(&mut self, port: usize, frame: Frame) -> Vec<(usize, Vec<u8>)> {
        let [kernel, ours] = self.feed(port, &frame.bytes());
        assert_eq!(kernel, ours);
        kernel
    }
}

/// A frame around an IP packet, to be quoted.
fn framed(packet: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0], packet].concat()
}

#[test]
fn the_nat_translates_icmp_errors_as_the_kernel_does() {
    if skipped("the_nat_translates_icmp_errors_as_the_kernel_does") {
        return;
    }
    let mut pair = Pair::nat();
    let server = "192.0.2.9:80";
    let asked = [
        Frame::udp("10.0.0.1:1100", server).payload(b"question"),
        Frame::tcp("10.0.0.1:1200", server).flags("S"),
        Frame::echo_request("10.0.0.1", "192.0.2.9", 1300, 1),
    ];
    for frame in asked {
        let sent = pair.agree(INSIDE, frame);
        assert_eq!(sent.len(), 1);
        let quoted = framed(&sent[0].1);
        // From the server itself, and from routers on the way to it: whoever they are, the error comes back in their name.
        for from in ["192.0.2.9", "203.0.113.1"] {
            assert_eq!(pair.agree(OUTSIDE, Frame::unreachable(from, "198.51.100.2", &quoted)).len(), 1);
        }
        for (kind, code, rest) in [(3, 4, [0, 0, 5, 0]), (3, 1, [0; 4]), (11, 0, [0; 4]), (12, 0, [20, 0, 0, 0])] {
            let error = Frame::icmp("203.0.113.1", "198.51.100.2", kind, code, rest).payload(&quoted[14..]);
            assert_eq!(pair.agree(OUTSIDE, error).len(), 1, "type {kind} code {code}");
        }
    }
    // About nothing that was sent.
    let strange = Frame::udp("198.51.100.2:9", server).bytes();
    assert!(pair.agree(OUTSIDE, Frame::unreachable("192.0.2.9", "198.51.100.2", &strange)).is_empty());
    // An inside host refuses what came in.
    let came = pair.agree(OUTSIDE, Frame::udp(server, "198.51.100.2:1100").payload(b"answer"));
    let refusal = Frame::unreachable("10.0.0.1", "192.0.2.9", &framed(&came[0].1));
    assert_eq!(pair.agree(INSIDE, refusal).len(), 1);
}

/// Pieces of a datagram of UDP with `len` bytes of payload, each with 24 bytes.
fn pieces(source: &str, destination: &str, identification: u16, len: usize) -> Vec<Vec<u8>> {
    let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
    let whole = Frame::udp(source, destination).may_be_fragmented().payload(&payload).bytes();
    let datagram = &whole[34..];
    let address = |end: &str| end.rsplit_once(':').expect("a port").0.to_owned();
    let count = datagram.len().div_ceil(24);
    let piece = |(n, bytes): (usize, &[u8])| {
        let frame = Frame::ip(&address(source), &address(destination), 17);
        frame.fragment(identification, 3 * n as u16, n + 1 < count).payload(bytes).bytes()
    };
    datagram.chunks(24).enumerate().map(piece).collect()
}

/// The datagrams that pieces make: ports of the plan, IP addresses, and what stands behind the IP headers.
fn put_together(sent: &[(usize, Vec<u8>)]) -> BTreeMap<(usize, Vec<u8>), Vec<u8>> {
    let mut datagrams: BTreeMap<_, Vec<u8>> = BTreeMap::new();
    for (port, packet) in sent {
        let at = usize::from(u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff) * 8;
        let bytes = &packet[20..];
        let datagram = datagrams.entry((*port, packet[12..20].to_vec())).or_default();
        datagram.resize(datagram.len().max(at + bytes.len()), 0);
        datagram[at..at + bytes.len()].copy_from_slice(bytes);
    }
    datagrams
}

#[test]
fn datagrams_in_pieces_come_through_in_any_order_as_through_the_kernel() {
    if skipped("datagrams_in_pieces_come_through_in_any_order_as_through_the_kernel") {
        return;
    }
    for (mut pair, to_host) in [(Pair::nat(), "198.51.100.2:1100"), (Pair::firewall(Tracking::Strict), "10.0.0.1:1100")]
    {
        let orders = [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1]];
        for (n, order) in orders.into_iter().enumerate() {
            let outward = pieces("10.0.0.1:1100", "192.0.2.9:80", 100 + n as u16, 50);
            let inward = pieces("192.0.2.9:80", to_host, 200 + n as u16, 61);
            for (port, pieces) in [(INSIDE, outward), (OUTSIDE, inward)] {
                let (mut by_kernel, mut by_us) = (Vec::new(), Vec::new());
                for at in order {
                    let [kernel, ours] = pair.feed(port, &pieces[at]);
                    by_kernel.extend(kernel);
                    by_us.extend(ours);
                }
                assert_eq!(put_together(&by_kernel).len(), 1, "order {order:?} by port {port}");
                assert_eq!(put_together(&by_kernel), put_together(&by_us), "order {order:?} by port {port}");
            }
        }
    }
}

#[test]
fn segments_outside_their_windows_meet_the_same_as_in_the_kernel() {
    if skipped("segments_outside_their_windows_meet_the_same_as_in_the_kernel") {
        return;
    }
    let (host, server) = ("10.0.0.1:1100", "192.0.2.9:80");
    for (tracking, outside) in [(Tracking::Strict, 0), (Tracking::Liberal, 1)] {
        let mut pair = Pair::firewall(tracking);
        let out = |flags: &str, seq, ack| Frame::tcp(host, server).flags(flags).numbers(seq, ack).window(1000);
        let back = |flags: &str, seq, ack| Frame::tcp(server, host).flags(flags).numbers(seq, ack).window(1000);
        pair.agree(INSIDE, out("S", 1000, 0));
        pair.agree(OUTSIDE, back("SA", 5000, 1001));
        pair.agree(INSIDE, out("A", 1001, 5001));
        let inside_windows = [
            (INSIDE, out("PA", 1001, 5001).payload(&[1; 100])),
            (OUTSIDE, back("A", 5001, 1101)),
            (OUTSIDE, back("PA", 5001, 1101).payload(&[1; 900])),
            // Once more, and beyond it with a gap.
            (INSIDE, out("PA", 1001, 5001).payload(&[1; 100])),
            (INSIDE, out("PA", 1301, 5901).payload(&[1; 100])),
        ];
        for (n, (port, frame)) in inside_windows.into_iter().enumerate() {
            assert_eq!(pair.agree(port, frame).len(), 1, "{tracking:?}: segment {n} fits");
        }
        // What comes late does no harm, unless it ends the connection, and whatever it says is not believed.
        let (before, long_ago) = (1u32.wrapping_sub(5000), 1401u32.wrapping_sub(70_000));
        let late = [
            (INSIDE, out("PA", before, 5901).payload(&[1; 100]), 1),
            (INSIDE, out("PA", before, 900_000).payload(&[1; 100]), outside),
            (OUTSIDE, back("A", 5901, long_ago), 1),
            (OUTSIDE, back("PA", 5901, long_ago).payload(&[1; 10]), 1),
        ];
        for (n, (port, frame, expected)) in late.into_iter().enumerate() {
            assert_eq!(pair.agree(port, frame).len(), expected, "{tracking:?}: late segment {n}");
        }
        // A liberal kernel believes late ends.
        let ends = [
            (INSIDE, out("FA", before, 5901), 1),
            (OUTSIDE, back("RA", 5901, long_ago), 1),
            (OUTSIDE, back("RA", 900, 1401), 0),
        ];
        for (port, frame, expected) in ends.into_iter().filter(|_| tracking == Tracking::Strict) {
            assert_eq!(pair.agree(port, frame).len(), expected);
        }
        let outside_windows = [
            (INSIDE, out("PA", 900_000, 5901).payload(&[1; 100])),
            (OUTSIDE, back("PA", 3_000_000, 1101).payload(&[1; 100])),
            (OUTSIDE, back("A", 5901, 900_000)),
        ];
        for (n, (port, frame)) in outside_windows.into_iter().enumerate() {
            assert_eq!(pair.agree(port, frame).len(), outside, "{tracking:?}: segment {n} does not fit");
        }
        // A reset from before the window is dropped by both kinds. One from beyond it is, by a liberal kernel, let through and
        // not believed; ours drops it as well.
        let reset = pair.agree(OUTSIDE, back("R", 4_000, 0));
        assert_eq!(reset.len(), 0, "{tracking:?}");
        assert_eq!(pair.agree(OUTSIDE, back("A", 5901, 1401)).len(), 1, "{tracking:?}: it goes on");
    }
}

/// Not all senders keep to the window: up to another one they are let through, and acknowledged.
#[test]
fn segments_that_go_beyond_their_window_meet_the_same_as_in_the_kernel() {
    if skipped("segments_that_go_beyond_their_window_meet_the_same_as_in_the_kernel") {
        return;
    }
    let mut pair = Pair::firewall(Tracking::Strict);
    let cases = ["PA", "FA", "RA"].map(|flags| [0, 1, 890, 899, 900, 901, 1000].map(|beyond| (flags, beyond)));
    for (port, (flags, beyond)) in (2000..).zip(cases.concat()) {
        let (host, server) = (format!("10.0.0.1:{port}"), "192.0.2.9:80");
        let out = |flags: &str, ack| Frame::tcp(&host, server).flags(flags).numbers(1001, ack).window(1000);
        let back = |flags: &str, seq| Frame::tcp(server, &host).flags(flags).numbers(seq, 1001).window(1000);
        pair.agree(INSIDE, Frame::tcp(&host, server).flags("S").numbers(1000, 0).window(1000));
        pair.agree(OUTSIDE, back("SA", 5000));
        pair.agree(INSIDE, out("A", 5001));
        let passed = pair.agree(OUTSIDE, back(flags, 6001 + beyond).payload(&[1; 100])).len();
        assert_eq!(passed, usize::from(beyond < 900 - u32::from(flags == "FA")), "{flags} {beyond}");
        if flags == "PA" {
            assert_eq!(pair.agree(INSIDE, out("A", 6101 + beyond)).len(), passed, "{beyond} acknowledged");
        }
    }
}

/// Refusals, and acknowledgements of what only the server remembers.
#[test]
fn what_comes_before_a_servers_syn_meets_the_same_as_in_the_kernel() {
    if skipped("what_comes_before_a_servers_syn_meets_the_same_as_in_the_kernel") {
        return;
    }
    let server = "192.0.2.9:80";
    let fit = [("RA", 0, 1002), ("RA", 0, 1001), ("RA", 0, 1000), ("RA", 7, 0), ("R", 7, 0), ("A", 700_000, 300_000)];
    // Older ones pass unbelieved.
    let [old, older] = [66_000, 90_000].map(|ago| 1001u32.wrapping_sub(ago));
    let unfit = [("RA", 0, 1003), ("RA", 0, 900_000), ("FA", 700_000, 300_000)];
    for tracking in [Tracking::Strict, Tracking::Liberal] {
        let mut pair = Pair::firewall(tracking);
        let mut answered = |port: u16, (flags, sequence, acknowledgement)| {
            let host = format!("10.0.0.1:{port}");
            assert_eq!(pair.agree(INSIDE, Frame::tcp(&host, server).flags("S").numbers(1000, 0)).len(), 1);
            pair.agree(OUTSIDE, Frame::tcp(server, &host).flags(flags).numbers(sequence, acknowledgement)).len()
        };
        for (port, answer) in (2000..).zip(fit.into_iter().chain([("RA", 0, old), ("RA", 0, older)])) {
            assert_eq!(answered(port, answer), 1, "{tracking:?}: {answer:?} fits");
        }
        // A liberal kernel lets through what does not fit.
        if tracking == Tracking::Strict {
            for (port, answer) in (3000..).zip(unfit) {
                assert_eq!(answered(port, answer), 0, "{answer:?} does not fit");
            }
        }
    }
}

/// Who opens a connection can ask again or give up, and nothing else.
#[test]
fn what_an_opener_says_before_it_is_answered_meets_the_same_as_in_the_kernel() {
    if skipped("what_an_opener_says_before_it_is_answered_meets_the_same_as_in_the_kernel") {
        return;
    }
    let says = [("A", 0), ("PA", 0), ("FA", 0), ("SA", 0), ("S", 1), ("R", 1)];
    for tracking in [Tracking::Strict, Tracking::Liberal] {
        let mut pair = Pair::firewall(tracking);
        for (port, (flags, expected)) in (2000..).zip(says) {
            let (host, server) = (format!("10.0.0.1:{port}"), "192.0.2.9:80");
            let out = |flags: &str, number| Frame::tcp(&host, server).flags(flags).numbers(number, 0);
            assert_eq!(pair.agree(INSIDE, out("S", 1000)).len(), 1);
            let number = if flags == "S" { 1000 } else { 1001 };
            assert_eq!(pair.agree(INSIDE, out(flags, number)).len(), expected, "{tracking:?}: {flags}");
        }
    }
}

/// A frame with two bytes of its IP packet written over: lengths that contradict the rest. The checksum of the IP header is right.
fn with_word(frame: Frame, at: usize, word: u16) -> Vec<u8> {
    let mut bytes = frame.bytes();
    bytes[14 + at..16 + at].copy_from_slice(&word.to_be_bytes());
    bytes[24..26].fill(0);
    let sum = checksum::ipv4_header(&bytes[14..34]);
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Where the length of the IP header, that of UDP, and the length of the header of TCP beside its flags stand.
const TOTAL: usize = 2;
const UDP_LENGTH: usize = 24;
const TCP_HEADER: usize = 32;

#[test]
fn lengths_that_contradict_each_other_meet_the_same_as_in_the_kernel() {
    if skipped("lengths_that_contradict_each_other_meet_the_same_as_in_the_kernel") {
        return;
    }
    let (host, server, ack) = ("10.0.0.1:1100", "192.0.2.9:80", 0x10);
    for mut pair in [Pair::firewall(Tracking::Liberal), Pair::nat()] {
        let out = |flags: &str, seq, ack| Frame::tcp(host, server).flags(flags).numbers(seq, ack).payload(&[1; 20]);
        pair.agree(INSIDE, Frame::tcp(host, server).flags("S").numbers(1000, 0));
        let back = if pair.is_nat { "198.51.100.2:1100" } else { host };
        pair.agree(OUTSIDE, Frame::tcp(server, back).flags("SA").numbers(5000, 1001));
        assert_eq!(pair.agree(INSIDE, out("A", 1001, 5001)).len(), 1);
        for (at, word) in
            [(TOTAL, 19), (TOTAL, 24), (TOTAL, 39), (TCP_HEADER, 0x4000 | ack), (TCP_HEADER, 0xb000 | ack)]
        {
            pair.refuse(INSIDE, &with_word(out("A", 1021, 5001), at, word));
        }
        assert_eq!(pair.agree(INSIDE, out("A", 1021, 5001)).len(), 1);
    }
    let (mut pair, out) = (Pair::nat(), || Frame::udp(host, server).payload(&[1; 20]));
    assert_eq!(pair.agree(INSIDE, out()).len(), 1);
    for (at, word) in [(TOTAL, 19), (TOTAL, 24), (UDP_LENGTH, 0), (UDP_LENGTH, 7), (UDP_LENGTH, 29)] {
        pair.refuse(INSIDE, &with_word(out(), at, word));
    }
    assert_eq!(pair.agree(INSIDE, out()).len(), 1);
}
