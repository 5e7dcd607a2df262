//! `shaper` with a ceiling: addresses may exceed their rate while the link has more than the others need.
//!
//! It follows the rules of Linux' HTB (`net/sched/sch_htb.c`) with at most one level of classes between an address and the
//! link. What an address sends within its rate is charged to its rate, and to the ceilings and rates above it. What it sends
//! beyond is borrowed from its group while that is within its rate, otherwise from the link, and charged from there upwards.
//! Addresses within their rate go first, then those that borrow from their group, then those that borrow from the link. Within
//! each of these the higher priority goes first, and equals take turns of a quantum (deficit round robin).
//!
//! An address has a queue for each priority; queues in which packets wait are linked in rings. A tick goes round the rings. A
//! late tick goes round once for each millisecond that it missed in which a packet could have left, with the credit as of that
//! millisecond, so the result does not depend on when ticks occur.

mod class;
mod queues;
mod rounds;

use std::time::Duration;

use braid_nf::FieldUse;
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{AllocatorConfig, VectorConfig};

use self::class::{Branch, Charge, Group, Line};
pub use self::class::{Class, Limits, Place, Terms};
use self::queues::Queues;
use super::bands::Bands;
use super::store::{HELD_MAX, Store};
use super::{
    ADDRESS_TABLE_FULL, ADDRESSES_MAX, Config, LARGER_THAN_BURST, NO_ROOM, QUEUE_FULL, TICK, TIMEOUT_MIN_NS, TOO_LONG,
    WAITS,
};
use crate::ConfigError;
use crate::config::READS_WIRE_LEN;
use crate::parts::Prefix;
use crate::parts::config::counted::Counted;
use crate::parts::headers::scope::pass_unless_damaged;
use crate::policer::By;
use crate::token_bucket::Limit;

/// Two full Ethernet frames.
const QUANTUM: u32 = 3028;

network_function! {
    /// `shaper` with a ceiling.
    pub struct Borrower {
        link: Limit,
        counted: Counted,
        queue_bytes: u64,
        quantum: u32,
        timeout_ns: u64,
        by: By,
        from_port: Option<Port>,
        bands: Bands,
        /// Address ranges, each with the index of its group's terms.
        groups: Vec<(Prefix, u32)>,
        /// The terms of groups; the first are those of addresses in no group.
        terms: Vec<Terms>,
        leases: Allocator,
        classes: Vector<Class>,
        credits: Vector<Group>,
        line: Vector<Line>,
        queues: Queues,
    }
}

impl Borrower {
    /// Checks the configuration and creates the function.
    pub fn new(config: &Config, builder: &mut StateBuilder, ports: u16) -> Result<Borrower, ConfigError> {
        let (link, terms) = config.borrowing()?;
        let addresses = config.addresses_max.unwrap_or(ADDRESSES_MAX);
        let of_addresses = |error| ConfigError::state("addresses_max", &error);
        let of_groups = |error| ConfigError::state("group", &error);
        let leases = AllocatorConfig { name: "leases".into(), resources: addresses, ..AllocatorConfig::default() };
        let named = |name: &str, len| VectorConfig { name: name.into(), len };
        builder.agree("line", format!("a link with {} that is borrowed of", link.in_words("bytes")));
        let full = Line { credit: link.full(0), ..Line::default() };
        let bands = Bands::new(&config.priority)?;
        let store = Store::new(builder, config.queue_packets, config.mark_ns()?)
            .map_err(|error| ConfigError::state("queue_packets", &error))?;
        let to_fill = |terms: &Terms| terms.each.own.timeout_ns().max(terms.each.ceil.timeout_ns());
        Ok(Borrower {
            link,
            counted: config.counted()?,
            queue_bytes: config.queue_bytes()?,
            quantum: config.quantum_bytes.unwrap_or(QUANTUM),
            timeout_ns: terms.iter().map(to_fill).fold(TIMEOUT_MIN_NS, u64::max),
            by: config.by,
            from_port: config.checked_port(ports)?,
            groups: config.ranges(),
            leases: Allocator::new(builder, &leases).map_err(of_addresses)?,
            classes: Vector::new(builder, &named("classes", addresses), Class::default()).map_err(of_addresses)?,
            credits: Vector::new(builder, &named("groups", terms.len() as u32), Group::default()).map_err(of_groups)?,
            line: Vector::new(builder, &named("line", 1), full).map_err(of_addresses)?,
            queues: Queues::new(builder, addresses, bands.count(), store).map_err(of_addresses)?,
            bands,
            terms,
        })
    }
}

impl NetworkFunction for Borrower {
    type Set = Place;
    const NAME: &'static str = "shaper";
    const CONSUMES: &'static [Reason] = &[WAITS];

