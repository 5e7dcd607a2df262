//! Packets that functions make: ICMP errors and resets, and the messages of neighbours on a link.

pub mod answer;
pub mod answer_rate;
pub(crate) mod discovery;
pub(crate) mod icmpv6;
pub(crate) mod membership;
pub(crate) mod proxy;
pub(crate) mod syslog;
