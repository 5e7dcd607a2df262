//! Explains what a plan will do and why, before it runs, like a database's EXPLAIN.
//!
//! The memory-access figures cover what the framework touches: cache lines of packets, metadata and packet sets, and of one use of
//! each state object. How often handlers use an object is not known here; `braid profile` measures it.

mod parts;
mod words;

pub use parts::{
    AccessPart, Explanation, FieldPart, FunctionPart, GroupPart, MetadataPart, NicPart, OrderPart, StatePart,
    SteeringPart,
};
pub use words::human_bytes;

use braid_runtime::chain::{Group, same_packets};
use braid_runtime::nf::packet::PortSet;
use braid_runtime::nf::packet::key::SetDef;
use braid_runtime::nf::state::StateObject;
use braid_runtime::nf::{SetTables, Stage};
use braid_runtime::steer::planner::{HashPlan, Locality, Outcome};
use braid_runtime::steer::{Key, Pattern, UdpPorts, checker};
use braid_runtime::{Chain, Direction, Full, When};

use crate::compile::{Carry, Compiled, given_sides};
use crate::machine::Cache;
use crate::plan::file::Problem;
use crate::plan::{Plan, PlannedFunction};

/// Explains a plan.
pub fn explain(plan: &Plan) -> Result<Explanation, Problem> {
    let Compiled { hash, memory, .. } = plan.compile(Carry::Capture)?;
    let chain = plan.probe(Carry::Capture)?;
    let outcomes = hash.chosen.outcomes.iter().enumerate();
    let functions: Vec<FunctionPart> = outcomes.map(|(at, outcome)| function(plan, at, &chain, outcome)).collect();
    let groups = groups(plan, &chain, &hash);
    let metadata = metadata(plan, &chain);
    Ok(Explanation {
        workers: plan.workers,
        ports: plan.ports,
        batch: plan.batch,
        order: order(plan, &chain),
        accesses: accesses(plan, &chain, &functions, &groups, &metadata),
        functions,
        groups,
        steering: steering(plan, &hash),
        nic: nic(plan, &chain, &hash),
        metadata,
        memory,
    })
}

fn order(plan: &Plan, chain: &Chain) -> OrderPart {
    let name = |at: usize| chain.stages()[at].name().to_owned();
    let outside = plan.course.outside();
    let has_given_sides =
        |link: &&PlannedFunction| given_sides((link, &link.config.table()), &plan.course, plan.ports).is_some();
    OrderPart {
        from_inside: chain.positions(Direction::Forward).map(name).collect(),
        from_outside: outside.map(|_| chain.positions(Direction::Reverse).map(name).collect()),
        outside: outside.iter().flat_map(|outside| outside.iter(plan.ports)).collect(),
        given_sides: plan.chain.iter().filter(has_given_sides).map(|link| link.name.clone()).collect(),
        atomic: if plan.course.atomic { "chain" } else { "function" },
    }
}

/// A condition in words; `None` if it lets all packets through.
fn when_in_words(when: When, ports: u16) -> Option<String> {
    let list = |set: PortSet| set.iter(ports).map(|port| port.to_string()).collect::<Vec<_>>().join(", ");
    let came = when.came_by.map(|set| format!("came by port {}", list(set)));
    let leaves = when.leaves_by.map(|set| format!("are to leave by port {}", list(set)));
    let flooded = when.flooded.map(|flooded| if flooded { "are flooded" } else { "are not flooded" }.to_owned());
    let passes = when.passes.map(|set| format!("came, or are to leave, by port {}", list(set)));
    let all: Vec<String> = [came, leaves, passes, flooded].into_iter().flatten().collect();
    (!all.is_empty()).then(|| format!("only packets that {}", all.join(" and ")))
}

/// A packet set in words.
pub fn set_in_words(set: &SetDef) -> String {
    let fields: Vec<&str> = set.fields.iter().map(|field| field.name()).collect();
    let way = if set.symmetric { ", both directions" } else { "" };
    let only = set.protocols.as_ref().map(|numbers| format!(", protocols {numbers:?} only")).unwrap_or_default();
    format!("{} ({}{way}{only})", set.name, fields.join(", "))
}

/// Names the other functions that have an object, if the plan declares the object as shared.
fn in_common(plan: &Plan, at: usize, chain: &Chain, object: &dyn StateObject) -> Option<String> {
    plan.chain[at].share.iter().find(|share| share.name == object.name())?;
    let has = |stage: &dyn Stage| stage.objects().iter().any(|other| other.id() == object.id());
    let others = chain.stages().iter().enumerate().filter(|(other, stage)| *other != at && has(&***stage));
    let names: Vec<&str> = others.map(|(_, stage)| stage.name()).collect();
    Some(if names.is_empty() {
        "no other function names it".to_owned()
    } else {
        format!("in common with {}", names.join(", "))
    })
}

