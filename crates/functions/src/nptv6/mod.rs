//! Network prefix translation for IPv6 (NPTv6, RFC 6296): exchanges inside and outside prefixes, one to one and without
//! state.
//!
//! The translation is checksum-neutral: one word of the address compensates for the change of the prefix, so that TCP,
//! UDP and ICMPv6 checksums stay correct, even encrypted ones. It needs no packet sets and no state objects: any worker
//! handles any packet.
//!
//! Out of scope: ports, prefixes longer than 64 bits, and IPv4 (which passes unchanged).

mod config;
mod prefix;
#[cfg(test)]
mod tests;

pub use config::Config;

use braid_nf::packet::headers::icmpv6_type;
use braid_nf::packet::{IpAddress, IpVersion};
use braid_nf::prelude::*;
use braid_nf::{FieldUse, Hairpins};

use self::config::Settings;
use self::prefix::Unmapped;
use crate::catalog::FromConfig;
use crate::config::{ConfigError, READS_WIRE_LEN};
use crate::parts::answers::{answer, proxy};
pub use crate::parts::config::sides::NO_SIDE;
use crate::parts::forwarding::hairpin::{self, Way};
use crate::parts::forwarding::others::CountsHops;
use crate::parts::forwarding::turn::turn;
use crate::parts::headers::scope::{self, BAD_SOURCE, NOT_UNICAST, Reach, SITE_SCOPE};
use crate::parts::{AnswerRate, Side, WayOut};

/// The address has no word that can take the adjustment.
pub const NOT_TRANSLATABLE: Reason = Reason("not_translatable");
/// A packet from outside to an inside address, which outside hosts know by another address.
pub const INSIDE_ADDRESS: Reason = Reason("inside_address");
/// The offsets of the addresses in an IPv6 header.
const SOURCE_AT: u32 = 8;
const DESTINATION_AT: u32 = 24;

network_function! {
    /// The prefix translator.
    #[derive(Debug)]
    pub struct Nptv6 {
        settings: Settings,
        answers: AnswerRate,
        way_out: WayOut,
    }
}

impl FromConfig for Nptv6 {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, ports: u16) -> Result<Nptv6, ConfigError> {
        let settings = Settings::check(&config, ports, builder)?;
        let way_out = WayOut::new(settings.sides, ports, builder);
        Ok(Nptv6 { settings, answers: AnswerRate::new(builder, config.icmp_errors_per_s, ports)?, way_out })
    }
}

/// The new addresses of a packet, and where it goes.
struct Change {
    source: IpAddress,
    destination: IpAddress,
    to: Port,
    /// Whether this function turns the frame back to the station that sent it; of several functions with a prefix pair
    /// each, one does.
    turns: bool,
}

impl Change {
    /// Whether an address is another one.
    fn replaces(&self, packet: &Packet<'_>) -> bool {
        (self.source, self.destination) != (packet.src_ip(), packet.dst_ip())
    }
}

impl NetworkFunction for Nptv6 {
    type Set = ();
    const NAME: &'static str = "nptv6";
    const CONSUMES: &'static [Reason] = &[hairpin::RETURNS, proxy::ANSWERED];

