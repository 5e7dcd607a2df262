//! Bytes as a request of an operator, as a filter, and as a saved state: understood, or refused with a reason. Never a panic.
#![no_main]

use braid_control::facts::Facts;
use braid_control::filter::Filter;
use braid_control::live::{Request, Snapshot};
use braid_control::runtime::nf::packet::Link;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    if let Err(refused) = Request::parse(&text) {
        assert!(!refused.what.is_empty());
    }
    match Filter::parse(&text) {
        Ok(filter) => drop(filter.matches(&Facts::of_frame(bytes, Link::Ethernet))),
        Err(error) => assert!(!error.what.is_empty() && !error.help.is_empty()),
    }
    if let Ok(snapshot) = Snapshot::decode(bytes) {
        assert_eq!(snapshot.encode(), bytes);
    }
});
