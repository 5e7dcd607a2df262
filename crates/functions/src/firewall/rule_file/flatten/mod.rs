//! Flattens chains into one list of rules, of which the first match decides. The classifier then finds it as fast as without
//! chains.
//!
//! A jump is replaced by the rules of its chain, each restricted to what the jump matches too. `return`, `goto` and what a
//! limit does not let pass continue at a later rule. Chains of the same hook follow one another by priority: a packet that one
//! accepts comes to the next, a packet that it drops does not. If two jumps lead to a chain, its rules are duplicated; hence
//! there is a bound.

pub(super) mod base;
pub(super) mod hooks;

use braid_nf::packet::IpVersion;
use std::collections::{HashMap, HashSet};

use braid_nf::state::hash;

use self::base::Base;
use self::hooks::{Asked, asked, has_all_hops, is_early, translates};
use super::conditions::Fits;
use super::conditions::arp::{is_spoken_of, settle, states_of};
use super::conditions::interfaces::interface;
use super::file::set_declarations::Declarations;
use super::file::syntax::Statement;
use super::file::tokens::Place;
use super::file::{Chain, File, Table};
use super::reader::{Scope, Sets, Words};
use super::statement::verdict::Verdict;
use super::statement::{Clause, statement};
use super::{Hooks, Note, Parsed, wrong};
use crate::firewall::conditions::values::Addresses;
use crate::firewall::connection::states::{self, States};
use crate::firewall::rules::{Action, Direction, Rule};
use crate::parts::Many;

/// The most rules that the chains may expand to.
pub(super) const RULES_MAX: usize = 1 << 18;
/// The deepest nesting of jumps (`NFT_JUMP_STACK_SIZE` of Linux).
pub(super) const DEPTH_MAX: usize = 16;

/// A statement that has been read.
struct Read {
    clauses: Vec<Clause>,
    at: Place,
    origin: u64,
}

/// The list under construction.
struct Flat<'a> {
    table: &'a Table<'a>,
    scope: &'a Scope<'a>,
    /// The conditions of all packets that come to its base chain.
    all: Rule,
    /// The chains to which more than one jump leads.
    shared: HashSet<&'a str>,
    /// Their statements, as far as they have been read, by name of the chain.
    read: HashMap<&'a str, Vec<Read>>,
    rules: Vec<Rule>,
    /// Rules that accept while another chain follows; their `next` is set to the end of the base chain.
    accepting: Vec<usize>,
    /// The number of the first rule.
    base: usize,
    is_last: bool,
    /// The statement of the base chain that is being flattened.
    at: Place,
}

