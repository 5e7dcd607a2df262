//! Room for packet sets, and state objects, of another size again and again in the middle of certified runs: no packet and no set may
//! tell.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_control::certify::{Meanwhile, Request, certify_run};
use braid_control::frames::Frames;
use braid_control::profile::certificate::Certificate;
use braid_functions::find;
use braid_io::generate::{GenConfig, Generator};
use braid_nf::state::StateBuilder;
use braid_runtime::live::exchange::{Difference, exchange};
use braid_runtime::{Full, Live, Plan};

use crate::certify::{busy, input};
use crate::generated::MIXES;
use crate::run::Case;

/// What was changed, how often, and how much came over to other tables or objects.
#[derive(Default)]
struct Changed {
    changes: AtomicUsize,
    moved: AtomicUsize,
    elements: AtomicUsize,
}

/// A run of a plan that becomes each of others in turn, as often as it goes, while packets go through. The first has the most room, and so
/// has the replay.
fn resized(plan: &Plan, others: &[Plan], differing: &[String], frames: &Frames, all: &Changed) -> Certificate {
    let now = Mutex::new(plan.clone());
    let change = |live: &Live| {
        let mut now = now.lock().expect("nobody has panicked");
        for plan in others {
            let difference = if differing.is_empty() { Difference::Sets } else { Difference::Chain(differing) };
            // What does not fit is refused, and what has ended cannot be changed.
            if let Ok(exchanged) = exchange(live, &now, plan, difference) {
                all.changes.fetch_add(1, Ordering::Relaxed);
                all.moved.fetch_add(exchanged.moving, Ordering::Relaxed);
                all.elements.fetch_add(exchanged.elements, Ordering::Relaxed);
                assert_eq!(exchanged.elements_held, 0, "nothing is left to be copied while workers stand still");
                *now = plan.clone();
            }
        }
    };
    let meanwhile = Some(Meanwhile(&change));
    // Odd seeds are on real threads.
    let request = Request { frames, input: "a mix", runs: 1, seed: 1, watchdog: None, meanwhile };
    certify_run(plan, vec!["resized".to_owned()], request, &mut |_| {}).expect("it runs")
}

/// Plans with so much room for packet sets.
fn with_sets(plan: &Plan, sets: [usize; 4]) -> Vec<Plan> {
    sets.into_iter().map(|sets| Plan { sets, ..plan.clone() }).collect()
}

fn mix(packets: u64) -> Generator {
    let config = GenConfig { reverse: 0.3, flows: 3000, ipv6: 0.3, ..MIXES[0].config(packets) };
    Generator::new(config).expect("a mix of the tests")
}

#[test]
fn tables_of_another_size_in_the_middle_of_a_run_are_seen_by_no_packet() {
    const PACKETS: u64 = 50_000;
    let all = Changed::default();
    for name in ["flow_counter", "firewall", "nat"] {
        let entry = find(name).expect("it is in the catalogue");
        let frames = input(entry, &mut mix(PACKETS), PACKETS as usize);
        for full in [Full::Refuse, Full::EvictOldest] {
            let mut plan = Case { sets: 6144, ..Case::of(entry, busy(name), 2) }.plan();
            plan.course.full = vec![full];
            let others = with_sets(&plan, [2048, 4096, 6144, 3072]);
            let certificate = resized(&plan, &others, &[], &frames, &all);
            assert!(certificate.holds(), "{name}, {full:?}: {certificate}");
        }
    }
    let (changes, moved) = (all.changes.into_inner(), all.moved.into_inner());
    assert!(changes > 2 && moved > 100, "{changes} changes, {moved} sets moved");
}

#[test]
fn state_objects_of_another_size_in_the_middle_of_a_run_are_seen_by_no_packet() {
    const PACKETS: u64 = 60_000;
    let all = Changed::default();
    for (name, size) in [("nat", "mappings_max"), ("firewall", "connections_max"), ("bridge", "capacity")] {
        let entry = find(name).expect("it is in the catalogue");
        let frames = input(entry, &mut mix(PACKETS), PACKETS as usize);
        let plan = |elements: u32| {
            let config = format!("{size} = {elements}").leak();
            Case { sets: 16_384, ..Case::of(entry, config, 2) }.plan()
        };
        let others = [6000, 8000, 7000].map(plan);
        for _ in 0..3 {
            let certificate = resized(&plan(9000), &others, &[name.to_owned()], &frames, &all);
            assert!(certificate.holds(), "{name}: {certificate}");
        }
    }
    let (changes, elements) = (all.changes.into_inner(), all.elements.into_inner());
    assert!(changes > 2 && elements > 100, "{changes} changes, {elements} elements");
}

#[test]
fn sets_that_workers_share_get_another_size_in_the_middle_of_a_run() {
    const PACKETS: u64 = 60_000;
    let entry = find("policer").expect("it is in the catalogue");
    let policers = |builder: &mut StateBuilder| {
        let by = |by: &str, builder: &mut StateBuilder| {
            let config = format!("{}\nby = \"{by}\"", busy("policer")).parse().expect("a configuration");
            (entry.build)(by, config, builder.scope(by), entry.ports).expect("it is built")
        };
        vec![by("source", builder), by("destination", builder)]
    };
    let plan = Case { sets: 9000, ..Case::new(entry.ports, 2, policers) }.plan();
    let frames = input(entry, &mut mix(PACKETS), PACKETS as usize);
    let all = Changed::default();
    for _ in 0..3 {
        let certificate = resized(&plan, &with_sets(&plan, [6000, 8000, 9000, 7000]), &[], &frames, &all);
        assert!(certificate.holds(), "{certificate}");
    }
    let (changes, elements) = (all.changes.into_inner(), all.elements.into_inner());
    assert!(changes > 0 && elements > 100, "{changes} changes, {elements} elements");
}
