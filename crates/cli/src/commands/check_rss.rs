//! `braid check-rss`: checks whether NICs can keep each packet set on one queue.

use std::process::ExitCode;

use braid_control::Catalog;
use braid_control::compile::members;
use braid_control::plan::field;
use braid_control::runtime::nf::packet::key::SetDef;
use braid_control::runtime::steer::checker::{self, Fit, Verdict};
use braid_control::runtime::steer::nic::{self, NICS, Nic};
use braid_control::runtime::steer::planner::{self, Member};
use braid_control::runtime::steer::{Pattern, UdpPorts};
use serde::Serialize;

use super::{print, print_json};
use crate::args::CheckRssArgs;
use crate::chain::Written;
use crate::failure::Failure;

/// The result for one packet set on one NIC.
#[derive(Serialize)]
struct Row {
    nic: &'static str,
    function: String,
    fits: bool,
    missing: Vec<String>,
    words: String,
    /// A summary in one line.
    #[serde(skip)]
    summary: String,
}

/// Options that change nothing of what a NIC has to hash.
const WITHOUT_EFFECT: [&str; 8] =
    ["--batch", "--sets", "--time", "--in-order", "--gather-us", "--balance", "--balance-every", "--pages"];

/// Runs the command. The exit code is 0 whatever the NICs can do, because the command only asks.
pub fn run(args: &CheckRssArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let (given, of_fields_only) = (args.chain.given(), !args.fields.is_empty());
    let is_idle = |option: &&str| WITHOUT_EFFECT.contains(option) || of_fields_only && *option != "--nic";
    if let Some(option) = given.into_iter().find(is_idle) {
        return Err(Failure::usage(
            format!("{option} has no effect on what is checked"),
            format!("leave {option} out"),
        ));
    }
    let (members, udp) = if args.fields.is_empty() { of_chain(args, catalog)? } else { (vec![of_fields(args)?], None) };
    let nics: Vec<&'static Nic> = match &args.chain.nic {
        None => NICS.iter().collect(),
        Some(name) => vec![nic::find(name).ok_or_else(|| {
            let known: Vec<&str> = NICS.iter().map(|nic| nic.name).collect();
            Failure::usage(format!("no NIC `{name}` is known"), format!("known are: {}", known.join(", ")))
        })?],
    };
    let hash = planner::plan_with(&members, None, udp);
    let judged = members.iter().filter(|member| member.pattern != Pattern::NONE);
    let rows: Vec<Row> =
        judged.flat_map(|member| nics.iter().map(|nic| judge(member, nic, hash.chosen.udp.ports))).collect();
    if args.json {
        print_json(&rows)?;
    } else {
        print(&format!("for all functions of the chain together: {hash}{}", table(&rows, nics.len() == 1)))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn judge(member: &Member, nic: &'static Nic, udp: UdpPorts) -> Row {
    let verdict = checker::check(&member.pattern, nic, udp);
    Row {
        nic: nic.name,
        function: member.name.clone(),
        fits: verdict.fits(),
        missing: verdict.missing().iter().map(|field| field.name().to_owned()).collect(),
        words: verdict.to_string(),
        summary: summary(&verdict),
    }
}

/// Summarises what happens to sets, by kind of packet.
fn summary(verdict: &Verdict) -> String {
    let becomes = |fit: &Fit| match fit {
        Fit::Whole { .. } => "whole",
        Fit::Coarser { .. } => "whole, several to a queue",
        Fit::ByKey { .. } => "whole over IPv4 with a key",
        Fit::Torn { .. } => "torn",
    };
    let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
    for finding in &verdict.findings {
        let (word, classes) = (becomes(&finding.fit), finding.classes.iter().map(|class| class.name()));
        match kinds.iter_mut().find(|(other, _)| *other == word) {
            Some((_, names)) => names.extend(classes),
            None => kinds.push((word, classes.collect())),
        }
    }
    let mut parts: Vec<String> = kinds.iter().map(|(word, names)| format!("{} {word}", names.join(", "))).collect();
    if !verdict.fragments_torn.is_empty() {
        let of: Vec<&str> = verdict.fragments_torn.iter().map(|class| class.name()).collect();
        parts.push(format!("IP fragments of {} torn", of.join(", ")));
    }
    parts.join("; ")
}

fn table(rows: &[Row], in_full: bool) -> String {
    if rows.is_empty() {
        return "no function of the chain has packet sets: any NIC will do\n".to_owned();
    }
    let (mut text, mut function) = (String::new(), "");
    for row in rows {
        if row.function != function {
            function = &row.function;
            text += &format!("packet sets of {function}:\n");
        }
        if in_full {
            text += &row.words;
            continue;
        }
        let fits = if row.fits { "fits" } else { "does not fit" };
        text += &format!("  {:<8} {fits:<13} {}\n", row.nic, row.summary);
    }
    if !in_full {
        text += "--nic NAME shows a NIC in full: per kind of packet, with keys and what to do\n";
    }
    text
}

fn of_fields(args: &CheckRssArgs) -> Result<Member, Failure> {
    let fields = args.fields.iter().map(|name| field(name)).collect::<Result<Vec<_>, _>>();
    let fields = fields.map_err(|problem| Failure::of_plan(problem, None))?;
    let mut set = SetDef::new("fields", &fields);
    set.symmetric = args.symmetric;
    Ok(Member::new(args.fields.join(", "), Pattern::from(&set)))
}

fn of_chain(args: &CheckRssArgs, catalog: &Catalog) -> Result<(Vec<Member>, Option<UdpPorts>), Failure> {
    let written = Written::read(&args.chain, None, &[])?;
    let plan = written.plan(catalog)?;
    let chain = plan.probe(braid_control::Carry::Capture).map_err(|problem| written.failure(problem))?;
    Ok((members(&chain), plan.udp_ports()))
}