/// Returns the rules of all chains that are evaluated, to be appended to `base` others.
pub(super) fn flatten(file: &File<'_>, hooks: Hooks, scope: &Scope<'_>, base: usize) -> Parsed<(Vec<Rule>, Vec<Note>)> {
    let (mut chains, mut notes) = (Vec::<Asked<'_>>::new(), Vec::new());
    let (translates, arp) = (translates(file, scope), is_spoken_of(file));
    for (table, chain) in file.awake().flat_map(|table| table.chains.iter().map(move |chain| (table, chain))) {
        scope.at.set(chain.at);
        if let Some(direction) = asked(table, chain, hooks, (translates, arp), (scope, &mut notes))? {
            chains.push((table, chain, direction));
        }
    }
    let on_its_way =
        |(_, chain, _): &Asked<'_>| chain.base.as_ref().is_some_and(|base| base.place() == Base::ON_ITS_WAY);
    if chains.is_empty() {
        return match hooks {
            Hooks::Forward if file.tables.iter().any(|table| table.family == "bridge") => wrong(
                "no chain of the file has the hook forward, but for frames between ports of a bridge",
                "write rules_hook = \"bridge\" in the plan if the firewall stands there, or the chain into a table inet",
            ),
            Hooks::Forward => wrong(
                "no chain of the file has the hook forward",
                "write type filter hook forward priority 0; or rules_hook = \"host\" in the plan if the hosts inside are whom its chains input and \
                 output are for",
            ),
            Hooks::Host => {
                wrong("no chain of the file has the hook input or output", "write type filter hook input priority 0;")
            }
            Hooks::Bridge => wrong(
                "no table bridge of the file has a chain of hook forward",
                "write table bridge filter { chain forward { type filter hook forward priority 0; … } }",
            ),
        };
    }
    // Without a chain of that hook the plan decides about what the others let pass.
    let is_whole = chains.iter().any(on_its_way);
    if !is_whole && let Some((_, chain, _)) = chains.first() {
        let text = "no chain of hook forward follows: about what passes, `inbound` and `outbound` of the plan decide";
        notes.push(Note { line: chain.at.line, file: scope.file(chain.at), text: text.to_owned() });
    }
    // Of equal priority, the kernel asks the chain first that was added last (`nf_hook_entries_grow`).
    chains.reverse();
    chains.sort_by_key(|(_, chain, _)| chain.base.as_ref().map(|base| (base.place(), base.priority)));
    let mut comes = Vec::with_capacity(chains.len());
    for (table, chain, direction) in &chains {
        let states = states_of(table, arp);
        comes.push(within(table, chain, *direction, scope)?.map(|all| Rule { states, ..all }));
    }
    let mut is_reached = comes.iter().map(Option::is_some);
    chains.retain(|_| is_reached.next().unwrap_or_default());
    let comes: Vec<Rule> = comes.into_iter().flatten().collect();
    let mut rules = Vec::new();
    for (number, ((table, chain, direction), within)) in chains.iter().zip(&comes).enumerate() {
        let is_last = is_whole && is_last(&chains, number);
        let base = base + rules.len();
        let (sets, name) = (scope_sets(file, table), table.whole_name());
        let scope = Scope {
            sets: &sets,
            table: &name,
            dynamic: &table.dynamic,
            pools: &table.pools,
            counters: &table.counters,
            translates,
            arp: within.states & states::ARP != 0,
            is_early: chain.base.as_ref().is_some_and(|base| is_early(table, base)),
            has_all_hops: chain.base.as_ref().is_some_and(|base| has_all_hops(base, *direction)),
            direction: *direction,
            ..*scope
        };
        let mut flat = Flat::new(table, &scope, within.clone(), (base, is_last));
        flat.base_chain(chain)?;
        rules.append(&mut flat.rules);
    }
    // A packet that reaches the end was accepted by each chain that it came to; the later chains may have been for another
    // family.
    for (number, ((_, chain, _), within)) in chains.iter().zip(comes).enumerate().filter(|_| is_whole) {
        let by_policy = chain.base.as_ref().is_some_and(|base| base.accepts);
        if by_policy || !is_last(&chains, number) {
            let comment = format!("{} chain {}", if by_policy { "policy of" } else { "accepted by" }, chain.name);
            let (line, file) = (chain.at.line, scope.file(chain.at));
            rules.push(Rule { action: Action::Allow, comment, line, file, ..within });
        }
    }
    Ok((rules, notes))
}

/// Whether no chain follows this one; a chain of the other direction is on another path.
fn is_last(chains: &[Asked<'_>], number: usize) -> bool {
    let direction = chains[number].2;
    !chains[number + 1..].iter().any(|(.., other)| *other == direction)
}

/// The conditions of all packets that come to a chain; `None` if no packet does, because no port is the interface that it
/// names.
fn within(
    table: &Table<'_>,
    chain: &Chain<'_>,
    direction: Option<Direction>,
    scope: &Scope<'_>,
) -> Parsed<Option<Rule>> {
    let mut all = Fits::all();
    scope.at.set(chain.at);
    if let Some(base) = chain.base.as_ref().filter(|base| !base.devices.is_empty()) {
        let way = if base.hook == "egress" { "oifname" } else { "iifname" };
        interface(&mut all, &mut Words { words: &base.devices, scope }, way)?;
    }
    let mut within = Rule { direction, ..all.rule };
    let family =
        [("ip", IpVersion::V4), ("ip6", IpVersion::V6)].into_iter().find(|(family, _)| *family == table.family);
    within.source = Many::of(family.map(|(_, version)| Addresses::all(version)));
    Ok((!all.never).then_some(within))
}

/// Flattens rules without a table, one after another.
pub(super) fn lines(rules: Vec<Statement<'_>>, sets: &Sets, scope: &Scope<'_>, base: usize) -> Parsed<Vec<Rule>> {
    let chain = Chain { name: String::new(), at: Place::default(), base: None, rules };
    let table = Table {
        family: String::new(),
        name: String::new(),
        asleep: false,
        chains: vec![chain],
        sets: Declarations::default(),
        dynamic: Vec::new(),
        pools: Vec::new(),
        counters: Vec::new(),
    };
    let scope = Scope { sets, ..*scope };
    let all = Rule::new(Action::Continue);
    let mut flat = Flat::new(&table, &scope, all.clone(), (base, true));
    flat.chain("", &all, 1)?;
    Ok(flat.rules)
}

/// A table's sets, preceded by those outside tables.
fn scope_sets(file: &File<'_>, table: &Table<'_>) -> Sets {
    file.sets.elements.iter().chain(&table.sets.elements).cloned().collect()
}

/// The chains of a table to which more than one jump leads.
fn shared<'a>(table: &'a Table<'a>) -> HashSet<&'a str> {
    let (mut known, mut shared) = (HashSet::new(), HashSet::new());
    let rules = table.chains.iter().flat_map(|chain| &chain.rules).map(|rule| &**rule);
    for tokens in rules.chain(table.sets.elements.iter().map(|(_, elements)| elements.as_slice())) {
        for pair in tokens.windows(2).filter(|pair| matches!(&*pair[0].text, "jump" | "goto")) {
            if !known.insert(&*pair[1].text) {
                shared.insert(&*pair[1].text);
            }
        }
    }
    shared
}

impl<'a> Flat<'a> {
    fn new(table: &'a Table<'a>, scope: &'a Scope<'a>, all: Rule, (base, is_last): (usize, bool)) -> Flat<'a> {
        let (rules, accepting, read) = (Vec::new(), Vec::new(), HashMap::new());
        Flat { table, scope, all, shared: shared(table), read, rules, accepting, base, is_last, at: Place::default() }
    }

    fn base_chain(&mut self, chain: &'a Chain<'a>) -> Parsed<()> {
        let within = self.all.clone();
        self.chain(&chain.name, &within, 1)?;
        let accepts = chain.base.as_ref().is_none_or(|base| base.accepts);
        if !accepts {
            let comment = format!("policy of chain {}", chain.name);
            let (line, file) = (chain.at.line, self.scope.file(chain.at));
            self.rules.push(Rule { action: Action::Deny, comment, line, file, ..within });
        }
        let end = self.end();
        self.accepting.iter().for_each(|at| self.rules[*at].next = Some(end));
        Ok(())
    }

    /// The number that the next rule will have.
    fn end(&self) -> u32 {
        (self.base + self.rules.len()) as u32
    }

    /// Adds the rules of a chain, for packets that match `within`.
    fn chain(&mut self, name: &str, within: &Rule, depth: usize) -> Parsed<()> {
        let chain = self.find(name)?;
        if depth > DEPTH_MAX {
            return wrong(
                format!("the chain `{name}` is more than {DEPTH_MAX} jumps deep, or jumps in a circle"),
                "write fewer jumps in one another",
            );
        }
        let mut returning = Vec::new();
        if self.shared.contains(chain.name.as_str()) {
            // Removed during the walk: a chain that jumps to itself is read again, and refused by its depth.
            let statements = match self.read.remove(chain.name.as_str()) {
                Some(statements) => statements,
                None => self.statements(chain).collect::<Parsed<_>>()?,
            };
            for one in &statements {
                self.scope.at.set(one.at);
                self.one(one, within, depth, &mut returning)?;
            }
            self.read.insert(&chain.name, statements);
        } else {
            for one in self.statements(chain) {
                self.one(&one?, within, depth, &mut returning)?;
            }
        }
        let end = self.end();
        returning.iter().for_each(|at| self.rules[*at].next = Some(end));
        Ok(())
    }

    fn find(&self, name: &str) -> Parsed<&'a Chain<'a>> {
        match self.table.chains.iter().find(|chain| chain.name == name) {
            Some(chain) => Ok(chain),
            None => {
                wrong(format!("there is no chain `{name}`"), format!("write chain {name} {{ … }} in the same table"))
            }
        }
    }

    /// The statements of a chain, each read when it is taken.
    fn statements(&self, chain: &'a Chain<'a>) -> impl Iterator<Item = Parsed<Read>> + use<'a> {
        let (table, scope) = (self.table, self.scope);
        let read = move |tokens: &Statement<'_>| {
            let mut clauses = statement(Words { words: tokens, scope })?;
            clauses.iter_mut().flat_map(|clause| &mut clause.fits).for_each(settle);
            for fits in clauses.iter().flat_map(|clause| &clause.fits).filter(|fits| !fits.never) {
                fits.rule.check().or_else(|(reason, instead)| wrong(reason, instead))?;
            }
            let words: Vec<&str> = tokens.iter().map(|token| &*token.text).collect();
            let text = format!("{} {}: {}", table.whole_name(), chain.name, words.join(" "));
            let origin = hash::mixed(text.as_bytes(), 0);
            let at = tokens.first().map(|first| first.at).unwrap_or_default();
            scope.at.set(at);
            Ok(Read { clauses, at, origin })
        };
        chain.rules.iter().filter(|tokens| !tokens.is_empty()).map(read)
    }

    fn one(&mut self, one: &Read, within: &Rule, depth: usize, returning: &mut Vec<usize>) -> Parsed<()> {
        let (mut missed, mut past) = (Vec::new(), Vec::new());
        if depth == 1 {
            self.at = one.at;
        }
        for (number, clause) in one.clauses.iter().enumerate() {
            let mut applied = Vec::new();
            for fits in &clause.fits {
                if fits.never {
                    continue;
                }
                if !self.scope.in_table {
                    says_what_happens(&clause.verdict, fits.rule.states & states::ALL)?;
                }
                let (line, file) = (one.at.line, self.scope.file(one.at));
                let origin = one.origin.wrapping_add(number as u64);
                let does = Rule { line, file, origin, ..clause.does.clone() };
                let Some(met) = within.meet(&fits.rule) else { continue };
                let rule = Rule { action: Action::Continue, ..does.fitting(met) };
                let (at, may_miss) = (self.rules.len(), rule.may_miss());
                let are_several = clause.fits.len() > 1;
                // A mark may be another one behind the jump, but the map has been looked up.
                let is_of_mark = clause.is_one_of_several && !clause.does.asks.is_empty();
                let returns = (are_several || is_of_mark) && matches!(clause.verdict, Verdict::Jump(_));
                let back = returns.then(|| Rule::new(Action::Continue).fitting(rule.clone()));
                self.clause(&clause.verdict, rule, depth, returning)?;
                past.extend((clause.verdict == Verdict::Past).then_some(at));
                if let Some(back) = back {
                    if is_of_mark { &mut past } else { &mut applied }.push(self.rules.len());
                    self.rules.push(back);
                } else if are_several && clause.verdict == Verdict::Continue && self.rules.len() > at {
                    applied.push(at);
                }
                if may_miss && clause.is_one_of_several {
                    self.rules[at].missed = Some(self.end());
                } else if may_miss {
                    missed.push(at);
                }
                if self.rules.len() > RULES_MAX {
                    self.scope.at.set(self.at);
                    return wrong(
                        format!("jumps make more than {RULES_MAX} rules of the chains"),
                        "write fewer jumps to long chains, or sets instead of rules",
                    );
                }
            }
            // A packet that fits one element meets no further one: neither behind a rule that only has effects, nor where a chain returns.
            let end = self.end();
            applied.iter().for_each(|at| self.rules[*at].next = Some(end));
        }
        let end = self.end();
        missed.iter().for_each(|at| self.rules[*at].missed = Some(end));
        past.iter().for_each(|at| self.rules[*at].next = Some(end));
        Ok(())
    }

    /// Adds the rules of one clause, for packets with the conditions of `rule`.
    fn clause(&mut self, verdict: &Verdict, rule: Rule, depth: usize, returning: &mut Vec<usize>) -> Parsed<()> {
        let at = self.rules.len();
        match verdict {
            Verdict::Accept if self.is_last => self.rules.push(Rule { action: Action::Allow, ..rule }),
            Verdict::Accept => {
                self.accepting.push(at);
                self.rules.push(rule);
            }
            Verdict::Drop => self.rules.push(Rule { action: Action::Deny, ..rule }),
            Verdict::Reject(reply) => self.rules.push(Rule { action: Action::Reject, reply: *reply, ..rule }),
            Verdict::Continue => self.rules.extend(Some(rule).filter(Rule::has_effects)),
            Verdict::Return => {
                returning.push(at);
                self.rules.push(rule);
            }
            Verdict::Past => self.rules.push(rule),
            Verdict::Jump(name) | Verdict::Goto(name) => {
                let (line, file) = (rule.line, rule.file.clone());
                let within = Rule { line, file, ..Rule::new(Action::Continue) }.fitting(rule.clone());
                if rule.has_effects() {
                    self.rules.push(rule);
                }
                self.chain(name, &within, depth + 1)?;
                if matches!(verdict, Verdict::Goto(_)) {
                    returning.push(self.rules.len());
                    self.rules.push(within);
                }
            }
        }
        Ok(())
    }
}

