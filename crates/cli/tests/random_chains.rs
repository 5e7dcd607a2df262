//! Random chains on random traffic: whatever the functions are, what comes out must not depend on the size of batches or the number of workers, all
//! packets are accounted for, and what was sent has correct checksums.
//!
//! `BRAID_CHAINS=FIRST..END` tries other seeds than the fixed ones; a failure names its seed, and with `BRAID_CHAINS_KEEP` its plan and captures stay.

mod support;

use std::ops::Range;
use std::path::Path;

use braid_cli::control::runtime::io::capture::{CaptureReader, CaptureWriter, Precision};
use braid_cli::control::runtime::nf::packet::{Flags, FrameInfo, Link, parse};
use braid_testkit::{Frame, check_checksums};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use support::{Braid, conserved};

const SEEDS: Range<u64> = 0..6;
const PACKETS: u64 = 300;
const EXTERNAL: [&str; 3] = ["198.51.100.1", "198.51.100.2", "198.51.100.3"];
const SERVICE: &str = "203.0.113.10";

/// Functions with configurations that let a part of this traffic pass.
const FUNCTIONS: [(&str, &str); 22] = [
    ("flow_counter", ""),
    ("flow_counter", "[nf.packet_set]\nfields = [\"ip.src\"]\n"),
    ("rate_limiter", "[nf.config]\nbytes_per_s = 20_000\nburst_bytes = 3_000\n"),
    ("policer", "[nf.config]\nbytes_per_s = 60_000\nburst_bytes = 4_000\n"),
    ("shaper", "[nf.config]\nbytes_per_s = 200_000\n"),
    ("anti_ddos", ""),
    ("anti_ddos", "[nf.config]\naction = \"cookies\"\n"),
    ("nat", ""),
    ("nat", "[nf.config]\nexternal = [\"198.51.100.1\", \"198.51.100.2\"]\nfiltering = \"address_dependent\"\n"),
    (
        "nat",
        "[nf.config]\nexternal = [\"198.51.100.3\"]\nallocation = \"blocks\"\nblock_size = 64\nhairpins = \"through\"\n",
    ),
    ("nat64", "[nf.config]\nexternal = [\"198.51.100.9\"]\n"),
    ("nptv6", ""),
    ("firewall", ""),
    (
        "firewall",
        "[nf.config]\nrules = [{ action = \"allow\", direction = \"inbound\", protocol = \"udp\", destination_ports = \"1-1024\" }]\n",
    ),
    (
        "load_balancer",
        "[[nf.config.service]]\naddress = \"203.0.113.10\"\nport = 80\nbackends = [{ address = \"10.0.0.1\" }, { address = \"10.0.0.2\" }]\n",
    ),
    ("port_scan", ""),
    ("heavy_hitters", ""),
    ("connection_limiter", "[nf.config]\nconnections_max = 6\n"),
    ("dns_tunnel", ""),
    ("protocol_classifier", ""),
    ("asset_monitor", ""),
    ("abacus", ""),
];

