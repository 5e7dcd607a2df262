//! A load balancer for TCP and UDP: clients address a service, and backends serve the connections.
//!
//! The first packet of a connection chooses a backend by Maglev hashing (`maglev.rs`). The packet set remembers the
//! choice, so the connection stays on that backend even if the table changes. Replies form a packet set of their own: the
//! configuration alone determines which service a backend's address and port map to, so the two directions share no
//! state.
//!
//! Backends that announce themselves are up; a backend that falls silent is down and gets no new connections. The only
//! shared state on the fast path is one word per backend, which a flow in steady state reads once every `recheck_ms`.
//!
//! Out of scope: active health checks (`braid health` sends them, and the balancer accepts a monitor's reports) and rate
//! limits.

mod choose;
mod config;
mod describe;
mod ends;
mod flow;
mod health;
mod icmp;
mod load;
mod maglev;
mod path;
mod pieces;
mod ports;
mod quic;
mod refusals;
mod room;
mod roster;
mod settings;
mod strays;
#[cfg(test)]
mod tests;
mod traffic;
mod tunnel;

pub use choose::NO_BACKEND;
pub use config::{
    Backend, Check, CheckKind, Config, Mode, Persistence, Record, Service, Together, Transport, WhenDown, WhenNone,
};
pub use flow::Flow;
pub use health::HEARTBEAT;
pub use ports::{PortList, Ports};
pub use room::BACKENDS_FULL;
pub use tunnel::{NO_TUNNEL, TOO_BIG};

use std::time::Duration;

use braid_nf::FieldUse;
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Exchange, Translated};
use braid_nf::prelude::*;
use braid_nf::state::VectorConfig;

use self::choose::{Client, Kept};
use self::flow::{FROM_BACKEND, OWN, Phase, TO_BACKEND};
use self::path::Path;
use self::roster::Names;
use self::settings::Settings;
use self::strays::Stray;
use self::traffic::Traffic;
use crate::catalog::FromConfig;
use crate::config::{ConfigError, READS_WIRE_LEN};
use crate::parts::answers::answer;
use crate::parts::headers::scope::BAD_SOURCE;
use crate::parts::headers::{lengths, scope};
use crate::parts::tables::aged::SWEEP_EVERY;
use crate::parts::tables::tallies::{Tallies, Tally};
use crate::parts::{Aged, AnswerRate, Fate, Fragments, NS_PER_MS, Side, Unkept, Volume, WayOut};

/// An ICMP error to a service or backend that concerns no connection between them, or is a redirect.
pub const UNRELATED: Reason = Reason("unrelated");

network_function! {
    /// The load balancer.
    pub struct LoadBalancer {
        settings: Settings,
        names: Names,
        /// Per backend, whether it is up, in the encoding of `health.rs`. Written only when the state changes.
        up: Vector<u64>,
        /// Per backend, when it was last heard, in nanoseconds; 0: never.
        heard: Vector<u64>,
        unheeded: health::Unheeded,
        /// Clients that persist on one backend.
        kept: Aged<Client, Kept>,
        unkept_clients: Unkept,
        /// Connections that are not on the backend their hash selects.
        strays: Aged<Stray, Kept>,
        unkept_strays: Unkept,
        fragments: Fragments,
        /// Per backend, what is known of the path to it; kept under the first backend at each address.
        paths: Vector<Path>,
        load: Tallies,
        traffic: Tallies<Traffic>,
        answers: AnswerRate,
        /// By which ports packets leave that it translates.
        way_out: WayOut,
    }
}

/// Code of "port unreachable": ICMP, ICMPv6.
const PORT: [u8; 2] = [3, 4];

