//! A rule file by its structure: tables with their chains and sets, or lines without a table. Names that `define` introduces
//! are replaced here; rules remain tokens until their chain is evaluated.

pub(super) mod commands;
pub(super) mod initial_elements;
pub(super) mod overlaps;
pub(super) mod set_declarations;
pub(super) mod source;
pub(super) mod syntax;
pub(super) mod tokens;
pub(super) mod types;

use std::sync::Arc;

use self::set_declarations::Declarations;
use self::syntax::{Statement, block, replace, statement};
use self::tokens::{Kind, Place, Token};
use super::flatten::DEPTH_MAX;
use super::flatten::base::{Base, base, policy};
use super::reader::{Scope, Sets, Words};
use super::statement::amounts::{Pool, pool};
use super::unsupported::no_object;
use super::{Parsed, wrong};
use crate::firewall::effects::dynamic_sets::Dynamic;

/// The contents of a file.
#[derive(Debug, Default)]
pub(super) struct File<'a> {
    pub(super) tables: Vec<Table<'a>>,
    /// Statements outside tables.
    pub(super) lines: Vec<Statement<'a>>,
    /// Sets outside tables.
    pub(super) sets: Declarations,
    pub(super) defined: Sets,
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
    pub(super) sets: Declarations,
    /// Sets that packets change, known at the end of the file.
    pub(super) dynamic: Vec<Arc<Dynamic>>,
    /// Named limits and quotas.
    pub(super) pools: Vec<Pool>,
    /// The names of counters.
    pub(super) counters: Vec<String>,
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

/// Skips the declaration of an object that has no effect, from its kind on: the purpose of a flow table needs no rule here.
fn object(rest: &mut Words<'_>) -> Parsed<()> {
    let kind = rest.word();
    block(words_of(&kind), rest)
}

