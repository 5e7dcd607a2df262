//! Ports that are interfaces: how the user names them, how they are opened, and the source and sink over all of them.
//!
//! ```text
//!  af_packet, af_xdp, dpdk, tap, memif ──▶ RxPort ─┐                             ┌─▶ TxPort ──▶ …
//!  af_packet, af_xdp, dpdk, tap, memif ──▶ RxPort ─┴─▶ RxQueue ─▶ … ─▶ TxQueue ──┴─▶ TxPort ──▶ …
//! ```
//!
//! Every back end fills a batch with frames as they appear on the wire, including checksums (`offload`), and counts what it could
//! not deliver or send. Everything it opens is closed with it, even after `kill -9`: nothing stays behind in the kernel.

mod claim;
mod handover;
pub mod interface;
pub(crate) mod lending;
pub(crate) mod live;
pub(crate) mod offload;
pub(crate) mod open;
pub mod ports;
pub mod probe;
mod refused;
pub mod sending;
pub mod spec;
pub(crate) mod sys;
pub mod user;

pub use interface::{Interface, NO_ETHERNET, Standing};
pub use live::{CardHash, EndOrder, TUPLE_MAX, TupleHash};
pub use open::INHERITED;
pub use ports::{LiveSource, PortCounters, Ports};
pub use refused::{UNFILTER, UNLOCK, grant};
pub use sending::LiveSink;
pub use spec::{BackEnd, DpdkKeys, MemifKeys, PortSpec, SpecError, XdpCopy, XdpMode};
pub use user::{User, UserError};

/// The descriptor that the previous program in this process left open under this number. `None` if there is
/// none, or if it has already been adopted.
pub fn adopted(number: std::os::fd::RawFd) -> Option<std::os::fd::OwnedFd> {
    sys::adopt(number)
}
