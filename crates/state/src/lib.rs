//! The structures in which network functions keep their state.
//!
//! | structure | placement | for |
//! |---|---|---|
//! | [`FlowTable`] | local to one worker | state of packet sets |
//! | [`Map`], [`Vector`], [`Allocator`] | transactional | state that packet sets share |
//! | [`Distributed`], [`DistributedVector`] | per worker, merged | sums that are changed by many workers and read rarely |
//! | [`Numbering`] | immutable | numbers by which state refers to configured things |
//!
//! Every transactional operation returns `Result<_, Conflict>`, which a caller passes on with `?`. Operations that commute do not conflict:
//! allocating, freeing and refreshing leases; updating different entries of a map; updating a worker's own part of a distributed
//! object. The remaining conflicts are listed in [`causes`] as data, with a recipe for each pair of operations.
//!
//! Keys and values are [`Plain`] data that is copied in and out. `unsafe` is confined to `raw/`.
#![deny(unsafe_code)]

mod allocator;
mod buckets;
pub mod causes;
mod distributed;
mod distributed_vector;
mod flow_table;
pub mod hash;
mod image;
mod map;
mod numbering;
mod object;
mod plain;
mod pool;
mod raw;
mod share;
mod succession;
mod vector;

pub use allocator::{Allocator, AllocatorConfig, Lease};
pub use braid_stm::{Alone, Conflict, Domain, HugePages, MemoryError, ObjectId, Savepoint, Solitude, Tx};
pub use distributed::{Distributed, DistributedConfig};
pub use distributed_vector::{DistributedVector, DistributedVectorConfig};
pub use flow_table::{FlowTable, NO_SLOT, Records, SetMeta, Slot, States, TableFull};
pub use image::{Image, ImageError};
pub use map::{Handle, Inserted, Locked, Map, MapConfig, Vacancy, Visit, entries_of_image, image_of_entries};
pub use numbering::Numbering;
pub use object::{Decided, Disagreement, Named, Parted, StateBuilder, StateError, StateObject, Surroundings};
pub use plain::Plain;
pub use share::{ROW, Share};
pub use succession::{BROUGHT_MAX, Beyond, Bringing, Brought, Pair, Succeed, Succession};
pub use vector::{Vector, VectorConfig};
