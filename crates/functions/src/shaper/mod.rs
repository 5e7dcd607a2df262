//! Limits the traffic of every address to a rate by delaying packets: a policer that delays instead of dropping.
//!
//! When a packet arrives, it is known when its address will have the credit for it, after all packets that wait for the same
//! address. A packet that may leave at once does; any other waits in a [`Wheel`], and a tick sends it when it is due. Where all
//! addresses share a link, a packet leaves when the link has credit for it too, and only then is it charged to its address
//! ([`SharedLink`]). Addresses that may borrow what others leave of the link are handled by another function, [`Borrower`].

mod bands;
mod borrow;
mod config;
mod link;
mod ranges;
mod store;
mod wheel;

pub use bands::Fits;
pub use borrow::{Borrower, Class};
pub use config::{Config, Group, Link, Rates};
pub use link::SharedLink;
pub use ranges::Ranges;
pub use store::{HELD_MAX, Store, Waiting};
pub use wheel::{Departure, Wheel};

use std::iter::once;
use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::{FieldUse, Instance, Stage};

use crate::config::READS_WIRE_LEN;
use crate::parts::SECOND;
use crate::parts::config::counted::Counted;
use crate::parts::headers::scope::pass_unless_damaged;
use crate::policer::{By, Lengths};
use crate::token_bucket::{Bucket, LARGER_THAN_BURST, Limit};
use crate::{ConfigError, FromConfig};
use link::Place;

/// The packet waits; it leaves later, as a copy.
const WAITS: Reason = Reason("waits_for_credit");
/// The address's queue is full.
const QUEUE_FULL: Reason = Reason("queue_full");
/// There is no room for another waiting packet.
const NO_ROOM: Reason = Reason("no_room_to_wait");
/// There is no room for another address, with a link.
const ADDRESS_TABLE_FULL: Reason = Reason("address_table_full");
/// A packet that is longer than any that can wait.
const TOO_LONG: Reason = Reason("too_long_to_wait");

/// The period at which packets that are due are sent.
const TICK: Duration = Duration::from_millis(1);
/// The number of the period at which ranges are forgotten.
const SWEEPS: usize = 1;
/// The most addresses of which packets wait for a link, unless the plan says otherwise.
const ADDRESSES_MAX: u32 = 65_536;
/// The shortest timeout of a set: a set whose packets wait must not be forgotten.
const TIMEOUT_MIN_NS: u64 = 10 * SECOND;

/// What is known of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Shaped {
    /// The bucket as of the departure of the address's last packet.
    bucket: Bucket,
    /// When that departure is, or was.
    last_ns: u64,
    /// The turn of the wheel until which its packets wait; 0 if none ever has.
    last_turn: u64,
    /// With a link, its queue, which has the bucket while packets wait.
    place: Place,
}

network_function! {
    /// Shapes; see the README beside this file.
    pub struct Shaper {
        limit: Limit,
        counted: Counted,
        wait_max_ns: u64,
        by: By,
        from_port: Option<Port>,
        link: Option<SharedLink>,
        queue_bytes: u64,
        ranges: Option<Ranges>,
        wheel: Wheel,
    }
}

impl FromConfig for Shaper {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Shaper, ConfigError> {
        config.without_borrowing()?;
        let addresses = config.addresses_max.unwrap_or(ADDRESSES_MAX);
        let link = config.link_limit()?.map(|limit| SharedLink::new(builder, limit, addresses)).transpose()?;
        let limit = config.limit()?;
        if let Some(Lengths { v4, v6, .. }) = config.prefix {
            builder.agree("ranges", format!("a shaper's rates of /{v4} and /{v6}: {}", limit.in_words("bytes")));
        }
        let timeout_ns = limit.timeout_ns().max(TIMEOUT_MIN_NS);
        let ranges = config.prefix.map(|lengths| Ranges::new(builder, lengths, timeout_ns)).transpose()?;
        let store = Store::new(builder, config.queue_packets, config.mark_ns()?);
        let wheel = store.and_then(|store| Wheel::new(builder, store));
        Ok(Shaper {
            limit,
            counted: config.counted()?,
            wait_max_ns: config.wait_max_ns()?,
            by: config.by,
            from_port: config.checked_port(ports)?,
            link,
            queue_bytes: config.queue_bytes()?,
            ranges,
            wheel: wheel.map_err(|error| ConfigError::state("queue_packets", &error))?,
        })
    }
}

impl NetworkFunction for Shaper {
    type Set = Shaped;
    const NAME: &'static str = "shaper";
    const CONSUMES: &'static [Reason] = &[WAITS];

