//! Capture files, in and out.
//!
//! Reading and writing is our own code. The `pcap-file` crate refuses much of what real captures contain (the modified pcap of
//! old Linux, nanosecond stamps beyond a second, blocks with odd options, lengths above its snap length) and stops without the
//! packets before the damage; it serves as the independent oracle in the tests instead.
//!
//! Reading never panics and never gives up early: everything up to a damaged place is delivered, then the place is reported as
//! a [`Damage`] with its byte offset.

mod bytes;
pub(crate) mod classic;
mod damage;
mod encode;
mod gzip;
mod link;
mod ng;
mod output;
mod piped;
mod reader;
mod sink;
mod source;
mod split;
mod stream;

pub use damage::{Damage, Flaw};
pub use encode::{CaptureWriter, Precision};
pub use piped::is_dash;
pub use reader::{CaptureReader, Captured};
pub use sink::CaptureSink;
pub use source::CaptureSource;
pub use split::{PortSplit, Prefix, addresses};
pub use stream::{CaptureStream, Replay};
