//! Executes the steps of a scenario on a run.

use std::fmt;

use braid_packet::FrameInfo;
use braid_runtime::{Plan, RunError};

use super::compare::{Bound, differences, resolved};
use super::packet::{Field, Packet, Value};
use super::{Check, Expected, Kind, Scenario, Step, Term, Wrong, build, claims, read};
use crate::bench::{Bench, Outcome};
use crate::check_checksums;

/// A line that was not fulfilled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The line, counted from 1.
    pub line: usize,
    /// Number of workers of the run.
    pub workers: usize,
    /// What the line says.
    pub expected: String,
    /// What happened.
    pub got: String,
    /// The differences.
    pub why: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { workers, expected, got, .. } = self;
        writeln!(f, "workers: {workers}")?;
        writeln!(f, "  expected  {expected}")?;
        write!(f, "  got       {got}")?;
        self.why.iter().try_for_each(|why| write!(f, "\n            {why}"))
    }
}

/// Executes the scenario on a run of the plan.
pub fn run(scenario: &Scenario, plan: &Plan) -> Result<Result<(), Mismatch>, RunError> {
    let mut run = Run { bench: Bench::of_plan(plan)?, workers: plan.workers, ports: plan.ports, bound: Bound::new() };
    Ok(scenario.steps.iter().try_for_each(|step| run.step(step)))
}

struct Run {
    bench: Bench,
    workers: usize,
    ports: u16,
    bound: Bound,
}

impl Run {
    fn step(&mut self, step: &Step) -> Result<(), Mismatch> {
        match step {
            Step::Wait { at_ns } => {
                self.bench.wait_until(*at_ns);
                Ok(())
            }
            Step::Check { line, text, check } => self.check(check).map_err(|got| self.mismatch(*line, text, got)),
            Step::Send { line, at_ns, port, packet, expected } => {
                let packet = resolved(packet, &self.bound);
                let frame = packet.and_then(|packet| Ok((build::frame(&packet)?, wire_len(&packet)?, packet)));
                let (frame, wire_len, packet) = match frame {
                    Ok(frame) if *port < self.ports => frame,
                    Ok(_) => {
                        let got = format!("the plan has the ports 0 to {}", self.ports - 1);
                        return Err(self.mismatch(*line, &format!("in {port}"), got));
                    }
                    Err(Wrong { what, help }) => {
                        return Err(self.mismatch(*line, "a packet that can be sent", format!("{what}; {help}")));
                    }
                };
                self.bench.wait_until(*at_ns);
                let info = FrameInfo { port: *port, timestamp_ns: *at_ns, wire_len, ..FrameInfo::default() };
                let outcome = self.bench.send_info(info, &frame);
                self.outcome(*line, &packet, &outcome, expected)
            }
        }
    }

    fn mismatch(&self, line: usize, expected: &str, got: String) -> Mismatch {
        Mismatch { line, workers: self.workers, expected: expected.to_owned(), got, why: Vec::new() }
    }

    /// Checks that every expected packet was sent, and that every packet sent was expected.
    fn outcome(&mut self, line: usize, cause: &Packet, outcome: &Outcome, all: &[Expected]) -> Result<(), Mismatch> {
        let wrong = || outcome.sent.iter().find_map(|(_, frame)| check_checksums(frame).err());
        // If the packet arrived with wrong checksums, `same` states that they stayed wrong.
        if let Some(wrong) = if claims::are_made(cause) { None } else { wrong() } {
            return Err(self.mismatch(line, "right checksums", wrong));
        }
        if all.iter().any(|expected| matches!(expected.kind, Kind::Anything)) {
            return Ok(());
        }
        let mut left: Vec<(u16, Packet)> =
            outcome.sent.iter().map(|(port, frame)| (*port, read::frame(frame))).collect();
        let mut drop_told = false;
        for expected in all {
            match &expected.kind {
                Kind::Out { port, same, packet } => {
                    let said = if *same { self.as_it_came(cause, packet) } else { Ok(packet.clone()) };
                    let said = said.map_err(|Wrong { what, help }| {
                        self.mismatch(expected.line, &expected.text, format!("{what}; {help}"))
                    })?;
                    self.find(expected, *port, &said, &mut left, outcome.dropped)?;
                }
                Kind::Drop(reason) => {
                    drop_told = true;
                    let matches = outcome.dropped.is_some_and(|got| reason.as_ref().is_none_or(|want| want == got));
                    if !matches {
                        return Err(self.mismatch(expected.line, &expected.text, shown(&left, outcome.dropped)));
                    }
                }
                Kind::Anything => {}
            }
        }
        match (left.is_empty(), outcome.dropped) {
            (false, _) => Err(self.mismatch(line, "nothing more", shown(&left, None))),
            (true, Some(reason)) if !drop_told => Err(self.mismatch(line, "no drop", format!("drop {reason}"))),
            _ => Ok(()),
        }
    }

