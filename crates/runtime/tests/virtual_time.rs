//! Many workers in virtual time, and the profile of real ones.

mod traffic;

use std::sync::Arc;

use braid_io::memory::Repeat;
use braid_io::{NullSink, ReplaySource};
use braid_nf::Stage;
use braid_nf::prelude::*;
use braid_nf::state::StateBuilder;
use braid_runtime::launch::Model;
use braid_runtime::model::virtual_time::{Costs, StageCosts};
use braid_runtime::observe::probe::{Attempts, Lap};
use braid_runtime::{Control, Plan, Report, Time, launch};
use braid_state::{DistributedConfig, VectorConfig};
use traffic::{Sent, replayed};

network_function! {
    /// Counts all packets, asks for the sum at each, and changes one of many cells.
    struct Counting {
        sum: Distributed<u64>,
        cells: Vector<u64>,
    }
}

impl NetworkFunction for Counting {
    type Set = ();
    const NAME: &'static str = "counting";

    fn first(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        Ok(Verdict::Drop(Reason("not reached")))
    }

    fn packet(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut ()) -> Handled {
        Ok(Verdict::Drop(Reason("not reached")))
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.sum.update(cx, |sum| *sum += 1)?;
        self.sum.read(cx, |merged, part| *merged += part)?;
        let flow = u32::from(packet.bytes()[34]) * 256 + u32::from(packet.bytes()[35]);
        self.cells.update(cx, flow, |cell| *cell += 1)?;
        Ok(cx.pass())
    }
}

/// UDP packets of 1000 flows, one per microsecond.
fn source(packets_per_worker: u64) -> ReplaySource {
    let packet = |n: u64| Sent { port: n as u16 % 1000, at_ns: n * 1000, ..Sent::default() };
    replayed(4000, Repeat::PacketsPerQueue(packets_per_worker), packet)
}

fn plan(workers: usize, staleness_ns: u64) -> Plan {
    let build = move |builder: &mut StateBuilder| {
        let sum = DistributedConfig { name: "sum".into(), staleness_ns };
        let cells = VectorConfig { name: "cells".into(), len: 1000 };
        let counting = Counting {
            sum: Distributed::new(builder, &sum, 0).expect("small"),
            cells: Vector::new(builder, &cells, 0).expect("small"),
        };
        Ok(vec![Box::new(braid_nf::Instance::new("counting", counting)) as Box<dyn Stage>])
    };
    Plan { time: Time::Live, own_fields: Vec::new(), ..Plan::for_tests(workers, Arc::new(build)) }
}

fn costs() -> Costs {
    let stage = StageCosts {
        look_up: 2.0,
        packet: 20.0,
        access: 2.0,
        packet_again: 20.0,
        access_again: 2.0,
        undo: 3.0,
        commit: 15.0,
        commit_access: 1.0,
        has_objects: true,
    };
    Costs {
        receive: 5.0,
        parse: 3.0,
        send: 4.0,
        expire: 0.5,
        batch: 30.0,
        stages: vec![stage],
        transfer: 50.0,
        wait: 20.0,
        ..Costs::default()
    }
}

fn modelled(workers: usize, staleness_ns: u64, seed: u64) -> Report {
    modelled_with(costs(), workers, staleness_ns, seed)
}

fn modelled_with(costs: Costs, workers: usize, staleness_ns: u64, seed: u64) -> Report {
    let control = Control { model: Some(Model { costs, seed }), ..Control::default() };
    launch(&plan(workers, staleness_ns), Box::new(source(500)), Box::new(NullSink), &control).expect("it runs")
}

fn rate(report: &Report) -> f64 {
    report.total.packets_in as f64 / report.elapsed.as_secs_f64()
}

