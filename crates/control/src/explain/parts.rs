//! What an explanation says: inert data, as `braid plan --json` prints it.

use serde::Serialize;

use crate::memory::Memory;

/// Everything that is decided about a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Worker threads.
    pub workers: usize,
    /// Ports.
    pub ports: u16,
    /// Most packets in a batch.
    pub batch: usize,
    /// In which order packets meet the functions.
    pub order: OrderPart,
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
    /// Cache lines that a packet touches.
    pub accesses: AccessPart,
    /// Memory that state may come to use.
    pub memory: Memory,
}

/// In which order packets meet the functions.
#[derive(Clone, Debug, Serialize)]
pub struct OrderPart {
    /// Packets from inside, or all.
    pub from_inside: Vec<String>,
    /// Packets from outside, if they go another way.
    pub from_outside: Option<Vec<String>>,
    /// The ports outside, if that matters.
    pub outside: Vec<u16>,
    /// What of a packet's way is one transaction: its part in each `function`, or in the whole `chain`.
    pub atomic: &'static str,
}

/// Cache lines that the framework touches for a packet, on average over a full batch.
#[derive(Clone, Debug, Serialize)]
pub struct AccessPart {
    /// Of headers, records and extensions.
    pub packet: f64,
    /// Of the tables of packet sets, of IPv4 packets and of IPv6 packets, if every packet meets every function.
    pub sets: [usize; 2],
    /// Of state objects, if handlers use each of them once.
    pub objects: usize,
    /// Of state objects at most, where functions need no more than the packet, its set and one look
    /// ([`NetworkFunction::steady`](braid_runtime::nf::NetworkFunction::steady)): most packets of live sets.
    pub objects_steady: usize,
}

/// One function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionPart {
    /// Its name in the plan.
    pub name: String,
    /// Which function it is.
    pub function: String,
    /// Which packets meet it, in words; none if all do.
    pub when: Option<String>,
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
    /// `local`, `indexed`, `transactional`, `distributed` or `constant`.
    pub placement: &'static str,
    /// Why it is placed so.
    pub why: String,
    /// Most elements; for packet-set state, sets over all workers.
    pub capacity: usize,
    /// Bytes of memory; for packet-set state, of one set.
    pub bytes: usize,
    /// Cache lines that one use touches; of packet-set state none, for they are those of its record.
    pub lines: usize,
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
    /// Whether steering keeps each set on one worker; if not, sets are shared in transactional maps, one for each function.
    pub local: bool,
    /// Bytes of a record with a short key (IPv4) and with a long one (IPv6).
    pub record_bytes: [usize; 2],
    /// Cache lines that a look-up touches, likewise.
    pub lines: [usize; 2],
    /// What becomes of a new set when the table is full: `refuse` or `evict_oldest`.
    pub full: &'static str,
    /// Why it shares no record with an earlier group of the same packet set.
    pub apart: Option<String>,
}

/// Which packet goes to which worker.
#[derive(Clone, Debug, Serialize)]
pub struct SteeringPart {
    /// Fields that are hashed.
    pub fields: Vec<String>,
    /// Whether both directions hash alike.
    pub symmetric: bool,
    /// Whether the fields are those of packets from inside, and of packets from outside their opposites.
    pub by_sides: bool,
    /// `hardware` or `software`.
    pub distribution: &'static str,
    /// Whether entries of the indirection table move between workers, with their packet sets.
    pub balanced: bool,
    /// Longest time in microseconds for which a worker gathers packets into a batch.
    pub gather_us: u64,
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
    /// Bytes of the first-level cache for data: this machine's, or 32 KiB if it does not tell.
    pub first_level_bytes: usize,
    /// Whether this machine told.
    pub first_level_is_known: bool,
    /// Largest batch of which these fill at most half of that cache.
    pub batch_that_fits: usize,
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
