//! Network address and port translation for IPv4 (NAPT44): many inside hosts share a few external addresses.
//!
//! Mapping is endpoint-independent (RFC 4787 section 4.1): an inside endpoint has one external endpoint for all its
//! peers. That shared state is in `mappings/`, which `nat64` uses as well. A packet set is one direction of a flow and
//! remembers its mapping, so a packet in steady state makes no look-up: it reads the mapping's entry and writes nothing
//! shared. Sets are only a cache: a packet whose set has expired, or found no room, is translated by way of the mapping
//! (`find.rs`).
//!
//! Other protocols are translated by their addresses alone (`portless.rs`).
//!
//! Out of scope: application-level gateways, and IPv6 translation.

mod config;
mod counted;
pub(crate) mod describe;
mod find;
mod icmp;
mod one_to_one;
mod only_to;
mod output;
mod portless;
mod portless_quota;
mod rewrite;
pub(crate) mod settings;
mod steady;
#[cfg(test)]
mod tests;

pub use config::{Config, OneToOne};
pub use find::{ADDRESS_LEFT, BAD_SOURCE, NO_SIDE, NOT_TRANSLATABLE, NOT_UNICAST};
pub use icmp::BAD_CHECKSUM;
pub use output::TOO_LONG;
pub use portless::NO_FREE_ADDRESS;

pub use crate::mappings::census::NETWORK_QUOTA;
pub use crate::mappings::config::{
    AllocationKind, Filtering, ForRouter, Networks, NextHop, Pooling, Static, StaticProtocol,
};
pub use crate::mappings::flows::{FILTERED, NO_MAPPING};
pub use crate::mappings::hosts::{MAPPING_TABLE_FULL, NO_FREE_PORT, PORT_QUOTA};
pub use crate::mappings::networks::NO_NETWORK;
pub use crate::mappings::session::Session;
pub use crate::parts::forwarding::others::{CountsHops, Others};

use std::time::Duration;

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::{EntryRange, Fate, FieldUse, Hairpins, Relaxation, TableEntry};

use self::output::ENDS;
use self::portless::Portless;
use self::rewrite::Track;
use self::settings::Settings;
use self::steady::phase_after;
use crate::catalog::FromConfig;
use crate::config::{ConfigError, READS_WIRE_LEN};
use crate::mappings::endpoint::{Inside4, Kept, ends};
use crate::mappings::flows::{self, Flows};
use crate::mappings::session::{Heading, Needs, Phase};
use crate::mappings::table::entry::NEVER;
use crate::parts::answers::proxy;
use crate::parts::forwarding::hairpin;
use crate::parts::headers::lengths;
use crate::parts::{AnswerRate, Fragments, Side, WayOut, fragments};

/// The packet is IPv6 or not IP, and configured to be dropped.
pub const UNWANTED: Reason = Reason("unwanted");

network_function! {
    /// The NAT translator.
    pub struct Nat {
        settings: Settings,
        flows: Flows<Inside4>,
        /// Translations of protocols without ports.
        portless: Portless,
        fragments: Fragments,
        answers: AnswerRate,
        needs: Needs,
        /// The same, if networks are distinguished by VLAN tags, or packets leave by the port of an earlier function.
        tagged_needs: Option<Needs>,
        /// By which ports packets leave.
        way_out: WayOut,
    }
}

impl FromConfig for Nat {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Nat, ConfigError> {
        let settings = Settings::check(&config, ports, builder)?;
        let (refreshed, most) = (config.inbound_refresh, config.mappings_max);
        let flows = Flows::new(
            builder,
            (&settings.pool, &settings.fixed),
            settings.timeouts,
            config.filtering,
            refreshed,
            most,
        )?;
        let unanswered_ns = settings.timeouts.after(protocol::TCP, Phase::Opening);
        let portless = Portless::new(builder, &config, (settings.pool.refresh_ns, unanswered_ns))?;
        let fragments = Fragments::holding(builder, config.fragments_max, settings.fragment_ns, config.held_max)?
            .ending(builder, &ENDS)?
            .meeting(settings.networks.meeting(settings.sides))
            .leaving(settings.sides, builder.decided());
        let answers = AnswerRate::new(builder, config.icmp_errors_per_s, ports)?;
        let way_out = WayOut::new(settings.sides, ports, builder);
        let tagged_needs = (settings.networks.are_tagged() || !way_out.is_fixed()).then(|| flows.needs());
        // If tags are rewritten, or an earlier function decides where packets leave, none can take the read-only path.
        let needs = if tagged_needs.is_some() { Needs::new(|_, _, _| u64::MAX) } else { flows.needs() };
        Ok(Nat { settings, flows, portless, fragments, answers, needs, tagged_needs, way_out })
    }
}

