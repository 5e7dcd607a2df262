//! The cost of a transaction by algorithm, in one run: the table of docs/decisions/0001-transactions.md.
//!
//! `cargo bench -p braid-stm` · all engines keep 16 bytes behind a header in a cache line of its own and do the same work:
//! per packet, one object is read, or read and written (or three are). `none` is relaxed loads and stores without any protection.

mod engines;

use std::time::Instant;

use braid_memory::thread_time;
use engines::{Engine, Lazy, Locks, None, Tl2, Work};

/// Number of objects that do not fit into any cache.
const MANY: u32 = 2_000_000;
/// Rounds of each cell; the best one counts, because a neighbour's load can only slow a round down.
const ROUNDS: usize = 7;

/// Number of threads, whether they use the same objects, and the label.
const PLACEMENTS: [(usize, bool, &str); 3] = [(1, false, "1"), (2, false, "2 disjoint"), (2, true, "2 shared")];

struct Random(u64);

impl Random {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * u64::from(n)) >> 32) as u32
    }
}

/// Returns the best processor time of one packet in ns, of the slower thread; processor time excludes neighbours on this machine.
fn measure<E: Engine>(engine: &E, threads: usize, shared: bool, batch: usize, work: Work, packets: usize) -> f64 {
    let objects = engine.objects();
    let round = || {
        let start = std::sync::Barrier::new(threads);
        let run = |thread: usize| {
            let (mut worker, mut random) = (engine.worker(thread), Random(0x9E37_79B9 + thread as u64 * 77));
            let (first, span) = match shared {
                true => (0, objects),
                false => (thread as u32 * (objects / threads as u32), objects / threads as u32),
            };
            let mut indices = vec![0u32; batch * work.objects()];
            start.wait();
            let begin = thread_time();
            for _ in 0..packets / batch {
                for index in &mut indices {
                    *index = first + random.below(span);
                    engine.prefetch(*index);
                }
                engine.batch(&mut worker, &indices, work);
            }
            (thread_time() - begin).as_nanos() as f64
        };
        std::thread::scope(|scope| {
            let run = &run;
            let others: Vec<_> = (1..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            let here = run(0);
            others.into_iter().map(|other| other.join().expect("a bench thread ends")).fold(here, f64::max)
        })
    };
    (0..ROUNDS).map(|_| round()).fold(f64::MAX, f64::min) / packets as f64
}

fn main() {
    let ghz = gigahertz();
    println!("machine: {} · {} CPUs · time-stamp counter {ghz:.2} GHz · commit {}", model(), cpus(), commit());
    println!("{}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());

    println!("\n### In first-level cache, 256 objects, one thread: cycles per transaction\n");
    println!(
        "| engine | empty | 1 read | 32 reads | 1 read-write | 8 read-writes | 32 read-writes |\n|---|---|---|---|---|---|---|"
    );
    in_cache(&None::new(256), ghz);
    in_cache(&Lazy::new(256, 1), ghz);
    in_cache(&Tl2::new(256), ghz);
    in_cache(&Locks::new(256), ghz);

    println!("\n### 4096 objects at random, update one, a transaction per packet: ns per packet (each thread)\n");
    println!("| threads | engine none | lazy clock (ours) | TL2 | two-phase locks |\n|---|---|---|---|---|");
    let (none, lazy) = (None::new(4096), Lazy::new(4096, 2));
    let (tl2, locks) = (Tl2::new(4096), Locks::new(4096));
    for (threads, shared, name) in PLACEMENTS {
        row(
            name,
            [
                &|| measure(&none, threads, shared, 1, Work::Update, 1 << 19),
                &|| measure(&lazy, threads, shared, 1, Work::Update, 1 << 19),
                &|| measure(&tl2, threads, shared, 1, Work::Update, 1 << 19),
                &|| measure(&locks, threads, shared, 1, Work::Update, 1 << 19),
            ],
        );
    }

    println!("\n### {MANY} objects at random: ns per packet (each thread)\n");
    println!(
        "| work | batch | threads | engine none | lazy clock (ours) | TL2 | two-phase locks |\n|---|---|---|---|---|---|---|"
    );
    let none = None::new(MANY);
    let lazy = Lazy::new(MANY, 2);
    let (tl2, locks) = (Tl2::new(MANY), Locks::new(MANY));
    for work in [Work::Read, Work::Update, Work::UpdateThree] {
        for batch in [64, 128] {
            for (threads, shared, name) in PLACEMENTS {
                let packets = 1 << 19;
                let name = format!("{} | {batch} | {name}", work.name());
                row(
                    &name,
                    [
                        &|| measure(&none, threads, shared, batch, work, packets),
                        &|| measure(&lazy, threads, shared, batch, work, packets),
                        &|| measure(&tl2, threads, shared, batch, work, packets),
                        &|| measure(&locks, threads, shared, batch, work, packets),
                    ],
                );
            }
        }
    }
}

fn row(name: &str, cells: [&dyn Fn() -> f64; 4]) {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{:.1}", cell())).collect();
    println!("| {name} | {} |", cells.join(" | "));
}

fn in_cache<E: Engine>(engine: &E, ghz: f64) {
    let mut worker = engine.worker(0);
    let mut cell = |work: Work, per: usize| {
        let mut at = 0u32;
        let mut indices = vec![0u32; per];
        let mut best = f64::MAX;
        for _ in 0..200 {
            let begin = Instant::now();
            for _ in 0..500 {
                for index in &mut indices {
                    at = (at + 1) & 255;
                    *index = at;
                }
                engine.batch(std::hint::black_box(&mut worker), std::hint::black_box(&indices), work);
            }
            best = best.min(begin.elapsed().as_secs_f64() / 500.0);
        }
        best * 1e9 * ghz
    };
    let cells = [
        cell(Work::Read, 0),
        cell(Work::Read, 1),
        cell(Work::Read, 32),
        cell(Work::Update, 1),
        cell(Work::Update, 8),
        cell(Work::Update, 32),
    ];
    let cells: Vec<String> = cells.iter().map(|cycles| format!("{cycles:.1}")).collect();
    println!("| {} | {} |", E::NAME, cells.join(" | "));
}

fn cpuinfo(field: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(field))?;
    Some(line.split(':').nth(1)?.trim().to_string())
}

fn gigahertz() -> f64 {
    cpuinfo("cpu MHz").and_then(|mhz| mhz.parse::<f64>().ok()).map_or(1.0, |mhz| mhz / 1000.0)
}

fn model() -> String {
    cpuinfo("model name").unwrap_or_else(|| "unknown".into())
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    output.ok().and_then(|out| String::from_utf8(out.stdout).ok()).unwrap_or_default().trim().to_string()
}
