//! `braid run`: sends packets through a chain.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use braid_control::live::knowledge::WrittenConfigs;
use braid_control::live::{Current, Snapshot};
use braid_control::plan::command_line::CommandLine;
use braid_control::plan::file::{PortFile, unplaced};
use braid_control::profile::{Profile, counted};
use braid_control::profile_run::profile;
use braid_control::runtime::io::capture::{PortSplit, is_dash};
use braid_control::runtime::io::device::{PortSpec, Ports, User};
use braid_control::runtime::io::{Sink, Source};
use braid_control::runtime::live::saved::fits;
use braid_control::runtime::nf::packet::{Pool, PoolConfig};
use braid_control::runtime::{AtStart, Control, Distribution, Live, RunError, Time, launch};
use braid_control::{Carry, Catalog, Compiled, Plan, RunReport};

use super::upgrade::{GoesOn, become_successor};
use super::{print, print_json};
use crate::args::RunArgs;
use crate::chain::{Written, command_line};
use crate::failure::{Failure, Kind};
use crate::input;
use crate::lints::knowledge;
use crate::run::interfaces::Interfaces;
use crate::run::operate::Hangup;
use crate::run::saving::{self, Saving};
use crate::run::watch;
use crate::run::{hash_seed, notify, successor};
use crate::stderr::{aside, asideln};

/// Everything prepared before the first packet.
struct Prepared {
    written: Written,
    plan: Plan,
    compiled: Arc<Compiled>,
    carry: Carry,
    ports: Option<Ports>,
    source: Box<dyn Source>,
    sink: Box<dyn Sink>,
}

/// Runs the command.
pub fn run(args: &RunArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    // First of all: without a handler the signal would end the service.
    let config = args.config.as_deref().map(|config| Hangup::heard().map(|hangup| (config, hangup))).transpose()?;
    let duration = args.duration.as_deref().map(duration).transpose()?;
    let mut control = Control { duration, profile: args.profile, ..Control::default() };
    let Prepared { written, plan, compiled, carry, ports, source, sink } = prepare(args, catalog)?;
    let (workers, from) = (compiled.run.workers, source.name());
    asideln!("{}: workers: {workers}, {}, from {from}", plan.chain_name(), pages(&plan));
    compiled.note.iter().chain(&knowledge::notes(&plan)).for_each(|note| asideln!("note: {note}"));
    let current = Current {
        catalog: catalog.clone(),
        file: written.file.clone(),
        command_line: typed(args)?,
        plan: plan.clone(),
        compiled: Arc::clone(&compiled),
        carry,
        knowledge: knowledge::KNOWLEDGE,
        written: WrittenConfigs::new(),
        successor: None,
    };
    let offered = args.operate.offer(&mut control, current, config, plan.user)?;
    ports.iter().for_each(|ports| offered.watch_ports(ports));
    let restored = begin_with(args, (&written, &plan), &mut control)?;
    let (always, successor) = (args.saved_to().is_some(), offered.on_upgrade());
    let saving = (always || control.live.is_some())
        .then(|| Saving::begin(&mut control, workers, move || always || successor().is_some()));
    if !plan.devices.is_empty() {
        control.live.get_or_insert_with(|| Live::new(workers));
    }
    let asked = match &args.config {
        Some(_) => watch::stop_but_for_hangup(&control.stop)?,
        None => watch::stop_on_signal(&control.stop)?,
    };
    successor::admit_signals();
    let restored = begin_if_it_fits(args, restored, &compiled, &mut control)?;
    control.at_start = Some(when_begun(args, plan.chain_name(), restored.unwrap_or_default()));
    let begun = Instant::now();
    let run = |source: Box<dyn Source>| launch(&compiled.run, source, sink, &control);
    let (report, all_there) = match plan.devices.is_empty() {
        true => (watch::with_progress(source.progress(), || run(source))?, Ok(())),
        false => {
            let interfaces = Interfaces::watch(&plan.devices, &control.stop, control.live.clone());
            (run(source)?, interfaces.end())
        }
    };
    let last_plan = offered.plan().unwrap_or(plan.clone());
    let successor = offered.successor().map(|successor| (successor, args.operate.state_path()));
    // Close the ports now, unless another program continues.
    let ports = ports.filter(|_| successor.is_some());
    let wanted = args.saved_to().or(successor.as_ref().map(|(_, state)| state.as_path()));
    let saved = match (saving.and_then(|saving| saving.end(&last_plan)), wanted) {
        (Some(snapshot), Some(path)) => save(&snapshot, path, successor.is_some()).map(Some),
        _ => Ok(None),
    };
    // If the chain was exchanged meanwhile, stages and counters would not match.
    let profile = (args.profile && names(&last_plan) == names(&plan)).then(|| profile(&plan, &from, &report, false));
    let mut report = RunReport::new(names(&last_plan), &report);
    // Who asks for a duration knows that the input goes on.
    report.stopped &= control.stop.load(Ordering::Relaxed);
    let (successor, beside, state) = match (successor, saved) {
        (Some((successor, beside)), Ok(Some(state))) => (successor, beside, state),
        (_, saved) => {
            notify::of_end();
            // Nobody continues this run or the plan that was applied to it.
            args.applied.as_deref().map(successor::remove);
            // Report in any case what happened to the packets.
            let code = told(args, &plan, &report, profile.as_ref());
            return saved.and(code).and_then(|code| all_there.map(|()| code));
        }
    };
    asideln!("{report}continued by {}", successor.program.display());
    let leave = |text: String| successor::leave_plan(&text, &beside, args.applied.as_deref());
    let applied = offered.successor_plan().map(leave).transpose()?;
    drop(offered);
    let left = duration.map(|duration| duration.saturating_sub(begun.elapsed()));
    let on = GoesOn { state: &state, is_to_stay: args.saved_to().is_some(), applied: applied.as_deref(), left };
    Err(become_successor(&successor, &on, ports.as_ref(), &asked))
}

