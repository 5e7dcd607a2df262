//! `braid study`: the case studies of the papers, modelled to 64 workers and measured on one and two.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use braid_control::Plan;
use braid_control::model::{Request, model, rate, real};
use braid_control::profile::plot::{Plot, Series};
use braid_control::profile::{ModelReport, Profile};
use braid_control::profile_run::profile;

use super::model::{USUAL, WORKERS_MAX};
use super::{Loaded, loaded, print, writable, write};
use crate::args::{ChainArgs, InputArgs};
use crate::catalog::{catalog, own};
use crate::failure::Failure;
use crate::input::numbers::between;
use crate::stderr::asideln;
use crate::study::{Study, Variant, cost, dummy::Dummy, imbalance};

/// `braid study`.
#[derive(Debug, clap::Args)]
pub struct StudyArgs {
    /// The study to run
    #[arg(value_enum)]
    pub study: Study,
    /// Write the plot to this SVG file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Numbers of virtual workers
    #[arg(long = "workers", short = 'w', value_name = "N[,N…]", value_delimiter = ',', value_parser = between(1, WORKERS_MAX))]
    pub virtual_workers: Option<Vec<usize>>,
    /// Packets per run, modelled or real, divided among its workers
    #[arg(long, default_value_t = 400_000, value_name = "N", value_parser = between(1, u64::MAX))]
    pub packets: u64,
    /// Repetitions of calibrations and real runs; medians are reported
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = between(1, 1000_usize))]
    pub repeats: usize,
}

/// Runs the command.
pub fn run(args: &StudyArgs) -> Result<ExitCode, Failure> {
    let study = args.study;
    if let Some(path) = &args.svg {
        if matches!(study, Study::Profiling | Study::Cost) {
            return Err(Failure::usage("this study is a table and has no plot", "leave out --svg"));
        }
        writable(path)?;
    }
    let text = match study {
        Study::Overhead => overhead(args)?,
        Study::Profiling => profiling(args)?,
        Study::Imbalance => balance(args)?,
        Study::Cost => cost::table(args.repeats)
            .map_err(|error| Failure::usage(error, "the objects take half a gigabyte: free some memory"))?,
        _ => scaling(args)?,
    };
    print(&format!("{text}\n{}\n", study.paper()))?;
    Ok(ExitCode::SUCCESS)
}

/// The chain and the input of a variant.
fn chain(variant: &Variant) -> (ChainArgs, InputArgs) {
    let chain = ChainArgs {
        nf: vec![variant.function.to_owned()],
        set: variant.set.clone(),
        batch: variant.batch,
        ..ChainArgs::default()
    };
    (chain, InputArgs { from: vec![variant.input.to_owned()], ..InputArgs::default() })
}

/// Models every variant for several numbers of workers, with one and two real workers for comparison.
fn scaling(args: &StudyArgs) -> Result<String, Failure> {
    let catalog = catalog(vec![own::<Dummy>("touches one element for each packet", 2)]);
    let usual: &[usize] = match args.study {
        Study::Validation => &[1, 2],
        Study::Memory => &[1, 2, 4, 8, 16, 23],
        _ => &USUAL,
    };
    let workers = args.virtual_workers.as_deref().unwrap_or(usual);
    let mut found = Vec::new();
    for variant in args.study.variants() {
        asideln!("{}…", variant.name);
        let (chain, input) = chain(&variant);
        let Loaded { plan, frames, input, .. } = loaded(&chain, &input, None, &catalog)?;
        let (packets, repeats) = (args.packets, args.repeats);
        let request = Request { frames: &frames, input: &input, packets, repeats, seed: 0 };
        found.push((variant.name, model(&plan, workers, &[1, 2], request)?));
    }
    draw(args, &found)?;
    let mut text = if args.study == Study::Validation { validation(&found) } else { table(args.study, &found) };
    if let Some(advice) = found.iter().find_map(|(_, report)| report.advice()) {
        let _ = write!(text, "\n{advice}\n");
    }
    Ok(text)
}

