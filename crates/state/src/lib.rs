//! State objects of network functions.

mod flow_table;
mod raw;

pub use flow_table::{FlowTable, NO_SLOT, SetMeta, Slot, TableFull};

/// Plain data: any bytes are a value, and a value is its bytes.
pub trait Plain:
    Copy + zerocopy::FromBytes + zerocopy::IntoBytes + zerocopy::Immutable + zerocopy::KnownLayout + Send + Sync + 'static
{
}
impl<
    T: Copy
        + zerocopy::FromBytes
        + zerocopy::IntoBytes
        + zerocopy::Immutable
        + zerocopy::KnownLayout
        + Send
        + Sync
        + 'static,
> Plain for T
{
}
