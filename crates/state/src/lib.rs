//! The structures in which network functions keep their state.
//!
//! | structure | placement | for |
//! |---|---|---|
//! | [`FlowTable`] | local: one worker's own | what belongs to one packet set |
//! | [`Map`], [`Vector`], [`Allocator`] | transactional | what packet sets share |
//! | [`Distributed`], [`DistributedVector`] | per worker, merged | sums that many workers change and few read |
//! | [`Numbering`] | never changes | numbers by which state speaks of what is configured |
//!
//! Every transactional operation returns `Result<_, Conflict>`, to be handed on with `?`. Operations that commute do not
//! conflict: allocating, freeing and refreshing leases; updating different entries of a map; updating one's own part of a
//! distributed object. What is left is in [`causes`], as data, with a recipe for each pair of operations.
//!
//! Keys and values are [`Plain`] data, copied in and out. `unsafe` is in `raw/` only.

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
pub use map::{Handle, Held, Inserted, Map, MapConfig, Vacancy, Visit, keys_of_image};
pub use numbering::Numbering;
pub use object::{Disagreement, Named, Parted, StateBuilder, StateError, StateObject};
pub use plain::Plain;
pub use share::{ROW, Share};
pub use succession::{BROUGHT_MAX, Beyond, Bringing, Brought, Pair, Succeed, Succession};
pub use vector::{Vector, VectorConfig};
