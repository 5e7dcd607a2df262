//! The effects of rules besides decisions: counters, limits and the log, as nftables' `counter`, `limit rate` and `log`.
//!
//! Each worker counts packets and bytes and logs by itself, so a flood causes no conflicts; limits are exact over all
//! workers. Rules that come from one statement (in a chain that several rules jump to, or a verdict map) share its
//! effects. When rules are exchanged, a rule whose text is the same keeps its counts and the remainder of its limit.

pub(super) mod dynamic_sets;
pub(super) mod edits;
pub(super) mod initial_elements;
pub(super) mod log;
pub(super) mod marks;
pub(super) mod quota;
pub(super) mod rate_limit;

use std::collections::HashMap;
use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{DistributedVector, DistributedVectorConfig, StateError, StateObject, VectorConfig, hash};

use self::dynamic_sets::{Met, Sets};
use self::log::Log;
use self::marks::{Kept, Marks};
use super::conditions::facts::Facts;
use super::connection::counts::Counted;
use super::connection::ends::Ends;
use super::rules::{Action, Rule};
use crate::config::ConfigError;
use crate::parts::times;
use crate::token_bucket::{Bucket, Limit};

/// The maximum number of statements with counters of their own, and with limits. Further counters share one object, and
/// restart when any of their rules changes.
const APART_MAX: usize = 1024;
const NONE: u32 = u32::MAX;

/// The effects of all rules; empty if no rule has any.
pub(super) struct Effects {
    /// The index of each rule's statement, by rule number.
    places: Vec<u32>,
    statements: Vec<Statement>,
    /// The state objects of counters, limits and quotas.
    objects: Vec<Arc<dyn StateObject>>,
    log: Option<Log>,
    pub(super) sets: Sets,
    pub(super) marks: Kept,
    pub(super) counted: Counted,
}

/// Where the rules that a packet matches note what they do with its connection.
pub(super) struct Outcome<'a> {
    /// The sets that count connections, for a first packet.
    pub(super) met: Option<&'a mut Met>,
    pub(super) marks: &'a mut Marks,
}

/// What a statement has matched. It takes no more cache lines than a count of packets alone would.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Count {
    fn add(&mut self, more: &Count) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

/// The effects of the rules of one statement.
struct Statement {
    /// The first of its rules, without its conditions, and the number of that rule.
    rule: Rule,
    number: usize,
    count: Option<(DistributedVector<Count>, u32)>,
    limit: Option<(Vector<Bucket>, Limit)>,
    quota: Option<Vector<u64>>,
    /// The index of the set it uses, if packets modify that set.
    set: Option<usize>,
}

impl Effects {
    pub(super) fn new(builder: &mut StateBuilder, rules: &[Rule], counted_max: u32) -> Result<Effects, ConfigError> {
        let (mut places, mut firsts) = (Vec::with_capacity(rules.len()), Vec::new());
        let mut known: HashMap<(u64, u32, Option<&str>), u32> = HashMap::new();
        for (number, rule) in rules.iter().enumerate() {
            if !rule.has_effects() {
                places.push(NONE);
                continue;
            }
            // Two statements may have the same text; those of a file are told apart by their lines.
            let at = if rule.line == 0 { number as u32 } else { rule.line };
            let place = known.entry((rule.origin, at, rule.file.as_deref())).or_insert_with(|| {
                firsts.push(number);
                firsts.len() as u32 - 1
            });
            places.push(*place);
        }
        let sets = Sets::new(builder, rules, counted_max)?;
        let marks =
            Kept::new(builder, rules, counted_max).map_err(|error| ConfigError::state("connections_max", &error))?;
        let counted =
            Counted::new(builder, rules, counted_max).map_err(|error| ConfigError::state("connections_max", &error))?;
        let rest = rest(builder, rules, &firsts)?;
        let mut making = Statements {
            rules,
            sets: &sets,
            names: HashMap::new(),
            counters: 0,
            limits: 0,
            pools: HashMap::new(),
            objects: Vec::new(),
            rest,
        };
        let statements = making.make(builder, firsts)?;
        let objects = making.objects;
        let logs = rules.iter().any(|rule| rule.log.is_some());
        let log =
            logs.then(|| Log::new(builder, rules)).transpose().map_err(|error| ConfigError::state("rules", &error))?;
        let places = if statements.is_empty() { Vec::new() } else { places };
        Ok(Effects { places, statements, objects, log, sets, marks, counted })
    }

