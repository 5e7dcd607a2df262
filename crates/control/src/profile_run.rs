//! Turns a run's counters into a profile that names the causes of conflicts and suggests changes.

use braid_profile::{Balance, CauseAborts, HotElement, LineAborts, OverTime, Profile, Setting, TimePart, Tried};
use braid_runtime::Report;
use braid_runtime::nf::Relaxation;
use braid_runtime::nf::packet::key::SetKey;
use braid_runtime::nf::state::causes::{cause_of, operation};
use braid_runtime::observe::aborts::AbortRow;
use braid_runtime::observe::probe::TimeSplit;

use crate::compile::Carry;
use crate::model::{ModelError, Request, abort_share, real};
use crate::plan::Plan;

/// Default cost in nanoseconds of reading or writing an object in this core's cache, where no calibration has measured it.
pub const ACCESS_NS: f64 = 2.0;

/// Maximum number of changes that are tried.
const TRIED_MAX: usize = 3;

/// Makes the profile of a finished run.
pub fn profile(plan: &Plan, input: &str, report: &Report, modelled: bool) -> Profile {
    let relaxations = relaxations(plan);
    let total = &report.total;
    let all = total.aborts.max(1) as f64;
    let mut rows: Vec<&AbortRow> = total.aborted.rows.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.count));
    let mut lines: Vec<LineAborts> = Vec::new();
    for row in &rows {
        let line = line_of(row);
        match lines.iter_mut().find(|known| known.line == line) {
            Some(known) => known.aborts += row.count,
            None => lines.push(LineAborts { line, aborts: row.count, share: 0.0 }),
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.aborts));
    lines.iter_mut().for_each(|line| line.share = line.aborts as f64 / all);
    let over_time = &total.aborted.over_time;
    Profile {
        chain: plan.chain.iter().map(|link| link.name.clone()).collect(),
        input: input.to_owned(),
        workers: report.workers.len(),
        modelled,
        packets: total.packets_in,
        seconds: report.elapsed.as_secs_f64(),
        commits: total.commits,
        aborts: total.aborts,
        turns: total.turns,
        with_itself: total.aborted.with_itself,
        lines,
        causes: causes(rows.iter().map(|row| explain(plan, row, report, &relaxations, all))),
        balance: balance(report),
        time: time(plan, report),
        over_time: OverTime { step_s: over_time.width_ns() as f64 / 1e9, aborts: over_time.counts().to_vec() },
    }
}

/// Merges rows with the same cause: for the reader, finding an object locked and finding it changed are one cause.
fn causes(rows: impl Iterator<Item = CauseAborts>) -> Vec<CauseAborts> {
    let mut causes: Vec<CauseAborts> = Vec::new();
    for row in rows {
        let is_it = |c: &&mut CauseAborts| {
            (&c.object, &c.mine, &c.theirs, &c.why, &c.line)
                == (&row.object, &row.mine, &row.theirs, &row.why, &row.line)
        };
        match causes.iter_mut().find(is_it) {
            Some(known) => {
                known.aborts += row.aborts;
                known.share += row.share;
            }
            None => causes.push(row),
        }
    }
    causes
}

/// Each relaxation that the functions of a plan allow, with the function's name.
pub fn relaxations(plan: &Plan) -> Vec<(String, Relaxation)> {
    let Ok(chain) = plan.probe(Carry::Nothing) else { return Vec::new() };
    let mut all = Vec::new();
    for stage in chain.stages() {
        all.extend(stage.relaxations().into_iter().map(|relaxation| (stage.name().to_owned(), relaxation)));
    }
    all
}

fn line_of(row: &AbortRow) -> String {
    match row.object {
        Some(_) => format!("{}:{}", row.location.file(), row.location.line()),
        None => "at commit".to_owned(),
    }
}

/// Why an attempt was rolled back without a conflicting object.
pub(crate) const HAD_ITS_TURN: &str =
    "another worker had its turn after repeated conflicts: a consequence of the others";
