//! The central promise, on small functions: what several workers did equals what one worker does in commit order.

mod functions;
#[path = "../traffic/mod.rs"]
mod traffic;
mod unnamed;

use std::sync::Arc;

use braid_io::MemorySink;
use braid_runtime::launch::{build, snapshots};
use braid_runtime::replay::Replay;
use braid_runtime::{Balance, Balanced, Control, Course, Distribution, Full, Plan, Report, launch};
use braid_state::{StateBuilder, Tx};

use functions::{ages, halves, mostly, stages, torn, traffic};

fn plan(workers: usize, distribution: Distribution) -> Plan {
    Plan { sets: 4096, distribution, ..Plan::for_tests(workers, Arc::new(|builder| Ok(stages(builder)))) }
}

fn run(plan: &Plan, control: &Control, packets: u64) -> Report {
    let (sink, _) = MemorySink::new();
    launch(plan, Box::new(traffic(packets, 40)), Box::new(sink), control).expect("the plan runs")
}

fn conserved(report: &Report) {
    let total = &report.total;
    assert_eq!(total.packets_in + total.packets_copied, total.packets_out + total.drops.total());
    assert_eq!(total.sets_created, total.sets_expired + total.sets_live);
}

fn check(workers: usize, distribution: Distribution, schedule: Option<u64>) -> Report {
    check_plan(&plan(workers, distribution), schedule)
}

fn check_plan(plan: &Plan, schedule: Option<u64>) -> Report {
    let control = Control { record: true, schedule, ..Control::default() };
    let mut report = run(plan, &control, 2000);
    conserved(&report);
    let record = report.record.take().expect("it was recorded");
    assert!(record.twice.is_empty(), "sets on two workers: {:?}", record.twice);
    let fresh = build(plan).expect("builds again");
    let mut tx = Tx::new(&fresh.domain, 0);
    tx.replay(0, Vec::new());
    let replay = Replay::new(Arc::clone(&fresh.chain), tx, 4096, plan.ports, 4096).expect("memory");
    let (differences, sets) = replay.run(&record.logs);
    assert!(differences.is_empty(), "{} differences, first {:#?}", differences.len(), differences[0]);
    assert_eq!(sets, record.sets);
    assert_eq!(snapshots(&fresh.chain), record.objects);
    report
}

#[test]
fn one_worker_equals_itself() {
    let report = check(1, Distribution::Hardware, None);
    assert_eq!((report.total.packets_in, report.total.aborts), (2000, 0));
}

#[test]
fn two_workers_on_real_threads_equal_one() {
    for _ in 0..5 {
        check(2, Distribution::Hardware, None);
        check(2, Distribution::Software, None);
    }
}

#[test]
fn four_workers_under_forty_schedules_equal_one() {
    let aborts: u64 = (0..40).map(|seed| check(4, Distribution::Hardware, Some(seed)).total.aborts).sum();
    assert!(aborts > 400, "the schedules provoke conflicts: {aborts}");
}

#[test]
fn workers_that_go_abreast_meet_nobody_whatever_the_schedule() {
    // Under a schedule, a worker must not sleep until others have advanced: they cannot while it is its turn.
    let build = Arc::new(|builder: &mut StateBuilder| Ok(mostly(builder)));
    let abreast = Plan { in_order: true, build, ..plan(3, Distribution::Hardware) };
    for schedule in (0..6).map(Some).chain([None]) {
        let total = check_plan(&abreast, schedule).total;
        assert_eq!((total.packets_in, total.aborts), (2000, 0), "{schedule:?}");
    }
}

/// Forty flows on few entries, checked every hundred packets, so that load moves all the time.
fn balanced(workers: usize) -> Plan {
    let balance = Some(Balance { every_packets: 100, goal: 1.0, held_share: 1.0 });
    Plan { balance, batch: 8, ..plan(workers, Distribution::Software) }
}

fn moved(report: &Report) -> Balanced {
    report.dispatched.as_ref().and_then(|dispatched| dispatched.balanced).expect("load is balanced")
}

#[test]
fn sets_that_move_between_workers_are_handled_as_by_one() {
    for workers in [2, 3, 5] {
        let Balanced { entries, sets, refused, .. } = moved(&check_plan(&balanced(workers), None));
        assert!(entries > 5 && sets > 5 && refused == 0, "{entries} entries, {sets} sets, {refused} refused");
    }
    let sets: u64 = (0..12).map(|seed| moved(&check_plan(&balanced(3), Some(seed))).sets).sum();
    assert!(sets > 60, "{sets} sets moved under the schedules");
}

