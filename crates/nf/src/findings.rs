//! What a function reports at the end of a run: sums, and findings about individual subjects.
//!
//! Findings are meant for human readers. They are derived from committed state after the last packet and are therefore
//! as reliable as that state: a certificate that compares all state covers them too. During a run they are collected
//! one [piece](Findings::pieces) at a time, so that even a long log does not keep a worker from its packets.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One finding: what was found, about which subject, and the evidence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Kind of the finding in lower case with `_`, for example `scanner`.
    pub kind: &'static str,
    /// Subject of the finding: an address, a key.
    pub subject: String,
    /// Evidence for the finding.
    pub detail: String,
    /// The number that the detail reports, for metrics; `None` if there is none.
    pub number: Option<u64>,
}

/// All findings of one function, or one piece of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    sums: BTreeMap<String, u64>,
    list: Vec<Finding>,
    /// First entry and number of entries of each log that this piece covers.
    piece: (u32, u32),
    /// Whether logs are included.
    has_logs: bool,
    /// Whether additions are accepted at this point; everything outside of logs belongs to the first piece only.
    tells: bool,
    /// First log entry of the next piece.
    next: Option<u32>,
}

impl Default for Findings {
    fn default() -> Findings {
        Findings::piece(0, u32::MAX)
    }
}

impl Findings {
    /// Creates a piece that covers `entries` entries of each log, starting at entry `from`. The first piece also
    /// contains everything that is in no log.
    pub fn piece(from: u32, entries: u32) -> Findings {
        Findings {
            sums: BTreeMap::new(),
            list: Vec::new(),
            piece: (from, entries),
            has_logs: true,
            tells: from == 0,
            next: None,
        }
    }

    /// Creates a piece without logs, for metrics, which are collected every few seconds.
    pub fn figures(from: u32, entries: u32) -> Findings {
        Findings { has_logs: false, ..Findings::piece(from, entries) }
    }

    /// Returns whether this is for metrics, in which every figure needs a unique name, rather than for a reader.
    pub fn is_for_metrics(&self) -> bool {
        !self.has_logs
    }

    /// Reports a log. `walk` gets the first entry and the number of entries to visit, and returns where to continue, as
    /// [`Map::for_each`](braid_state::Map::for_each) does.
    pub fn pieces<E>(&mut self, walk: impl FnOnce(&mut Findings, u32, u32) -> Result<Option<u32>, E>) -> Result<(), E> {
        if !self.has_logs {
            return Ok(());
        }
        self.walk(walk)
    }

    /// Reports `many` numbered items of the plan, such as rules. Like a log they are split into pieces, but metrics
    /// include them.
    pub fn each<E>(
        &mut self,
        many: usize,
        mut tell: impl FnMut(&mut Findings, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.walk(|findings, from, entries| {
            let end = from.saturating_add(entries).min(many as u32);
            (from..end).try_for_each(|number| tell(findings, number as usize))?;
            Ok((end < many as u32).then_some(end))
        })
    }

    fn walk<E>(&mut self, walk: impl FnOnce(&mut Findings, u32, u32) -> Result<Option<u32>, E>) -> Result<(), E> {
        let (from, entries) = self.piece;
        let told = std::mem::replace(&mut self.tells, true);
        let next = walk(self, from, entries);
        self.tells = told;
        self.next = self.next.max(next?);
        Ok(())
    }

    /// Returns where the next piece begins; `None` if this is the last one.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Appends another piece.
    pub fn append(&mut self, mut piece: Findings) {
        piece.sums.into_iter().for_each(|(name, more)| *self.sums.entry(name).or_default() += more);
        self.list.append(&mut piece.list);
    }

    /// Adds to a sum, which starts at 0.
    pub fn add(&mut self, name: impl Into<String>, more: u64) {
        if self.tells {
            *self.sums.entry(name.into()).or_default() += more;
        }
    }

    /// Adds a finding.
    pub fn find(&mut self, kind: &'static str, subject: impl ToString, detail: impl Into<String>) {
        self.note(kind, subject, detail, None);
    }

    /// Adds a finding with a number, which metrics also export. Its subject must come from the plan (a rule, a
    /// backend), not from packets.
    pub fn count(&mut self, kind: &'static str, subject: impl ToString, number: u64, detail: impl Into<String>) {
        self.note(kind, subject, detail, Some(number));
    }

    fn note(&mut self, kind: &'static str, subject: impl ToString, detail: impl Into<String>, number: Option<u64>) {
        if self.tells {
            self.list.push(Finding { kind, subject: subject.to_string(), detail: detail.into(), number });
        }
    }

    /// Returns the sums by name.
    pub fn sums(&self) -> &BTreeMap<String, u64> {
        &self.sums
    }

    /// Returns the findings, ordered by kind and subject once [sorted](Findings::sort).
    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// Returns whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.list.is_empty()
    }

