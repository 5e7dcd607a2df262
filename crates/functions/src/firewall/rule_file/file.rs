//! A rule file by its structure: tables with their chains and sets, or lines without a table. Names that `define` introduces
//! are replaced here; rules remain tokens until their chain is evaluated.

use std::sync::Arc;

use super::amounts::{Pool, pool};
use super::base::{Base, base, policy};
use super::blocks::{Statement, block, named_set, replace, statement, within_braces};
use super::flatten::DEPTH_MAX;
use super::keyed::with_elements;
use super::numbers::number;
use super::reader::{Scope, Sets, Words};
use super::tokens::{Kind, Place, Token};
use super::{Parsed, wrong};
use crate::firewall::keyed::Dynamic;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct File<'a> {
    /// All tokens.
    tokens: &'a [Token],
    pub(super) tables: Vec<Table<'a>>,
    /// Statements outside tables.
    pub(super) lines: Vec<Statement<'a>>,
    /// Sets outside tables.
    pub(super) sets: Sets,
    defined: Sets,
    /// How many unnamed chains enclose the current position.
    nested: usize,
}

#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) family: String,
    pub(super) name: String,
    /// Whether it says `flags dormant`: packets do not come to its chains.
    pub(super) asleep: bool,
    pub(super) chains: Vec<Chain<'a>>,
    /// Sets and maps.
    pub(super) sets: Sets,
    /// Sets that packets change.
    pub(super) dynamic: Vec<Arc<Dynamic>>,
    /// Named limits and quotas.
    pub(super) pools: Vec<Pool>,
}

#[derive(Debug)]
pub(super) struct Chain<'a> {
    pub(super) name: String,
    pub(super) at: Place,
    /// How packets come to it by a hook; `None` if only by jumps.
    pub(super) base: Option<Base>,
    pub(super) rules: Vec<Statement<'a>>,
}

impl Table<'_> {
    /// Family and name.
    pub(super) fn whole_name(&self) -> String {
        format!("{} {}", self.family, self.name)
    }
}

/// If the next rule jumps to an unnamed chain, the number of tokens before that chain's braces. Braces of sets may precede
/// them.
fn jump_to_braces(rest: &Words<'_>) -> Option<usize> {
    let (mut depth, mut jumps) = (0u32, false);
    for (at, token) in rest.words.iter().enumerate() {
        let word = if token.kind == Kind::Quoted { "" } else { &*token.text };
        match word {
            "{" if jumps => return Some(at),
            "{" => depth += 1,
            "}" if depth == 0 => return None,
            "}" => depth -= 1,
            _ if token.kind == Kind::End && depth == 0 => return None,
            _ => {}
        }
        jumps = depth == 0 && matches!(word, "jump" | "goto");
    }
    None
}

/// A unique name for the unnamed chain that begins at a place. A file that is included twice has two numbers.
fn name_at(place: Place, scope: &Scope<'_>) -> String {
    let Place { file: number, line, column } = place;
    match scope.file(place) {
        Some(file) => format!("in line {line}, column {column} of {file}, included as number {number}"),
        None => format!("in line {line}, column {column}"),
    }
}

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

const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

