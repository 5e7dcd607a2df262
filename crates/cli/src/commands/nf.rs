//! `braid nf`: which functions there are, and a function's page.

use std::process::ExitCode;

use braid_control::suggest::nearest;
use braid_control::{Catalog, Entry};
use serde::Serialize;

use super::{print, print_json};
use crate::args::NfCommand;
use crate::failure::Failure;

/// One line of the list.
#[derive(Serialize)]
struct Line {
    name: String,
    summary: String,
    ports: u16,
}

/// Runs it.
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
                print(&lines.iter().map(|line| format!("{:<16} {}\n", line.name, line.summary)).collect::<String>())?;
            }
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
