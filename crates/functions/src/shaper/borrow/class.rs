//! What has credit: an address, the group that it is in, the link; and what a packet is charged to on its way up.

use braid_nf::prelude::*;

use crate::shaper::TICK;
use crate::token_bucket::{Bucket, Limit};

/// An address: where its class is.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Place {
    pub(super) lease: Lease,
}

/// What is known of an address, for all workers: its credit, and of which priorities packets wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Class {
    pub(super) own: Bucket,
    pub(super) ceil: Bucket,
    /// Itself, to be given back when the address is forgotten before its packets have left.
    pub(super) lease: Lease,
    /// Its group among those of the configuration.
    pub(super) group: u32,
    /// A bit for each priority of which packets wait.
    pub(super) waiting: u16,
    pub(super) is_forgotten: u16,
}

impl Class {
    /// Whether packets wait that go before one of this priority.
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
    /// What its addresses sent by right beyond its credit, in billionths of a byte: its rate pays that before it lends. At most a
    /// second's worth (HTB remembers a minute's), so that a group whose addresses have more by right than it has soon lends again.
    owed: u64,
    /// By [`Charge`]: one more than the queue whose turn was broken off because the group had no credit; 0: none. It is the next
    /// of its group, so that the first in the ring does not have all that flows in.
    pub(super) turn_of: [u32; 3],
    /// Whether its buckets have been filled for the first time.
    is_open: u32,
}

impl Group {
    /// Full buckets, if it has not been used yet.
    pub(super) fn opened(self, total: &Limits, now: u64) -> Group {
        match self.is_open {
            0 => Group { own: total.own.full(now), ceil: total.ceil.full(now), is_open: 1, ..self },
            _ => self,
        }
    }

    /// Whether another queue of the group, of at least this priority, goes before this one.
    pub(super) fn is_anothers_turn(&self, charge: Charge, queue: u32, bands: u32) -> bool {
        match self.turn_of[charge as usize].checked_sub(1) {
            Some(first) => first != queue && first % bands <= queue % bands,
            None => false,
        }
    }
}

/// The credit of the link, and how much stands behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Line {
    pub(super) credit: Bucket,
    /// Up to when packets have been sent.
    pub(super) reached_ns: u64,
    /// Before this nothing that waits can leave; 0: not known.
    pub(super) due_ns: u64,
    /// Queues in which packets wait.
    pub(super) waiting: u64,
}

impl Line {
    /// The first millisecond after `reached_ns` in which something can leave.
    pub(super) fn next_round_ns(&self) -> u64 {
        let tick = TICK.as_nanos() as u64;
        self.reached_ns + self.due_ns.saturating_sub(self.reached_ns).div_ceil(tick).max(1) * tick
    }
}

/// Whose credit a packet goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Charge {
    /// It is within the rate of its address.
    Own = 0,
    /// Its group is within its rate and has it to spare.
    Group = 1,
    /// The link has it to spare.
    Loan = 2,
}

/// Who has not enough credit.
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
    /// Of all its addresses together; none: they stand under the link.
    pub(in super::super) total: Option<Limits>,
    /// Of each.
    pub(in super::super) each: Limits,
}

braid_nf::plain!(Terms);

impl Terms {
    /// The longest packet that can ever leave, as far as it is for the group to say.
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
    /// Gives all of it what has flowed in until now.
    pub(super) fn fill(&mut self, terms: &Terms, now: u64) {
        terms.each.own.fill(&mut self.class.own, now);
        terms.each.ceil.fill(&mut self.class.ceil, now);
        if let (Some(group), Some(total)) = (&mut self.group, &terms.total) {
            total.own.fill_after(&mut group.own, now, &mut group.owed);
            total.ceil.fill(&mut group.ceil, now);
        }
    }

    /// When the ceilings hold a packet's cost.
    pub(super) fn ready_ns(&self, terms: &Terms, cost: u32) -> u64 {
        let group = self.group.zip(terms.total).map_or(0, |(group, total)| total.ceil.ready_ns(&group.ceil, cost));
        group.max(terms.each.ceil.ready_ns(&self.class.ceil, cost))
    }

    /// Takes a packet's cost from all that it is charged to, if they hold it. As in HTB what an address sends by right is charged to its
    /// group too, which owes it if it is not within its rate.
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
