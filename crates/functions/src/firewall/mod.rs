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

mod classifier;
mod clock;
mod config;
mod connection;
pub mod cost;
mod counts;
mod edits;
mod effects;
mod ends;
mod explain;
mod facts;
mod fields;
mod given;
mod judge;
mod keyed;
mod known;
mod limits;
mod log;
mod looks;
mod marks;
mod masked;
mod names;
mod often;
mod opening;
mod payload;
mod permit;
mod policy;
mod quota;
mod reach;
mod related;
mod rule_file;
mod rules;
mod shown;
mod states;
#[cfg(test)]
mod tests;
mod timeouts;
mod values;
mod window;

pub use clock::{UtcOffset, When};
pub use config::{Config, Ttl, WindowCheck};
pub use connection::Connection;
pub use explain::{ExplainError, explain};
pub use limits::{HALF_OPEN_LIMIT, HOST_LIMIT, HOST_TABLE_FULL};
pub use often::Often;
pub use related::{NO_QUERY, TINY_FRAGMENT, UNRELATED};
pub use rule_file::Hooks;
pub use rules::{Action, Direction, Rule};
pub use values::{Addresses, Bits, Forward, IcmpKind, PortRange, Protocol};

use std::path::PathBuf;
use std::time::Duration;

use braid_nf::TableEntry;
use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use self::config::Settings;
use self::connection::{Phase, are_valid};
use self::effects::Effects;
use self::ends::Ends;
use self::known::Known;
use self::limits::Limits;
use self::related::Asked;
use self::window::{Reopening, Segment};
use crate::catalog::FromConfig;
use crate::config::ConfigError;
use crate::parts::aged::SWEEP_EVERY;
use crate::parts::{Aged, AnswerRate, Fragments, Side, is_opening, lengths, scope};

/// Denied by a rule or by default.
pub const DENIED: Reason = Reason("denied");
/// Rejected by a rule or by default; the sender was told.
pub const REJECTED: Reason = Reason("rejected");
/// A TCP segment of no known connection that does not open one.
pub const NOT_SYN: Reason = Reason("not_syn");
/// A combination of TCP control bits that no standard-conforming TCP sends.
pub const INVALID_TCP_FLAGS: Reason = Reason("invalid_tcp_flags");
/// A TCP segment outside of what its connection's ends may send.
pub const OUT_OF_WINDOW: Reason = Reason("out_of_window");
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
        let mut settings = Settings::check(config, ports)?;
        let connections = Known::new(builder, "connections", connections_max)
            .map_err(|error| ConfigError::state("connections_max", &error))?;
        let queries = Aged::new(builder, "queries", queries_max, settings.query_ns)
            .map_err(|error| ConfigError::state("queries_max", &error))?;
        let reopenings =
            Aged::new(builder, "reopenings", REOPENINGS_MAX, settings.timeouts.tcp_ns[Phase::Asked as usize])
                .map_err(|error| ConfigError::state("reopenings", &error))?;
        let fragments = Fragments::holding(builder, fragments_max, settings.fragment_ns, held_max)?;
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
            self.connections.prefetch(&ends.opened_from(connection.side_of(true)));
        }
    }

    /// Fragments that are held leave by the port of their first one.
    const ASKS_PORT: bool = true;

    const STEADY: bool = true;

    #[inline(always)]
    fn steady(&self, arrival: Arrival<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Option<Verdict> {
        let word = connection.word();
        let from_opener = u32::from(arrival.reversed) == word >> 24;
        // It arrives on the right side, and no rule has to be asked.
        let is_whole = packet.is_whole() && self.settings.ways.lets(packet.port(), from_opener, word);
        let counts_hops = self.settings.ttl == Ttl::Decrement;
        let is_last_hop = counts_hops && packet.ttl().is_some_and(|ttl| ttl <= 1);
        if !is_whole || is_last_hop || !connection.goes_on(packet, from_opener) {
            return None;
        }
        if counts_hops {
            packet.decrement_ttl();
        }
        Some(Verdict::Onward)
    }

    /// Handles a packet of a live connection that `steady` declines.
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, connection: &mut Connection) -> Handled {
        let from_opener = cx.reversed() == connection.is_reversed();
        let side = match self.settings.sides.of(packet.port()) {
            Some(side) if side as u8 == connection.side_of(from_opener) || connection.is_gone() => side,
            _ => return Ok(Verdict::Drop(WRONG_SIDE)),
        };
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        let Some(segment) = (match check(packet) {
            Ok(segment) => segment,
            Err(reason) => return self.invalid(cx, packet, side, reason),
        }) else {
            let (state, before) = (connection.state(from_opener), *connection);
            connection.answer(from_opener);
            let heard = self.ask(cx, packet, (side, state, true), connection)?;
            if heard.is_untracked {
                *connection = before;
            }
            return self.pass_as_heard(cx, packet, heard.answer);
        };
        if connection.is_gone() || connection.is_over() && is_opening(segment.flags) {
            return self.begin_anew(cx, packet, (side, &segment), connection);
        }
        if !connection.expects(segment.flags, from_opener) {
            return self.invalid(cx, packet, side, OUT_OF_WINDOW);
        }
        // Packets that no connection follows move nothing, and whether one does the rules say last.
        let before = *connection;
        let answers = !from_opener && self.answers_reopening(cx, packet, (side, &segment), connection)?;
        let ignores = !answers && connection.ignores(segment.flags, from_opener);
        if ignores || !answers && !self.fits(packet, connection, &segment, from_opener) {
            let mut is_harmless = || connection.windows.tolerates(usize::from(!from_opener), &segment);
            if !ignores && (segment.flags & tcp_flags::SYN != 0 || !is_harmless()) {
                return self.invalid(cx, packet, side, OUT_OF_WINDOW);
            }
            if ignores && from_opener && !connection.windows.is_repeated(&segment) {
                self.note_reopening(cx, packet, (side, &segment))?;
            }
            let state = connection.state(from_opener);
            let heard = self.ask(cx, packet, (side, state, false), connection)?;
            if heard.is_untracked {
                *connection = before;
            }
            return self.pass_as_heard(cx, packet, heard.answer);
        }
        if packet.is_fragment() {
            // What its other pieces hold is not known.
            connection.windows.forget();
        }
        let state = connection.state(from_opener);
        let is_counted = connection.counts(segment.flags, from_opener);
        let was_asked = !connection.is_answered();
        connection.advance(segment.flags, from_opener);
        let untracks = self.settings.policy.untracks;
        if !untracks {
            self.note_advance(cx, packet, (side, &segment), connection)?;
        }
        let heard = self.ask(cx, packet, (side, state, is_counted), connection)?;
        if heard.is_untracked {
            *connection = before;
        } else if untracks {
            self.note_advance(cx, packet, (side, &segment), connection)?;
        }
        if was_asked && connection.is_over() {
            // The connection was never established: as in conntrack, nothing of it remains.
            self.end(cx, &ends_of(packet, side), connection)?;
            connection.go();
        }
        self.pass_as_heard(cx, packet, heard.answer)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Connection>) -> Handled {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(Verdict::Drop(WRONG_SIDE)) };
        if scope::stays_on_link(packet) {
            return Ok(cx.pass());
        }
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        let segment = match check(packet) {
            Ok(segment) => segment,
            Err(reason) => return self.invalid(cx, packet, side, reason),
        };
        if matches!(packet.protocol(), protocol::ICMP | protocol::ICMPV6) {
            return self.icmp(cx, packet, side);
        }
        self.begin(cx, packet, (side, segment.as_ref()), |cx, connection| set.register(cx, connection))
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(if scope::is_damaged_ip(packet) { Verdict::Drop(Reason::MALFORMED) } else { cx.pass() })
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
            let file = note.file.as_ref().map_or_else(String::new, |file| format!(" of {file}"));
            into.find("rule_file", format!("line {}{file}", note.line), &*note.text);
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
        span: (u32, u32),
        into: &mut Vec<TableEntry>,
    ) -> Result<Option<u32>, Conflict> {
        self.list_queries(cx, span, into)
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.queries.sweep_telling(cx, tick.share, |cx, ends| self.effects.leave(cx, ends))?;
        self.reopenings.sweep(cx, tick.share)?;
        self.effects.sets.sweep(cx, tick.share)?;
        self.fragments.sweep(cx, tick.share)
    }
}

