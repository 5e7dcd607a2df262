//! A certificate states that a chain on many workers did what one worker does, over a number of schedules, or shows the smallest difference
//! found.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::words::counted;

/// How the workers of a run were interleaved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// One worker at a time, switched at random by the seed: reproducible.
    Seeded,
    /// Threads as scheduled by the operating system.
    Threads,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Schedule::Seeded => "seeded schedule",
            Schedule::Threads => "real threads",
        })
    }
}

/// One run that was compared with its replay.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Seed of its schedule.
    pub seed: u64,
    /// How it was scheduled.
    pub schedule: Schedule,
    /// Number of transactions that were replayed in commit order.
    pub transactions: usize,
    /// Number of attempts that were rolled back.
    pub aborts: u64,
    /// Handlers that panicked; their packets were dropped as `handler_panic`, in the replay as well.
    pub panics: u64,
    /// Number of packets of each worker.
    pub packets: Vec<u64>,
    /// What happened in it: a certificate is about no more than that.
    #[serde(flatten)]
    pub covered: Covered,
}

/// What the functions did in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Covered {
    /// Packet sets that began.
    pub sets_created: u64,
    /// Packet sets that ended by their timeout.
    pub sets_expired: u64,
    /// Packet sets that were evicted from full tables.
    pub sets_evicted: u64,
    /// Packet sets for which a full table had no room; includes attempts that were rolled back.
    pub sets_refused: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Copies, and packets that functions made.
    pub made: u64,
}

impl Covered {
    fn add(self, other: Covered) -> Covered {
        Covered {
            sets_created: self.sets_created + other.sets_created,
            sets_expired: self.sets_expired + other.sets_expired,
            sets_evicted: self.sets_evicted + other.sets_evicted,
            sets_refused: self.sets_refused + other.sets_refused,
            dropped: self.dropped + other.dropped,
            made: self.made + other.made,
        }
    }
}

impl fmt::Display for Covered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Covered { sets_created, sets_expired, sets_evicted, sets_refused, dropped, made } = *self;
        write!(
            f,
            "{} began ({sets_expired} expired, {sets_evicted} evicted, {sets_refused} refused), {} dropped, {} made",
            counted(sets_created, "packet set"),
            counted(dropped, "packet"),
            counted(made, "packet"),
        )
    }
}

/// The result of all runs.
#[derive(Clone, Debug, Serialize)]
pub struct Certificate {
    /// The functions, in order.
    pub chain: Vec<String>,
    /// The name of the input.
    pub input: String,
    /// Number of packets in the input.
    pub packets: usize,
    /// Number of workers.
    pub workers: usize,
    /// The runs, in order; if there is a violation, it occurred in the last one.
    pub runs: Vec<Run>,
    /// What differed, if anything.
    pub violation: Option<Violation>,
}

/// A difference between the parallel run and its sequential replay.
#[derive(Clone, Debug, Serialize)]
pub struct Violation {
    /// Seed of the schedule under which it occurred.
    pub seed: u64,
    /// How that run was scheduled.
    pub schedule: Schedule,
    /// Number of packets in the smallest input that still shows it.
    pub packets: usize,
    /// What differs, in a sentence.
    pub what: String,
    /// The packet whose result differs, if it is a packet.
    pub packet: Option<PacketDifference>,
    /// Transactions of the same function right before it, oldest first.
    pub before: Vec<String>,
    /// The total number of differences.
    pub differences: usize,
}

/// A packet whose result differs.
#[derive(Clone, Debug, Serialize)]
pub struct PacketDifference {
    /// Its number in the input.
    pub number: u64,
    /// The function that handled it last.
    pub function: String,
    /// The worker that handled it.
    pub worker: usize,
    /// The place of that transaction in the commit order.
    pub transaction: u64,
    /// Its bytes as received.
    #[serde(serialize_with = "as_hex")]
    pub input: Vec<u8>,
    /// The result in the parallel run.
    pub parallel: Outcome,
    /// The result on one worker.
    pub sequential: Outcome,
}

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The verdict in words: where the packet went, or why it was dropped.
    pub verdict: String,
    /// Its bytes; empty if it was dropped.
    #[serde(serialize_with = "as_hex")]
    pub bytes: Vec<u8>,
    /// Packets that handlers made because of it, in words and hexadecimal.
    pub made: Vec<String>,
}

fn as_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&hex(bytes))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Certificate {
    /// Whether no run differed from its replay.
    pub fn holds(&self) -> bool {
        self.violation.is_none()
    }

    /// Number of handlers that panicked in all runs. Their effects are certified like all others: their packets were dropped, and nothing
    /// else remained.
    pub fn panics(&self) -> u64 {
        self.runs.iter().map(|run| run.panics).sum()
    }
}

impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chain = self.chain.join(" → ");
        let aborts: u64 = self.runs.iter().map(|run| run.aborts).sum();
        let transactions: usize = self.runs.iter().map(|run| run.transactions).sum();
        if let Some(violation) = &self.violation {
            writeln!(f, "VIOLATION  {chain} on {}, {}", counted(self.workers as u64, "worker"), self.input)?;
            return write!(f, "{violation}");
        }
        let (workers, packets) = (counted(self.workers as u64, "worker"), counted(self.packets as u64, "packet"));
        writeln!(f, "CERTIFIED  {chain} on {workers}, {}: {packets}", self.input)?;
        let seeded = self.runs.iter().filter(|run| run.schedule == Schedule::Seeded).count();
        writeln!(
            f,
            "  {} ({seeded} under seeded schedules, {} on real threads), {}, {} rolled back",
            counted(self.runs.len() as u64, "run"),
            self.runs.len() - seeded,
            counted(transactions as u64, "transaction"),
            counted(aborts, "attempt"),
        )?;
        let covered = self.runs.iter().map(|run| run.covered).fold(Covered::default(), Covered::add);
        writeln!(f, "  in these runs {covered}")?;
        if covered == Covered::default() {
            writeln!(
                f,
                "  so this input shows little of what the functions do: none of it became a packet set, was dropped or answered"
            )?;
        }
        writeln!(
            f,
            "  every run equals one worker that does the same transactions in commit order: \
             packets, packets made, state objects, packet sets"
        )?;
        match self.panics() {
            0 => Ok(()),
            panics => {
                let times = counted(panics, "time");
                writeln!(f, "  but handlers panicked {times}: their packets were dropped as handler_panic")
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = counted(self.packets as u64, "packet");
        writeln!(f, "  seed {} ({}), {packets}: {}", self.seed, self.schedule, self.what)?;
        if let Some(packet) = &self.packet {
            write!(f, "{packet}")?;
        }
        if !self.before.is_empty() {
            writeln!(f, "  right before it:")?;
            self.before.iter().try_for_each(|line| writeln!(f, "    {line}"))?;
        }
        if self.differences > 1 {
            writeln!(f, "  and {} more differences, which may follow from this one", self.differences - 1)?;
        }
        Ok(())
    }
}

impl fmt::Display for PacketDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PacketDifference { number, function, worker, transaction, input, parallel, sequential } = self;
        writeln!(f, "  packet {number}, handled last by {function} on worker {worker} (transaction {transaction})")?;
        for (who, outcome) in [("parallel", parallel), ("sequential", sequential)] {
            writeln!(f, "    {who:<11} {}, {} bytes", outcome.verdict, outcome.bytes.len())?;
            outcome.made.iter().try_for_each(|made| writeln!(f, "      made {made}"))?;
        }
        match (parallel.bytes.is_empty(), sequential.bytes.is_empty()) {
            (false, false) if parallel.bytes != sequential.bytes => {
                side_by_side(f, ("parallel", &parallel.bytes), ("sequential", &sequential.bytes))
            }
            _ => side_by_side(f, ("as received", input), ("", &[])),
        }
    }
}

/// Bytes in a line of a dump.
const LINE: usize = 16;

/// Shows the lines in which both packets differ, with the differing bytes marked below; of a single packet, all lines.
fn side_by_side(f: &mut fmt::Formatter<'_>, a: (&str, &[u8]), b: (&str, &[u8])) -> fmt::Result {
    let one = b.1.is_empty();
    for at in (0..a.1.len().max(b.1.len())).step_by(LINE) {
        let line = |bytes: &[u8]| bytes.iter().skip(at).take(LINE).copied().collect::<Vec<u8>>();
        let (left, right) = (line(a.1), line(b.1));
        if one {
            writeln!(f, "    {:<11} {at:04x}  {}", a.0, spaced(&left))?;
        } else if left != right {
            writeln!(f, "    {:<11} {at:04x}  {}", a.0, spaced(&left))?;
            writeln!(f, "    {:<11} {at:04x}  {}", b.0, spaced(&right))?;
            let mark = |i: usize| if left.get(i) == right.get(i) { "  " } else { "^^" };
            let marks: Vec<&str> = (0..left.len().max(right.len())).map(mark).collect();
            writeln!(f, "    {:<16}  {}", "", marks.join(" ").trim_end())?;
        }
    }
    Ok(())
}

fn spaced(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(verdict: &str, bytes: &[u8]) -> Outcome {
        Outcome { verdict: verdict.to_owned(), bytes: bytes.to_vec(), made: Vec::new() }
    }

    fn check(parallel: Outcome, sequential: Outcome, lines: &[&str]) {
        let difference = PacketDifference {
            number: 17,
            function: "nat".to_owned(),
            worker: 1,
            transaction: 233,
            input: vec![9; 4],
            parallel,
            sequential,
        };
        let text = difference.to_string();
        for line in lines {
            assert!(text.lines().any(|found| found.trim_end() == *line), "`{line}` is missing in\n{text}");
        }
    }

    #[test]
    fn differing_bytes_are_marked_and_equal_lines_left_out() {
        let (mut a, b) = (vec![0; 40], vec![0; 40]);
        a[18] = 0xff;
        let lines = [
            "    parallel    0010  00 00 ff 00 00 00 00 00 00 00 00 00 00 00 00 00",
            "    sequential  0010  00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00",
            "                            ^^",
        ];
        check(outcome("to port 1", &a), outcome("to port 1", &b), &lines);
    }

    #[test]
    fn a_packet_that_only_one_side_dropped_is_shown_as_received() {
        let lines = ["    parallel    dropped: limit, 0 bytes", "    as received 0000  09 09 09 09"];
        check(outcome("dropped: limit", &[]), outcome("to port 1", &[9; 4]), &lines);
    }
}
