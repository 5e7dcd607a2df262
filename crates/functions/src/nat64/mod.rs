//! Stateful translation between IPv6 and IPv4 (NAT64, RFC 6146): IPv6-only hosts reach IPv4-only servers.
//!
//! An IPv4 address stands within an IPv6 address behind a prefix (`prefix.rs`, RFC 6052). Mappings, external ports, blocks, quotas and
//! filters are those of `nat`: what differs is that inside endpoints are of IPv6, and what is written into packets: IP headers of the
//! other version (`header.rs`, RFC 7915), ports and checksums (`transport.rs`), ICMP errors with what they quote (`icmp.rs`,
//! `errors.rs`, `extension.rs`). A packet set is one direction of one flow and caches its translation. IPv4 packets that may be cut are, where they
//! get too long for IPv6 links (`cut.rs`).
//!
//! Out of scope: protocols other than TCP, UDP and ICMP, application-level gateways, and the DNS64 that gives hosts such
//! addresses.

mod config;
mod cut;
mod errors;
mod extension;
mod find;
mod header;
mod icmp;
mod prefix;
mod rewrite;
#[cfg(test)]
mod tests;
mod transport;

pub use config::{Config, Static};
pub use errors::NO_COUNTERPART;
pub use find::{FRAGMENTED_ICMP, NOT_GLOBAL, NOT_INSIDE};
use rewrite::ENDS;
pub use rewrite::{NO_CHECKSUM, NO_ROOM, SOURCE_ROUTE, TOO_BIG};

use std::time::Duration;

use braid_nf::packet::headers::{icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::*;
use braid_nf::state::Handle;
use braid_nf::{EntryRange, Fate, FieldUse, Hairpins, TableEntry};

use self::config::Settings;
use self::find::Found;
use self::rewrite::Rewrite;
use crate::catalog::FromConfig;
use crate::config::{ConfigError, READS_WIRE_LEN};
use crate::mappings::describe::Freed;
use crate::mappings::endpoint::{Endpoint, Inside};
use crate::mappings::flows::{self, Counted, Flows};
use crate::mappings::for_router;
use crate::mappings::networks::Behind;
use crate::mappings::session::{Heading, Phase};
use crate::nat::NOT_TRANSLATABLE;
use crate::parts::answers::{answer, proxy};
use crate::parts::forwarding::hairpin;
use crate::parts::headers::lengths;
use crate::parts::headers::tags::NO_ROOM_FOR_TAG;
use crate::parts::{AnswerRate, Fragments, SECOND, Side, WayOut, fragments};

network_function! {
    /// The NAT64 translator.
    pub struct Nat64 {
        settings: Settings,
        flows: Flows<Inside>,
        fragments: Fragments,
        answers: AnswerRate,
        /// By which ports packets leave.
        way_out: WayOut,
    }
}

/// One direction of a translated flow.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Session {
    /// The time in nanoseconds from which on a packet has to check the mapping.
    look_ns: u64,
    /// The mapping.
    handle: Handle,
    /// Outward the external address, inward that of the inside host, of a hairpin what leads to the [sender's mapping](Session::sender).
    address: IpAddress,
    /// The port to write together with the address.
    port: u16,
    /// The port its packets arrive on.
    from: Port,
    /// The port they leave by.
    to: Port,
    /// The number of the inside host's network.
    network: u16,
    protocol: u8,
    /// The [`Phase`].
    phase: u8,
    /// Where its packets go: a [`Heading`].
    way: u8,
    /// 1 for a TCP connection between two hosts inside: it is inward, over the receiver's mapping, and each packet looks for both.
    hairpin: u8,
    zero: [u8; 4],
}

/// How long an inward flow does not look whether its host sends by another port of the plan by now.
const HOME_NS: u64 = SECOND;

impl Session {
    /// Its protocol, way and phase.
    fn what(&self) -> (u8, Heading, Phase) {
        (self.protocol, self.heading(), Phase::from_bits(self.phase))
    }

    /// Where its packets go.
    #[inline(always)]
    fn heading(&self) -> Heading {
        Heading::from_bits(self.way)
    }

    /// What its set holds.
    fn held(&self) -> Counted {
        Counted { kind: self.what(), handle: self.handle, sender: self.sender() }
    }

