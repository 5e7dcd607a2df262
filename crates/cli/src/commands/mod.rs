//! One file per command.

pub mod bench;
pub mod certify;
pub mod check_rss;
pub mod generate;
pub mod new;
pub mod nf;
pub mod plan;
pub mod run;

use std::io::Write;

use serde::Serialize;

use crate::failure::{Failure, Kind};

/// Prints on standard output. If whoever reads it has gone, there is nobody left to tell.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Kind::Io, format!("standard output: {error}"), ""))
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
