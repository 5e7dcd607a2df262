//! The waiting packets, in a queue for each address and priority, and the rings in which these queues are linked, one for each
//! priority.
//!
//! A ring has a cursor for each [`Charge`], because the turns of queues within their rate and of queues that borrow advance
//! independently.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateError, StateObject, VectorConfig};

use super::class::Charge;
use crate::shaper::store::{Store, Waiting};

/// The packets of one address and priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Queue {
    first: Lease,
    last: Lease,
    /// The next queue in its ring.
    next: u32,
    pub(super) packets: u32,
    pub(super) bytes: u32,
    /// By [`Charge`]: what it may still send in this turn.
    pub(super) quantum: [u32; 3],
    /// By [`Charge`]: whether its turn was interrupted for lack of credit. The turn then continues without a new quantum.
    pub(super) is_in_turn: [u32; 3],
}

impl Queue {
    /// The next queue in its ring.
    pub fn next(&self) -> u32 {
        self.next
    }
}

/// The queues of one priority in which packets wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Ring {
    /// By [`Charge`]: the queue before the one whose turn it is.
    last: [u32; 3],
    pub(super) len: u32,
}

/// The queues, the rings and the packets.
pub struct Queues {
    queues: Vector<Queue>,
    rings: Vector<Ring>,
    pub(super) store: Store,
    pub(super) bands: u32,
}

impl Queues {
    /// Creates empty queues for this many addresses and priorities.
    pub fn new(builder: &mut StateBuilder, addresses: u32, bands: u32, store: Store) -> Result<Queues, StateError> {
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        let queues = Vector::new(builder, &named("queues", addresses.saturating_mul(bands)), Queue::default())?;
        Ok(Queues { queues, rings: Vector::new(builder, &named("rings", bands), Ring::default())?, store, bands })
    }

    pub fn get(&self, cx: &mut Cx<'_>, at: u32) -> Result<Queue, Conflict> {
        Ok(self.queues.get(cx, at)?.unwrap_or_default())
    }

    pub fn set(&self, cx: &mut Cx<'_>, at: u32, queue: Queue) -> Result<(), Conflict> {
        self.queues.set(cx, at, queue).map(drop)
    }

    pub fn ring(&self, cx: &mut Cx<'_>, band: u32) -> Result<Ring, Conflict> {
        Ok(self.rings.get(cx, band)?.unwrap_or_default())
    }

    pub fn set_ring(&self, cx: &mut Cx<'_>, band: u32, ring: Ring) -> Result<(), Conflict> {
        self.rings.set(cx, band, ring).map(drop)
    }

    /// Appends a packet to a queue, and adds the queue to its ring if it was empty. Returns false if there is no room for the
    /// packet.
    pub fn put(&self, cx: &mut Cx<'_>, at: u32, packet: &Packet<'_>, cost: u32) -> Result<bool, Conflict> {
        let (mut queue, now) = (self.get(cx, at)?, cx.now());
        let last = (queue.packets > 0).then_some(queue.last);
        let Some(lease) = self.store.put(cx, packet, (cost, now, 0), last)? else { return Ok(false) };
        queue.last = lease;
        if queue.packets == 0 {
            queue = Queue { first: lease, last: lease, ..Queue::default() };
            self.join(cx, at, &mut queue)?;
        }
        queue.packets += 1;
        queue.bytes += cost;
        self.set(cx, at, queue)?;
        Ok(true)
    }

    /// The first packet of a queue that is not empty.
    pub fn first(&self, cx: &mut Cx<'_>, queue: &Queue) -> Result<Waiting, Conflict> {
        self.store.get(cx, queue.first)
    }

    /// Sends the first packet.
    pub fn send(&self, cx: &mut Cx<'_>, queue: &mut Queue, packet: &Waiting) -> Result<(), Conflict> {
        self.store.send(cx, queue.first, packet)?;
        queue.first = packet.next;
        queue.packets -= 1;
        queue.bytes -= packet.cost;
        Ok(())
    }

    /// The queue whose turn it is in a ring that is not empty, and the queue before it, which is returned first.
    pub fn turn(&self, cx: &mut Cx<'_>, ring: &Ring, charge: Charge) -> Result<(u32, u32), Conflict> {
        let before = ring.last[charge as usize];
        Ok((before, self.get(cx, before)?.next))
    }

    /// Adds a queue at the end of its ring, as seen by the cursor of those that borrow from the link.
    fn join(&self, cx: &mut Cx<'_>, at: u32, queue: &mut Queue) -> Result<(), Conflict> {
        let band = at % self.bands;
        let mut ring = self.ring(cx, band)?;
        let last = &mut ring.last[Charge::Loan as usize];
        if ring.len == 0 {
            queue.next = at;
            ring.last = [at; 3];
        } else {
            let next = self.queues.update(cx, *last, |last| std::mem::replace(&mut last.next, at))?;
            queue.next = next.unwrap_or(at);
            *last = at;
        }
        ring.len += 1;
        self.set_ring(cx, band, ring)
    }

    /// Removes an empty queue, which follows `before`, from its ring.
    pub fn leave(
        &self,
        cx: &mut Cx<'_>,
        ring: &mut Ring,
        (before, at): (u32, u32),
        queue: &Queue,
    ) -> Result<(), Conflict> {
        ring.len -= 1;
        self.queues.update(cx, before, |before| before.next = queue.next)?;
        for last in ring.last.iter_mut().filter(|last| **last == at) {
            *last = before;
        }
        Ok(())
    }
}

impl Ring {
    /// Gives the turn to the next queue.
    pub fn pass(&mut self, charge: Charge, at: u32) {
        self.last[charge as usize] = at;
    }
}

impl Part for Queues {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.queues.objects(into);
        self.rings.objects(into);
        self.store.objects(into);
    }
}
