//! Interprets and validates what `braid bench` is asked to measure: chains, sizes and times. Everything is
//! validated before the first measurement, so that errors appear at once and not after an hour; an option
//! that no requested measurement uses is also an error.

use std::time::Duration;

use braid_control::plan::file::unplaced;
use braid_control::{Carry, Catalog};

use super::rows::Trial;
use super::stop::Stop;
use super::traffic::{Trace, chain};
use crate::args::BenchArgs;
use crate::chain::{Written, check_name};
use crate::commands::bench::What;
use crate::commands::run::duration;
use crate::failure::Failure;

/// Default number of packets measured per worker.
const PACKETS: f64 = 20e6;
const PACKETS_QUICK: f64 = 1e6;
/// Maximum number of flows with `--quick`.
pub const FLOWS_QUICK: u64 = 100_000;

/// Rejects requests that cannot be measured as specified.
pub fn check(args: &BenchArgs, catalog: &Catalog) -> Result<(), Failure> {
    if let Some((option, users)) = unused(args) {
        let what = format!("{option} says nothing about what is measured here");
        return Err(Failure::usage(what, format!("leave it out, or add --what {users}")));
    }
    time(args, Duration::MAX, Duration::MAX)?;
    let functions = args.chain.iter().flat_map(|chain| chain.split('+'));
    functions
        .map(|function| function.split(':').next().unwrap_or_default())
        .try_for_each(|name| check_name(name, "--chain"))?;
    for (name, written) in chains(args, catalog, &[])? {
        let size = sizes(args).next().unwrap_or((1, 1));
        let plan = trial(args, &Stop::default(), (&name, &written), size).plan(catalog);
        let whole =
            plan.and_then(|plan| if args.plan.is_some() { plan.compile(Carry::Nothing).map(drop) } else { Ok(()) });
        whole.map_err(|problem| written.failure(problem))?;
    }
    Ok(())
}

/// An option that no requested measurement uses, with the measurements that would use it.
fn unused(args: &BenchArgs) -> Option<(&'static str, &'static str)> {
    use What::{Ablation, Bare, Latency, Rates, Soak};
    let chains = [Rates, Latency, Ablation, Soak].as_slice();
    let options: [(&str, bool, &[What]); 12] = [
        ("a plan file", args.plan.is_some(), chains),
        ("--chain", !args.chain.is_empty(), chains),
        ("--trace", args.trace != [Trace::Uniform], &[Rates]),
        ("--distribution", args.distribution.is_some(), &[Rates]),
        ("--packets", args.packets.is_some(), &[Rates, Ablation, Bare]),
        ("--duration", args.duration.is_some(), &[Latency, Soak]),
        ("--batch", args.batch.is_some(), &[Rates, Latency, Soak]),
        ("--gather-us", args.gather_us.is_some(), chains),
        ("--sets", args.sets.is_some(), chains),
        ("--full", args.full.is_some(), chains),
        ("--csv", args.csv.is_some(), &[Rates, Latency, Ablation, Bare]),
        ("--plot", args.plot.is_some(), &[Rates, Latency, Bare]),
    ];
    let (option, _, users) = options
        .into_iter()
        .find(|(_, is_given, users)| *is_given && !args.what.iter().any(|what| users.contains(what)))?;
    Some((option, if users[0] == Rates { "rates" } else { "latency" }))
}

/// Names and plans of the chains to measure: those that were named, else the chains in `usual` whose functions are known.
pub fn chains(args: &BenchArgs, catalog: &Catalog, usual: &[&str]) -> Result<Vec<(String, Written)>, Failure> {
    let named: Vec<&str> = if args.chain.is_empty() {
        let known = |name: &&str| chain(name).nf.iter().all(|nf| catalog.find(nf.function.get_ref()).is_some());
        usual.iter().copied().filter(known).collect()
    } else {
        args.chain.iter().map(String::as_str).collect()
    };
    let mut chains = match &args.plan {
        Some(path) => vec![(path.display().to_string(), Written::of_file(path)?)],
        None => named.iter().map(|name| ((*name).to_owned(), Written::of(chain(name)))).collect(),
    };
    for (_, Written { file, .. }) in &mut chains {
        file.batch = args.batch.map(unplaced).or(file.batch.take());
        file.sets = args.sets.map(unplaced).or(file.sets.take());
        file.gather_us = args.gather_us.map(unplaced).or(file.gather_us.take());
        file.pages = args.pages.clone().map(unplaced).or(file.pages.take());
        for nf in &mut file.nf {
            nf.full = args.full.clone().map(unplaced).or(nf.full.take());
        }
    }
    Ok(chains)
}

/// The trial of a chain with this number of flows and workers, using the first of its distributions.
pub fn trial<'a>(
    args: &BenchArgs,
    stop: &'a Stop,
    (chain, written): (&'a str, &'a Written),
    (flows, workers): (u64, i64),
) -> Trial<'a> {
    Trial {
        chain,
        file: &written.file,
        is_own: args.plan.is_some(),
        trace: Trace::Uniform,
        flows,
        workers,
        distribution: distributions(args, written)[0],
        variant: "",
        step_ns: args.step_ns,
        is_quick: args.quick,
        stop,
    }
}

/// How packets are distributed to workers: as the command line specifies, else as the plan does.
pub fn distributions(args: &BenchArgs, written: &Written) -> &'static [&'static str] {
    let planned = written.file.distribution.as_ref().map(|word| word.get_ref().as_str());
    match args.distribution.as_deref().or(planned) {
        Some("both") => &["hardware", "software"],
        Some("software") => &["software"],
        _ => &["hardware"],
    }
}

/// Number of packets per worker and measurement.
pub fn packets(args: &BenchArgs) -> u64 {
    args.packets.map_or(if args.quick { PACKETS_QUICK } else { PACKETS }, |millions| millions * 1e6) as u64
}

/// The number of flows, limited with `--quick`.
pub fn at_most(args: &BenchArgs, flows: u64) -> u64 {
    if args.quick { flows.min(FLOWS_QUICK) } else { flows }
}

/// Every combination of flows and workers.
pub fn sizes(args: &BenchArgs) -> impl Iterator<Item = (u64, i64)> {
    args.flows.iter().flat_map(|flows| args.workers.iter().map(|workers| (at_most(args, *flows), *workers)))
}

/// The time given by `--duration`, else a default.
pub fn time(args: &BenchArgs, usual: Duration, quick: Duration) -> Result<Duration, Failure> {
    let default = if args.quick { quick } else { usual };
    match args.duration.as_deref().map_or(Ok(default), duration)? {
        Duration::ZERO => Err(Failure::usage("nothing is measured in no time", "write a --duration above 0")),
        time => Ok(time),
    }
}