fn function(plan: &Plan, at: usize, chain: &Chain, outcome: &Outcome) -> FunctionPart {
    let stage = &*chain.stages()[at];
    let mut state = Vec::new();
    if stage.packet_set().is_some() && stage.set_bytes() > 0 {
        let local = outcome.locality == Locality::Local;
        // The explained chain was built without sharing. With the plan's number of workers, non-local sets
        // would be shared in the way described here.
        let looks_up = stage.has_objects() || !plan.course.indexes();
        let (placement, why) = match outcome.explanation.clone() {
            _ if plan.workers == 1 => ("local", "there is one worker".to_owned()),
            why if local => ("local", why),
            why if looks_up => ("transactional", why),
            why => ("indexed", format!("{why}; each remembers where their entries are")),
        };
        state.push(StatePart {
            name: format!("{}.set", stage.name()),
            kind: "packet-set state".to_owned(),
            placement,
            why,
            capacity: plan.sets,
            bytes: stage.set_bytes(),
            lines: 0,
        });
    }
    for object in stage.objects() {
        let (placement, why) = match object.kind() {
            "Distributed" => {
                ("distributed", "each worker has a part of its own; a read merges them within its staleness")
            }
            "Allocator" => {
                ("transactional", "resources wait in a pool per worker; allocating, freeing and refreshing commute")
            }
            "Numbering" => ("constant", "what is configured, by the numbers that state has for it: nothing changes it"),
            _ => ("transactional", "shared by packet sets of all workers: accessed in transactions"),
        };
        state.push(StatePart {
            name: object.name().to_owned(),
            kind: object.kind().to_owned(),
            placement,
            why: in_common(plan, at, chain, &*object).map_or(why.to_owned(), |with| format!("{with}; {why}")),
            capacity: object.capacity(),
            bytes: object.memory_bytes(),
            lines: lines_of_use(object.kind()),
        });
    }
    FunctionPart {
        name: stage.name().to_owned(),
        function: stage.kind().to_owned(),
        when: when_in_words(plan.course.when(at), plan.ports),
        packet_set: stage.packet_set().as_ref().map(set_in_words),
        state,
        ticks_ms: stage.ticks().iter().map(|period| period.as_millis() as u64).collect(),
    }
}

/// A look-up touches the one line of tags that contains the key's home slot.
const TAG_LINES: usize = 1;
/// Cache lines that a set in a transactional map takes: a bucket (or a line of the worker's index), and an entry of two lines.
const SHARED_LINES: usize = 3;
const LINE: usize = 64;
/// The only read of shared state that a steady packet may make.
const STEADY_LINES: usize = 1;

/// Cache lines that one use of a state object touches: a bucket and an entry for a map, one element for any other kind (the
/// worker's own element if each worker has one).
fn lines_of_use(kind: &str) -> usize {
    if kind == "Map" { 2 } else { 1 }
}

fn groups(plan: &Plan, chain: &Chain, hash: &HashPlan) -> Vec<GroupPart> {
    let name = |&position: &usize| chain.stages()[position].name().to_owned();
    let group = |(number, group): (usize, &Group)| {
        let first = group.stages[0];
        let local = plan.workers == 1 || hash.chosen.outcomes[first].locality == Locality::Local;
        let record_bytes = SetTables::record_bytes(group.state_bytes);
        let shared = SHARED_LINES * group.stages.len();
        GroupPart {
            packet_set: set_in_words(&group.set),
            functions: group.stages.iter().map(name).collect(),
            state_bytes: group.state_bytes,
            local,
            record_bytes,
            lines: record_bytes.map(|bytes| if local { TAG_LINES + bytes.div_ceil(LINE) } else { shared }),
            full: if group.full == Full::EvictOldest { "evict_oldest" } else { "refuse" },
            apart: apart(chain, &chain.groups()[..number], group),
        }
    };
    chain.groups().iter().enumerate().map(group).collect()
}

/// Why functions with the same packet-set definition are in two groups.
fn apart(chain: &Chain, earlier: &[Group], group: &Group) -> Option<String> {
    let same = earlier.iter().rev().find(|other| same_packets(&other.set, &group.set))?;
    let (last, first) = (*same.stages.last()?, group.stages[0]);
    let (there, here) = (chain.stages()[last].name(), chain.stages()[first].name());
    if chain.course().when(last) != chain.course().when(first) || chain.course().when(first).looks_at_verdicts() {
        return Some(format!("`{here}` meets other packets than `{there}`"));
    }
    if same.full != group.full {
        return Some(format!("`{here}` does otherwise than `{there}` when its table is full"));
    }
    let changes = |at: &usize| {
        let rewrites = chain.stages()[*at].rewrites();
        rewrites.from_inside.iter().chain(rewrites.from_outside).any(|field| group.set.fields.contains(field))
    };
    let who = (last..=first).find(changes).map_or("a function between them", |at| chain.stages()[at].name());
    Some(format!("`{here}` sees other keys than `{there}`: `{who}` changes them on the way"))
}

