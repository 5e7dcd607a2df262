//! The programming model: what the author of a network function imports, and nothing heavy.
//!
//! A function is one type with sequential handlers ([`NetworkFunction`]). Its packet-set state is an associated plain type;
//! its aggregate state consists of objects of `braid-state`, declared in [`network_function!`] and reached only through the
//! transaction ([`Cx`]) that a handler is given. Conflicts propagate by `?`: the handler may then run again, and whatever the
//! attempt did to the packet, to set state, to objects and to the output never happened.
//!
//! [`Stage`] is the same function with its types erased, as a chain holds it: one dynamic call per function and batch, and
//! inside it a loop over packets that the compiler sees as a whole.

#![forbid(unsafe_code)]

mod cx;
mod declare;
mod findings;
mod function;
mod index;
mod pass;
#[cfg(doctest)]
mod refusals;
mod sets;
mod shared;
mod stage;
pub mod suggest;
mod verdict;

pub use braid_memory::prefetch_read;
pub use braid_packet as packet;
pub use braid_state as state;

pub use braid_packet::{Packet, Port};
pub use braid_state::{Conflict, Plain, SetMeta};
pub use cx::{Came, Cx, Emitted, Leg, opposite};
pub use declare::{Declare, Part};
pub use findings::{Finding, Findings};
pub use function::{Arrival, FieldUse, Handled, NetworkFunction, Relaxation, Rewrites, Tick};
pub use index::Index;
pub use pass::{AHEAD, Beginning, Found, Interrupted, Logs, Pass, PassSets, Place, Prefetched, TakenBack};
pub use sets::{Candidate, Carry, Former, FormerSlot, MOVED_MAX, NewSet, SetSlot, SetTables, SetUndo, Whereabouts};
pub use shared::{Lives, SHARED_STATE_MAX, SharedSet, shared_sets_name};
pub use stage::{Event, Instance, ShareError, Stage};
pub use verdict::{EVERY_PORT, PORTS_MAX, Reason, Verdict, Verdicts};

/// What a function's file begins with: `use braid_nf::prelude::*;`
pub mod prelude {
    pub use crate::packet::headers;
    pub use crate::packet::key::{FieldId, SetDef, SetKey};
    pub use crate::state::{Allocator, Alone, Conflict, Distributed, Lease, Map, Plain, StateBuilder, Vector};
    pub use crate::{
        Arrival, Cx, Findings, Handled, NetworkFunction, NewSet, Packet, Port, Reason, Rewrites, Tick, Verdict,
        network_function,
    };
    pub use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
}