#[test]
fn the_same_seed_gives_the_same_model() {
    let run = |seed| {
        let report = modelled(8, 0, seed);
        (report.elapsed, report.total.aborts, report.total.commits, report.transfers)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn virtual_workers_lose_nothing() {
    for workers in [1, 3, 32] {
        let total = modelled(workers, 0, 0).total;
        assert_eq!(total.packets_in, 500 * workers as u64);
        assert_eq!(total.packets_in, total.packets_out + total.drops.total());
    }
}

#[test]
fn a_fresh_sum_does_not_scale_and_a_stale_one_does() {
    let (fresh, stale) = (modelled(16, 0, 0), modelled(16, 1_000_000, 0));
    assert!(fresh.total.aborts > 10 * stale.total.aborts.max(1), "{} {}", fresh.total.aborts, stale.total.aborts);
    assert!(rate(&stale) > 3.0 * rate(&fresh), "{} {}", rate(&fresh), rate(&stale));
    let alone = rate(&modelled(1, 0, 0));
    assert!(rate(&stale) > 6.0 * alone && rate(&stale) < 16.5 * alone, "{} {alone}", rate(&stale));
}

#[test]
fn a_packet_that_is_handled_again_takes_its_own_time() {
    let run = |packet_again, undo, workers| {
        let mut costs = costs();
        (costs.stages[0].packet_again, costs.stages[0].undo) = (packet_again, undo);
        rate(&modelled_with(costs, workers, 0, 0))
    };
    assert_eq!(run(20.0, 3.0, 1), run(5.0, 0.0, 1), "alone nothing is handled again");
    assert!(run(5.0, 3.0, 2) > 1.1 * run(20.0, 3.0, 2), "{} {}", run(5.0, 3.0, 2), run(20.0, 3.0, 2));
    // A slightly longer rollback lets the other worker finish first, which helps both; a much longer one does not.
    assert!(run(20.0, 3.0, 2) > 1.1 * run(20.0, 3003.0, 2), "{} {}", run(20.0, 3.0, 2), run(20.0, 3003.0, 2));
}

#[test]
fn a_profile_that_refuses_handles_every_packet_twice_and_loses_none() {
    let control = Control { profile: true, calibrate: Some(Attempts::Second), ..Control::default() };
    let report = launch(&plan(1, 0), Box::new(source(3_200)), Box::new(NullSink), &control).expect("it runs");
    assert_eq!((report.total.packets_in, report.total.packets_out), (3_200, 3_200));
    // The first packet of each batch writes too, so no packet is final before the attempt that is refused.
    assert_eq!(report.total.aborts, report.total.batches);
    let (stage, away) = (&report.splits[0].stages[0], &report.splits[0].away);
    for packets in [stage.undo.packets, stage.handlers.packets] {
        assert!(packets <= 3_200 && packets + away_of(away) >= 3_200, "{packets} {away:?}");
    }
    let (aborts, undone) = (report.total.aborts, stage.undo.times);
    assert!(undone <= aborts && undone + away.times >= aborts, "{undone} of {aborts}, {away:?}");
}

#[test]
fn aborts_name_object_operations_and_the_line_of_the_function() {
    let report = modelled(8, 0, 0);
    let aborted = &report.total.aborted;
    assert_eq!(aborted.with_itself, 0);
    assert_eq!(aborted.rows.iter().map(|row| row.count).sum::<u64>() + aborted.beyond, report.total.aborts);
    let top = aborted.rows.iter().filter(|row| row.object.is_some()).max_by_key(|row| row.count).expect("it aborts");
    assert_eq!(report.objects[top.object.expect("an object").0 as usize].name, "sum");
    assert!(top.location.file().ends_with("virtual_time.rs"));
    assert_eq!(aborted.over_time.counts().iter().sum::<u64>(), report.total.aborts);
}

#[test]
fn a_profile_splits_the_time_of_each_worker() {
    let control = Control { profile: true, ..Control::default() };
    let report = launch(&plan(2, 0), Box::new(source(50_000)), Box::new(NullSink), &control).expect("it runs");
    assert_eq!(report.splits.len(), 2);
    for split in &report.splits {
        assert!(split.cycles_per_ns > 0.1 && split.busy_cycles() > 0);
        let received = split.receive.packets;
        assert!(received <= 50_000 && received + away_of(&split.away) >= 50_000, "{received} {:?}", split.away);
        assert!(split.stages[0].handlers.cycles > 0 && split.stages[0].commit.cycles > 0);
        assert!(split.stages[0].reads >= 50_000, "{:?}", split.stages[0]);
    }
}

/// Maximum number of packets missing from measured laps: one batch for each lap during which the thread was not running.
fn away_of(away: &Lap) -> u64 {
    32 * away.times
}
