//! What the transactions of NFOS get wrong: each defect as a test that passes here. The names say what went wrong there.

use std::time::Duration;

use braid_functions::find;
use braid_io::capture::{CaptureSource, PortSplit};
use braid_io::generate::{GenConfig, GeneratorSource, Profile};
use braid_io::{FrameStream, MemorySink, Next, NullSink, Repeat, ReplaySource};
use braid_memory::HugePages;
use braid_nf::Instance;
use braid_nf::prelude::*;
use braid_nf::state::{AllocatorConfig, DistributedConfig, Domain, Tx, VectorConfig};
use braid_packet::FrameInfo;
use braid_runtime::{Control, Report};

use crate::run::Case;
use braid_testkit::captures::recorded;

network_function! {
    /// Changes everything that an attempt can change: the packet, its set, a distributed sum, and a cell that all fight for.
    struct Everything {
        hot: Vector<u64>,
        sum: Distributed<u64>,
        ticks: Vector<u64>,
    }
}

impl Everything {
    fn new(builder: &mut StateBuilder) -> Everything {
        let vector = |name: &str| VectorConfig { name: name.into(), len: 1 };
        let sum = DistributedConfig { name: "sum".into(), staleness_ns: 5_000_000 };
        Everything {
            hot: Vector::new(builder, &vector("hot"), 0).expect("small"),
            sum: Distributed::new(builder, &sum, 0).expect("small"),
            ticks: Vector::new(builder, &vector("ticks"), 0).expect("small"),
        }
    }

    fn count(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        packet.bytes_mut()[45] += 1;
        self.sum.update(cx, |sum| *sum += 1)?;
        self.sum.read(cx, |merged, part| *merged += part)?;
        self.hot.update(cx, 0, |hot| *hot += 1)?;
        Ok(cx.pass())
    }
}

impl NetworkFunction for Everything {
    type Set = u64;
    const NAME: &'static str = "everything";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        if !set.register(cx, 1) {
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        self.count(cx, packet)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, seen: &mut u64) -> Handled {
        *seen += 1;
        self.count(cx, packet)
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_millis(10)]
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        self.ticks.update(cx, 0, |ticks| *ticks += 1)?;
        self.hot.update(cx, 0, |hot| *hot += 1_000_000)?;
        Ok(())
    }
}

/// UDP packets of 64 flows, one a millisecond.
struct Traffic {
    frame: Vec<u8>,
    next: u64,
    packets: u64,
}

impl FrameStream for Traffic {
    fn advance(&mut self) -> Next {
        if self.next == self.packets {
            return Next::End;
        }
        self.frame[34..36].copy_from_slice(&(1000 + (self.next * 29 % 64) as u16).to_be_bytes());
        self.next += 1;
        Next::Frame
    }

    fn frame(&self) -> (&[u8], FrameInfo) {
        let (sequence, wire_len) = (self.next - 1, self.frame.len() as u32);
        (&self.frame, FrameInfo { timestamp_ns: sequence * 1_000_000, wire_len, sequence, ..FrameInfo::default() })
    }
}

fn traffic(packets: u64) -> ReplaySource {
    let frame = braid_testkit::Frame::udp("10.0.0.1:1", "192.0.2.1:2").payload(&[0; 8]).bytes();
    ReplaySource::load("flows", &mut Traffic { frame, next: 0, packets }, packets, Repeat::Passes(1))
}

/// The words of a state object at the end of a recorded run.
fn words(report: &Report, object: &str) -> Vec<u64> {
    let record = report.record.as_ref().expect("it was recorded");
    let named = record.objects.iter().find(|(name, _)| name.ends_with(object));
    let (_, bytes) = named.unwrap_or_else(|| panic!("no {object} among {:?}", record.objects));
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect()
}

