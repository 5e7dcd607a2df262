//! A stateful firewall. Rules decide about the first packet of a connection, and the rest follows it, unless tables of a
//! rule file also decide about packets of known connections (`policy.rs`).
//!
//! A connection is one packet set for both directions, so a packet in steady state accesses only its own set. The
//! firewall decides whether a packet passes, never where it goes: other functions of a chain do that.
//!
//! ICMP errors come from anywhere and belong to no set, so the endpoints of live connections are also kept in a shared
//! map, which only first packets, expiry and errors access. Echo requests and fragments have tables with expiring entries
//! (`related.rs`).
//!
//! Out of scope: application-level gateways and SYN cookies.

mod apply_rules;
mod arp;
mod conditions;
mod config;
mod connection;
pub mod cost;
mod effects;
mod explain;
mod live_packets;
mod non_ip;
mod policy;
mod rule_file;
mod rules;
#[cfg(test)]
mod tests;

pub use self::conditions::clock::{UtcOffset, When};
pub use self::conditions::extensions::RoutingHeader0;
pub use self::conditions::values::{Addresses, Bits, Forward, IcmpKind, PortRange, Protocol};
pub use self::connection::limits::{HALF_OPEN_LIMIT, HOST_LIMIT, HOST_TABLE_FULL};
pub use self::connection::related::{NO_QUERY, TINY_FRAGMENT, UNRELATED};
pub use self::effects::rate_limit::Often;
pub use config::{Config, Ttl, WindowCheck};
pub use connection::Connection;
pub use explain::{ExplainError, explain};
pub use rule_file::Hooks;
pub use rules::{Action, Direction, Rule};

use std::path::PathBuf;
use std::time::Duration;

use braid_nf::prelude::*;
use braid_nf::{EntryRange, Fate, FieldUse, TableEntry};

use self::config::Settings;
use self::connection::Phase;
use self::connection::ends::Ends;
use self::connection::limits::Limits;
use self::connection::live_connections::Known;
use self::connection::related::Asked;
use self::connection::states::Sender;
use self::connection::window::Reopening;
use self::effects::Effects;
use crate::catalog::FromConfig;
use crate::config::{ConfigError, READS_WIRE_LEN};
use crate::parts::tables::aged::SWEEP_EVERY;
use crate::parts::{Aged, AnswerRate, Fragments, Side};

/// Denied by a rule or by default.
pub const DENIED: Reason = Reason("denied");
/// Rejected by a rule or by default; the sender was told.
pub const REJECTED: Reason = Reason("rejected");
/// A TCP segment of no known connection that does not open one.
pub const NOT_SYN: Reason = Reason("not_syn");
/// An SCTP packet of no known association that opens none.
pub const NOT_INIT: Reason = Reason("not_init");
/// An SCTP packet without the tag of its association.
pub const WRONG_TAG: Reason = Reason("wrong_tag");
/// A combination of TCP control bits that no standard-conforming TCP sends.
pub const INVALID_TCP_FLAGS: Reason = Reason("invalid_tcp_flags");
/// A TCP segment outside of what its connection's ends may send.
pub const OUT_OF_WINDOW: Reason = Reason("out_of_window");
/// An IPv6 packet with a routing header of type 0.
pub const SOURCE_ROUTED: Reason = Reason("source_routed");
/// The packet arrived on the wrong side for its connection, or on a port that has no side.
pub const WRONG_SIDE: Reason = Reason("wrong_side");
/// There is no room for another connection.
pub const CONNECTION_TABLE_FULL: Reason = Reason("connection_table_full");

/// Most SYNs within connections that wait for an answer: for more than a thousand hosts that have restarted at once.
const REOPENINGS_MAX: u32 = 1024;

network_function! {
    /// The firewall.
    pub struct Firewall {
        settings: Settings,
        /// Endpoints of the live connections, for ICMP errors.
        connections: Known,
        /// Echo requests and other ICMP queries that may be answered.
        queries: Aged<Ends, Asked>,
        /// SYNs within connections that wait for an answer.
        reopenings: Aged<Ends, Reopening>,
        limits: Limits,
        fragments: Fragments,
        answers: AnswerRate,
        effects: Effects,
    }
}

impl FromConfig for Firewall {
    type Config = Config;

    fn files(config: &Config) -> Vec<PathBuf> {
        config.rules_file.as_deref().map(rule_file::included).unwrap_or_default()
    }

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Firewall, ConfigError> {
        let (connections_max, queries_max) = (config.connections_max, config.queries_max);
        let counted_max = connections_max.saturating_add(queries_max);
        let (hosts_max, fragments_max, held_max) = (config.hosts_max, config.fragments_max, config.held_max);
        let answers = AnswerRate::new(builder, config.icmp_errors_per_s, ports)?;
        let mut settings = Settings::check(config, ports, (builder.decided(), builder.readdressed()))?;
        let connections = Known::new(builder, "connections", connections_max)
            .map_err(|error| ConfigError::state("connections_max", &error))?;
        let queries = Aged::new(builder, "queries", queries_max, settings.query_ns)
            .map_err(|error| ConfigError::state("queries_max", &error))?;
        let reopenings =
            Aged::new(builder, "reopenings", REOPENINGS_MAX, settings.timeouts.tcp_ns[Phase::Asked as usize])
                .map_err(|error| ConfigError::state("reopenings", &error))?;
        let fragments = Fragments::holding(builder, fragments_max, settings.fragment_ns, held_max)?
            .ending(builder, &connection::related::ENDS)?
            .leaving(settings.sides, builder.decided());
        let limits =
            Limits::new(builder, settings.most, hosts_max).map_err(|error| ConfigError::state("hosts_max", &error))?;
        let effects = Effects::new(builder, &settings.policy.rules, counted_max)?;
        settings.policy.forget_rules();
        Ok(Firewall { settings, connections, queries, reopenings, limits, fragments, answers, effects })
    }
}