/// Why an attempt was rolled back by an object in the middle of another commit: the operation of that commit is not known yet.
pub(crate) const WAS_COMMITTED: &str = "the same element, while another worker committed it";

fn explain(
    plan: &Plan,
    row: &AbortRow,
    report: &Report,
    relaxations: &[(String, Relaxation)],
    all: f64,
) -> CauseAborts {
    let mut found = CauseAborts {
        line: line_of(row),
        aborts: row.count,
        share: row.count as f64 / all,
        why: HAD_ITS_TURN.to_owned(),
        ..CauseAborts::default()
    };
    let Some(info) = row.object.and_then(|object| report.objects.get(object.0 as usize)) else { return found };
    (found.object, found.kind) = (info.name.clone(), info.kind.to_owned());
    let cause = cause_of(info.kind, row.kind, row.part, row.mine, row.theirs);
    let named = |op| operation(info.kind, op).unwrap_or("commit").to_owned();
    (found.mine, found.theirs) = (named(row.mine), named(row.theirs));
    found.why = cause.map_or(WAS_COMMITTED, |cause| cause.why).to_owned();
    found.recipe = cause.map_or("", |cause| cause.recipe).to_owned();
    if let Some((name, relaxation)) = relaxation_for(&found, relaxations) {
        found.change = Some(change(plan, name, relaxation));
        let value = relaxation.candidates.get(relaxation.candidates.len() / 2);
        let setting =
            |value: &i64| Setting { function: name.to_owned(), key: relaxation.key.to_owned(), value: *value };
        found.setting = value.map(setting);
    }
    let mut hot: Vec<_> = row.hot.iter().collect();
    hot.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let part = if info.kind == "Distributed" { "part of worker " } else { "#" };
    let share = |count: u64| (count as f64 / row.count as f64).min(1.0);
    let shown = |index| row.object.and_then(|object| report.elements.get(&(object, row.part, index)));
    let element = |(index, count)| {
        let element = shown(index).cloned().unwrap_or_else(|| format!("{part}{index}"));
        HotElement { element, share: share(count) }
    };
    found.hot = hot.into_iter().take(8).map(element).collect();
    found
}

/// The relaxation that helps against a cause, with its function's name.
fn relaxation_for<'a>(cause: &CauseAborts, all: &'a [(String, Relaxation)]) -> Option<(&'a str, &'a Relaxation)> {
    let helps = |(name, r): &&(String, Relaxation)| {
        let operations = [cause.mine.as_str(), cause.theirs.as_str()];
        cause.object == format!("{name}.{}", r.object) && operations.iter().any(|op| r.against.contains(op))
    };
    all.iter().find(helps).map(|(name, relaxation)| (name.as_str(), relaxation))
}

/// The change to make in the plan file or on the command line.
fn change(plan: &Plan, name: &str, relaxation: &Relaxation) -> String {
    let Relaxation { key, meaning, candidates, .. } = relaxation;
    let Some(value) = candidates.get(candidates.len() / 2) else {
        return format!("[nf.config] of `{name}`: {key} = …\n({meaning})");
    };
    let prefix = if plan.chain.len() > 1 { format!("{name}.") } else { String::new() };
    let before = plan.chain.iter().find(|link| link.name == name).and_then(|link| link.config.table().remove(*key));
    let instead = before.map_or_else(String::new, |before| format!(" instead of {before}"));
    format!(
        "[nf.config] of `{name}`: {key} = {value}{instead}\n({meaning}; or on the command line: --set {prefix}{key}={value})"
    )
}