impl Firewall {
    /// Whether a segment is within what its connection's ends may send.
    fn fits(&self, packet: &Packet<'_>, connection: &mut Connection, segment: &Segment, from_opener: bool) -> bool {
        let from = usize::from(!from_opener);
        let fits = if segment.flags & tcp_flags::SYN == 0 {
            !connection.windows.is_reset_from_before(from, segment) && connection.windows.accept(from, segment)
        } else {
            let is_asked = connection.phase() == Phase::Asked && !(from_opener && connection.is_answered());
            connection.windows.synchronise(from, packet, segment, is_asked)
        };
        fits || (self.settings.windows == WindowCheck::Liberal && segment.flags & tcp_flags::RST == 0)
    }

    /// A segment has moved its connection: that is no longer counted where it counts no more.
    fn note_advance(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (side, segment): (Side, &Segment),
        connection: &mut Connection,
    ) -> Result<(), Conflict> {
        if connection.is_over() && segment.flags & tcp_flags::FIN == 0 && self.effects.sets.counts_connections() {
            self.effects.sets.leave(cx, &ends_of(packet, side))?;
        }
        if connection.is_half_open() && !connection.is_opening() {
            self.limits.settle(cx, ends_of(packet, side).host(), connection)?;
        }
        Ok(())
    }

    /// Lets a packet go on if the rules do.
    fn pass_as_heard(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, answer: Result<(), Reason>) -> Handled {
        match answer {
            Ok(()) => self.pass(cx, packet),
            Err(reason) => Ok(Verdict::Drop(reason)),
        }
    }

    fn may_open(&self, flags: u8) -> bool {
        is_opening(flags) || (self.settings.loose && flags & (tcp_flags::SYN | tcp_flags::RST | tcp_flags::FIN) == 0)
    }

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

/// Checks that a packet (not a later fragment) is complete and consistent; returns its segment if it is TCP.
fn check(packet: &Packet<'_>) -> Result<Option<Segment>, Reason> {
    let number = packet.protocol();
    if !lengths::hold_the_headers(packet) || protocol::has_ports(number) && packet.ports().is_none() {
        return Err(Reason::MALFORMED);
    }
    if number != protocol::TCP {
        return Ok(None);
    }
    match Segment::of(packet) {
        None => Err(Reason::MALFORMED),
        Some(segment) if !are_valid(segment.flags) => Err(INVALID_TCP_FLAGS),
        segment => Ok(segment),
    }
}

/// The endpoints of a packet's connection.
fn ends_of(packet: &Packet<'_>, from: Side) -> Ends {
    let (source, destination) = packet.ports().unwrap_or_default();
    let ends = ((packet.src_ip(), source), (packet.dst_ip(), destination));
    Ends::new(from == Side::Inside, ends.0, ends.1, packet.protocol())
}