/// Restores the state that the command line names, if it exists. Returns messages to print when the run has started.
fn begin_with(args: &RunArgs, plan: (&Written, &Plan), control: &mut Control) -> Result<Option<Vec<String>>, Failure> {
    match (&args.restore, &args.state) {
        (Some(path), _) => restore(path, plan, control).map(Some),
        (None, Some(path)) if path.exists() => {
            let goes_on = restore_what_goes_on(path, plan, control);
            goes_on.map(Some).or_else(|failure| saving::begin_without(path, &failure))
        }
        _ => Ok(None),
    }
}

/// The same if the chain takes that state up: found out with a copy, while the run can still begin without.
fn begin_if_it_fits(
    args: &RunArgs,
    restored: Option<Vec<String>>,
    compiled: &Compiled,
    control: &mut Control,
) -> Result<Option<Vec<String>>, Failure> {
    let (None, Some(path), Some(saved)) = (&args.restore, &args.state, &control.restore) else { return Ok(restored) };
    match fits(&compiled.run, saved) {
        // A copy takes more room than the run needs.
        Ok(()) | Err(RunError::Memory(_)) => Ok(restored),
        Err(error) => {
            control.restore = None;
            saving::begin_without(path, &error.into())
        }
    }
}

/// Makes a run continue with the state at `path`; returns messages to print when it does.
fn restore(path: &Path, plan: (&Written, &Plan), control: &mut Control) -> Result<Vec<String>, Failure> {
    restore_snapshot((path, Snapshot::read(path)?), plan, control)
}

/// The same, but functions that cannot go on with their state begin without it: the others need not lose theirs.
fn restore_what_goes_on(
    path: &Path,
    (written, plan): (&Written, &Plan),
    control: &mut Control,
) -> Result<Vec<String>, Failure> {
    let mut snapshot = Snapshot::read(path)?;
    let left_out = snapshot.leave_out(plan).map_err(|problem| written.failure(problem))?;
    let restored = restore_snapshot((path, snapshot), (written, plan), control)?;
    if !left_out.is_empty() {
        let problems: Vec<_> = left_out.into_iter().map(|problem| written.failure(problem)).collect();
        saving::go_on_in_part(path, &problems)?;
    }
    Ok(restored)
}

fn restore_snapshot(
    (path, snapshot): (&Path, Snapshot),
    (written, plan): (&Written, &Plan),
    control: &mut Control,
) -> Result<Vec<String>, Failure> {
    let saved = snapshot.for_plan(plan).map_err(|problem| written.failure(problem))?;
    let restored = saving::told(path, &saved, plan);
    successor::taken(path);
    control.restore = Some(Arc::new(saved));
    Ok(restored)
}

/// The action when the run has started: it prints what the run continues with, notifies the service
/// manager, and removes a state that was left only for this run.
fn when_begun(args: &RunArgs, chain: String, restored: Vec<String>) -> AtStart {
    let left = args.restore.as_deref().and_then(successor::left_for_us);
    AtStart(Arc::new(move |left_out| {
        restored.iter().for_each(|line| asideln!("{line}"));
        if left_out > 0 {
            let sets = counted(left_out, "packet set");
            asideln!(
                "note: {sets} of the earlier run found no place in this one, and ended: more would with more `sets`"
            );
        }
        notify::of_begin(&chain);
        left.as_deref().map(successor::remove);
    }))
}

