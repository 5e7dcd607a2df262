//! Certifies a plan: runs it on many workers under random schedules, replays the record of each run on one worker in commit order,
//! and compares packets, packets that handlers made, state objects and packet sets.
//!
//! Even seeds run under the seeded scheduler (one worker at a time, reproducible), odd ones on real threads. Certification stops at
//! the first difference; its input is then minimised within a few seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_profile::certificate::{Certificate, Covered, Outcome, PacketDifference, Run, Schedule, Violation, hex};
use braid_runtime::io::NullSink;
use braid_runtime::launch::{Foundation, Record, build, run_once, snapshots};
use braid_runtime::nf::packet::BATCH_MAX;
use braid_runtime::nf::state::Tx;
use braid_runtime::nf::{Port, Verdict};
use braid_runtime::observe::record::{Deed, Entry, Output, WorkerLog};
use braid_runtime::replay::{Difference, Replay, SetContent};
use braid_runtime::{Control, Live, Plan as RunPlan, Report, RunError, Watchdog, launch};

use crate::compile::Carry;
use crate::frames::Frames;
use crate::plan::Plan;
use crate::plan::file::Problem;

/// Time limit for minimising a failing input.
const SHRINK_MAX: Duration = Duration::from_secs(4);
/// Number of runs in which a reduced input may fail again on real threads.
const ATTEMPTS_ON_THREADS: usize = 6;
/// Maximum number of transactions before a difference that are shown.
const BEFORE_MAX: usize = 4;

/// Why a plan could not be certified at all.
#[derive(Debug, thiserror::Error)]
pub enum CertifyError {
    /// The plan does not compile.
    #[error(transparent)]
    Plan(#[from] Problem),
    /// The plan does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is no memory for the replay.
    #[error("the sequential replay cannot start: {0}")]
    Replay(String),
}

/// What to certify.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The input.
    pub frames: &'a Frames,
    /// Its name, for the certificate.
    pub input: &'a str,
    /// Number of runs, each with its own seed.
    pub runs: u64,
    /// The first seed.
    pub seed: u64,
    /// Reports a handler that does not return.
    pub watchdog: Option<&'a Watchdog>,
    /// An action performed on runs while packets pass through.
    pub meanwhile: Option<Meanwhile<'a>>,
}

/// An action repeated on each run on real threads until it ends. It must have no visible effect on packets or state. (Under a
/// seeded schedule only one worker runs at a time, so an action that waits for all workers would wait forever.)
#[derive(Clone, Copy)]
pub struct Meanwhile<'a>(pub &'a (dyn Fn(&Live) + Sync));

impl std::fmt::Debug for Meanwhile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Meanwhile")
    }
}

/// Runs and compares; calls `done` after each run.
pub fn certify(plan: &Plan, request: Request<'_>, done: &mut dyn FnMut(&Run)) -> Result<Certificate, CertifyError> {
    let compiled = plan.compile(Carry::Capture)?;
    certify_run(&compiled.run, chain_names(plan), request, done)
}

fn chain_names(plan: &Plan) -> Vec<String> {
    plan.chain.iter().map(|link| link.name.clone()).collect()
}

/// Certifies a plan that is already compiled.
pub fn certify_run(
    plan: &RunPlan,
    chain: Vec<String>,
    request: Request<'_>,
    done: &mut dyn FnMut(&Run),
) -> Result<Certificate, CertifyError> {
    let Request { frames, input, runs, seed, .. } = request;
    let (workers, packets) = (plan.workers, frames.len());
    let mut certificate =
        Certificate { chain, input: input.to_owned(), packets, workers, runs: Vec::new(), violation: None };
    for seed in (0..runs).map(|run| seed.wrapping_add(run)) {
        let (run, violation) = compare(plan, frames, seed, request)?;
        done(&run);
        certificate.runs.push(run);
        if let Some(violation) = violation {
            certificate.violation = Some(shrink(plan, request, violation));
            break;
        }
    }
    Ok(certificate)
}