/// Refuses contradictions in lines without a table, which are for packets that would open a connection: what they say about
/// other packets must be what happens anyway.
fn says_what_happens(verdict: &Verdict, states: States) -> Parsed<()> {
    let all = |of: States| states & !of == 0;
    let is_so = match verdict {
        _ if states & states::NEW != 0 => true,
        Verdict::Accept => all(states::ESTABLISHED | states::RELATED),
        Verdict::Drop | Verdict::Reject(_) => all(states::INVALID),
        _ => true,
    };
    if is_so {
        return Ok(());
    }
    wrong(
        "lines without a table are about packets that would open a connection, the others follow it",
        "write ct state new, or leave it out; or table inet filter { chain forward { … } } around the rules",
    )
}

impl Rule {
    /// Returns a rule with the effects of this one and the conditions of `conditions`.
    pub(in crate::firewall) fn fitting(self, conditions: Rule) -> Rule {
        Rule {
            action: self.action,
            counter: self.counter,
            log: self.log,
            limit: self.limit,
            quota: self.quota,
            pool: self.pool,
            keyed: self.keyed,
            asks: self.asks,
            gives: self.gives,
            edits: self.edits,
            untracks: self.untracks,
            comment: self.comment,
            line: self.line,
            file: self.file,
            origin: self.origin,
            reply: self.reply,
            next: self.next,
            missed: self.missed,
            ..conditions
        }
    }
}
