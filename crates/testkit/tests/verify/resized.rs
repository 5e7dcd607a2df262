//! Room for packet sets changed again and again in the middle of certified runs: no packet and no set may tell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_control::certify::{Meanwhile, Request, certify_run};
use braid_control::frames::Frames;
use braid_control::profile::certificate::Certificate;
use braid_functions::find;
use braid_io::generate::{GenConfig, Generator};
use braid_runtime::exchange::{Difference, exchange};
use braid_runtime::{Full, Live, Plan};

use crate::certify::{busy, input};
use crate::generated::MIXES;
use crate::run::Case;

/// Room for packet sets is changed while packets go through, from more to less and back, as often as it goes.
fn resized(plan: &Plan, chain: &str, frames: &Frames) -> (Certificate, usize, usize) {
    let (changes, moved) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let now = Mutex::new(plan.clone());
    let change = |live: &Live| {
        let mut now = now.lock().expect("nobody has panicked");
        for sets in [plan.sets / 3, plan.sets * 2 / 3, plan.sets, plan.sets / 2] {
            let plan = Plan { sets, ..now.clone() };
            // What does not fit is refused, and what has ended cannot be changed.
            if let Ok(exchanged) = exchange(live, &now, &plan, Difference::Sets) {
                changes.fetch_add(1, Ordering::Relaxed);
                moved.fetch_add(exchanged.moving, Ordering::Relaxed);
                *now = plan;
            }
        }
    };
    let meanwhile = Some(Meanwhile(&change));
    // Odd seeds are on real threads.
    let request = Request { frames, input: "a mix", runs: 1, seed: 1, watchdog: None, meanwhile };
    let certificate = certify_run(plan, vec![chain.to_owned()], request, &mut |_| {}).expect("it runs");
    (certificate, changes.into_inner(), moved.into_inner())
}

#[test]
fn tables_of_another_size_in_the_middle_of_a_run_are_seen_by_no_packet() {
    const PACKETS: u64 = 50_000;
    let (mut changes, mut moved) = (0, 0);
    for name in ["flow_counter", "firewall", "nat"] {
        let entry = find(name).expect("it is in the catalogue");
        let config = GenConfig { reverse: 0.3, flows: 3000, ipv6: 0.3, ..MIXES[0].config(PACKETS) };
        let frames = input(entry, &mut Generator::new(config).expect("a mix of the tests"), PACKETS as usize);
        for full in [Full::Refuse, Full::EvictOldest] {
            let mut plan = Case { sets: 6144, ..Case::of(entry, busy(name), 2) }.plan();
            plan.course.full = vec![full];
            let (certificate, changed, sets) = resized(&plan, name, &frames);
            assert!(certificate.holds(), "{certificate}");
            eprintln!("{name}, {full:?}: {changed} changes, {sets} sets moved: holds");
            (changes, moved) = (changes + changed, moved + sets);
        }
    }
    assert!(changes > 2 && moved > 100, "{changes} changes, {moved} sets moved");
}
