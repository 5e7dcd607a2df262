//! `braid trace`: packets step by step through a chain, of a capture or of a run that goes on.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_control::filter::Filter;
use braid_control::live::{Request, TraceReport, service};
use braid_control::runtime::io::capture::{CaptureWriter, Precision};
use braid_control::runtime::io::{NullSink, Source};
use braid_control::runtime::{Control, Live, launch};
use braid_control::{Carry, Catalog, Compiled};

use super::{print, print_json, run};
use crate::args::{ChainArgs, InputArgs};
use crate::aside::asideln;
use crate::chain::Written;
use crate::connect::{ControlArgs, connect};
use crate::failure::{Failure, Kind};

/// `braid trace`.
#[derive(Debug, clap::Args)]
pub struct TraceArgs {
    /// Which packets, as capture filters say it: 'host 10.0.0.1 and tcp port 80'; '' for all
    pub filter: String,
    /// The chain; without one, a run is asked by its control socket
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// How many packets
    #[arg(long, short = 'n', default_value_t = 10, value_name = "N")]
    pub count: u64,
    /// How long packets of a run are waited for
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub wait: String,
    /// Also write the packets to a capture, as they came and as they left; in pcapng with what happened as comments
    #[arg(long = "out", value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Print one JSON array on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
pub fn run(args: &TraceArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let filter = Filter::parse(&args.filter).map_err(|error| Failure::usage(error.what, error.help))?;
    let is_of_run = args.chain.nf.is_empty() && args.chain.plan.is_none();
    let replay = if is_of_run { None } else { Some(Prepared::new(args, catalog)?) };
    let mut writer = args.to.as_deref().map(|path| CaptureWriter::create(path, Precision::Nanoseconds)).transpose()?;
    let mut reports = Vec::new();
    let mut take = |report: TraceReport| {
        if let Some(writer) = &mut writer {
            report.frames().iter().for_each(|(bytes, info, comment)| writer.write_commented(bytes, info, comment));
        }
        if !args.json {
            // Whoever has seen enough may close the pipe; the end tells of other errors.
            let _ = print(&report.to_string());
        }
        reports.push(report);
    };
    match replay {
        Some(replay) => of_capture(replay, filter, args.count, &mut take)?,
        None => {
            let seconds = run::duration(&args.wait)?.as_secs_f64();
            let request = Request::Trace { filter: args.filter.clone(), count: args.count, seconds };
            let _: u64 = connect(&args.control)?.ask_more(&request, &mut take)?;
        }
    }
    if args.json {
        print_json(&reports)?;
    }
    if reports.is_empty() {
        asideln!("no packet matched");
    }
    if let Some(writer) = &mut writer {
        writer.finish().map_err(|error| Failure::new(Kind::Io, error.to_string(), ""))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A capture and the chain that it is to go through.
struct Prepared {
    compiled: Compiled,
    source: Box<dyn Source>,
}

impl Prepared {
    fn new(args: &TraceArgs, catalog: &Catalog) -> Result<Prepared, Failure> {
        let written = Written::read(&args.chain, Some(&args.input), &[])?;
        let plan = written.plan(catalog)?;
        let compiled = written.compile(&plan, Carry::Capture)?;
        let input = written.input(&plan)?;
        input.spared_by(args.to.as_slice())?;
        let source = input.source()?;
        written.check_ports(source.ports(), &plan)?;
        Ok(Prepared { compiled, source })
    }
}

/// Runs the capture through the chain until enough packets were followed.
fn of_capture(
    Prepared { compiled, source }: Prepared,
    filter: Filter,
    count: u64,
    take: &mut dyn FnMut(TraceReport),
) -> Result<(), Failure> {
    let (order, traced) = service::order(&Arc::new(filter), count);
    let (live, left) = (Live::new(compiled.run.workers), Arc::clone(&order.left));
    let control = Control { live: Some(Arc::clone(&live)), trace: Some(order), ..Control::default() };
    let stop = Arc::clone(&control.stop);
    let waiting = std::thread::spawn(move || {
        let wanted = left.load(Ordering::Relaxed) as usize;
        let found: Vec<_> = traced.iter().take(wanted).collect();
        stop.store(true, Ordering::Relaxed);
        found
    });
    let result = launch(&compiled.run, source, Box::new(NullSink), &control);
    // The last copies of the order go with the control, and so does whoever waits for more.
    drop(control);
    let mut found = waiting.join().unwrap_or_default();
    result?;
    found.sort_by_key(|traced| traced.sequence);
    if let Some(running) = live.running() {
        found.iter().for_each(|traced| take(TraceReport::new(traced, &running)));
    }
    Ok(())
}