/// Saves the state and prints that; returns its path. For a program that continues with the state, any place will do.
fn save(snapshot: &Snapshot, path: &Path, goes_on: bool) -> Result<PathBuf, Failure> {
    let (path, bytes) = match goes_on {
        true => successor::leave_state(snapshot, path)?,
        false => (path.to_owned(), snapshot.write(path)?),
    };
    aside!("{}", super::snapshot::text(&snapshot.taken(bytes, Duration::ZERO)));
    Ok(path)
}

/// Reads, validates and compiles the plan, and prepares its source and sink without opening them.
fn prepare(args: &RunArgs, catalog: &Catalog) -> Result<Prepared, Failure> {
    let written = written(args)?;
    if !written.file.port.is_empty() {
        hash_seed::choose()?;
    }
    let mut plan = written.plan(catalog)?;
    plan.ask_interfaces();
    plan.user.map(|_| renounce()).transpose()?;
    if args.json && writes_to_standard_output(&plan) {
        let what = "--json and --out - both write to standard output";
        let help = "name a file to write, or leave out --json: the table goes to standard error";
        return Err(Failure::usage(what, help));
    }
    // A chain that is exchanged later may need metadata that the first one does not need.
    let lean = plan.to.is_empty() && !args.operate.is_wanted() && args.config.is_none();
    let carry = if lean { Carry::Nothing } else { Carry::Capture };
    let compiled = Arc::new(written.compile(&plan, carry)?);
    if let Some(state) = args.saved_to() {
        written.spared_by(state, "the state", &plan)?;
        args.state.as_deref().map_or(Ok(()), saving::spare_blank)?;
        saving::check_place(state, plan.user.filter(|_| !plan.devices.is_empty()))?;
    }
    let ports = ports(&plan, &compiled, plan.user);
    let (source, sink) = ends(&written, &plan, ports.as_ref())?;
    written.check_ports(source.ports(), &plan)?;
    Ok(Prepared { written, plan, compiled, carry, ports, source, sink })
}

/// Prints what happened to the packets, then the profile.
fn told(args: &RunArgs, plan: &Plan, report: &RunReport, profile: Option<&Profile>) -> Result<ExitCode, Failure> {
    let code = told_of_packets(report, args.json, plan)?;
    match profile {
        Some(profile) if args.json || writes_to_standard_output(plan) => aside!("\n{profile}"),
        Some(profile) => print(&format!("\n{profile}"))?,
        None if args.profile => asideln!("note: no profile: the chain was exchanged while it ran"),
        None => {}
    }
    match report.transactions.panics {
        0 => Ok(code),
        panics => {
            let times = counted(panics, "time");
            let what = format!("handlers panicked {times}: their packets were dropped as handler_panic");
            Err(Failure::new(Kind::Failed, what, "fix the function at the line that the message above names"))
        }
    }
}

/// Prints the report, and what was lost.
fn told_of_packets(report: &RunReport, json: bool, plan: &Plan) -> Result<ExitCode, Failure> {
    match (json, writes_to_standard_output(plan)) {
        (true, _) => print_json(report)?,
        (false, true) => aside!("{report}"),
        (false, false) => print(&report.to_string())?,
    }
    if report.stopped && plan.devices.is_empty() {
        asideln!("note: stopped before the end of the input; these are the figures of what came before");
    }
    if may_depend_on_order(plan, report) {
        let what = if report.dropped_total() > 0 { "drops" } else { "findings" };
        asideln!("note: workers replay side by side, so {what} may differ from one worker's; not with --in-order");
    }
    if let Some(note) = about_sides(plan, report) {
        asideln!("note: {note}");
    }
    if let Some(note) = about_stations(report) {
        asideln!("note: {note}");
    }
    debug_assert!(report.adds_up(), "a packet is neither out nor dropped: {report:?}");
    match report.lost.first() {
        Some(lost) => Err(Failure::new(Kind::Io, lost.clone(), "what was written before is readable")),
        None => input::undamaged(&report.damages).map(|()| ExitCode::SUCCESS),
    }
}

/// A note on a router that nobody has sent anything to.
fn about_stations(report: &RunReport) -> Option<String> {
    const OTHER_STATION: &str = "other_station";
    let others = report.dropped.get(OTHER_STATION).copied().filter(|others| others * 10 > report.packets_in * 9)?;
    let packets = counted(others, "packet");
    Some(format!(
        "{OTHER_STATION}: {packets} were for other Ethernet addresses than the router's; `promiscuous = true` in its configuration takes those too"
    ))
}