    /// Credit keeps its value under other limits, and waiting packets keep their order.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let sizes = |of: &Self| (of.queues.store.room(), of.leases.resources(), of.queues.bands);
        if self.by != older.by || sizes(self) != sizes(older) || self.groups != older.groups {
            let stays = "`by`, `queue_packets`, `addresses_max`, prefixes of groups and the number of priorities stay";
            return Err(format!("packets wait where they lie: {stays}"));
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by == By::Source { SetDef::src_ip() } else { SetDef::dst_ip() })
    }

    fn timeout_ns(&self, _: &Place) -> u64 {
        self.timeout_ns
    }

    /// As in [`Shaper`](super::Shaper): later packets of an address that is forgotten would overtake those that wait.
    fn is_assured(&self, place: &Place) -> bool {
        place.waits != 0
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
        let mut place = Place { lease, waits: 0 };
        if !set.register(cx, place) {
            self.leases.free(cx, lease)?;
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        let address = if self.by == By::Source { packet.src_ip() } else { packet.dst_ip() };
        let (group, now) = (self.group_of(address), cx.now());
        let each = &self.terms[group as usize].each;
        let class = Class { own: each.own.full(now), ceil: each.ceil.full(now), lease, group, ..Class::default() };
        self.classes.set(cx, lease.index, class)?;
        let verdict = self.packet(cx, packet, &mut place)?;
        let _there = set.register(cx, place);
        Ok(verdict)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, place: &mut Place) -> Handled {
        if !self.shapes(packet) {
            return Ok(cx.pass());
        }
        let (now, cost, band) = (cx.now(), self.counted.cost(packet), self.bands.of(packet));
        let mut line = self.line(cx)?;
        // While packets wait, the link's credit is kept as of the time up to which they were served. What has flowed in since
        // is for ticks to distribute; otherwise a late tick would find a full bucket that had lost some inflow.
        let may_borrow = line.waiting == 0;
        let reached = if may_borrow { now } else { line.reached_ns };
        let mut branch = self.branch(cx, place.lease.index, reached)?;
        let terms = self.terms_of(&branch.class);
        if u64::from(cost) > terms.burst().min(self.link.burst()) {
            return Ok(Verdict::Drop(LARGER_THAN_BURST));
        }
        self.link.fill(&mut line.credit, reached);
        let charges = if may_borrow { &[Charge::Own, Charge::Group, Charge::Loan][..] } else { &[Charge::Own] };
        let goes = !branch.class.waits_before(band)
            && charges.iter().any(|charge| branch.pay(terms, &mut line.credit, cost, *charge).is_ok());
        if !goes && let Some(reason) = self.wait(cx, packet, (&mut branch.class, &mut line), band)? {
            return Ok(Verdict::Drop(reason));
        }
        place.waits = u32::from(branch.class.waiting);
        self.put_branch(cx, &branch)?;
        self.line.set(cx, 0, line)?;
        Ok(if goes { cx.pass() } else { Verdict::Drop(WAITS) })
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(if self.shapes(packet) { pass_unless_damaged(cx, packet) } else { cx.pass() })
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, place: &Place) -> Result<(), Conflict> {
        let waits = self.classes.update(cx, place.lease.index, |class| {
            class.is_forgotten = 1;
            class.waiting != 0
        })?;
        if waits != Some(true) {
            self.leases.free(cx, place.lease)?;
        }
        Ok(())
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        self.catch_up(cx)
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.queues.store.report(cx, into)
    }

    const HOLDS: bool = true;

    fn holds(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let line = self.line(cx)?;
        self.next_due(cx, &line, line.reached_ns)
    }
}

impl Borrower {
    fn shapes(&self, packet: &Packet<'_>) -> bool {
        self.from_port.is_none_or(|port| port == packet.port())
    }

    /// The index of an address's group terms: the group of the longest range that contains the address.
    fn group_of(&self, address: IpAddress) -> u32 {
        let holding = self.groups.iter().filter(|(range, _)| range.contains(address));
        holding.max_by_key(|(range, _)| range.bits()).map_or(0, |(_, group)| *group)
    }

    fn terms_of(&self, class: &Class) -> &Terms {
        &self.terms[class.group as usize]
    }

    fn line(&self, cx: &mut Cx<'_>) -> Result<Line, Conflict> {
        Ok(self.line.get(cx, 0)?.unwrap_or_default())
    }

    /// An address and its group, with their credit as of `now`.
    fn branch(&self, cx: &mut Cx<'_>, class: u32, now: u64) -> Result<Branch, Conflict> {
        let class = self.classes.get(cx, class)?.unwrap_or_default();
        let terms = self.terms_of(&class);
        let group = match &terms.total {
            Some(total) => self.credits.get(cx, class.group)?.map(|group| group.opened(total, now)),
            None => None,
        };
        let mut branch = Branch { class, group };
        branch.fill(terms, now);
        Ok(branch)
    }

    fn put_branch(&self, cx: &mut Cx<'_>, branch: &Branch) -> Result<(), Conflict> {
        if let Some(group) = branch.group {
            self.credits.set(cx, branch.class.group, group)?;
        }
        self.classes.set(cx, branch.class.lease.index, branch.class).map(drop)
    }

    /// Appends a packet to the queue of its address and priority. Returns the reason if it cannot wait.
    #[cold]
    fn wait(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (class, line): (&mut Class, &mut Line),
        band: u32,
    ) -> Result<Option<Reason>, Conflict> {
        let (at, cost) = (class.lease.index * self.queues.bands + band, self.counted.cost(packet));
        let waiting = self.queues.get(cx, at)?.bytes;
        if u64::from(waiting) + u64::from(cost) > self.queue_bytes {
            return Ok(Some(QUEUE_FULL));
        }
        if packet.bytes().len() > HELD_MAX {
            return Ok(Some(TOO_LONG));
        }
        if !self.queues.put(cx, at, packet, cost)? {
            return Ok(Some(NO_ROOM));
        }
        if line.waiting == 0 {
            // Time in which no packet waited need not be caught up.
            line.reached_ns = line.reached_ns.max(cx.now());
        }
        line.due_ns = 0;
        line.waiting += u64::from(class.waiting & 1 << band == 0);
        class.waiting |= 1 << band;
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
