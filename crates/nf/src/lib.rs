//! The programming model: everything that the author of a network function imports.
//!
//! A function is one type with sequential handlers, the trait [`NetworkFunction`]. It has two kinds of state:
//!
//! - **Packet-set state** belongs to one packet set (a flow). It is a plain associated type,
//!   [`NetworkFunction::Set`], and a handler gets it as `&mut`.
//! - **Aggregate state** is shared by packet sets. It consists of objects of `braid-state` (maps, vectors, allocators),
//!   declared as fields in [`network_function!`], and is accessed only through the transaction passed to each handler,
//!   [`Cx`].
//!
//! An operation of a state object may return a conflict with another worker; handlers pass it on with `?`. The handler
//! may then run again. Everything that the aborted attempt did to the packet, to set state, to objects and to the
//! output is undone. A handler returns a [`Verdict`] about its packet.
//!
//! An author needs the [`prelude`]. The rest is for the runtime: [`Stage`] is the type-erased form of a function, as
//! stored in a chain. A batch costs one dynamic call per function; the loop over packets is inside that call, where the
//! compiler sees it as a whole.

#![forbid(unsafe_code)]

mod cx;
mod declare;
mod findings;
mod function;
mod index;
mod listed;
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
pub use cx::{Came, Cx, Emitted, Leg, Round, opposite};
pub use declare::{Declare, Part};
pub use findings::{Finding, Findings};
pub use function::{Arrival, FieldUse, Hairpins, Handled, NetworkFunction, Relaxation, Rewrites, Tick};
pub use index::Index;
pub use listed::{About, EntryRange, Fate, SetMeaning, TableEntry, end_in_words, in_tables};
pub use pass::{AHEAD, Beginning, Found, Interrupted, Logs, Pass, PassSets, Place, Prefetched, TakenBack};
pub use sets::{Candidate, Carry, Former, FormerSlot, MOVED_MAX, NewSet, SetSlot, SetTables, SetUndo, Whereabouts};
pub use shared::{
    Lives, SHARED_STATE_MAX, SharedSet, image_of_shared, shared_in_image, shared_of_image, shared_sets_name,
};
pub use stage::{Event, Instance, ShareError, Stage};
pub use verdict::{EVERY_PORT, PORTS_MAX, Reason, Verdict, Verdicts};

/// The prelude, imported at the top of a function's file: `use braid_nf::prelude::*;`
pub mod prelude {
    pub use crate::packet::headers;
    pub use crate::packet::key::{FieldId, SetDef, SetKey};
    pub use crate::state::{Allocator, Alone, Conflict, Distributed, DistributedVector, Lease, Map, Plain};
    pub use crate::state::{StateBuilder, Vector};
    pub use crate::{
        Arrival, Cx, Findings, Handled, NetworkFunction, NewSet, Packet, Port, Reason, Rewrites, Tick, Verdict,
        network_function,
    };
    /// What state has to derive ([`Plain`]). The derives name the crate `zerocopy`: a crate that uses them needs it among its dependencies.
    pub use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
}
