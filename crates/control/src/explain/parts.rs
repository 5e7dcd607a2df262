//! The parts of an explanation: inert data, as `braid plan --json` prints it.

use serde::Serialize;

use crate::memory::Memory;

/// All decisions about a plan.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// Worker threads.
    pub workers: usize,
    /// Number of ports.
    pub ports: u16,
    /// Maximum number of packets in a batch.
    pub batch: usize,
    /// In which order packets traverse the functions.
    pub order: OrderPart,
    /// The functions, in order.
    pub functions: Vec<FunctionPart>,
    /// Groups of functions that share a record for each packet set.
    pub groups: Vec<GroupPart>,
    /// Which packets go to which worker.
    pub steering: SteeringPart,
    /// What the named NIC can do of the steering; one assessment for each packet-set group.
    pub nic: Vec<NicPart>,
    /// Metadata stored beside the packets.
    pub metadata: MetadataPart,
    /// Cache lines that a packet touches.
    pub accesses: AccessPart,
    /// Memory that state may need.
    pub memory: Memory,
}

/// In which order packets traverse the functions.
#[derive(Clone, Debug, Serialize)]
pub struct OrderPart {
    /// The order for packets from inside, or for all packets.
    pub from_inside: Vec<String>,
    /// The order for packets from outside, if it differs.
    pub from_outside: Option<Vec<String>>,
    /// The outside ports, if they matter.
    pub outside: Vec<u16>,
    /// The functions that name no sides and have these, although by default theirs would be others.
    pub given_sides: Vec<String>,
    /// How much of a packet's processing is one transaction: its part in each `function`, or in the whole `chain`.
    pub atomic: &'static str,
}

/// Cache lines that the framework touches per packet, averaged over a full batch.
#[derive(Clone, Debug, Serialize)]
pub struct AccessPart {
    /// Lines of headers, records and extensions.
    pub packet: f64,
    /// Lines of packet-set tables, for IPv4 and for IPv6 packets, if every packet reaches every function.
    pub sets: [usize; 2],
    /// Lines of state objects, if handlers use each object once.
    pub objects: usize,
    /// Maximum lines of state objects, where functions need only the packet, its set and one read of shared state
    /// ([`NetworkFunction::steady`](braid_runtime::nf::NetworkFunction::steady)). This applies to most packets of live sets.
    pub objects_steady: usize,
}

/// One function.
#[derive(Clone, Debug, Serialize)]
pub struct FunctionPart {
    /// Its name in the plan.
    pub name: String,
    /// Name of the function in the catalog.
    pub function: String,
    /// Which packets reach it, in words; `None` if all do.
    pub when: Option<String>,
    /// Its packet set in words; `None` if every packet is an orphan.
    pub packet_set: Option<String>,
    /// Packet-set state and state objects.
    pub state: Vec<StatePart>,
    /// Its tick periods, in milliseconds.
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
    /// Why this placement was chosen.
    pub why: String,
    /// Maximum number of elements; for packet-set state, of sets over all workers.
    pub capacity: usize,
    /// Bytes of memory; for packet-set state, bytes per set.
    pub bytes: usize,
    /// Cache lines that one use touches; zero for packet-set state, which is counted with its record.
    pub lines: usize,
}

/// A group of functions that share a record for each packet set.
#[derive(Clone, Debug, Serialize)]
pub struct GroupPart {
    /// The packet set.
    pub packet_set: String,
    /// The functions.
    pub functions: Vec<String>,
    /// Bytes of the functions' state in one record.
    pub state_bytes: usize,
    /// Whether steering keeps each set on one worker; if not, sets are shared in transactional maps, one for each function.
    pub local: bool,
    /// Bytes of a record with a short key (IPv4) and with a long key (IPv6).
    pub record_bytes: [usize; 2],
    /// Cache lines that a look-up touches, with a short and with a long key.
    pub lines: [usize; 2],
    /// What happens to a new set when the table is full: `refuse` or `evict_oldest`.
    pub full: &'static str,
    /// Why the group does not share a record with an earlier group of the same packet set.
    pub apart: Option<String>,
}

/// Which packets go to which worker.
#[derive(Clone, Debug, Serialize)]
pub struct SteeringPart {
    /// Header fields that are hashed.
    pub fields: Vec<String>,
    /// Whether both directions have the same hash.
    pub symmetric: bool,
    /// Whether `fields` applies to packets from inside, and the opposite fields to packets from outside.
    pub by_sides: bool,
    /// Whether hashed ports include those of UDP.
    pub udp_ports: bool,
    /// The reason, where functions follow fragments or the plan has `steer_udp_ports`.
    pub udp_why: Option<String>,
    /// `hardware` or `software`.
    pub distribution: &'static str,
    /// Whether entries of the indirection table move between workers, together with their packet sets.
    pub balanced: bool,
    /// Maximum time in microseconds for which a worker gathers packets into a batch.
    pub gather_us: u64,
    /// Key of the Toeplitz hash.
    pub key: String,
    /// Consequences for each function.
    pub outcomes: Vec<String>,
    /// Alternative choices of fields, best first.
    pub alternatives: Vec<String>,
}

/// What a NIC can do for one packet set.
#[derive(Clone, Debug, Serialize)]
pub struct NicPart {
    /// The packet set.
    pub packet_set: String,
    /// Whether the NIC can keep each set on one queue.
    pub fits: bool,
    /// The reason, and what to do.
    pub words: String,
}

/// Metadata stored beside the packets.
#[derive(Clone, Debug, Serialize)]
pub struct MetadataPart {
    /// Bytes of the record that every packet has.
    pub record_bytes: usize,
    /// Bytes of the extension that this chain needs per packet.
    pub extension_bytes: usize,
    /// The fields of the extension.
    pub fields: Vec<FieldPart>,
    /// First-level cache lines that a full batch touches: headers, records, extensions.
    pub cache_lines_per_batch: [usize; 3],
    /// Bytes of the first-level data cache: of this machine, or 32 KiB if it does not report its size.
    pub first_level_bytes: usize,
    /// Whether this machine reported the size.
    pub first_level_is_known: bool,
    /// Largest batch for which these lines fill at most half of that cache.
    pub batch_that_fits: usize,
}

/// One metadata field.
#[derive(Clone, Debug, Serialize)]
pub struct FieldPart {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u8,
    /// Offset in the extension; `None` if nobody reads the field, in which case it is not written.
    pub offset: Option<u16>,
    /// The parties that write it.
    pub written_by: Vec<String>,
    /// The parties that read it.
    pub read_by: Vec<String>,
}