impl FromConfig for LoadBalancer {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<LoadBalancer, ConfigError> {
        let mut settings = Settings::check(&config, ports, Names::left(builder))?;
        let way_out = WayOut::new(settings.sides, ports, builder);
        if !way_out.is_fixed() {
            settings.leave_as_decided();
        }
        let names = Names::new(builder, &settings.roster).map_err(|error| ConfigError::state("service", &error))?;
        let len = settings.servers.len() as u32;
        let mut vector = |name: &str, initial| {
            let made = Vector::new(builder, &VectorConfig { name: name.into(), len }, initial);
            made.map_err(|error| ConfigError::state("service", &error))
        };
        let (up, heard) = (vector("up", health::AS_CONFIGURED)?, vector("heard", 0)?);
        let paths = Vector::new(builder, &VectorConfig { name: "paths".into(), len }, Path::default())
            .map_err(|error| ConfigError::state("service", &error))?;
        let fragments = Fragments::holding(builder, config.fragments_max, settings.fragment_ns, config.held_max)?
            .ending(builder, &pieces::ENDS)?
            .leaving(settings.sides, builder.decided());
        let has_persistence = config.services.iter().any(|service| service.persistence == Persistence::Source);
        let clients = if has_persistence { config.persistence_max } else { 1 };
        let kept = Aged::new(builder, "clients", clients, settings.persistence_ns)
            .map_err(|error| ConfigError::state("persistence_max", &error))?;
        let strays = Aged::new(builder, "strays", config.strays_max, settings.strays_ns)
            .map_err(|error| ConfigError::state("strays_max", &error))?;
        let unkept_clients = Unkept::new(builder, "unkept_clients", "connections whose client found no room")
            .map_err(|error| ConfigError::state("persistence_max", &error))?;
        let unkept_strays = Unkept::new(builder, "unkept_strays", "looks at strays that found no room")
            .map_err(|error| ConfigError::state("strays_max", &error))?;
        let unheeded = health::Unheeded::new(builder).map_err(|error| ConfigError::state("monitors", &error))?;
        let load =
            Tallies::new(builder, "load", len, load::STEP).map_err(|error| ConfigError::state("service", &error))?;
        let traffic = Tallies::new(builder, "traffic", if config.traffic { len } else { 0 }, load::STEP)
            .map_err(|error| ConfigError::state("service", &error))?;
        let answers = AnswerRate::new(builder, config.icmp_errors_per_s, ports)?;
        Ok(LoadBalancer {
            settings,
            names,
            up,
            heard,
            unheeded,
            kept,
            unkept_clients,
            strays,
            unkept_strays,
            fragments,
            paths,
            load,
            traffic,
            answers,
            way_out,
        })
    }
}

impl NetworkFunction for LoadBalancer {
    type Set = Flow;
    const NAME: &'static str = "load_balancer";
    const CONSUMES: &'static [Reason] =
        &[crate::parts::fragments::HELD, crate::parts::forwarding::hairpin::RETURNS, health::HEARTBEAT];

