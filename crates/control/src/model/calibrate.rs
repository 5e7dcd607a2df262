//! Measures what operations cost on this machine, from a profile of the chain on one worker and two figures of the processor.
//!
//! The profile gives the time of each stage. Where handlers differ in what they log, the profile also shows the cost of an access
//! including the work around it (creating a mapping costs more than reading one): [`Fit`](braid_runtime::observe::probe::Fit). Time that no
//! stage accounts for (memory touched for the first time) is the rest of the worker's processor time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use braid_runtime::model::virtual_time::{Costs, StageCosts};
use braid_runtime::nf::state::{Domain, StateBuilder, Tx, Vector, VectorConfig};
use braid_runtime::observe::probe::{Attempts, Fit, Lap, StageTime};
use braid_runtime::{Control, HugePages, Report};

use super::{ModelError, Request, real_with};
use crate::compile::Carry;
use crate::plan::{Plan, PlannedFunction};

/// Cost of a cache-line transfer in nanoseconds where it cannot be measured: with one processor, or two that are never free at once.
const TRANSFER_NS: f64 = 50.0;
/// A longer transfer must have been interrupted; no machine is this slow.
const TRANSFER_MAX_NS: f64 = 2000.0;
/// Additional commit cost in nanoseconds of validating a read or publishing a write, where all attempts are alike and cannot tell.
const COMMIT_ACCESS_NS: f64 = 1.0;
/// Number of packets in the runs that measure the cost of reading the clock.
const SINGLE_PACKETS: u64 = 50_000;
/// A larger value is caused by other load on the machine.
const DISTURBED_NS_MAX: f64 = 100.0;
/// Cost in nanoseconds of the first check of a lock that is held.
const WAIT_NS: f64 = 20.0;

/// The result of a calibration.
#[derive(Clone, Debug)]
pub struct Calibration {
    /// Costs of operations on this machine.
    pub costs: Costs,
    /// Cost of reading an object in the first-level cache, in nanoseconds.
    pub access_ns: f64,
    /// Processor time per packet, in nanoseconds.
    pub ns_per_packet: f64,
}

/// Calibrates several times and returns the median run by time per packet.
pub fn calibrate(plan: &Plan, request: Request<'_>) -> Result<Calibration, ModelError> {
    let all = (0..request.repeats.max(1)).map(|_| once(plan, request));
    Ok(middle(all.collect::<Result<Vec<_>, _>>()?))
}

/// The median calibration by time per packet, with the median cost of a line transfer.
pub(super) fn middle(mut all: Vec<Calibration>) -> Calibration {
    all.sort_by(|a, b| a.costs.transfer.total_cmp(&b.costs.transfer));
    let transfer = all[all.len() / 2].costs.transfer;
    all.sort_by(|a, b| a.ns_per_packet.total_cmp(&b.ns_per_packet));
    let mut middle = all.swap_remove(all.len() / 2);
    middle.costs.transfer = transfer;
    middle
}

/// Performs one calibration.
pub(super) fn once(plan: &Plan, request: Request<'_>) -> Result<Calibration, ModelError> {
    let chain = plan.probe(Carry::Nothing)?;
    let profiled = |calibrate| real_with(plan, 1, request, &Control { profile: true, calibrate, ..Control::default() });
    let report = profiled(None)?;
    let (lengths, again) = (profiled(Some(Attempts::OfAllLengths))?, profiled(Some(Attempts::Second))?);
    let (split, lengths, again) = (&report.splits[0], &lengths.splits[0], &again.splits[0]);
    let ns = |cycles: f64| cycles / split.cycles_per_ns.max(1e-9);
    let disturbed = split.cycles_per_ns * disturbed_ns(plan, request)?;
    let per_packet = |lap: &Lap| ns(lap.without(disturbed).cycles as f64) / (lap.packets as f64).max(1.0);
    let (access, transfer) = (access_ns(), transfer_ns());
    let prices = |fit: &Fit, usual: f64| {
        let (unit, entry) = fit.without(disturbed).prices(usual * split.cycles_per_ns);
        (ns(unit), ns(entry))
    };
    let stage = |(at, time): (usize, &StageTime)| {
        let (packet, access) = prices(&time.handlers_fit, access);
        let (packet_again, access_again) = prices(&again.stages[at].handlers_fit, access);
        let (commit, commit_access) = prices(&lengths.stages[at].commit_fit, COMMIT_ACCESS_NS);
        StageCosts {
            look_up: per_packet(&time.look_up),
            packet,
            access,
            packet_again,
            access_again,
            undo: per_packet(&again.stages[at].undo),
            commit,
            commit_access,
            has_objects: chain.stages()[at].has_objects(),
        }
    };
    let (packets, cpu_ns) = packets_and_time(&report);
    let lapped_ns = ns((split.busy_cycles() + split.idle.cycles + split.looking) as f64);
    let costs = Costs {
        receive: per_packet(&split.receive),
        parse: per_packet(&split.parse),
        send: per_packet(&split.send),
        expire: per_packet(&split.expire),
        batch: 0.0,
        memory: (cpu_ns - lapped_ns).max(0.0) / packets,
        stages: split.stages.iter().enumerate().map(stage).collect(),
        transfer,
        wait: WAIT_NS,
    };
    Ok(Calibration { costs, access_ns: access, ns_per_packet: cpu_ns / packets })
}

