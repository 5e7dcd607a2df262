//! What a run did, as a table for people and as one JSON object for programs.
//!
//! Invariant: `packets_in + packets_copied = packets_out + Σ dropped`. Every frame of the input counts as
//! received. A frame that the source could not deliver counts as a drop with its reason, under the function
//! name `source`; a packet that a device did not accept or that was not written, under `sink`.

use std::collections::BTreeMap;
use std::fmt;

use braid_profile::{counted, noun_of};
use braid_runtime::io::SinkError;
use braid_runtime::nf::{Finding, Findings};
use braid_runtime::observe::counters::WorkerCounters;
use braid_runtime::{Balanced, Report};
use serde::{Deserialize, Serialize};

use crate::explain::human_bytes;

/// The figures of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RunReport {
    /// The functions, in order.
    pub chain: Vec<String>,
    /// Frames of the input.
    pub packets_in: u64,
    /// Additional packets: copies by flooding, and packets that functions made.
    pub packets_copied: u64,
    /// Packets sent or written.
    pub packets_out: u64,
    /// Packets that did not leave, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// The same drops, by function and reason.
    pub dropped_by_nf: BTreeMap<String, BTreeMap<String, u64>>,
    /// How many of them are not lost: functions answered them, or sent them on later or in another way.
    pub consumed: u64,
    /// Bytes received, by length on the wire.
    pub bytes_in: u64,
    /// Bytes sent; those of packets that could not be written are among them.
    pub bytes_out: u64,
    /// Packet sets.
    pub sets: Sets,
    /// Each worker's share.
    pub workers: Vec<Share>,
    /// What moved between the workers, if load was balanced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balanced: Option<Moved>,
    /// Seconds from the first worker's start to the last worker's end.
    pub seconds: f64,
    /// Transactions.
    pub transactions: Transactions,
    /// The kind of pages that hold the packet buffers.
    pub pages: String,
    /// Bytes of memory of tables and state objects.
    pub memory_bytes: usize,
    /// What the functions report, by function.
    pub findings: BTreeMap<String, Told>,
    /// Positions at which the input is damaged.
    pub damages: Vec<String>,
    /// Output that could not be written.
    pub lost: Vec<String>,
    /// The run was told to stop before the end of its input.
    pub stopped: bool,
}

/// What one function reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Told {
    /// Totals, by name.
    pub sums: BTreeMap<String, u64>,
    /// Findings, by kind and subject.
    pub found: Vec<Found>,
}

/// A finding.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Found {
    /// What was found.
    pub kind: String,
    /// What the finding is about, an address for example.
    pub subject: String,
    /// The evidence for it.
    pub detail: String,
    /// The number in `detail`, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
}

/// Maximum number of findings of one function in the table; the JSON output has all.
const SHOWN: usize = 20;

/// Packet sets of all groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sets {
    /// Sets that became live.
    pub created: u64,
    /// Sets that ended.
    pub expired: u64,
    /// Sets live at the end.
    pub live: u64,
    /// Sets ended to make room in a full table; they count as expired too.
    #[serde(default)]
    pub evicted: u64,
    /// Sets refused because a table was full.
    #[serde(default)]
    pub refused: u64,
}

impl Sets {
    /// Takes the figures from the runtime's counters.
    pub fn of(total: &WorkerCounters) -> Sets {
        Sets {
            created: total.sets_created,
            expired: total.sets_expired,
            evicted: total.sets_evicted,
            refused: total.sets_refused,
            live: total.sets_live,
        }
    }
}

/// What one worker did.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// Packets received.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Batches received.
    pub batches: u64,
    /// Sets live at the end.
    pub sets_live: u64,
    /// Attempts rolled back.
    pub aborts: u64,
}

/// What load balancing did.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// Number of times the load was checked.
    pub looks: u64,
    /// Entries of the indirection table that moved to another worker.
    pub entries: u64,
    /// Packet sets that moved with them.
    pub sets: u64,
    /// Entries that stayed because the target worker had no room for their packet sets.
    pub refused: u64,
    /// Total time in microseconds during which rebalancing held back packets.
    pub held_us: u64,
    /// The longest such pause, in microseconds.
    pub held_longest_us: u64,
}

impl Moved {
    fn of(balanced: Balanced) -> Moved {
        let Balanced { looks, entries, sets, refused, held_ns, held_longest_ns } = balanced;
        Moved { looks, entries, sets, refused, held_us: held_ns / 1_000, held_longest_us: held_longest_ns / 1_000 }
    }
}

/// Transactions of all workers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Transactions {
    /// Committed.
    pub commits: u64,
    /// Attempts rolled back.
    pub aborts: u64,
    /// Exclusive turns taken after repeated conflicts.
    pub turns: u64,
    /// Handlers that panicked.
    pub panics: u64,
}

