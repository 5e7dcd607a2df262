//! `{name}`: lets each source address have so many flows at a time.
//!
//! Sequential code: handlers run as if one core ran them. What belongs to a flow is the packet-set state ([`NetworkFunction::Set`]);
//! what flows share is reached through `cx`, and `?` hands a conflict on, so that Braid runs the handler again.
#![forbid(unsafe_code)]

use std::time::Duration;

use braid_functions::{ConfigError, FromConfig};
use braid_nf::packet::IpAddress;
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig};

/// The source has as many flows as it may have.
const TOO_MANY_FLOWS: Reason = Reason("too_many_flows");

/// Longest time that a packet set may live without a packet: 24 days.
const IDLE_S_MAX: u64 = 24 * 24 * 60 * 60;

/// What a plan file may say: `[nf.config]`.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Most flows of one source address.
    pub flows_max: u64,
    /// Seconds without a packet after which a flow is forgotten.
    pub idle_s: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { flows_max: 100, idle_s: 30 }
    }
}

/// What is kept of a flow: plain data of fixed size, without pointers or padding.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    /// Who opened it.
    source: IpAddress,
    /// Its packets so far.
    packets: u64,
}

network_function! {
    /// Limits flows by source address.
    pub struct {Type} {
        flows_max: u64,
        idle: Duration,
        /// How many flows each source has.
        flows: Map<IpAddress, u64>,
    }
}

impl FromConfig for {Type} {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _ports: u16) -> Result<{Type}, ConfigError> {
        if config.flows_max == 0 {
            return Err(ConfigError::new("flows_max", "nothing would pass", "write 1 or more"));
        }
        if !(1..=IDLE_S_MAX).contains(&config.idle_s) {
            let reason = format!("{} is out of range", config.idle_s);
            return Err(ConfigError::new("idle_s", reason, format!("write 1 to {IDLE_S_MAX}")));
        }
        let flows = Map::new(builder, &MapConfig { name: "flows".into(), capacity: 65_536, ..MapConfig::default() })
            .map_err(|error| ConfigError::state("flows", &error))?;
        Ok({Type} { flows_max: config.flows_max, idle: Duration::from_secs(config.idle_s), flows })
    }
}

impl NetworkFunction for {Type} {
    type Set = Flow;
    const NAME: &'static str = "{name}";

    /// Packets of one flow are handled in order on one core.
    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn timeout_ns(&self, _: &Flow) -> u64 {
        self.idle.as_nanos() as u64
    }

    /// The first packet of a flow: the flow lives only if its handler registers it.
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Flow>) -> Handled {
        let source = packet.src_ip();
        let flows = self.flows.get(cx, &source)?.unwrap_or(0);
        if flows >= self.flows_max {
            return Ok(Verdict::Drop(TOO_MANY_FLOWS));
        }
        if self.flows.insert(cx, &source, &(flows + 1))? == Inserted::Full {
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        if !set.register(cx, Flow { source, packets: 1 }) {
            // A dropped packet keeps what it has written: a flow that does not live must not count.
            self.forget(cx, &source)?;
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        Ok(cx.pass())
    }

    /// A packet of a flow that lives.
    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, flow: &mut Flow) -> Handled {
        flow.packets += 1;
        Ok(cx.pass())
    }

    /// A packet in no flow, such as ARP.
    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    /// A flow has been silent for too long.
    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, flow: &Flow) -> Result<(), Conflict> {
        self.forget(cx, &flow.source)
    }
}

impl {Type} {
    /// Takes one flow of a source off its count.
    fn forget(&self, cx: &mut Cx<'_>, source: &IpAddress) -> Result<(), Conflict> {
        match self.flows.get(cx, source)? {
            Some(flows) if flows > 1 => self.flows.insert(cx, source, &(flows - 1)).map(drop),
            _ => self.flows.remove(cx, source).map(drop),
        }
    }
}
