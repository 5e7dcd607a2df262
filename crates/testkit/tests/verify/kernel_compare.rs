//! `bridge`, `router`, `policer`, `firewall`, `nat` and both as a gateway against the Linux kernel, packet by packet: the same decision, the same ports, the same bytes.
//!
//! Compared are captures of the project and, where they are, shared ones. What is left out, each with its reason:
//!
//! - Fragments (the kernel holds them until all are there), wrong checksums and connections first seen by FIN or RST (invalid
//!   for the kernel): [`Screen`] names them.
//! - Packets that stay on one side, multicast and broadcast: they are routed by neither, and bridged by ours.
//! - Packets with a time to live below 2: both answer, each in its own name.
//! - Frames above 1514 bytes: the oracle's devices have an MTU of 1500, ours have none.
//!
//! Connection tracking is liberal: ours judges neither checksums nor TCP windows. An invalid packet that the kernel's NAT sends out
//! untranslated, with an inside address, is dropped by ours.
//!
//! Both see no time pass: the kernel has its own clock, so ours is held.
//!
//! Ethernet addresses of routed packets are not compared: the kernel writes those of its neighbours, ours keeps the frame's.

mod bridge;
mod counts;
mod edits;
mod endings;
mod generators;
mod known;
mod made;
mod marks;
mod numbers;
mod routers;
mod rulesets;
mod segments;
mod sets;
mod translators;

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use braid_functions::find;
use braid_io::capture::{CaptureSource, PortSplit};
use braid_io::{FrameStream, Next};
use braid_packet::Prefix;
use braid_packet::{Link, PortSet};
use braid_runtime::{Course, Order};
use braid_testkit::Bench;
use braid_testkit::kernel::{INSIDE, KernelOracle, OUTSIDE, Replies, Screen, Tracking, network_packet};
use braid_testkit::skip::{note, skip};
use pcap_file::pcapng::PcapNgReader;

use braid_testkit::captures::{Capture, captures, recorded};

const OFFICE: &[&str] = &["10.1.0.0/24", "fd00:1::/64"];
const PRIVATE: &[&str] = &["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"];
const NAT_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const FRAME_MAX: usize = 1514;

/// True, and said so, if there is no oracle on this machine.
fn skipped(test: &str) -> bool {
    KernelOracle::probe().inspect_err(|reason| skip(test, reason)).is_err()
}

fn bench(function: &str, config: &str, ports: u16) -> Bench {
    let entry = find(function).expect("a function of the catalogue");
    let build = |builder: &mut _| (entry.build)(function, config.parse().expect("TOML"), builder, ports);
    Bench::with_sets(ports, 1 << 16, |builder| build(builder).expect("a configuration of the tests"))
}

/// Ethernet frames of a capture with their ports, as far as the oracle's devices take them.
fn frames(path: &Path, split: PortSplit) -> Vec<(u16, Vec<u8>)> {
    let mut stream = CaptureSource::new(vec![path.to_owned()]).split(split).into_stream().expect("a capture");
    let mut frames = Vec::new();
    while let Next::Frame = stream.advance() {
        let (bytes, info) = stream.frame();
        if info.link == Link::Ethernet && (14..=FRAME_MAX).contains(&bytes.len()) {
            frames.push((info.port, bytes.to_vec()));
        }
    }
    frames
}

/// The shared captures to compare: whole, on Ethernet, of real programs, not long.
fn shared(test: &str) -> Vec<Capture> {
    let fits = |capture: &Capture| {
        capture.text("error").is_empty() && capture.text("link") == "EN10MB" && capture.count("packets") < 3000
    };
    let real = |capture: &Capture| matches!(capture.text("category"), "realistic" | "mixed" | "dpi" | "feature");
    captures(test).into_iter().filter(|capture| fits(capture) && real(capture) && capture.is_in_sample(40)).collect()
}

/// What differs, and how much was compared.
#[derive(Default)]
struct Comparison {
    equal: usize,
    differences: Vec<String>,
}

impl Comparison {
    /// Compares what kernel and ours sent because of the same frame.
    fn note(&mut self, what: &str, kernel: &[(usize, Vec<u8>)], ours: &[(usize, Vec<u8>)], dropped: Option<&str>) {
        if kernel == ours {
            self.equal += 1;
            return;
        }
        let show = |sent: &[(usize, Vec<u8>)]| {
            sent.iter().map(|(port, bytes)| format!("{port}:{}", hex(bytes))).collect::<Vec<_>>().join(" ")
        };
        self.differences.push(format!(
            "{what}\n  kernel {}\n  ours   {} {}",
            show(kernel),
            show(ours),
            dropped.unwrap_or("")
        ));
    }

    /// Compares two gateways on the packets of a capture that cross them and that `is_fit` admits.
    fn of_gateways(
        &mut self,
        path: &Path,
        name: &str,
        inside: &[&str],
        (kernel, ours): (&mut KernelOracle, &mut Bench),
        mut is_fit: impl FnMut(&[u8]) -> bool,
    ) {
        let inside = prefixes(inside);
        for (n, (_, frame)) in frames(path, PortSplit::Single).iter().enumerate() {
            let (true, Some(port)) = (is_fit(frame), way(frame, &inside)) else { continue };
            let expected = packets(kernel.feed(port, frame).expect("the kernel takes it"));
            let outcome = ours.send(port as u16, 0, frame);
            let sent = packets(by_port(outcome.sent));
            self.note(&format!("{name} frame {n}: {}", hex(frame)), &expected, &sent, outcome.dropped);
        }
        assert_eq!(kernel.noise(), 0);
    }