impl<'a> File<'a> {
    /// The tables whose chains packets come to.
    pub(super) fn awake(&self) -> impl Iterator<Item = &Table<'a>> {
        self.tables.iter().filter(|table| !table.asleep)
    }

    /// Reads all statements.
    pub(super) fn read(tokens: &'a [Token], scope: &'a Scope<'_>) -> Parsed<File<'a>> {
        let mut file = File { tokens, ..File::default() };
        let mut rest = Words { words: tokens, scope };
        loop {
            while rest.at_end() {
                rest.token();
            }
            match rest.peek() {
                "" => return Ok(file),
                "table" => file.table(&mut rest)?,
                "add" | "create"
                    if matches!(
                        rest.peek_at(1),
                        "table" | "chain" | "rule" | "set" | "map" | "element" | "limit" | "quota"
                    ) =>
                {
                    rest.word();
                    file.command(false, &mut rest)?;
                }
                "insert" if rest.peek_at(1) == "rule" => {
                    rest.word();
                    file.command(true, &mut rest)?;
                }
                "flush" | "delete" | "destroy" => file.clear(&mut rest)?,
                "define" | "redefine" | "undefine" => file.define(&mut rest)?,
                "set" => {
                    rest.word();
                    let (set, declared) = named_set(&mut rest, &file.defined)?;
                    if declared.made("", &set, &rest, tokens)?.is_some() {
                        return wrong("packets change sets of tables only", "write table inet filter { … } around it");
                    }
                    file.sets.push(set);
                }
                "}" => {
                    rest.word();
                    return wrong("a brace that nothing has opened", "remove it");
                }
                _ => {
                    let line = file.replace(statement(&mut rest), scope)?;
                    file.lines.push(line);
                }
            }
        }
    }

    /// Reads `define lan = { eth0, eth1 }` or `undefine lan`.
    fn define(&mut self, rest: &mut Words<'_>) -> Parsed<()> {
        let verb = rest.word();
        let name = rest.word();
        if verb == "undefine" {
            self.defined.retain(|(known, _)| *known != name);
            return Ok(());
        }
        if rest.word() != "=" {
            return wrong("a definition without `=`", "write define admins = { 192.0.2.0/28 }");
        }
        let value = self.replace(statement(rest), rest.scope)?;
        let is_one = match &*value {
            [first, .., last] => &*first.text == "{" && &*last.text == "}",
            [_] => true,
            [] => false,
        };
        if !is_one {
            return wrong("not one value and not a set", "write define admins = { 192.0.2.0/28 }");
        }
        self.defined.push((name, value.into_owned()));
        Ok(())
    }

    /// Replaces names by what `define` says about them.
    fn replace<'b>(&self, tokens: Statement<'b>, scope: &Scope<'_>) -> Parsed<Statement<'b>> {
        replace(&self.defined, tokens, scope)
    }

    /// Reads `table inet filter { … }`, or a table that is only declared.
    fn table(&mut self, rest: &mut Words<'a>) -> Parsed<()> {
        rest.word();
        let at = self.named_table(rest)?;
        if !rest.take("{") {
            return Ok(());
        }
        let defined = self.defined.clone();
        loop {
            match rest.peek() {
                "}" => {
                    rest.word();
                    self.defined = defined;
                    return Ok(());
                }
                "" => return wrong("a table without its end", "write } behind it"),
                "chain" => {
                    rest.word();
                    let name = rest.word();
                    let place = rest.scope.at.get();
                    if !rest.take("{") {
                        return wrong(format!("the chain `{name}` has no braces"), "write chain forward { … }");
                    }
                    self.chain(at, name, place, rest)?;
                }
                "set" | "map" => {
                    rest.word();
                    self.set(at, rest)?;
                }
                // Named counters count with their rules; the purpose of a flow table needs no rule here.
                "counter" | "flowtable" => block(rest)?,
                // A note is made where rules use it.
                "ct" if matches!(rest.peek_at(1), "helper" | "timeout") => {
                    rest.word();
                    block(rest)?;
                }
                "quota" | "limit" => {
                    let kind = rest.word();
                    self.pool(at, &kind, rest)?;
                }
                "ct" | "secmark" | "synproxy" => {
                    let what = rest.word();
                    return wrong(format!("`{what}` has no name here"), "remove it, and the rules that name it");
                }
                "comment" => drop(statement(rest)),
                "flags" => {
                    let flags = statement(rest);
                    self.tables[at].asleep |= flags.iter().any(|token| &*token.text == "dormant");
                }
                "define" | "redefine" | "undefine" => self.define(rest)?,
                _ if rest.at_end() => drop(rest.token()),
                other => {
                    let reason = format!("`{other}` is nothing that a table holds");
                    rest.word();
                    return wrong(reason, "write chain NAME { … }, set NAME { … } or map NAME { … }");
                }
            }
        }
    }

    /// Reads a set or map of a table, from its name on.
    fn set(&mut self, table: usize, rest: &mut Words<'_>) -> Parsed<()> {
        let (set, declared) = named_set(rest, &self.defined)?;
        let table = &mut self.tables[table];
        table.dynamic.extend(declared.made(&table.whole_name(), &set, rest, self.tokens)?);
        table.sets.push(set);
        Ok(())
    }

    /// Reads `limit slow { rate 5/second }` or `quota month { over 25 gbytes }`.
    fn pool(&mut self, table: usize, kind: &str, rest: &mut Words<'a>) -> Parsed<()> {
        let pool = pool(kind, rest)?;
        let pools = &mut self.tables[table].pools;
        pools.retain(|known| (&known.name, known.is_quota()) != (&pool.name, pool.is_quota()));
        pools.push(pool);
        Ok(())
    }

    /// Finds the table whose family and name come next, or creates it.
    fn named_table(&mut self, rest: &mut Words<'_>) -> Parsed<usize> {
        let family = if FAMILIES.contains(&rest.peek()) { rest.word() } else { "ip".to_owned() };
        let name = rest.word();
        if name.is_empty() || name == "{" || name == "\n" {
            return wrong("a table without a name", "write table inet filter { … }");
        }
        let found = self.tables.iter().position(|table| (&table.family, &table.name) == (&family, &name));
        Ok(found.unwrap_or_else(|| {
            self.tables.push(Table {
                asleep: false,
                family,
                name,
                chains: Vec::new(),
                sets: Vec::new(),
                dynamic: Vec::new(),
                pools: Vec::new(),
            });
            self.tables.len() - 1
        }))
    }

    fn chain_of(&mut self, table: usize, name: String, at: Place) -> &mut Chain<'a> {
        let chains = &mut self.tables[table].chains;
        let known = chains.iter().position(|chain| chain.name == name).unwrap_or_else(|| {
            chains.push(Chain { name, at, base: None, rules: Vec::new() });
            chains.len() - 1
        });
        &mut chains[known]
    }

    /// Reads the statements of a chain, up to its closing brace.
    fn chain(&mut self, table: usize, name: String, place: Place, rest: &mut Words<'a>) -> Parsed<()> {
        self.chain_of(table, name.clone(), place);
        let defined = self.defined.clone();
        loop {
            match rest.peek() {
                "}" => {
                    rest.word();
                    self.defined = defined;
                    return Ok(());
                }
                "" => return wrong(format!("the chain `{name}` has no end"), "write } behind it"),
                _ if rest.at_end() => drop(rest.token()),
                "type" => {
                    let base = base(rest, &self.tables[table].family, &self.defined)?;
                    self.chain_of(table, name.clone(), place).base = Some(base);
                }
                "policy" => {
                    rest.word();
                    let accepts = policy(rest, &self.defined)?;
                    if let Some(base) = &mut self.chain_of(table, name.clone(), place).base {
                        base.accepts = accepts;
                    }
                }
                "comment" => drop(statement(rest)),
                "define" | "redefine" | "undefine" => self.define(rest)?,
                _ => {
                    let rule = self.rule(table, rest)?;
                    self.chain_of(table, name.clone(), place).rules.push(rule);
                }
            }
        }
    }

    /// Reads a rule. A block in braces after a jump is an unnamed chain.
    fn rule(&mut self, table: usize, rest: &mut Words<'a>) -> Parsed<Statement<'a>> {
        let Some(before) = jump_to_braces(rest) else { return self.replace(statement(rest), rest.scope) };
        let before = rest.tokens(before).iter().filter(|token| token.kind != Kind::End);
        let mut rule: Vec<_> = before.cloned().collect();
        let place = rest.words.first().map_or_else(|| rest.scope.at.get(), |brace| brace.at);
        let name = name_at(place, rest.scope);
        rest.take("{");
        if self.nested >= DEPTH_MAX {
            return wrong(format!("chains stand more than {DEPTH_MAX} deep in one another"), "write chains with names");
        }
        rule.push(Token { text: name.as_str().into(), at: place, kind: Kind::Word });
        self.nested += 1;
        self.chain(table, name, place, rest)?;
        self.nested -= 1;
        rule.extend(statement(rest).iter().cloned());
        self.replace(rule.into(), rest.scope)
    }

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

    /// Reads `add` or another verb with what it adds, as in scripts.
    fn command(&mut self, is_inserted: bool, rest: &mut Words<'a>) -> Parsed<()> {
        if rest.peek() == "table" {
            return self.table(rest);
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
            "rule" => self.put_rule(table, is_inserted, rest)?,
            "element" => {
                let name = rest.word();
                let Some(more) = within_braces(self.replace(statement(rest), rest.scope)?) else {
                    return wrong("elements without braces", "write add element inet filter web { 80, 443 }");
                };
                let Table { sets, dynamic, .. } = &mut self.tables[table];
                let Some((_, set)) = sets.iter_mut().find(|(known, _)| *known == name) else {
                    return wrong(format!("there is no set `{name}`"), "add the set before its elements");
                };
                if let Some(last) = set.last().cloned() {
                    set.push(Token { text: ",".into(), ..last });
                }
                set.extend(more);
                if let Some(at) = dynamic.iter().position(|known| known.name == name) {
                    let known = dynamic.remove(at);
                    dynamic.extend(with_elements(Dynamic::clone(&known), set, rest, self.tokens)?);
                }
            }
            "limit" | "quota" => self.pool(table, &what, rest)?,
            _ => self.set(table, rest)?,
        }
        Ok(())
    }

    /// Reads `flush ruleset` or `delete table inet filter`. It removes what this file has declared so far; anything earlier is
    /// replaced as a whole anyway.
    fn clear(&mut self, rest: &mut Words<'_>) -> Parsed<()> {
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
            other => wrong(
                format!("`{verb} {other}` does nothing here"),
                "write the rules themselves; `braid apply` exchanges all of them at once",
            ),
        }
    }
}