    /// Applies the effects of a rule to a packet that meets its conditions, and returns whether the rule matches now.
    #[cold]
    pub(super) fn meet(
        &self,
        cx: &mut Cx<'_>,
        (packet, facts): (&Packet<'_>, &Facts<'_>),
        number: usize,
        outcome: &mut Outcome<'_>,
    ) -> Result<bool, Conflict> {
        let len = || facts.len_of(packet);
        let place = self.places.get(number).copied().unwrap_or(NONE);
        let Some(statement) = self.statements.get(place as usize) else { return Ok(true) };
        let (rule, marks) = (&statement.rule, &mut *outcome.marks);
        if !rule.asks.iter().all(|asked| marks.fit(asked)) {
            return Ok(false);
        }
        if let (Some(set), Some(keyed)) = (statement.set, &rule.keyed)
            && !self.sets.meet(cx, (packet, facts), (set, keyed), outcome.met.as_deref_mut())?
        {
            return Ok(false);
        }
        if let (Some((buckets, limit)), Some(often)) = (&statement.limit, &rule.limit) {
            let now = cx.now();
            let mut bucket = buckets.get(cx, 0)?.unwrap_or_default();
            let is_within = limit.take(&mut bucket, now, often.cost(len()));
            if is_within {
                // An empty bucket is left unchanged, so that a flood causes no conflicts.
                buckets.set(cx, 0, bucket)?;
            }
            if is_within == often.over {
                return Ok(false);
            }
        }
        if let (Some(used), Some(quota)) = (&statement.quota, &rule.quota)
            && !quota.take(cx, used, len())?
        {
            return Ok(false);
        }
        if let Some((counts, at)) = &statement.count {
            counts.update(cx, *at, |count| count.add(&Count { packets: 1, bytes: len().into() }))?;
        }
        if let (Some(log), Some(_)) = (&self.log, &rule.log) {
            log.write(cx, facts, rule.origin)?;
        }
        if rule.untracks {
            marks.untrack();
        }
        let fits = rule.gives.iter().all(|given| marks.set(given));
        rule.edits.iter().filter(|_| fits).for_each(|edit| marks.edits.note(*edit));
        Ok(fits)
    }

    /// Handles the end of a connection or query: sets no longer count it, and its counters and mark are forgotten.
    pub(super) fn leave(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        self.sets.leave(cx, ends)?;
        self.counted.forget(cx, ends)?;
        self.marks.forget(cx, ends)
    }

    /// Reports each rule's counters, some at a time, and then the log.
    pub(super) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        into.each(self.statements.len(), |into, number| {
            let statement = &self.statements[number];
            let (Some((counts, at)), rule) = (&statement.count, &statement.rule) else { return Ok(()) };
            let mut sum = Count::default();
            counts.visit(cx, *at, |count| sum.add(count))?;
            let Count { packets, bytes } = sum;
            let comment = if rule.comment.is_empty() { String::new() } else { format!(" ({})", rule.comment) };
            let did = match (rule.action, &rule.log) {
                (Action::Continue, Some(_)) => "logged",
                (Action::Continue, None) => "fitted",
                _ => "decided",
            };
            let subject = format!("{}{comment}", rule.place(statement.number));
            if into.is_for_metrics() {
                into.count("rule_bytes", &subject, bytes, "");
            }
            into.count("rule", subject, packets, format!("{did} {}, {bytes} bytes", times(packets)));
            Ok(())
        })?;
        self.log.as_ref().map_or(Ok(()), |log| log.report(cx, into))
    }
}

/// State that several rules may share.
#[derive(Clone, Default)]
struct Pool {
    limit: Option<(Vector<Bucket>, Limit)>,
    quota: Option<Vector<u64>>,
}

/// Builds [`Effects::statements`].
struct Statements<'a> {
    rules: &'a [Rule],
    sets: &'a Sets,
    /// How many objects have been named after each statement's text.
    names: HashMap<u64, u32>,
    counters: u32,
    limits: usize,
    /// Shared limits and quotas.
    pools: HashMap<u64, Pool>,
    objects: Vec<Arc<dyn StateObject>>,
    /// Counters that have no object of their own.
    rest: Option<DistributedVector<Count>>,
}