    /// Of a hairpin, the mapping of its sender.
    fn sender(&self) -> Option<Handle> {
        let octets = self.address.octets();
        let word = |at: usize| u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]]);
        (self.hairpin == 1).then(|| Handle { index: word(0), generation: word(4) })
    }

    /// Of a TCP hairpin between the owners of two mappings.
    fn between(sender: Handle, receiver: Handle, phase: Phase) -> Session {
        let words = [sender.index, sender.generation, 0, 0].map(u32::to_ne_bytes);
        let mut address = [0; 16];
        address.copy_from_slice(words.as_flattened());
        Session {
            handle: receiver,
            address: IpAddress::from_v6(address),
            protocol: protocol::TCP,
            phase: phase as u8,
            way: Heading::Inward as u8,
            hairpin: 1,
            ..Session::default()
        }
    }

    /// Has the mapping checked again at this time, or earlier if its host may have moved by then.
    fn look_by(&mut self, now_ns: u64, look_ns: u64) {
        self.look_ns = if self.heading() == Heading::Inward { look_ns.min(now_ns + HOME_NS) } else { look_ns };
    }
}

impl FromConfig for Nat64 {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Nat64, ConfigError> {
        let settings = Settings::check(&config, ports)?;
        let (refreshed, most) = (config.inbound_refresh, config.mappings_max);
        let flows = Flows::new(
            builder,
            (&settings.pool, &settings.fixed),
            settings.timeouts,
            config.filtering,
            refreshed,
            most,
        )?;
        let fragments = Fragments::holding(builder, config.fragments_max, settings.fragment_ns, config.held_max)?
            .ending(builder, &ENDS)?
            .meeting(settings.networks.meeting(settings.sides))
            .leaving(settings.sides, builder.decided());
        let answers = AnswerRate::new(builder, config.icmp_errors_per_s, ports)?;
        let way_out = WayOut::new(settings.sides, ports, builder);
        Ok(Nat64 { settings, flows, fragments, answers, way_out })
    }
}

impl NetworkFunction for Nat64 {
    type Set = Session;
    const NAME: &'static str = "nat64";
    const CONSUMES: &'static [Reason] = &[fragments::HELD, hairpin::RETURNS, proxy::ANSWERED];