#[test]
fn no_chain_depends_on_batches_or_workers() {
    let seeds = match std::env::var("BRAID_CHAINS") {
        Ok(range) => {
            let (first, end) = range.split_once("..").expect("FIRST..END");
            first.parse().expect("a number")..end.parse().expect("a number")
        }
        Err(_) => SEEDS,
    };
    let failed: Vec<String> = seeds.filter_map(|seed| check(seed).err()).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Runs the chain of a seed in several ways; an error says where they differ.
fn check(seed: u64) -> Result<(), String> {
    let mut random = SmallRng::seed_from_u64(seed);
    let braid = match std::env::var_os("BRAID_CHAINS_KEEP") {
        Some(folder) => {
            let folder = Path::new(&folder).join(seed.to_string());
            std::fs::create_dir_all(&folder).expect("a folder");
            Braid::at(folder)
        }
        None => Braid::new(),
    };
    let plan = plan(&mut random);
    braid.write("plan.toml", &plan);
    let failed = |what: String| format!("seed {seed}: {what}\n{plan}");
    // What arrives with a wrong checksum leaves with one, so only half of the seeds have such packets.
    let with_damage = seed % 2 == 1;
    write(&braid, &mut random, with_damage);
    let whole = run(&braid, 128, 1).map_err(failed)?;
    for (_, frame) in whole.iter().flatten().filter(|_| !with_damage) {
        check_checksums(frame).map_err(|what| failed(format!("{what} in {frame:02x?}")))?;
    }
    for (batch, workers) in [(1, 1), (128, 2)] {
        let other = run(&braid, batch, workers).map_err(failed)?;
        compare(&by_flow(&whole), &by_flow(&other))
            .map_err(|what| failed(format!("batch {batch}, {workers} workers: {what}")))?;
    }
    let output = braid.run("certify plan.toml --in 0=in0.pcapng --in 1=in1.pcapng --workers 4 --runs 5 --sets 4096");
    if !output.status.success() {
        return Err(failed(format!("no certificate: {}", String::from_utf8_lossy(&output.stdout))));
    }
    Ok(())
}

/// A chain of two to four functions.
fn plan(random: &mut SmallRng) -> String {
    let mut plan = "ports = 2\n".to_owned();
    for n in 0..random.random_range(2..5) {
        let (function, config) = FUNCTIONS.choose(random).expect("functions");
        plan += &format!("[[nf]]\nname = \"n{n}\"\nfunction = \"{function}\"\n{config}");
    }
    plan
}

/// What comes out of each port: time and bytes of each packet.
type Sent = [Vec<(u64, Vec<u8>)>; 2];

fn run(braid: &Braid, batch: usize, workers: usize) -> Result<Sent, String> {
    let line = format!(
        "run plan.toml --in 0=in0.pcapng --in 1=in1.pcapng --out 0=out0.pcapng --out 1=out1.pcapng --in-order --json --sets 4096 --batch {batch} --workers {workers}"
    );
    let output = braid.run(&line);
    if !output.status.success() {
        return Err(format!("braid {line}\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let report = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    conserved(&report);
    Ok([0, 1].map(|port| read(&braid.path(&format!("out{port}.pcapng")))))
}

/// What differs first.
fn compare(whole: &Sent, other: &Sent) -> Result<(), String> {
    for (port, (whole, other)) in whole.iter().zip(other).enumerate() {
        if let Some((one, other)) = whole.iter().zip(other).find(|(one, other)| one != other) {
            return Err(format!("port {port} sends\n{:02x?}, not\n{:02x?}", other.1, one.1));
        }
        if whole.len() != other.len() {
            return Err(format!("port {port} sends {} packets, not {}", other.len(), whole.len()));
        }
    }
    Ok(())
}

/// The packets of each flow in their order. What comes last in a batch belongs to no flow and is sorted: pieces that waited for others, and errors.
fn by_flow(sent: &Sent) -> Sent {
    let flow = |frame: &[u8]| {
        let found = parse(frame, Link::Ethernet);
        let (l3, l4) = (usize::from(found.l3), usize::from(found.l3) + 4 * usize::from(found.l4));
        let has_ports = matches!(found.proto, 6 | 17) && !found.flags.has(Flags::FRAGMENT | Flags::LATER_FRAGMENT);
        let addresses = if found.flags.has(Flags::V6) { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
        Some((found.proto, frame.get(addresses)?.to_vec(), frame.get(l4..l4 + 4)?.to_vec())).filter(|_| has_ports)
    };
    let ordered = |(at, (_, frame)): (usize, &(u64, Vec<u8>))| {
        let flow = flow(frame);
        (flow.as_ref().map_or(0, |_| at), flow, frame.clone())
    };
    [0, 1].map(|port| {
        let mut frames: Vec<_> = sent[port].iter().enumerate().map(ordered).collect();
        frames.sort_by(|one, other| (&one.1, one.0, &one.2).cmp(&(&other.1, other.0, &other.2)));
        frames.into_iter().map(|(_, _, frame)| (0, frame)).collect()
    })
}

fn read(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let mut reader = CaptureReader::open(path).expect("a capture");
    let mut frames = Vec::new();
    while reader.advance().expect("no damage") {
        let captured = reader.captured();
        frames.push((captured.timestamp_ns.expect("a time"), captured.bytes.to_vec()));
    }
    frames
}

/// Writes what arrives at each port.
fn write(braid: &Braid, random: &mut SmallRng, with_damage: bool) {
    let create = |name| CaptureWriter::create(&braid.path(name), Precision::Nanoseconds).expect("a capture");
    let mut writers = ["in0.pcapng", "in1.pcapng"].map(create);
    let mut now_ns = 1_000_000_000;
    let mut sequence = 0;
    while sequence < PACKETS {
        for (port, frame) in arrivals(random, with_damage) {
            now_ns += random.random_range(1..1_000_000);
            let info =
                FrameInfo { wire_len: frame.len() as u32, sequence, timestamp_ns: now_ns, ..FrameInfo::default() };
            writers[port].write(&frame, &info);
            sequence += 1;
        }
    }
    writers.iter_mut().for_each(|writer| writer.finish().expect("written"));
}

/// A few packets, of hosts that meet each other again and again.
fn arrivals(random: &mut SmallRng, with_damage: bool) -> Vec<(usize, Vec<u8>)> {
    let is_v6 = random.random_ratio(1, 4);
    let host = random.random_range(1..6);
    let (inside, outside, external) = if is_v6 {
        let inside = format!("[2001:db8:1::{host}]:{}", random.random_range(4000..4004));
        let outside = ["[2001:db8:f::1]:80", "[64:ff9b::192.0.2.1]:80", "[2001:db8:f::2]:53"].choose(random);
        (inside.clone(), (*outside.expect("one")).to_owned(), inside)
    } else {
        let port = if random.random_ratio(1, 4) { 80 } else { random.random_range(4000..4004) };
        let outside = ["192.0.2.1:80", "192.0.2.2:53", "192.0.2.3:4000", "198.51.100.1:4001"].choose(random);
        let external = match random.random_range(0..4) {
            0 => format!("10.0.0.{host}:{port}"),
            1 => format!("{SERVICE}:80"),
            _ => format!("{}:{port}", EXTERNAL.choose(random).expect("one")),
        };
        (format!("10.0.0.{host}:{port}"), (*outside.expect("one")).to_owned(), external)
    };
    let goes_out = random.random_bool(0.5);
    let (port, source, destination) =
        if goes_out { (0, inside.clone(), outside) } else { (1, outside.clone(), external) };
    let frame = packet(random, &source, &destination);
    let frames = match random.random_range(0..12) {
        0 => vec![error(&source, &destination)],
        1 if !is_v6 => pieces(random, &source, &destination),
        2 if with_damage => vec![damaged(random, frame)],
        _ => vec![frame],
    };
    frames.into_iter().map(|frame| (port, frame)).collect()
}

fn packet(random: &mut SmallRng, source: &str, destination: &str) -> Vec<u8> {
    let numbers: [u32; 2] = [random.random_range(0..3000), random.random_range(0..3000)];
    let len = random.random_range(80..400);
    match random.random_range(0..8) {
        0..4 => {
            let flags = ["S", "SA", "A", "A", "FA", "R"].choose(random).expect("one");
            Frame::tcp(source, destination).flags(flags).numbers(numbers[0], numbers[1]).len(len).bytes()
        }
        4..6 => Frame::udp(source, destination).len(len).bytes(),
        6 => Frame::echo_request(host(source), host(destination), 7, numbers[0] as u16).bytes(),
        _ => Frame::ip(host(source), host(destination), 47).payload(&[0, 0, 8, 0, 1, 2, 3, 4]).bytes(),
    }
}

/// An ICMP error from the packet's sender about a packet of its receiver.
fn error(source: &str, destination: &str) -> Vec<u8> {
    let quoted = Frame::udp(destination, source).bytes();
    Frame::unreachable(host(source), host(destination), &quoted).bytes()
}

/// Three pieces of a datagram in any order.
fn pieces(random: &mut SmallRng, source: &str, destination: &str) -> Vec<Vec<u8>> {
    let identification = random.random();
    let first = Frame::udp(source, destination).len(14 + 20 + 8 + 32).fragment(identification, 0, true).bytes();
    let piece = |offset, more| {
        let payload = [0xa5; 32];
        Frame::ip(host(source), host(destination), 17).payload(&payload).fragment(identification, offset, more).bytes()
    };
    let mut pieces = vec![first, piece(5, true), piece(9, false)];
    pieces.rotate_left(random.random_range(0..3));
    pieces
}

/// A packet cut off or with a wrong byte.
fn damaged(random: &mut SmallRng, mut frame: Vec<u8>) -> Vec<u8> {
    if random.random_bool(0.5) {
        frame.truncate(random.random_range(14..frame.len()));
    } else {
        let at = random.random_range(14..frame.len());
        frame[at] ^= 1 << random.random_range(0..8);
    }
    frame
}

/// The address of an endpoint.
fn host(endpoint: &str) -> &str {
    endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host.trim_matches(['[', ']']))
}