/// Compares modelled with measured figures, with a line for each workload and number of workers.
fn validation(found: &[(String, ModelReport)]) -> String {
    let mut out = format!(
        "{:<28} workers  {:>34}  {:>36}   present\n",
        "workload", "Mpps modelled, measured (error)", "rolled back modelled, measured (error)"
    );
    let off = |error: Option<f64>| error.map_or_else(String::new, |error| format!("({:+.1} %)", 100.0 * error));
    for (name, report) in found {
        for row in &report.rows {
            let Some(measured) = row.measured else { continue };
            let (rate, aborts) = (row.rate / 1e6, 100.0 * row.abort_share);
            let _ = writeln!(
                out,
                "{name:<28} {:>7}  {rate:>12.2} {:>9.2} {:>11}   {aborts:>12.2} % {:>8.2} % {:>10}   {:>5.0} %",
                row.workers,
                measured.rate / 1e6,
                off(row.error()),
                100.0 * measured.abort_share,
                off(row.abort_error()),
                100.0 * measured.presence
            );
        }
    }
    out
}

fn table(study: Study, found: &[(String, ModelReport)]) -> String {
    let memory = study == Study::Memory;
    let mut out = match memory {
        true => "workers: MiB of tables and objects\n".to_owned(),
        false => "workers: million packets a second, modelled (attempts rolled back); ‖ measured here\n".to_owned(),
    };
    for (name, _) in found {
        let _ = write!(out, "  {name:>28}");
    }
    out.push('\n');
    for at in 0..found.first().map_or(0, |(_, report)| report.rows.len()) {
        let _ = write!(out, "{:>3}", found[0].1.rows[at].workers);
        for (_, report) in found {
            let row = &report.rows[at];
            let cell = match (memory, row.measured) {
                (true, _) => format!("{:.1}", row.memory_bytes as f64 / 1048576.0),
                (_, None) => format!("{:.2} ({:.1} %)", row.rate / 1e6, 100.0 * row.abort_share),
                (_, Some(real)) => {
                    let (rate, aborts) = (real.rate / 1e6, 100.0 * real.abort_share);
                    format!("{:.2} ({:.1} %) ‖ {rate:.2} ({aborts:.1} %)", row.rate / 1e6, 100.0 * row.abort_share)
                }
            };
            let _ = write!(out, "  {cell:>28}");
        }
        out.push('\n');
    }
    out
}

fn draw(args: &StudyArgs, found: &[(String, ModelReport)]) -> Result<(), Failure> {
    let Some(path) = &args.svg else { return Ok(()) };
    let memory = args.study == Study::Memory;
    let series = |(name, report): &(String, ModelReport)| {
        let value = |rate: f64, bytes: usize| if memory { bytes as f64 / 1048576.0 } else { rate / 1e6 };
        let points = report.rows.iter().map(|row| (row.workers as f64, value(row.rate, row.memory_bytes)));
        let real = |row: &braid_control::profile::ModelRow| Some((row.workers as f64, row.measured?.rate / 1e6));
        let measured = if memory { Vec::new() } else { report.rows.iter().filter_map(real).collect() };
        Series { name: name.clone(), points: points.collect(), measured }
    };
    let title = format!(
        "braid study {}",
        clap::ValueEnum::to_possible_value(&args.study).map_or_else(String::new, |v| v.get_name().to_owned())
    );
    let y = if memory { "MiB" } else { "million packets a second: lines modelled, rings measured" };
    let plot = Plot { title, x: "workers".into(), y: y.into(), series: found.iter().map(series).collect() };
    write(path, &plot.svg())
}

