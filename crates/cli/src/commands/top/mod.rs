//! `braid top`: shows a run live: rates, load, drops, aborts. With `--once`, it prints one page of text.

mod screen;
mod sheet;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use braid_control::live::{Request, Stats};

use self::sheet::{Pair, View};
use super::print;
use crate::connect::{ControlArgs, connect};
use crate::failure::Failure;

/// `braid top`.
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// The run.
    #[command(flatten)]
    pub control: ControlArgs,
    /// Refresh interval: 1s, 500ms
    #[arg(long, default_value = "1s", value_name = "TIME")]
    pub every: String,
    /// Print one page and exit
    #[arg(long)]
    pub once: bool,
}

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let every = super::run::duration(&args.every)?.clamp(Duration::from_millis(50), Duration::from_secs(60));
    let mut client = connect(&args.control)?;
    let mut sample = || -> Result<Stats, Failure> { Ok(client.ask(&Request::Stats { timing: true })?) };
    let before = sample()?;
    std::thread::sleep(every);
    let pair = Pair { before, now: sample()? };
    if args.once || !std::io::stdout().is_terminal() {
        print(&page(&pair))?;
    } else {
        screen::show(pair, every, sample)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// All tables that have rows, one after another.
fn page(pair: &Pair) -> String {
    let mut lines = pair.summary();
    for (view, title) in &View::ALL {
        let sheet = pair.sheet(view);
        if !sheet.rows.is_empty() {
            lines.extend([String::new(), format!("── {title}")]);
            lines.extend(sheet.lines());
        }
    }
    lines.join("\n") + "\n"
}
