//! The shaper beside Linux' HTB: the same loads through both, and who got how much:
//! `cargo build --release -p braid-cli && cargo run --release -p braid-cli --example beside_htb [SECONDS]`.
//!
//! Three network namespaces on two veth cables. The one in the middle is a bridge of the kernel with HTB on its way out, or
//! `braid run --nf shaper` by AF_PACKET; a sender offers each of four hosts a load, and the far end counts bytes by host. A third column is
//! the shaper on the same packets in capture time, where the schedule is exact and nothing else runs. Rates are counted after the first half second, so that
//! bursts are not in them; they stand in a row of their own.
//!
//! Needs root, iproute2, a kernel with HTB (CONFIG_NET_SCH_HTB, CONFIG_NET_CLS_U32, CONFIG_NET_SCH_FIFO) and the binary beside this one.

mod loads;
mod scene;

use std::time::Duration;

use loads::LOADS;
use scene::Counted;

/// Whatever went wrong.
type Failure = Box<dyn std::error::Error>;

/// How long a load lasts, and what of its beginning is not counted.
const SECONDS: u64 = 4;
const WARMING: Duration = Duration::from_millis(500);

fn main() -> Result<(), Failure> {
    let seconds = std::env::args().nth(1).map_or(Ok(SECONDS), |text| text.parse())?;
    let processors = std::thread::available_parallelism()?;
    let busy = std::fs::read_to_string("/proc/loadavg")?;
    println!(
        "{processors} processors, load before: {}; thousands of bytes a second for four hosts, {seconds} s a load",
        busy.trim()
    );
    println!("{:<44} {:>24} {:>24} {:>24} {:>24}", "", "offered", "HTB", "shaper", "shaper, capture time");
    let (mut worst, mut worst_together) = (0.0_f64, 0.0_f64);
    for load in LOADS {
        let lasting = Duration::from_secs(seconds);
        let htb = scene::by_htb(load, lasting)?;
        let ours = scene::by_shaper(load, lasting)?;
        let exact = scene::in_capture_time(load, lasting)?;
        let columns = [load.offered.map(|n| n as f64), htb.rates, ours.rates, exact.rates].map(written);
        println!("{:<44} {:>24} {:>24} {:>24} {:>24}", load.name, columns[0], columns[1], columns[2], columns[3]);
        let bursts = [&htb, &ours, &exact].map(|counted: &Counted| format!("{} bytes", counted.burst));
        println!("{:<44} {:>24} {:>24} {:>24} {:>24}", "  in the first 20 ms", "", bursts[0], bursts[1], bursts[2]);
        let (a, b) = (htb.rates.iter().sum::<f64>(), ours.rates.iter().sum::<f64>());
        worst_together = worst_together.max((a - b).abs() / a);
        worst = htb
            .rates
            .iter()
            .zip(ours.rates)
            .map(|(a, b)| (a - b).abs() / htb.rates.iter().sum::<f64>())
            .fold(worst, f64::max);
    }
    println!(
        "furthest apart: {:.1} % of the link for one host, {:.1} % together",
        worst * 100.0,
        worst_together * 100.0
    );
    Ok(())
}

fn written(rates: [f64; 4]) -> String {
    rates.map(|rate| format!("{rate:.0}")).join(" ")
}
