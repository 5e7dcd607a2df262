//! Scenarios: packets in and packets out, as text files that anybody can write. tests/scenarios/README.md explains the language.
//!
//! ```text
//!  file ──▶ Scenario { plan, steps } ──▶ workers of a real run, time told by hand ──▶ what came out, compared line by line
//! ```
//!
//! [`Scenario::parse`] reads a file. The caller makes a run of its plan, and [`run`] executes the steps on it, each packet to its
//! end before the next one. Every packet that comes out must have correct checksums, or the scenario fails.

mod build;
mod claims;
mod compare;
mod packet;
mod parse;
mod read;
mod run;
mod words;

pub use build::frame;
pub use packet::{Field, Packet, Value};
use parse::Words;
pub use run::{Mismatch, run};

/// What is wrong with a line, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub help: String,
}

impl Wrong {
    fn new(what: impl Into<String>, help: impl Into<String>) -> Wrong {
        Wrong { what: what.into(), help: help.into() }
    }
}

/// Parses a packet in the syntax of scenarios: `udp 10.0.0.1:1000 > 8.8.8.8:53 len 20`.
pub fn packet(text: &str) -> Result<Packet, Wrong> {
    parse::packet(&mut Words::of(text))
}

/// Why a file is not a valid scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}; {help}")]
pub struct ParseError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
    /// What to write instead.
    pub help: String,
}

/// A parsed scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows: its initial comment.
    pub title: String,
    /// The plan: everything before the line `---`.
    pub plan: String,
    steps: Vec<Step>,
}

/// One line, with the lines that belong to it.
#[derive(Clone, Debug)]
enum Step {
    /// A packet, and its expected outcome.
    Send { line: usize, at_ns: u64, port: u16, packet: Packet, expected: Vec<Expected> },
    /// Time passes.
    Wait { at_ns: u64 },
    /// A comparison of variables' values.
    Check { line: usize, text: String, check: Check },
}

/// One expected outcome of a packet.
#[derive(Clone, Debug)]
struct Expected {
    line: usize,
    text: String,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// A packet on a port; with `same`, it leaves as it came except for what the line says.
    Out { port: u16, same: bool, packet: Packet },
    /// A drop; for this reason, if one is given.
    Drop(Option<String>),
    /// Any outcome.
    Anything,
}

/// `expect LEFT OPERATOR RIGHT`.
#[derive(Clone, Debug)]
struct Check {
    left: Term,
    operator: String,
    right: Term,
}

/// A value, optionally combined by `+`, `-`, `/` or `%` with a number.
#[derive(Clone, Debug)]
struct Term {
    value: Value,
    then: Option<(String, u64)>,
}

impl Scenario {
    /// Parses a scenario.
    pub fn parse(text: &str) -> Result<Scenario, ParseError> {
        let Some(cut) = text.lines().position(|line| line.trim_end() == "---") else {
            let help = "write the plan, a line ---, then the steps";
            return Err(ParseError { line: 1, what: "there is no line ---".into(), help: help.into() });
        };
        let title = text.lines().next().and_then(|line| line.strip_prefix('#')).unwrap_or_default().trim().to_owned();
        if title.is_empty() {
            let what = "nothing says what it shows".to_owned();
            let help = "begin with a comment: # RFC 4787 REQ-1: mappings do not depend on whom one talks to".to_owned();
            return Err(ParseError { line: 1, what, help });
        }
        let plan = text.lines().take(cut).flat_map(|line| [line, "\n"]).collect();
        let mut scenario = Scenario { title, plan, steps: Vec::new() };
        let mut now_ns = 0;
        for (n, line) in text.lines().enumerate().skip(cut + 1) {
            let read = scenario.line(n + 1, line, &mut now_ns);
            read.map_err(|Wrong { what, help }| ParseError { line: n + 1, what, help })?;
        }
        if !scenario.steps.iter().any(|step| matches!(step, Step::Send { .. })) {
            let what = "no packet comes in, so nothing is shown".to_owned();
            let help = "write one, and below it what becomes of it: in 0 udp 10.0.0.1:1100 > 192.0.2.9:80".to_owned();
            return Err(ParseError { line: cut + 1, what, help });
        }
        scenario.complete()?;
        Ok(scenario)
    }

