//! `braid trace`: follows packets of a capture or of a run step by step through a chain.

use std::net::Shutdown;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use braid_control::filter::Filter;
use braid_control::live::{Client, ClientError, Request, TraceReport, service};
use braid_control::runtime::io::capture::{CaptureWriter, Damage, Precision};
use braid_control::runtime::io::{NullSink, Source};
use braid_control::runtime::{Control, Live, launch};
use braid_control::{Carry, Catalog, Compiled};

use super::{print, print_json, run};
use crate::args::{ChainArgs, InputArgs};
use crate::chain::Written;
use crate::connect::{ControlArgs, connect, is_of_run};
use crate::failure::{Failure, Kind};
use crate::input::numbers::between;
use crate::input::{spared, undamaged};
use crate::run::watch;
use crate::stderr::asideln;

/// `braid trace`.
#[derive(Debug, clap::Args)]
pub struct TraceArgs {
    /// Which packets, as capture filters say it: 'host 10.0.0.1 and tcp port 80'; '' for all
    pub filter: String,
    /// The chain; without one, a run is queried over its control socket
    #[command(flatten)]
    pub chain: ChainArgs,
    /// The input.
    #[command(flatten)]
    pub input: InputArgs,
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// How many packets
    #[arg(long, short = 'n', default_value_t = 10, value_name = "N", value_parser = between(1, service::TRACED_MAX))]
    pub count: u64,
    /// How long to wait for matching packets of a run
    #[arg(long, default_value = "30s", value_name = "TIME")]
    pub wait: String,
    /// Also write the packets to a capture, as they came and as they left; in pcapng with what happened as comments
    #[arg(long = "out", value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Print one JSON array on standard output
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &TraceArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let filter = Filter::parse(&args.filter).map_err(|error| Failure::usage(error.what, error.help))?;
    let seconds = run::duration(&args.wait)?.as_secs_f64();
    let is_of_run = is_of_run(&args.control, &args.chain, &args.input)?;
    let replay = if is_of_run { None } else { Some(Prepared::new(args, catalog)?) };
    let begin = |path| CaptureWriter::create_whole(path, Precision::Nanoseconds);
    let mut writer = args.to.as_deref().map(begin).transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    watch::stop_on_signal(&stop)?;
    let mut reports = Vec::new();
    let mut take = |report: TraceReport| {
        if let Some(writer) = &mut writer {
            report.frames().iter().for_each(|(bytes, info, comment)| writer.write_commented(bytes, info, comment));
        }
        if !args.json {
            // A user who has seen enough may close the pipe; other errors appear at the end.
            let _ = print(&report.to_string());
        }
        reports.push(report);
    };
    let followed = match replay {
        Some(replay) => of_capture(replay, filter, args.count, &stop, &mut take),
        None => {
            let request = Request::Trace { filter: args.filter.clone(), count: args.count, seconds };
            of_run(connect(&args.control)?, &request, &stop, &mut take)
        }
    };
    // Whatever ended the trace early, packets followed before are not lost.
    if followed.is_ok() || !reports.is_empty() {
        if args.json {
            print_json(&reports)?;
        }
        if let Some(writer) = &mut writer {
            writer.finish().map_err(|error| Failure::new(Kind::Io, error.to_string(), "no file is written"))?;
        }
    }
    let damages = followed?;
    if reports.is_empty() {
        asideln!("no packet matched");
    }
    undamaged(&damages).map(|()| ExitCode::SUCCESS)
}

/// Traces packets of a run; the user may interrupt the wait.
fn of_run(
    mut client: Client,
    request: &Request,
    stop: &Arc<AtomicBool>,
    take: &mut dyn FnMut(TraceReport),
) -> Result<Vec<Damage>, Failure> {
    let (line, told) = (client.line()?, Arc::clone(stop));
    std::thread::spawn(move || {
        // Relaxed: the flag carries no data.
        while !told.load(Ordering::Relaxed) {
            std::thread::sleep(LOOKS_EVERY);
        }
        // If the connection is already broken, the trace has ended.
        let _ = line.shutdown(Shutdown::Both);
    });
    match client.ask_more(request, take) {
        Err(ClientError::Io { .. }) if stop.load(Ordering::Relaxed) => Ok(Vec::new()),
        answer => answer.map(|_: u64| Vec::new()).map_err(Failure::from),
    }
}

/// How often to check whether the trace was interrupted.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// A capture and the chain through which it is to go.
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
        spared(Some(&input), args.to.as_slice())?;
        let source = input.source()?;
        written.check_ports(source.ports(), &plan)?;
        Ok(Prepared { compiled, source })
    }
}

/// Sends the capture through the chain until enough packets have been followed; returns damage found up to there.
fn of_capture(
    Prepared { compiled, source }: Prepared,
    filter: Filter,
    count: u64,
    stop: &Arc<AtomicBool>,
    take: &mut dyn FnMut(TraceReport),
) -> Result<Vec<Damage>, Failure> {
    let (order, traced) = service::order(&Arc::new(filter), count);
    let (live, left) = (Live::new(compiled.run.workers), Arc::clone(&order.left));
    // This is not the signals' flag: once that is set, the next signal ends the program, but the followed packets still have to be written.
    let over = Arc::new(AtomicBool::new(false));
    let control =
        Control { live: Some(Arc::clone(&live)), trace: Some(order), stop: Arc::clone(&over), ..Control::default() };
    let (told, ends) = (Arc::clone(stop), Arc::clone(&over));
    std::thread::spawn(move || {
        // Relaxed: the flags carry no data.
        while !told.load(Ordering::Relaxed) && !ends.load(Ordering::Relaxed) {
            std::thread::sleep(LOOKS_EVERY);
        }
        ends.store(true, Ordering::Relaxed);
    });
    let waiting = std::thread::spawn(move || {
        let wanted = left.load(Ordering::Relaxed) as usize;
        let found: Vec<_> = traced.iter().take(wanted).collect();
        over.store(true, Ordering::Relaxed);
        found
    });
    let result = launch(&compiled.run, source, Box::new(NullSink), &control);
    // Drops the last copies of the order, so that the thread that waits for more packets ends.
    drop(control);
    let mut found = waiting.join().unwrap_or_default();
    let report = result?;
    found.sort_by_key(|traced| traced.sequence);
    if let Some(running) = live.running() {
        found.iter().for_each(|traced| take(TraceReport::new(traced, &running)));
    }
    Ok(report.damages)
}