impl NetworkFunction for Nat {
    type Set = Session;
    const NAME: &'static str = "nat";
    const CONSUMES: &'static [Reason] = &[fragments::HELD, hairpin::RETURNS, proxy::ANSWERED];

    /// Mappings refer to endpoints, so whatever defines endpoints must stay; timeouts and capacities may change.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let (now, before) = (&self.settings, &older.settings);
        let same = [
            ("`first_port` and `last_port`", self.flows.mappings.has_ports_of(&older.flows.mappings)),
            ("how ports are allocated", now.pool.allocation.keeps_those_of(before.pool.allocation)),
            ("`inside` (where ports follow from it)", now.pool.has_inside_of(&before.pool)),
            ("`networks`, `outside_vlan` and `vlans` (but for more)", now.has_networks_of(before)),
            ("`inside_ports` and `outside_ports`", now.sides == before.sides),
            ("`filtering`", self.flows.filter.is_like(&older.flows.filter)),
        ];
        flows::kept_under(&same)?;
        now.pool.check_determined(&before.pool)
    }

    /// Keys each direction separately: a reply's addresses differ from those of the packet it answers.
    fn packet_set(&self) -> Option<SetDef> {
        Some(self.settings.networks.within(SetDef::five_tuple()))
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        let meaning = "more addresses, or a wider range of ports: where most ports are free, workers seldom look for one in the same place";
        vec![Relaxation { key: "external", object: "ports", against: &["get", "update"], candidates: &[], meaning }]
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn timeout_ns(&self, session: &Session) -> u64 {
        self.settings.timeouts.after(session.protocol(), Phase::from_bits(session.phase()))
    }

    fn is_assured(&self, session: &Session) -> bool {
        session.is_assured()
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.settings.timeouts.shortest_ns()
    }

    fn ticks(&self) -> Vec<Duration> {
        flows::PERIODS.into()
    }

    fn divides(&self, period: usize) -> bool {
        period == flows::SWEEP
    }

    fn start(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        self.flows.mappings.carry_out(cx)
    }

    /// The endpoints of inside hosts; hairpinning also changes the other end and turns the frame. Tagged packets may get
    /// a next hop.
    fn rewrites(&self) -> Rewrites {
        use FieldId::*;
        match self.settings.networks.are_tagged() {
            false => Rewrites {
                from_inside: &[IpSrc, IpDst, SrcPort, DstPort, IcmpId, EthSrc, EthDst],
                from_outside: &[IpDst, DstPort, IcmpId],
            },
            true => Rewrites {
                from_inside: &[IpSrc, IpDst, SrcPort, DstPort, IcmpId, EthSrc, EthDst, VlanId, Segment],
                from_outside: &[IpDst, DstPort, IcmpId, EthSrc, EthDst, VlanId, Segment],
            },
        }
    }

    #[inline(always)]
    fn prefetches(&self) -> bool {
        true
    }

    #[inline(always)]
    fn prefetch(&self, session: &Session, _now_ns: u64) {
        self.flows.mappings.prefetch(session.index());
    }

    const PREFETCHES_FIRST: bool = true;

    #[inline(always)]
    fn prefetch_first(&self, packet: &Packet<'_>, _now_ns: u64) {
        let Some((source, destination)) = ends(packet) else { return };
        match self.settings.side_of(packet) {
            Some(Side::Inside) => self.flows.mappings.prefetch_outward(self.settings.inside(packet, source)),
            _ => self.flows.mappings.prefetch_inward(destination),
        }
    }

    const PREFETCHES_EXPIRED: bool = true;

    #[inline(always)]
    fn prefetch_expired(&self, _key: &SetKey, session: &Session) {
        // When a set ends, only mappings whose sets are counted are accessed.
        if self.flows.mappings.counts_sets(session.protocol()) {
            self.flows.mappings.prefetch(session.index());
        }
    }

    /// A router before this function decides by which port a packet leaves.
    const ASKS_PORT: bool = true;

    const STEADY: bool = true;

    #[inline(always)]
    fn steady(&self, arrival: Arrival<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Option<Verdict> {
        let known = self.flows.mappings.at_alone(arrival.alone?, session.index())?;
        self.go_on(packet, session, arrival.now_ns, &known, &self.needs)
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        let known = self.flows.mappings.at(cx, session.index())?;
        let now = cx.now();
        session.go_on();
        match known.and_then(|known| self.go_on(packet, session, now, &known, &self.needs)) {
            Some(verdict) => Ok(verdict),
            None => self.unsteady(cx, packet, session),
        }
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Session>) -> Handled {
        if !lengths::hold_the_headers(packet) {
            return self.fragments.drop(cx, packet, Reason::MALFORMED);
        }
        let found = self.find(cx, packet)?;
        if let Some((session, held)) = found.kept()
            && let Err(reason) = self.keep(cx, packet, set, (session, &held))?
        {
            return self.fragments.drop(cx, packet, reason);
        }
        self.conclude(cx, packet, found)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let is_asked = |address| self.settings.answers_for(packet, address);
        if self.settings.proxy.is_some_and(|proxy| proxy.answers(cx, packet, is_asked)) {
            return Ok(Verdict::Drop(proxy::ANSWERED));
        }
        Ok(self.settings.non_ip.judge_orphan(cx, packet))
    }

    const FOLLOWS_FRAGMENTS: bool = true;

    const TURNS_BACK: bool = true;

    fn hairpins(&self) -> Hairpins {
        self.settings.hairpins
    }

    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.turn_back(cx, packet)
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, session: &Session) -> Result<(), Conflict> {
        let peer = || if session.heading() == Heading::Outward { self.ends_of(key) } else { None };
        let handles = self.held_by(cx, session, || Some(self.ends_of(key)?.0))?;
        self.flows.forget(cx, peer, (session.protocol(), handles.into_iter().flatten()))
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.answers.report(cx, into)?;
        self.flows.mappings.report(cx, into)
    }

    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, session: &Session) -> Result<Option<String>, Conflict> {
        self.words(cx, session).map(Some)
    }

    const LISTS_ENTRIES: bool = true;

    fn list_entries(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.list(cx, range, tell)
    }

    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.fragments.held_in_vain()
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        if tick.period != flows::SWEEP {
            self.portless.sweep(cx, tick.share)?;
        }
        self.flows.tick(cx, tick, &self.fragments)
    }
}