/// A note on packets that arrived on the wrong side, if a list of prefixes determines on which port they arrive.
fn about_sides(plan: &Plan, report: &RunReport) -> Option<String> {
    const WRONG_SIDE: &str = "wrong_side";
    let PortSplit::InsidePrefixes(inside) = &plan.split else { return None };
    report.dropped.get(WRONG_SIDE).filter(|packets| **packets > 0 && plan.devices.is_empty())?;
    let inside = inside.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Some(format!(
        "{WRONG_SIDE}: not by the port of their connection's side; where neither of two hosts is inside ({inside}), packets of both come by \
         port 1, and --inside says what is inside"
    ))
}

/// Whether another number of workers might have dropped other packets or found something else. For example, an ICMP error may be
/// processed on one worker before the connection to which it refers is processed on another. Or the packets that a host sends
/// within a second may go to workers that are at different points of the input.
fn may_depend_on_order(plan: &Plan, report: &RunReport) -> bool {
    let is_free = report.workers.len() > 1 && !plan.in_order && plan.time == Time::Capture;
    let has_found = report.findings.values().any(|told| !told.found.is_empty());
    is_free && report.transactions.commits > 0 && (has_found || report.dropped_total() > 0)
}

/// Whether packets are written to where the report would go.
fn writes_to_standard_output(plan: &Plan) -> bool {
    plan.to.iter().any(|path| is_dash(path))
}

/// Reads the command line and the plan file. For a run that is continued, reads the complete plan that ran
/// last, whatever the file says now.
fn written(args: &RunArgs) -> Result<Written, Failure> {
    if let Some(path) = &args.applied {
        return Written::of_file(path);
    }
    let mut chain = args.chain.clone();
    chain.plan = chain.plan.or_else(|| args.config.clone());
    Written::under(&chain, &typed(args)?)
}

/// What the command line says over the plan file.
fn typed(args: &RunArgs) -> Result<CommandLine, Failure> {
    let mut typed = command_line(&args.chain, Some(&args.input), &args.to)?;
    typed.keys.user = args.user.clone().map(unplaced);
    typed.keys.port = args.devices.iter().map(|device| PortFile { device: unplaced(device.clone()) }).collect();
    Ok(typed)
}

type Ends = (Box<dyn Source>, Box<dyn Sink>);

/// The interfaces of a plan, not yet open; `None` if it has none.
fn ports(plan: &Plan, compiled: &Compiled, user: Option<User>) -> Option<Ports> {
    let receivers = if plan.distribution == Distribution::Hardware { plan.workers } else { 1 };
    let ports = Ports::new(plan.devices.clone(), |how| asideln!("{how}"));
    (!plan.devices.is_empty()).then(|| ports.received_by(receivers, compiled.card_hash()).then_as(user))
}

/// The source and the sink: interfaces, or an input and an output.
fn ends(written: &Written, plan: &Plan, ports: Option<&Ports>) -> Result<Ends, Failure> {
    let Some(ports) = ports else {
        let input = written.input(plan)?;
        let sink = written.sink(plan, &input)?;
        return Ok((input.source()?, sink));
    };
    let (source, sink) = ports.ends();
    Ok((Box::new(source), Box::new(sink)))
}

/// Ensures that no program executed by this one regains privileges. Call this before there are other threads.
fn renounce() -> Result<(), Failure> {
    rustix::thread::set_no_new_privs(true).map_err(|error| {
        let what = format!("cannot give up the right to gain privileges (prctl PR_SET_NO_NEW_PRIVS): {error}");
        Failure::new(Kind::Failed, what, "run without --user, as a user with fewer rights")
    })
}

fn names(plan: &Plan) -> Vec<String> {
    plan.chain.iter().map(|link| link.name.clone()).collect()
}

/// The kind of pages that the machine provides, determined by allocating some.
fn pages(plan: &Plan) -> String {
    let config = PoolConfig { buffers: 2048, pages: plan.pages, ..PoolConfig::default() };
    let is_shared = plan.devices.iter().any(PortSpec::may_be_af_xdp);
    match if is_shared { Pool::shared(&config) } else { Pool::new(&config) } {
        Ok(pool) => format!("buffers on {}", pool.backing()),
        Err(error) => error.to_string(),
    }
}

/// Parses a duration: `30s`, `5m`, `500ms`, `2h`; a bare number is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, Failure> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3600.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(unit).map(|(number, unit)| number * unit);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| Failure::usage(format!("`{text}` is no time"), "write a number and a unit: 500ms, 30s, 5m, 2h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let check =
            |text, milliseconds| assert_eq!(duration(text).unwrap(), Duration::from_millis(milliseconds), "{text}");
        check("500ms", 500);
        check("1.5s", 1500);
        check("2", 2000);
        check("5m", 300_000);
        assert!(["", "s", "5 parsecs", "-3s", "1e999h"].iter().all(|text| duration(text).is_err()));
    }
}