    /// Backends keep their numbers (`roster`). Flows of a service whose definition changed choose a backend again.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        if self.settings.sides != older.settings.sides {
            return Err("flows remember ports: `backend_ports` and `client_ports` stay".to_owned());
        }
        Ok(())
    }

    /// Keys each direction separately: a reply's addresses differ from those of the packet it answers.
    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple())
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn timeout_ns(&self, flow: &Flow) -> u64 {
        self.settings.idle_ns[usize::from(flow.phase) % Phase::COUNT]
    }

    fn is_assured(&self, flow: &Flow) -> bool {
        flow.is_assured()
    }

    fn shortest_timeout_ns(&self) -> u64 {
        self.settings.idle_ns.into_iter().min().unwrap_or(0)
    }

    /// The first period detects silent backends, the second sweeps the tables of fragments, clients and strays.
    fn ticks(&self) -> Vec<Duration> {
        vec![Duration::from_nanos(self.settings.heartbeat_ns / 4), SWEEP_EVERY]
    }

    fn divides(&self, period: usize) -> bool {
        period == 1
    }

    /// The server's end: the destination of packets from clients, on either side, and the source of replies.
    fn rewrites(&self) -> Rewrites {
        use FieldId::*;
        let any = |is: fn(Mode) -> bool| self.settings.servers.iter().any(|server| is(server.mode));
        match (any(Mode::is_tunnel), any(|mode| mode == Mode::Direct)) {
            // The outer headers have their own addresses, protocol and IP version.
            (true, true) => Rewrites::of(&[IpSrc, IpDst, SrcPort, DstPort, IpProto, EtherType, EthSrc, EthDst]),
            (true, false) => Rewrites::of(&[IpSrc, IpDst, SrcPort, DstPort, IpProto, EtherType]),
            (false, true) => Rewrites {
                from_inside: &[IpSrc, IpDst, SrcPort, DstPort, EthSrc, EthDst],
                from_outside: &[IpDst, DstPort, EthSrc, EthDst],
            },
            (false, false) => {
                Rewrites { from_inside: &[IpSrc, IpDst, SrcPort, DstPort], from_outside: &[IpDst, DstPort] }
            }
        }
    }

    #[inline(always)]
    fn prefetches(&self) -> bool {
        self.settings.exchanges_are_far()
    }

    #[inline(always)]
    fn prefetch(&self, flow: &Flow, _now_ns: u64) {
        self.settings.prefetch_exchange(flow);
    }

    /// A router before this function decides by which port a packet leaves.
    const ASKS_PORT: bool = true;

    const STEADY: bool = true;

    #[inline(always)]
    fn steady(&self, arrival: Arrival<'_>, packet: &mut Packet<'_>, flow: &mut Flow) -> Option<Verdict> {
        // Both calls test `way` too; testing it here first settles the reply direction with one comparison.
        if flow.way != FROM_BACKEND && (self.is_stale(flow, arrival.now_ns) || flow.is_begun_anew(packet)) {
            return None;
        }
        let exchange = self.settings.steady_exchange(flow)?;
        let is_whole = |packet: &Packet<'_>| !packet.is_fragment() && holds(packet);
        let plainly = (lengths::hold_plainly, lengths::hold_plainly_v6);
        if packet.exchange_if(exchange, plainly, is_whole) != Translated::Done {
            return None;
        }
        flow.note_flags(packet);
        Some(Verdict::Forward(self.settings.across(packet.port())))
    }

    /// Handles what [`NetworkFunction::steady`] declines: fragments, packets for a tunnel or with no backend, packets that
    /// may name their backend, flows whose backend has not been checked recently, and a new connection with the ports of
    /// one that has ended.
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow) -> Handled {
        let verdict = self.go_on(cx, packet, flow)?;
        let verdict = self.way_out.verdict(cx, packet.port(), verdict);
        self.fragments.conclude(cx, packet, verdict)
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Flow>) -> Handled {
        let verdict = self.begin(cx, packet, set)?;
        let verdict = self.way_out.verdict(cx, packet.port(), verdict);
        self.fragments.conclude(cx, packet, verdict)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        Ok(if scope::is_damaged_ip(packet) { Verdict::Drop(Reason::MALFORMED) } else { cx.pass() })
    }

    const FOLLOWS_FRAGMENTS: bool = true;

    const TURNS_BACK: bool = true;

    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let verdict = if packet.embedded().is_some() {
            // Treated as from the backends' side, whichever way a packet for a backend was going.
            self.error(cx, packet, Some(Side::Inside))?
        } else {
            let flow = self.flow_of(cx, packet)?.and_then(Result::ok);
            let Some(exchange) = flow.and_then(|flow| self.settings.exchange(&flow)) else { return Ok(cx.pass()) };
            self.translate(packet, exchange).unwrap_or_else(Verdict::Drop)
        };
        // The answer leaves by the port its cause came from: a client may be on the backends' side.
        Ok(if let Verdict::Forward(_) = verdict { cx.pass() } else { verdict })
    }

    fn expired(&self, cx: &mut Cx<'_>, _: &SetKey, flow: &Flow) -> Result<(), Conflict> {
        self.count(cx, flow, Tally::ENDED)
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.tell_load(cx, into)?;
        self.unkept_clients.report(cx, into)?;
        self.unkept_strays.report(cx, into)?;
        self.unheeded.report(cx, into)?;
        self.answers.report(cx, into)
    }

    fn describe(&self, cx: &mut Cx<'_>, _: &SetKey, flow: &Flow) -> Result<Option<String>, Conflict> {
        self.words(cx, flow).map(Some)
    }

    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        self.fragments.held_in_vain()
    }

    fn tick(&self, cx: &mut Cx<'_>, tick: Tick) -> Result<(), Conflict> {
        if tick.period == 1 {
            self.kept.sweep(cx, tick.share)?;
            self.strays.sweep(cx, tick.share)?;
            return self.fragments.sweep(cx, tick.share);
        }
        self.notice_silence(cx)
    }
}