    #[track_caller]
    fn check(&self, least: usize) {
        let few = self.differences.iter().take(8).map(String::as_str).collect::<Vec<_>>().join("\n");
        assert!(self.differences.is_empty(), "{} of {} differ\n{few}", self.differences.len(), self.equal);
        assert!(self.equal >= least, "only {} packets compared", self.equal);
        eprintln!("{} packets decided alike", self.equal);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect()
}

/// What a bench sent, by port.
fn by_port(sent: Vec<(u16, Vec<u8>)>) -> Vec<(usize, Vec<u8>)> {
    let mut sent: Vec<_> = sent.into_iter().map(|(port, bytes)| (usize::from(port), bytes)).collect();
    sent.sort();
    sent
}

/// Only the network packets of what was sent: padding and Ethernet addresses left out.
fn packets(sent: Vec<(usize, Vec<u8>)>) -> Vec<(usize, Vec<u8>)> {
    sent.into_iter().map(|(port, frame)| (port, network_packet(&frame).unwrap_or(&frame).to_vec())).collect()
}

/// Which way a packet crosses a router with these prefixes inside; none if it does not.
fn way(frame: &[u8], inside: &[Prefix]) -> Option<usize> {
    let packet = network_packet(frame)?;
    let (source, destination, hops) = match packet[0] >> 4 {
        4 => (v4(&packet[12..16]), v4(&packet[16..20]), packet[8]),
        _ => (v6(&packet[8..24]), v6(&packet[24..40]), packet[7]),
    };
    let is_inside = |address: IpAddr| inside.iter().any(|prefix| prefix.contains(address.into()));
    if hops < 2 || !is_routed(source) || !is_routed(destination) {
        return None;
    }
    match (is_inside(source), is_inside(destination)) {
        (true, false) => Some(INSIDE),
        (false, true) => Some(OUTSIDE),
        _ => None,
    }
}

/// Whether a router forwards packets from and to the address: no multicast, loopback, link scope, "this network", class E.
fn is_routed(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [first, ..] = v4.octets();
            first != 0 && first < 224 && !v4.is_loopback() && !v4.is_link_local() && v4.octets()[..2] != [198, 18]
        }
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_loopback() && !v6.is_unspecified() && v6.segments()[0] != 0xfe80,
    }
}

fn v4(bytes: &[u8]) -> IpAddr {
    Ipv4Addr::from(<[u8; 4]>::try_from(bytes).expect("four bytes")).into()
}

fn v6(bytes: &[u8]) -> IpAddr {
    Ipv6Addr::from(<[u8; 16]>::try_from(bytes).expect("sixteen bytes")).into()
}

fn prefixes(inside: &[&str]) -> Vec<Prefix> {
    inside.iter().map(|prefix| prefix.parse().expect("a prefix")).collect()
}

/// Recorded captures with gateways between their hosts.
const RECORDED: [&str; 3] = ["office.pcapng", "dns.pcap.gz", "scan.pcap"];

/// Does something with recorded captures and the shared ones: path, name, prefixes inside.
fn on_captures(test: &str, names: &[&str], mut each: impl FnMut(&Path, &str, &[&str])) {
    for name in names {
        each(&recorded(name), name, OFFICE);
    }
    for capture in shared(test) {
        each(&capture.path, &capture.name, PRIVATE);
    }
}

fn compare_firewalls(path: &Path, name: &str, inside: &[&str], tracking: Tracking, comparison: &mut Comparison) {
    let mut kernel = KernelOracle::firewall(inside, tracking).expect("probed");
    // As the kernel's tracking by default: connections may begin in their middle, and a router counts hops.
    let windows = if tracking == Tracking::Strict { "strict" } else { "liberal" };
    let mut ours = bench("firewall", &format!("loose = true\nttl = 'decrement'\nwindows = '{windows}'"), 2);
    let mut screen = Screen::default();
    comparison.of_gateways(path, name, inside, (&mut kernel, &mut ours), |frame| screen.objection(frame).is_none());
}

#[test]
fn the_firewall_decides_as_the_kernel_does() {
    let test = "the_firewall_decides_as_the_kernel_does";
    if skipped(test) {
        return;
    }
    for tracking in [Tracking::Liberal, Tracking::Strict] {
        let mut comparison = Comparison::default();
        on_captures(test, &RECORDED, |path, name, inside| {
            compare_firewalls(path, name, inside, tracking, &mut comparison);
        });
        comparison.check(4000);
    }
}

/// A table with chains, jumps, sets and maps, as it is.
#[test]
fn the_firewall_decides_by_a_table_of_nftables_as_the_kernel_does() {
    let test = "the_firewall_decides_by_a_table_of_nftables_as_the_kernel_does";
    if skipped(test) {
        return;
    }
    const TABLE: &str = include_str!("kernel_compare/table.nft");
    // Not every kernel can log.
    if let Err(reason) = KernelOracle::ruleset(&["10.0.0.0/8"], TABLE) {
        note(test, &reason);
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify/kernel_compare/table.nft");
    let config = format!(
        "rules_file = {path:?}\ninterfaces = ['inside', 'outside']\nloose = true\nttl = 'decrement'\nwindows = 'liberal'"
    );
    let mut comparison = Comparison::default();
    for name in RECORDED {
        let mut kernel = KernelOracle::ruleset(OFFICE, TABLE).expect("probed");
        let (mut ours, mut screen) = (bench("firewall", &config, 2), Screen::default());
        let gateways = (&mut kernel, &mut ours);
        comparison.of_gateways(&recorded(name), name, OFFICE, gateways, |frame| screen.objection(frame).is_none());
    }
    comparison.check(4000);
}
