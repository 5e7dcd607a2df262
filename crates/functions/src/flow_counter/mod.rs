//! Counts packets and bytes of every flow. Counts are packet-set state only, so no worker waits for another.

mod config;

pub use config::Config;

use braid_nf::FieldUse;
use braid_nf::prelude::*;

use crate::config::READS_WIRE_LEN;
use crate::{ConfigError, FromConfig};

/// The count of one flow, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
}

/// Sums over all flows, kept with `totals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Totals {
    /// Flows that have begun.
    pub flows: u64,
    /// Packets that belong to a flow.
    pub counted: Count,
    /// Packets in no flow: they are not IP, or the table was full.
    pub others: Count,
}

network_function! {
    /// Counts flows; see the README beside this file.
    #[derive(Debug)]
    pub struct FlowCounter {
        flows: SetDef,
        idle_timeout_ns: u64,
        totals: Option<Distributed<Totals>>,
    }
}

impl FromConfig for FlowCounter {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<FlowCounter, ConfigError> {
        let five_tuple = SetDef::five_tuple();
        Ok(FlowCounter {
            flows: if config.symmetric { five_tuple.symmetric() } else { five_tuple },
            idle_timeout_ns: config.idle_timeout_ns()?,
            totals: config.totals(builder)?,
        })
    }
}

impl NetworkFunction for FlowCounter {
    type Set = Count;
    const NAME: &'static str = "flow_counter";
    const ANY_SET: bool = true;
    const SET_KEYS: &'static [&'static str] = &["symmetric"];

    /// Counts keep their meaning under any timeout.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(self.flows.clone())
    }

    fn timeout_ns(&self, _: &Count) -> u64 {
        self.idle_timeout_ns
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.idle_timeout_ns
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Count>) -> Handled {
        let count = Count { packets: 1, bytes: packet.wire_len().into() };
        if !set.register(cx, count) {
            return self.orphan(cx, packet);
        }
        self.add(cx, || Totals { flows: 1, counted: count, ..Totals::default() })
    }

    #[inline(always)]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Count) -> Handled {
        let count = Count { packets: 1, bytes: packet.wire_len().into() };
        flow.add(&count);
        self.add(cx, || Totals { counted: count, ..Totals::default() })
    }

    fn describe(&self, _: &mut Cx<'_>, _: &SetKey, flow: &Count) -> Result<Option<String>, Conflict> {
        Ok(Some(format!("{} packets, {} bytes", flow.packets, flow.bytes)))
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let others = Count { packets: 1, bytes: packet.wire_len().into() };
        self.add(cx, || Totals { others, ..Totals::default() })
    }
}

impl FlowCounter {
    #[inline(always)]
    fn add(&self, cx: &mut Cx<'_>, more: impl FnOnce() -> Totals) -> Handled {
        if let Some(totals) = &self.totals {
            let more = more();
            totals.update(cx, |sum| sum.add(&more))?;
        }
        Ok(cx.pass())
    }
}

impl Count {
    #[inline(always)]
    fn add(&mut self, more: &Count) {
        self.packets += more.packets;
        self.bytes += more.bytes;
    }
}

impl Totals {
    /// Merges another worker's part into this one.
    #[inline(always)]
    pub fn add(&mut self, more: &Totals) {
        self.flows += more.flows;
        self.counted.add(&more.counted);
        self.others.add(&more.others);
    }
}

#[cfg(test)]
mod tests;
