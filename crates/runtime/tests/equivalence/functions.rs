//! Small functions that share as much as they can, and traffic for them.

use std::time::Duration;

use braid_io::ReplaySource;
use braid_io::memory::Repeat;
use braid_nf::Stage;
use braid_nf::prelude::*;
use braid_state::{Alone, DistributedConfig, MapConfig, VectorConfig};

use crate::traffic::{Sent, replayed};

network_function! {
    /// Packets of each flow; expires after a second; writes the count into the packet.
    struct PerFlow {}
}

impl NetworkFunction for PerFlow {
    type Set = u64;
    const NAME: &'static str = "per_flow";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &u64) -> u64 {
        1_000_000_000
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        if let Some(last) = packet.bytes_mut().last_mut() {
            *last = *count as u8;
        }
        Ok(if (*count).is_multiple_of(7) { Verdict::Drop(Reason("seventh")) } else { cx.pass() })
    }
}

network_function! {
    /// Shared counters of every kind: a vector cell by destination, a map entry by source, a distributed sum. All conflict.
    struct Shared {
        cells: Vector<u64>,
        sources: Map<u32, u64>,
        sum: Distributed<u64>,
    }
}

impl Shared {
    fn count(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let (source, cell) = (packet.bytes()[29] as u32, packet.bytes()[33] as u32 % 4);
        let seen = self.cells.update(cx, cell, |count| {
            *count += 1;
            *count
        })?;
        match self.sources.get(cx, &source)? {
            Some(count) => self.sources.insert(cx, &source, &(count + 1))?,
            None => self.sources.insert(cx, &source, &1)?,
        };
        self.sum.update(cx, |sum| *sum += 1)?;
        let total = self.sum.read(cx, |merged, part| *merged += part)?;
        let bytes = packet.bytes_mut();
        bytes[50..58].copy_from_slice(&(seen.unwrap_or(0) * 1_000_000 + total).to_be_bytes());
        Ok(cx.pass())
    }
}

impl NetworkFunction for Shared {
    type Set = ();
    const NAME: &'static str = "shared";

    fn first(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut NewSet<'_, ()>) -> Handled {
        Ok(Verdict::Drop(Reason("not reached")))
    }

    fn packet(&self, _: &mut Cx<'_>, _: &mut Packet<'_>, _: &mut ()) -> Handled {
        Ok(Verdict::Drop(Reason("not reached")))
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.count(cx, packet)
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_millis(10)]
    }

    fn tick(&self, cx: &mut Cx<'_>, _: Tick) -> Result<(), Conflict> {
        self.cells.update(cx, 0, |count| *count += 1000)?;
        Ok(())
    }
}

network_function! {
    /// Packets from each source address: a set that steering by flows tears apart. Expires after half a second.
    struct PerSource {}
}

impl NetworkFunction for PerSource {
    type Set = u64;
    const NAME: &'static str = "per_source";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::src_ip())
    }

    fn timeout_ns(&self, count: &u64) -> u64 {
        if count.is_multiple_of(2) { 40_000_000 } else { 500_000_000 }
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        packet.bytes_mut()[58] = 0;
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        packet.bytes_mut()[58] = *count as u8;
        Ok(cx.pass())
    }
}

network_function! {
    /// Packets of each flow, counted without a context, but for every third one, which counts in a shared cell too.
    struct Mostly {
        cells: Vector<u64>,
    }
}