    /// Credit keeps its value under any limit, and waiting packets keep their times.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let room = |of: &Self| (of.wheel.store().room(), of.link.as_ref().map(SharedLink::addresses));
        let bits = |of: &Self| of.ranges.as_ref().map(Ranges::bits);
        if self.by != older.by || room(self) != room(older) || bits(self) != bits(older) {
            let stays = "`by`, `prefix`, `queue_packets`, `addresses_max` and whether there is a `link` stay";
            return Err(format!("packets wait where they lie: {stays}"));
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by == By::Source { SetDef::src_ip() } else { SetDef::dst_ip() })
    }

    fn timeout_ns(&self, _: &Shaped) -> u64 {
        self.limit.timeout_ns().max(TIMEOUT_MIN_NS)
    }

    /// Of an address that is forgotten while its packets wait, later ones would overtake them.
    fn is_assured(&self, shaped: &Shaped) -> bool {
        shaped.last_turn != 0 || shaped.place.exists()
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn ticks(&self) -> Vec<Duration> {
        once(TICK).chain(self.ranges.iter().map(|_| Ranges::SWEEP_EVERY)).collect()
    }

    fn divides(&self, period: usize) -> bool {
        period == SWEEPS
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Shaped>) -> Handled {
        if !self.shapes(packet) {
            return Ok(cx.pass());
        }
        if let Some(ranges) = &self.ranges {
            return self.shape_range(cx, packet, ranges);
        }
        let mut shaped = Shaped { bucket: self.limit.full(cx.now()), ..Shaped::default() };
        // The set is registered first: a packet that waits without a set could be overtaken.
        if !set.register(cx, shaped) {
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        let verdict = self.packet(cx, packet, &mut shaped)?;
        let _there = set.register(cx, shaped);
        Ok(verdict)
    }

    #[inline(always)]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, shaped: &mut Shaped) -> Handled {
        if !self.shapes(packet) {
            return Ok(cx.pass());
        }
        let (now, cost) = (cx.now(), self.counted.cost(packet));
        // An address with credit and no waiting packets sends at once.
        if shaped.last_turn == 0 && self.link.is_none() && self.limit.take(&mut shaped.bucket, now, cost) {
            shaped.last_ns = now;
            return Ok(cx.pass());
        }
        self.shape(cx, packet, shaped)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(if self.shapes(packet) { pass_unless_damaged(cx, packet) } else { cx.pass() })
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, shaped: &Shaped) -> Result<(), Conflict> {
        self.link.iter().try_for_each(|link| link.forget(cx, shaped.place))
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        if tick.period == SWEEPS {
            return self.ranges.iter().try_for_each(|ranges| ranges.sweep(cx, tick.share, self.link.as_ref()));
        }
        let now = cx.now();
        self.wheel.release(cx, |cx, packet| match &self.link {
            Some(link) => link.departure(cx, self.wheel.store(), &self.limit, packet),
            None if packet.due_ns > now => Ok(Departure::Later),
            None => Ok(Departure::Now),
        })
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.wheel.store().report(cx, into)
    }

    const HOLDS: bool = true;

    fn holds(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let Some((turn_ns, packet)) = self.wheel.first(cx)? else { return Ok(None) };
        let link_ns = match &self.link {
            Some(link) => link.ready_ns(cx, &packet)?,
            None => 0,
        };
        Ok(Some(turn_ns.max(link_ns)))
    }
}

impl Shaper {
    #[inline(always)]
    fn shapes(&self, packet: &Packet<'_>) -> bool {
        self.from_port.is_none_or(|port| port == packet.port())
    }

    /// Determines when a packet may leave, and sends it or lets it wait.
    #[inline(never)]
    fn shape(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, shaped: &mut Shaped) -> Handled {
        let (now, cost) = (cx.now(), self.counted.cost(packet));
        if u64::from(cost) > self.limit.burst().min(self.link.as_ref().map_or(u64::MAX, SharedLink::burst)) {
            return Ok(Verdict::Drop(LARGER_THAN_BURST));
        }
        if let Some(link) = &self.link {
            return self.shape_for(cx, packet, shaped, link);
        }
        let mut bucket = shaped.bucket;
        let due_ns = self.limit.take_after(&mut bucket, now.max(shaped.last_ns), cost);
        if due_ns == now && self.wheel.progress(cx)?.has_released(shaped.last_turn) {
            *shaped = Shaped { bucket, last_ns: now, last_turn: 0, ..*shaped };
            return Ok(cx.pass());
        }
        if due_ns - now > self.wait_max_ns {
            return Ok(Verdict::Drop(QUEUE_FULL));
        }
        if packet.bytes().len() > HELD_MAX {
            return Ok(Verdict::Drop(TOO_LONG));
        }
        if self.wheel.hold(cx, packet, (cost, due_ns, 0))?.is_none() {
            return Ok(Verdict::Drop(NO_ROOM));
        }
        *shaped = Shaped { bucket, last_ns: due_ns, last_turn: wheel::turn(due_ns), ..*shaped };
        Ok(Verdict::Drop(WAITS))
    }
}

/// Builds the shaper that the configuration describes: with a ceiling, addresses borrow and have state of another kind.
pub(crate) fn build(
    name: &str,
    config: toml::Table,
    builder: &mut StateBuilder,
    ports: u16,
) -> Result<Box<dyn Stage>, ConfigError> {
    let config: Config = crate::config::parse(config)?;
    let builder = builder.scope(name);
    Ok(match config.ceil_bytes_per_s {
        Some(_) => Box::new(Instance::new(name, Borrower::new(&config, builder, ports)?)),
        None => Box::new(Instance::new(name, Shaper::from_config(config, builder, ports)?)),
    })
}

#[cfg(test)]
mod tests;
