//! Where packets enter and leave: sources, sinks, and the queues between them and the workers.
//!
//! A [`Source`] is opened for a number of queues, one for each worker, and distributes its frames among
//! them with a [`QueueSelect`], like the receive side of a network card. A [`Sink`] is opened for the same
//! number of transmit queues and merges the packets of all workers.
//!
//! ```text
//!  files, generator ──▶ FrameStream ──▶ spread (by QueueSelect) ──▶ RxQueue 0..n
//!  TxQueue 0..n ──▶ merge (by sequence number) ──▶ files
//!  interfaces ──▶ RxPort of each ──▶ RxQueue;  TxQueue 0..n ──▶ TxPort of each ──▶ interfaces
//! ```
//!
//! Invariants: the frames of a queue keep the order of their source; a frame that is not delivered is counted with its reason; no
//! bytes of a capture, however damaged, make this crate panic. The crate reads headers only to split a capture by port and to do
//! what a kernel leaves to the network card (segmentation, checksums, tags). It knows nothing of state or transactions.
#![deny(unsafe_code)]

mod af_packet;
mod af_xdp;
mod again;
pub mod atomic_file;
mod bell;
pub mod capture;
pub mod device;
#[cfg(feature = "dpdk")]
mod dpdk;
pub mod generate;
pub mod inherited_memory;
mod memif;
pub mod memory;
mod merge;
mod packed;
pub mod progress;
mod random;
mod retrying_stream;
pub mod secret;
pub mod sink;
pub mod source;
mod spread;
pub mod stale_socket;
mod stream;
mod tap;
pub mod wrap;

pub use again::again;
pub use bell::Bell;
pub use memory::{Collected, CollectedPacket, MemorySink, NullSink, Renewal, Repeat, ReplaySource};
pub use progress::{Progress, Unit};
pub use retrying_stream::Patient;
pub use sink::{Sink, SinkError, TxCounters, TxQueue};
pub use source::{Ahead, FirstQueue, OpenError, QueueSelect, Received, RxCounters, RxQueue, Source, Waited};
pub use stream::{FrameStream, Next};