fn schedule_of(seed: u64) -> Schedule {
    if seed.is_multiple_of(2) { Schedule::Seeded } else { Schedule::Threads }
}

/// Performs one run and its replay.
fn compare(
    plan: &RunPlan,
    frames: &Frames,
    seed: u64,
    Request { watchdog, meanwhile, .. }: Request<'_>,
) -> Result<(Run, Option<Violation>), CertifyError> {
    let schedule = schedule_of(seed);
    let control = Control {
        record: true,
        schedule: (schedule == Schedule::Seeded).then_some(seed),
        watchdog: watchdog.cloned(),
        ..Control::default()
    };
    let mut report = match meanwhile.filter(|_| schedule == Schedule::Threads) {
        Some(meanwhile) => run_meanwhile(plan, frames, &control, meanwhile)?,
        None => launch(plan, Box::new(frames.source("certify")), Box::new(NullSink), &control)?,
    };
    let Some(record) = report.record.take() else { unreachable!("a recorded run has a record") };
    let run = Run {
        seed,
        schedule,
        transactions: record.logs.iter().map(|log| log.entries.len()).sum(),
        aborts: report.total.aborts,
        panics: report.total.panics,
        packets: report.workers.iter().map(|worker| worker.packets_in).collect(),
        covered: Covered {
            sets_created: report.total.sets_created,
            sets_expired: report.total.sets_expired.saturating_sub(report.total.sets_evicted),
            sets_evicted: report.total.sets_evicted,
            sets_refused: report.total.sets_refused,
            dropped: report.total.drops.total(),
            made: report.total.packets_copied,
        },
    };
    let differences = replay(plan, &record, watchdog)?;
    let count = differences.len();
    let violation = differences.into_iter().next().map(|first| Violation {
        seed,
        schedule,
        packets: frames.len(),
        differences: count,
        before: before(&first, &record.logs),
        ..describe(first)
    });
    Ok((run, violation))
}

/// Performs a run with an action in parallel.
fn run_meanwhile(
    plan: &RunPlan,
    frames: &Frames,
    control: &Control,
    Meanwhile(act): Meanwhile<'_>,
) -> Result<Report, RunError> {
    let (live, is_over) = (Live::new(plan.workers), AtomicBool::new(false));
    let control = Control { live: Some(Arc::clone(&live)), ..control.clone() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Relaxed: the flag carries no data.
            while !is_over.load(Ordering::Relaxed) && !live.has_ended() {
                act(&live);
            }
        });
        // Also if the run panics.
        let _over = Over(&is_over);
        launch(plan, Box::new(frames.source("certify")), Box::new(NullSink), &control)
    })
}

/// Sets a flag when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A difference; the most informative ones come first.
enum Found {
    Replayed(Difference),
    Twice(String),
}

fn replay(plan: &RunPlan, record: &Record, watchdog: Option<&Watchdog>) -> Result<Vec<Found>, CertifyError> {
    let Foundation { domain, chain } = build(plan)?;
    let mut tx = Tx::new(&domain, 0);
    run_once(&chain, &mut tx, plan.ports, 0, |stage, event| stage.start(event));
    tx.replay(0, Vec::new());
    let buffers: usize = record.logs.iter().flat_map(|log| &log.batches).map(|batch| batch.inputs.len()).sum();
    // A table that evicts may hold up to one more batch of sets until that batch is finished.
    let sets = (plan.sets_per_worker() + BATCH_MAX) * plan.workers;
    let replay = Replay::new(Arc::clone(&chain), tx, sets, plan.ports, buffers as u32 + 512)
        .map_err(|error| CertifyError::Replay(error.to_string()))?;
    let (differences, content) = match watchdog {
        Some(watchdog) => replay.run_watched(&record.logs, watchdog),
        None => replay.run(&record.logs),
    };
    let twice = record.twice.iter().cloned().map(Found::Twice);
    let replayed = differences.into_iter().map(Found::Replayed);
    let mine = snapshots(&chain);
    let objects = differing_objects(&record.objects, &mine);
    let sets = differing_sets(&chain, &record.sets, &content);
    Ok(twice.chain(replayed).chain(objects.map(Found::Replayed)).chain(sets.into_iter().map(Found::Replayed)).collect())
}