    /// Mappings refer to endpoints, so whatever defines endpoints must stay; timeouts and capacities may change.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let (now, before) = (&self.settings, &older.settings);
        let same = [
            ("`prefix`", now.prefix == before.prefix),
            ("`first_port` and `last_port`", self.flows.mappings.has_ports_of(&older.flows.mappings)),
            ("how ports are allocated", now.pool.allocation.keeps_those_of(before.pool.allocation)),
            ("`subscriber_bits`", now.pool.subscriber_bits == before.pool.subscriber_bits),
            ("`networks`, `outside_vlan` and `vlans` (but for more)", now.networks.has_those_of(&before.networks)),
            ("`inside_ports` and `outside_ports`", now.sides == before.sides),
            ("`filtering`", self.flows.filter.is_like(&older.flows.filter)),
        ];
        flows::kept_under(&same)
    }

    /// Keys each direction separately: the two are not even of the same IP version.
    fn packet_set(&self) -> Option<SetDef> {
        Some(self.settings.networks.within(SetDef::five_tuple()))
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn timeout_ns(&self, session: &Session) -> u64 {
        self.flows.timeouts.after(session.protocol, Phase::from_bits(session.phase))
    }

    fn is_assured(&self, session: &Session) -> bool {
        session.phase == Phase::Established as u8
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

    /// Nearly everything; also Ethernet addresses, for hairpins and for tagged packets with a configured next hop.
    fn rewrites(&self) -> Rewrites {
        use FieldId::*;
        match self.settings.networks.are_tagged() {
            false => Rewrites {
                from_inside: &[IpSrc, IpDst, SrcPort, DstPort, IpProto, IcmpId, EtherType, EthSrc, EthDst],
                from_outside: &[IpSrc, IpDst, SrcPort, DstPort, IpProto, IcmpId, EtherType],
            },
            true => Rewrites::of(&[
                IpSrc, IpDst, SrcPort, DstPort, IpProto, IcmpId, EtherType, EthSrc, EthDst, VlanId, Segment,
            ]),
        }
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        let is_kept = match session.protocol {
            protocol::TCP => Phase::is_kept(session.phase, packet.tcp_flags().unwrap_or(0)),
            // That another packet has come is all there is to know.
            _ => {
                session.phase = Phase::Established as u8;
                true
            }
        };
        let steady = (cx.now() < session.look_ns) & is_kept & (packet.port() == session.from);
        if !steady || !lengths::hold_a_whole(packet) || !self.has_its_tags(packet, session) {
            return self.unsteady(cx, packet, session);
        }
        self.translate_flow(cx, packet, session)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Session>) -> Handled {
        if !lengths::hold_the_headers(packet) {
            return self.fragments.drop(cx, packet, Reason::MALFORMED);
        }
        let found = self.find(cx, packet)?;
        if let Found::Session(session) | Found::Hairpin(session, _) = &found {
            let peer = || self.peer(session, (packet.src_ip(), packet.dst_ip()), packet.ports()?);
            if let Err(reason) = self.flows.keep(cx, peer, &session.held(), |cx| set.register(cx, *session))? {
                return self.fragments.drop(cx, packet, reason);
            }
        }
        self.conclude(cx, packet, &found)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let is_asked = |address: IpAddress| {
            let is_external = address.v4().is_some_and(|v4| self.settings.pool.is_external_v4(v4));
            is_external && self.settings.sides.of(packet.port()) == Some(Side::Outside)
        };
        if self.settings.proxy.is_some_and(|proxy| proxy.answers(cx, packet, is_asked)) {
            return Ok(Verdict::Drop(proxy::ANSWERED));
        }
        Ok(self.settings.others.judge_orphan(cx, packet))
    }

    /// A router before this function decides by which port a packet leaves.
    const ASKS_PORT: bool = true;

    const FOLLOWS_FRAGMENTS: bool = true;

    const TURNS_BACK: bool = true;

    fn hairpins(&self) -> Hairpins {
        Hairpins::Any
    }

    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        match self.find_back(cx, packet)? {
            Some(found) => self.conclude(cx, packet, &found),
            None => Ok(cx.pass()),
        }
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, session: &Session) -> Result<(), Conflict> {
        let peer = || {
            let tuple = key.five_tuple()?;
            self.peer(session, (tuple.src_ip, tuple.dst_ip), (tuple.src_port, tuple.dst_port))
        };
        self.flows.forget(cx, peer, (session.protocol, session.held().handles()))
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.answers.report(cx, into)?;
        self.flows.mappings.report(cx, into)
    }

    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, session: &Session) -> Result<Option<String>, Conflict> {
        let (handle, phase) = (session.handle, Phase::from_bits(session.phase));
        self.flows.words(cx, (handle.index, session.heading(), phase), |found| found == handle).map(Some)
    }

    const LISTS_ENTRIES: bool = true;

    fn list_entries(
        &self,
        cx: &mut Cx<'_>,
        range: EntryRange,
        tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        self.flows.mappings.list(cx, range, Freed::WhenLookedAt, tell)
    }

    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.fragments.held_in_vain()
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        self.flows.tick(cx, tick, &self.fragments)
    }
}

impl Nat64 {
    /// A packet of a known flow that is a fragment, comes by another port, changes the phase of its connection or opens it again, is as long as it cannot be,
    /// or is the one that looks at the mapping.
    #[cold]
    #[inline(never)]
    fn unsteady(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &mut Session) -> Handled {
        if !lengths::hold_the_headers(packet) {
            return self.fragments.drop(cx, packet, Reason::MALFORMED);
        }
        let phase = match session.protocol {
            protocol::TCP => Phase::after(session.phase, packet.tcp_flags().unwrap_or(0)) as u8,
            _ => session.phase,
        };
        let is_expected = packet.port() == session.from && self.has_its_tags(packet, session);
        let found = match is_expected && !packet.is_fragment() && session.hairpin == 0 {
            true => self.flows.look(cx, session.handle, session.protocol, session.heading(), phase)?,
            false => None,
        };
        if let Some((look_ns, home)) = found {
            session.look_by(cx.now(), look_ns);
            session.phase = phase;
            if session.heading() == Heading::Inward {
                session.to = home;
            }
            self.settings.segments.clamp_to_itself(packet);
            return self.translate_flow(cx, packet, session);
        }
        let found = self.find(cx, packet)?;
        if let Found::Session(fresh) | Found::Hairpin(fresh, _) = &found
            && (fresh.way, fresh.hairpin) == (session.way, session.hairpin)
            && !packet.is_fragment()
        {
            if (fresh.handle, fresh.sender()) != (session.handle, session.sender()) {
                self.flows.detach(cx, session.protocol, session.held().handles())?;
                self.flows.attach(cx, &fresh.held())?;
            }
            *session = Session { phase, ..*fresh };
        }
        self.conclude(cx, packet, &found)
    }