/// Tries each change that a profile suggests, separately, on the same packets and number of workers.
pub fn try_changes(plan: &Plan, request: Request<'_>, profile: &mut Profile) -> Result<(), ModelError> {
    let mut tried: Vec<(Setting, Tried)> = Vec::new();
    for cause in &mut profile.causes {
        let Some(setting) = &cause.setting else { continue };
        let known = tried.iter().find(|(known, _)| known == setting).map(|(_, tried)| *tried);
        cause.tried = match known {
            None if tried.len() >= TRIED_MAX => None,
            None => {
                let report = real(&with_setting(plan, setting), plan.workers, request, false)?;
                let result = Tried { aborts: report.total.aborts, share: abort_share(&report) };
                tried.push((setting.clone(), result));
                Some(result)
            }
            known => known,
        };
    }
    Ok(())
}

/// The plan with one configuration key changed.
pub fn with_setting(plan: &Plan, setting: &Setting) -> Plan {
    let mut plan = plan.clone();
    for link in plan.chain.iter_mut().filter(|link| link.name == setting.function) {
        link.config.set(&setting.key, toml::Value::Integer(setting.value));
    }
    plan
}

fn balance(report: &Report) -> Balance {
    let packets: Vec<u64> = report.workers.iter().map(|worker| worker.packets_in).collect();
    let mean = packets.iter().sum::<u64>() as f64 / packets.len().max(1) as f64;
    let most = packets.iter().copied().max().unwrap_or(0) as f64;
    let sampled = report.splits.iter().map(|split| split.sampled).sum::<u64>().max(1) as f64;
    let mut sets: Vec<(SetKey, u64)> = Vec::new();
    for (key, count) in report.splits.iter().flat_map(TimeSplit::certain_sets) {
        // A set that no steering keeps on one worker occurs on several workers.
        match sets.iter_mut().find(|known| known.0 == key) {
            Some(known) => known.1 += count,
            None => sets.push((key, count)),
        }
    }
    sets.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let heaviest = sets.into_iter().take(8).map(|(key, count)| {
        let name = if key == SetKey::NONE { "packets in no set".to_owned() } else { key.to_string() };
        HotElement { element: name, share: count as f64 / sampled }
    });
    Balance { packets, factor: if mean > 0.0 { most / mean } else { 1.0 }, heaviest: heaviest.collect() }
}

/// How the time was spent, in the order of a batch. The parts `begin` and `access` are estimated from what the transactions logged.
fn time(plan: &Plan, report: &Report) -> Vec<TimePart> {
    let packets = report.total.packets_in.max(1) as f64;
    let ns = |cycles: &dyn Fn(&TimeSplit) -> u64| {
        report.splits.iter().map(|split| cycles(split) as f64 / split.cycles_per_ns.max(1e-9)).sum::<f64>()
    };
    if report.splits.is_empty() {
        return Vec::new();
    }
    let busy = ns(&|split| split.busy_cycles()).max(1.0);
    let part = |name: String, ns: f64| TimePart { part: name, ns_per_packet: ns / packets, share: ns / busy };
    let mut parts = vec![
        part("receive".into(), ns(&|split| split.receive.cycles)),
        part("parse".into(), ns(&|split| split.parse.cycles)),
    ];
    for (at, link) in plan.chain.iter().enumerate() {
        let accesses: u64 = report.splits.iter().map(|s| s.stages[at].reads + s.stages[at].writes).sum();
        let handlers = ns(&|split| split.stages[at].handlers.cycles);
        let access = (accesses as f64 * ACCESS_NS).min(handlers);
        let name = &link.name;
        parts.push(part(format!("{name}: look-up"), ns(&|split| split.stages[at].look_up.cycles)));
        parts.push(part(format!("{name}: handlers"), handlers - access));
        parts.push(part(format!("{name}: transaction begin and access (estimated)"), access));
        parts.push(part(format!("{name}: transaction commit"), ns(&|split| split.stages[at].commit.cycles)));
        parts.push(part(format!("{name}: retry"), ns(&|split| split.stages[at].retry.cycles)));
    }
    parts.push(part("send".into(), ns(&|split| split.send.cycles)));
    parts.push(part("expiry and periods".into(), ns(&|split| split.expire.cycles)));
    parts.retain(|part| part.ns_per_packet >= 0.005);
    parts
}
