//! Reads one rule: conditions, other effects and verdict, in the order in which they are written. What follows a counter must
//! not be tested before it counts, so a rule is split into clauses that are evaluated one after another.

pub(super) mod amounts;
pub(super) mod dynamic_sets;
pub(super) mod edits;
pub(super) mod marks;
pub(super) mod verdict;

use self::amounts::amount;
use self::dynamic_sets::keyed;
use self::edits::{edit, is_next as is_edit};
use self::marks::{is_next as is_mark, mark};
use self::verdict::{Verdict, verdict};
use super::conditions::Fits;
use super::conditions::concatenation::{conditions, map_values, verdicts_by};
use super::conditions::fib::{Route, Ways};
use super::conditions::joined::joined;
use super::conditions::opening::{is_next as is_of_opening, opening};
use super::conditions::state::status;
use super::reader::{Scope, Words};
use super::{Kind, Parsed, Wrong, wrong};
use crate::firewall::rules::{Action, Direction, Rule};

/// Conditions, one of which must hold, and what happens then.
#[derive(Clone, Debug)]
pub(super) struct Clause {
    pub(super) fits: Vec<Fits>,
    /// The effects of its rules besides the verdict; its conditions are empty.
    pub(super) does: Rule,
    pub(super) verdict: Verdict,
    /// Whether a packet that does not match goes on to the next clause instead of the next rule, as for the elements of a map.
    pub(super) is_one_of_several: bool,
}

/// The most ways in which a rule may match, through joined fields and maps.
const WAYS_MAX: usize = 1 << 16;

/// A rule that is being read.
pub(super) struct Reading {
    pub(super) fits: Vec<Fits>,
    pub(super) does: Rule,
    pub(super) clauses: Vec<Clause>,
    /// Which of its conditions exclude each other, if any.
    pub(super) excluded: Option<String>,
}

impl Reading {
    /// Starts from the conditions so far.
    pub(super) fn of(fits: Vec<Fits>) -> Reading {
        Reading { fits, does: Rule::new(Action::Continue), clauses: Vec::new(), excluded: None }
    }

    /// Adds a note if nothing can match.
    pub(super) fn tell(&self, scope: &Scope<'_>) {
        if let Some(reason) = &self.excluded {
            scope.note(&format!("it is never used: {reason}"));
        }
    }

    /// Ends a clause, if it has any effect.
    pub(super) fn close(&mut self, verdict: Verdict) {
        if verdict != Verdict::Continue || self.does.has_effects() {
            let does = std::mem::replace(&mut self.does, Rule::new(Action::Continue));
            self.clauses.push(Clause { fits: self.fits.clone(), does, verdict, is_one_of_several: false });
        }
    }

    /// Reads the end of the rule, perhaps with a comment before it.
    fn end(&mut self, rest: &mut Words<'_>) -> Parsed<()> {
        if rest.take("comment") {
            self.does.comment = rest.word();
        }
        self.tell(rest.scope);
        rest.end()
    }

    /// Adds the clauses of a map: the conditions of each element, and its effects. A packet that the map does not contain does
    /// not match.
    pub(super) fn by_map(&mut self, values: Vec<(Vec<Fits>, Rule)>) {
        self.fits = values.iter().flat_map(|(fits, _)| fits.iter().cloned()).collect();
        let clause = |(fits, does)| Clause { fits, does, verdict: Verdict::Continue, is_one_of_several: false };
        self.clauses.extend(values.into_iter().map(clause));
    }

    /// Makes the rule one that nothing matches, for this reason.
    pub(super) fn exclude(&mut self, reason: String) {
        self.fits.iter_mut().for_each(|fits| fits.never = true);
        self.excluded.get_or_insert(reason);
    }