    /// No state belongs to a host or a flow: any prefix may follow another one.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        match self.settings.sides == older.settings.sides {
            true => Ok(()),
            false => Err("which ports are inside and outside stays while packets go through".to_owned()),
        }
    }

    /// The prefix of inside hosts; hairpinning also changes the other end, and turns the frame.
    fn rewrites(&self) -> Rewrites {
        use FieldId::*;
        Rewrites { from_inside: &[IpSrc, IpDst, EthSrc, EthDst], from_outside: &[IpDst] }
    }

    fn fields(&self) -> Vec<FieldUse> {
        vec![READS_WIRE_LEN]
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.answers.report(cx, into)
    }

    fn orphan(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(Verdict::Drop(NO_SIDE)) };
        // If the function of another pair has sent it back inside (a hairpin between the prefixes of two pairs, RFC 6296 section
        // 4.3), it leaves by that function's port.
        let across = self.way_out.of(cx, packet.port());
        if packet.ip_version() != Some(IpVersion::V6) {
            return Ok(match scope::is_damaged_ip(packet) {
                true => Verdict::Drop(Reason::MALFORMED),
                false => Verdict::Forward(across),
            });
        }
        if packet.is_truncated() {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        }
        let is_asked = |address| side == Side::Outside && self.settings.outside.contains(address);
        if self.settings.proxy.is_some_and(|proxy| proxy.answers(cx, packet, is_asked)) {
            return Ok(Verdict::Drop(proxy::ANSWERED));
        }
        match scope::reach_v6(packet) {
            Reach::Link => return Ok(Verdict::Forward(across)),
            Reach::Nowhere(reason) => return Ok(Verdict::Drop(reason)),
            Reach::Beyond => {}
        }
        if scope::is_to_all_of_link(packet) {
            return Ok(Verdict::Drop(NOT_UNICAST));
        }
        // The border of a site is here (RFC 6092 REC-2).
        if scope::is_group_of_site(packet.dst_ip()) {
            return Ok(Verdict::Drop(SITE_SCOPE));
        }
        if self.pretends_to_be_inside(cx, packet, side) {
            return Ok(Verdict::Drop(BAD_SOURCE));
        }
        // To an inside address nothing is translated, and answers to one would stay inside (RFC 6092 REC-5). Errors get none.
        let has_inside_source = || self.settings.inside.contains(packet.src_ip()) && packet.embedded().is_none();
        if side == Side::Outside && (self.settings.inside.contains(packet.dst_ip()) || has_inside_source()) {
            return Ok(Verdict::Drop(INSIDE_ADDRESS));
        }
        // A packet to this function's own address goes no further than to a router behind it, which is not another hop.
        let is_for_router = Some(packet.dst_ip()) == self.settings.router(side).v6;
        if side == Side::Inside && is_for_router {
            return Ok(Verdict::Forward(packet.port()));
        }
        // What a router before this function sends to another link inside leaves no network.
        let is_routed_back = || self.way_out.is_decided(side) && self.way_out.back(cx, packet.port()).is_some();
        let stays = side == Side::Inside && !self.settings.outside.contains(packet.dst_ip()) && is_routed_back();
        let change = match stays || self.stays_inside(packet, side) {
            true => None,
            false => match self.change(packet, side, across) {
                Ok(change) => Some(change),
                Err(wrong) => return self.refuse(cx, packet, side, wrong),
            },
        };
        let is_translated = change.as_ref().is_some_and(|change| change.replaces(packet));
        if !is_for_router && (is_translated || self.settings.counts_hops == CountsHops::All) {
            if packet.ttl().is_some_and(|hops| hops <= 1) {
                return self.answers.time_exceeded(cx, packet, self.settings.router(side));
            }
            packet.decrement_ttl();
        }
        Ok(match change {
            Some(change) if change.turns => {
                let way = Way::of(cx, packet, across);
                let verdict = self.translate(packet, side, &change);
                way.send(cx, packet, verdict)
            }
            Some(change) => self.translate(packet, side, &change),
            None => Verdict::Forward(self.way_out.of_local(cx, packet.port())),
        })
    }

    /// A router before this function decides by which port a packet leaves, and one for another pair of prefixes may have sent it
    /// back inside.
    const ASKS_PORT: bool = true;

    const TURNS_BACK: bool = true;

    fn hairpins(&self) -> Hairpins {
        self.settings.hairpins
    }

    fn back(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        let Some(side) = self.settings.sides.of(packet.port()) else { return Ok(cx.pass()) };
        let is_other = packet.ip_version() != Some(IpVersion::V6) || scope::stays_on_link(packet);
        if is_other || self.stays_inside(packet, side) {
            return Ok(cx.pass());
        }
        // The frame whose answer this is was turned by the function that has the prefix of its destination.
        let answering = packet.embedded().map_or(packet.src_ip(), |quoted| quoted.dst_ip);
        let turns = cx.leaves_by() == packet.port() && self.settings.inside.contains(answering);
        let change = self.change(packet, side, cx.leaves_by());
        let Ok(change) = change else { return Ok(cx.pass()) };
        packet.decrement_ttl();
        Ok(self.translate(packet, side, &Change { turns, ..change }))
    }
}

