//! Packets a second of 64-byte frames over veth cables, for each back end: `cargo run --release -p braid-cli --example wire_rates`, with
//! `--features dpdk` also by DPDK.
//!
//! DPDK's testpmd sends as fast as it can by a veth cable (net_af_packet) into a network namespace in which `braid run` takes the
//! frames to another cable, once untouched and once through firewall and NAT; a second testpmd is forwarded by DPDK's own net_af_packet in the
//! same run, and each rate is printed beside its. Needs root, iproute2, dpdk-testpmd, and the binary beside this one, built with the
//! same features (`cargo build --release -p braid-cli`). Loss is printed, not hidden: the sender does not wait. On a machine with other work
//! the figures say little; processors and load stand above them.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use braid_testkit::kernel::{Namespace, Unavailable};
use rustix::process::{Pid, Signal, kill_process};

const SENDING: Duration = Duration::from_secs(5);
/// How long testpmd may take to start.
const STARTING_MAX: Duration = Duration::from_secs(30);

fn main() -> Result<(), Failure> {
    let processors = std::thread::available_parallelism()?;
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("64-byte frames, one flow, one worker, {processors} processors, load before {}", load.trim());
    println!("{:<34} {:>12} {:>12} {:>12} {:>10}", "back end", "offered/s", "forwarded/s", "lost", "testpmd = 1");
    let testpmd = measure(|middle| testpmd(middle, &["m0", "m1"], "io"))?;
    print_row("testpmd (af_packet)", &testpmd, &testpmd);
    for (back_end, ports) in BACK_ENDS {
        for (name, chain) in CHAINS {
            let arguments = format!("{chain} {ports} --workers 1");
            let figures = measure(|middle| braid(middle, &arguments))?;
            print_row(&format!("{back_end}, {name}"), &figures, &testpmd);
        }
    }
    Ok(())
}

/// What is done with the frames; those of testpmd begin inside.
const CHAINS: [(&str, &str); 2] =
    [("no-op", "--nf forward"), ("firewall + nat", "--nf firewall,nat --set nat.external=[\"198.51.100.1\"]")];

const BACK_ENDS: &[(&str, &str)] = &[
    ("af_packet", "--port af_packet:m0 --port af_packet:m1"),
    ("af_xdp", "--port af_xdp:m0 --port af_xdp:m1"),
    ("af_xdp (generic)", "--port af_xdp:m0?mode=generic --port af_xdp:m1?mode=generic"),
    #[cfg(feature = "dpdk")]
    ("dpdk (af_packet)", "--port dpdk:net_af_packet0,iface=m0 --port dpdk:net_af_packet1,iface=m1"),
];

/// Packets that were offered to the machine between, and that it brought to its far end.
struct Figures {
    offered: u64,
    forwarded: u64,
}

fn print_row(name: &str, figures: &Figures, testpmd: &Figures) {
    let Figures { offered, forwarded } = figures;
    let rate = |count: u64| count as f64 / SENDING.as_secs_f64();
    // The two counters are read one after the other, so a little more may have come out than went in.
    let lost = 100.0 * (1.0 - *forwarded as f64 / (*offered).max(1) as f64).max(0.0);
    let ratio = *forwarded as f64 / testpmd.forwarded.max(1) as f64;
    println!("{name:<34} {:>12.0} {:>12.0} {lost:>10.1} % {ratio:>10.2}", rate(*offered), rate(*forwarded));
}

/// Whatever went wrong.
type Failure = Box<dyn std::error::Error>;

/// A program that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

/// A scene of its own: sender, machine between, far end.
fn measure(between: impl FnOnce(&Namespace) -> Result<Running, Failure>) -> Result<Figures, Failure> {
    let (near, middle, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    near.cable("c0", &middle, "m0")?;
    far.cable("s0", &middle, "m1")?;
    let _between = between(&middle)?;
    std::thread::sleep(Duration::from_secs(3));
    let before = received(&middle, "m0")?;
    let _sender = testpmd(&near, &["c0"], "txonly")?;
    // It begins in its own time, and what comes before it runs steadily does not count.
    let give_up = Instant::now() + STARTING_MAX;
    while received(&middle, "m0")? < before + 10_000 {
        if Instant::now() > give_up {
            return Err("testpmd sends nothing".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let begun = (received(&middle, "m0")?, received(&far, "s0")?);
    std::thread::sleep(SENDING);
    let ended = (received(&middle, "m0")?, received(&far, "s0")?);
    Ok(Figures { offered: ended.0 - begun.0, forwarded: ended.1 - begun.1 })
}

/// Packets that an interface has received, as the kernel counts them.
fn received(namespace: &Namespace, name: &str) -> Result<u64, Unavailable> {
    let text = namespace.run("ip", &format!("-s -o link show {name}"))?;
    let counts = text.split("RX:").nth(1).and_then(|rest| rest.split('\\').nth(1)).unwrap_or_default();
    Ok(counts.split_whitespace().nth(1).and_then(|count| count.parse().ok()).unwrap_or(0))
}

fn braid(middle: &Namespace, arguments: &str) -> Result<Running, Failure> {
    let folder: PathBuf = std::env::current_exe()?.ancestors().nth(2).ok_or("no folder")?.to_owned();
    let mut command = Command::new(folder.join("braid"));
    command.arg("run").args(arguments.split_whitespace());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running(middle.inside(|| command.spawn())?))
}

fn testpmd(namespace: &Namespace, interfaces: &[&str], mode: &str) -> Result<Running, Failure> {
    let mut command = Command::new("dpdk-testpmd");
    let prefix = format!("wire-{}-{}", std::process::id(), interfaces[0]);
    command.args(["--no-huge", "-m", "512", "--no-pci", "--file-prefix", &prefix]);
    for (number, interface) in interfaces.iter().enumerate() {
        command.arg(format!("--vdev=net_af_packet{number},iface={interface}"));
    }
    let mode = format!("--forward-mode={mode}");
    command.args(["--", "--total-num-mbufs=8192", "--txpkts=64", "--stats-period=3600", &mode]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(Running(namespace.inside(|| command.spawn())?))
}
