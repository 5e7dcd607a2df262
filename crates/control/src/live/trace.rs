//! Describes a packet's path through the chain: what `braid trace` prints and what the control socket carries.

use std::fmt;

use braid_profile::counted;
use braid_runtime::Access;
use braid_runtime::live::Running;
use braid_runtime::nf::Verdict;
use braid_runtime::nf::packet::{FrameInfo, Link, Port};
use braid_runtime::nf::state::causes::{MAP_BUCKETS, POOL_WATCH, operation};
use braid_runtime::observe::trace::{Traced, TracedStep};
use serde::{Deserialize, Serialize};

use crate::facts::{Edit, edits, summary};

/// Link types, indexed by the numbers used in [`TraceReport::link`].
const LINKS: [Link; 8] =
    [Link::Ethernet, Link::RawIp, Link::Cooked1, Link::Cooked2, Link::Loopback, Link::Other, Link::Ppp, Link::Hdlc];

/// A traced packet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceReport {
    /// Its sequence number in the source, from 0.
    pub packet: u64,
    /// Its timestamp, in nanoseconds.
    pub time_ns: u64,
    /// The worker that processed it.
    pub worker: usize,
    /// The port on which it arrived.
    pub port: Port,
    /// The packet as it arrived, in one line.
    pub input: String,
    /// What each function did with it.
    pub steps: Vec<StepReport>,
    /// Its fate.
    pub outcome: String,
    /// The packet as it left, in one line; empty if it was dropped.
    pub output: String,
    /// Its bytes on arrival, in hexadecimal.
    pub input_bytes: String,
    /// Its bytes on departure, in hexadecimal; empty if it was dropped.
    pub output_bytes: String,
    /// Its link type, by the number of the [`Link`].
    pub link: u8,
}

/// What one function did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReport {
    /// The function.
    pub function: String,
    /// The packet's set; empty if it is in none.
    pub set: String,
    /// The state of the set before, in hexadecimal; `None` if the set was not live or is shared.
    pub state_before: Option<String>,
    /// The state of the set afterwards, in hexadecimal, likewise.
    pub state_after: Option<String>,
    /// Header fields that were changed.
    pub edits: Vec<Edit>,
    /// State objects that were read or written.
    pub accesses: Vec<AccessReport>,
    /// Attempts that were rolled back before this one succeeded.
    pub taken_back: u64,
    /// Packets that it made.
    pub made: Vec<String>,
    /// The verdict after this function.
    pub verdict: String,
}

/// Accesses to one element of a state object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessReport {
    /// The object.
    pub object: String,
    /// What was done: `get`, `insert`, …
    pub operation: String,
    /// `read` or `write`.
    pub access: String,
    /// The element.
    pub element: String,
    /// The source line in the function.
    pub line: String,
}

impl TraceReport {
    /// Makes the report from what the runtime recorded.
    pub fn new(traced: &Traced, running: &Running) -> TraceReport {
        let dropped = matches!(traced.verdict, Verdict::Drop(_));
        let output = |text: &dyn Fn(&[u8]) -> String| if dropped { String::new() } else { text(&traced.output) };
        TraceReport {
            packet: traced.sequence,
            time_ns: traced.now_ns,
            worker: traced.worker,
            port: traced.port,
            input: summary(&traced.input, traced.link),
            steps: traced.steps.iter().map(|step| StepReport::new(step, traced.link, running)).collect(),
            outcome: verdict(traced.verdict),
            output: output(&|bytes| summary(bytes, traced.link)),
            input_bytes: hex(&traced.input),
            output_bytes: output(&hex),
            link: traced.link as u8,
        }
    }

    /// The packet as it arrived and, if it left, as it left, for a capture file, with a description of what happened as the comment.
    pub fn frames(&self) -> Vec<(Vec<u8>, FrameInfo, String)> {
        let link = LINKS.get(usize::from(self.link)).copied().unwrap_or_default();
        let frame = |text: &str, port: Port, comment: String| {
            let bytes = unhex(text);
            let wire_len = bytes.len() as u32;
            let info = FrameInfo { port, link, timestamp_ns: self.time_ns, wire_len, sequence: self.packet };
            (bytes, info, comment)
        };
        let mut frames = vec![frame(&self.input_bytes, self.port, self.to_string())];
        if !self.output_bytes.is_empty() {
            let port = self.outcome.rsplit(' ').next().and_then(|port| port.parse().ok()).unwrap_or(self.port);
            frames.push(frame(&self.output_bytes, port, format!("packet {} as it left", self.packet)));
        }
        frames
    }
}

