//! The central promise, on small functions: what several workers did equals what one worker does in commit order.

use std::sync::Arc;
use std::time::Duration;

use braid_io::memory::Repeat;
use braid_io::{FrameStream, MemorySink, Next, ReplaySource};
use braid_memory::HugePages;
use braid_nf::Stage;
use braid_nf::prelude::*;
use braid_packet::FrameInfo;
use braid_packet::fields::StageUse;
use braid_runtime::launch::{build, snapshots};
use braid_runtime::replay::Replay;
use braid_runtime::{Balance, Balanced, Control, Course, Distribution, Plan, Report, Time, launch};
use braid_state::{DistributedConfig, MapConfig, Tx, VectorConfig};
use braid_steer::{Fields, Reta, Steering, Symmetry, toeplitz};

network_function! {
    /// Packets of each flow; expires after a second; writes the count into the packet.
    struct PerFlow {}
}

impl NetworkFunction for PerFlow {
    type Set = u64;
    const NAME: &'static str = "per_flow";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        1_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        if let Some(last) = packet.bytes_mut().last_mut() {
            *last = *count as u8;
        }
        Ok(if (*count).is_multiple_of(7) { Verdict::Drop(Reason("seventh")) } else { cx.pass() })
    }
}

network_function! {
    /// Shared counters of every kind: a vector cell by destination, a map entry by source, a distributed sum. All conflict.
    struct Shared {
        cells: Vector<u64>,
        sources: Map<u32, u64>,
        sum: Distributed<u64>,
    }
}

impl Shared {
    fn count(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let (source, cell) = (packet.bytes()[29] as u32, packet.bytes()[33] as u32 % 4);
        let seen = self.cells.update(cx, cell, |count| {
            *count += 1;
            *count
        })?;
        match self.sources.get(cx, &source)? {
            Some(count) => self.sources.insert(cx, &source, &(count + 1))?,
            None => self.sources.insert(cx, &source, &1)?,
        };
        self.sum.update(cx, |sum| *sum += 1)?;
        let total = self.sum.read(cx, |merged, part| *merged += part)?;
        let bytes = packet.bytes_mut();
        bytes[50..58].copy_from_slice(&(seen.unwrap_or(0) * 1_000_000 + total).to_be_bytes());
        Ok(cx.pass())
    }
}

impl NetworkFunction for Shared {
    type Set = ();
    const NAME: &'static str = "shared";

    fn first(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        Ok(Verdict::Drop(Reason("not reached")))
    }

    fn packet(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut ()) -> Handled {
        Ok(Verdict::Drop(Reason("not reached")))
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.count(cx, packet)
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_millis(10)]
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        self.cells.update(cx, 0, |count| *count += 1000)?;
        Ok(())
    }
}

network_function! {
    /// Packets from each source address: a set that steering by flows tears apart. Expires after half a second.
    struct PerSource {}
}

impl NetworkFunction for PerSource {
    type Set = u64;
    const NAME: &'static str = "per_source";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::src_ip())
    }

    fn timeout_ns(&self, count: &u64) -> u64 {
        if count.is_multiple_of(2) { 40_000_000 } else { 500_000_000 }
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        packet.bytes_mut()[58] = 0;
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        packet.bytes_mut()[58] = *count as u8;
        Ok(cx.pass())
    }
}

network_function! {
    /// Packets of each flow, counted without a context, but for every third one, which counts in a shared cell too.
    struct Mostly {
        cells: Vector<u64>,
    }
}

impl NetworkFunction for Mostly {
    type Set = u64;
    const NAME: &'static str = "mostly";
    const STEADY: bool = true;

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn steady(&self, _: Arrival<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Option<Verdict> {
        if count.is_multiple_of(3) {
            return None;
        }
        *count += 1;
        // Done twice, it shows.
        packet.bytes_mut()[50..58].iter_mut().for_each(|byte| *byte = byte.wrapping_add(*count as u8));
        Some(if count.is_multiple_of(7) { Verdict::Drop(Reason("seventh")) } else { Verdict::Onward })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        let total = self.cells.update(cx, 0, |total| {
            *total += 1;
            *total
        })?;
        packet.bytes_mut()[50..58].copy_from_slice(&total.unwrap_or(0).to_be_bytes());
        Ok(cx.pass())
    }
}

fn mostly(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let cells = Vector::new(builder, &VectorConfig { name: "cells".into(), len: 1 }, 0).expect("one cell");
    vec![Box::new(braid_nf::Instance::new("mostly", Mostly { cells }))]
}

network_function! {
    /// One half of counting: the first function writes the count into the packet, the second one makes it one more than the packet
    /// says. Right only if nothing happens between the two.
    struct Half {
        count: Vector<u64>,
        is_second: bool,
    }
}

impl NetworkFunction for Half {
    type Set = ();
    const NAME: &'static str = "half";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if !self.is_second {
            let count = self.count.get(cx, 0)?.unwrap_or(0);
            packet.bytes_mut()[50..58].copy_from_slice(&count.to_be_bytes());
            return Ok(cx.pass());
        }
        let said = packet.bytes()[50..58].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.count.set(cx, 0, said + 1)?;
        Ok(cx.pass())
    }
}

