//! Limits the traffic of every address to a rate by delaying packets: a policer that delays instead of dropping.
//!
//! When a packet arrives, it is known when its address will have the credit for it, after all packets that wait for the same
//! address. A packet that may leave at once does; any other waits in a [`Wheel`], and a tick sends it when it is due and the
//! link has credit for it too. Addresses that may borrow what others leave of the link are handled by another function,
//! [`Borrower`].

mod accounts;
mod bands;
mod borrow;
mod config;
mod store;
mod wheel;

pub use bands::Fits;
pub use borrow::{Borrower, Class};
pub use config::{Config, Group, Link, Rates};
pub use store::{HELD_MAX, Store, Waiting};
pub use wheel::Wheel;

use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::state::VectorConfig;
use braid_nf::{FieldUse, Instance, Stage};

use crate::config::READS_WIRE_LEN;
use crate::parts::SECOND;
use crate::parts::counted::Counted;
use crate::policer::By;
use crate::token_bucket::{Bucket, LARGER_THAN_BURST, Limit};
use crate::{ConfigError, FromConfig};
use accounts::{Account, Accounts};

/// The packet waits; it leaves later, as a copy.
const WAITS: Reason = Reason("waits_for_credit");
/// The address's queue is full.
const QUEUE_FULL: Reason = Reason("queue_full");
/// There is no room for another waiting packet.
const NO_ROOM: Reason = Reason("no_room_to_wait");
/// A packet that is longer than any that can wait.
const TOO_LONG: Reason = Reason("too_long_to_wait");

/// The period at which packets that are due are sent.
const TICK: Duration = Duration::from_millis(1);
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
    /// Its account, if packets of it wait for the link.
    account: Account,
}

network_function! {
    /// Shapes; see the README beside this file.
    pub struct Shaper {
        limit: Limit,
        counted: Counted,
        wait_max_ns: u64,
        by: By,
        from_port: Option<Port>,
        link: Option<Limit>,
        /// The link's credit, as of its last packet.
        credit: Vector<Bucket>,
        /// With a link, how many bytes of each address wait, and may.
        accounts: Option<Accounts>,
        queue_bytes: u64,
        wheel: Wheel,
    }
}

impl FromConfig for Shaper {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Shaper, ConfigError> {
        config.without_borrowing()?;
        let link = config.link_limit()?;
        let full = link.map_or(Bucket::default(), |limit| limit.full(0));
        let rate = link.map_or_else(|| "no limit".to_owned(), |limit| limit.in_words("bytes"));
        builder.agree("link", format!("a shaper's bucket of {rate}"));
        let credit = Vector::new(builder, &VectorConfig { name: "link".into(), len: 1 }, full);
        let accounts = link.map(|_| Accounts::new(builder, config.queue_packets)).transpose();
        let store = Store::new(builder, config.queue_packets, config.mark_ns()?);
        let wheel = store.and_then(|store| Wheel::new(builder, store));
        Ok(Shaper {
            limit: config.limit()?,
            counted: config.counted()?,
            wait_max_ns: config.wait_max_ns()?,
            by: config.by,
            from_port: config.checked_port(ports)?,
            link,
            credit: credit.map_err(|error| ConfigError::state("link", &error))?,
            accounts: accounts.map_err(|error| ConfigError::state("queue_packets", &error))?,
            queue_bytes: config.queue_bytes()?,
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
        if self.by != older.by || self.wheel.store().room() != older.wheel.store().room() {
            return Err("packets wait where they lie: `by` and `queue_packets` stay".to_owned());
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by == By::Source { SetDef::src_ip() } else { SetDef::dst_ip() })
    }

    fn timeout_ns(&self, _: &Shaped) -> u64 {
        self.limit.timeout_ns().max(TIMEOUT_MIN_NS)
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![TICK]
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Shaped>) -> Handled {
        if !self.shapes(packet) {
            return Ok(cx.pass());
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

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        let now = cx.now();
        self.wheel.release(cx, |cx, packet| {
            let Some(limit) = &self.link else { return Ok(true) };
            // As if the packet left when it was due, however late the tick is.
            let take = |bucket: &mut Bucket| limit.take_by(bucket, packet.due_ns, now, packet.cost);
            let leaves = self.credit.update(cx, 0, take)?.unwrap_or(true);
            if let Some(accounts) = self.accounts.as_ref().filter(|_| leaves) {
                accounts.take_off(cx, packet.account, packet.cost)?;
            }
            Ok(leaves)
        })
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.wheel.store().report(cx, into)
    }

    const HOLDS: bool = true;

    fn holds(&self, cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        let (Some((turn_ns, packet)), credit) = (self.wheel.first(cx)?, self.credit.get(cx, 0)?) else {
            return Ok(None);
        };
        let link =
            self.link.zip(credit).map(|(limit, mut credit)| limit.take_after(&mut credit, packet.due_ns, packet.cost));
        Ok(Some(turn_ns.max(link.unwrap_or(0))))
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
        if u64::from(cost) > self.limit.burst().min(self.link.map_or(u64::MAX, |link| link.burst())) {
            return Ok(Verdict::Drop(LARGER_THAN_BURST));
        }
        let mut bucket = shaped.bucket;
        let due_ns = self.limit.take_after(&mut bucket, now.max(shaped.last_ns), cost);
        if due_ns == now && self.goes_at_once(cx, shaped, now, cost)? {
            *shaped = Shaped { bucket, last_ns: now, last_turn: 0, ..*shaped };
            return Ok(cx.pass());
        }
        let waits_for_link = match &self.accounts {
            Some(accounts) => accounts.bytes(cx, shaped.account)?,
            None => 0,
        };
        let is_over = waits_for_link > 0 && waits_for_link + u64::from(cost) > self.queue_bytes;
        if due_ns - now > self.wait_max_ns || is_over {
            return Ok(Verdict::Drop(QUEUE_FULL));
        }
        if packet.bytes().len() > HELD_MAX {
            return Ok(Verdict::Drop(TOO_LONG));
        }
        let account = match &self.accounts {
            Some(accounts) => accounts.add(cx, shaped.account, cost)?,
            None => Account::default(),
        };
        if !self.wheel.hold(cx, packet, (cost, due_ns, account.number))? {
            self.accounts.iter().try_for_each(|accounts| accounts.take_off(cx, account.number, cost))?;
            return Ok(Verdict::Drop(NO_ROOM));
        }
        *shaped = Shaped { bucket, last_ns: due_ns, last_turn: wheel::turn(due_ns), account };
        Ok(Verdict::Drop(WAITS))
    }

    /// Whether no packet waits before one that is due now, and the link has credit for it.
    fn goes_at_once(&self, cx: &mut Cx<'_>, shaped: &Shaped, now: u64, cost: u32) -> Result<bool, Conflict> {
        let progress = self.wheel.progress(cx)?;
        match &self.link {
            None => Ok(progress.has_released(shaped.last_turn)),
            Some(_) if progress.waiting > 0 => Ok(false),
            Some(limit) => Ok(self.credit.update(cx, 0, |bucket| limit.take(bucket, now, cost))? == Some(true)),
        }
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
