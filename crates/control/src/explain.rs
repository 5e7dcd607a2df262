//! What a plan will do and why, before it does it: like a database's EXPLAIN.

use std::fmt;

use braid_runtime::Chain;
use braid_runtime::nf::Stage;
use braid_runtime::nf::packet::key::SetDef;
use braid_runtime::steer::planner::{self, HashPlan, Locality, Outcome};
use braid_runtime::steer::{Key, Pattern, checker};
use serde::Serialize;

use crate::compile::{Carry, members};
use crate::plan::Plan;
use crate::plan_file::Problem;

/// Everything that is decided about a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Worker threads.
    pub workers: usize,
    /// Ports.
    pub ports: u16,
    /// Most packets in a batch.
    pub batch: usize,
    /// The functions, in order.
    pub functions: Vec<FunctionPart>,
    /// Records of packet sets.
    pub groups: Vec<GroupPart>,
    /// Which packet goes to which worker.
    pub steering: SteeringPart,
    /// What the named NIC can do of it; one judgement per packet-set group.
    pub nic: Vec<NicPart>,
    /// Metadata beside the packets.
    pub metadata: MetadataPart,
}

/// One function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionPart {
    /// Its name in the plan.
    pub name: String,
    /// Which function it is.
    pub function: String,
    /// Its packet set in words; none if every packet is an orphan.
    pub packet_set: Option<String>,
    /// Packet-set state and state objects.
    pub state: Vec<StatePart>,
    /// How long its periods are, in milliseconds.
    pub ticks_ms: Vec<u64>,
}

/// One piece of state.
#[derive(Clone, Debug, Serialize)]
pub struct StatePart {
    /// Its name.
    pub name: String,
    /// `packet-set state`, `Map`, `Vector`, `Allocator` or `Distributed`.
    pub kind: String,
    /// `local`, `indexed`, `transactional` or `distributed`.
    pub placement: &'static str,
    /// Why it is placed so.
    pub why: String,
    /// Most elements; for packet-set state, sets over all workers.
    pub capacity: usize,
    /// Bytes of memory; for packet-set state, of one set.
    pub bytes: usize,
}

/// Functions that share a record.
#[derive(Clone, Debug, Serialize)]
pub struct GroupPart {
    /// Its packet set.
    pub packet_set: String,
    /// The functions.
    pub functions: Vec<String>,
    /// Bytes of their state in one record.
    pub state_bytes: usize,
}

/// Which packet goes to which worker.
#[derive(Clone, Debug, Serialize)]
pub struct SteeringPart {
    /// Fields that are hashed.
    pub fields: Vec<String>,
    /// Whether both directions hash alike.
    pub symmetric: bool,
    /// `hardware` or `software`.
    pub distribution: &'static str,
    /// Key of the Toeplitz hash.
    pub key: String,
    /// What it means for each function.
    pub outcomes: Vec<String>,
    /// What else could be hashed, best first.
    pub alternatives: Vec<String>,
}

/// A NIC's judgement.
#[derive(Clone, Debug, Serialize)]
pub struct NicPart {
    /// The packet set.
    pub packet_set: String,
    /// Whether it stays on one queue.
    pub fits: bool,
    /// Why, and what to do.
    pub words: String,
}

/// Metadata beside the packets.
#[derive(Clone, Debug, Serialize)]
pub struct MetadataPart {
    /// Bytes of the record that every packet has.
    pub record_bytes: usize,
    /// Bytes of the extension that this chain needs.
    pub extension_bytes: usize,
    /// Its fields.
    pub fields: Vec<FieldPart>,
    /// First-level cache lines that a full batch touches: headers, records, extensions.
    pub cache_lines_per_batch: [usize; 3],
}

/// One metadata field.
#[derive(Clone, Debug, Serialize)]
pub struct FieldPart {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u8,
    /// Where it lies in the extension; none if nobody reads it, so that it is not written.
    pub offset: Option<u16>,
    /// Who writes it.
    pub written_by: Vec<String>,
    /// Who reads it.
    pub read_by: Vec<String>,
}

/// Explains a plan.
pub fn explain(plan: &Plan) -> Result<Explanation, Problem> {
    let chain = plan.probe(Carry::Capture)?;
    let hash = planner::plan_with(&members(&chain), plan.course.outside());
    let functions = chain.stages().iter().zip(&hash.chosen.outcomes);
    Ok(Explanation {
        workers: plan.workers,
        ports: plan.ports,
        batch: plan.batch,
        functions: functions.map(|(stage, outcome)| function(plan, &**stage, outcome)).collect(),
        groups: groups(&chain),
        steering: steering(plan, &hash),
        nic: nic(plan, &chain),
        metadata: metadata(plan, &chain),
    })
}

/// A packet set in words.
pub fn set_in_words(set: &SetDef) -> String {
    let fields: Vec<&str> = set.fields.iter().map(|field| field.name()).collect();
    let way = if set.symmetric { ", both directions" } else { "" };
    let only = set.protocols.as_ref().map(|numbers| format!(", protocols {numbers:?} only")).unwrap_or_default();
    format!("{} ({}{way}{only})", set.name, fields.join(", "))
}