    /// Whether a packet of a known flow comes from the network of its set, or from outside.
    #[inline(always)]
    fn has_its_tags(&self, packet: &Packet<'_>, session: &Session) -> bool {
        // An outward set is specific to one network; outside there may be several VLANs.
        session.heading() == Heading::Outward || self.settings.networks.is_outside(packet)
    }

    /// Sends a packet on with the VLAN tags of its destination network.
    #[inline(always)]
    fn leave(&self, packet: &mut Packet<'_>, to: Port, behind: Behind) -> Verdict {
        if self.settings.networks.retag(packet, behind) { Verdict::Forward(to) } else { Verdict::Drop(NO_ROOM_FOR_TAG) }
    }

    fn translate_flow(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, session: &Session) -> Handled {
        match self.rewrite_of(packet, session) {
            Some(rewrite) if session.heading() == Heading::Inward || self.way_out.is_fixed() => {
                self.send(cx, packet, &rewrite)
            }
            Some(rewrite) => {
                let to = self.way_out.of(cx, packet.port());
                self.send(cx, packet, &Rewrite { to, ..rewrite })
            }
            None => Ok(Verdict::Drop(Reason::MALFORMED)),
        }
    }

    /// For an outward flow, the inside endpoint and its peer.
    fn peer(
        &self,
        session: &Session,
        (source, destination): (IpAddress, IpAddress),
        (ours, theirs): (u16, u16),
    ) -> Option<(Inside, Endpoint)> {
        let server = self.settings.prefix.extract(destination).filter(|_| session.heading() == Heading::Outward)?;
        Some((
            Inside::new(session.network, source, ours, session.protocol),
            Endpoint::new(server, theirs, session.protocol),
        ))
    }

    fn conclude(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, found: &Found) -> Handled {
        if matches!(found, Found::Session(_) | Found::Hairpin(..) | Found::Once(_)) {
            self.settings.segments.clamp_to_itself(packet);
        }
        match found {
            Found::Session(session) => self.translate_flow(cx, packet, session),
            Found::Hairpin(_, rewrite) | Found::Once(rewrite) => self.send(cx, packet, rewrite),
            Found::Error(error) => self.send_error(cx, packet, error),
            Found::Untouched(port) => Ok(Verdict::Forward(*port)),
            Found::Here => for_router::leave(cx, packet, &self.fragments),
            Found::Routed(_) if !packet.decrement_ttl() => self.ttl_exceeded(cx, packet),
            Found::Routed(port) => Ok(Verdict::Forward(*port)),
            Found::Waits => Ok(Verdict::Drop(self.fragments.hold(cx, packet)?)),
            Found::No(reason) => self.fragments.drop(cx, packet, *reason),
            Found::Refused(reason) => {
                // Address unreachable (RFC 6146 section 3.5.1.1).
                self.refuse(cx, packet, (None, 3))?;
                self.fragments.drop(cx, packet, *reason)
            }
            Found::Foreign => {
                // Protocol unreachable, or port unreachable (RFC 6146 section 3.4).
                self.refuse(cx, packet, (Some(2), 4))?;
                self.fragments.drop(cx, packet, NOT_TRANSLATABLE)
            }
        }
    }

    /// Tells the sender by "unreachable" that a packet does not go on: the codes in IPv4, if it is said there, and in IPv6.
    #[cold]
    fn refuse(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, (v4, v6): (Option<u8>, u8)) -> Result<(), Conflict> {
        let router = self.settings.router;
        let said = match packet.ip_version() {
            Some(IpVersion::V6) => router.v6.map(|router| (router, (icmpv6_type::UNREACHABLE, v6))),
            _ => v4.map(|code| (router.v4, (icmp_type::UNREACHABLE, code))),
        };
        if let Some((router, message)) = said
            && self.answers.admits(cx, packet)?
        {
            answer::error(cx, packet, router, message, 0);
        }
        Ok(())
    }

    #[cold]
    fn ttl_exceeded(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        if self.answers.admits(cx, packet)? {
            answer::time_exceeded(cx, packet, self.settings.router);
        }
        self.fragments.drop(cx, packet, Reason::TTL_EXCEEDED)
    }
}
