//! The link that all addresses share: its credit, and a queue for each address of which packets wait.
//!
//! A packet that waits for the link leaves later than its address alone would let it, so what is charged to the address is known
//! only when it leaves. While packets of an address wait, its bucket is therefore here, as of the last departure; only the first
//! of them is in the wheel, and when it leaves the next one's time is determined. An address has a queue from its first packet
//! that waits until its first one after the last has left, which takes the bucket back, or until it is forgotten.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{AllocatorConfig, StateBuilder, StateObject, VectorConfig};

use super::store::{HELD_MAX, Store, Waiting};
use super::wheel::Departure;
use super::{ADDRESS_TABLE_FULL, NO_ROOM, QUEUE_FULL, Shaped, Shaper, TOO_LONG, WAITS};
use crate::ConfigError;
use crate::token_bucket::{Bucket, Limit};

/// A queue as its address remembers it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Place {
    lease: Lease,
    exists: u64,
}

impl Place {
    /// Whether the address has a queue.
    pub fn exists(self) -> bool {
        self.exists == 1
    }
}

/// The packets of an address that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Queue {
    /// The address's credit as of its last departure.
    pub bucket: Bucket,
    /// Its own lease, to be freed if the address is forgotten before its packets have left.
    lease: Lease,
    last: Lease,
    pub bytes: u64,
    pub packets: u32,
    is_forgotten: u32,
}

impl Queue {
    /// Its number.
    pub fn index(&self) -> u32 {
        self.lease.index
    }
}

/// The link's credit and the queues.
#[derive(Debug)]
pub struct SharedLink {
    limit: Limit,
    /// The link's credit, as of its last packet.
    credit: Vector<Bucket>,
    leases: Allocator,
    queues: Vector<Queue>,
}

impl SharedLink {
    /// Creates the link's bucket, and room for queues of this many addresses.
    pub fn new(builder: &mut StateBuilder, limit: Limit, addresses: u32) -> Result<SharedLink, ConfigError> {
        builder.agree("link", format!("a shaper's bucket of {}", limit.in_words("bytes")));
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        let leases = AllocatorConfig { name: "leases".into(), resources: addresses, ..AllocatorConfig::default() };
        let of_addresses = |error| ConfigError::state("addresses_max", &error);
        Ok(SharedLink {
            limit,
            credit: Vector::new(builder, &named("link", 1), limit.full(0))
                .map_err(|error| ConfigError::state("link", &error))?,
            leases: Allocator::new(builder, &leases).map_err(of_addresses)?,
            queues: Vector::new(builder, &named("queues", addresses), Queue::default()).map_err(of_addresses)?,
        })
    }

    /// The cost of the largest packet that can ever leave.
    pub fn burst(&self) -> u64 {
        self.limit.burst()
    }

    /// The most addresses of which packets can wait.
    pub fn addresses(&self) -> u32 {
        self.leases.resources()
    }

    /// Takes a packet's cost from the link's bucket, if that holds it now.
    pub fn take(&self, cx: &mut Cx<'_>, cost: u32) -> Result<bool, Conflict> {
        let now = cx.now();
        Ok(self.credit.update(cx, 0, |bucket| self.limit.take(bucket, now, cost))? == Some(true))
    }

    /// The queue of an address.
    pub fn queue(&self, cx: &mut Cx<'_>, place: Place) -> Result<Option<Queue>, Conflict> {
        match place.exists {
            1 => self.queues.get(cx, place.lease.index),
            _ => Ok(None),
        }
    }

    /// Creates the queue of an address that has this credit. Returns `None` if there is room for no more addresses.
    pub fn open(&self, cx: &mut Cx<'_>, bucket: Bucket) -> Result<Option<Queue>, Conflict> {
        let lease = self.leases.allocate(cx)?;
        Ok(lease.map(|lease| Queue { bucket, lease, ..Queue::default() }))
    }

    /// Ends the queue of an address that is empty.
    pub fn close(&self, cx: &mut Cx<'_>, queue: &Queue) -> Result<(), Conflict> {
        self.leases.free(cx, queue.lease).map(drop)
    }

    /// Ends the queue of an address that is forgotten, at once or when its last packet leaves.
    pub fn forget(&self, cx: &mut Cx<'_>, place: Place) -> Result<(), Conflict> {
        let Some(queue) = self.queue(cx, place)? else { return Ok(()) };
        match queue.packets {
            0 => self.close(cx, &queue),
            _ => self.queues.set(cx, place.lease.index, Queue { is_forgotten: 1, ..queue }).map(drop),
        }
    }