    fn line(&mut self, line: usize, text: &str, now_ns: &mut u64) -> Result<(), Wrong> {
        let mut words = Words::of(text);
        if words.take("at") {
            let at_ns = time(words.need("a time: at 0.5s")?)?;
            if at_ns < *now_ns {
                return Err(Wrong::new("time goes back", "write the steps in the order of their times"));
            }
            *now_ns = at_ns;
            if words.peek().is_none() {
                self.steps.push(Step::Wait { at_ns });
            }
        }
        let kind = match words.next() {
            None => return Ok(()),
            Some("in") => {
                let port = port(&mut words)?;
                let packet = parse::packet(&mut words)?;
                if let Some(field) = packet.open_field() {
                    let what = format!("{} of a packet that comes in is not said", field.name());
                    return Err(Wrong::new(what, "write a value in place of *, or leave the field out"));
                }
                self.steps.push(Step::Send { line, at_ns: *now_ns, port, packet, expected: Vec::new() });
                return Ok(());
            }
            Some("expect") => {
                let check =
                    Check { left: term(&mut words)?, operator: operator(&mut words)?, right: term(&mut words)? };
                self.steps.push(Step::Check { line, text: text.trim().to_owned(), check });
                return end(&mut words);
            }
            Some("out") => {
                let (port, same) = (port(&mut words)?, words.take("same"));
                Kind::Out {
                    port,
                    same,
                    packet: if same { parse::changes(&mut words)? } else { parse::packet(&mut words)? },
                }
            }
            Some("drop") => Kind::Drop(words.next().map(str::to_owned)),
            Some("anything") => Kind::Anything,
            Some(other) => {
                let help = "a line begins with in, out, drop, anything or expect, perhaps after at TIME";
                return Err(Wrong::new(format!("`{other}` begins no line"), help));
            }
        };
        end(&mut words)?;
        match self.steps.last_mut() {
            Some(Step::Send { expected, .. }) => {
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                expected.push(Expected { line, text, kind });
            }
            _ => return Err(Wrong::new("nothing came in", "write `in PORT PACKET` before what becomes of it")),
        }
        Ok(())
    }

    /// Checks that every incoming packet has an expected outcome.
    fn complete(&self) -> Result<(), ParseError> {
        let open = self.steps.iter().find_map(|step| match step {
            Step::Send { line, expected, .. } if expected.is_empty() => Some(*line),
            _ => None,
        });
        let help = "write below it `out PORT PACKET`, `drop REASON` or `anything`".to_owned();
        match open {
            Some(line) => Err(ParseError { line, what: "nothing says what becomes of it".into(), help }),
            None => Ok(()),
        }
    }
}

fn end(words: &mut Words<'_>) -> Result<(), Wrong> {
    match words.next() {
        None => Ok(()),
        Some(word) => Err(Wrong::new(format!("`{word}` stands behind the end"), "leave it out, or put # before it")),
    }
}

/// The latest time, a hundred years: functions can add their timeouts to it.
const TIME_MAX_NS: f64 = 876_000.0 * 3600e9;

/// Parses a time into nanoseconds: `0.5s`, `20ms`, `7us`, `2h`, `4m`.
fn time(text: &str) -> Result<u64, Wrong> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match &text[digits..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 60e9,
        "h" => 3600e9,
        _ => return Err(Wrong::new(format!("`{text}` is no time"), "write 20us, 20ms, 0.5s, 4m or 2h")),
    };
    let number: f64 = text[..digits]
        .parse()
        .map_err(|_| Wrong::new(format!("`{text}` is no time"), "write a number and a unit: 0.5s"))?;
    match number * unit {
        ns if ns <= TIME_MAX_NS => Ok(ns as u64),
        _ => Err(Wrong::new(format!("`{text}` is too long"), "write at most 876000h, a hundred years")),
    }
}

fn port(words: &mut Words<'_>) -> Result<u16, Wrong> {
    let text = words.need("the number of a port")?;
    text.parse()
        .map_err(|_| Wrong::new(format!("`{text}` is no port"), "write the number of a port of the plan: in 0 …"))
}

fn operator(words: &mut Words<'_>) -> Result<String, Wrong> {
    match words.need("an operator")? {
        known @ ("==" | "!=" | "<" | "<=" | ">" | ">=") => Ok(known.to_owned()),
        other => Err(Wrong::new(format!("`{other}` is no comparison"), "write ==, !=, <, <=, > or >=")),
    }
}

fn term(words: &mut Words<'_>) -> Result<Term, Wrong> {
    let text = words.need("$name or a number")?;
    let value = parse::number(text).or_else(|wrong| text.parse().map(Value::Address).map_err(|_| wrong))?;
    let then = match words.peek() {
        Some(sign @ ("+" | "-" | "/" | "%")) => {
            words.next();
            let Value::Number(number) = parse::number(words.need("a number")?)? else {
                return Err(Wrong::new("a name stands behind the sign", "write a number there"));
            };
            Some((sign.to_owned(), number))
        }
        _ => None,
    };
    Ok(Term { value, then })
}

#[cfg(test)]
mod tests;
