//! The course of packets through a chain: which functions meet which of them, and in which order.

use braid_nf::Verdict;
use braid_packet::{Port, PortSet};

/// In which order packets meet the functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they are written, wherever a packet comes from.
    #[default]
    Same,
    /// As they are written from inside to outside; packets that come by the ports outside meet the last one first.
    Mirrored {
        /// Those ports.
        outside: PortSet,
    },
}

/// From which side a packet comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The functions are met in the order in which they are written.
    Forward = 0,
    /// The last one is met first.
    Reverse = 1,
}

/// Which packets meet a function; the others pass it by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct When {
    /// Only those that came by these ports.
    pub came_by: Option<PortSet>,
    /// Only those that leave by these ports, as far as has been decided before.
    pub leaves_by: Option<PortSet>,
    /// Only those that are flooded, or only those that are not.
    pub flooded: Option<bool>,
}

/// What becomes of a new packet set when the table is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// It does not become live; the function decides about its packets.
    #[default]
    Refuse,
    /// It becomes live. After the batch, sets that have waited longest for a packet end until the table holds as many as it may; those of
    /// which a function is [assured](braid_nf::NetworkFunction::is_assured) only where there are hardly any others.
    EvictOldest,
}

/// The course through a whole chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Course {
    /// In which order.
    pub order: Order,
    /// One condition for each function; none at all if all meet every packet.
    pub when: Vec<When>,
    /// What full tables do, for each function; none at all if all refuse.
    pub full: Vec<Full>,
    /// A packet's way through all functions is one transaction; else each function's part of it is one.
    pub atomic: bool,
    /// Workers keep no index of where the sets are that they share.
    pub unindexed: bool,
}

impl Course {
    /// Whether a worker comes to sets that workers share by an index of where they are, if a packet holds its own.
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

    /// The ports outside, if packets from there meet the last function first.
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

    /// Whether what earlier functions decided matters.
    pub fn looks_at_verdicts(&self) -> bool {
        self.leaves_by.is_some() || self.flooded.is_some()
    }

    /// Whether a packet that came by `port`, about which `verdict` is the last decision, meets the function.
    #[inline]
    pub fn admits(&self, port: Port, verdict: Verdict) -> bool {
        self.came_by.is_none_or(|ports| ports.has(port))
            && self.leaves_by.is_none_or(|ports| matches!(verdict, Verdict::Forward(port) if ports.has(port)))
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
        let unicast = When { flooded: Some(false), ..When::default() };
        check(unicast, 0, Verdict::Forward(1), true);
        check(unicast, 0, Verdict::Flood, false);
    }
}
