//! What a function has to tell when a run ends: sums, and findings about somebody.
//!
//! Findings are for reading. They are made from committed state after the last packet, so they are as certain as the state
//! is: a certificate that compares all state compares them too. While a run goes on they are told a [piece](Findings::pieces) at a time,
//! so that no log, however long, keeps a worker from its packets.

use std::cmp::Ordering;
use std::collections::BTreeMap;

/// One finding: what was found, about whom, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Its kind in lower case with `_`, as `scanner`.
    pub kind: &'static str,
    /// Whom it concerns: an address, a key.
    pub subject: String,
    /// What speaks for it.
    pub detail: String,
    /// The number that the detail is about, for metrics; none if it is about none.
    pub number: Option<u64>,
}

/// All that one function found, or a piece of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings {
    sums: BTreeMap<String, u64>,
    list: Vec<Finding>,
    /// Entries of each log that this piece is about.
    piece: (u32, u32),
    /// Whether logs are told at all.
    has_logs: bool,
    /// Whether what is told now belongs to this piece: what stands in no log belongs to the first.
    tells: bool,
    /// Where the next piece begins.
    next: Option<u32>,
}

impl Default for Findings {
    fn default() -> Findings {
        Findings::piece(0, u32::MAX)
    }
}

impl Findings {
    /// For those of so many entries of each log, from one on; the first piece has all besides.
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

    /// The same without logs: what little metrics ask for every few seconds.
    pub fn figures(from: u32, entries: u32) -> Findings {
        Findings { has_logs: false, ..Findings::piece(from, entries) }
    }

    /// Whether metrics ask, of which each figure has a name of its own, and not somebody who reads.
    pub fn is_for_metrics(&self) -> bool {
        !self.has_logs
    }

    /// Tells of a log: `walk` is given where to begin and how many entries to look at, and returns where to go on, as
    /// [`Map::for_each`](braid_state::Map::for_each) does.
    pub fn pieces<E>(&mut self, walk: impl FnOnce(&mut Findings, u32, u32) -> Result<Option<u32>, E>) -> Result<(), E> {
        if !self.has_logs {
            return Ok(());
        }
        self.walk(walk)
    }

    /// Tells of so many things of the plan, such as rules, by their numbers: a piece at a time as a log, but to metrics too.
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

    /// Where the next piece begins; none if this was the last one.
    pub fn next(&self) -> Option<u32> {
        self.next
    }

    /// Adds another piece.
    pub fn append(&mut self, mut piece: Findings) {
        piece.sums.into_iter().for_each(|(name, more)| *self.sums.entry(name).or_default() += more);
        self.list.append(&mut piece.list);
    }

    /// Adds to a sum, which begins at 0.
    pub fn add(&mut self, name: impl Into<String>, more: u64) {
        if self.tells {
            *self.sums.entry(name.into()).or_default() += more;
        }
    }

    /// Adds a finding.
    pub fn find(&mut self, kind: &'static str, subject: impl ToString, detail: impl Into<String>) {
        self.note(kind, subject, detail, None);
    }

    /// Adds a finding about a number, which metrics have as well: the subject is one of the plan (a rule, a backend), not of the packets.
    pub fn count(&mut self, kind: &'static str, subject: impl ToString, number: u64, detail: impl Into<String>) {
        self.note(kind, subject, detail, Some(number));
    }

    fn note(&mut self, kind: &'static str, subject: impl ToString, detail: impl Into<String>, number: Option<u64>) {
        if self.tells {
            self.list.push(Finding { kind, subject: subject.to_string(), detail: detail.into(), number });
        }
    }

    /// Sums by name.
    pub fn sums(&self) -> &BTreeMap<String, u64> {
        &self.sums
    }

    /// Findings, by kind and subject once [sorted](Findings::sort).
    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.sums.is_empty() && self.list.is_empty()
    }

    /// Puts findings in an order that does not depend on where state lies; the same finding stands once. Numbers in a subject count as
    /// numbers: `line 5` before `line 10`.
    pub fn sort(&mut self) {
        let by_kind = |one: &Finding, other: &Finding| {
            one.kind.cmp(other.kind).then_with(|| natural(&one.subject, &other.subject)).then_with(|| one.cmp(other))
        };
        self.list.sort_by(by_kind);
        self.list.dedup();
    }
}

/// The order of two texts in which a number is before a greater one, however many digits they have.
fn natural(one: &str, other: &str) -> Ordering {
    parts(one).cmp(parts(other))
}

/// The numbers of a text and what stands between them. Of a number its length without leading zeros comes first, so that a longer one is greater.
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

    /// A function with two logs and a sum: what it tells in pieces of so many entries, together.
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
