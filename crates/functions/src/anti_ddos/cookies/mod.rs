//! SYN cookies: the proxy completes the handshake for a protected host, and opens the connection with the host only when
//! the client has proved its address.
//!
//! ```text
//!  client ── SYN ──────────────▶ proxy                      nothing is remembered
//!         ◀── SYN ACK cookie, window 0 ──
//!         ── ACK cookie+1 ─────▶       ── SYN ─────────────▶ server     one set
//!                                      ◀── SYN ACK ─────────
//!         ◀── ACK, window ──────       ── ACK ─────────────▶
//!         ◀══════════ numbers translated ══════════════════▶
//! ```
//!
//! It works like Linux's `synproxy`, with these differences: a lost final acknowledgement is recovered by the client's
//! window probe, windows are converted if the server's window scale is not the one that the client was told, and sequence
//! numbers are translated in ICMP errors too. A packet of an open connection accesses only its set.
//!
//! Out of scope: explicit congestion notification (never accepted), TCP Fast Open options, and data in the SYN or before
//! the server has answered (the client sends it again).

mod connection;
mod cookie;
mod errors;
mod load;
mod segment;
mod settings;

use braid_nf::Relaxation;
use braid_nf::packet::headers::{Tcp, View, tcp_flags};
use braid_nf::prelude::*;
use braid_nf::state::{Inserted, MapConfig};

use self::connection::{Flow, Peer, Phase};
use self::cookie::{Ends, Offer};
pub use self::load::Load;
use self::segment::{Segment, header};
use self::settings::Settings;
pub use self::settings::{CookieConfig, When};
use super::Config;
use crate::ConfigError;
use crate::parts::answers::answer;
use crate::parts::is_opening;
use tcp_flags::{ACK, FIN, RST, SYN};

/// A SYN that was answered with a cookie and is consumed here.
pub const COOKIE_SENT: Reason = Reason("cookie_sent");
/// An acknowledgement of no known flow that returns no valid cookie.
pub const COOKIE_INVALID: Reason = Reason("cookie_invalid");
/// A segment that opens no connection, and belongs to no known flow or precedes the server's answer.
pub const NO_CONNECTION: Reason = Reason("no_connection");

/// Counts of all workers together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    /// SYNs answered with a cookie.
    pub sent: u64,
    /// Valid cookies that clients returned.
    pub accepted: u64,
    /// Acknowledgements without a valid cookie.
    pub refused: u64,
    /// SYNs repeated to a server because the client repeated its segment.
    pub repeated: u64,
    /// Connections whose ICMP errors are not translated, because the table was full.
    pub unlisted: u64,
}

impl Tally {
    /// Merges another worker's part into this one.
    pub fn add(&mut self, part: &Tally) {
        self.sent += part.sent;
        self.accepted += part.accepted;
        self.refused += part.refused;
        self.repeated += part.repeated;
        self.unlisted += part.unlisted;
    }
}

network_function! {
    /// `anti_ddos` with `action = "cookies"`.
    #[derive(Debug)]
    pub struct SynProxy {
        counters: Distributed<Load>,
        tally: Distributed<Tally>,
        /// The offset of the server's sequence numbers from the client's view, for translating ICMP errors.
        ahead: Map<Ends, u32>,
        settings: Settings,
    }
}

impl SynProxy {
    /// Checks the configuration and makes the function.
    pub fn new(config: &Config, builder: &mut StateBuilder) -> Result<SynProxy, ConfigError> {
        let settings = Settings::check(config)?;
        // `dscp` and the limits of sources do not apply to cookies: reject a configuration that sets them.
        config.dscp()?;
        config.sources(builder)?;
        let map =
            MapConfig { name: "ahead".into(), capacity: config.cookies().connections_max, ..MapConfig::default() };
        Ok(SynProxy {
            counters: config.counters(builder)?,
            tally: config.tally(builder)?,
            ahead: Map::new(builder, &map).map_err(|error| ConfigError::state("cookies.connections_max", &error))?,
            settings,
        })
    }
}

impl NetworkFunction for SynProxy {
    type Set = Flow;
    const NAME: &'static str = "anti_ddos";
    const CONSUMES: &'static [Reason] = &[COOKIE_SENT];

