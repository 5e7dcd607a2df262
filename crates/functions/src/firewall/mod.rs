//! A stateful firewall: rules decide about the first packet of a connection, the rest follows it.
//!
//! A connection is one packet set for both directions, so a packet in steady state touches its own set only. It decides
//! whether a packet goes on, never where: in a chain others do that.
//!
//! ICMP errors come from anywhere and belong to no set of their own, so the ends of live connections stand in a shared map
//! as well; only first packets, expiry and errors touch it. Echo requests and fragments have tables that age (`related.rs`).
//!
//! Not here: sequence window checks, application-level gateways, SYN-flood protection, a compiled classifier.

mod config;
mod connection;
mod related;
mod rules;
#[cfg(test)]
mod tests;

pub use config::{Config, Ttl};
pub use connection::Connection;
pub use related::{NO_QUERY, UNRELATED};
pub use rules::{Action, Direction, PortRange, Protocol, Rule};

use std::time::Duration;

use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpVersion, headers::tcp_flags};
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig};

use self::config::Settings;
use self::connection::{Ends, are_valid, is_opening};
use crate::catalog::FromConfig;
use crate::config::ConfigError;
use crate::parts::aged::SWEEP_EVERY;
use crate::parts::{Aged, Fragments, Side, answer, scope};

/// By rule or by default.
pub const DENIED: Reason = Reason("denied");
/// By rule or by default; the sender was told.
pub const REJECTED: Reason = Reason("rejected");
/// A TCP segment of no known connection that does not ask for a new one.
pub const NOT_SYN: Reason = Reason("not_syn");
/// A combination of TCP control bits that no specified TCP sends.
pub const INVALID_TCP_FLAGS: Reason = Reason("invalid_tcp_flags");
/// By the wrong side for its addresses, or by a port that has no side.
pub const WRONG_SIDE: Reason = Reason("wrong_side");
/// As many connections as there may be.
pub const CONNECTION_TABLE_FULL: Reason = Reason("connection_table_full");

network_function! {
    /// The firewall.
    pub struct Firewall {
        settings: Settings,
        /// Ends of the live connections, for ICMP errors.
        connections: Map<Ends, u64>,
        /// Echo requests and their like that may be answered.
        queries: Aged<Ends, u64>,
        fragments: Fragments,
    }
}

impl FromConfig for Firewall {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Firewall, ConfigError> {
        let settings = Settings::check(&config, ports)?;
        let map = MapConfig { name: "connections".into(), capacity: config.connections_max, ..MapConfig::default() };
        let connections = Map::new(builder, &map).map_err(|error| ConfigError::state("connections_max", &error))?;
        let queries = Aged::new(builder, "queries", config.queries_max, settings.query_ns)
            .map_err(|error| ConfigError::state("queries_max", &error))?;
        let fragments = Fragments::new(builder, config.fragments_max, settings.fragment_ns)
            .map_err(|error| ConfigError::state("fragments_max", &error))?;
        Ok(Firewall { settings, connections, queries, fragments })
    }
}