impl LoadBalancer {
    /// Handles a packet of a known flow.
    fn go_on(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow) -> Handled {
        if flow.way == OWN {
            flow.note_flags(packet);
            return self.pass_by(cx, packet);
        }
        if !packet.is_later_fragment() && !holds(packet) {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        }
        let has_backend = match flow.is_begun_anew(packet) {
            true => self.choose_again(cx, packet, flow, Phase::Opening as u8)?,
            false if self.follow_name(cx, packet, flow)? => true,
            false => !self.is_stale(flow, cx.now()) || self.recheck(cx, packet, flow)?,
        };
        if !has_backend {
            return self.none_is_up(cx, packet);
        }
        flow.note_flags(packet);
        self.send(cx, packet, flow)
    }

    /// Handles a packet of no known flow.
    fn begin(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Flow>) -> Handled {
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        if self.is_heartbeat(packet) {
            return self.hear(cx, packet);
        }
        if packet.embedded().is_some() {
            return self.error(cx, packet, self.settings.sides.of(packet.port()));
        }
        let flow = match self.flow_of(cx, packet)? {
            None => return self.pass_by(cx, packet),
            Some(Err(NO_BACKEND)) => return self.none_is_up(cx, packet),
            Some(Err(reason)) => return Ok(Verdict::Drop(reason)),
            Some(Ok(flow)) => flow,
        };
        if flow.way == OWN {
            // What it is does not change with the backends. If the set table is full each packet is looked up anew.
            let _remembered = set.register(cx, flow);
            return self.pass_by(cx, packet);
        }
        // If the set table is full the packet is still sent: later packets hash to the same backend.
        let remembers = self.settings.server_of(&flow).is_some_and(|server| server.remembers);
        if remembers {
            let is_kept = set.register(cx, flow);
            if !self.enter(cx, packet, &flow, is_kept)? {
                return Ok(Verdict::Drop(Reason::SET_TABLE_FULL));
            }
        }
        self.send(cx, packet, &flow)
    }

    /// Whether `recheck_ms` have passed since the flow's backend was last known to be up. False if time stamps run
    /// backwards, as in a capture that is out of order.
    #[inline(always)]
    fn is_stale(&self, flow: &Flow, now_ns: u64) -> bool {
        let passed_ms = ((now_ns / NS_PER_MS) as u32).wrapping_sub(flow.checked_ms) as i32;
        flow.way != FROM_BACKEND && passed_ms >= self.settings.recheck_ms
    }