#[test]
fn a_handler_that_is_retried_changes_packet_set_sum_and_cursor_twice() {
    let case = Case::new(2, 4, |builder| vec![Box::new(Instance::new("everything", Everything::new(builder)))]);
    let mut aborts = 0;
    for seed in 0..20 {
        let (sink, collected) = MemorySink::new();
        let control = Control { record: true, schedule: Some(seed), ..Control::default() };
        let report = case.run_with(traffic(1000), sink, &control).expect("it runs");
        aborts += report.total.aborts;
        assert!(collected.packets().iter().all(|packet| packet.bytes[45] == 1), "packet bytes, seed {seed}");
        let record = report.record.as_ref().expect("it was recorded");
        let sets =
            record.sets.iter().flatten().map(|(_, (_, state))| u64::from_ne_bytes(state[..8].try_into().expect("8")));
        assert_eq!(sets.sum::<u64>(), 1000, "states of sets, seed {seed}");
        assert_eq!(words(&report, "sum").iter().sum::<u64>(), 1000, "the distributed sum, seed {seed}");
        let ticks = words(&report, "ticks")[0];
        assert!(ticks > 0, "no period came round, seed {seed}");
        assert_eq!(words(&report, "hot")[0], 1000 + 1_000_000 * ticks, "what a tick does is done once, seed {seed}");
    }
    assert!(aborts > 500, "the schedules provoke retries: {aborts}");
}

#[test]
fn a_worker_conflicts_with_its_own_last_commit() {
    let case = Case::new(2, 1, |builder| vec![Box::new(Instance::new("everything", Everything::new(builder)))]);
    let report = case.run(traffic(20_000), NullSink).expect("it runs");
    assert_eq!((report.total.packets_out, report.total.aborts), (20_000, 0));
}

network_function! {
    /// Moves one unit from cell to cell, and adds up all cells: the sum never changes.
    struct Ledger { cells: Vector<u64> }
}

const CELLS: u32 = 4096;

impl NetworkFunction for Ledger {
    type Set = ();
    const NAME: &'static str = "ledger";

    fn first(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        Ok(Verdict::Drop(Reason("no sets")))
    }

    fn packet(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, (): &mut ()) -> Handled {
        Ok(Verdict::Drop(Reason("no sets")))
    }

    /// Every eighth flow reads all cells, a long transaction; the others write two, a short one.
    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let flow = u32::from(packet.bytes()[35]);
        if flow.is_multiple_of(8) {
            let mut sum = 0_u64;
            for cell in 0..CELLS {
                sum = sum.wrapping_add(self.cells.get(cx, cell)?.unwrap_or(0));
            }
            return Ok(if sum == 100 * u64::from(CELLS) { cx.pass() } else { Verdict::Drop(Reason("torn sum")) });
        }
        let (from, to) = (flow * 37 % CELLS, flow * 91 % CELLS);
        self.cells.update(cx, from, |cell| *cell = cell.wrapping_sub(1))?;
        self.cells.update(cx, to, |cell| *cell = cell.wrapping_add(1))?;
        Ok(cx.pass())
    }
}

fn ledger(workers: usize) -> Case {
    Case::new(2, workers, |builder| {
        let config = VectorConfig { name: "cells".into(), len: CELLS };
        vec![Box::new(Instance::new("ledger", Ledger { cells: Vector::new(builder, &config, 100).expect("small") }))]
    })
}

#[test]
fn more_than_1024_reads_overwrite_memory() {
    let report = ledger(1).run(traffic(2000), NullSink).expect("it runs");
    assert_eq!(report.total.packets_out, 2000, "{:?}", report.total.drops);
}

#[test]
fn a_long_transaction_starves_beside_short_ones_or_sees_half_of_them() {
    for distribution in [braid_runtime::Distribution::Hardware, braid_runtime::Distribution::Software] {
        let report = Case { distribution, ..ledger(2) }.run(traffic(20_000), NullSink).expect("it ends");
        assert_eq!(report.total.packets_out, 20_000, "{:?}", report.total.drops);
        assert!(report.workers.iter().all(|worker| worker.packets_out > 0));
    }
}

