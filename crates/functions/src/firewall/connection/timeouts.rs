//! How long a connection that nobody uses is remembered.

use braid_nf::packet::parse::protocol;

use super::{Connection, HASTE_LEFT_MIN, HASTE_PARTS, Phase};

/// Idle timeouts of connections, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(in crate::firewall) struct Timeouts {
    /// TCP, by [`Phase`].
    pub(in crate::firewall) tcp_ns: [u64; 8],
    /// TCP that opens during a flood, at most.
    pub(in crate::firewall) hurried_ns: u64,
    /// UDP: unanswered, answered.
    pub(in crate::firewall) udp_ns: [u64; 2],
    pub(in crate::firewall) other_ns: u64,
}

impl Timeouts {
    /// The shortest of all timeouts.
    pub(in crate::firewall) fn shortest_ns(&self) -> u64 {
        let hurried_ns = self.hurried_ns / HASTE_PARTS * HASTE_LEFT_MIN;
        let all = self.tcp_ns.iter().chain(&self.udp_ns).chain([&hurried_ns, &self.other_ns]);
        all.fold(u64::MAX, |least, ns| least.min(*ns))
    }

    #[inline(always)]
    pub(in crate::firewall) fn of(&self, connection: &Connection) -> u64 {
        let phase = connection.phase();
        match connection.protocol {
            protocol::TCP if connection.is_hurried() && connection.is_opening() => {
                self.hurried_ns / HASTE_PARTS * connection.haste_left()
            }
            protocol::TCP => self.tcp_ns[phase as usize],
            // An association that has ended.
            protocol::SCTP if matches!(phase, Phase::Reset | Phase::Gone) => self.tcp_ns[phase as usize],
            protocol::UDP => self.udp_ns[usize::from(phase != Phase::Asked)],
            _ => self.other_ns,
        }
    }
}
