//! The operations of each structure, which pairs of them conflict and why, and what an author can do about it.
//!
//! There is one enum per structure. Its numbers are stored in object headers, so that an abort knows the operations of both sides. [`CAUSES`] is
//! the table; documentation and profiler print the same rows.

use braid_stm::{ConflictKind, ConflictReport, Op, Part};

macro_rules! operations {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $number:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant = $number,)* }

        impl $name {
            /// All operations.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// The operation as stored in headers and reports.
            pub const fn op(self) -> Op {
                Op::new(self as u8)
            }

            /// The operation with this number.
            pub fn from_op(op: Op) -> Option<$name> {
                match op.number() { $($number => Some($name::$variant),)* _ => None }
            }

            /// The operation's name in reports.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

operations! {
    /// Operations of a [`Map`](crate::Map).
    MapOp {
        /// Look-up by key.
        Get = 1 "get",
        /// Insertion of a new key.
        Insert = 2 "insert",
        /// Change of the value of an existing key.
        Update = 3 "update",
        /// Removal of a key.
        Remove = 4 "remove",
        /// Look-up by handle.
        ValueAt = 5 "value_at",
        /// Change by handle.
        UpdateAt = 6 "update_at",
        /// A tick's walk over entries.
        Scan = 7 "scan",
    }
}

operations! {
    /// Operations of a [`Vector`](crate::Vector).
    VectorOp {
        /// Read of an element.
        Get = 1 "get",
        /// Replacement of an element.
        Set = 2 "set",
        /// Read and change of an element.
        Update = 3 "update",
    }
}

operations! {
    /// Operations of an [`Allocator`](crate::Allocator).
    AllocatorOp {
        /// Allocation of a resource.
        Allocate = 1 "allocate",
        /// Renewal of a lease.
        Refresh = 2 "refresh",
        /// Return of a resource.
        Free = 3 "free",
        /// Check whether a lease is live.
        IsLive = 4 "is_live",
        /// Revocation of a lease that is too old.
        Expire = 5 "expire",
    }
}

operations! {
    /// Operations of a [`Distributed`](crate::Distributed).
    DistributedOp {
        /// Change of a worker's own part.
        Update = 1 "update",
        /// Merge of all parts.
        Read = 2 "read",
    }
}

/// Why two operations conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The kind of structure.
    pub kind: &'static str,
    /// The arena of the structure.
    pub part: Part,
    /// The operation that had to be repeated.
    pub mine: &'static str,
    /// The operation that had committed.
    pub theirs: &'static str,
    /// What they conflicted over.
    pub why: &'static str,
    /// What may be relaxed.
    pub recipe: &'static str,
}

/// The map's arena of buckets.
pub const MAP_BUCKETS: Part = Part(0);
/// The map's arena of entries.
pub const MAP_ENTRIES: Part = Part(1);
/// The watch object of a map's or allocator's pool, read by operations that were told that nothing is free.
pub const POOL_WATCH: Part = Part(2);
/// The allocator's arena of leases, seven per line.
pub const LEASES: Part = Part(0);

const SAME_KEY: &str = "the same key";
const SAME_BUCKET: &str = "different keys in the same bucket";
const HOT_KEY: &str =
    "make the key's packet set finer or steer it to one worker; if the value is a sum, use Distributed";
const BIGGER_MAP: &str = "a bigger capacity or another hash spreads the keys over more buckets";
const EARLY_MISS: &str = "the key came or went while it was looked up; that is the packets' order, nothing to relax";
const HOT_ELEMENT: &str =
    "if the element is a sum, use Distributed with a staleness; else give each worker its own element";
const OVERPROVISION: &str = "have more resources than are ever leased at once (a few per cent spare per worker)";
const SAME_LEASE: &str = "one lease used by two workers: steer its packet sets to one worker";
const LONGER_VALIDITY: &str = "a lease is refreshed just as it expires: a longer validity or a finer precision";
const STALENESS: &str = "allow a staleness above zero: readers then merge at most that often and never conflict";

/// Expands to `CAUSES`, from rows of the form `kind part: mine / theirs, … => why, recipe;`.
macro_rules! causes {
    ($($kind:literal $part:ident: $($mine:literal / $theirs:literal),+ => $why:expr, $recipe:expr;)*) => {
        /// Every pair of operations that can conflict.
        pub const CAUSES: &[Cause] = &[
            $($(Cause { kind: $kind, part: $part, mine: $mine, theirs: $theirs, why: $why, recipe: $recipe },)+)*
        ];
    };
}

const ELEMENTS: Part = Part(0);
const PARTS: Part = Part(0);

