//! Polices the traffic of every address to a rate, with a meter for each, and optionally one for all of them together.
//!
//! An address's meter is packet-set state. The meters of address ranges and of the link are shared and updated in
//! transactions: no worker has a share of its own that it could overdraw.

mod colours;
mod config;
mod groups;
mod meter;

pub use config::{By, Config, Drops, Kind, Lengths, Link, Marks};
pub use groups::Groups;
pub use meter::{Colour, Meter, Metered};

use std::mem::discriminant;
use std::time::Duration;

use braid_nf::FieldUse;
use braid_nf::prelude::*;
use braid_nf::state::VectorConfig;

use self::colours::Met;
use crate::config::READS_WIRE_LEN;
use crate::parts::Volume;
use crate::parts::config::counted::Counted;
use crate::parts::headers::dscp;
use crate::parts::headers::scope::pass_unless_damaged;
use crate::parts::tables::tallies::Tallies;
use crate::token_bucket::{Bucket, LARGER_THAN_BURST, Limit, RATE_EXCEEDED};
use crate::{ConfigError, FromConfig};

/// The address had credit, but all together had none left.
const LINK_EXCEEDED: Reason = Reason("link_exceeded");
/// There is no room for another address range.
const TABLE_FULL: Reason = Reason("table_full");

network_function! {
    /// Polices addresses; see the README beside this file.
    pub struct Policer {
        meter: Meter,
        /// The limit, if the policer has a single meter per address and no colours, marks, shared state, adjusted byte
        /// counts or counts of packets.
        plain: Option<Limit>,
        in_packets: bool,
        counted: Counted,
        colour_aware: bool,
        drops_yellow: bool,
        marks: Marks,
        by: By,
        from_port: Option<Port>,
        groups: Option<Groups>,
        link: Option<(Limit, Vector<Bucket>)>,
        /// What got which colour; empty if that is not counted.
        colours: Tallies<Volume>,
    }
}

impl FromConfig for Policer {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Policer, ConfigError> {
        let (meter, counted) = (config.meter()?, config.counted()?);
        let unit = if config.in_packets()? { "packets" } else { "bytes" };
        if let Some(Lengths { v4, v6, .. }) = config.prefix {
            builder.agree("ranges", format!("a policer's meters of /{v4} and /{v6}: {}", meter.in_words(unit)));
        }
        let groups = config.prefix.map(|lengths| Groups::new(builder, lengths, meter.timeout_ns())).transpose()?;
        let link = match config.link_limit()? {
            None => None,
            Some(limit) => {
                builder.agree("link", format!("a policer's bucket of {}", limit.in_words(unit)));
                let init = VectorConfig { name: "link".into(), len: 1 };
                let bucket = Vector::new(builder, &init, limit.full(0));
                Some((limit, bucket.map_err(|error| ConfigError::state("link", &error))?))
            }
        };
        let marks = config.dscp;
        let plain = match meter {
            Meter::Single(limit) if !config.colour_aware && !config.counts && marks == Marks::default() => Some(limit),
            _ => None,
        };
        Ok(Policer {
            meter,
            plain: plain.filter(|_| groups.is_none() && link.is_none() && counted.is_plain()),
            in_packets: config.in_packets()?,
            counted,
            colour_aware: config.colour_aware,
            drops_yellow: config.drop == Drops::Yellow,
            marks,
            by: config.by,
            from_port: config.checked_port(ports)?,
            groups,
            link,
            colours: colours::counts(builder, config.counts)?,
        })
    }
}

impl NetworkFunction for Policer {
    type Set = Metered;
    const NAME: &'static str = "policer";
    const ANY_SET: bool = true;
    const SET_KEYS: &'static [&'static str] = &["prefix", "by"];

    /// A bucket keeps its credit under any limit; credit beyond the burst is cut.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let same_unit = self.in_packets == older.in_packets && discriminant(&self.meter) == discriminant(&older.meter);
        if !same_unit || self.by != older.by || self.groups.is_some() != older.groups.is_some() {
            return Err(
                "buckets hold what they were filled with: unit, `meter`, `by`, and whether there is a `prefix`, stay"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(if self.by == By::Source { SetDef::src_ip() } else { SetDef::dst_ip() })
    }

    /// A bucket that has had time to fill equals a fresh one.
    fn timeout_ns(&self, _: &Metered) -> u64 {
        self.meter.timeout_ns()
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.meter.timeout_ns()
    }

    fn fields(&self) -> Vec<FieldUse> {
        if self.in_packets && self.colours.is_empty() { Vec::new() } else { vec![READS_WIRE_LEN] }
    }

    fn ticks(&self) -> Vec<Duration> {
        self.groups.iter().map(|_| groups::SWEEP_EVERY).collect()
    }

    fn divides(&self, _period: usize) -> bool {
        true
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Metered>) -> Handled {
        let mut metered = self.meter.full(cx.now());
        if !self.polices(packet) || self.groups.is_some() {
            return self.packet(cx, packet, &mut metered);
        }
        if self.is_hopeless(packet) && self.marks.red.is_none() {
            self.count(cx, packet, Met::Colour(Colour::Red))?;
            return Ok(Verdict::Drop(LARGER_THAN_BURST));
        }
        let met = self.charge(cx, packet, &mut metered)?;
        if !set.register(cx, metered) {
            self.give_back(cx, packet, met)?;
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        self.conclude(cx, packet, met)
    }

    #[inline(always)]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, metered: &mut Metered) -> Handled {
        if !self.polices(packet) {
            return Ok(cx.pass());
        }
        if let Some(limit) = &self.plain
            && metered.take(limit, cx.now(), self.plain_cost(packet))
        {
            return Ok(cx.pass());
        }
        packet.out_of_line(|packet| match &self.groups {
            None => self.police(cx, packet, metered),
            Some(groups) => self.police_group(cx, packet, groups),
        })
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(if self.polices(packet) { pass_unless_damaged(cx, packet) } else { cx.pass() })
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.tell_counts(cx, into)
    }

    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, metered: &Metered) -> Result<Option<String>, Conflict> {
        Ok(Some(self.meter.credit_in_words(metered, cx.now(), self.unit())))
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.groups.iter().try_for_each(|groups| groups.sweep(cx, tick.share))
    }
}