#[test]
fn an_entry_stays_where_it_is_if_its_sets_find_no_room() {
    // Sixty-four sets fit on each worker, and there are thousands.
    let plan = Plan { sets: 100, ..balanced(2) };
    let control = Control::default();
    let (sink, _) = MemorySink::new();
    let report = launch(&plan, Box::new(traffic(20_000, 4_000)), Box::new(sink), &control).expect("the plan runs");
    conserved(&report);
    assert!(moved(&report).refused > 0, "{:?}", moved(&report));
}

#[test]
fn sets_that_make_room_for_others_end_as_for_one_worker() {
    let full = |workers, full| {
        let course = Course { full: vec![full; 2], ..Course::default() };
        let build = Arc::new(|_: &mut StateBuilder| Ok(torn()));
        Plan { sets: 8, course, batch: 8, build, ..plan(workers, Distribution::Hardware) }
    };
    check_plan(&full(2, Full::EvictOldest), None);
    let (mut evicted, mut refused) = (0, 0);
    for seed in 0..12 {
        refused += check_plan(&full(4, Full::Refuse), Some(seed)).total.sets_refused;
        let total = check_plan(&full(4, Full::EvictOldest), Some(seed)).total;
        assert_eq!(total.sets_refused, 0);
        evicted += total.sets_evicted;
    }
    assert!(evicted > 1000 && refused > 1000, "{evicted} evicted, {refused} refused");
}

#[test]
fn a_run_loses_nothing_whatever_the_distribution() {
    for distribution in [Distribution::Hardware, Distribution::Software] {
        for workers in [1, 2, 3] {
            let report = run(&plan(workers, distribution), &Control::default(), 20_000);
            conserved(&report);
            assert_eq!(report.total.packets_in, 20_000);
            assert_eq!(
                report.total.drops.iter().map(|(stage, reason, _)| (stage, reason)).collect::<Vec<_>>(),
                [("per_flow", "seventh")]
            );
        }
    }
}

#[test]
fn packets_without_a_context_are_taken_back_with_those_before_them() {
    let mostly = Plan { build: Arc::new(|builder| Ok(mostly(builder))), ..plan(4, Distribution::Hardware) };
    let aborts: u64 = (0..20).map(|seed| check_plan(&mostly, Some(seed)).total.aborts).sum();
    assert!(aborts > 100, "the schedules provoke conflicts: {aborts}");
    check_plan(&atomic(mostly), Some(1));
}

#[test]
fn packets_after_a_change_are_of_the_new_era() {
    let ages = |workers| Plan { build: Arc::new(|builder| Ok(ages(builder))), ..plan(workers, Distribution::Hardware) };
    // A recorded run looks before each packet.
    let sent = |record| {
        let (sink, collected) = MemorySink::new();
        let control = Control { record, ..Control::default() };
        launch(&ages(1), Box::new(traffic(2000, 40)), Box::new(sink), &control).expect("the plan runs");
        collected.packets()
    };
    let free = sent(false);
    assert!(free.len() == 2000 && free == sent(true));
    let aborts: u64 = (0..10).map(|seed| check_plan(&ages(4), Some(seed)).total.aborts).sum();
    assert!(aborts > 50, "the schedules provoke conflicts: {aborts}");
}

fn atomic(plan: Plan) -> Plan {
    Plan { course: Course { atomic: true, ..plan.course.clone() }, ..plan }
}

#[test]
fn a_way_that_is_one_transaction_equals_that_of_one_worker() {
    for distribution in [Distribution::Hardware, Distribution::Software] {
        let alone = check_plan(&atomic(plan(1, distribution)), None).total;
        let each = check(1, distribution, None).total;
        assert_eq!((alone.drops.total(), alone.sets_created), (each.drops.total(), each.sets_created));
        assert_eq!(alone.reached, each.reached);
        check_plan(&atomic(plan(2, distribution)), None);
    }
    let aborts: u64 =
        (0..20).map(|seed| check_plan(&atomic(plan(4, Distribution::Hardware)), Some(seed)).total.aborts).sum();
    assert!(aborts > 100, "the schedules provoke conflicts: {aborts}");
}

#[test]
fn nothing_happens_between_two_functions_of_a_way_that_is_one_transaction() {
    let halves = Plan { build: Arc::new(|builder| Ok(halves(builder))), ..plan(4, Distribution::Hardware) };
    let lost = |plan: &Plan, seed| {
        let control = Control { record: true, schedule: Some(seed), ..Control::default() };
        let record = run(plan, &control, 500).record.expect("it was recorded");
        let (_, count) = &record.objects[0];
        500 - count.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    assert_ne!((0..5).map(|seed| lost(&halves, seed)).sum::<u64>(), 0, "each function by itself loses counts");
    let whole = atomic(halves);
    assert_eq!((0..20).map(|seed| lost(&whole, seed)).sum::<u64>(), 0);
    check_plan(&whole, Some(1));
}