/// What reading the clock costs in addition to its cost in a tight loop, because it disturbs the processor's parallel execution. It
/// is measured as the difference between timed and untimed runs in which every packet is its own batch.
fn disturbed_ns(plan: &Plan, request: Request<'_>) -> Result<f64, ModelError> {
    let single = Plan { batch: 1, ..plan.clone() };
    let request = Request { packets: request.packets.min(SINGLE_PACKETS), ..request };
    let run = |profile| real_with(&single, 1, request, &Control { profile, ..Control::default() });
    let (timed, plain) = (run(true)?, run(false)?);
    let split = &timed.splits[0];
    let looking_ns = (split.looking + split.idle.cycles) as f64 / split.cycles_per_ns.max(1e-9);
    let more_ns = packets_and_time(&timed).1 - looking_ns - packets_and_time(&plain).1;
    Ok((more_ns / (split.laps() as f64).max(1.0)).clamp(0.0, DISTURBED_NS_MAX))
}

fn packets_and_time(report: &Report) -> (f64, f64) {
    ((report.total.packets_in as f64).max(1.0), report.workers.iter().map(|worker| worker.cpu_ns as f64).sum())
}

impl Calibration {
    /// Describes the costs in words.
    pub fn words(&self, plan: &Plan) -> Vec<String> {
        let Costs { receive, parse, send, expire, memory, transfer, .. } = self.costs;
        let stage = |(link, s): (&PlannedFunction, &StageCosts)| {
            let StageCosts {
                look_up,
                packet,
                access,
                packet_again,
                access_again,
                undo,
                commit,
                commit_access,
                has_objects,
            } = s;
            let of_updates = format!(
                ", {access:.1} ns more for each object of an update; a second time {packet_again:.1} and {access_again:.1} ns, and \
                 {undo:.1} ns for taking the first back; a commit {commit:.0} ns, {commit_access:.1} ns more for each"
            );
            let of_updates = if *has_objects { of_updates } else { String::new() };
            format!("{}: look-up {look_up:.1} ns, handlers {packet:.1} ns{of_updates}", link.name)
        };
        let around = format!(
            "one worker here, per packet: receive {receive:.1} ns, parse {parse:.1} ns, send {send:.1} ns, expiry {expire:.1} ns, \
             memory touched for the first time {memory:.1} ns"
        );
        let access = self.access_ns;
        let caches = format!("an access in the cache {access:.1} ns, a line from another core {transfer:.0} ns");
        std::iter::once(around).chain(plan.chain.iter().zip(&self.costs.stages).map(stage)).chain([caches]).collect()
    }
}

/// Cost of reading an object in the first-level cache within a transaction, in nanoseconds.
fn access_ns() -> f64 {
    let domain = Domain::new(1);
    let mut builder = StateBuilder::new(&domain, HugePages::Never);
    let config = VectorConfig { name: "calibration".into(), len: 64 };
    let Ok(vector) = Vector::new(&mut builder, &config, 0u64) else { return crate::profile_run::ACCESS_NS };
    let mut tx = Tx::new(&domain, 0);
    let mut round = || {
        let begun = Instant::now();
        for _ in 0..200 {
            for index in 0..64 {
                let _ = std::hint::black_box(vector.get(&mut tx, index));
            }
            let _ = tx.commit();
        }
        begun.elapsed().as_nanos() as f64 / (200.0 * 64.0)
    };
    (0..8).map(|_| round()).fold(f64::INFINITY, f64::min)
}

/// Cost of a cache-line transfer: a quarter of a round trip between two threads. Each thread reads the line, which fetches a copy,
/// and then writes it, which invalidates the other's copy: two transfers each way. It takes the best of many short rallies, because
/// the machine may have other load and both threads need a processor at the same time.
fn transfer_ns() -> f64 {
    const RALLIES: u64 = 500;
    const TRIPS: u64 = 32;
    if std::thread::available_parallelism().map_or(1, |n| n.get()) < 2 {
        return TRANSFER_NS;
    }
    let ball = AtomicU64::new(0);
    let best = std::thread::scope(|scope| {
        scope.spawn(|| (0..RALLIES * TRIPS).for_each(|trip| answer(&ball, 2 * trip + 1)));
        let rally = |rally: u64| {
            let begun = Instant::now();
            for trip in rally * TRIPS..(rally + 1) * TRIPS {
                answer(&ball, 2 * trip);
            }
            begun.elapsed().as_nanos() as f64 / (4 * TRIPS) as f64
        };
        (0..RALLIES).map(rally).fold(f64::INFINITY, f64::min)
    });
    if best < TRANSFER_MAX_NS { best } else { TRANSFER_NS }
}

/// Waits for the value `here`, then replies with the next one.
fn answer(ball: &AtomicU64, here: u64) {
    let mut spins = 0u32;
    // Acquire and Release: each side sees the other's latest value.
    while ball.load(Ordering::Acquire) != here {
        spins += 1;
        // The other thread may currently have no processor.
        if spins > 10_000 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    ball.store(here + 1, Ordering::Release);
}
