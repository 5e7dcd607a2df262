//! Addresses that borrow: each has a rate of its own, and may go up to a ceiling while the link has more than the others need.
//!
//! Linux' HTB (`net/sched/sch_htb.c`) with one level of classes under a link, by its three rules: what an address sends within its
//! rate is charged to rate, ceiling and link; what it sends above it is borrowed, and charged to ceiling and link; whoever borrows
//! takes turns of a quantum (deficit round robin), and those within their rate go first.
//!
//! An address whose packets wait stands in a ring. A tick goes round it; if it is late it goes round for each millisecond that it
//! missed, as of then, so the result does not depend on when ticks come.

use std::time::Duration;

use braid_nf::FieldUse;
use braid_nf::prelude::*;
use braid_nf::state::{AllocatorConfig, VectorConfig};

use super::store::{HELD_MAX, Store};
use super::{Config, LARGER_THAN_BURST, NO_ROOM, QUEUE_FULL, TICK, TIMEOUT_MIN_NS, TOO_LONG, WAITS};
use crate::ConfigError;
use crate::config::READS_WIRE_LEN;
use crate::policer::By;
use crate::token_bucket::{Bucket, Limit};

/// No room for another address.
const ADDRESS_TABLE_FULL: Reason = Reason("address_table_full");
/// Most packets, and most looks at addresses, of one tick.
const SENT_MAX: u32 = 1024;
const LOOKS_MAX: u32 = 4096;
const ADDRESSES_MAX: u32 = 65_536;
/// Two frames of Ethernet.
const QUANTUM: u32 = 3028;

/// An address: where its class is.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Place {
    lease: Lease,
}

/// What is known of an address, for all workers: its credit and its packets that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Class {
    own: Bucket,
    ceil: Bucket,
    first: Lease,
    last: Lease,
    /// Itself, to be given back when the address is forgotten before its packets have left.
    lease: Lease,
    /// The class behind it in the ring.
    next: u32,
    packets: u32,
    bytes: u32,
    /// What it may borrow in this turn.
    quantum: u32,
    is_forgotten: u32,
    /// Its turn was broken off because the link had no credit: it goes on, and is given nothing new.
    is_in_turn: u32,
}

/// Classes whose packets wait, and the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Ring {
    link: Bucket,
    /// Up to when packets have been sent.
    reached_ns: u64,
    /// Behind these stand the first of each [`Charge`]: who goes first by right is another turn than who borrows first.
    last: [u32; 2],
    len: u32,
    zero: u32,
}

/// Why a packet may go.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Charge {
    /// It is within the rate of its address.
    Own = 0,
    /// The link has it to spare.
    Loan = 1,
}

/// How the turn of a class ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It has nothing more that it may send now.
    Done,
    /// Its quantum is used up.
    More,
    /// The link is: it stays the first of the ring.
    LinkBusy,
}

network_function! {
    /// `shaper` with a ceiling.
    pub struct Borrower {
        own: Limit,
        ceil: Limit,
        link: Limit,
        queue_bytes: u64,
        quantum: u32,
        by: By,
        from_port: Option<Port>,
        leases: Allocator,
        classes: Vector<Class>,
        ring: Vector<Ring>,
        store: Store,
    }
}

impl Borrower {
    /// Checks the configuration and makes the function.
    pub fn new(config: &Config, builder: &mut StateBuilder, ports: u16) -> Result<Borrower, ConfigError> {
        let (ceil, link) = config.borrowing()?;
        let addresses = config.addresses_max.unwrap_or(ADDRESSES_MAX);
        let of_addresses = |error| ConfigError::state("addresses_max", &error);
        let leases = AllocatorConfig { name: "leases".into(), resources: addresses, ..AllocatorConfig::default() };
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        let full = Ring { link: link.full(0), ..Ring::default() };
        Ok(Borrower {
            own: config.limit()?,
            ceil,
            link,
            queue_bytes: config.queue_bytes()?,
            quantum: config.quantum_bytes.unwrap_or(QUANTUM).max(1),
            by: config.by,
            from_port: config.checked_port(ports)?,
            leases: Allocator::new(builder, &leases).map_err(of_addresses)?,
            classes: Vector::new(builder, &named("classes", addresses), Class::default()).map_err(of_addresses)?,
            ring: Vector::new(builder, &named("ring", 1), full).map_err(of_addresses)?,
            store: Store::new(builder, config.queue_packets)
                .map_err(|error| ConfigError::state("queue_packets", &error))?,
        })
    }
}

impl NetworkFunction for Borrower {
    type Set = Place;
    const NAME: &'static str = "shaper";

