//! Detects an attack by the share of flows with a single packet (NFOS section 4.8, listing 2).

mod config;
mod cookies;
mod sources;

pub use config::{Action, Config};
pub use cookies::{COOKIE_INVALID, COOKIE_SENT, CookieConfig, NO_CONNECTION, SynProxy, Tally, When};
pub use sources::Sources;

use std::time::Duration;

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol::TCP;
use braid_nf::prelude::*;
use braid_nf::{Instance, Relaxation, Stage};

use crate::parts::Unkept;
use crate::parts::headers::dscp;
use crate::{ConfigError, FromConfig};

/// A new flow began while too many flows had a single packet.
const ATTACK: Reason = Reason("attack");

// listing: begin
/// Whether the flow has had a single packet so far.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Flow {
    one_packet: u8,
}

/// Counts of all workers together: live flows, those with a single packet, and flows that began under attack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Counters {
    pub flows: i64,
    pub one_packet: i64,
    pub refused: i64,
}

impl Counters {
    /// Merges another worker's part into this one.
    pub fn add(&mut self, part: &Counters) {
        self.flows += part.flows;
        self.one_packet += part.one_packet;
        self.refused += part.refused;
    }
}
// listing: end

network_function! {
    /// Detects floods; see the README beside this file.
    #[derive(Debug)]
    pub struct AntiDdos {
        counters: Distributed<Counters>,
        threshold: f64,
        flows_min: i64,
        action: Action,
        dscp: u8,
        sources: Option<Sources>,
        no_room: Unkept,
        idle_timeout_ns: u64,
    }
}

impl FromConfig for AntiDdos {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<AntiDdos, ConfigError> {
        config.without_cookies()?;
        Ok(AntiDdos {
            counters: config.counters(builder)?,
            threshold: config.threshold()?,
            flows_min: config.flows_min.into(),
            action: config.action,
            dscp: config.dscp()?,
            sources: config.sources(builder)?,
            no_room: Unkept::new(builder, "no_room", "packets of flows for which there was no room")
                .map_err(|error| ConfigError::state("sets", &error))?,
            idle_timeout_ns: config.idle_timeout_ns()?,
        })
    }
}

impl NetworkFunction for AntiDdos {
    type Set = Flow;
    const NAME: &'static str = "anti_ddos";

    /// The counters keep their meaning under any action.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[TCP]))
    }

    fn timeout_ns(&self, _: &Flow) -> u64 {
        self.idle_timeout_ns
    }

    fn is_assured(&self, flow: &Flow) -> bool {
        flow.one_packet == 0
    }

    fn ticks(&self) -> Vec<Duration> {
        self.sources.iter().map(|_| sources::SWEEP_EVERY).collect()
    }

    fn divides(&self, _period: usize) -> bool {
        true
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.sources.iter().try_for_each(|sources| sources.sweep(cx, tick.share))
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let all = self.counters.read(cx, Counters::add)?;
        if all.refused > 0 {
            into.add("flows that began under attack", all.refused as u64);
        }
        self.no_room.report(cx, into)?;
        self.sources.iter().try_for_each(|sources| sources.report(cx, into))
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        relaxations()
    }

    // listing: begin
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Flow>) -> Handled {
        if !set.register(cx, Flow { one_packet: 1 }) {
            return self.refuse(cx, packet, Reason::SET_TABLE_FULL);
        }
        self.counters.update(cx, |own| (own.flows, own.one_packet) = (own.flows + 1, own.one_packet + 1))?;
        let all = self.counters.read(cx, Counters::add)?;
        let attack = all.flows >= self.flows_min && all.one_packet as f64 > self.threshold * all.flows as f64;
        if attack { self.refuse(cx, packet, ATTACK) } else { Ok(cx.pass()) }
    }

    fn packet(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>, flow: &mut Flow) -> Handled {
        if flow.one_packet == 1 {
            flow.one_packet = 0;
            self.counters.update(cx, |own| own.one_packet -= 1)?;
        }
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, flow: &Flow) -> Result<(), Conflict> {
        self.counters.update(cx, |own| {
            own.flows -= 1;
            own.one_packet -= i64::from(flow.one_packet);
        })
    }
    // listing: end

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }
}

impl AntiDdos {
    /// Decides about the first packet of a flow that begins under attack or finds no room.
    fn refuse(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, reason: Reason) -> Handled {
        match reason {
            ATTACK => self.counters.update(cx, |own| own.refused += 1)?,
            _ => self.no_room.count(cx)?,
        }
        let passes = match (self.action, &self.sources) {
            (Action::Limit, Some(sources)) => sources.admit(cx, beginner(packet))?,
            (action, _) => matches!(action, Action::Pass | Action::Mark),
        };
        if self.action == Action::Mark {
            dscp::set(packet, self.dscp);
        }
        Ok(if passes { cx.pass() } else { Verdict::Drop(reason) })
    }
}

/// Who has begun a flow with this first packet. The answer to a SYN is part of what its receiver has begun: else a server could answer no more
/// clients than one source may have flows.
fn beginner(packet: &Packet<'_>) -> IpAddress {
    const SYN_ACK: u8 = tcp_flags::SYN | tcp_flags::ACK;
    let is_answer = packet.tcp_flags().is_some_and(|flags| flags & SYN_ACK == SYN_ACK);
    if is_answer { packet.dst_ip() } else { packet.src_ip() }
}

/// The relaxations, which do not depend on the action.
fn relaxations() -> Vec<Relaxation> {
    let meaning = "an attack is noticed by so many microseconds later";
    let (object, against) = ("counters", &["read"] as &[_]);
    vec![Relaxation { key: "staleness_us", object, against, candidates: &[10, 100, 1000], meaning }]
}

/// Makes the function for the configured action: with cookies, both directions of a flow are one set with a different
/// type of state.
pub(crate) fn build(
    name: &str,
    config: toml::Table,
    builder: &mut StateBuilder,
    ports: u16,
) -> Result<Box<dyn Stage>, ConfigError> {
    let config: Config = crate::config::parse(config)?;
    let builder = builder.scope(name);
    Ok(match config.action {
        Action::Cookies => Box::new(Instance::new(name, SynProxy::new(&config, builder)?)),
        _ => Box::new(Instance::new(name, AntiDdos::from_config(config, builder, ports)?)),
    })
}

#[cfg(test)]
mod tests;
