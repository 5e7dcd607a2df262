//! What rules say of connections that are known. Those pass or are dropped as they are, so a rule about them has to say just that, or
//! none of them may come to it: a rule before it has settled what becomes of all.

use super::{DEPTH_MAX, Flat, Read};
use crate::firewall::rule_file::conditions::Fits;
use crate::firewall::rule_file::state::{ESTABLISHED, INVALID, NEW, RELATED};
use crate::firewall::rule_file::statement::Clause;
use crate::firewall::rule_file::verdict::Verdict;
use crate::firewall::rule_file::{Note, Parsed, wrong};
use crate::firewall::rules::{Action, Rule};

impl Flat<'_> {
    /// Known states that a clause settles: it decides about all packets of them, whatever else they are.
    pub(super) fn settled_by(&self, one: &Read, clause: &Clause, fits: &Fits, within: &Rule) -> u8 {
        let decides = matches!(clause.verdict, Verdict::Accept | Verdict::Drop | Verdict::Reject(_));
        let is_limited = one.clauses.iter().any(|clause| clause.does.limit.is_some());
        let is_all = within.is_for_the_same(&self.all) && fits.rule.is_for_the_same(&Rule::new(Action::Continue));
        let is_settled = decides && is_all && !is_limited && !self.leaves && !fits.never && !fits.one_direction;
        if is_settled { fits.states & !NEW } else { 0 }
    }

    /// Behind a clause.
    pub(super) fn goes_on(&mut self, clause: &Clause, fits: &Fits, depth: usize, settled: u8) {
        self.settled |= settled;
        let leaves = matches!(clause.verdict, Verdict::Return | Verdict::Goto(_));
        self.leaves |= leaves && depth > 1 && fits.states & !NEW & !self.settled != 0;
    }

    /// Says once of a chain that packets of known connections are not dropped by a clause, as they would be in the kernel.
    pub(super) fn note_known(&mut self, one: &Read, clause: &Clause, fits: &Fits) {
        let drops = matches!(clause.verdict, Verdict::Drop | Verdict::Reject(_));
        let would = fits.states & ESTABLISHED & !self.settled != 0;
        if !drops || !would || self.is_noted || !self.scope.in_table {
            return;
        }
        self.is_noted = true;
        let text = "drops what would open a connection, and no answers to what was let through, as nftables does before \
                    established,related accept: write such rules for both directions, ip saddr and ip daddr";
        self.notes.push(Note { line: one.at.line, file: self.scope.file(one.at), text: text.to_owned() });
    }

    /// A clause about packets of connections that are known: it has to say what becomes of them anyway.
    pub(super) fn known(&mut self, one: &Read, clause: &Clause, states: u8, never: bool) -> Parsed<()> {
        if never || states == 0 {
            return Ok(());
        }
        let all = |of: u8| states & !of == 0;
        let is_so = match &clause.verdict {
            Verdict::Accept => all(ESTABLISHED | RELATED),
            Verdict::Drop | Verdict::Reject(_) => all(INVALID),
            Verdict::Continue | Verdict::Return => true,
            Verdict::Jump(name) | Verdict::Goto(name) => {
                let accepts = self.may(name, &|verdict| *verdict == Verdict::Accept, 1)?;
                let drops = self.may(name, &|verdict| matches!(verdict, Verdict::Drop | Verdict::Reject(_)), 1)?;
                (!drops || all(INVALID)) && (!accepts || all(ESTABLISHED | RELATED))
            }
        };
        if !is_so {
            self.scope.at.set(one.at);
            return wrong(
                "the rule decides about connections that are known, which pass or are dropped as they are",
                "write ct state new, or leave it out: rules are for packets that would open a connection, the others follow it",
            );
        }
        let (line, file) = (one.at.line, self.scope.file(one.at));
        if clause.does.has_effects() && !self.notes.iter().any(|note| note.line == line && note.file == file) {
            let text = "counts, limits and logs nothing: packets of known connections are not asked about".to_owned();
            self.notes.push(Note { line, file, text });
        }
        Ok(())
    }

    /// Whether a chain may come to such a verdict.
    fn may(&mut self, name: &str, such: &dyn Fn(&Verdict) -> bool, depth: usize) -> Parsed<bool> {
        let chain = self.find(name)?;
        if depth > DEPTH_MAX {
            return Ok(true);
        }
        self.read(chain)?;
        let verdicts: Vec<Verdict> = self
            .read
            .get(chain.name.as_str())
            .into_iter()
            .flatten()
            .flat_map(|one| &one.clauses)
            .map(|clause| clause.verdict.clone())
            .collect();
        for verdict in verdicts {
            let is_such = match &verdict {
                Verdict::Jump(name) | Verdict::Goto(name) => self.may(name, such, depth + 1)?,
                verdict => such(verdict),
            };
            if is_such {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