/// Time per packet by part, measured on one worker and on two.
fn overhead(args: &StudyArgs) -> Result<String, Failure> {
    let catalog = catalog(Vec::new());
    let mut out = "measured: share of busy time\n".to_owned();
    let _ = writeln!(
        out,
        "  {:<14} {:>7} {:>10} {:>10} {:>14} {:>8} {:>8}",
        "function", "workers", "ns/packet", "handlers", "begin, access", "commit", "retry"
    );
    let mut plot = Plot {
        title: "braid study overhead".into(),
        x: "workers".into(),
        y: "% of busy time in transactions, measured".into(),
        ..Plot::default()
    };
    for variant in args.study.variants() {
        let (chain, input) = chain(&variant);
        let Loaded { plan, frames, input, .. } = loaded(&chain, &input, None, &catalog)?;
        let (packets, repeats) = (args.packets, 1);
        let request = Request { frames: &frames, input: &input, packets, repeats, seed: 0 };
        let mut series = Series { name: variant.name.clone(), ..Series::default() };
        for workers in [1, 2] {
            let profile = middle_profile(&plan, &input, workers, request, args.repeats)?;
            let share = |what: &str| of(&profile, what, |part| part.share);
            let all = of(&profile, "", |part| part.ns_per_packet);
            let (access, commit, retry) = (share("access"), share("commit"), share("retry"));
            let _ = writeln!(
                out,
                "  {:<14} {workers:>7} {all:>10.1} {:>8.1} % {:>12.1} % {:>6.1} % {:>6.1} %",
                variant.name,
                100.0 * share("handlers"),
                100.0 * access,
                100.0 * commit,
                100.0 * retry
            );
            series.points.push((workers as f64, 100.0 * (access + commit + retry)));
        }
        plot.series.push(series);
    }
    if let Some(path) = &args.svg {
        write(path, &plot.svg())?;
    }
    Ok(out)
}

/// The median of several profiles by time per packet.
fn middle_profile(
    plan: &Plan,
    input: &str,
    workers: usize,
    request: Request<'_>,
    repeats: usize,
) -> Result<Profile, Failure> {
    let once = |_| Ok(profile(plan, input, &real(plan, workers, request, true)?, false));
    let mut profiles = (0..repeats.max(1)).map(once).collect::<Result<Vec<_>, Failure>>()?;
    let time = |profile: &Profile| of(profile, "", |part| part.ns_per_packet);
    profiles.sort_by(|a, b| time(a).total_cmp(&time(b)));
    Ok(profiles.swap_remove(profiles.len() / 2))
}

/// Processor time per packet without and with a profile, measured alternately on one worker: medians.
fn profiling(args: &StudyArgs) -> Result<String, Failure> {
    let catalog = catalog(Vec::new());
    let mut out = format!(
        "measured on one worker, medians of {} runs each, in alternation\n  {:<14} {:>16} {:>16} {:>9}\n",
        args.repeats, "function", "ns/packet", "with a profile", "ratio"
    );
    for variant in args.study.variants() {
        let (chain, input) = chain(&variant);
        let Loaded { plan, frames, input, .. } = loaded(&chain, &input, None, &catalog)?;
        let request = Request { frames: &frames, input: &input, packets: args.packets, repeats: 1, seed: 0 };
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..args.repeats.max(1) {
            for (profiled, times) in [false, true].into_iter().zip(&mut times) {
                times.push(1e9 / rate(&real(&plan, 1, request, profiled)?));
            }
        }
        let [without, with] = times.map(|mut times| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        });
        let _ = writeln!(out, "  {:<14} {without:>16.1} {with:>16.1} {:>9.3}", variant.name, with / without);
    }
    Ok(out)
}

/// How evenly flows are distributed to modelled workers.
fn balance(args: &StudyArgs) -> Result<String, Failure> {
    let workers = args.virtual_workers.as_deref().and_then(|list| list.first().copied()).unwrap_or(8);
    let failed = |error: braid_control::runtime::steer::reta::RetaError| {
        Failure::usage(error.to_string(), "ask for fewer workers: --workers 8")
    };
    let rows = imbalance::study(workers).map_err(failed)?;
    if let Some(path) = &args.svg {
        write(path, &imbalance::plot(&rows, workers).svg())?;
    }
    Ok(imbalance::table(&rows, workers))
}

/// The sum over the parts of a profile whose names contain `what`.
fn of(profile: &Profile, what: &str, value: impl Fn(&braid_control::profile::TimePart) -> f64) -> f64 {
    // Adding 0.0 matters because an empty sum of floats is -0.
    profile.time.iter().filter(|part| part.part.contains(what)).map(value).sum::<f64>() + 0.0
}
