//! A profile: why attempts were rolled back, what to change, and where the time went.

use std::fmt;

use serde::Serialize;

use crate::words::counted;

/// The results of a profiled run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Profile {
    /// The functions, in order.
    pub chain: Vec<String>,
    /// The name of the input.
    pub input: String,
    /// Number of workers.
    pub workers: usize,
    /// Whether the workers and their time are modelled.
    pub modelled: bool,
    /// Number of packets.
    pub packets: u64,
    /// Time of the run, in seconds.
    pub seconds: f64,
    /// Transactions committed.
    pub commits: u64,
    /// Attempts rolled back.
    pub aborts: u64,
    /// Turns taken after repeated conflicts.
    pub turns: u64,
    /// Conflicts of a worker with itself: anything but 0 is a bug in Braid.
    pub with_itself: u64,
    /// Aborts by line of the functions, most frequent first.
    pub lines: Vec<LineAborts>,
    /// Aborts by cause, most frequent first.
    pub causes: Vec<CauseAborts>,
    /// How evenly the workers were loaded.
    pub balance: Balance,
    /// Where the time went.
    pub time: Vec<TimePart>,
    /// Aborts over time.
    pub over_time: OverTime,
}

/// Aborts of one line.
#[derive(Clone, Debug, Serialize)]
pub struct LineAborts {
    /// Source file and line.
    pub line: String,
    /// Number of aborts.
    pub aborts: u64,
    /// Share of all aborts.
    pub share: f64,
}

/// Aborts of one cause.
#[derive(Clone, Debug, Default, Serialize)]
pub struct CauseAborts {
    /// The object, such as `nat.sessions`; empty if the cause is not an object.
    pub object: String,
    /// Its kind.
    pub kind: String,
    /// The operation that had to be repeated.
    pub mine: String,
    /// The operation that had committed.
    pub theirs: String,
    /// What they conflicted over.
    pub why: String,
    /// What may be relaxed.
    pub recipe: String,
    /// What to write, and where.
    pub change: Option<String>,
    /// The key and value of that change, if it concerns a function's configuration.
    pub setting: Option<Setting>,
    /// The aborts when the change was tried on the same packets.
    pub tried: Option<Tried>,
    /// Where it happened: source file and line.
    pub line: String,
    /// Number of aborts.
    pub aborts: u64,
    /// Share of all aborts.
    pub share: f64,
    /// The elements with the most conflicts.
    pub hot: Vec<HotElement>,
}

/// A key of a function's configuration, and what to set it to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// The function.
    pub function: String,
    /// The key.
    pub key: String,
    /// The value.
    pub value: i64,
}

/// The result of trying a change with the same number of workers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Tried {
    /// Attempts rolled back, for all causes.
    pub aborts: u64,
    /// Their share of all attempts.
    pub share: f64,
}

/// An element of an object.
#[derive(Clone, Debug, Serialize)]
pub struct HotElement {
    /// Its number or key.
    pub element: String,
    /// Upper bound of its share of the cause's aborts.
    pub share: f64,
}

/// How evenly the workers were loaded.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Balance {
    /// Number of packets of each worker.
    pub packets: Vec<u64>,
    /// The most loaded worker's packets divided by the mean.
    pub factor: f64,
    /// The packet sets with the most packets and their shares, estimated from one packet of each batch.
    pub heaviest: Vec<HotElement>,
}

/// Time spent on one kind of work.
#[derive(Clone, Debug, Serialize)]
pub struct TimePart {
    /// The kind of work.
    pub part: String,
    /// Nanoseconds per packet.
    pub ns_per_packet: f64,
    /// Share of the busy time.
    pub share: f64,
}

/// Aborts over time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OverTime {
    /// Seconds per value.
    pub step_s: f64,
    /// Number of aborts in each step.
    pub aborts: Vec<u64>,
}

impl Profile {
    /// Share of attempts that were rolled back.
    pub fn abort_share(&self) -> f64 {
        self.aborts as f64 / ((self.aborts + self.commits) as f64).max(1.0)
    }