impl RunReport {
    /// Makes the report from the runtime's counters.
    pub fn new(chain: Vec<String>, report: &Report) -> RunReport {
        let total = &report.total;
        let mut dropped = BTreeMap::new();
        let mut dropped_by_nf: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        let undelivered = report.undelivered.iter().map(|&(reason, count)| ("source", reason, count));
        let unsent = report.unsent.iter().map(|&(reason, count)| ("sink", reason, count));
        let sum = |counts: &[(&str, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
        let (undelivered_total, unsent_total) = (sum(&report.undelivered), sum(&report.unsent));
        let packets_out = total.packets_out.saturating_sub(unsent_total);
        let not_written = report.lost.iter().map(SinkError::lost).sum::<u64>().min(packets_out);
        let unwritten = (not_written > 0).then_some(("sink", "not_written", not_written));
        for (stage, reason, count) in total.drops.iter().chain(undelivered).chain(unsent).chain(unwritten) {
            *dropped.entry(reason.to_owned()).or_default() += count;
            *dropped_by_nf.entry(stage.to_owned()).or_default().entry(reason.to_owned()).or_default() += count;
        }
        RunReport {
            chain,
            packets_in: total.packets_in + undelivered_total,
            packets_copied: total.packets_copied,
            packets_out: packets_out - not_written,
            dropped,
            dropped_by_nf,
            consumed: report.consumed,
            bytes_in: total.bytes_in,
            bytes_out: if unsent_total > 0 { report.sent_bytes } else { total.bytes_out },
            sets: Sets::of(total),
            workers: report.workers.iter().map(share).collect(),
            balanced: report.dispatched.as_ref().and_then(|dispatched| dispatched.balanced).map(Moved::of),
            seconds: report.elapsed.as_secs_f64(),
            transactions: Transactions {
                commits: total.commits,
                aborts: total.aborts,
                turns: total.turns,
                panics: total.panics,
            },
            pages: report.backing.to_string(),
            memory_bytes: report.memory_bytes,
            findings: report.findings.iter().map(|(name, findings)| (name.clone(), findings.into())).collect(),
            damages: report.damages.iter().map(ToString::to_string).collect(),
            lost: report.lost.iter().map(ToString::to_string).collect(),
            stopped: report.was_stopped,
        }
    }

    /// Total number of drops.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }

    /// Whether every packet is accounted for.
    pub fn adds_up(&self) -> bool {
        self.packets_in + self.packets_copied == self.packets_out + self.dropped_total()
    }
}

impl From<&Findings> for Told {
    fn from(findings: &Findings) -> Told {
        let found = |finding: &Finding| {
            let Finding { kind, subject, detail, number } = finding.clone();
            Found { kind: kind.to_owned(), subject, detail, number }
        };
        Told { sums: findings.sums().clone(), found: findings.list().iter().map(found).collect() }
    }
}

fn share(worker: &WorkerCounters) -> Share {
    Share {
        packets: worker.packets_in,
        bytes: worker.bytes_in,
        batches: worker.batches,
        sets_live: worker.sets_live,
        aborts: worker.aborts,
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.chain.join(" → "))?;
        let row = |f: &mut fmt::Formatter<'_>, name: &str, packets: u64, note: &str| {
            writeln!(f, "  {name:<28} {:>16}  {note}", grouped(packets))
        };
        row(f, "packets in", self.packets_in, &grouped_of(self.bytes_in, "byte"))?;
        if self.packets_copied > 0 {
            row(f, "copied or made", self.packets_copied, "by flooding and by functions")?;
        }
        row(f, "packets out", self.packets_out, &grouped_of(self.bytes_out, "byte"))?;
        let consumed = match self.consumed {
            0 => String::new(),
            consumed => format!("{} of them consumed: answered, or sent on later or otherwise", grouped(consumed)),
        };
        row(f, "dropped", self.dropped_total(), &consumed)?;
        for (function, reasons) in &self.dropped_by_nf {
            for (reason, &count) in reasons {
                row(f, &format!("  {reason}"), count, function)?;
            }
        }
        let Sets { created, expired, live, evicted, refused } = &self.sets;
        row(f, "packet sets live", *live, &format!("{} created, {} expired", grouped(*created), grouped(*expired)))?;
        if evicted + refused > 0 {
            row(f, "packet sets evicted", *evicted, &format!("{} refused: the table was full", grouped(*refused)))?;
        }
        let rate = self.packets_in as f64 / self.seconds.max(1e-9);
        writeln!(f, "  {:<28} {:>16}  {}", "time", format!("{:.3} s", self.seconds), rate_in_words(rate))?;
        let Transactions { commits, aborts, turns, panics } = &self.transactions;
        if *commits > 0 {
            let (attempts, turns) = (grouped_of(*aborts, "attempt"), counted(*turns, "turn"));
            let note = format!("{attempts} rolled back, {turns} taken");
            row(f, "transactions", *commits, &note)?;
        }
        if *panics > 0 {
            row(f, "handlers that panicked", *panics, "an error in a function: its message is above")?;
        }
        for (number, worker) in self.workers.iter().enumerate() {
            let percent = 100.0 * worker.packets as f64 / self.packets_in.max(1) as f64;
            row(f, &format!("worker {number}"), worker.packets, &format!("{percent:.1} %"))?;
        }
        if let Some(Moved { looks, entries, sets, refused, held_longest_us, .. }) = &self.balanced {
            let note = format!(
                "to less busy workers, with {}; {}, {refused} refused, {:.1} ms at the longest",
                grouped_of(*sets, "packet set"),
                counted(*looks, "look"),
                *held_longest_us as f64 / 1e3
            );
            row(f, "entries moved", *entries, &note)?;
        }
        writeln!(f, "  {:<28} {:>16}  buffers on {}", "state in memory", human_bytes(self.memory_bytes), self.pages)?;
        self.findings.iter().try_for_each(|(function, told)| told.show(f, function))?;
        self.damages.iter().try_for_each(|damage| writeln!(f, "  damaged input: {damage}"))?;
        self.lost.iter().try_for_each(|lost| writeln!(f, "  not written: {lost}"))
    }
}