    /// Credit is worth as much under other limits, and what waits has its order.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let sizes = |of: &Self| (of.store.room(), of.leases.resources());
        if self.by != older.by || sizes(self) != sizes(older) {
            return Err("packets wait where they lie: `by`, `queue_packets` and `addresses_max` stay".to_owned());
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by == By::Source { SetDef::src_ip() } else { SetDef::dst_ip() })
    }

    fn timeout_ns(&self, _: &Place) -> u64 {
        self.own.timeout_ns().max(self.ceil.timeout_ns()).max(TIMEOUT_MIN_NS)
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![TICK]
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Place>) -> Handled {
        if !self.shapes(packet) {
            return Ok(cx.pass());
        }
        let Some(lease) = self.leases.allocate(cx)? else { return Ok(Verdict::Drop(ADDRESS_TABLE_FULL)) };
        if !set.register(cx, Place { lease }) {
            self.leases.free(cx, lease)?;
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        let now = cx.now();
        let class = Class { own: self.own.full(now), ceil: self.ceil.full(now), lease, ..Class::default() };
        self.classes.set(cx, lease.index, class)?;
        self.packet(cx, packet, &mut Place { lease })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, place: &mut Place) -> Handled {
        if !self.shapes(packet) {
            return Ok(cx.pass());
        }
        let (now, cost) = (cx.now(), packet.wire_len());
        let mut class = self.classes.get(cx, place.lease.index)?.unwrap_or_default();
        let mut ring = self.ring.get(cx, 0)?.unwrap_or_default();
        if u64::from(cost) > self.own.burst().min(self.ceil.burst()).min(self.link.burst()) {
            return Ok(Verdict::Drop(LARGER_THAN_BURST));
        }
        // While packets wait the link has come as far as they have: what flows in since is for ticks to give out, or a late one would
        // find a full bucket that has lost some.
        let may_borrow = ring.len == 0;
        let reached = if may_borrow { now } else { ring.reached_ns };
        self.fill(&mut class, &mut ring, reached);
        let goes = class.packets == 0
            && (pay(&mut class, &mut ring, cost, Charge::Own)
                || (may_borrow && pay(&mut class, &mut ring, cost, Charge::Loan)));
        if !goes && let Some(reason) = self.wait(cx, packet, (&mut class, &mut ring), cost)? {
            return Ok(Verdict::Drop(reason));
        }
        self.classes.set(cx, place.lease.index, class)?;
        self.ring.set(cx, 0, ring)?;
        Ok(if goes { cx.pass() } else { Verdict::Drop(WAITS) })
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, place: &Place) -> Result<(), Conflict> {
        let waits = self.classes.update(cx, place.lease.index, |class| {
            class.is_forgotten = 1;
            class.packets > 0
        })?;
        if waits != Some(true) {
            self.leases.free(cx, place.lease)?;
        }
        Ok(())
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        let now = cx.now();
        let mut ring = self.ring.get(cx, 0)?.unwrap_or_default();
        if ring.len == 0 {
            return Ok(());
        }
        let before = ring;
        let (mut sent, mut looks) = (SENT_MAX, LOOKS_MAX);
        while ring.reached_ns < now && ring.len > 0 && sent > 0 && looks > 0 {
            let at = (ring.reached_ns + TICK.as_nanos() as u64).min(now);
            self.round(cx, &mut ring, at, (&mut sent, &mut looks))?;
            ring.reached_ns = at;
        }
        if ring != before {
            self.ring.set(cx, 0, ring)?;
        }
        Ok(())
    }

    fn holds(&self, cx: &mut Cx<'_>) -> Result<bool, Conflict> {
        Ok(self.ring.get(cx, 0)?.is_some_and(|ring| ring.len > 0))
    }
}

impl Borrower {
    fn shapes(&self, packet: &Packet<'_>) -> bool {
        self.from_port.is_none_or(|port| port == packet.port())
    }

    fn fill(&self, class: &mut Class, ring: &mut Ring, now: u64) {
        self.own.fill(&mut class.own, now);
        self.ceil.fill(&mut class.ceil, now);
        self.link.fill(&mut ring.link, now);
    }

    /// Puts a packet behind those of its class that wait; the reason if it cannot wait.
    #[cold]
    fn wait(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (class, ring): (&mut Class, &mut Ring),
        cost: u32,
    ) -> Result<Option<Reason>, Conflict> {
        if u64::from(class.bytes) + u64::from(cost) > self.queue_bytes {
            return Ok(Some(QUEUE_FULL));
        }
        if packet.bytes().len() > HELD_MAX {
            return Ok(Some(TOO_LONG));
        }
        let (port, now) = (cx.opposite(packet.port()), cx.now());
        let last = (class.packets > 0).then_some(class.last);
        let Some(lease) = self.store.put(cx, port, packet.bytes(), (cost, now), last)? else {
            return Ok(Some(NO_ROOM));
        };
        class.last = lease;
        if class.packets == 0 {
            (class.first, class.quantum) = (lease, 0);
            self.join(cx, class, ring)?;
        }
        class.packets += 1;
        class.bytes += cost;
        Ok(None)
    }

