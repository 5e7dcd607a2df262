//! The protocol of the control socket: one JSON object per line, in both directions.
//!
//! A request is an object with a member `ask`; all other members are parameters, and unknown ones are refused. An answer has
//! exactly one member: `ok`, or `error` with `what` and `help`. Lines with one member `more` may precede it.

use std::io::{self, BufRead};
use std::path::PathBuf;

use braid_runtime::io::again;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum size of a request in bytes: a plan file has a few thousand, or 55 million with a million routes.
pub const REQUEST_MAX: usize = 1 << 26;

/// A query or a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Returns all current figures.
    Stats {
        /// Measures the time of every stage from now on, until nobody has asked for times for
        /// [`TIMING_LASTS`](super::service::TIMING_LASTS).
        #[serde(default)]
        timing: bool,
    },
    /// Lists live packet sets.
    Sets {
        /// Filter for the sets; empty for all.
        #[serde(default)]
        filter: String,
        /// Maximum number of sets in the answer.
        #[serde(default = "sets_default")]
        limit: usize,
    },
    /// Entries of functions' tables that stand for somebody's traffic, such as a NAT's mappings.
    Entries {
        /// Which; empty for all.
        #[serde(default)]
        filter: String,
        /// Most entries in the answer.
        #[serde(default = "sets_default")]
        limit: usize,
    },
    /// Ends entries of functions' tables, as if their lifetime were over.
    EndEntries {
        /// Which; must not be empty.
        filter: String,
    },
    /// Ends live packet sets as if they had expired.
    EndSets {
        /// Filter for the sets; must not be empty.
        filter: String,
    },
    /// Follows packets through the chain; each packet is a line `{"more": …}` before the answer.
    Trace {
        /// Filter for the packets; empty for all.
        #[serde(default)]
        filter: String,
        /// Maximum number of packets.
        #[serde(default = "packets_default")]
        count: u64,
        /// Time limit in seconds.
        #[serde(default = "seconds_default")]
        seconds: f64,
    },
    /// Applies the difference between the current plan and another plan.
    Apply {
        /// The text of the plan file.
        plan: String,
    },
    /// How functions of the chain are configured now.
    Configuration {
        /// Of which kind; empty for all.
        #[serde(default)]
        function: String,
    },
    /// Gives one function another configuration, and changes nothing else.
    Configure {
        /// Its name in the plan.
        name: String,
        /// How it was configured: if it is configured otherwise by now, nothing changes.
        from: toml::Table,
        /// How it is to be.
        to: toml::Table,
    },
    /// Saves the state to a file, which the run writes.
    Snapshot {
        /// The file, as an absolute path.
        path: PathBuf,
    },
    /// Ends the run gracefully and continues it in another program, with its state.
    Upgrade {
        /// The program, as an absolute path; if omitted, the current program.
        #[serde(default)]
        program: Option<PathBuf>,
        /// The text of a plan file to continue with; settings that it omits stay as they are.
        #[serde(default)]
        plan: Option<String>,
    },
    /// Ends the run gracefully.
    Stop {},
}

fn sets_default() -> usize {
    1000
}

fn packets_default() -> u64 {
    10
}

fn seconds_default() -> f64 {
    30.0
}

/// The answer to [`Request::Upgrade`]; versions before it had one say nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    /// The process that continues the run: the same one, which executes another program.
    pub process: u32,
    /// Settings of the plan that the command line of the run overrides, and the consequence.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Why a request was not carried out; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// What is wrong.
    pub what: String,
    /// What to do about it; may be empty.
    #[serde(default)]
    pub help: String,
    /// Whether the request is invalid in itself, such as a plan that no run would accept, and not only for this run at this time.
    #[serde(default)]
    pub is_wrong: bool,
    /// Whether no run exists that could carry it out: it has not started, or it has ended.
    #[serde(default)]
    pub is_without_run: bool,
}

impl Refused {
    /// Makes a refusal from what is wrong and what to do about it.
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> Refused {
        Refused { what: what.into(), help: help.into(), is_wrong: false, is_without_run: false }
    }
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A part of the result; the answer follows.
    More(Value),
    /// The result.
    Ok(Value),
    /// The request was not carried out.
    Error(Refused),
}

impl Request {
    /// Parses a request.
    pub fn parse(line: &str) -> Result<Request, Refused> {
        serde_json::from_str(line).map_err(|error| {
            let help = "write one JSON object per line, as {\"ask\":\"stats\"}; docs/operations.md lists them all";
            Refused::new(format!("this is no request: {error}"), help)
        })
    }
}

/// Reads a line of at most `limit` bytes. A longer line is consumed to its end and is an error. Returns
/// `None` if the other side has closed.
pub fn read_line(from: &mut impl BufRead, limit: usize) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        if again(|| from.fill_buf().map(<[u8]>::len))? == 0 {
            // A line without a line feed was cut off.
            return Ok(None);
        }
        // What is there now.
        let available = from.fill_buf()?;
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(available.len(), |end| end + 1);
        if line.len() + taken > limit {
            from.skip_until(b'\n')?;
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a line of more than {limit} bytes")));
        }
        line.extend_from_slice(&available[..taken]);
        from.consume(taken);
        if end.is_some() {
            let text = String::from_utf8(line).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))?;
            return Ok(Some(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_and_slips_are_refused() {
        assert_eq!(Request::parse(r#"{"ask":"stats"}"#), Ok(Request::Stats { timing: false }));
        for wrong in ["", "{}", "[]", r#"{"ask":"stat"}"#, r#"{"ask":"stats","timing":3}"#, r#"{"ask":"stats","x":1}"#]
        {
            assert!(Request::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_have_a_limit_and_an_end() {
        let mut text = &b"short\nand a longer one\ncut"[..];
        assert_eq!(read_line(&mut text, 16).unwrap().as_deref(), Some("short\n"));
        let mut text = &b"a line that is longer\nnext\n"[..];
        assert!(read_line(&mut text, 16).is_err());
        assert_eq!(read_line(&mut text, 16).unwrap().as_deref(), Some("next\n"));
        assert_eq!(read_line(&mut &b"cut"[..], 16).unwrap(), None);
        assert!(read_line(&mut &b"\xff\n"[..], 16).is_err());
    }
}
