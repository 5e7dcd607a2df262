//! What is said over the control socket: one JSON object per line, in both directions.
//!
//! A request is an object with a member `ask`; every other member is a parameter, and an unknown one is refused. An answer
//! has exactly one member: `ok`, or `error` with `what` and `help`; before it may stand lines with one member `more`.

use std::io::{self, BufRead};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Most bytes of a request: a plan file has a few thousand, with a million routes 55 million.
pub const REQUEST_MAX: usize = 1 << 26;

/// A question or an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// All figures now.
    Stats {
        /// Takes the time of every stage from now on, until nobody has asked for it for [`TIMING_LASTS`](super::service::TIMING_LASTS).
        #[serde(default)]
        timing: bool,
    },
    /// Live packet sets.
    Sets {
        /// Which; empty for all.
        #[serde(default)]
        filter: String,
        /// Most sets in the answer.
        #[serde(default = "sets_default")]
        limit: usize,
    },
    /// Ends live packet sets as if they had expired.
    EndSets {
        /// Which; must not be empty.
        filter: String,
    },
    /// Follows packets through the chain; each is a line `{"more": …}` before the answer.
    Trace {
        /// Which packets; empty for all.
        #[serde(default)]
        filter: String,
        /// How many.
        #[serde(default = "packets_default")]
        count: u64,
        /// How long they are waited for.
        #[serde(default = "seconds_default")]
        seconds: f64,
    },
    /// Applies the difference between what runs and another plan.
    Apply {
        /// The text of the plan file.
        plan: String,
    },
    /// Saves the state to a file, which the run writes.
    Snapshot {
        /// The file, as an absolute path.
        path: PathBuf,
    },
    /// Ends the run in order and continues it in another program, with its state.
    Upgrade {
        /// The program, as an absolute path; the one that runs if it is left out.
        #[serde(default)]
        program: Option<PathBuf>,
        /// The text of a plan file to go on with; what it leaves open stays as it is.
        #[serde(default)]
        plan: Option<String>,
    },
    /// Ends the run in order.
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

/// Why a request was not carried out; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{what}")]
pub struct Refused {
    /// What is wrong.
    pub what: String,
    /// What to do about it; may be empty.
    #[serde(default)]
    pub help: String,
    /// Whether what was sent is wrong in itself, as a plan that no run would take, and not only for this run or now.
    #[serde(default)]
    pub is_wrong: bool,
    /// Whether there is no run that could carry it out: not yet, or not any more.
    #[serde(default)]
    pub is_without_run: bool,
}

impl Refused {
    /// With what is wrong and what to do about it.
    pub fn new(what: impl Into<String>, help: impl Into<String>) -> Refused {
        Refused { what: what.into(), help: help.into(), is_wrong: false, is_without_run: false }
    }
}

/// A line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// A part of what was asked for; the answer follows.
    More(Value),
    /// What was asked for.
    Ok(Value),
    /// It was not carried out.
    Error(Refused),
}

impl Request {
    /// Reads a request.
    pub fn parse(line: &str) -> Result<Request, Refused> {
        serde_json::from_str(line).map_err(|error| {
            let help = "write one JSON object per line, as {\"ask\":\"stats\"}; docs/operations.md lists them all";
            Refused::new(format!("this is no request: {error}"), help)
        })
    }
}

/// Reads a line of at most `limit` bytes; one that is longer is read to its end and is none. `None`: the other side has closed.
pub fn read_line(from: &mut impl BufRead, limit: usize) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let available = from.fill_buf()?;
        if available.is_empty() {
            // What is not ended by a line feed was cut off.
            return Ok(None);
        }
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