causes! {
    "Map" MAP_ENTRIES: "get" / "update", "get" / "update_at", "value_at" / "update", "value_at" / "update_at",
        "update" / "update", "update" / "update_at", "update_at" / "update", "update_at" / "update_at",
        "insert" / "update", "insert" / "update_at", "remove" / "update", "remove" / "update_at",
        "scan" / "update", "scan" / "update_at", "get" / "scan", "value_at" / "scan", "update" / "scan",
        "update_at" / "scan", "remove" / "scan", "insert" / "scan", "scan" / "scan" => SAME_KEY, HOT_KEY;
    "Map" MAP_ENTRIES: "get" / "remove", "update" / "remove", "value_at" / "remove", "update_at" / "remove",
        "insert" / "remove", "remove" / "remove", "get" / "insert", "update" / "insert", "value_at" / "insert",
        "update_at" / "insert", "insert" / "insert", "remove" / "insert", "scan" / "insert", "scan" / "remove"
        => SAME_KEY, EARLY_MISS;
    "Map" MAP_BUCKETS: "get" / "insert", "get" / "remove", "update" / "insert", "update" / "remove",
        "insert" / "insert", "insert" / "remove", "remove" / "insert", "remove" / "remove", "get" / "scan",
        "update" / "scan", "insert" / "scan", "remove" / "scan", "scan" / "insert", "scan" / "remove", "scan" / "scan"
        => SAME_BUCKET, BIGGER_MAP;
    "Map" POOL_WATCH: "insert" / "remove", "insert" / "insert", "insert" / "scan", "remove" / "insert",
        "remove" / "remove", "remove" / "scan", "scan" / "insert", "scan" / "remove", "scan" / "scan"
        => "the map is full", "a bigger capacity, or a shorter timeout of its entries";
    "Vector" ELEMENTS: "get" / "set", "get" / "update", "set" / "set", "set" / "update", "update" / "set",
        "update" / "update" => "the same element", HOT_ELEMENT;
    "Allocator" LEASES: "refresh" / "free", "refresh" / "expire", "is_live" / "free", "is_live" / "expire",
        "free" / "free", "free" / "expire", "expire" / "free", "expire" / "expire", "refresh" / "allocate",
        "is_live" / "allocate", "free" / "allocate", "expire" / "allocate", "allocate" / "allocate",
        "allocate" / "free", "allocate" / "expire" => "the same lease, or one on the same cache line", SAME_LEASE;
    "Allocator" LEASES: "expire" / "refresh" => "the lease was refreshed while it was taken away", LONGER_VALIDITY;
    "Allocator" POOL_WATCH: "allocate" / "free", "allocate" / "expire", "allocate" / "allocate", "free" / "allocate",
        "free" / "free", "free" / "expire", "expire" / "allocate", "expire" / "free", "expire" / "expire"
        => "no resource is left", OVERPROVISION;
    "Distributed" PARTS: "read" / "update" => "a merge of the latest parts while another worker changes its own", STALENESS;
}

/// The name of an operation of a structure of this kind.
pub fn operation(kind: &str, op: Op) -> Option<&'static str> {
    match kind {
        "Map" => MapOp::from_op(op).map(MapOp::name),
        "Vector" => VectorOp::from_op(op).map(VectorOp::name),
        "Allocator" => AllocatorOp::from_op(op).map(AllocatorOp::name),
        "Distributed" => DistributedOp::from_op(op).map(DistributedOp::name),
        _ => None,
    }
}

/// The row of the table that explains an abort on an object of this kind; `None` for turns.
pub fn cause(kind: &str, report: &ConflictReport) -> Option<&'static Cause> {
    cause_of(kind, report.kind, report.part, report.mine, report.theirs)
}

/// Like [`cause`], from the parts of a report.
pub fn cause_of(kind: &str, conflict: ConflictKind, part: Part, mine: Op, theirs: Op) -> Option<&'static Cause> {
    let (mine, theirs, part) = match conflict {
        ConflictKind::Turn => return None,
        ConflictKind::Refused => ("expire", "refresh", LEASES),
        ConflictKind::Exclusive => match kind {
            "Map" => ("insert", "insert", POOL_WATCH),
            _ => ("allocate", "allocate", POOL_WATCH),
        },
        ConflictKind::Locked | ConflictKind::Changed => (operation(kind, mine)?, operation(kind, theirs)?, part),
    };
    CAUSES.iter().find(|c| c.kind == kind && c.part == part && c.mine == mine && c.theirs == theirs)
}

/// The table of one structure in Markdown, as printed in its documentation.
pub fn table(kind: &str) -> String {
    let mut out = String::from("| operation | met | over | recipe |\n|---|---|---|---|\n");
    for cause in CAUSES.iter().filter(|cause| cause.kind == kind) {
        let Cause { mine, theirs, why, recipe, .. } = cause;
        out.push_str(&format!("| {mine} | {theirs} | {why} | {recipe} |\n"));
    }
    out
}
