//! `braid certify`: compares many workers with one.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_control::Catalog;
use braid_control::certify::{Request, certify};
use braid_control::plan::file::unplaced;
use braid_control::profile::certificate::Certificate;
use braid_control::profile::counted;
use braid_control::runtime::Watchdog;
use indicatif::ProgressBar;
use serde::Serialize;

use super::{print, print_json};
use crate::args::CertifyArgs;
use crate::chain::Written;
use crate::failure::{Failure, Kind};
use crate::input::undamaged;
use crate::stderr::asideln;

/// Default number of workers: fewer would hardly interleave, and schedules do not depend on the number of processors.
const WORKERS_DEFAULT: i64 = 4;

/// Interval of progress messages where no terminal shows a progress bar.
const SAID_EVERY: Duration = Duration::from_secs(20);
/// Number of runs that takes minutes in a build without optimisation.
const MANY: u64 = 20;

/// Runs the command.
pub fn run(args: &CertifyArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let mut written = Written::read(&args.chain, Some(&args.input), &[])?;
    written.file.workers.get_or_insert(unplaced(WORKERS_DEFAULT));
    let plan = written.plan(catalog)?;
    let (frames, name, damages) = written.frames(&plan, args.packets)?;
    written.compile(&plan, braid_control::Carry::Capture)?;
    if plan.workers == 1 {
        asideln!(
            "note: with one worker there is nothing to compare: this only shows that a run can be repeated; \
             leave `workers` out (then there are {WORKERS_DEFAULT}), or name 2 or more"
        );
    }
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(args.runs) } else { ProgressBar::hidden() };
    let request = Request {
        frames: &frames,
        input: &name,
        runs: args.runs,
        seed: args.seed,
        watchdog: Some(&watchdog()),
        meanwhile: None,
    };
    if cfg!(debug_assertions) && args.runs > MANY {
        asideln!("note: this is a debug build, some ten times slower: cargo run --release, or fewer --runs");
    }
    let (mut done, mut said) = (0, Instant::now());
    let certificate = certify(&plan, request, &mut |_| {
        bar.inc(1);
        done += 1;
        if bar.is_hidden() && said.elapsed() >= SAID_EVERY {
            asideln!("note: {done} of {} runs are done", args.runs);
            said = Instant::now();
        }
    })?;
    bar.finish_and_clear();
    if args.json {
        print_json(&Certified {
            certificate: &certificate,
            damages: damages.iter().map(ToString::to_string).collect(),
        })?
    } else {
        print(&certificate.to_string())?
    }
    if let Some(violation) = &certificate.violation {
        asideln!("look at it again: --seed {} --runs 1", violation.seed);
    }
    match certificate.panics() {
        _ if !certificate.holds() => Ok(ExitCode::from(Kind::Failed as u8)),
        0 => undamaged(&damages).map(|()| ExitCode::SUCCESS),
        panics => {
            let what = format!("handlers panicked {}", counted(panics, "time"));
            Err(Failure::new(Kind::Failed, what, "fix the function at the line that the message above names"))
        }
    }
}

/// A certificate, and what of the input it is not about.
#[derive(Serialize)]
struct Certified<'a> {
    #[serde(flatten)]
    certificate: &'a Certificate,
    /// Positions at which the input is damaged.
    damages: Vec<String>,
}

/// Time limit of a handler. A handler over one batch takes microseconds: after this time it will not return.
const HANDLER_MAX: Duration = Duration::from_secs(10);

/// A watchdog that names the function whose handler does not return, and exits the program, because nothing can end the handler's thread.
fn watchdog() -> Watchdog {
    let tell = |function: &str| {
        let what = format!("a handler of `{function}` has not returned for {} s", HANDLER_MAX.as_secs());
        let help = "a handler must end whatever it reads: look for a loop that waits for another packet or worker";
        asideln!("{}", Failure::new(Kind::Failed, what, help).render());
        std::process::exit(Kind::Failed as i32);
    };
    Watchdog { limit: HANDLER_MAX, tell: Arc::new(tell) }
}