    /// Sets hold what their connections were told, so any configuration may follow.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::five_tuple().symmetric().only(&[super::TCP]))
    }

    fn timeout_ns(&self, flow: &Flow) -> u64 {
        self.settings.timeout_ns(flow)
    }

    fn is_assured(&self, flow: &Flow) -> bool {
        flow.is_assured()
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        let all = self.tally.read(cx, Tally::add)?;
        let sums = [
            ("SYN cookies sent", all.sent),
            ("SYN cookies accepted", all.accepted),
            ("SYN cookies refused", all.refused),
            ("SYNs repeated to servers", all.repeated),
            ("connections without translated ICMP errors", all.unlisted),
        ];
        sums.into_iter().filter(|(_, sum)| *sum > 0).for_each(|(name, sum)| into.add(name, sum));
        Ok(())
    }

    fn relaxations(&self) -> Vec<Relaxation> {
        super::relaxations()
    }

    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Flow>) -> Handled {
        match self.begin(cx, packet)? {
            Ok(flow) => self.register(cx, packet, set, flow),
            Err(reason) => Ok(Verdict::Drop(reason)),
        }
    }

    #[inline]
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow) -> Handled {
        let from = flow.sender(cx);
        let Some(flags) = packet.tcp_flags() else { return Ok(Verdict::Drop(Reason::MALFORMED)) };
        match flow.phase() {
            Phase::Direct if flow.is_steady(flags) => Ok(cx.pass()),
            Phase::Direct => self.direct(cx, packet, flow, (from, flags)),
            Phase::Open if flags & (SYN | FIN | RST) == 0 => {
                flow.translate(packet, from);
                Ok(cx.pass())
            }
            phase => self.with_care(cx, packet, flow, (phase, from, flags)),
        }
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, flow: &Flow) -> Result<(), Conflict> {
        self.counters.update(cx, |own| {
            own.all.flows -= 1;
            own.all.one_packet -= i64::from(flow.one_packet);
        })?;
        match errors::ends(key, flow) {
            Some(ends) => self.ahead.remove(cx, &ends).map(drop),
            None => Ok(()),
        }
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        self.error(cx, packet)?;
        Ok(cx.pass())
    }
}

