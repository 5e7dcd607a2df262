//! The command line of Braid, as a library. `braid` itself, and the binaries that `braid new` creates for a
//! user's own functions, call [`main`] with different catalogs.
//!
//! [`args`] holds what was typed, [`chain`] and [`input`] interpret it, and [`commands`] act on it. Errors
//! become a [`failure`], which determines the exit code.
#![forbid(unsafe_code)]
// The reader of an output may have gone; `aside` and `commands::print` tolerate that.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod args;
pub mod bench;
pub mod catalog;
pub mod chain;
pub mod commands;
pub mod connect;
pub mod failure;
pub mod input;
mod lints;
mod processor;
pub mod run;
mod stderr;
pub mod study;

use std::process::ExitCode;

use braid_control::{Catalog, Entry};

pub use braid_control as control;

/// Runs the whole program. The user's own functions take precedence over those that come with Braid.
pub fn main(own: Vec<Entry>) -> ExitCode {
    run::panics::say_each_once();
    run::watch::bear_limits_of_files();
    let done = processor::check().and_then(|()| {
        let cli = args::Cli::typed();
        act(cli.command, &catalog::catalog(own))
    });
    match done {
        Ok(code) => code,
        Err(failure) => {
            stderr::aside!("{}", failure.render());
            failure.exit_code()
        }
    }
}

fn act(command: args::Command, catalog: &Catalog) -> Result<ExitCode, failure::Failure> {
    match command {
        args::Command::Run(args) => commands::run::run(&args, catalog),
        args::Command::Top(args) => commands::top::run(&args),
        args::Command::Apply(args) => commands::apply::run(&args),
        args::Command::Upgrade(args) => commands::upgrade::run(&args),
        args::Command::Health(args) => commands::health::run(&args),
        args::Command::Snapshot(args) => commands::snapshot::run(&args),
        args::Command::Trace(args) => commands::trace::run(&args, catalog),
        args::Command::Sets(args) => commands::sets::run(&args, catalog),
        args::Command::Entries(args) => commands::entries::run(&args, catalog),
        args::Command::Stats(args) => commands::stats::run(&args),
        args::Command::Plan(args) => commands::plan::run(&args, catalog),
        args::Command::Certify(args) => commands::certify::run(&args, catalog),
        args::Command::Scenario(args) => commands::scenario::run(&args, catalog),
        args::Command::Profile(args) => commands::profile::run(&args, catalog),
        args::Command::Model(args) => commands::model::run(&args, catalog),
        args::Command::Tune(args) => commands::tune::run(&args, catalog),
        args::Command::Study(args) => commands::study::run(&args),
        args::Command::Gen(args) => commands::generate::run(&args),
        args::Command::CheckRss(args) => commands::check_rss::run(&args, catalog),
        args::Command::Doctor(args) => commands::doctor::run(&args),
        args::Command::Nf(args) => commands::nf::run(&args, catalog),
        args::Command::Bench(args) => commands::bench::run(&args, catalog),
        args::Command::New(args) => commands::new::run(&args),
        args::Command::Completions(args) => commands::completions::run(&args, catalog),
        args::Command::Man(args) => commands::completions::man(&args),
    }
}