/// Every resource is handed out once, whoever asks and however few there are.
#[track_caller]
fn check_allocator(resources: u32, workers: usize) {
    let domain = Domain::new(workers);
    let mut builder = StateBuilder::new(&domain, HugePages::Never);
    let config = AllocatorConfig { name: "ports".into(), resources, ..AllocatorConfig::default() };
    let allocator = Allocator::new(&mut builder, &config).expect("small");
    let mut transactions: Vec<Tx> = (0..workers).map(|worker| Tx::new(&domain, worker)).collect();
    let mut leased = std::collections::BTreeSet::new();
    let mut allocate = |worker: usize| {
        let tx = &mut transactions[worker];
        for _ in 0..100 {
            // A worker whose share is used up takes from all others, for which it needs to be alone.
            if let Ok(lease) = allocator.allocate(tx) {
                tx.commit().expect("nobody to conflict with");
                return lease;
            }
            tx.abort();
        }
        panic!("worker {worker} of {workers} gets no answer about {resources} resources");
    };
    for turn in 0..resources as usize {
        let lease = allocate(turn * 3 % workers);
        let lease = lease.unwrap_or_else(|| panic!("{turn} of {resources} resources are leased, {workers} workers"));
        assert!(leased.insert(lease.index), "leased twice: {}", lease.index);
    }
    assert!((0..workers).all(|worker| allocate(worker).is_none()), "there are no more");
}

#[test]
fn the_remainder_of_resources_by_workers_is_lost_and_fewer_resources_than_workers_hang() {
    for (resources, workers) in [(7, 4), (4, 4), (3, 4), (1, 8), (20, 23), (65, 2), (1000, 3)] {
        check_allocator(resources, workers);
    }
}

#[test]
fn replies_reach_another_worker_than_requests_so_the_firewall_drops_them() {
    let run = |workers| {
        let inside = ["10.1.0.0/24", "fd00:1::/64"].map(|prefix| prefix.parse().expect("a prefix"));
        let split = PortSplit::InsidePrefixes(inside.into());
        let source = CaptureSource::new(vec![recorded("office.pcapng")]).split(split);
        let entry = find("firewall").expect("it is in the catalogue");
        Case::of(entry, "held_max = 0", workers).run(source, NullSink).expect("it runs").total
    };
    let alone = run(1);
    assert!(alone.packets_out > 1900, "{alone:#?}");
    for workers in [2, 4] {
        let total = run(workers);
        // Errors and fragments are sets of their own: nothing says that they come after the connection which they belong to.
        let own = |(_, reason, _): &(&str, &str, u64)| !matches!(*reason, "unrelated" | "fragment_before_first");
        assert_eq!(
            total.drops.iter().filter(own).collect::<Vec<_>>(),
            alone.drops.iter().filter(own).collect::<Vec<_>>()
        );
        assert_eq!(total.packets_in, alone.packets_in);
    }
}

#[test]
fn a_bridge_that_notes_every_frame_crashes_hangs_or_starves_a_worker() {
    let entry = find("bridge").expect("it is in the catalogue");
    for workers in [1, 2] {
        let config = GenConfig { mac_pairs: 64, reverse: 0.5, ..Profile::Campus.config(50_000) };
        let source = GeneratorSource::new("campus", config).expect("a mix of the tests");
        let report = Case::of(entry, "refresh_interval_ms = 0", workers).run(source, NullSink).expect("it ends");
        assert_eq!(report.total.packets_in, 50_000);
    }
}

#[test]
fn stopping_loses_what_is_on_its_way() {
    let entry = find("nat").expect("it is in the catalogue");
    let config = GenConfig { reverse: 0.4, ..Profile::Campus.config(100_000_000) };
    let source = GeneratorSource::new("campus", config).expect("a mix of the tests");
    let control = Control { duration: Some(Duration::from_millis(200)), ..Control::default() };
    let report = Case::of(entry, "", 2).run_with(source, NullSink, &control).expect("it runs");
    assert!((1..100_000_000).contains(&report.total.packets_in));
}