impl Policer {
    fn unit(&self) -> &'static str {
        if self.in_packets { "packets" } else { "bytes" }
    }

    #[inline(always)]
    fn polices(&self, packet: &Packet<'_>) -> bool {
        self.from_port.is_none_or(|port| port == packet.port())
    }

    /// What a packet costs if the policer is plain.
    #[inline(always)]
    fn plain_cost(&self, packet: &Packet<'_>) -> u32 {
        if self.in_packets { 1 } else { packet.wire_len() }
    }

    fn cost(&self, packet: &Packet<'_>) -> u32 {
        if self.in_packets { 1 } else { self.counted.cost(packet) }
    }

    fn is_hopeless(&self, packet: &Packet<'_>) -> bool {
        u64::from(self.cost(packet)) > self.meter.burst()
    }

    /// Meters a packet, at the link too if there is one; neither meter is charged unless both agree. What leaves is charged to the link,
    /// a red packet that passes marked as well, though that takes nothing from its address.
    #[inline(always)]
    fn police(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, metered: &mut Metered) -> Handled {
        let met = self.charge(cx, packet, metered)?;
        self.conclude(cx, packet, met)
    }

    /// Charges a packet to its meter and to the link.
    #[inline(always)]
    fn charge(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, metered: &mut Metered) -> Result<Met, Conflict> {
        let came =
            if self.colour_aware { dscp::of(packet).map_or(Colour::Green, Colour::of_dscp) } else { Colour::Green };
        let (now, cost) = (cx.now(), self.cost(packet));
        let before = *metered;
        let colour = self.meter.colour(metered, now, cost, came);
        if colour == Colour::Yellow && self.drops_yellow {
            *metered = before;
        }
        if let Some((limit, bucket)) = &self.link
            && self.lets_pass(colour)
            && bucket.update(cx, 0, |bucket| limit.take(bucket, now, cost))? != Some(true)
        {
            *metered = before;
            return Ok(Met::LinkExceeded);
        }
        Ok(Met::Colour(colour))
    }

    /// Counts a packet that has been charged, and decides about it.
    #[inline(always)]
    fn conclude(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, met: Met) -> Handled {
        self.count(cx, packet, met)?;
        Ok(match met {
            Met::LinkExceeded => Verdict::Drop(LINK_EXCEEDED),
            Met::Colour(colour) => self.mark(cx, packet, colour),
        })
    }

    /// Whether packets of a colour pass, as far as the link lets them.
    #[inline(always)]
    fn lets_pass(&self, colour: Colour) -> bool {
        match colour {
            Colour::Green => true,
            Colour::Yellow => !self.drops_yellow,
            Colour::Red => self.marks.red.is_some(),
        }
    }

    /// Gives the link back what was taken for a packet that is dropped because there is no room for its meter.
    #[cold]
    fn give_back(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, met: Met) -> Result<(), Conflict> {
        if let (Some((limit, bucket)), Met::Colour(colour)) = (&self.link, met)
            && self.lets_pass(colour)
        {
            let cost = self.cost(packet);
            bucket.update(cx, 0, |bucket| limit.give_back(bucket, cost))?;
        }
        Ok(())
    }

    /// Polices a packet by the meter of its address range.
    fn police_group(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, groups: &Groups) -> Handled {
        let address = if self.by == By::Source { packet.src_ip() } else { packet.dst_ip() };
        let known = groups.get(cx, address)?;
        let mut metered = known.unwrap_or_else(|| self.meter.full(cx.now()));
        // Without room nothing is charged, the link's meter neither.
        if known.is_none() && !groups.set(cx, address, metered)? {
            return Ok(Verdict::Drop(TABLE_FULL));
        }
        let verdict = self.police(cx, packet, &mut metered)?;
        if !groups.set(cx, address, metered)? {
            return Ok(Verdict::Drop(TABLE_FULL));
        }
        Ok(verdict)
    }

    /// Marks or drops a packet according to its colour.
    #[inline(always)]
    fn mark(&self, cx: &Cx<'_>, packet: &mut Packet<'_>, colour: Colour) -> Verdict {
        let mark = match colour {
            Colour::Green => self.marks.green,
            Colour::Yellow if self.drops_yellow => return Verdict::Drop(RATE_EXCEEDED),
            Colour::Yellow => self.marks.yellow,
            Colour::Red if self.marks.red.is_none() => {
                return Verdict::Drop(if self.is_hopeless(packet) { LARGER_THAN_BURST } else { RATE_EXCEEDED });
            }
            Colour::Red => self.marks.red,
        };
        if let Some(mark) = mark {
            dscp::set(packet, mark.0);
        }
        cx.pass()
    }
}

#[cfg(test)]
mod tests;