    /// The flow of a packet to a service or from a backend; `None` if it is neither.
    fn flow_of(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Option<Result<Flow, Reason>>, Conflict> {
        let number = packet.protocol();
        if !matches!(number, protocol::TCP | protocol::UDP) {
            return Ok(None);
        }
        let (source, destination) = (packet.src_ip(), packet.dst_ip());
        let ports = packet.ports().filter(|_| lengths::hold_the_headers(packet));
        let Some((source_port, destination_port)) = ports else {
            let concerned = self.settings.knows(source) || self.settings.knows(destination);
            return Ok(concerned.then_some(Err(Reason::MALFORMED)));
        };
        let phase = match packet.tcp_flags().filter(|_| number == protocol::TCP) {
            Some(flags) => Phase::after(Phase::Tcp as u8, flags),
            None => Phase::Single as u8,
        };
        if let Some(service) = self.settings.service((destination, destination_port, number)) {
            if self.settings.is_nobodys(packet) {
                return Ok(Some(Err(BAD_SOURCE)));
            }
            let Some(backend) = self.choose_for(cx, service, packet, source_port)? else {
                return Ok(Some(Err(NO_BACKEND)));
            };
            return Ok(Some(Ok(self.flow_to(cx, backend, phase))));
        }
        let is_inside = self.settings.sides.of(packet.port()) == Some(Side::Inside);
        let from_backend = is_inside && !self.settings.is_checker(destination);
        let server = self.settings.server_number((source, source_port, number)).filter(|_| from_backend);
        let Some(backend) = server else { return Ok(None) };
        let client = (destination, destination_port);
        let is_answer = self.is_answer(cx, backend, client, (source_port, number))?;
        let way = if is_answer { FROM_BACKEND } else { OWN };
        Ok(Some(Ok(Flow { checked_ms: 0, backend, way, phase })))
    }

    /// Sends a packet along its flow.
    fn send(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &Flow) -> Handled {
        if packet.is_later_fragment() {
            return self.follow_first(cx, packet);
        }
        let Some(server) = self.settings.server_of(flow) else { return Ok(Verdict::Drop(NO_BACKEND)) };
        if packet.is_fragment() {
            let (source, destination) = match flow.way {
                FROM_BACKEND => (Some(server.service_address), None),
                _ => (None, Some(server.address)),
            };
            let fate = Fate::new(self.way_out.of(cx, packet.port()), source, destination).behind(flow.backend);
            if !self.lead(cx, packet, fate)? {
                return Ok(Verdict::Drop(Fragments::forgotten(packet)));
            }
        }
        let bytes = packet.wire_len().into();
        let verdict = match self.settings.exchange(flow) {
            Some(exchange) => match self.translate(packet, exchange) {
                Ok(verdict) => verdict,
                Err(Reason::TTL_EXCEEDED) => self.expired_on_way(cx, packet)?,
                Err(reason) => Verdict::Drop(reason),
            },
            None if !packet.decrement_ttl() => self.expired_on_way(cx, packet)?,
            None => self.send_whole(cx, packet, server)?,
        };
        if let Verdict::Forward(_) = verdict {
            self.count_traffic(cx, flow.backend, flow.way, Volume { packets: 1, bytes })?;
        }
        Ok(verdict)
    }

    /// Translates a packet that [`holds`] for its flow. On error the packet is unchanged.
    fn translate(&self, packet: &mut Packet<'_>, exchange: &Exchange) -> Result<Verdict, Reason> {
        match packet.exchange_if(exchange, (|_, _| true, |_, _| true), |_| true) {
            Translated::Done => Ok(Verdict::Forward(self.settings.across(packet.port()))),
            Translated::Expired => Err(Reason::TTL_EXCEEDED),
            Translated::Refused => Err(Reason::MALFORMED),
        }
    }

    /// Handles a packet to a service that has no backend up, or none with room.
    #[cold]
    fn none_is_up(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let service = self.settings.service(strays::ends_of(packet).1);
        if service.is_some_and(|service| service.when_none == WhenNone::Reject) && self.answers.admits(cx, packet)? {
            match packet.protocol() {
                protocol::TCP => answer::refuse(cx, packet, packet.dst_ip()),
                _ => answer::unreachable(cx, packet, packet.dst_ip(), PORT),
            }
        }
        Ok(Verdict::Drop(self.why_none(cx, service)?))
    }

    #[cold]
    #[inline(never)]
    fn expired_on_way(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.answers.time_exceeded(cx, packet, self.settings.router)
    }
}

/// Whether a packet of a flow, not a later fragment, is as long as its headers say and has ports.
#[inline(never)]
fn holds(packet: &Packet<'_>) -> bool {
    let is_whole_udp = packet.protocol() == protocol::UDP && !packet.is_fragment();
    is_whole_udp && lengths::fills_its_packet(packet) || lengths::hold_the_headers(packet) && packet.ports().is_some()
}