impl Told {
    fn show(&self, f: &mut fmt::Formatter<'_>, function: &str) -> fmt::Result {
        writeln!(f, "found by {function}")?;
        self.sums.iter().try_for_each(|(name, sum)| writeln!(f, "  {name:<28} {:>16}", grouped(*sum)))?;
        let shown = self.shown();
        let widest = |text: &dyn Fn(&Found) -> usize| shown.iter().map(|found| text(found)).max().unwrap_or(0);
        let (kinds, subjects) = (widest(&|found| found.kind.len()), widest(&|found| found.subject.len()));
        for Found { kind, subject, detail, .. } in &shown {
            writeln!(f, "  {kind:<kinds$}  {subject:<subjects$}  {detail}")?;
        }
        match self.found.len() - shown.len() {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more: add --json to see all"),
        }
    }

    /// The findings that the table shows, in their order. Each kind gets an equal share of the rows while
    /// it has findings, so a long log hides no counter.
    fn shown(&self) -> Vec<&Found> {
        let mut of_kind = BTreeMap::new();
        let mut ranks: Vec<(usize, usize)> = Vec::with_capacity(self.found.len());
        for (at, found) in self.found.iter().enumerate() {
            let before: &mut usize = of_kind.entry(&found.kind).or_default();
            ranks.push((*before, at));
            *before += 1;
        }
        ranks.sort_unstable();
        ranks.truncate(SHOWN);
        ranks.sort_unstable_by_key(|(_, at)| *at);
        ranks.into_iter().filter_map(|(_, at)| self.found.get(at)).collect()
    }
}

/// Formats a number with a comma between groups of three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with the noun it counts.
pub fn grouped_of(number: u64, noun: &str) -> String {
    format!("{} {}", grouped(number), noun_of(number, noun))
}

fn rate_in_words(packets_per_second: f64) -> String {
    match packets_per_second {
        rate if rate >= 1e6 => format!("{:.2} million packets a second", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} thousand packets a second", rate / 1e3),
        rate => format!("{rate:.0} packets a second"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"].map(str::to_owned));
    }

    #[test]
    fn one_of_a_kind_is_no_plural() {
        let transactions = Transactions { commits: 7, aborts: 1, turns: 1, panics: 0 };
        let one = RunReport { bytes_in: 1, bytes_out: 1000, transactions, ..RunReport::default() };
        let text = one.to_string();
        for said in ["  1 byte\n", "  1,000 bytes\n", "  1 attempt rolled back, 1 turn taken\n"] {
            assert!(text.contains(said), "{text}");
        }
    }

    /// Sixty log lines, followed by three counters in the order of kinds.
    #[test]
    fn each_kind_of_finding_has_its_share_of_the_table() {
        let of = |kind: &str, count| {
            let one =
                move |n| Found { kind: kind.into(), subject: format!("{n:02}"), detail: String::new(), number: None };
            (0..count).map(one).collect::<Vec<_>>()
        };
        let told = Told { sums: BTreeMap::new(), found: [of("logged", 60), of("rule", 3)].concat() };
        let shown = told.shown();
        assert_eq!(shown.iter().filter(|found| found.kind == "rule").count(), 3);
        assert_eq!(shown.len(), SHOWN);
        assert!(shown.is_sorted_by_key(|found| (&found.kind, &found.subject)));
        let few = Told { found: of("rule", 3), ..told.clone() };
        assert_eq!(few.shown().len(), 3);
    }
}