    /// The incoming packet with the given changes, all of whose fields are to be compared.
    fn as_it_came(&self, cause: &Packet, changes: &Packet) -> Result<Packet, Wrong> {
        let mut wanted = cause.clone();
        wanted.0.extend(changes.0.iter().map(|(field, value)| (*field, value.clone())));
        match resolved(&wanted, &self.bound) {
            Ok(known) => Ok(read::frame(&build::frame(&known)?)),
            // The value that a variable will be bound to affects the rest of the packet, so only the given fields are compared.
            Err(_) => {
                wanted.0.remove(&Field::Captured);
                Ok(wanted)
            }
        }
    }

    fn find(
        &mut self,
        expected: &Expected,
        port: u16,
        said: &Packet,
        left: &mut Vec<(u16, Packet)>,
        dropped: Option<&str>,
    ) -> Result<(), Mismatch> {
        let mut nearest: Option<(usize, Vec<String>)> = None;
        for (at, (by, seen)) in left.iter().enumerate() {
            let mut bound = self.bound.clone();
            let mut why = differences(said, seen, &mut bound);
            if *by != port {
                why.insert(0, format!("by port {by}, not {port}"));
            }
            if why.is_empty() {
                left.remove(at);
                self.bound = bound;
                return Ok(());
            }
            if nearest.as_ref().is_none_or(|(_, fewer)| why.len() < fewer.len()) {
                nearest = Some((at, why));
            }
        }
        let Some((at, why)) = nearest else {
            return Err(self.mismatch(expected.line, &expected.text, shown(&[], dropped)));
        };
        let (by, seen) = &left[at];
        let got = format!("out {by} {}", seen.seen_as(said));
        Err(Mismatch { why, ..self.mismatch(expected.line, &expected.text, got) })
    }

    fn check(&self, check: &Check) -> Result<(), String> {
        let (left, right) = (self.value(&check.left)?, self.value(&check.right)?);
        let order = match (&left, &right) {
            (Value::Number(left), Value::Number(right)) => left.cmp(right),
            (Value::Address(left), Value::Address(right)) => left.cmp(right),
            _ => {
                return Err(format!(
                    "{left} and {right}, which cannot be compared: one is no number, the other no address"
                ));
            }
        };
        let holds = match check.operator.as_str() {
            "==" => order.is_eq(),
            "!=" => order.is_ne(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            ">" => order.is_gt(),
            _ => order.is_ge(),
        };
        if holds { Ok(()) } else { Err(format!("{left} and {right}")) }
    }

    fn value(&self, term: &Term) -> Result<Value, String> {
        let value = match &term.value {
            Value::Variable(name) => self.bound.get(name).ok_or(format!("${name} stands for nothing yet"))?,
            value => value,
        };
        let (Some((sign, by)), Value::Number(number)) = (&term.then, value) else { return Ok(value.clone()) };
        let result = match sign.as_str() {
            "+" => number.checked_add(*by),
            "-" => number.checked_sub(*by),
            "/" => number.checked_div(*by),
            _ => number.checked_rem(*by),
        };
        result.map(Value::Number).ok_or(format!("{number} {sign} {by} is no number"))
    }
}

/// The length of a packet on the wire, before a capture cut it.
fn wire_len(packet: &Packet) -> Result<u32, Wrong> {
    let mut whole = packet.clone();
    whole.0.remove(&Field::Captured);
    Ok(build::frame(&whole)?.len() as u32)
}

/// Describes the outcome for a packet.
fn shown(sent: &[(u16, Packet)], dropped: Option<&str>) -> String {
    let mut parts: Vec<String> =
        sent.iter().map(|(port, packet)| format!("out {port} {}", packet.in_short())).collect();
    parts.extend(dropped.map(|reason| format!("drop {reason}")));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("\n            ") }
}
