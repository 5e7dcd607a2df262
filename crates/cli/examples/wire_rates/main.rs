//! Packets a second of 64-byte frames for each back end, beside DPDK's testpmd on the same kind of wire:
//! `cargo run --release -p braid-cli --features dpdk --example wire_rates [ROUNDS]`; without the feature the rows of DPDK are empty.
//!
//! DPDK's testpmd sends as fast as it can; one process takes the frames from one wire to another: testpmd in io-forwarding, or
//! `braid run`, once untouched and once through firewall and NAT. Rows take turns (A B C, A B C, …), so that what else the machine
//! does meets all of them; printed are medians of the rounds, the ratio to testpmd of the same round, and the forwarder's
//! processor time for each packet. Loss is printed, not hidden: the sender does not wait.
//!
//! Needs root, iproute2, dpdk-testpmd, and the binary beside this one, built with the same features
//! (`cargo build --release -p braid-cli --features dpdk`). A row whose forwarder does not start says so.

mod programs;
mod scene;

use std::collections::BTreeMap;
use std::time::Duration;

use scene::{Figures, Medium};

/// How long each row sends in each round.
const SENDING: Duration = Duration::from_secs(3);
const ROUNDS: usize = 3;

/// Whatever went wrong.
type Failure = Box<dyn std::error::Error>;

/// What takes the frames from one wire to the other.
enum Forwarder {
    /// testpmd with these two devices.
    Testpmd([&'static str; 2]),
    /// `braid run` with these two ports and this chain.
    Braid([&'static str; 2], &'static str),
}

struct Row {
    name: String,
    medium: Medium,
    forwarder: Forwarder,
    /// Number of the row that it is compared with.
    beside: usize,
}

/// The first row of its wire and driver is testpmd's.
fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for (name, medium, testpmd, own) in WIRES {
        let beside = rows.len();
        let first = Forwarder::Testpmd(*testpmd);
        rows.push(Row { name: format!("testpmd {name}"), medium: *medium, forwarder: first, beside });
        for (back_end, ports) in *own {
            for (what, chain) in CHAINS {
                let forwarder = Forwarder::Braid(*ports, chain);
                rows.push(Row { name: format!("  {back_end}, {what}"), medium: *medium, forwarder, beside });
            }
        }
    }
    rows
}

/// What is done with the frames; those of testpmd begin inside.
const CHAINS: [(&str, &str); 2] =
    [("no-op", "--nf forward"), ("firewall + nat", "--nf firewall,nat --set nat.external=[\"198.51.100.1\"]")];

/// A back end and its two ports.
type Own = (&'static str, [&'static str; 2]);

/// Driver of testpmd, the wire, its two devices; Braid's back ends that are compared with it.
const WIRES: &[(&str, Medium, [&str; 2], &[Own])] = &[
    (
        "net_af_packet",
        Medium::Cable,
        ["net_af_packet0,iface=m0", "net_af_packet1,iface=m1"],
        &[
            ("af_packet", ["af_packet:m0", "af_packet:m1"]),
            ("dpdk net_af_packet", ["dpdk:net_af_packet0,iface=m0", "dpdk:net_af_packet1,iface=m1"]),
        ],
    ),
    (
        "net_af_xdp",
        Medium::Cable,
        ["net_af_xdp0,iface=m0", "net_af_xdp1,iface=m1"],
        &[
            ("af_xdp", ["af_xdp:m0", "af_xdp:m1"]),
            ("af_xdp generic", ["af_xdp:m0?mode=generic", "af_xdp:m1?mode=generic"]),
        ],
    ),
    (
        "net_memif",
        Medium::Memif,
        ["net_memif0,role=server,socket=A,socket-abstract=no", "net_memif1,role=server,socket=B,socket-abstract=no"],
        &[("memif", ["memif:A?role=server", "memif:B?role=server"])],
    ),
    ("net_tap", Medium::Tap, ["net_tap0,iface=m0", "net_tap1,iface=m1"], &[("tap", ["tap:m0", "tap:m1"])]),
];

fn main() -> Result<(), Failure> {
    let rounds = std::env::args().nth(1).map_or(Ok(ROUNDS), |text| text.parse())?;
    let processors = std::thread::available_parallelism()?;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("64-byte frames, one flow, one worker; {processors} processors, load before: {}", load.trim());
    println!("medians of {rounds} rounds in which the rows take turns, {} s each\n", SENDING.as_secs());
    let rows = rows();
    let mut found: BTreeMap<usize, Vec<Option<Figures>>> = BTreeMap::new();
    for round in 0..rounds {
        for (number, row) in rows.iter().enumerate() {
            let figures = scene::measure(row.medium, &row.forwarder, SENDING);
            if let Err(reason) = &figures {
                eprintln!("round {round}, {}: {reason}", row.name.trim());
            }
            found.entry(number).or_default().push(figures.ok());
        }
    }
    println!(
        "{:<32} {:>11} {:>11} {:>7} {:>9} {:>11}",
        "", "offered/s", "forwarded/s", "lost", "testpmd=1", "ns CPU each"
    );
    for (number, row) in rows.iter().enumerate() {
        print_row(row, &found[&number], &found[&row.beside]);
    }
    Ok(())
}

fn print_row(row: &Row, own: &[Option<Figures>], beside: &[Option<Figures>]) {
    let of = |figure: fn(&Figures) -> f64| median(own.iter().flatten().map(figure).collect());
    let pairs = own.iter().zip(beside).filter_map(|(own, beside)| Some((own.as_ref()?, beside.as_ref()?)));
    let ratio = median(pairs.map(|(own, beside)| own.forwarded / beside.forwarded.max(1.0)).collect());
    let (Some(offered), Some(forwarded), Some(lost), Some(cpu)) = (
        of(|figures| figures.offered),
        of(|figures| figures.forwarded),
        of(|figures| 100.0 * (1.0 - figures.forwarded / figures.offered.max(1.0)).max(0.0)),
        of(|figures| 1e9 * figures.cpu_seconds / figures.forwarded.max(1.0)),
    ) else {
        return println!("{:<32} does not run here", row.name);
    };
    let ratio = ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
    println!("{:<32} {offered:>11.0} {forwarded:>11.0} {lost:>5.1} % {ratio:>9} {cpu:>11.0}", row.name);
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
