//! `braid nf`: lists the functions, shows a function's page, and explains which rule of a firewall decides.

use std::path::PathBuf;
use std::process::ExitCode;

use braid_control::runtime::nf::suggest::nearest;
use braid_control::runtime::pacing::clock::wall_ns;
use braid_control::{Catalog, Entry};
use braid_functions::ConfigError;
use braid_functions::firewall::{self, ExplainError, When};
use braid_testkit::scenario::{self, Field, Value};
use serde::Serialize;

use super::{print, print_json};
use crate::args::{ChainArgs, FirewallCommand, NfCommand};
use crate::chain::Written;
use crate::failure::Failure;

/// One line of the list.
#[derive(Serialize)]
struct Line {
    name: String,
    summary: String,
    ports: u16,
}

/// Runs the command.
pub fn run(command: &NfCommand, catalog: &Catalog) -> Result<ExitCode, Failure> {
    match command {
        NfCommand::List { json } => {
            let line = |entry: &'_ Entry| Line {
                name: entry.name.clone(),
                summary: entry.summary.clone(),
                ports: entry.ports,
            };
            let lines: Vec<Line> = catalog.entries().iter().map(line).collect();
            if *json {
                print_json(&lines)?;
            } else {
                let width = lines.iter().map(|line| line.name.len()).max().unwrap_or(0);
                let text = |line: &Line| format!("{:<width$}  {}\n", line.name, line.summary);
                print(&lines.iter().map(text).collect::<String>())?;
            }
        }
        NfCommand::Firewall(FirewallCommand::Explain { packet, plan, set, port, at }) => {
            let when = at.unwrap_or_else(|| When::Utc(wall_ns()));
            print(&explain(&chain(plan.as_ref(), set), &packet.join(" "), *port, when)?)?;
        }
        NfCommand::Firewall(FirewallCommand::Cost { plan, set }) => {
            let is_given = plan.is_some() || !set.is_empty();
            print(&cost(is_given.then(|| chain(plan.as_ref(), set)))?)?;
        }
        NfCommand::Show { name } => {
            let Some(entry) = catalog.find(name) else {
                let help = match nearest(name, catalog.names()) {
                    Some(right) => format!("write `{right}`"),
                    None => "`braid nf list` shows all".to_owned(),
                };
                return Err(Failure::usage(format!("there is no function `{name}`"), help));
            };
            match entry.page.as_str() {
                "" => print(&format!("{}: {}\n", entry.name, entry.summary))?,
                page => print(page)?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The chain of a plan, or a single firewall.
fn chain(plan: Option<&PathBuf>, set: &[String]) -> ChainArgs {
    let nf = if plan.is_none() { vec!["firewall".to_owned()] } else { Vec::new() };
    ChainArgs { plan: plan.cloned(), nf, set: set.to_vec(), ..ChainArgs::default() }
}

/// The configuration of the first firewall in a chain, and the number of ports.
fn configured(chain: &ChainArgs) -> Result<(firewall::Config, u16), Failure> {
    let written = Written::read(chain, None, &[])?;
    let Some(nf) = written.file.nf.iter().find(|nf| nf.function.get_ref() == "firewall") else {
        return Err(Failure::usage("there is no firewall in the plan", "name a plan file with one"));
    };
    let ports = written.file.ports.as_ref().map_or(2, |ports| *ports.get_ref()).clamp(1, 64) as u16;
    Ok((braid_functions::parse(nf.config.table()).map_err(refused)?, ports))
}

fn refused(error: ConfigError) -> Failure {
    Failure::usage(format!("`{}`: {}", error.key, error.reason), error.instead)
}

/// Explains what the firewall does with a packet that arrives at this time.
fn explain(chain: &ChainArgs, packet: &str, port: u16, when: When) -> Result<String, Failure> {
    let (config, ports) = configured(chain)?;
    let wrong = |wrong: scenario::Wrong| Failure::usage(format!("`{packet}`: {}", wrong.what), wrong.help);
    let mut said = scenario::packet(packet).map_err(wrong)?;
    if said.word(Field::Kind) == "tcp" && said.field(Field::Flags).is_none() {
        said.set(Field::Flags, Value::word("S"));
    }
    let frame = scenario::frame(&said).map_err(wrong)?;
    firewall::explain(config, ports, (port, &frame), when).map_err(|error| match error {
        ExplainError::Config(error) => refused(error),
        ExplainError::Side(_) => Failure::usage(error.to_string(), "name a port of either side: --port 1"),
        other => Failure::usage(other.to_string(), "write a packet such as tcp 10.0.0.1:1100 > 192.0.2.9:443"),
    })
}

/// A table of the cost of rules on this machine.
fn cost(chain: Option<ChainArgs>) -> Result<String, Failure> {
    let costs = match chain {
        Some(chain) => {
            let (config, ports) = configured(&chain)?;
            vec![firewall::cost::of(config, ports).map_err(refused)?]
        }
        None => firewall::cost::curve().collect(),
    };
    let mut table =
        format!("{:>7} {:>8} {:>8} {:>9} {:>10} {:>10}\n", "rules", "boxes", "KiB", "build ms", "search ns", "walk ns");
    for it in costs {
        table += &format!(
            "{:>7} {:>8} {:>8} {:>9.1} {:>10.0} {:>10.0}\n",
            it.rules,
            it.boxes,
            it.bytes / 1024,
            it.build_ms,
            it.search_ns,
            it.walk_ns
        );
    }
    Ok(table)
}