impl NetworkFunction for Firewall {
    type Set = Connection;
    const NAME: &'static str = "firewall";

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().symmetric())
    }

    fn timeout_ns(&self, connection: &Connection) -> u64 {
        self.settings.timeouts.of(connection)
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![SWEEP_EVERY]
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Handled {
        let from_opener = u8::from(cx.reversed()) == connection.reversed;
        let side = self.settings.sides.of(packet.port());
        if side.is_none_or(|side| (side as u8 == connection.opener) != from_opener) {
            return Ok(Verdict::Drop(WRONG_SIDE));
        }
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        if connection.protocol == protocol::TCP {
            let Some(flags) = packet.tcp_flags() else { return Ok(Verdict::Drop(Reason::MALFORMED)) };
            if !are_valid(flags) {
                return Ok(Verdict::Drop(INVALID_TCP_FLAGS));
            }
            if connection.is_over() && is_opening(flags) {
                let Some(side) = side else { return Ok(Verdict::Drop(WRONG_SIDE)) };
                if let Err(reason) = self.judge(cx, packet, side) {
                    return Ok(Verdict::Drop(reason));
                }
                *connection = Connection::open(cx, packet, side);
            } else {
                connection.advance(flags, from_opener);
            }
        }
        self.pass(cx, packet)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Connection>) -> Handled {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(Verdict::Drop(WRONG_SIDE)) };
        if packet.ip_version() == Some(IpVersion::V6) && scope::is_link_scope_v6(packet.src_ip(), packet.dst_ip()) {
            return Ok(cx.pass());
        }
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        if matches!(packet.protocol(), protocol::ICMP | protocol::ICMPV6) {
            return self.icmp(cx, packet, side);
        }
        if let Err(reason) = self.check(packet) {
            return Ok(Verdict::Drop(reason));
        }
        if let Err(reason) = self.judge(cx, packet, side) {
            return Ok(Verdict::Drop(reason));
        }
        if packet.tcp_flags().is_some_and(|flags| !self.may_open(flags)) {
            return Ok(Verdict::Drop(NOT_SYN));
        }
        let connection = Connection::open(cx, packet, side);
        let Some(ends) = connection.ends(&set.key()) else { return Ok(Verdict::Drop(Reason::MALFORMED)) };
        if self.connections.insert(cx, &ends, &0)? == Inserted::Full {
            return Ok(Verdict::Drop(CONNECTION_TABLE_FULL));
        }
        if !set.register(cx, connection) {
            self.connections.remove(cx, &ends)?;
            return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
        }
        self.pass(cx, packet)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(if scope::is_damaged_ip(packet) { Verdict::Drop(Reason::MALFORMED) } else { cx.pass() })
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, connection: &Connection) -> Result<(), Conflict> {
        if let Some(ends) = connection.ends(key) {
            self.connections.remove(cx, &ends)?;
        }
        Ok(())
    }

    fn tick(&self, cx: &mut Cx<'_>, _tick: Tick) -> Result<(), Conflict> {
        self.queries.sweep(cx)?;
        self.fragments.sweep(cx)
    }
}

impl Firewall {
    /// Whether a packet that is no fragment's continuation is whole and makes sense.
    fn check(&self, packet: &Packet<'_>) -> Result<(), Reason> {
        let number = packet.protocol();
        if protocol::has_ports(number) && packet.ports().is_none() {
            return Err(Reason::MALFORMED);
        }
        match (number, packet.tcp_flags()) {
            (protocol::TCP, None) => Err(Reason::MALFORMED),
            (protocol::TCP, Some(flags)) if !are_valid(flags) => Err(INVALID_TCP_FLAGS),
            _ => Ok(()),
        }
    }

    /// What the rules say about a packet that would open a connection.
    fn judge(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, side: Side) -> Result<(), Reason> {
        let rule = self.settings.rules.iter().find(|rule| rule.matches(packet, side));
        match rule.map_or(self.settings.otherwise[side as usize], |rule| rule.action) {
            Action::Allow => Ok(()),
            Action::Deny => Err(DENIED),
            Action::Reject => {
                answer::refuse(cx, packet);
                Err(REJECTED)
            }
        }
    }

    fn may_open(&self, flags: u8) -> bool {
        is_opening(flags) || (self.settings.loose && flags & (tcp_flags::RST | tcp_flags::FIN) == 0)
    }

    /// Lets a packet go on; the pieces behind a first fragment may follow it.
    #[inline]
    fn pass(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if packet.is_fragment() {
            return self.pass_fragment(cx, packet);
        }
        self.hop(cx, packet)
    }

    /// Counts the hop, if the firewall is one.
    #[inline]
    fn hop(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if self.settings.ttl == Ttl::Decrement && !packet.decrement_ttl() {
            answer::time_exceeded(cx, packet, self.settings.router);
            return Ok(Verdict::Drop(Reason::TTL_EXCEEDED));
        }
        Ok(cx.pass())
    }
}
