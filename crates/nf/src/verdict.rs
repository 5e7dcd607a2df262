//! What becomes of a packet.

use crate::Port;

/// Why a packet was dropped; counted per function and reason. Constants of the function, in words joined by `_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub &'static str);

impl Reason {
    /// The packet belongs to no packet set, and the function has no orphan handler.
    pub const ORPHAN: Reason = Reason("orphan");
    /// The table of packet sets has no room for a new one.
    pub const SET_TABLE_FULL: Reason = Reason("set_table_full");
    /// A header is cut short or contradicts itself.
    pub const MALFORMED: Reason = Reason("malformed");
    /// The time to live or hop limit ended here.
    pub const TTL_EXCEEDED: Reason = Reason("ttl_exceeded");
    /// The handler panicked on this packet: an error in the function, not in the packet.
    pub const HANDLER_PANIC: Reason = Reason("handler_panic");
    /// The verdict names a port that the plan does not have.
    pub const NO_SUCH_PORT: Reason = Reason("no_such_port");
    /// Flooded with no other port to go to.
    pub const NOWHERE_TO_FLOOD: Reason = Reason("nowhere_to_flood");
}

/// What a handler decides. In a chain, `Forward` and `Flood` let the packet go on to the next function; the last decision
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Out by this port.
    Forward(Port),
    /// A copy out by every port but the one by which it came.
    Flood,
    /// No further.
    Drop(Reason),
}