    /// Sorts the findings into an order that does not depend on where state is stored, and removes duplicates. Numbers
    /// within subjects are compared by value: `line 5` comes before `line 10`.
    pub fn sort(&mut self) {
        let by_kind = |one: &Finding, other: &Finding| {
            one.kind.cmp(other.kind).then_with(|| natural(&one.subject, &other.subject)).then_with(|| one.cmp(other))
        };
        self.list.sort_by(by_kind);
        self.list.dedup();
    }
}

/// Compares two texts, treating the numbers in them as numbers of any length.
fn natural(one: &str, other: &str) -> Ordering {
    parts(one).cmp(parts(other))
}

/// Splits a text into numbers and the text between them. A number compares first by its length without leading zeros,
/// then by its digits.
fn parts(text: &str) -> impl Iterator<Item = (bool, usize, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let is_digit = rest.chars().next()?.is_ascii_digit();
        let end = rest.find(|it: char| it.is_ascii_digit() != is_digit).unwrap_or(rest.len());
        let (part, behind) = rest.split_at(end);
        rest = behind;
        let digits = part.trim_start_matches('0');
        Some(if is_digit { (false, digits.len(), digits) } else { (true, 0, part) })
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Returns the findings of a function with two logs and a sum, collected in pieces of `entries` entries, and the
    /// number of pieces.
    fn told(entries: u32) -> (Findings, usize) {
        let logs: [&[u32]; 2] = [&[1, 2, 3, 4, 5], &[6, 7]];
        let (mut all, mut from, mut pieces) = (Findings::default(), Some(0), 0);
        while let Some(at) = from {
            let mut piece = Findings::piece(at, entries);
            for log in logs {
                let told = piece.pieces(|piece, from, entries| {
                    let end = from.saturating_add(entries).min(log.len() as u32);
                    for entry in log.iter().take(end as usize).skip(from as usize) {
                        piece.find("entry", entry, "");
                        piece.add("entries", 1);
                    }
                    Ok::<_, Infallible>((end < log.len() as u32).then_some(end))
                });
                assert!(told.is_ok());
            }
            piece.add("packets", 9);
            piece.count("rule", "line 1", 9, "decided 9 times");
            (from, pieces) = (piece.next(), pieces + 1);
            all.append(piece);
        }
        all.sort();
        (all, pieces)
    }

    #[test]
    fn logs_that_are_told_in_pieces_are_told_whole_and_all_else_once() {
        let (whole, pieces) = told(u32::MAX);
        assert_eq!((whole.list().len(), &whole.sums()["packets"], &whole.sums()["entries"], pieces), (8, &9, &7, 1));
        for (entries, expected) in [(2, 3), (3, 2), (4, 2), (5, 1)] {
            assert_eq!(told(entries), (whole.clone(), expected), "pieces of {entries}");
        }
    }

    #[test]
    fn numbers_in_subjects_stand_in_their_order() {
        let sorted = [
            "10.0.0.9",
            "10.0.0.10",
            "10.0.1.1",
            "line 5 (web)",
            "line 5 of a.nft",
            "line 10",
            "line 10 (007)",
            "line 10 (7)",
            "line 99999999999999999999",
            "line 100000000000000000000",
            "lines",
        ];
        let mut found = Findings::default();
        sorted.iter().rev().chain(&sorted[..2]).for_each(|subject| found.find("rule", subject, ""));
        found.sort();
        let subjects: Vec<_> = found.list().iter().map(|finding| &*finding.subject).collect();
        assert_eq!(subjects, sorted);
    }

    #[test]
    fn figures_are_things_of_the_plan_piece_by_piece_and_no_logs() {
        let (mut numbers, mut from, mut pieces) = (Vec::new(), Some(0), 0);
        while let Some(at) = from {
            let mut piece = Findings::figures(at, 3);
            let log = piece.pieces(|piece, from, _| {
                piece.find("entry", from, "");
                Ok::<_, Infallible>(Some(from + 1))
            });
            let rules = piece.each(7, |piece, number| {
                piece.count("rule", number, 1, "");
                Ok::<_, Infallible>(())
            });
            assert!(log.is_ok() && rules.is_ok());
            (from, pieces) = (piece.next(), pieces + 1);
            numbers.extend(piece.list().iter().map(|one| one.subject.clone()));
        }
        assert_eq!((numbers.join(" "), pieces), ("0 1 2 3 4 5 6".to_owned(), 3));
    }

    #[test]
    fn sums_add_up_and_findings_stand_once_in_order() {
        let mut findings = Findings::default();
        assert!(findings.is_empty());
        findings.add("flows", 2);
        findings.add("flows", 3);
        for subject in ["10.0.0.2", "10.0.0.1", "10.0.0.2"] {
            findings.find("scanner", subject, "5 failures");
        }
        findings.sort();
        assert_eq!(findings.sums()["flows"], 5);
        assert_eq!(findings.list().iter().map(|f| f.subject.as_str()).collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.2"]);
    }
}