impl NetworkFunction for Firewall {
    type Set = Connection;
    const NAME: &'static str = "firewall";
    const CONSUMES: &'static [Reason] = &[crate::parts::fragments::HELD];

    /// Connections that were let in stay under any rules: rules decide about first packets.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        if self.settings.sides != older.settings.sides {
            return Err(
                "connections remember which ports are inside: `inside_ports` and `outside_ports` stay".to_owned()
            );
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().symmetric())
    }

    const FOLLOWS_FRAGMENTS: bool = true;

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn timeout_ns(&self, connection: &Connection) -> u64 {
        self.settings.timeouts.of(connection)
    }

    fn is_assured(&self, connection: &Connection) -> bool {
        connection.is_assured()
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.settings.timeouts.shortest_ns()
    }

    fn ticks(&self) -> Vec<Duration> {
        vec![SWEEP_EVERY]
    }

    fn divides(&self, _period: usize) -> bool {
        true
    }

    const PREFETCHES_FIRST: bool = true;

    #[inline(always)]
    fn prefetch_first(&self, packet: &Packet<'_>, _now_ns: u64) {
        if let Some(side) = self.settings.sides.of(packet.port()) {
            self.connections.prefetch_of(packet, side);
        }
    }

    const PREFETCHES_EXPIRED: bool = true;

    #[inline(always)]
    fn prefetch_expired(&self, key: &SetKey, connection: &Connection) {
        if let Some(ends) = connection.ends(key) {
            self.connections.prefetch(&ends.opened_from(connection.side_of(Sender::Opener)));
        }
    }

    /// Fragments that are held leave by the port of their first one.
    const ASKS_PORT: bool = true;

    const STEADY: bool = true;

    #[inline(always)]
    fn steady(&self, arrival: Arrival<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Option<Verdict> {
        // It arrives on the right side, and no rule has to be asked.
        let sender = self.settings.ways.lets(packet.port(), arrival.reversed, connection.word())?;
        let counts_hops = self.settings.ttl == Ttl::Decrement;
        let is_last_hop = counts_hops && packet.ttl().is_some_and(|ttl| ttl <= 1);
        if !packet.is_whole() || is_last_hop || !connection.goes_on(packet, sender) {
            return None;
        }
        if counts_hops {
            packet.decrement_ttl();
        }
        Some(Verdict::Onward)
    }

    /// Handles a packet of a live connection that `steady` declines.
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Handled {
        let verdict = self.go_on(cx, packet, connection)?;
        self.fragments.conclude(cx, packet, verdict)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Connection>) -> Handled {
        let verdict = self.meet(cx, packet, |cx, connection| set.register(cx, connection))?;
        self.fragments.conclude(cx, packet, verdict)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.frame(cx, packet)
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, connection: &Connection) -> Result<(), Conflict> {
        match connection.ends(key) {
            Some(ends) if !connection.is_gone() => self.end(cx, &ends, connection),
            _ => Ok(()),
        }
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let policy = &self.settings.policy;
        for note in policy.notes.iter() {
            into.find("rule_file", note.place(), &*note.text);
        }
        self.limits.report(cx, into)?;
        self.effects.report(cx, into)?;
        self.answers.report(cx, into)
    }

    fn describe(&self, _: &mut Cx<'_>, key: &SetKey, connection: &Connection) -> Result<Option<String>, Conflict> {
        Ok(Some(connection.in_words(key)))
    }

    const LISTS_ENTRIES: bool = true;

    fn list_entries(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.list_queries(cx, range, tell)
    }

    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.fragments.held_in_vain()
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.queries.sweep_telling(cx, tick.share, |cx, ends| self.effects.leave(cx, ends))?;
        self.reopenings.sweep(cx, tick.share)?;
        self.effects.sets.sweep(cx, tick.share)?;
        self.fragments.sweep(cx, tick.share)
    }
}

impl Firewall {
    /// Lets a packet pass; the later fragments of its datagram may follow.
    fn pass(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if packet.is_fragment() {
            return self.pass_fragment(cx, packet);
        }
        self.hop(cx, packet)
    }

    /// Decrements the TTL if the firewall counts as a hop.
    #[inline(always)]
    fn hop(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if self.settings.ttl == Ttl::Decrement && !packet.decrement_ttl() {
            return self.ttl_exceeded(cx, packet);
        }
        Ok(cx.pass())
    }

    #[cold]
    fn ttl_exceeded(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        self.answers.time_exceeded(cx, packet, self.settings.router)
    }
}

/// The endpoints of a packet's connection.
fn ends_of(packet: &Packet<'_>, from: Side) -> Ends {
    let (source, destination) = packet.ports().unwrap_or_default();
    let ends = ((packet.src_ip(), source), (packet.dst_ip(), destination));
    Ends::new(from == Side::Inside, ends.0, ends.1, packet.protocol())
}