/// The words with which lines of such an object begin.
pub(super) fn words_of(kind: &str) -> &'static [&'static str] {
    match kind {
        "counter" => &["packets", "bytes"],
        "flowtable" => &["hook", "devices", "counter", "flags"],
        "helper" => &["type", "l3proto"],
        _ => &["protocol", "l3proto", "policy"],
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
        let mut file = File::default();
        let mut rest = Words { words: tokens, scope };
        loop {
            while rest.at_end() {
                rest.token();
            }
            match rest.peek() {
                "" => {
                    for table in &mut file.tables {
                        table.dynamic = table.sets.dynamic(&table.whole_name(), &rest, tokens)?;
                    }
                    return Ok(file);
                }
                "table" => file.table(&mut rest)?,
                "add" | "create"
                    if matches!(
                        rest.peek_at(1),
                        "table"
                            | "chain"
                            | "rule"
                            | "set"
                            | "map"
                            | "element"
                            | "limit"
                            | "quota"
                            | "counter"
                            | "flowtable"
                    ) =>
                {
                    let verb = rest.word();
                    file.command(&verb, &mut rest)?;
                }
                // In nftables `add` may be left out.
                "chain" | "rule" | "map" | "element" | "flowtable" if rest.peek_at(2) != "{" => {
                    file.command("add", &mut rest)?;
                }
                "list" | "reset" => {
                    rest.word();
                    scope.note("nothing is listed or reset here: `braid stats` says what rules have counted");
                    drop(statement(&mut rest));
                }
                "insert" if rest.peek_at(1) == "rule" => {
                    let verb = rest.word();
                    file.command(&verb, &mut rest)?;
                }
                "flush" | "delete" | "destroy" => file.clear(&mut rest)?,
                "define" | "redefine" | "undefine" => file.define(&mut rest)?,
                "set" => {
                    rest.word();
                    file.sets.declare("add", "set", &file.defined, &mut rest)?;
                    if !file.sets.dynamic("", &rest, tokens)?.is_empty() {
                        return wrong("packets change sets of tables only", "write table inet filter { … } around it");
                    }
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
        let place = rest.scope.at.get();
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
        // As in nftables, one in a block does not hide one around it either.
        if let Some((_, known)) = self.defined.iter().find(|(known, _)| verb == "define" && *known == name) {
            let first = known.first().map_or(place, |token| token.at);
            let file = rest.scope.file(first).map_or_else(String::new, |file| format!(" of {file}"));
            rest.scope.at.set(place);
            return wrong(
                format!("`{name}` has its value from line {}{file}", first.line),
                format!("write redefine {name} = …, or another name"),
            );
        }
        self.defined.push((name, value.into_owned()));
        Ok(())
    }

    /// Replaces names by what `define` says about them.
    pub(super) fn replace<'b>(&self, tokens: Statement<'b>, scope: &Scope<'_>) -> Parsed<Statement<'b>> {
        replace(&self.defined, tokens, scope)
    }

    /// Reads `table inet filter { … }`, or a table that is only declared.
    pub(super) fn table(&mut self, rest: &mut Words<'a>) -> Parsed<()> {
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
                    let what = rest.word();
                    self.tables[at].sets.declare("add", &what, &self.defined, rest)?;
                }
                "counter" => {
                    self.tables[at].counters.push(rest.peek_at(1).to_owned());
                    object(rest)?;
                }
                "flowtable" => object(rest)?,
                // A note is made where rules use it.
                "ct" if matches!(rest.peek_at(1), "helper" | "timeout") => {
                    rest.word();
                    object(rest)?;
                }
                "quota" | "limit" => {
                    let kind = rest.word();
                    self.pool(at, &kind, rest)?;
                }
                "ct" if rest.peek_at(1) == "expectation" => {
                    rest.word();
                    return no_object(&rest.word());
                }
                "ct" | "secmark" | "synproxy" | "tunnel" => return no_object(&rest.word()),
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

    /// Reads `limit slow { rate 5/second }` or `quota month { over 25 gbytes }`.
    pub(super) fn pool(&mut self, table: usize, kind: &str, rest: &mut Words<'a>) -> Parsed<()> {
        let place = rest.words.first().map_or_else(|| rest.scope.at.get(), |name| name.at);
        let pool = pool(kind, rest)?;
        let pools = &mut self.tables[table].pools;
        let same = |known: &&mut Pool| (&known.name, known.is_quota()) == (&pool.name, pool.is_quota());
        match pools.iter_mut().find(same) {
            None => pools.push(pool),
            // The kernel replaces a quota (`nft_quota_obj_update`), and keeps a limit.
            Some(known) if pool.is_quota() => *known = pool,
            Some(known) if *known == pool => {}
            Some(Pool { name, .. }) => {
                rest.scope.at.set(place);
                return wrong(
                    format!("the limit `{name}` has another rate already"),
                    "write one rate, or another name: nft would go by the first",
                );
            }
        }
        Ok(())
    }

    /// Finds the table whose family and name come next, or creates it.
    pub(super) fn named_table(&mut self, rest: &mut Words<'_>) -> Parsed<usize> {
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
                sets: Declarations::default(),
                dynamic: Vec::new(),
                pools: Vec::new(),
                counters: Vec::new(),
            });
            self.tables.len() - 1
        }))
    }

    pub(super) fn chain_of(&mut self, table: usize, name: String, at: Place) -> &mut Chain<'a> {
        let chains = &mut self.tables[table].chains;
        let known = chains.iter().position(|chain| chain.name == name).unwrap_or_else(|| {
            chains.push(Chain { name, at, base: None, rules: Vec::new() });
            chains.len() - 1
        });
        &mut chains[known]
    }

    /// Reads the statements of a chain, up to its closing brace.
    pub(super) fn chain(&mut self, table: usize, name: String, place: Place, rest: &mut Words<'a>) -> Parsed<()> {
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
    pub(super) fn rule(&mut self, table: usize, rest: &mut Words<'a>) -> Parsed<Statement<'a>> {
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
}