impl Nptv6 {
    /// Translates the source of an outward packet, the destination of an inward one, and both of a packet from inside to
    /// the outside prefix (a hairpin). If an address cannot be translated, the error has its offset in the header.
    fn change(&self, packet: &Packet<'_>, side: Side, across: Port) -> Result<Change, (Unmapped, u32)> {
        let (source, destination) = (packet.src_ip(), packet.dst_ip());
        let mut change = Change { source, destination, to: across, turns: false };
        if side == Side::Inside && self.settings.inside.contains(source) {
            change.source = self.settings.outward(source).map_err(|wrong| (wrong, SOURCE_AT))?;
        }
        if self.settings.outside.contains(destination) {
            change.destination = self.settings.inward(destination).map_err(|wrong| (wrong, DESTINATION_AT))?;
            if side == Side::Inside {
                (change.to, change.turns) = (packet.port(), true);
            }
        }
        Ok(change)
    }

    /// Whether a packet has an outside address of an inside host as its source, which this function alone writes: its answers would go to that
    /// host (RFC 2827). What a function before this one sends back inside has been translated by it; with `mac` neighbours on the link outside may
    /// have some of these addresses.
    fn pretends_to_be_inside(&self, cx: &Cx<'_>, packet: &Packet<'_>, side: Side) -> bool {
        let source = packet.src_ip();
        let is_router =
            || [Side::Inside, Side::Outside].iter().any(|side| self.settings.router(*side).v6 == Some(source));
        let has_been_back = || self.way_out.back(cx, packet.port()).is_some();
        let has_neighbours = side == Side::Outside && self.settings.proxy.is_some();
        let is_foreign = !has_neighbours && self.settings.outside.contains(source);
        is_foreign && packet.embedded().is_none() && !is_router() && !has_been_back()
    }

    /// Whether a packet goes from inside to inside, by way of a router there: neither address is known outside.
    fn stays_inside(&self, packet: &Packet<'_>, side: Side) -> bool {
        side == Side::Inside && self.settings.inside.contains(packet.dst_ip())
    }

    fn translate(&self, packet: &mut Packet<'_>, side: Side, change: &Change) -> Verdict {
        self.translate_quoted(packet, side);
        packet.set_src_ip(change.source);
        packet.set_dst_ip(change.destination);
        if change.turns {
            turn(packet);
        }
        Verdict::Forward(change.to)
    }

    /// Tells the sender why a packet cannot be translated (RFC 6296 sections 3.2 and 3.7).
    #[cold]
    fn refuse(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, side: Side, (wrong, at): (Unmapped, u32)) -> Handled {
        let router = self.settings.router(side);
        if self.answers.admits(cx, packet)? {
            match (wrong, router.v6) {
                (Unmapped::Subnet, _) => answer::no_route(cx, packet, router),
                (Unmapped::Identifier, Some(router)) => {
                    answer::error(cx, packet, router, (icmpv6_type::PARAMETER_PROBLEM, 0), at);
                }
                (Unmapped::Identifier, None) => {}
            }
        }
        Ok(Verdict::Drop(NOT_TRANSLATABLE))
    }

    /// Translates the packet that an ICMPv6 error quotes. It went in the other direction: outward errors quote inside
    /// destinations, inward ones outside sources. Its checksums are neutral too.
    fn translate_quoted(&self, packet: &mut Packet<'_>, side: Side) {
        let Some(quoted) = packet.embedded() else { return };
        let (source, destination) = (quoted.src_ip, quoted.dst_ip);
        let Some(mut quoted) = packet.embedded_mut() else { return };
        if self.settings.outside.contains(source)
            && let Ok(inside) = self.settings.inward(source)
        {
            quoted.set_src_ip(inside);
        }
        if side == Side::Inside
            && self.settings.inside.contains(destination)
            && let Ok(outside) = self.settings.outward(destination)
        {
            quoted.set_dst_ip(outside);
        }
    }
}
