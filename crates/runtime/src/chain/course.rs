//! The course of packets through a chain: which functions they meet, and in which order.

use braid_nf::Verdict;
use braid_packet::{Port, PortSet};

/// The order in which packets meet the functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As written, wherever a packet comes from.
    #[default]
    Same,
    /// As written for packets from inside; in reverse for packets that arrive on the outside ports.
    Mirrored {
        /// The outside ports.
        outside: PortSet,
    },
}

/// The direction in which a packet passes through the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The functions are met in the order in which they are written.
    Forward = 0,
    /// The last function is met first.
    Reverse = 1,
}

/// The condition under which a packet meets a function; other packets bypass it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Only packets that arrived on these ports.
    pub came_by: Option<PortSet>,
    /// Only packets that leave by these ports, according to the decisions so far.
    pub leaves_by: Option<PortSet>,
    /// Only packets that do one or the other.
    pub passes: Option<PortSet>,
    /// `true`: only packets that are flooded; `false`: only packets that are not.
    pub flooded: Option<bool>,
}

/// What happens to a new packet set when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// It does not become live; the function decides about its packets.
    #[default]
    Refuse,
    /// It becomes live. After the batch, the sets with the longest idle time end until the table is back at its limit. Sets that a function calls
    /// [assured](braid_nf::NetworkFunction::is_assured) end only if there are hardly any others.
    EvictOldest,
}

/// The course through a whole chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// The order in which packets meet the functions.
    pub order: Order,
    /// One condition per function; empty if every packet meets every function.
    pub when: Vec<When>,
    /// What full tables do, per function; empty if all refuse new sets.
    pub full: Vec<Full>,
    /// A packet passes through all functions in one transaction; otherwise each function has a transaction of its own.
    pub atomic: bool,
    /// Workers keep no index of where shared sets are stored.
    pub unindexed: bool,
}

impl Course {
    /// Whether workers keep an index of where shared sets are stored, for functions whose packets each lock their own set.
    pub fn indexes(&self) -> bool {
        !self.atomic && !self.unindexed
    }

    /// What the table of the function at a position does when it is full.
    pub fn full(&self, position: usize) -> Full {
        self.full.get(position).copied().unwrap_or_default()
    }

    /// The condition of the function at a position.
    pub fn when(&self, position: usize) -> When {
        self.when.get(position).copied().unwrap_or_default()
    }

    /// The outside ports, if packets that arrive there meet the last function first.
    pub fn outside(&self) -> Option<PortSet> {
        match self.order {
            Order::Same => None,
            Order::Mirrored { outside } => Some(outside),
        }
    }
}

impl When {
    /// Whether every packet meets the function.
    pub fn is_always(&self) -> bool {
        *self == When::default()
    }

    /// Whether the decisions of earlier functions matter.
    pub fn looks_at_verdicts(&self) -> bool {
        self.leaves_by.is_some() || self.passes.is_some() || self.flooded.is_some()
    }

    /// Whether a packet that arrived on `port` and whose latest decision is `verdict` meets the function.
    #[inline]
    pub fn admits(&self, port: Port, verdict: Verdict) -> bool {
        let leaves_by = |ports: PortSet| matches!(verdict, Verdict::Forward(port) if ports.has(port));
        self.came_by.is_none_or(|ports| ports.has(port))
            && self.leaves_by.is_none_or(leaves_by)
            && self.passes.is_none_or(|ports| ports.has(port) || leaves_by(ports))
            && self.flooded.is_none_or(|flooded| flooded == matches!(verdict, Verdict::Flood))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(when: When, port: Port, verdict: Verdict, admitted: bool) {
        assert_eq!(when.admits(port, verdict), admitted, "{when:?} {port} {verdict:?}");
    }

    #[test]
    fn a_condition_asks_for_the_port_of_entry_and_for_what_was_decided() {
        let ports = |ports: &[Port]| Some(PortSet::of(ports.iter().copied()));
        check(When::default(), 9, Verdict::Flood, true);
        let from_1 = When { came_by: ports(&[1]), ..When::default() };
        check(from_1, 1, Verdict::Flood, true);
        check(from_1, 0, Verdict::Forward(1), false);
        let to_2 = When { leaves_by: ports(&[2, 3]), ..When::default() };
        check(to_2, 0, Verdict::Forward(3), true);
        check(to_2, 2, Verdict::Forward(0), false);
        check(to_2, 2, Verdict::Flood, false);
        let past_2 = When { passes: ports(&[2]), ..When::default() };
        check(past_2, 0, Verdict::Forward(2), true);
        check(past_2, 2, Verdict::Forward(0), true);
        check(past_2, 2, Verdict::Flood, true);
        check(past_2, 0, Verdict::Forward(1), false);
        check(past_2, 0, Verdict::Flood, false);
        let unicast = When { flooded: Some(false), ..When::default() };
        check(unicast, 0, Verdict::Forward(1), true);
        check(unicast, 0, Verdict::Flood, false);
    }
}