impl Statements<'_> {
    fn make(&mut self, builder: &mut StateBuilder, firsts: Vec<usize>) -> Result<Vec<Statement>, ConfigError> {
        let state = |error: StateError| ConfigError::state("rules", &error);
        self.objects.extend(self.rest.iter().map(DistributedVector::object));
        let mut statements = Vec::with_capacity(firsts.len());
        for number in firsts {
            let rule = &self.rules[number];
            let same = self.names.entry(rule.origin).or_default();
            let name = format!("{:016x}_{same}", rule.origin);
            *same += 1;
            let count = if counts(rule) { Some(self.counter(builder, &name).map_err(state)?) } else { None };
            let pool = self.pool(builder, rule, &name)?;
            let set = rule.keyed.as_ref().and_then(|keyed| self.sets.place(keyed));
            let rule = rule.clone().fitting(Rule::new(Action::Continue));
            statements.push(Statement { rule, number, count, limit: pool.limit, quota: pool.quota, set });
        }
        Ok(statements)
    }

    /// The limit or quota of a rule; a shared one is made once.
    fn pool(&mut self, builder: &mut StateBuilder, rule: &Rule, name: &str) -> Result<Pool, ConfigError> {
        if let Some(known) = self.pools.get(&rule.pool) {
            return Ok(known.clone());
        }
        if rule.limit.is_none() && rule.quota.is_none() {
            return Ok(Pool::default());
        }
        if self.limits == APART_MAX {
            let reason = format!("more than {APART_MAX} rules have a limit or a quota");
            return Err(ConfigError::new("rules", reason, "write one limit before a jump to a chain"));
        }
        self.limits += 1;
        let state = |error: StateError| ConfigError::state("rules", &error);
        let name = if rule.pool == 0 { name.to_owned() } else { format!("{:016x}", rule.pool) };
        let mut pool = Pool::default();
        if let Some(often) = &rule.limit {
            let (config, limit) = (VectorConfig { name: format!("limit_{name}"), len: 1 }, often.limit()?);
            builder.agree(&config.name, format!("a rule's limit of {often}"));
            let buckets = Vector::new(builder, &config, limit.full(0)).map_err(state)?;
            self.objects.push(buckets.object());
            pool.limit = Some((buckets, limit));
        }
        if let Some(quota) = &rule.quota {
            let config = VectorConfig { name: format!("quota_{name}"), len: 1 };
            let used = Vector::new(builder, &config, quota.used).map_err(state)?;
            self.objects.push(used.object());
            pool.quota = Some(used);
        }
        if rule.pool != 0 {
            self.pools.insert(rule.pool, pool.clone());
        }
        Ok(pool)
    }

    fn counter(
        &mut self,
        builder: &mut StateBuilder,
        name: &str,
    ) -> Result<(DistributedVector<Count>, u32), StateError> {
        let at = self.counters;
        self.counters += 1;
        if let Some(rest) = &self.rest
            && at >= APART_MAX as u32
        {
            return Ok((rest.clone(), at - APART_MAX as u32));
        }
        let counts = vector(builder, format!("count_{name}"), 1)?;
        self.objects.push(counts.object());
        Ok((counts, 0))
    }
}

fn counts(rule: &Rule) -> bool {
    rule.counter || rule.log.is_some()
}

/// One object for the counters beyond those that have their own.
fn rest(
    builder: &mut StateBuilder,
    rules: &[Rule],
    firsts: &[usize],
) -> Result<Option<DistributedVector<Count>>, ConfigError> {
    let origins: Vec<u64> =
        firsts.iter().map(|at| &rules[*at]).filter(|rule| counts(rule)).map(|rule| rule.origin).collect();
    let Some(rest) = origins.get(APART_MAX..).filter(|rest| !rest.is_empty()) else { return Ok(None) };
    let name = format!(
        "rule_counts_{:08x}",
        hash::mixed(&rest.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>(), 0) as u32
    );
    vector(builder, name, rest.len() as u32).map(Some).map_err(|error| ConfigError::state("rules", &error))
}

fn vector(builder: &mut StateBuilder, name: String, len: u32) -> Result<DistributedVector<Count>, StateError> {
    DistributedVector::new(builder, &DistributedVectorConfig { name, len }, Count::add)
}

impl Part for Effects {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.sets.objects(into);
        self.marks.objects(into);
        self.counted.objects(into);
        into.extend(self.objects.iter().cloned());
        if let Some(log) = &self.log {
            log.objects(into);
        }
    }
}