fn function(plan: &Plan, stage: &dyn Stage, outcome: &Outcome) -> FunctionPart {
    let mut state = Vec::new();
    if stage.packet_set().is_some() && stage.set_bytes() > 0 {
        let local = outcome.locality == Locality::Local || plan.workers == 1;
        let why = if plan.workers == 1 { "there is one worker".to_owned() } else { outcome.explanation.clone() };
        state.push(StatePart {
            name: format!("{}.set", stage.name()),
            kind: "packet-set state".to_owned(),
            placement: if local { "local" } else { "transactional" },
            why,
            capacity: plan.sets,
            bytes: stage.set_bytes(),
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
            _ => ("transactional", "shared by packet sets of all workers: accessed in transactions"),
        };
        state.push(StatePart {
            name: object.name().to_owned(),
            kind: object.kind().to_owned(),
            placement,
            why: why.to_owned(),
            capacity: object.capacity(),
            bytes: object.memory_bytes(),
        });
    }
    FunctionPart {
        name: stage.name().to_owned(),
        function: stage.kind().to_owned(),
        packet_set: stage.packet_set().as_ref().map(set_in_words),
        state,
        ticks_ms: stage.ticks().iter().map(|period| period.as_millis() as u64).collect(),
    }
}

fn groups(chain: &Chain) -> Vec<GroupPart> {
    let name = |&position: &usize| chain.stages()[position].name().to_owned();
    let group = |group: &braid_runtime::chain::Group| GroupPart {
        packet_set: set_in_words(&group.set),
        functions: group.stages.iter().map(name).collect(),
        state_bytes: group.state_bytes,
    };
    chain.groups().iter().map(group).collect()
}

fn steering(plan: &Plan, hash: &HashPlan) -> SteeringPart {
    SteeringPart {
        fields: hash.chosen.fields.iter().map(|field| field.name().to_owned()).collect(),
        symmetric: hash.chosen.symmetric,
        distribution: match plan.distribution {
            braid_runtime::Distribution::Hardware => "hardware",
            braid_runtime::Distribution::Software => "software",
        },
        key: Key::microsoft().to_string(),
        outcomes: hash.chosen.outcomes.iter().map(|outcome| outcome.explanation.clone()).collect(),
        alternatives: hash.alternatives.iter().map(ToString::to_string).collect(),
    }
}

fn nic(plan: &Plan, chain: &Chain) -> Vec<NicPart> {
    let Some(nic) = plan.nic else { return Vec::new() };
    let judge = |group: &braid_runtime::chain::Group| {
        let verdict = checker::check(&Pattern::from(&group.set), nic);
        NicPart { packet_set: group.set.name.clone(), fits: verdict.fits(), words: verdict.to_string() }
    };
    chain.groups().iter().map(judge).collect()
}

fn metadata(plan: &Plan, chain: &Chain) -> MetadataPart {
    let layout = chain.layout();
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
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} workers, {} ports, batches of at most {}", self.workers, self.ports, self.batch)?;
        self.functions.iter().try_for_each(|function| write!(f, "\n{function}"))?;
        writeln!(f, "\nrecords of packet sets (one look-up each)")?;
        for group in &self.groups {
            let who = group.functions.join(", ");
            writeln!(f, "  {}: {} bytes of state for {who}", group.packet_set, group.state_bytes)?;
        }
        if self.groups.is_empty() {
            writeln!(f, "  none: no function keeps state per packet set")?;
        }
        write!(f, "\n{}", self.steering)?;
        for nic in &self.nic {
            writeln!(f, "\nNIC, for {}\n{}", nic.packet_set, nic.words.trim_end())?;
        }
        write!(f, "\n{}", self.metadata)
    }
}

impl fmt::Display for FunctionPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)?;
        if self.name != self.function {
            write!(f, " ({})", self.function)?;
        }
        match &self.packet_set {
            Some(set) => writeln!(f, ": packet set {set}")?,
            None => writeln!(f, ": no packet sets, every packet is an orphan")?,
        }
        for state in &self.state {
            let StatePart { name, kind, placement, why, capacity, bytes } = state;
            let size = if kind == "packet-set state" { format!("{bytes} bytes a set") } else { human_bytes(*bytes) };
            writeln!(f, "  {placement:<13} {name} ({kind}, at most {capacity}, {size})\n{:16}{why}", "")?;
        }
        if self.state.is_empty() {
            writeln!(f, "  no state")?;
        }
        Ok(())
    }
}

impl fmt::Display for SteeringPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.symmetric { ", both directions alike" } else { "" };
        writeln!(f, "steering ({}): hash {}{way}", self.distribution, self.fields.join(", "))?;
        writeln!(f, "  Toeplitz key {}", self.key)?;
        self.outcomes.iter().try_for_each(|outcome| writeln!(f, "  {outcome}"))?;
        self.alternatives.iter().try_for_each(|other| writeln!(f, "  instead: {other}"))
    }
}

impl fmt::Display for MetadataPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [headers, records, extensions] = self.cache_lines_per_batch;
        writeln!(f, "metadata: {} + {} bytes a packet", self.record_bytes, self.extension_bytes)?;
        for field in &self.fields {
            let place = field.offset.map_or("not carried".to_owned(), |offset| format!("at byte {offset}"));
            let read = if field.read_by.is_empty() { "nobody".to_owned() } else { field.read_by.join(", ") };
            writeln!(
                f,
                "  {:<14} {} bytes, {place}; written by {}; read by {read}",
                field.name,
                field.bytes,
                field.written_by.join(", ")
            )?;
        }
        let total = headers + records + extensions;
        writeln!(
            f,
            "  a full batch touches {total} first-level cache lines: {headers} of headers, {records} of records, {extensions} of extensions"
        )
    }
}

/// Bytes as people read them.
pub fn human_bytes(bytes: usize) -> String {
    const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}