impl SynProxy {
    /// Handles a packet that belongs to no flow: returns the flow that it begins, or the reason to drop it.
    #[cold]
    fn begin(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Result<Result<Flow, Reason>, Conflict> {
        if !self.settings.protects(packet.dst_ip()) {
            return Ok(Ok(Flow::direct(cx, false)));
        }
        let Some(tcp) = packet.tcp().filter(|_| !packet.is_short()) else { return Ok(Err(Reason::MALFORMED)) };
        let flags = tcp.flags() & (SYN | ACK | RST | FIN);
        if flags & !FIN == ACK
            && let Some((first, offer)) = self.shown(cx, packet, &tcp)
        {
            let (cookie, window) = (tcp.acknowledgement().wrapping_sub(1), tcp.window());
            self.tally.update(cx, |own| own.accepted += 1)?;
            return Ok(Ok(Flow::asked(cx, first, cookie, window, &offer, self.settings.shift())));
        }
        if !self.is_attacked(cx)? {
            return Ok(Ok(Flow::direct(cx, true)));
        }
        match flags {
            SYN => self.answer(cx, packet).map(Err),
            ACK => {
                self.tally.update(cx, |own| own.refused += 1)?;
                Ok(Err(COOKIE_INVALID))
            }
            _ => Ok(Err(NO_CONNECTION)),
        }
    }

    /// Makes a flow live. If the set table is full, a SYN can still be answered with a cookie.
    fn register(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Flow>, flow: Flow) -> Handled {
        if !set.register(cx, flow) {
            let opens = packet.tcp_flags().is_some_and(is_opening);
            let reason = if opens && flow.one_packet == 1 { self.answer(cx, packet)? } else { Reason::SET_TABLE_FULL };
            return Ok(Verdict::Drop(reason));
        }
        self.counters.update(cx, |own| own.all.flows += 1)?;
        self.count(cx, &flow)?;
        Ok(self.send_on(cx, packet, &flow))
    }

    /// Counts a flow that begins, as one that nobody has continued yet or as one that a cookie has proved. Flows to others than
    /// the protected say nothing about an attack on these.
    fn count(&self, cx: &mut Cx<'_>, flow: &Flow) -> Result<(), Conflict> {
        if flow.is_unprotected() {
            return Ok(());
        }
        let span = self.settings.span(cx.now());
        self.counters.update(cx, |own| match flow.one_packet {
            0 => own.went_on(span),
            _ => own.all.one_packet += 1,
        })
    }

    /// Forwards the packet that began a flow, unchanged or as a SYN.
    fn send_on(&self, cx: &Cx<'_>, packet: &mut Packet<'_>, flow: &Flow) -> Verdict {
        if flow.phase() == Phase::Asked { ask(cx, packet, flow) } else { cx.pass() }
    }

    /// Whether SYNs are answered with cookies now.
    fn is_attacked(&self, cx: &mut Cx<'_>) -> Result<bool, Conflict> {
        if self.settings.always {
            return Ok(true);
        }
        let span = self.settings.span(cx.now());
        let (one_packet, flows) = self.counters.read(cx, |sum, part| sum.add(part, span))?.compared(span);
        let (flows, one_packet) = (flows + 1, one_packet + 1);
        Ok(flows >= self.settings.flows_min && one_packet as f64 > self.settings.threshold * flows as f64)
    }

    /// Answers a SYN with a cookie.
    fn answer(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Result<Reason, Conflict> {
        let Some(tcp) = packet.tcp().filter(|_| !packet.is_fragment() && packet.checksums_ok()) else {
            return Ok(Reason::MALFORMED);
        };
        let (ends, now) = (Ends::of(packet, &tcp), cx.now());
        let offer = Offer::of(&tcp).accepted(&self.settings.allowed);
        let cookie = self.settings.secret.cookie(&ends, tcp.sequence(), offer.size, now);
        let said = Offer {
            size: self.settings.size(packet.dst_ip()),
            shift: offer.shift.and(self.settings.allowed.shift),
            sack: offer.sack,
            stamps: offer.stamps.map(|(value, _)| (offer.stamp(now), value)),
        };
        let numbers = (cookie, tcp.sequence().wrapping_add(1));
        // Window 0 keeps the client from sending data until the server has answered.
        let header = header((tcp.destination_port(), tcp.source_port()), numbers, SYN | ACK, 0);
        answer::segment(cx, packet, Segment::new(header, &said).bytes_mut());
        self.tally.update(cx, |own| own.sent += 1)?;
        self.counters.update(cx, |own| own.all.refused += 1)?;
        Ok(COOKIE_SENT)
    }

    /// The client's initial sequence number and the options it accepted, if a segment returns a valid cookie.
    fn shown(&self, cx: &Cx<'_>, packet: &Packet<'_>, tcp: &View<'_, Tcp>) -> Option<(u32, Offer)> {
        let ends = Ends::of(packet, tcp);
        let cookie = tcp.acknowledgement().wrapping_sub(1);
        // A window probe, sent if the final acknowledgement was lost, has a sequence number that is lower by one.
        let back = if packet.payload().len() <= 1 { 2 } else { 1 };
        (0..back).map(|probe| tcp.sequence().wrapping_sub(1 - probe)).find_map(|first| {
            let size = self.settings.secret.check(&ends, first, cookie, cx.now())?;
            packet.checksums_ok().then(|| (first, Offer::from_echo(size, Offer::of(tcp).stamps)))
        })
    }

    /// Handles a segment that opens or ends a flow without a cookie.
    #[cold]
    fn direct(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow, (from, flags): (Peer, u8)) -> Handled {
        let is_over = matches!(flow.stage(), Phase::Closing | Phase::Reset);
        if from == Peer::Client && is_over && is_opening(flags) {
            return self.begin_again(cx, packet, flow);
        }
        let goes_on = packet.tcp().is_some_and(|tcp| flow.note_direct(&tcp, from));
        if goes_on && flow.one_packet == 1 {
            flow.one_packet = 0;
            let span = self.settings.span(cx.now());
            self.counters.update(cx, |own| {
                own.all.one_packet -= 1;
                own.went_on(span);
            })?;
        }
        Ok(cx.pass())
    }

    /// Handles a segment that opens or ends a connection.
    #[cold]
    fn with_care(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        flow: &mut Flow,
        (phase, from, flags): (Phase, Peer, u8),
    ) -> Handled {
        match (phase, from) {
            (Phase::Asked | Phase::Closing | Phase::Reset, Peer::Client) if is_opening(flags) => {
                self.begin_again(cx, packet, flow)
            }
            (Phase::Asked, Peer::Client) => self.repeat(cx, packet, flow, flags),
            (Phase::Asked, Peer::Server) => self.answered(cx, packet, flow, flags),
            (_, Peer::Server) if flags & (SYN | ACK) == SYN | ACK => self.answered(cx, packet, flow, flags),
            // A cookie returned between the endpoints of a connection that has ended.
            (Phase::Closing | Phase::Reset, Peer::Client) if self.has_shown(cx, packet, flow) => {
                self.begin_again(cx, packet, flow)
            }
            _ => {
                flow.translate(packet, from);
                flow.advance(flags, from);
                Ok(cx.pass())
            }
        }
    }

    /// Whether a segment returns a valid cookie other than the flow's own.
    fn has_shown(&self, cx: &Cx<'_>, packet: &Packet<'_>, flow: &Flow) -> bool {
        packet.tcp().is_some_and(|tcp| {
            tcp.acknowledgement().wrapping_sub(1) != flow.cookie && self.shown(cx, packet, &tcp).is_some()
        })
    }

    /// Begins a new flow between the endpoints of one that has ended or was never opened.
    fn begin_again(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow) -> Handled {
        match self.begin(cx, packet)? {
            Ok(next) => {
                // ICMP errors are about the new connection from now on, whose numbers are others.
                if let Some(tcp) = packet.tcp() {
                    self.ahead.remove(cx, &Ends::of(packet, &tcp))?;
                }
                *flow = next;
                self.count(cx, &next)?;
                Ok(self.send_on(cx, packet, flow))
            }
            Err(reason) => Ok(Verdict::Drop(reason)),
        }
    }

    /// Handles a client's segment before the server has answered: the SYN may have been lost, so it is sent again.
    fn repeat(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow, flags: u8) -> Handled {
        if flags & RST != 0 {
            flow.reset();
            return Ok(cx.pass());
        }
        let acknowledged = packet.tcp().map(|tcp| tcp.acknowledgement().wrapping_sub(1));
        if acknowledged == Some(flow.cookie) {
            self.tally.update(cx, |own| own.repeated += 1)?;
            return Ok(ask(cx, packet, flow));
        }
        if self.has_shown(cx, packet, flow) {
            return self.begin_again(cx, packet, flow);
        }
        Ok(Verdict::Drop(NO_CONNECTION))
    }

    /// Handles the server's answer to the SYN: the client may now send, and the offset of sequence numbers is known.
    fn answered(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow, flags: u8) -> Handled {
        let Some(tcp) = packet.tcp() else { return Ok(Verdict::Drop(Reason::MALFORMED)) };
        let (ports, numbers) = ((tcp.source_port(), tcp.destination_port()), (tcp.sequence(), tcp.acknowledgement()));
        let (offer, window) = (Offer::of(&tcp), tcp.window());
        if flow.phase() == Phase::Asked {
            if numbers.1 != flow.number.wrapping_add(1) || flags & (SYN | RST) == 0 {
                return Ok(Verdict::Drop(NO_CONNECTION));
            }
            if flags & RST != 0 {
                return Ok(refused(cx, packet, flow, numbers.1));
            }
            flow.open(numbers.0, &offer);
            self.list(cx, packet, flow)?;
        } else if numbers.0.wrapping_sub(flow.number) != flow.cookie {
            return Ok(Verdict::Drop(NO_CONNECTION));
        }
        let (value, echo) = offer.stamps.unwrap_or_default();
        let bare = |stamps: (u32, u32)| Offer { stamps: offer.stamps.map(|_| stamps), ..Offer::default() };
        let window_of_client = flow.window(flow.window, Peer::Client, ACK);
        let confirms = header((ports.1, ports.0), (numbers.1, numbers.0.wrapping_add(1)), ACK, window_of_client);
        answer::segment(cx, packet, Segment::new(confirms, &bare((echo, value))).bytes_mut());
        let numbers = (flow.cookie.wrapping_add(1), numbers.1);
        let opens = header(ports, numbers, ACK, flow.window(window, Peer::Server, SYN));
        let done = Segment::new(opens, &bare((flow.told_stamp(value), echo))).replace(packet);
        Ok(if done { cx.pass() } else { Verdict::Drop(Reason::MALFORMED) })
    }

    /// Lists the connection, so that ICMP errors about it can be translated.
    fn list(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, flow: &Flow) -> Result<(), Conflict> {
        let Some(ends) = errors::answered_ends(packet) else { return Ok(()) };
        if self.ahead.insert(cx, &ends, &flow.number)? == Inserted::Full {
            self.tally.update(cx, |own| own.unlisted += 1)?;
        }
        Ok(())
    }
}

/// Turns the client's segment into a SYN to the server.
fn ask(cx: &Cx<'_>, packet: &mut Packet<'_>, flow: &Flow) -> Verdict {
    let Some(tcp) = packet.tcp() else { return Verdict::Drop(Reason::MALFORMED) };
    let stamp = Offer::of(&tcp).stamps.map_or(0, |(value, _)| value);
    let ports = (tcp.source_port(), tcp.destination_port());
    let segment = Segment::new(header(ports, (flow.number, 0), SYN, tcp.window()), &flow.offer(stamp));
    if segment.replace(packet) { cx.pass() } else { Verdict::Drop(Reason::MALFORMED) }
}

/// Tells the client, with the sequence number that it expects, that the server refused the connection.
fn refused(cx: &Cx<'_>, packet: &mut Packet<'_>, flow: &mut Flow, acknowledgement: u32) -> Verdict {
    let Some(tcp) = packet.tcp() else { return Verdict::Drop(Reason::MALFORMED) };
    let ports = (tcp.source_port(), tcp.destination_port());
    let numbers = (flow.cookie.wrapping_add(1), acknowledgement);
    flow.reset();
    let segment = Segment::new(header(ports, numbers, RST | ACK, 0), &Offer::default());
    if segment.replace(packet) { cx.pass() } else { Verdict::Drop(Reason::MALFORMED) }
}

#[cfg(test)]
mod tests;