impl Nat {
    /// The port of the other side by which a packet leaves if no earlier function has decided.
    #[inline(always)]
    fn across(&self, from: Port) -> Port {
        self.way_out.fixed(from)
    }

    /// Handles a packet of a known flow that is a fragment, arrives on another port, changes the phase of its connection,
    /// has an impossible length, or has to prolong the mapping.
    #[cold]
    #[inline(never)]
    fn unsteady(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        if let Some(verdict) = self.go_on_tagged(cx, packet, session)? {
            return Ok(verdict);
        }
        if !lengths::hold_the_headers(packet) {
            return self.fragments.drop(cx, packet, Reason::MALFORMED);
        }
        let phase = phase_after(session, packet);
        if !session.is_hairpin()
            && let Some(track) = self.renew(cx, packet, session, phase)?
        {
            session.set_phase(phase);
            return self.translate(cx, packet, track);
        }
        let found = self.find(cx, packet)?;
        if let Some((fresh, held)) = found.kept()
            && (fresh.heading(), fresh.is_hairpin()) == (session.heading(), session.is_hairpin())
            && !packet.is_fragment()
        {
            self.exchange(cx, packet, session, (fresh, &held))?;
            *session = fresh;
            session.set_phase(phase);
        }
        self.conclude(cx, packet, found)
    }

    /// Uses the mapping of a known flow for a packet; `None` if the flow must not continue unchanged.
    fn renew(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        session: &Session,
        phase: u8,
    ) -> Result<Option<Track>, Conflict> {
        let Some((handle, inside, entry)) = self.flows.mappings.at(cx, session.index())? else { return Ok(None) };
        let is_outside = session.heading() == Heading::Outward || self.settings.networks.is_outside(packet);
        let is_expected =
            session.is_over(handle) && self.is_expected(packet.port(), session.heading(), &entry) && is_outside;
        if packet.is_fragment() || !is_expected {
            return Ok(None);
        }
        if session.heading() == Heading::Inward && entry.ends_ns != NEVER && self.flows.filter.is_strict() {
            let Some((remote, _)) = ends(packet) else { return Ok(None) };
            let hold = self.flows.hold(session.protocol());
            if !self.flows.filter.admits(cx, inside.inside(), remote, hold)? {
                return Ok(None);
            }
        }
        let how = self.flows.use_of(session.protocol(), session.heading(), Phase::from_bits(phase));
        let renewed = self.flows.mappings.renew(cx, handle, how)?;
        let track = self.track(packet.port(), session.heading(), (&inside, &entry));
        Ok(renewed.map(|_| Track { to: self.way_of(cx, packet, session.heading(), track.to), ..track }))
    }
}
