//! `braid plan`: explains what a plan will do and why.

use std::process::ExitCode;

use braid_control::{Catalog, explain};

use super::{print, print_json};
use crate::args::PlanArgs;
use crate::chain::Written;
use crate::failure::Failure;
use crate::lints::plan;
use crate::stderr::asideln;

/// Runs the command.
pub fn run(args: &PlanArgs, catalog: &Catalog) -> Result<ExitCode, Failure> {
    let written = Written::read(&args.chain, None, &[])?;
    let plan = written.plan(catalog)?;
    let input = if plan.from.is_empty() { None } else { Some(written.input(&plan)?) };
    if let Some(input) = &input {
        written.check_ports(input.source()?.ports(), &plan)?;
    }
    written.check_outputs(&plan, input.as_ref())?;
    plan::notes(&plan).iter().for_each(|note| asideln!("note: {note}"));
    let explanation = explain(&plan).map_err(|problem| written.failure(problem))?;
    if args.json {
        print_json(&explanation)?
    } else {
        print(&explanation.to_string())?
    }
    Ok(ExitCode::SUCCESS)
}