    /// Narrows the conditions by several alternatives, one of which must hold; `read` narrows by one of them.
    pub(super) fn narrow<W>(&mut self, ways: &[W], read: impl Fn(&mut Fits, &W) -> Parsed<()>) -> Parsed<()> {
        self.close(Verdict::Continue);
        if self.fits.len().saturating_mul(ways.len()) > WAYS_MAX {
            return wrong(format!("the rule says more than {WAYS_MAX} things"), "write several rules");
        }
        let (mut narrowed, mut objection) = (Vec::new(), None);
        for fits in &self.fits {
            for way in ways {
                let mut fits = fits.clone();
                match read(&mut fits, way) {
                    Ok(()) => narrowed.push(fits),
                    Err(error) if error.kind == Kind::Slip => return Err(error),
                    Err(error) => objection = objection.filter(|it: &Wrong| it.kind == Kind::Excluded).or(Some(error)),
                }
            }
        }
        // An alternative that cannot hold together with the other conditions is left out, as long as any remains.
        match objection.filter(|_| narrowed.is_empty()) {
            Some(Wrong { kind: Kind::Excluded, reason, .. }) => self.exclude(reason),
            Some(error) => return Err(error),
            None if narrowed.is_empty() => return wrong("a set with nothing in it", "write one value or more"),
            None => self.fits = joined(narrowed),
        }
        Ok(())
    }
}

/// Reads a rule.
pub(super) fn statement(mut rest: Words<'_>) -> Parsed<Vec<Clause>> {
    let mut reading = Reading::of(vec![Fits::all()]);
    loop {
        if let Some(verdict) = verdict(&mut rest, &mut reading.fits)? {
            reading.end(&mut rest)?;
            reading.close(verdict);
            return Ok(named(reading.clauses, &reading.does.comment));
        }
        if decides_nothing(&mut rest, &mut reading)? {
            continue;
        }
        match rest.peek() {
            "" if rest.scope.in_table || reading.does.has_effects() => {
                reading.tell(rest.scope);
                reading.close(Verdict::Continue);
                return Ok(named(reading.clauses, &reading.does.comment));
            }
            "" => return wrong("the rule has no verdict", "end with accept, drop or reject"),
            "comment" => {
                rest.word();
                reading.does.comment = rest.word();
            }
            "add" | "update" | "delete" | "meter" | "ct" if is_keyed(&rest) => {
                // What was counted before it is not held back by it.
                reading.close(Verdict::Continue);
                reading.does.keyed = keyed(&mut rest, &mut reading.fits)?;
            }
            "fib" => {
                let route = Route::read(&mut rest)?;
                if !route.is_mapped(&mut rest) {
                    ways(route.condition(&mut rest)?, &mut reading)?;
                    continue;
                }
                let verdicts = verdicts_by(&mut rest, &reading, |key| route.by_type(key))?;
                if let Some(clauses) = behind_map(verdicts, &mut rest, &mut reading)? {
                    return Ok(clauses);
                }
            }
            "ct" if rest.peek_at(1) == "status" && rest.peek_at(2) == "vmap" => {
                rest.tokens(3);
                let verdicts = verdicts_by(&mut rest, &reading, status)?;
                if let Some(clauses) = behind_map(verdicts, &mut rest, &mut reading)? {
                    return Ok(clauses);
                }
            }
            "ct" if rest.peek_at(1) == "status" => ways(status(&mut rest)?, &mut reading)?,
            "ct" if is_of_opening(&rest) => ways(opening(&mut rest)?, &mut reading)?,
            _ if is_edit(&rest) => edit(&mut rest, &mut reading)?,
            _ if is_mark(&rest) => {
                if let Some(verdicts) = mark(&mut rest, &mut reading)?
                    && reading.end(&mut rest).map(|()| true)?
                    && let Some(clauses) = behind_map(verdicts, &mut rest, &mut reading)?
                {
                    return Ok(clauses);
                }
            }
            "inbound" | "outbound" => direction(&mut rest, &mut reading)?,
            "counter" => counter(&mut rest, &mut reading)?,
            "log" => log(&mut rest, &mut reading)?,
            "limit" | "quota" => amount(&mut rest, &mut reading)?,
            "notrack" if rest.scope.in_table => {
                rest.word();
                if rest.scope.is_early {
                    reading.does.untracks = true;
                } else {
                    rest.scope.note("notrack says nothing in a chain behind connection tracking, as in nftables");
                }
            }
            "meta" if rest.peek_at(1) == "priority" && rest.peek_at(2) == "set" => priority(&mut rest, &mut reading)?,
            _ => {
                if let Some(verdicts) = conditions(&mut rest, &mut reading)?
                    && let Some(clauses) = behind_map(verdicts, &mut rest, &mut reading)?
                {
                    return Ok(clauses);
                }
            }
        }
    }
}