impl StepReport {
    fn new(step: &TracedStep, link: Link, running: &Running) -> StepReport {
        let made = |(port, bytes): &(Port, Vec<u8>)| format!("out by port {port}: {}", summary(bytes, link));
        let mut accesses: Vec<AccessReport> = Vec::new();
        for access in step.accesses.iter().map(|access| access_report(access, running)) {
            if !accesses.contains(&access) {
                accesses.push(access);
            }
        }
        StepReport {
            function: step.function.clone(),
            set: step.key.map_or(String::new(), |key| key.to_string()),
            state_before: step.set_before.as_deref().map(hex),
            state_after: step.set_after.as_deref().map(hex),
            edits: edits(&step.before, &step.after, link),
            accesses,
            taken_back: step.aborts,
            made: step.emitted.iter().map(made).collect(),
            verdict: verdict(step.verdict),
        }
    }

    fn set_line(&self) -> String {
        let (key, before, after) = (&self.set, &self.state_before, &self.state_after);
        match (before, after) {
            _ if key.is_empty() => "in no packet set".to_owned(),
            (None, None) => key.clone(),
            (None, Some(after)) => format!("{key}: new, state {after}"),
            (Some(before), None) => format!("{key}: ended, state was {before}"),
            (Some(before), Some(after)) if before == after => format!("{key}: state {before}"),
            (Some(before), Some(after)) => format!("{key}: state {before}\n{:>17}→ {after}", ""),
        }
    }
}

fn access_report(access: &Access, running: &Running) -> AccessReport {
    let info = running.domain.info(access.object);
    let element = match info.kind {
        "Map" | "Allocator" if access.part == POOL_WATCH => "free list".to_owned(),
        "Map" if access.part == MAP_BUCKETS => format!("bucket {}", access.index),
        "Map" => format!("entry {}", access.index),
        "Distributed" => format!("part of worker {}", access.index),
        "Allocator" => format!("line of leases {}", access.index),
        _ => format!("#{}", access.index),
    };
    AccessReport {
        operation: operation(info.kind, access.op).unwrap_or("access").to_owned(),
        access: if access.is_write { "write" } else { "read" }.to_owned(),
        element,
        line: format!("{}:{}", access.location.file(), access.location.line()),
        object: info.name,
    }
}

fn verdict(verdict: Verdict) -> String {
    match verdict {
        Verdict::Forward(port) => format!("out by port {port}"),
        Verdict::Flood => "out by all other ports".to_owned(),
        Verdict::Drop(reason) => format!("dropped: {}", reason.0),
        Verdict::Onward => "onward".to_owned(),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pair = |at: usize| text.get(at..at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
    (0..text.len()).step_by(2).map_while(pair).collect()
}

impl fmt::Display for TraceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time_ns as f64 / 1e9;
        writeln!(f, "packet {} at {seconds:.6} s, in by port {}, worker {}", self.packet, self.port, self.worker)?;
        writeln!(f, "  {}", self.input)?;
        for step in &self.steps {
            writeln!(f, "  ▸ {}", step.function)?;
            writeln!(f, "      {:<9} {}", "set", step.set_line())?;
            for access in &step.accesses {
                let AccessReport { object, operation, access, element, line } = access;
                writeln!(f, "      {access:<9} {object} {element} ({operation}, {line})")?;
            }
            for Edit { field, before, after } in &step.edits {
                writeln!(f, "      {:<9} {field}: {before} → {after}", "edit")?;
            }
            for made in &step.made {
                writeln!(f, "      {:<9} {made}", "made")?;
            }
            if step.taken_back > 0 {
                writeln!(f, "      {:<9} {} rolled back", "retries", counted(step.taken_back, "attempt"))?;
            }
            writeln!(f, "      {:<9} {}", "verdict", step.verdict)?;
        }
        write!(f, "  {}", self.outcome)?;
        if !self.output.is_empty() {
            write!(f, ": {}", self.output)?;
        }
        writeln!(f)
    }
}
