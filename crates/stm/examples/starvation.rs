//! One worker's long transactions against another worker's storm of short ones.
//!
//! `cargo run --release -p braid-stm --example starvation [SECONDS]`
//!
//! The long transaction reads all cells and changes one; a short one changes one cell, so that hardly any attempt of the long
//! one stays valid on its own. After [`PATIENCE`] aborts it takes its turn. Progress is the number of committed accesses per
//! second of the worker's own processor time, so that other work on the machine does not change the ratio. The NFOS runtime
//! achieves 0.002 on the same work.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_memory::thread_time;
use braid_stm::{Arena, ArenaInit, Conflict, Domain, HugePages, ObjectInfo, Op, PATIENCE, Part, Tx};

const CELLS: u32 = 512;
const READ: Op = Op::new(1);
const WRITE: Op = Op::new(2);

/// What a worker has done.
#[derive(Default)]
struct Work {
    committed: u64,
    attempts: u64,
    /// Attempts of the transaction that needed most.
    worst: u64,
    turns: u64,
    seconds: f64,
}

fn change(tx: &mut Tx, cells: &Arena, cell: u32) -> Result<(), Conflict> {
    tx.update_ref(cells, cell, WRITE)?[0] += 1;
    Ok(())
}

fn long(tx: &mut Tx, cells: &Arena, cell: u32) -> Result<(), Conflict> {
    for cell in 0..CELLS {
        tx.read::<1>(cells, cell, READ)?;
    }
    change(tx, cells, cell)
}

/// Runs transactions one after another until the time is up.
fn work(
    mut tx: Tx,
    cells: &Arena,
    stop: &AtomicBool,
    transaction: fn(&mut Tx, &Arena, u32) -> Result<(), Conflict>,
) -> Work {
    let (begun, mut work, mut random) = (thread_time(), Work::default(), 88_172_645_463_325_252u64);
    while !stop.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let cell = (random >> 32) as u32 % CELLS;
        let mut attempts = 1;
        while transaction(&mut tx, cells, cell).and_then(|()| tx.commit()).is_err() {
            tx.abort();
            attempts += 1;
        }
        work.committed += 1;
        work.attempts += attempts;
        work.worst = work.worst.max(attempts);
    }
    Work { turns: tx.stats().turns, seconds: (thread_time() - begun).as_secs_f64(), ..work }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(3.0);
    let domain = Domain::new(2);
    let object = domain.register(ObjectInfo { name: "cells".into(), kind: "cells" });
    let init = ArenaInit { object, part: Part(0), objects: CELLS, payload_words: 1, pages: HugePages::Never };
    let cells = Arena::new(&domain, init).expect("32 KiB");
    let (stop, start) = (AtomicBool::new(false), Barrier::new(3));
    let [storm, beside] = std::thread::scope(|scope| {
        let run = |worker, transaction| {
            let (domain, cells, stop, start) = (&domain, &cells, &stop, &start);
            scope.spawn(move || {
                start.wait();
                work(Tx::new(domain, worker), cells, stop, transaction)
            })
        };
        let threads = [run(0, change), run(1, long)];
        start.wait();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        threads.map(|thread| thread.join().expect("no panic"))
    });
    println!(
        "{:<34} {:>12} {:>12} {:>9} {:>10} {:>16}",
        "", "committed", "attempts", "at most", "turns", "accesses/µs"
    );
    let progress = |work: &Work, accesses: u32| (work.committed * u64::from(accesses)) as f64 / work.seconds / 1e6;
    let rows = [("short: changes a cell", &storm, 1), ("long: reads 512 cells, changes one", &beside, CELLS + 1)];
    for (name, work, accesses) in rows {
        let Work { committed, attempts, worst, turns, .. } = work;
        println!("{name:<34} {committed:>12} {attempts:>12} {worst:>9} {turns:>10} {:>16.2}", progress(work, accesses));
    }
    let ratio = progress(&beside, CELLS + 1) / progress(&storm, 1);
    println!("\nprogress of the long one: {ratio:.2} of the other's (at least 0.5 is promised)");
    println!("stated bound: {PATIENCE} attempts, its turn, and one more for each other worker: {}", PATIENCE + 2);
    assert!(ratio >= 0.5 && beside.worst <= u64::from(PATIENCE) + 2, "the promise is broken");
}