fn differing_objects<'a>(
    parallel: &'a [(String, Vec<u8>)],
    sequential: &'a [(String, Vec<u8>)],
) -> impl Iterator<Item = Difference> + 'a {
    parallel.iter().zip(sequential).filter(|(a, b)| a.1 != b.1).map(|((name, a), (_, b))| Difference::Object {
        name: name.clone(),
        at: a.iter().zip(b).take_while(|(a, b)| a == b).count(),
        parallel_bytes: a.len(),
        sequential_bytes: b.len(),
    })
}

fn differing_sets(chain: &braid_runtime::Chain, parallel: &[SetContent], sequential: &[SetContent]) -> Vec<Difference> {
    let mut found = Vec::new();
    for (group, (a, b)) in chain.groups().iter().zip(parallel.iter().zip(sequential)) {
        let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
        for key in keys.into_iter().filter(|key| a.get(key) != b.get(key)) {
            found.push(Difference::Sets {
                set: group.set.name.clone(),
                key: key.to_string(),
                parallel: a.get(key).cloned(),
                sequential: b.get(key).cloned(),
            });
        }
    }
    found
}

fn describe(found: Found) -> Violation {
    let mut violation = Violation {
        seed: 0,
        schedule: Schedule::Seeded,
        packets: 0,
        what: String::new(),
        packet: None,
        before: Vec::new(),
        differences: 0,
    };
    let state = |entry: Option<(u16, Vec<u8>)>| {
        entry.map_or("not there".to_owned(), |(live, bytes)| format!("live for {live:#b}, {}", hex(&bytes)))
    };
    violation.what = match found {
        Found::Twice(key) => format!("two workers held the packet set {key}: steering tore it apart"),
        Found::Replayed(Difference::Packet { sequence, worker, function, packet, input, parallel, sequential }) => {
            let (parallel, sequential) = (outcome(parallel), outcome(sequential));
            violation.packet = Some(PacketDifference {
                number: packet,
                function,
                worker,
                transaction: sequence,
                input,
                parallel,
                sequential,
            });
            "a packet came out differently than from one worker".to_owned()
        }
        Found::Replayed(Difference::Made { sequence, worker, function, parallel, sequential }) => format!(
            "{function} made other packets without a packet (transaction {sequence} on worker {worker}): {} in parallel, {} from one worker",
            packets(&parallel),
            packets(&sequential)
        ),
        Found::Replayed(Difference::Choice { sequence, function, violation }) => {
            format!(
                "{function} was given a choice that no sequential order allows (transaction {sequence}): {violation}"
            )
        }
        Found::Replayed(Difference::Refused { sequence, function }) => {
            format!("one worker cannot repeat transaction {sequence} of {function}")
        }
        Found::Replayed(Difference::Unnamed { function, field, packet }) => format!(
            "{function} changes {field} (of packet {packet}) and does not say so (`NetworkFunction::rewrites`): functions behind it would go on \
             with the packet sets of the former value"
        ),
        Found::Replayed(Difference::Object { name, at, parallel_bytes, sequential_bytes }) => format!(
            "the final content of {name} differs from byte {at} on ({parallel_bytes} bytes in parallel, {sequential_bytes} from one worker)"
        ),
        Found::Replayed(Difference::Sets { set, key, parallel, sequential }) => format!(
            "the packet set {key} ({set}) ended differently: {} in parallel, {} from one worker",
            state(parallel),
            state(sequential)
        ),
    };
    violation
}

fn outcome(output: Output) -> Outcome {
    let verdict = match output.verdict {
        Verdict::Forward(port) => format!("to port {port}"),
        Verdict::Flood => "flooded".to_owned(),
        Verdict::Drop(reason) => format!("dropped: {}", reason.0),
        Verdict::Onward => unreachable!("decisions are kept as ports, floods and drops"),
    };
    let made = output.emitted.iter().map(packet).collect();
    Outcome { verdict, bytes: output.bytes, made }
}

