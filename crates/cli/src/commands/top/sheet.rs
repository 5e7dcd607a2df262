//! The tables of `braid top`, computed from two samples of a run's figures, as text or for the screen.

use braid_control::live::Stats;
use braid_control::live::stats::{Function, WorkerStats};
use braid_control::report::grouped;

/// The available tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum View {
    /// The functions of the chain, in order.
    Functions,
    /// The workers.
    Workers,
    /// The ports.
    Ports,
    /// Drops by function and reason.
    Drops,
    /// Why attempts are rolled back.
    Aborts,
    /// State objects.
    Objects,
    /// Packet sets with the most packets.
    Sets,
    /// The drops of one function.
    Function(String),
}

impl View {
    /// All tables that can be selected by number, with their titles.
    pub const ALL: [(View, &'static str); 7] = [
        (View::Functions, "functions"),
        (View::Workers, "workers"),
        (View::Ports, "ports"),
        (View::Drops, "drops"),
        (View::Aborts, "aborts"),
        (View::Objects, "objects"),
        (View::Sets, "top sets"),
    ];

    /// Its title.
    pub fn title(&self) -> String {
        match self {
            View::Function(name) => format!("function {name}"),
            other => View::ALL.iter().find(|(view, _)| view == other).map_or("", |(_, title)| title).to_owned(),
        }
    }
}

/// A cell of a table: its text and its sort key.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The displayed text.
    pub text: String,
    /// The sort key; cells without one are sorted by text.
    pub number: Option<f64>,
}

fn text(text: impl Into<String>) -> Cell {
    Cell { text: text.into(), number: None }
}

fn count(count: u64) -> Cell {
    Cell { text: grouped(count), number: Some(count as f64) }
}

fn rate(rate: f64) -> Cell {
    Cell { text: in_words(rate), number: Some(rate) }
}

fn percent(part: Option<f64>) -> Cell {
    Cell { text: part.map_or("-".into(), |part| format!("{:.1} %", 100.0 * part)), number: part }
}

/// Formats a number with a unit prefix: `1.25 M`.
pub fn in_words(rate: f64) -> String {
    match rate {
        rate if rate >= 1e9 => format!("{:.2} G", rate / 1e9),
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.0}"),
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// Column headings.
    pub head: Vec<&'static str>,
    /// Rows.
    pub rows: Vec<Vec<Cell>>,
}

impl Sheet {
    /// Sorts by a column: largest numbers first, texts in alphabetical order.
    pub fn sort(&mut self, column: usize) {
        let key = |row: &Vec<Cell>| row.get(column).cloned().unwrap_or(text(""));
        self.rows.sort_by(|a, b| match (key(a), key(b)) {
            (Cell { number: Some(a), .. }, Cell { number: Some(b), .. }) => b.total_cmp(&a),
            (a, b) => a.text.cmp(&b.text),
        });
    }

    /// The width of each column.
    pub fn widths(&self) -> Vec<usize> {
        let column = |(at, head): (usize, &&str)| {
            let cells = self.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.text.chars().count());
            cells.chain([head.len()]).max().unwrap_or(0)
        };
        self.head.iter().enumerate().map(column).collect()
    }

    /// Formats the table as lines of text.
    pub fn lines(&self) -> Vec<String> {
        let widths = self.widths();
        let line = |cells: Vec<(&str, bool)>| {
            let placed = cells.iter().zip(&widths).map(|((text, right), width)| match right {
                true => format!("{text:>width$}"),
                false => format!("{text:<width$}"),
            });
            placed.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        let numbers: Vec<bool> = (0..self.head.len())
            .map(|at| self.rows.first().and_then(|row| row.get(at)).is_some_and(|cell| cell.number.is_some()))
            .collect();
        let head = line(self.head.iter().copied().zip(numbers).collect());
        let row = |row: &Vec<Cell>| line(row.iter().map(|cell| (cell.text.as_str(), cell.number.is_some())).collect());
        std::iter::once(head).chain(self.rows.iter().map(row)).collect()
    }
}

/// Two samples of a run; rates are computed from their differences.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The earlier sample.
    pub before: Stats,
    /// The later sample.
    pub now: Stats,
}