    /// Adds a stored packet at the end of a queue.
    pub fn append(
        &self,
        cx: &mut Cx<'_>,
        store: &Store,
        queue: Queue,
        (lease, cost): (Lease, u32),
    ) -> Result<Place, Conflict> {
        if queue.packets > 0 {
            store.follow(cx, queue.last, lease)?;
        }
        let (bytes, packets) = (queue.bytes + u64::from(cost), queue.packets + 1);
        self.queues.set(cx, queue.lease.index, Queue { bytes, packets, last: lease, ..queue })?;
        Ok(Place { lease: queue.lease, exists: 1 })
    }

    /// Lets the first packet of an address leave if the link has had credit for it by now, and charges both as of the time when
    /// it had, however late the tick is. What waits behind it is due when the address has credit for it again.
    pub fn departure(
        &self,
        cx: &mut Cx<'_>,
        store: &Store,
        own: &Limit,
        packet: &Waiting,
    ) -> Result<Departure, Conflict> {
        let (now, mut left_ns) = (cx.now(), 0);
        self.credit.update(cx, 0, |bucket| {
            let mut after = *bucket;
            left_ns = self.limit.take_after(&mut after, packet.due_ns, packet.cost);
            if left_ns <= now {
                *bucket = after;
            }
        })?;
        let Some(mut queue) = self.queues.get(cx, packet.queue)?.filter(|_| left_ns <= now) else {
            return Ok(Departure::Later);
        };
        own.take_after(&mut queue.bucket, left_ns, packet.cost);
        queue.bytes = queue.bytes.saturating_sub(packet.cost.into());
        queue.packets -= 1;
        if queue.packets == 0 && queue.is_forgotten == 1 {
            self.close(cx, &queue)?;
        }
        self.queues.set(cx, packet.queue, queue)?;
        if packet.has_behind == 0 {
            return Ok(Departure::Now);
        }
        let next = store.get(cx, packet.behind)?;
        let due_ns = own.take_after(&mut queue.bucket, next.due_ns, next.cost);
        Ok(Departure::NowBefore(packet.behind, due_ns))
    }

    /// When the link has credit for the first packet of the wheel.
    pub fn ready_ns(&self, cx: &mut Cx<'_>, packet: &Waiting) -> Result<u64, Conflict> {
        let mut credit = self.credit.get(cx, 0)?.unwrap_or_default();
        Ok(self.limit.take_after(&mut credit, packet.due_ns, packet.cost))
    }
}

impl Part for SharedLink {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.credit.objects(into);
        self.leases.objects(into);
        self.queues.objects(into);
    }
}

impl Shaper {
    /// Sends a packet that finds credit of its address and of the link, and no packet that waits; any other waits in the queue
    /// of its address.
    pub(super) fn shape_for(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        shaped: &mut Shaped,
        link: &SharedLink,
    ) -> Handled {
        let (now, cost) = (cx.now(), self.counted.cost(packet));
        let known = link.queue(cx, shaped.place)?;
        let is_first = known.is_none_or(|queue| queue.packets == 0);
        let before = known.map_or(shaped.bucket, |queue| queue.bucket);
        let mut bucket = before;
        let due_ns = self.limit.take_after(&mut bucket, now, cost);
        if is_first && due_ns == now && self.wheel.progress(cx)?.waiting == 0 && link.take(cx, cost)? {
            known.iter().try_for_each(|queue| link.close(cx, queue))?;
            *shaped = Shaped { bucket, place: Place::default(), ..*shaped };
            return Ok(cx.pass());
        }
        let is_full = match is_first {
            true => due_ns - now > self.wait_max_ns,
            false => known.is_some_and(|queue| queue.bytes + u64::from(cost) > self.queue_bytes),
        };
        if is_full {
            return Ok(Verdict::Drop(QUEUE_FULL));
        }
        if packet.bytes().len() > HELD_MAX {
            return Ok(Verdict::Drop(TOO_LONG));
        }
        let Some(queue) = known.map_or_else(|| link.open(cx, before), |queue| Ok(Some(queue)))? else {
            return Ok(Verdict::Drop(ADDRESS_TABLE_FULL));
        };
        // Only the first packet of an address is in the wheel; when others are due is known when it has left.
        let stored = match is_first {
            true => self.wheel.hold(cx, packet, (cost, due_ns, queue.index()))?,
            false => self.wheel.store().put(cx, packet, (cost, now, queue.index()), None)?,
        };
        let Some(stored) = stored else {
            if known.is_none() {
                link.close(cx, &queue)?;
            }
            return Ok(Verdict::Drop(NO_ROOM));
        };
        shaped.place = link.append(cx, self.wheel.store(), queue, (stored, cost))?;
        Ok(Verdict::Drop(WAITS))
    }
}