impl NetworkFunction for Mostly {
    type Set = u64;
    const NAME: &'static str = "mostly";
    const STEADY: bool = true;

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn first(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, set: &mut NewSet<'_, u64>) -> Handled {
        Ok(if set.register(cx, 1) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    fn steady(&self, _: Arrival<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Option<Verdict> {
        if count.is_multiple_of(3) {
            return None;
        }
        *count += 1;
        // A repetition would show.
        packet.bytes_mut()[50..58].iter_mut().for_each(|byte| *byte = byte.wrapping_add(*count as u8));
        Some(if count.is_multiple_of(7) { Verdict::Drop(Reason("seventh")) } else { Verdict::Onward })
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, count: &mut u64) -> Handled {
        *count += 1;
        let total = self.cells.update(cx, 0, |total| {
            *total += 1;
            *total
        })?;
        packet.bytes_mut()[50..58].copy_from_slice(&total.unwrap_or(0).to_be_bytes());
        Ok(cx.pass())
    }
}

pub fn mostly(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let cells = Vector::new(builder, &VectorConfig { name: "cells".into(), len: 1 }, 0).expect("one cell");
    vec![Box::new(braid_nf::Instance::new("mostly", Mostly { cells }))]
}

network_function! {
    /// Writes into each packet how often something had changed; every fifth packet of a flow changes something. A flow remembers under
    /// which number it wrote last, and its packets.
    struct Ages {
        era: Vector<u64>,
    }
}

impl NetworkFunction for Ages {
    type Set = [u64; 2];
    const NAME: &'static str = "ages";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, [u64; 2]>) -> Handled {
        let era = self.era.get(cx, 0)?.unwrap_or(0);
        packet.bytes_mut()[50..58].copy_from_slice(&era.to_be_bytes());
        Ok(if set.register(cx, [era, 1]) { cx.pass() } else { Verdict::Drop(Reason::SET_TABLE_FULL) })
    }

    const STEADY: bool = true;

    fn steady(&self, arrival: Arrival<'_>, packet: &mut Packet<'_>, set: &mut [u64; 2]) -> Option<Verdict> {
        let [era, count] = *set;
        if arrival.era != Some(era) || count.is_multiple_of(5) {
            return None;
        }
        set[1] += 1;
        packet.bytes_mut()[50..58].copy_from_slice(&era.to_be_bytes());
        Some(Verdict::Onward)
    }

    const ERAS: bool = true;

    fn era(&self, alone: Alone<'_>) -> Option<u64> {
        self.era.read_alone(alone, 0)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut [u64; 2]) -> Handled {
        if set[1].is_multiple_of(5) {
            self.era.update(cx, 0, |era| *era += 1)?;
        }
        let era = self.era.get(cx, 0)?.unwrap_or(0);
        *set = [era, set[1] + 1];
        packet.bytes_mut()[50..58].copy_from_slice(&era.to_be_bytes());
        Ok(cx.pass())
    }
}

pub fn ages(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let era = Vector::new(builder, &VectorConfig { name: "era".into(), len: 1 }, 0).expect("one cell");
    vec![Box::new(braid_nf::Instance::new("ages", Ages { era }))]
}

network_function! {
    /// One half of counting: the first function writes the count into the packet, the second one makes it one more than the packet
    /// says. Right only if nothing happens between the two.
    struct Half {
        count: Vector<u64>,
        is_second: bool,
    }
}

impl NetworkFunction for Half {
    type Set = ();
    const NAME: &'static str = "half";

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if !self.is_second {
            let count = self.count.get(cx, 0)?.unwrap_or(0);
            packet.bytes_mut()[50..58].copy_from_slice(&count.to_be_bytes());
            return Ok(cx.pass());
        }
        let said = packet.bytes()[50..58].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        self.count.set(cx, 0, said + 1)?;
        Ok(cx.pass())
    }
}

pub fn halves(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let count = Vector::new(builder, &VectorConfig { name: "count".into(), len: 1 }, 0).expect("one cell");
    let half = |name, is_second| Box::new(braid_nf::Instance::new(name, Half { count: count.clone(), is_second }));
    vec![half("reader", false), half("writer", true)]
}

pub fn stages(builder: &mut StateBuilder) -> Vec<Box<dyn Stage>> {
    let cells = VectorConfig { name: "cells".into(), len: 4 };
    let shared = Shared {
        cells: Vector::new(builder, &cells, 0).expect("four cells"),
        sources: Map::new(builder, &MapConfig { name: "sources".into(), capacity: 512, ..MapConfig::default() })
            .expect("small"),
        sum: Distributed::new(builder, &DistributedConfig { name: "sum".into(), staleness_ns: 0 }, 0).expect("small"),
    };
    vec![Box::new(braid_nf::Instance::new("per_flow", PerFlow {})), Box::new(braid_nf::Instance::new("shared", shared))]
}

/// A function with local sets and one with shared sets.
pub fn torn() -> Vec<Box<dyn Stage>> {
    let flows = Box::new(braid_nf::Instance::new("per_flow", PerFlow {}));
    vec![flows, Box::new(braid_nf::Instance::new("per_source", PerSource {}))]
}

/// UDP packets of `flows` flows in scrambled order, one per millisecond.
pub fn traffic(packets: u64, flows: u64) -> ReplaySource {
    let packet = |n: u64| {
        let flow = (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) % flows;
        Sent { from: u16::from(flow as u8), to: (flow >> 3) as u8, port: 1000 + flow as u16, at_ns: n * 1_000_000 }
    };
    replayed(packets, Repeat::Passes(1), packet)
}