impl Pair {
    fn seconds(&self) -> f64 {
        (self.now.seconds - self.before.seconds).max(1e-3)
    }

    fn rate(&self, of: impl Fn(&Stats) -> u64) -> f64 {
        of(&self.now).saturating_sub(of(&self.before)) as f64 / self.seconds()
    }

    /// The lines above every table.
    pub fn summary(&self) -> Vec<String> {
        let now = &self.now;
        let names: Vec<&str> = now.functions.iter().map(|function| function.name.as_str()).collect();
        let state = if now.running { "running" } else { "ended" };
        let missing = if now.missing == 0 { String::new() } else { format!("   MISSING {} PACKETS", now.missing) };
        vec![
            format!("braid {}   {}   {state} for {:.0} s", now.version, names.join(" → "), now.seconds),
            format!(
                "in {}/s ({} bit/s)   out {}/s ({} bit/s)   lost {}/s{missing}",
                in_words(self.rate(|stats| stats.packets_in)),
                in_words(8.0 * self.rate(|stats| stats.bytes_in)),
                in_words(self.rate(|stats| stats.packets_out)),
                in_words(8.0 * self.rate(|stats| stats.bytes_out)),
                in_words(self.rate(Stats::lost)),
            ),
            format!(
                "sets live {} (+{}/s -{}/s)   transactions {}/s   rolled back {}/s",
                grouped(now.sets.live),
                in_words(self.rate(|stats| stats.sets.created)),
                in_words(self.rate(|stats| stats.sets.expired)),
                in_words(self.rate(|stats| stats.transactions.commits)),
                in_words(self.rate(|stats| stats.transactions.aborts)),
            ),
        ]
    }

    /// Computes a table.
    pub fn sheet(&self, view: &View) -> Sheet {
        match view {
            View::Functions => self.functions(),
            View::Workers => self.workers(),
            View::Ports => self.ports(),
            View::Drops => self.drops(|_| true),
            View::Function(name) => self.drops(|function| function == name),
            View::Aborts => self.aborts(),
            View::Objects => self.objects(),
            View::Sets => self.sets(),
        }
    }

    fn functions(&self) -> Sheet {
        let row = |(at, now): (usize, &Function)| {
            let before = self.before.functions.get(at).cloned().unwrap_or_default();
            let rate_of = |now: u64, before: u64| rate(now.saturating_sub(before) as f64 / self.seconds());
            let ns = now.ns_per_packet;
            vec![
                text(now.name.clone()),
                text(now.kind.clone()),
                rate_of(now.packets, before.packets),
                rate_of(now.lost(), before.lost()),
                Cell { text: ns.map_or("-".into(), |ns| format!("{ns:.1}")), number: ns.or(Some(0.0)) },
                count(now.packets),
                count(now.dropped_total()),
            ]
        };
        let rows = self.now.functions.iter().enumerate().map(row).collect();
        Sheet { head: vec!["function", "kind", "packets/s", "lost/s", "ns/packet", "packets", "dropped"], rows }
    }

    fn workers(&self) -> Sheet {
        let row = |(at, now): (usize, &WorkerStats)| {
            let before = self.before.workers.get(at).cloned().unwrap_or_default();
            let rate_of = |now: u64, before: u64| rate(now.saturating_sub(before) as f64 / self.seconds());
            let per_batch = (now.packets - before.packets.min(now.packets)) as f64
                / now.batches.saturating_sub(before.batches).max(1) as f64;
            vec![
                Cell { text: now.worker.to_string(), number: Some(-(now.worker as f64)) },
                text(now.state.clone()),
                percent(load(&before, now)),
                rate_of(now.packets, before.packets),
                rate_of(now.dropped, before.dropped),
                Cell { text: format!("{per_batch:.1}"), number: Some(per_batch) },
                count(now.sets_live),
                percent(Some(now.sets_live as f64 / now.sets_room.max(1) as f64)),
                rate_of(now.aborts, before.aborts),
                count(now.packets),
            ]
        };
        let rows = self.now.workers.iter().enumerate().map(row).collect();
        let head = vec![
            "worker",
            "state",
            "load",
            "packets/s",
            "drops/s",
            "per batch",
            "sets",
            "of room",
            "rolled back/s",
            "packets",
        ];
        Sheet { head, rows }
    }