    /// A class stands at the end of the ring.
    fn join(&self, cx: &mut Cx<'_>, class: &mut Class, ring: &mut Ring) -> Result<(), Conflict> {
        let at = class.lease.index;
        if ring.len == 0 {
            class.next = at;
            ring.last[0] = at;
            // Time in which nobody waited need not be made up for.
            ring.reached_ns = ring.reached_ns.max(cx.now());
        } else {
            class.next =
                self.classes.update(cx, ring.last[1], |last| std::mem::replace(&mut last.next, at))?.unwrap_or(at);
        }
        ring.last[1] = at;
        ring.len += 1;
        Ok(())
    }

    /// One time round the ring for those within their rate; then, round by round, for those who borrow, until nobody may any more.
    fn round(
        &self,
        cx: &mut Cx<'_>,
        ring: &mut Ring,
        now: u64,
        (sent, looks): (&mut u32, &mut u32),
    ) -> Result<(), Conflict> {
        for charge in [Charge::Own, Charge::Loan] {
            let mut goes_on = true;
            while goes_on && ring.len > 0 {
                goes_on = false;
                for _ in 0..ring.len {
                    if *sent == 0 || *looks == 0 {
                        return Ok(());
                    }
                    *looks -= 1;
                    match self.turn(cx, ring, now, charge, sent)? {
                        Turn::LinkBusy => return Ok(()),
                        turn => goes_on |= turn == Turn::More,
                    }
                }
            }
        }
        Ok(())
    }

    /// The first class of the ring sends what it may, and goes to the end or leaves.
    fn turn(
        &self,
        cx: &mut Cx<'_>,
        ring: &mut Ring,
        now: u64,
        charge: Charge,
        sent: &mut u32,
    ) -> Result<Turn, Conflict> {
        let before = ring.last[charge as usize];
        let Some(at) = self.classes.get(cx, before)?.map(|before| before.next) else { return Ok(Turn::Done) };
        let mut class = self.classes.get(cx, at)?.unwrap_or_default();
        self.fill(&mut class, ring, now);
        let next = self.store.get(cx, class.first)?.cost;
        if charge == Charge::Loan && class.is_in_turn == 0 && class.quantum < next {
            class.quantum = class.quantum.saturating_add(self.quantum);
        }
        let mut turn = Turn::Done;
        while class.packets > 0 && *sent > 0 {
            let packet = self.store.get(cx, class.first)?;
            if charge == Charge::Loan && packet.cost > class.quantum {
                turn = Turn::More;
                break;
            }
            if !pay(&mut class, ring, packet.cost, charge) {
                if !ring.link.holds(packet.cost) {
                    turn = Turn::LinkBusy;
                }
                break;
            }
            if charge == Charge::Loan {
                class.quantum -= packet.cost;
            }
            self.store.send(cx, class.first, &packet)?;
            class.first = packet.next;
            class.packets -= 1;
            class.bytes -= packet.cost;
            *sent -= 1;
        }
        if charge == Charge::Loan {
            class.is_in_turn = u32::from(turn == Turn::LinkBusy);
        }
        if class.packets == 0 {
            (class.quantum, class.is_in_turn) = (0, 0);
            self.leave(cx, &class, ring, before)?;
        } else if turn != Turn::LinkBusy {
            ring.last[charge as usize] = at;
        }
        self.classes.set(cx, at, class)?;
        Ok(turn)
    }

    /// The class behind `before` is in the ring no more.
    fn leave(&self, cx: &mut Cx<'_>, class: &Class, ring: &mut Ring, before: u32) -> Result<(), Conflict> {
        ring.len -= 1;
        self.classes.update(cx, before, |before| before.next = class.next)?;
        for last in ring.last.iter_mut().filter(|last| **last == class.lease.index) {
            *last = before;
        }
        if class.is_forgotten == 1 {
            self.leases.free(cx, class.lease)?;
        }
        Ok(())
    }
}

/// Takes a packet's cost from all that it is charged to, if they hold it.
fn pay(class: &mut Class, ring: &mut Ring, cost: u32, charge: Charge) -> bool {
    let may = class.ceil.holds(cost) && ring.link.holds(cost) && (charge == Charge::Loan || class.own.holds(cost));
    if may {
        class.ceil.spend(cost);
        ring.link.spend(cost);
        if charge == Charge::Own {
            class.own.spend(cost);
        }
    }
    may
}

#[cfg(test)]
mod tests;