/// Skips a statement that changes no decision here, with a note where that may surprise; returns whether there was one.
fn decides_nothing(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<bool> {
    match rest.peek() {
        // Forwarded segments keep their size.
        "tcp" if rest.peek_at(1) == "option" && rest.peek_at(2) == "maxseg" && rest.peek_at(4) == "set" => {
            rest.word();
            rest.scope.note("sizes of segments stay: path MTU discovery works, also through nat");
            rest.tokens(4);
            let words = if rest.peek() == "rt" { 2 } else { 1 };
            rest.tokens(words);
        }
        "ct" if matches!(rest.peek_at(1), "helper" | "timeout") && rest.peek_at(2) == "set" => {
            rest.word();
            rest.scope.note(match rest.peek() {
                "helper" => "no helper reads along: what FTP and the like open besides is for the rules",
                _ => "how long connections live is said by the plan, for all of them: tcp_established_s, udp_s and others",
            });
            rest.tokens(2);
            unread(rest, reading)?;
        }
        // When a packet last came here: `last used 3s`, as nftables lists it.
        "last" => {
            rest.word();
            if rest.take("used") {
                rest.word();
            }
        }
        // Fast paths for known connections, and tracing.
        "flow" | "nftrace" => {
            rest.tokens(3);
        }
        "meta" if matches!(rest.peek_at(1), "nftrace" | "pkttype") && rest.peek_at(2) == "set" => {
            rest.tokens(4);
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Takes the clauses of a verdict map: its other effects come first, for all that matches so far. Returns all clauses if the rule ends
/// here; otherwise it goes on for elements with `continue`, as in the kernel: what a map does not hold does not match.
fn behind_map(verdicts: Vec<Clause>, rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<Option<Vec<Clause>>> {
    let is_end = matches!(rest.peek(), "" | "comment");
    if is_end {
        reading.end(rest)?;
    }
    let comment = std::mem::take(&mut reading.does.comment);
    reading.close(Verdict::Continue);
    reading.does.comment = comment;
    if !is_end {
        let continued = verdicts.iter().filter(|clause| clause.verdict == Verdict::Continue);
        let fits: Vec<Fits> = continued.flat_map(|clause| clause.fits.iter().cloned()).collect();
        reading.clauses.extend(verdicts);
        if fits.is_empty() {
            rest.scope.note("what stands behind the map is never used: no element of it says continue");
            reading.fits.iter_mut().for_each(|fits| fits.never = true);
        } else {
            reading.fits = fits;
        }
        return Ok(None);
    }
    reading.clauses.extend(verdicts);
    let mut clauses = std::mem::take(&mut reading.clauses);
    clauses.iter_mut().for_each(|clause| clause.does.comment.clone_from(&reading.does.comment));
    Ok(Some(clauses))
}

/// Gives all clauses of a rule its comment, which is `left` if it stands behind the last of them.
fn named(mut clauses: Vec<Clause>, left: &str) -> Vec<Clause> {
    let own = clauses.iter().map(|clause| &*clause.does.comment).find(|it| !it.is_empty());
    let comment = own.unwrap_or(left).to_owned();
    if !comment.is_empty() {
        clauses.iter_mut().for_each(|clause| clause.does.comment.clone_from(&comment));
    }
    clauses
}

/// Reads a condition with several alternatives; without any it never holds.
pub(super) fn ways(ways: Ways, reading: &mut Reading) -> Parsed<()> {
    if ways.is_empty() {
        reading.close(Verdict::Continue);
        reading.fits.iter_mut().for_each(|fits| fits.never = true);
        return Ok(());
    }
    reading.narrow(&ways, |fits, way| {
        match fits.rule.meet(way) {
            Some(met) => fits.rule = met,
            None => fits.never = true,
        }
        Ok(())
    })
}

fn direction(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    let direction = if rest.word() == "inbound" { Direction::Inbound } else { Direction::Outbound };
    for fits in &mut reading.fits {
        if fits.rule.direction.replace(direction).is_some() {
            return wrong("the rule names two directions", "write inbound, or outbound, or neither");
        }
    }
    Ok(())
}

/// Reads `meta priority set 1:2`, also with a map: classes of a queue further on, by which nothing is decided here.
fn priority(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    rest.word();
    rest.scope.note("priorities are not set: classes of a shaper behind the firewall go by code points and addresses");
    rest.tokens(2);
    unread(rest, reading)
}

/// Skips a value that has no meaning here, or a map of such values; a packet that the map does not contain does not match.
fn unread(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    match map_values(rest, reading, passed_over)? {
        Some(values) => reading.fits = values.into_iter().flat_map(|(fits, ())| fits).collect(),
        None => passed_over(rest)?,
    }
    Ok(())
}

/// Skips a word that has no meaning here.
fn passed_over(rest: &mut Words<'_>) -> Parsed<()> {
    rest.word();
    Ok(())
}

/// Reads `counter`, `counter packets 7 bytes 420`, `counter name "web"` or `counter name tcp dport map { 80 : "web" }`.
fn counter(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    rest.word();
    if rest.take("name") {
        let Some(values) = map_values(rest, reading, named_counter)? else {
            named_counter(rest)?;
            reading.does.counter = true;
            return Ok(());
        };
        let counts = Rule { counter: true, ..Rule::new(Action::Continue) };
        reading.by_map(values.into_iter().map(|(fits, ())| (fits, counts.clone())).collect());
        return Ok(());
    }
    reading.does.counter = true;
    while rest.take("packets") || rest.take("bytes") {
        rest.word();
    }
    Ok(())
}

/// Takes the name of a counter, which counts with its rules.
fn named_counter(rest: &mut Words<'_>) -> Parsed<()> {
    let name = rest.word();
    if !rest.scope.in_table || rest.scope.counters.contains(&name) {
        return Ok(());
    }
    wrong(
        format!("the table has no counter `{name}`"),
        format!("write counter {name} {{ }} before the chains, or counter into the rule, without a name"),
    )
}

/// Reads `log prefix "text"`; the level, the group and how much of the packet to log are ignored.
fn log(rest: &mut Words<'_>, reading: &mut Reading) -> Parsed<()> {
    rest.word();
    let mut prefix = String::new();
    loop {
        match rest.peek() {
            "prefix" => {
                rest.word();
                prefix = rest.word();
                if prefix.is_empty() {
                    return wrong("a prefix without text", "write log prefix \"refused: \"");
                }
            }
            "level" | "group" | "snaplen" | "queue-threshold" => drop(rest.tokens(2)),
            "flags" => {
                rest.tokens(2);
                while rest.take(",") || matches!(rest.peek(), "sequence" | "options") {
                    rest.word();
                }
            }
            _ => break,
        }
    }
    reading.does.log = Some(prefix);
    Ok(())
}

/// Whether a statement on a set that packets change comes next.
fn is_keyed(rest: &Words<'_>) -> bool {
    let next = rest.peek_at(1);
    match rest.peek() {
        "meter" => true,
        "ct" => next == "count",
        _ => next.starts_with('@'),
    }
}