    fn ports(&self) -> Sheet {
        let row = |(at, now): (usize, &braid_control::live::stats::PortStats)| {
            let before = self.before.ports.get(at).cloned().unwrap_or_default();
            let rate_of = |now: u64, before: u64| rate(now.saturating_sub(before) as f64 / self.seconds());
            vec![
                Cell { text: now.port.to_string(), number: Some(-(now.port as f64)) },
                rate_of(now.packets_in, before.packets_in),
                rate_of(now.bytes_in * 8, before.bytes_in * 8),
                rate_of(now.packets_out, before.packets_out),
                rate_of(now.bytes_out * 8, before.bytes_out * 8),
                count(now.packets_in),
                count(now.packets_out),
                count(now.missed),
                count(now.unsent),
            ]
        };
        let rows = self.now.ports.iter().enumerate().map(row).collect();
        let head =
            vec!["port", "in/s", "in bit/s", "out/s", "out bit/s", "packets in", "packets out", "missed", "unsent"];
        Sheet { head, rows }
    }

    fn drops(&self, wanted: impl Fn(&str) -> bool) -> Sheet {
        let all = |stats: &Stats| {
            let of_functions = stats.functions.iter().map(|function| (function.name.clone(), function.dropped.clone()));
            let elsewhere = stats.dropped_elsewhere.iter().map(|(place, drops)| (place.clone(), drops.clone()));
            let places: Vec<_> = of_functions.chain(elsewhere).collect();
            places
        };
        let before = all(&self.before);
        let known = |place: &str, reason: &str| {
            let place = before.iter().find(|(known, _)| known == place);
            place.and_then(|(_, drops)| drops.get(reason)).copied().unwrap_or(0)
        };
        let total = self.now.dropped_total().max(1) as f64;
        let mut rows = Vec::new();
        for (place, drops) in all(&self.now).into_iter().filter(|(place, _)| wanted(place)) {
            for (reason, &dropped) in &drops {
                rows.push(vec![
                    text(place.clone()),
                    text(reason.clone()),
                    rate((dropped - known(&place, reason).min(dropped)) as f64 / self.seconds()),
                    count(dropped),
                    percent(Some(dropped as f64 / total)),
                ]);
            }
        }
        Sheet { head: vec!["where", "reason", "packets/s", "packets", "of all drops"], rows }
    }

    fn aborts(&self) -> Sheet {
        let row = |abort: &braid_control::live::stats::Abort| {
            vec![
                count(abort.count),
                text(abort.object.clone()),
                text(abort.operations.clone()),
                text(abort.why.clone()),
                text(abort.line.clone()),
            ]
        };
        let rows = self.now.aborts.iter().map(row).collect();
        Sheet { head: vec!["rolled back", "object", "operations", "why", "line"], rows }
    }

    fn objects(&self) -> Sheet {
        let row = |object: &braid_control::live::stats::Object| {
            vec![
                text(object.name.clone()),
                text(object.kind.clone()),
                count(object.len as u64),
                count(object.capacity as u64),
                percent(object.fullness()),
                count(object.bytes as u64),
            ]
        };
        let rows = self.now.objects.iter().map(row).collect();
        Sheet { head: vec!["object", "kind", "elements", "capacity", "full", "bytes"], rows }
    }

    fn sets(&self) -> Sheet {
        let row = |set: &braid_control::live::stats::TopSet| vec![text(set.key.clone()), percent(Some(set.share))];
        Sheet { head: vec!["packet set", "of packets"], rows: self.now.top_sets.iter().map(row).collect() }
    }
}

/// The share of time that a worker spent on packets.
fn load(before: &WorkerStats, now: &WorkerStats) -> Option<f64> {
    let (busy, idle) = (now.busy_seconds?, now.idle_seconds?);
    let busy = busy - before.busy_seconds.unwrap_or(0.0);
    let idle = idle - before.idle_seconds.unwrap_or(0.0);
    (busy + idle > 0.0).then(|| busy / (busy + idle))
}
