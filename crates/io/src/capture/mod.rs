//! Reads and writes capture files.
//!
//! Both are our own code. The `pcap-file` crate rejects much of what real captures contain (the modified pcap of old Linux,
//! nanosecond stamps beyond a second, blocks with unusual options, lengths above the snap length) and stops without delivering the
//! packets before the damage. In the tests it serves as the independent oracle.
//!
//! Reading never panics and never gives up early: everything before a damaged position is delivered, then
//! the position is reported as a [`Damage`] with its byte offset.

mod bytes;
pub(crate) mod classic;
mod damage;
mod encode;
mod gzip;
mod interface;
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
pub use interface::interface_names;
pub use piped::is_dash;
pub use reader::{CaptureReader, Captured};
pub use sink::CaptureSink;
pub use source::CaptureSource;
pub use split::{PortSplit, addresses};
pub use stream::{CaptureStream, Replay};
