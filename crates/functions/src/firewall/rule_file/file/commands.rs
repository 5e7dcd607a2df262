//! What scripts add and remove outside of the braces of a table: `add rule inet filter forward accept`, `add element`, `flush set`,
//! `delete table`.

use super::syntax::{block, statement, within_braces};
use super::{File, words_of};
use crate::firewall::rule_file::conditions::numbers::number;
use crate::firewall::rule_file::reader::Words;
use crate::firewall::rule_file::{Parsed, wrong};

/// Reads `index 0`, if it comes next: the number of an existing rule.
fn index(rest: &mut Words<'_>) -> Parsed<Option<usize>> {
    if !rest.take("index") {
        return Ok(None);
    }
    match number(&rest.word()).map(usize::try_from) {
        Some(Ok(index)) => Ok(Some(index)),
        _ => wrong("no number of a rule stands behind `index`", "write index 0 for the first one"),
    }
}

impl<'a> File<'a> {
    /// Reads `insert rule` and `add rule`: before all others, after them, or at an `index`.
    fn put_rule(&mut self, table: usize, is_inserted: bool, rest: &mut Words<'a>) -> Parsed<()> {
        let name = rest.word();
        let place = rest.scope.at.get();
        if matches!(rest.peek(), "handle" | "position") {
            let instead = "write index and a number, counted from 0; or the rules in their order";
            return wrong("rules have no handles before they are loaded", instead);
        }
        let index = index(rest)?;
        let rule = self.rule(table, rest)?;
        let rules = &mut self.chain_of(table, name, place).rules;
        if index.is_some_and(|index| index >= rules.len()) {
            rest.scope.at.set(place);
            return wrong("the chain has no rule of that number", "write index 0 for its first one");
        }
        let at = match (index, is_inserted) {
            (Some(index), true) => index,
            (Some(index), false) => index + 1,
            (None, true) => 0,
            (None, false) => rules.len(),
        };
        rules.insert(at, rule);
        Ok(())
    }

    /// Reads `add`, `create` or `insert` with what it adds, as in scripts.
    pub(in crate::firewall::rule_file) fn command(&mut self, verb: &str, rest: &mut Words<'a>) -> Parsed<()> {
        if rest.peek() == "table" {
            return self.table(rest);
        }
        if matches!(rest.peek(), "counter" | "flowtable") {
            // The table comes before the name.
            let kind = rest.tokens(1);
            let table = self.named_table(rest)?;
            if &*kind[0].text == "counter" {
                self.tables[table].counters.push(rest.peek().to_owned());
            }
            return block(words_of(&kind[0].text), rest);
        }
        let what = rest.word();
        let table = self.named_table(rest)?;
        match what.as_str() {
            "chain" => {
                let name = rest.word();
                let place = rest.scope.at.get();
                if rest.take("{") {
                    return self.chain(table, name, place, rest);
                }
                self.chain_of(table, name, place);
            }
            "rule" => self.put_rule(table, verb == "insert", rest)?,
            "element" => {
                let name = rest.word();
                let Some(more) = within_braces(self.replace(statement(rest), rest.scope)?) else {
                    return wrong("elements without braces", "write add element inet filter web { 80, 443 }");
                };
                self.tables[table].sets.add(&name, more)?;
            }
            "limit" | "quota" => self.pool(table, &what, rest)?,
            what => self.tables[table].sets.declare(verb, what, &self.defined, rest)?,
        }
        Ok(())
    }

    /// Reads `flush ruleset` or `delete table inet filter`. It removes what this file has declared so far; anything earlier is
    /// replaced as a whole anyway.
    pub(in crate::firewall::rule_file) fn clear(&mut self, rest: &mut Words<'_>) -> Parsed<()> {
        let verb = rest.word();
        match rest.word().as_str() {
            "ruleset" if verb == "flush" => {
                self.tables.clear();
                drop(statement(rest));
                Ok(())
            }
            "table" => {
                let at = self.named_table(rest)?;
                match verb.as_str() {
                    "flush" => self.tables[at].chains.iter_mut().for_each(|chain| chain.rules.clear()),
                    _ => drop(self.tables.remove(at)),
                }
                Ok(())
            }
            what @ ("set" | "map") => {
                let at = self.named_table(rest)?;
                let name = rest.word();
                if self.tables[at].sets.clear(&verb, &name) || verb == "destroy" {
                    return Ok(());
                }
                wrong(
                    format!("the table has no {what} `{name}` so far"),
                    format!("write add {what} before it, or remove the line: `braid apply` exchanges all sets at once"),
                )
            }
            "chain" if verb == "flush" => {
                let at = self.named_table(rest)?;
                let name = rest.word();
                let place = rest.scope.at.get();
                self.chain_of(at, name, place).rules.clear();
                Ok(())
            }
            other => wrong(
                format!("`{verb} {other}` does nothing here"),
                "write the rules themselves; `braid apply` exchanges all of them at once",
            ),
        }
    }
}
