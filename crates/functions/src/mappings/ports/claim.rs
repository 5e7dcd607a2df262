//! What an inside endpoint wants of external ports: its own port number, or one of the same class near a hash.

use std::ops::RangeInclusive;

use crate::mappings::endpoint::Inside;
use crate::mappings::hosts::Host;
use crate::mappings::table::reclaim::Holder;
use crate::parts::tables::sweep::scaled;

/// The first port that is not a system port (RFC 6335 section 6).
const USER_PORTS: u16 = 1024;

/// An inside endpoint that wants a port.
pub(crate) struct Claim {
    pub(crate) inside: Inside,
    /// A hash input that depends on the whole name of its host.
    pub(crate) number: u64,
    /// The external address that its host has, or would start with.
    pub(crate) home: u32,
    /// The state of its host.
    pub(crate) host: Host,
    /// The holder of the endpoint's own port number on that address.
    pub(crate) own: Holder,
}

impl Claim {
    /// Where in a range the search for a free port starts. Ports that differ only in the last bit start at neighbours, so
    /// pairs usually stay pairs.
    #[inline(always)]
    pub(crate) fn begin(&self, within: &RangeInclusive<u16>) -> u16 {
        let wanted = self.inside.port;
        let pair = self.number << 16 ^ u64::from(wanted >> 1);
        let len = u32::from(within.end() - within.start()) + 1;
        let from = *within.start() + scaled(pair, len) as u16;
        if from & 1 == wanted & 1 { from } else { from ^ 1 }
    }
}

/// Whether a port is a system port.
#[inline(always)]
pub(crate) fn is_system(port: u16) -> bool {
    port < USER_PORTS
}

/// The system ports of a range, or the other ones; `None` if there are none.
#[inline(always)]
pub(crate) fn of_class(within: &RangeInclusive<u16>, is_system: bool) -> Option<RangeInclusive<u16>> {
    let class = match is_system {
        true => *within.start()..=(*within.end()).min(USER_PORTS - 1),
        false => (*within.start()).max(USER_PORTS)..=*within.end(),
    };
    (!class.is_empty()).then_some(class)
}
