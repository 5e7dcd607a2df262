//! Limits the number of concurrent TCP and UDP connections of a host, an address range, a server or a subscriber, and the
//! number it opens per second.
//!
//! A connection is a packet set and stays on one worker. The number that an owner has is shared by all workers, and
//! exact.

mod config;
mod connection;
mod owners;

pub use config::{Action, By, Config, WhenFull, Written};
pub use connection::{Connection, Timeouts, opens};
pub use owners::{Most, Owners};

use std::time::Duration;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::DistributedConfig;

use crate::parts::answers::answer;
use crate::parts::{Alerts, AnswerRate, Lengths, Side, Sides, is_opening, seconds};
use crate::{ConfigError, FromConfig};

/// The first refusal of an owner.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Refused {
    at_ns: u64,
    /// Protocol and destination port of the refused connection.
    protocol: u32,
    port: u32,
}

network_function! {
    /// Limits connections; see the README beside this file.
    #[derive(Debug)]
    pub struct ConnectionLimiter {
        by: By,
        lengths: Lengths,
        sides: Sides,
        action: Action,
        when_full: WhenFull,
        timeouts: Timeouts,
        owners: Owners,
        /// The number of connections that passed without being counted.
        uncounted: Distributed<u64>,
        alerts: Alerts<IpAddress, Refused>,
        answers: AnswerRate,
    }
}

impl FromConfig for ConnectionLimiter {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<ConnectionLimiter, ConfigError> {
        let owners = Owners::new(builder, config.most()?, config.owners_max);
        let answers = AnswerRate::new(builder, config.icmp_errors_per_s, ports)?;
        let uncounted = DistributedConfig { name: "uncounted".into(), staleness_ns: 0 };
        Ok(ConnectionLimiter {
            by: config.by,
            lengths: config.lengths()?,
            sides: config.sides(ports)?,
            action: config.action,
            when_full: config.when_full,
            timeouts: config.timeouts()?,
            owners: owners.map_err(|error| ConfigError::state("owners_max", &error))?,
            uncounted: Distributed::new(builder, &uncounted, 0).map_err(|e| ConfigError::state("when_full", &e))?,
            alerts: Alerts::new(builder, config.alerts_max).map_err(|e| ConfigError::state("alerts_max", &e))?,
            answers,
        })
    }
}

impl NetworkFunction for ConnectionLimiter {
    type Set = Connection;
    const NAME: &'static str = "connection_limiter";

    /// Connections stay counted under any limits; those above a lower limit may go on until they end.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        if (self.by, self.lengths, self.sides) != (older.by, older.lengths, older.sides) {
            return Err(
                "connections are counted for whom they were opened: `by`, `prefix` and the lists of ports stay"
                    .to_owned(),
            );
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().only(&[protocol::TCP, protocol::UDP]).symmetric())
    }

    fn timeout_ns(&self, connection: &Connection) -> u64 {
        connection.timeout_ns(&self.timeouts)
    }

    fn is_assured(&self, connection: &Connection) -> bool {
        connection.is_assured()
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![owners::SWEEP_EVERY]
    }

    fn divides(&self, _period: usize) -> bool {
        true
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Connection>) -> Handled {
        let Some(owner) = self.owner(packet).filter(|_| opens(packet)) else { return Ok(cx.pass()) };
        let counted = match self.admit(cx, &owner, 0)? {
            Ok(counted) => counted,
            Err(reason) => return self.refuse(cx, packet, &owner, reason),
        };
        let mut connection = Connection::begin(owner, packet, cx.reversed());
        connection.counted = counted.into();
        let is_there = set.register(cx, connection);
        if counted && !is_there {
            self.owners.release(cx, &owner)?;
        }
        match (counted && is_there, self.when_full) {
            (true, _) => Ok(cx.pass()),
            (false, WhenFull::Pass) => self.pass_uncounted(cx),
            (false, WhenFull::Drop) => Ok(Verdict::Drop(Reason::SET_TABLE_FULL)),
        }
    }

    #[inline(always)]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Handled {
        if connection.is_over() && packet.tcp_flags().is_some_and(is_opening) {
            return self.open_again(cx, packet, connection);
        }
        connection.note(packet, cx.reversed());
        if connection.counts_although_closed() {
            return self.let_go(cx, connection);
        }
        Ok(cx.pass())
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, connection: &Connection) -> Result<(), Conflict> {
        if connection.counted != 0 { self.owners.release(cx, &connection.owner) } else { Ok(()) }
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.owners.sweep(cx, tick.share)
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        if self.when_full == WhenFull::Pass {
            into.add("connections_not_counted", self.uncounted.read(cx, |sum, part| *sum += part)?);
        }
        self.answers.report(cx, into)?;
        self.alerts.report(cx, into, |owner, refused, into| {
            let Refused { at_ns, protocol, port } = *refused;
            let kind = if protocol == u32::from(protocol::TCP) { "tcp" } else { "udp" };
            let detail = format!("refused a connection first at {}, to {kind} port {port}", seconds(at_ns));
            into.find("connection_limit", owner, detail);
        })
    }
}