fn packet((port, bytes): &(Port, Vec<u8>)) -> String {
    format!("to port {port}: {}", hex(bytes))
}

fn packets(made: &[(Port, Vec<u8>)]) -> String {
    if made.is_empty() { "none".to_owned() } else { made.iter().map(packet).collect::<Vec<_>>().join(", ") }
}

/// The transactions of the same function just before a difference, on all workers.
fn before(found: &Found, logs: &[WorkerLog]) -> Vec<String> {
    let Found::Replayed(
        Difference::Packet { sequence, .. }
        | Difference::Made { sequence, .. }
        | Difference::Choice { sequence, .. }
        | Difference::Refused { sequence, .. },
    ) = found
    else {
        return Vec::new();
    };
    let mut entries: Vec<&Entry> = logs.iter().flat_map(|log| &log.entries).collect();
    entries.sort_by_key(|entry| entry.sequence);
    let Some(at) = entries.iter().position(|entry| entry.sequence == *sequence) else { return Vec::new() };
    let stage = entries[at].deed.stage();
    let earlier = entries[..at].iter().rev().filter(|entry| entry.deed.stage() == stage).take(BEFORE_MAX);
    let mut lines: Vec<String> = earlier.map(|entry| in_words(entry, logs)).collect();
    lines.reverse();
    lines
}

fn in_words(entry: &Entry, logs: &[WorkerLog]) -> String {
    let what = match &entry.deed {
        Deed::Handled { batch, packets, .. } => {
            let inputs = &logs[entry.worker].batches[*batch].inputs;
            let numbers: Vec<String> =
                packets.iter().take(8).map(|&i| inputs[i as usize].info.sequence.to_string()).collect();
            let more = if packets.len() > 8 { format!(" and {} more", packets.len() - 8) } else { String::new() };
            format!("packets {}{more}", numbers.join(", "))
        }
        Deed::Through { batch, packet, .. } => {
            let input = &logs[entry.worker].batches[*batch].inputs[usize::from(*packet)];
            format!("packet {} through all functions", input.info.sequence)
        }
        Deed::Expired { keys, .. } => {
            let names: Vec<String> = keys.iter().map(ToString::to_string).collect();
            let s = if names.len() > 1 { "s" } else { "" };
            format!("packet set{s} {} expired", names.join(", "))
        }
        Deed::Ticked { tick, .. } => format!("period {}", tick.period),
    };
    format!("transaction {} on worker {}: {what}", entry.sequence, entry.worker)
}

/// Removes halves, quarters and so on of the input while the rest still fails and time remains.
fn shrink(plan: &RunPlan, request: Request<'_>, violation: Violation) -> Violation {
    let begun = Instant::now();
    let request = Request { watchdog: None, ..request };
    let (mut smallest, mut frames, mut parts) = (violation, request.frames.clone(), 2);
    while frames.len() > 1 && parts <= frames.len() {
        let size = frames.len().div_ceil(parts);
        let (mut from, mut smaller) = (0, None);
        while from < frames.len() {
            if begun.elapsed() > SHRINK_MAX {
                return smallest;
            }
            let candidate = frames.without(from..(from + size).min(frames.len()));
            if let Some(violation) = fails_again(plan, &candidate, smallest.seed, request) {
                smaller = Some((candidate, violation));
                break;
            }
            from += size;
        }
        match smaller {
            Some((candidate, violation)) => {
                (frames, smallest) = (candidate, violation);
                parts = (parts - 1).max(2);
            }
            None => parts *= 2,
        }
    }
    smallest
}

fn fails_again(plan: &RunPlan, frames: &Frames, seed: u64, request: Request<'_>) -> Option<Violation> {
    let attempts = if schedule_of(seed) == Schedule::Seeded { 1 } else { ATTEMPTS_ON_THREADS };
    (0..attempts).find_map(|_| compare(plan, frames, seed, request).ok().and_then(|(_, violation)| violation))
}
