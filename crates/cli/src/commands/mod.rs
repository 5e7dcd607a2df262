//! The commands, one file for each.

pub mod apply;
pub mod bench;
pub mod certify;
pub mod check_rss;
pub mod completions;
pub mod doctor;
pub mod entries;
pub mod generate;
pub mod health;
pub mod model;
pub mod new;
pub mod nf;
pub mod plan;
pub mod profile;
pub mod run;
pub mod scenario;
pub mod sets;
pub mod snapshot;
pub mod stats;
pub mod study;
pub mod top;
pub mod trace;
pub mod tune;
pub(crate) mod upgrade;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use braid_control::frames::Frames;
use braid_control::model::Request;
use braid_control::report::grouped;
use braid_control::runtime::io::capture::Damage;
use braid_control::runtime::io::{NullSink, Patient, atomic_file};
use braid_control::runtime::{AtEnd, Control, Worker, launch};
use braid_control::{Carry, Catalog, Plan};
use serde::Serialize;

use crate::args::{ChainArgs, InputArgs};
use crate::chain::Written;
use crate::failure::{Failure, Kind};
use crate::stderr::asideln;

/// Maximum number of packets of an input that are held in memory to be replayed.
const FRAMES_MAX: usize = 1_000_000;

/// A plan, and its input in memory.
pub(crate) struct Loaded {
    pub(crate) plan: Plan,
    pub(crate) frames: Frames,
    /// The input's name.
    pub(crate) input: String,
    /// Where the input is damaged: the frames are those before it.
    pub(crate) damages: Vec<Damage>,
}

/// Loads a plan and its input into memory. A plan with interfaces is tried
/// on an input in their place, and the returned plan keeps the interfaces. `to` is a file to be written at
/// the end, with a description; it must not be one of the files read.
pub(crate) fn loaded(
    chain: &ChainArgs,
    input: &InputArgs,
    to: Option<(&PathBuf, &str)>,
    catalog: &Catalog,
) -> Result<Loaded, Failure> {
    let live = match input.from.is_empty() {
        true => None,
        false => Some(Written::read(chain, None, &[])?).filter(|written| !written.file.port.is_empty()),
    };
    let written = Written::read(chain, Some(input), &[])?;
    let plan = written.plan(catalog)?;
    if let Some((path, what)) = to {
        written.spared_by(path, what, &plan)?;
        writable(path)?;
    }
    let (frames, input, damages) = written.frames(&plan, FRAMES_MAX)?;
    written.compile(&plan, Carry::Nothing)?;
    let plan = live.map_or(Ok(plan), |live| live.plan(catalog))?;
    Ok(Loaded { plan, frames, input, damages })
}

/// Has an input go through a chain to see what is left: `look` is given each worker when all have ended, and how many are still to come. Says where
/// the input is damaged.
pub(crate) fn at_end(
    chain: &ChainArgs,
    input: &InputArgs,
    catalog: &Catalog,
    look: impl Fn(&mut Worker, usize) + Send + Sync + 'static,
) -> Result<Vec<Damage>, Failure> {
    let written = Written::read(chain, Some(input), &[])?;
    let plan = written.plan(catalog)?;
    let compiled = written.compile(&plan, Carry::Nothing)?;
    let source = written.input(&plan)?.source()?;
    written.check_ports(source.ports(), &plan)?;
    let workers = compiled.run.workers;
    let at_last = move |worker: &mut Worker| look(worker, workers - 1 - worker.id());
    let control = Control { at_last: Some(AtEnd(Arc::new(at_last))), ..Control::default() };
    Ok(launch(&compiled.run, source, Box::new(NullSink), &control)?.damages)
}

/// Checks early that a file can be written, before minutes of measuring.
pub(crate) fn writable(path: &Path) -> Result<(), Failure> {
    atomic_file::check(path).map_err(|error| Failure::file(path, &error))
}

/// Writes a text file, either completely or not at all.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    atomic_file::write(path, text.as_bytes()).map_err(|error| Failure::file(path, &error))
}

/// Announces what is about to take time, which is longest for long packets, because each is copied in each run.
pub(crate) fn announce(plan: &Plan, request: &Request<'_>, instead: &str) {
    let packets = grouped(request.packets);
    asideln!("{}: several runs of {packets} packets each, made of {}{instead}", plan.chain_name(), request.input);
}

/// Refuses `--end` without a filter.
pub(crate) fn names_what_ends(filter: &str, what: &str) -> Result<(), Failure> {
    if filter.trim().is_empty() {
        let help = "say which by --filter; `greater 0 or not greater 0` means all";
        return Err(Failure::usage(format!("--end is for {what} of a run that a filter names"), help));
    }
    Ok(())
}

/// Prints on standard output. A closed pipe is not an error, because nobody is left to tell.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = Patient(std::io::stdout().lock());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Kind::Io, format!("standard output: {error}"), "redirect it to where there is room"))
        }
        _ => Ok(()),
    }
}

/// Prints one JSON value on standard output.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(Kind::Failed, format!("no JSON can be made: {error}"), ""))?;
    print(&(text + "\n"))
}