    /// Packets per second.
    pub fn rate(&self) -> f64 {
        self.packets as f64 / self.seconds.max(1e-9)
    }

    /// A recipe if the load is too uneven.
    pub fn balance_recipe(&self) -> Option<&'static str> {
        (self.balance.factor > 1.5).then_some("define finer packet sets, so that steering has more to spread")
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.modelled { "modelled" } else { "measured" };
        let workers = counted(self.workers as u64, "worker");
        writeln!(f, "{} from {}: {workers}, {kind}", self.chain.join(" → "), self.input)?;
        writeln!(f, "  {}, {:.2} million a second", counted(self.packets, "packet"), self.rate() / 1e6)?;
        let (share, commits) = (percent(self.abort_share()), counted(self.commits, "transaction"));
        writeln!(f, "  {commits}, {} rolled back ({share})", counted(self.aborts, "attempt"))?;
        let (turns, conflicts) = (counted(self.turns, "turn"), counted(self.with_itself, "conflict"));
        writeln!(f, "  {turns} taken, {conflicts} of a worker with itself")?;
        if !self.causes.is_empty() {
            writeln!(f, "\nWhy attempts were rolled back")?;
        }
        for (rank, cause) in self.causes.iter().take(8).enumerate() {
            cause.show(f, rank + 1)?;
        }
        if !self.lines.is_empty() {
            writeln!(f, "\nBy line")?;
        }
        for line in self.lines.iter().take(10) {
            writeln!(f, "  {:>8}  {:>10}  {}", percent(line.share), line.aborts, line.line)?;
        }
        writeln!(
            f,
            "\nLoad: {:.2} × the mean on the most loaded worker {:?}",
            self.balance.factor, self.balance.packets
        )?;
        for set in self.balance.heaviest.iter().take(5) {
            writeln!(f, "  {:>8}  {}", percent(set.share), set.element)?;
        }
        if self.balance.heaviest.is_empty() {
            writeln!(f, "  no packet set stands out")?;
        }
        if let Some(recipe) = self.balance_recipe() {
            writeln!(f, "  → {recipe}")?;
        }
        if !self.time.is_empty() {
            writeln!(f, "\nTime per packet")?;
        }
        for part in &self.time {
            writeln!(f, "  {:>8.1} ns  {:>8}  {}", part.ns_per_packet, percent(part.share), part.part)?;
        }
        Ok(())
    }
}

impl CauseAborts {
    fn show(&self, f: &mut fmt::Formatter<'_>, rank: usize) -> fmt::Result {
        write!(f, "  {rank}. {} ({}): ", percent(self.share), counted(self.aborts, "abort"))?;
        if self.object.is_empty() {
            writeln!(f, "{}", self.why)?;
        } else {
            let (object, kind, mine, theirs) = (&self.object, &self.kind, &self.mine, &self.theirs);
            writeln!(f, "{object} ({kind}): {mine} met {theirs} over {}", self.why)?;
        }
        match self.object.is_empty() {
            true => writeln!(f, "     {}", self.line)?,
            false => writeln!(f, "     at {}", self.line)?,
        }
        let hot: Vec<String> =
            self.hot.iter().take(4).map(|h| format!("{} ({})", h.element, percent(h.share))).collect();
        if !hot.is_empty() {
            writeln!(f, "     hottest: {}", hot.join("; "))?;
        }
        // The function's own advice comes first, because its author knows more than the structure.
        if let Some(change) = &self.change {
            writeln!(f, "     → write: {}", change.replace('\n', "\n              "))?;
        }
        if let Some(Tried { aborts, share }) = &self.tried {
            let attempts = counted(*aborts, "attempt");
            writeln!(f, "       tried: with it {attempts} rolled back ({}), of all causes", percent(*share))?;
        }
        if !self.recipe.is_empty() {
            let of_kind = if self.change.is_some() { format!("with any {}: ", self.kind) } else { String::new() };
            writeln!(f, "     → {of_kind}{}", self.recipe)?;
        }
        Ok(())
    }
}
