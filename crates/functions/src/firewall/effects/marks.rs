//! Marks as in nftables: a number that rules attach to a packet while it passes them (`meta mark`), and one that a
//! connection keeps (`ct mark`).
//!
//! A connection's mark is kept in a shared map by its endpoints, so ICMP errors and queries have one too, and a
//! configuration without marks pays nothing. The map exists only if some rule tests a mark; otherwise setting marks would
//! have no effect.

use std::fmt;
use std::sync::Arc;

use braid_nf::prelude::*;
use braid_nf::state::{StateError, StateObject};

use super::edits::Edits;
use crate::firewall::connection::ends::Ends;
use crate::firewall::connection::live_connections::ByEnds;
use crate::firewall::rules::Rule;

/// The owner of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) enum Whose {
    Packet,
    Connection,
}

/// A condition: a value computed from a mark is in one of these ranges, ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Asked {
    pub(in crate::firewall) made: Value,
    pub(in crate::firewall) ranges: Vec<(u32, u32)>,
}

impl Asked {
    /// Whether some value meets both conditions.
    pub(in crate::firewall) fn overlaps(&self, other: &Asked) -> bool {
        self.ranges.iter().any(|one| other.ranges.iter().any(|it| one.0 <= it.1 && it.0 <= one.1))
    }
}

/// How to compute a value: take a mark and apply a mask, or start from zero, then invert the bits set in `bits`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::firewall) struct Value {
    pub(in crate::firewall) from: Option<Whose>,
    pub(in crate::firewall) mask: u32,
    pub(in crate::firewall) bits: u32,
}

/// A mark that a rule sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::firewall) struct Given {
    pub(in crate::firewall) whose: Whose,
    pub(in crate::firewall) value: Value,
}

/// The marks of a packet while rules are applied to it, and other results of these rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::firewall) struct Marks {
    packet: u32,
    /// `None`: it belongs to no connection.
    connection: Option<u32>,
    /// Whether a rule has exempted it from tracking.
    is_untracked: bool,
    /// Changes to make if the packet passes.
    pub(in crate::firewall) edits: Edits,
}

impl Marks {
    /// The marks of a packet that would open a connection.
    pub(in crate::firewall) const NEW: Marks =
        Marks { packet: 0, connection: Some(0), is_untracked: false, edits: Edits::NONE };

    /// Exempts the packet from tracking.
    pub(in crate::firewall) fn untrack(&mut self) {
        (self.connection, self.is_untracked) = (None, true);
    }

    pub(in crate::firewall) fn is_untracked(&self) -> bool {
        self.is_untracked
    }

    fn of(&self, whose: Whose) -> Option<u32> {
        match whose {
            Whose::Packet => Some(self.packet),
            Whose::Connection => self.connection,
        }
    }

    /// Computes a value, if the mark it needs exists.
    fn made(&self, Value { from, mask, bits }: Value) -> Option<u32> {
        Some(from.map_or(Some(0), |whose| self.of(whose))? & mask ^ bits)
    }

    /// Whether a condition holds. As in the kernel, no condition holds for the mark of a connection that does not exist.
    pub(in crate::firewall) fn fit(&self, asked: &Asked) -> bool {
        let is_within = |value| asked.ranges.iter().any(|(first, last)| (*first..=*last).contains(&value));
        self.made(asked.made).is_some_and(is_within)
    }

    /// Sets a mark, if it exists; false if the value cannot be computed because a mark is missing.
    pub(in crate::firewall) fn set(&mut self, given: &Given) -> bool {
        let Some(value) = self.made(given.value) else { return false };
        match (given.whose, &mut self.connection) {
            (Whose::Packet, _) => self.packet = value,
            (Whose::Connection, Some(mark)) => *mark = value,
            (Whose::Connection, None) => {}
        }
        true
    }
}

/// The marks of connections, as far as they are not 0.
pub(in crate::firewall) struct Kept(Option<ByEnds<u32>>);

impl Kept {
    /// `most`: the maximum number of live connections and queries.
    pub(in crate::firewall) fn new(builder: &mut StateBuilder, rules: &[Rule], most: u32) -> Result<Kept, StateError> {
        let is_asked = rules.iter().any(|rule| !rule.asks.is_empty());
        is_asked.then(|| ByEnds::new(builder, "connection_marks", most)).transpose().map(Kept)
    }

    /// The marks of a packet, of a connection or of none, before any rule is applied.
    #[inline]
    pub(in crate::firewall) fn begin(&self, cx: &mut Cx<'_>, ends: Option<&Ends>) -> Result<Marks, Conflict> {
        match (&self.0, ends) {
            (Some(map), Some(ends)) => {
                Ok(Marks { connection: Some(map.of(cx, ends)?.unwrap_or(0)), ..Marks::default() })
            }
            _ => Ok(Marks::default()),
        }
    }

    /// Stores the mark of a connection if it has changed.
    #[inline]
    pub(in crate::firewall) fn keep(
        &self,
        cx: &mut Cx<'_>,
        ends: Option<&Ends>,
        marks: [Marks; 2],
    ) -> Result<(), Conflict> {
        if marks[1].is_untracked {
            return Ok(());
        }
        let [before, after] = marks.map(|marks| marks.connection);
        match (&self.0, ends, after) {
            _ if before == after => Ok(()),
            // There is room for all connections.
            (Some(map), Some(ends), Some(mark)) if mark != 0 => map.enter(cx, ends, &mark).map(drop),
            _ => ends.map_or(Ok(()), |ends| self.forget(cx, ends)),
        }
    }

    /// Forgets the mark of a connection that is over.
    pub(in crate::firewall) fn forget(&self, cx: &mut Cx<'_>, ends: &Ends) -> Result<(), Conflict> {
        self.0.as_ref().map_or(Ok(()), |map| map.leave(cx, ends).map(drop))
    }
}

impl braid_nf::Part for Kept {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.0.iter().for_each(|map| map.objects(into));
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Whose::Packet => "meta mark",
            Whose::Connection => "ct mark",
        })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Value { from: Some(whose), mask, bits } = *self else { return write!(f, "{:#x}", self.bits) };
        write!(f, "{whose}")?;
        if mask != u32::MAX {
            write!(f, " & {mask:#x}")?;
        }
        if bits != 0 { write!(f, " ^ {bits:#x}") } else { Ok(()) }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(first, last): &(u32, u32)| {
            if first == last { format!("{first:#x}") } else { format!("{first:#x}-{last:#x}") }
        };
        write!(f, "{} {}", self.made, self.ranges.iter().map(one).collect::<Vec<_>>().join(", "))
    }
}

impl fmt::Display for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sets {} to {}", self.whose, self.value)
    }
}