impl ConnectionLimiter {
    /// The owner of the connection that a packet opens; `None` if it belongs to no subscriber.
    fn owner(&self, packet: &Packet<'_>) -> Option<IpAddress> {
        let owner = match self.by {
            By::Source => packet.src_ip(),
            By::Destination => packet.dst_ip(),
            By::Subscriber => match self.sides.of(packet.port())? {
                Side::Inside => packet.src_ip(),
                Side::Outside => packet.dst_ip(),
            },
        };
        Some(self.lengths.range_of(owner))
    }

    /// Admits a connection instead of so many others of the same owner, and says whether it is counted: it may pass
    /// uncounted if there is no room for its owner. Or returns the reason to refuse it.
    fn admit(&self, cx: &mut Cx<'_>, owner: &IpAddress, instead: u64) -> Result<Result<bool, Reason>, Conflict> {
        Ok(match self.owners.admit(cx, owner, instead)? {
            Err(owners::TABLE_FULL) if self.when_full == WhenFull::Pass => Ok(false),
            admitted => admitted.map(|()| true),
        })
    }

    /// A connection that both ends have closed counts no longer (as in Linux, `nf_conncount.c`, `already_closed`). It is known for a while, so
    /// that its last segments open nothing.
    #[cold]
    fn let_go(&self, cx: &mut Cx<'_>, connection: &mut Connection) -> Handled {
        self.owners.release(cx, &connection.owner)?;
        connection.counted = 0;
        Ok(cx.pass())
    }

    #[cold]
    fn pass_uncounted(&self, cx: &mut Cx<'_>) -> Handled {
        self.uncounted.update(cx, |count| *count += 1)?;
        Ok(cx.pass())
    }

    #[cold]
    fn refuse(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, owner: &IpAddress, reason: Reason) -> Handled {
        // An owner without room is not at its limit: a flood with forged addresses would fill the report with such
        // owners.
        if reason != owners::TABLE_FULL {
            let port = packet.ports().map_or(0, |(_, port)| port.into());
            self.alerts.raise(cx, owner, &Refused { at_ns: cx.wall(), protocol: packet.protocol().into(), port })?;
        }
        if self.action == Action::Reject && self.answers.admits(cx, packet)? {
            answer::refuse(cx, packet, packet.dst_ip());
        }
        Ok(Verdict::Drop(reason))
    }

    /// Opens a connection with the addresses and ports of an ended one, which no longer counts. One that is refused changes nothing:
    /// the other end may hold the old one open, as after a reset that it ignored.
    #[cold]
    fn open_again(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, connection: &mut Connection) -> Handled {
        let Some(owner) = self.owner(packet) else { return Ok(cx.pass()) };
        let (was_counted, is_same) = (connection.counted != 0, connection.owner == owner);
        let counted = match self.admit(cx, &owner, u64::from(was_counted && is_same))? {
            Ok(counted) => counted,
            Err(reason) => return self.refuse(cx, packet, &owner, reason),
        };
        if was_counted && !is_same {
            self.owners.release(cx, &connection.owner)?;
        }
        *connection = Connection::begin(owner, packet, cx.reversed());
        connection.counted = counted.into();
        if counted { Ok(cx.pass()) } else { self.pass_uncounted(cx) }
    }
}

#[cfg(test)]
mod tests;