fn accesses(
    plan: &Plan,
    chain: &Chain,
    functions: &[FunctionPart],
    groups: &[GroupPart],
    metadata: &MetadataPart,
) -> AccessPart {
    let lines: usize = metadata.cache_lines_per_batch.iter().sum();
    let sets = |version: usize| groups.iter().map(|group| group.lines[version]).sum();
    // A shared object is listed once for each function that uses it, and each of them touches it.
    let uses = |function: &FunctionPart| function.state.iter().map(|state| state.lines).sum::<usize>();
    // In a chain with `atomic = "chain"` no packet takes the fast path of steady packets.
    let is_steady = |stage: &dyn Stage| stage.is_steady() && !plan.course.atomic;
    let steady = |(function, stage): (&FunctionPart, &dyn Stage)| {
        if is_steady(stage) { uses(function).min(STEADY_LINES) } else { uses(function) }
    };
    let stages = chain.stages().iter().map(|stage| &**stage);
    let packet = (lines as f64 / plan.batch as f64 * 100.0).round() / 100.0;
    AccessPart {
        packet,
        sets: [sets(0), sets(1)],
        objects: functions.iter().map(uses).sum(),
        objects_steady: functions.iter().zip(stages).map(steady).sum(),
    }
}

fn steering(plan: &Plan, hash: &HashPlan) -> SteeringPart {
    SteeringPart {
        fields: hash.chosen.fields.iter().map(|field| field.name().to_owned()).collect(),
        symmetric: hash.chosen.symmetric,
        by_sides: hash.chosen.sides.is_some(),
        udp_ports: hash.chosen.fields.has_ports() && hash.chosen.udp.ports == UdpPorts::Hashed,
        udp_why: plan.udp_note(hash),
        distribution: match plan.distribution {
            braid_runtime::Distribution::Hardware => "hardware",
            braid_runtime::Distribution::Software => "software",
        },
        balanced: plan.balance.is_some() && plan.workers > 1,
        gather_us: plan.gather.as_micros() as u64,
        key: Key::microsoft().to_string(),
        outcomes: match plan.workers {
            1 => vec!["there is one worker: every packet comes to it".to_owned()],
            _ => hash.chosen.outcomes.iter().map(|outcome| outcome.explanation.clone()).collect(),
        },
        alternatives: match plan.workers {
            1 => Vec::new(),
            _ => hash.alternatives.iter().map(ToString::to_string).collect(),
        },
    }
}

fn nic(plan: &Plan, chain: &Chain, hash: &HashPlan) -> Vec<NicPart> {
    let Some(nic) = plan.nic else { return Vec::new() };
    let judge = |group: &Group| {
        let verdict = checker::check(&Pattern::from(&group.set), nic, hash.chosen.udp.ports);
        NicPart { packet_set: group.set.name.clone(), fits: verdict.fits(), words: verdict.to_string() }
    };
    chain.groups().iter().map(judge).collect()
}

/// Minimum size of a first-level data cache, for a machine that does not report its own.
const FIRST_LEVEL_BYTES: usize = 32 << 10;

fn metadata(plan: &Plan, chain: &Chain) -> MetadataPart {
    let layout = chain.layout();
    let first_level = Cache::first_level();
    let first_level_bytes = first_level.unwrap_or(FIRST_LEVEL_BYTES);
    // The other half is left for state.
    let budget = first_level_bytes / 2 / LINE;
    let lines = layout.cache_lines(plan.batch);
    let field = |row: &braid_runtime::nf::packet::fields::FieldRow| FieldPart {
        name: row.name.clone(),
        bytes: row.bytes,
        offset: row.offset,
        written_by: row.written_by.clone(),
        read_by: row.read_by.clone(),
    };
    MetadataPart {
        record_bytes: size_of::<braid_runtime::nf::packet::Record>(),
        extension_bytes: layout.record_bytes,
        fields: layout.describe().iter().map(field).collect(),
        cache_lines_per_batch: [lines.headers, lines.records, lines.extension],
        first_level_bytes,
        first_level_is_known: first_level.is_some(),
        batch_that_fits: (1..=256).rev().find(|&batch| layout.cache_lines(batch).total() <= budget).unwrap_or(1),
    }
}
