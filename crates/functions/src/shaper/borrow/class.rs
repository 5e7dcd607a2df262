//! What has credit: an address, its group, and the link; and how a packet is charged to them.

use braid_nf::prelude::*;

use crate::shaper::TICK;
use crate::token_bucket::{Bucket, Limit};

/// What a set remembers of an address: where its class is, and whether packets waited when one came last.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Place {
    pub(super) lease: Lease,
    pub(super) waits: u32,
}

/// What is known of an address, shared by all workers: its credit, and the priorities in which packets wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Class {
    pub(super) own: Bucket,
    pub(super) ceil: Bucket,
    /// Its own lease, to be freed if the address is forgotten before its packets have left.
    pub(super) lease: Lease,
    /// Its group's index in the configuration; 0: none.
    pub(super) group: u32,
    /// A bit for each priority in which packets wait.
    pub(super) waiting: u16,
    pub(super) is_forgotten: u16,
}

impl Class {
    /// Whether packets wait that must leave before a new one of this priority.
    pub(super) fn waits_before(&self, band: u32) -> bool {
        u32::from(self.waiting) & ((2 << band) - 1) != 0
    }
}

/// The credit of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Group {
    pub(super) own: Bucket,
    pub(super) ceil: Bucket,
    /// What its addresses sent within their own rates but beyond the group's credit, in billionths of a byte; the group's inflow
    /// pays this before the group lends. At most a second's worth (HTB remembers a minute's), so that a group soon lends again
    /// even if the rates of its addresses add up to more than its own.
    owed: u64,
    /// By [`Charge`]: one more than the queue whose turn was interrupted because the group had no credit; 0: none. That queue
    /// is the group's next, so that the first in the ring does not take all that flows in.
    pub(super) turn_of: [u32; 3],
    /// Whether its buckets have been filled for the first time.
    is_open: u32,
}

impl Group {
    /// Fills the buckets, if the group has not been used yet.
    pub(super) fn opened(self, total: &Limits, now: u64) -> Group {
        match self.is_open {
            0 => Group { own: total.own.full(now), ceil: total.ceil.full(now), is_open: 1, ..self },
            _ => self,
        }
    }

    /// Whether another queue of the group, of at least this priority, must be served before this one.
    pub(super) fn is_anothers_turn(&self, charge: Charge, queue: u32, bands: u32) -> bool {
        match self.turn_of[charge as usize].checked_sub(1) {
            Some(first) => first != queue && first % bands <= queue % bands,
            None => false,
        }
    }
}

/// The credit of the link, and the queues that wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Line {
    pub(super) credit: Bucket,
    /// The time up to which waiting packets have been served.
    pub(super) reached_ns: u64,
    /// Before this time no waiting packet can leave; 0: not known.
    pub(super) due_ns: u64,
    /// The number of queues in which packets wait.
    pub(super) waiting: u64,
}

impl Line {
    /// The first millisecond after `reached_ns` in which a packet can leave.
    pub(super) fn next_round_ns(&self) -> u64 {
        let tick = TICK.as_nanos() as u64;
        self.reached_ns + self.due_ns.saturating_sub(self.reached_ns).div_ceil(tick).max(1) * tick
    }
}

/// Whose credit allows a packet to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Charge {
    /// The address's: the packet is within the address's rate.
    Own = 0,
    /// The group's: the group is within its rate and has credit to lend.
    Group = 1,
    /// The link's: the link has credit to lend.
    Loan = 2,
}

/// What lacks credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The address.
    Class,
    /// Its group.
    Group,
    /// The link.
    Link,
}

/// Rate and ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub(in super::super) own: Limit,
    pub(in super::super) ceil: Limit,
}

/// The configuration of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// What all its addresses have together; `None`: they are directly below the link.
    pub(in super::super) total: Option<Limits>,
    /// What each address has.
    pub(in super::super) each: Limits,
}

braid_nf::plain!(Terms);

impl Terms {
    /// The cost of the largest packet that can ever leave, as far as the group limits it.
    pub(super) fn burst(&self) -> u64 {
        let total = self.total.map_or(u64::MAX, |total| total.ceil.burst());
        total.min(self.each.own.burst()).min(self.each.ceil.burst())
    }
}

/// An address and its group, as of one moment.
#[derive(Clone, Copy, Debug)]
pub struct Branch {
    pub(super) class: Class,
    pub(super) group: Option<Group>,
}

impl Branch {
    /// Adds to all buckets what has flowed in until now.
    pub(super) fn fill(&mut self, terms: &Terms, now: u64) {
        terms.each.own.fill(&mut self.class.own, now);
        terms.each.ceil.fill(&mut self.class.ceil, now);
        if let (Some(group), Some(total)) = (&mut self.group, &terms.total) {
            total.own.fill_after(&mut group.own, now, &mut group.owed);
            total.ceil.fill(&mut group.ceil, now);
        }
    }

    /// When the ceilings allow a packet of this cost.
    pub(super) fn ready_ns(&self, terms: &Terms, cost: u32) -> u64 {
        let group = self.group.zip(terms.total).map_or(0, |(group, total)| total.ceil.ready_ns(&group.ceil, cost));
        group.max(terms.each.ceil.ready_ns(&self.class.ceil, cost))
    }

    /// Charges a packet's cost to all that it must be charged to, if their credit suffices. As in HTB, what an address sends
    /// within its own rate is charged to its group too, and if the group is beyond its rate, it owes the difference.
    pub(super) fn pay(&mut self, terms: &Terms, link: &mut Bucket, cost: u32, charge: Charge) -> Result<(), Lacks> {
        let by_right = charge != Charge::Own || self.class.own.holds(cost);
        if !(by_right && self.class.ceil.holds(cost)) || (charge == Charge::Group && self.group.is_none()) {
            return Err(Lacks::Class);
        }
        if !self.group.is_none_or(|group| group.ceil.holds(cost) && (charge != Charge::Group || group.own.holds(cost)))
        {
            return Err(Lacks::Group);
        }
        if !link.spend(cost) {
            return Err(Lacks::Link);
        }
        self.class.ceil.spend(cost);
        if charge == Charge::Own {
            self.class.own.spend(cost);
        }
        if let (Some(group), Some(total)) = (&mut self.group, &terms.total) {
            group.ceil.spend(cost);
            if charge != Charge::Loan {
                group.owed = group.owed.saturating_add(group.own.drain(cost)).min(total.own.second());
            }
        }
        Ok(())
    }
}