fn halves(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let count = Vector::new(builder, &VectorConfig { name: "count".into(), len: 1 }, 0).expect("one cell");
    let half = |name, is_second| Box::new(braid_nf::Instance::new(name, Half { count: count.clone(), is_second }));
    vec![half("reader", false), half("writer", true)]
}

/// UDP packets of `flows` flows, one a millisecond, flows in a scrambled order.
struct Traffic {
    frame: Vec<u8>,
    next: u64,
    packets: u64,
    flows: u64,
}

impl FrameStream for Traffic {
    fn advance(&mut self) -> Next {
        if self.next == self.packets {
            return Next::End;
        }
        let flow = (self.next.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % self.flows;
        self.frame[29] = flow as u8;
        self.frame[33] = (flow >> 3) as u8;
        self.frame[34..36].copy_from_slice(&(1000 + flow as u16).to_be_bytes());
        self.next += 1;
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let sequence = self.next - 1;
        let wire_len = self.frame.len() as u32;
        (&self.frame, FrameInfo { timestamp_ns: sequence * 1_000_000, wire_len, sequence, ..FrameInfo::default() })
    }
}

fn traffic(packets: u64, flows: u64) -> ReplaySource {
    let mut frame = vec![0u8; 60];
    frame[12..24].copy_from_slice(&[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 192, 0, 2, 1]);
    frame[36..40].copy_from_slice(&[0, 53, 0, 26]);
    let mut traffic = Traffic { frame, next: 0, packets, flows };
    ReplaySource::load("test traffic", &mut traffic, packets, Repeat::Passes(1))
}

fn stages(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let cells = VectorConfig { name: "cells".into(), len: 4 };
    let shared = Shared {
        cells: Vector::new(builder, &cells, 0).expect("four cells"),
        sources: Map::new(builder, &MapConfig { name: "sources".into(), capacity: 512, ..MapConfig::default() })
            .expect("small"),
        sum: Distributed::new(builder, &DistributedConfig { name: "sum".into(), staleness_ns: 0 }, 0).expect("small"),
    };
    vec![Box::new(braid_nf::Instance::new("per_flow", PerFlow {})), Box::new(braid_nf::Instance::new("shared", shared))]
}

fn plan(workers: usize, distribution: Distribution) -> Plan {
    let reta = Reta::new(128, workers).expect("a power of two");
    let key = toeplitz::Key::microsoft();
    Plan {
        build: Arc::new(|builder| Ok(stages(builder))),
        ports: 2,
        workers,
        batch: 32,
        sets: 4096,
        buffers: 0,
        pages: HugePages::Never,
        time: Time::Capture,
        distribution,
        steering: Arc::new(Steering::new(Fields::FOUR_TUPLE, Symmetry::OneWay, &key, reta).expect("fits")),
        course: Course::default(),
        gather: Default::default(),
        in_order: false,
        balance: None,
        own_fields: vec![
            StageUse::new("source").writes("timestamp_ns", 8).writes("sequence", 8),
            StageUse::new("sink").reads("timestamp_ns", 8).reads("sequence", 8),
        ],
    }
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

/// Forty flows on few entries, looked at every hundred packets: load moves all the time.
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
    // Sixty-four sets fit on each worker, and thousands want to.
    let plan = Plan { sets: 100, ..balanced(2) };
    let control = Control::default();
    let (sink, _) = MemorySink::new();
    let report = launch(&plan, Box::new(traffic(20_000, 4_000)), Box::new(sink), &control).expect("the plan runs");
    conserved(&report);
    assert!(moved(&report).refused > 0, "{:?}", moved(&report));
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
