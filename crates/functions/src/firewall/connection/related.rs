//! Packets that belong to a connection without being in its set: ICMP errors and queries, and fragments.

use braid_nf::packet::headers::{Header, Ipv6, Tcp, View, icmp_type, icmpv6_type};
use braid_nf::packet::parse::protocol;
use braid_nf::packet::{Embedded, IpVersion};
use braid_nf::prelude::*;

use super::ends::{About, Ends};
use super::limits::{HALF_OPEN_LIMIT, HOST_LIMIT, HOST_TABLE_FULL};
use super::states::State;
use crate::firewall::conditions::facts::Observed;
use crate::firewall::conditions::output_ports::Answers;
use crate::firewall::{
    CONNECTION_TABLE_FULL, DENIED, Firewall, INVALID_TCP_FLAGS, NOT_INIT, NOT_SYN, OUT_OF_WINDOW, REJECTED,
};
use crate::parts::tables::aged::Stamp;
use crate::parts::{Fate, Fragments, Lead, Side};

/// An ICMP error that quotes no packet of a live connection.
pub const UNRELATED: Reason = Reason("unrelated");
/// An ICMP reply to no known query.
pub const NO_QUERY: Reason = Reason("no_query");

/// Node information, in ICMPv6 (RFC 4620).
const NODE_QUERY: u8 = 139;
const NODE_ANSWER: u8 = 140;

/// A later fragment that begins within the TCP header.
pub const TINY_FRAGMENT: Reason = Reason("tiny_fragment");

/// Reasons to drop a first fragment that its later fragments do not reveal, so that they have to be remembered.
pub(in crate::firewall) const ENDS: [Reason; 15] = [
    DENIED,
    REJECTED,
    NOT_SYN,
    NOT_INIT,
    INVALID_TCP_FLAGS,
    OUT_OF_WINDOW,
    UNRELATED,
    NO_QUERY,
    HALF_OPEN_LIMIT,
    HOST_LIMIT,
    HOST_TABLE_FULL,
    CONNECTION_TABLE_FULL,
    Reason::SET_TABLE_FULL,
    Reason::MALFORMED,
    Reason::TTL_EXCEEDED,
];

/// When a query was sent, in nanoseconds without the lowest bits; they say whether it has been answered, and from which side
/// answers come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub(in crate::firewall) struct Asked(u64);

const ANSWERED: u64 = 1;
/// From its own side.
const WITHIN: u64 = 2;
/// That is not known before the first one.
const EITHER: u64 = 4;
const FLAGS: u64 = ANSWERED | WITHIN | EITHER;

impl Asked {
    fn new(answers: Answers, at_ns: u64) -> Asked {
        let bits = match answers {
            Answers::Across => 0,
            Answers::Within => WITHIN,
            Answers::Either => EITHER,
        };
        Asked(at_ns & !FLAGS | bits)
    }

    /// The same once a reply has come, from its own side or from the other; `None` if none can come from there.
    fn answered(self, is_within: bool) -> Option<Asked> {
        let within = if is_within { WITHIN } else { 0 };
        (self.0 & EITHER != 0 || self.0 & WITHIN == within).then_some(Asked(self.0 & !FLAGS | ANSWERED | within))
    }

    pub(in crate::firewall) fn is_answered(self) -> bool {
        self.0 & ANSWERED != 0
    }
}

impl Stamp for Asked {
    fn seen_ns(&self) -> u64 {
        self.0
    }
}

/// The kind of an ICMP message; queries and replies with type and identifier.
pub(in crate::firewall) enum Message {
    Query(u8, u16),
    Reply(u8, u16),
    Error,
    Other,
}

impl Message {
    pub(in crate::firewall) fn of(packet: &Packet<'_>) -> Option<Message> {
        let (kind, is_error, is_reply) = match (packet.icmp(), packet.icmpv6()) {
            (Some(icmp), _) => (icmp.kind(), icmp.is_error(), is_reply(icmp.kind(), IpVersion::V4)),
            (_, Some(icmp)) => (icmp.kind(), icmp.is_error(), is_reply(icmp.kind(), IpVersion::V6)),
            _ => return None,
        };
        Some(match (packet.icmp_id().or_else(|| node_query_id(packet)), is_error) {
            (_, true) => Message::Error,
            (Some(id), _) if is_reply => Message::Reply(kind, id),
            (Some(id), _) => Message::Query(kind, id),
            _ if kind == icmpv6_type::ECHO_REQUEST => return None,
            _ => Message::Other,
        })
    }
}

impl Firewall {
    /// Handles an ICMP or ICMPv6 message. Rules decide about queries until one with the same type and identifier is
    /// answered. A reply must answer such a query, and an error must quote a packet of a live connection or query.
    pub(in crate::firewall) fn icmp(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, side: Side) -> Handled {
        let Some(message) = Message::of(packet) else { return Ok(Verdict::Drop(Reason::MALFORMED)) };
        let (state, about) = match message {
            Message::Error => match self.related(cx, packet, side)? {
                Some((state, about)) => (state, Some(about)),
                None => return self.invalid(cx, packet, side, UNRELATED),
            },
            Message::Reply(kind, id) => {
                let Some(about) = self.answered(cx, packet, side, (kind, id))? else {
                    return self.invalid(cx, packet, side, NO_QUERY);
                };
                (State::Reply, Some(about))
            }
            Message::Query(kind, id) => {
                if let Err(reason) = self.query(cx, packet, side, (kind, id))? {
                    return Ok(Verdict::Drop(reason));
                }
                return self.pass(cx, packet);
            }
            // Conntrack does not track these.
            Message::Other if self.settings.policy.has_tables => return self.invalid(cx, packet, side, DENIED),
            Message::Other => (State::New, None),
        };
        if let Err(reason) = self.judge(cx, packet, Observed { side, state }, about.as_ref())? {
            return Ok(Verdict::Drop(reason));
        }
        self.pass(cx, packet)
    }

    /// Handles a query with this type and identifier: the first counts as a new connection, and once one is answered
    /// further ones belong to it.
    fn query(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        side: Side,
        (kind, id): (u8, u16),
    ) -> Result<Result<(), Reason>, Conflict> {
        let ends = query_ends(packet, side, id).asked_from(side, kind);
        let known = self.queries.get(cx, &ends)?;
        let goes_on = known.is_some_and(Asked::is_answered);
        let judged = match known {
            Some(_) => {
                let state = if goes_on { State::Original } else { State::New };
                self.judge(cx, packet, Observed { side, state }, Some(&About { ends, end: side }))?.map(|()| None)
            }
            None => {
                // An expired query with the same identifier may not have been swept yet.
                self.effects.leave(cx, &ends)?;
                self.admit(cx, packet, side)?.map(Some)
            }
        };
        let opening = match judged {
            Ok(Some(opening)) if opening.is_untracked() => return Ok(Ok(())),
            Err(reason) => return Ok(Err(reason)),
            Ok(opening) => opening,
        };
        let asked = Asked::new(self.settings.exits.answers(cx, side), cx.wall());
        let asked = if goes_on { Asked(asked.0 | ANSWERED) } else { asked };
        if !self.queries.insert_telling(cx, &ends, &asked, |cx, ends| self.effects.leave(cx, ends))? {
            return Ok(Err(CONNECTION_TABLE_FULL));
        }
        if let Some(opening) = opening {
            self.note_opening(cx, &ends, (side, &opening))?;
        }
        Ok(Ok(()))
    }

    /// The query that a reply of this type and with this identifier answers, and the side under which who replies is known there.
    fn answered(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        side: Side,
        (kind, id): (u8, u16),
    ) -> Result<Option<About>, Conflict> {
        for end in [side, side.other()] {
            let ends = query_ends(packet, end, id).asked_from(end.other(), query_of(kind));
            let Some(asked) = self.queries.get(cx, &ends)? else { continue };
            let Some(answered) = asked.answered(end != side) else { continue };
            if answered != asked {
                self.queries.insert(cx, &ends, &answered)?;
            }
            return Ok(Some(About { ends, end }));
        }
        Ok(None)
    }

    /// The live connection or query that an ICMP error from `side` is about, and the error's direction relative to the
    /// opener. `None` if the error is not addressed to the sender of the packet it quotes.
    fn related(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, side: Side) -> Result<Option<(State, About)>, Conflict> {
        let Some(quoted) = packet.embedded() else { return Ok(None) };
        // As in conntrack, an error with a wrong checksum relates to nothing.
        if quoted.src_ip != packet.dst_ip() || !packet.checksums_ok() {
            return Ok(None);
        }
        // The quoted packet travelled in the other direction. If the error may go back to its side, so did what it quotes.
        let ways = [
            (side, side.other(), State::RelatedReply),
            (side, side, State::RelatedOriginal),
            (side.other(), side, State::RelatedReply),
        ];
        let ways = &ways[..if self.settings.exits.answers(cx, side) == Answers::Across { 2 } else { 3 }];
        if let Some((kind, id)) = quoted.icmp_type.zip(quoted.icmp_id).or_else(|| quoted_node_query(packet, &quoted)) {
            // It was a query, or a reply to a query from this side.
            let kind = if is_reply(kind, quoted.src_ip.version()) { query_of(kind) } else { kind };
            for &(end, opener, state) in ways {
                let from_inside = end == Side::Outside;
                let ends = Ends::new(from_inside, (quoted.src_ip, id), (quoted.dst_ip, id), protocol::ICMP);
                let ends = ends.asked_from(opener, kind);
                if self.queries.get(cx, &ends)?.is_some() {
                    return Ok(Some((state, About { ends, end })));
                }
            }
            return Ok(None);
        }
        let (source, destination) = match quoted.ports {
            Some(ports) => ports,
            None if protocol::has_ports(quoted.protocol) => return Ok(None),
            None => (0, 0),
        };
        for &(end, opener, state) in ways {
            let ends = ((quoted.src_ip, source), (quoted.dst_ip, destination));
            let ends = Ends::new(end == Side::Outside, ends.0, ends.1, quoted.protocol);
            if self.connections.has(cx, &ends.opened_from(opener as u8))? {
                return Ok(Some((state, About { ends, end })));
            }
        }
        Ok(None)
    }

    /// Passes a first fragment, and lets later ones follow.
    #[cold]
    pub(in crate::firewall) fn pass_fragment(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        // Fragments that have waited leave as this one does.
        let fate = Fate::new(cx.leaves_by(), None, None);
        if !self.fragments.remember(cx, packet, fate)? {
            return Ok(Verdict::Drop(Fragments::forgotten(packet)));
        }
        let hops = self.settings.hops();
        if packet.ttl().is_none_or(|ttl| ttl > hops) {
            self.fragments.release(cx, packet, &fate, hops)?;
        }
        self.hop(cx, packet)
    }

    /// Passes a later fragment whose first one has passed, or holds it until that arrives.
    #[cold]
    pub(in crate::firewall) fn follow_first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Handled {
        if is_within_header(packet) {
            return Ok(Verdict::Drop(TINY_FRAGMENT));
        }
        match self.fragments.follow(cx, packet)? {
            Lead::Passed(_) => self.hop(cx, packet),
            Lead::Ends(reason) => Ok(Verdict::Drop(reason)),
            Lead::Unknown => Ok(Verdict::Drop(self.fragments.hold(cx, packet)?)),
        }
    }
}

/// Whether a fragment begins within a TCP header, where it could overwrite the flags that were checked (RFC 1858 section
/// 3, RFC 3128).
fn is_within_header(packet: &Packet<'_>) -> bool {
    let fragment = |ip: View<'_, Ipv6>| ip.extensions().find_map(|extension| extension.fragment());
    let offset = match packet.ipv4() {
        Some(ip) => ip.fragment_offset(),
        None => packet.ipv6().and_then(fragment).map_or(u16::MAX, |(offset, ..)| offset),
    };
    packet.protocol() == protocol::TCP && usize::from(offset) < Tcp::LEN
}

/// Whether an ICMP type is that of a reply (RFC 792, RFC 4443).
fn is_reply(kind: u8, version: IpVersion) -> bool {
    match version {
        IpVersion::V4 => matches!(kind, icmp_type::ECHO_REPLY | icmp_type::TIMESTAMP_REPLY | 16 | 18),
        IpVersion::V6 => matches!(kind, icmpv6_type::ECHO_REPLY | NODE_ANSWER),
    }
}

/// What tells a node information query from others between two nodes, and its answer repeats: as in conntrack, the two bytes
/// where an echo has its identifier, which are the kind of information (RFC 4620 section 4).
fn node_query_id(packet: &Packet<'_>) -> Option<u16> {
    packet.icmpv6()?;
    node_query(packet, packet.l4_offset()?).map(|(_, id)| id)
}

/// The same of a message that an error quotes, with its type.
fn quoted_node_query(packet: &Packet<'_>, quoted: &Embedded) -> Option<(u8, u16)> {
    if quoted.protocol == protocol::ICMPV6 { node_query(packet, quoted.l4_offset()?) } else { None }
}

/// Type and identifier of a node information query or answer at this offset.
fn node_query(packet: &Packet<'_>, at: usize) -> Option<(u8, u16)> {
    let &[kind, _, _, _, high, low] = packet.bytes().get(at..)?.first_chunk()?;
    matches!(kind, NODE_QUERY | NODE_ANSWER).then_some((kind, u16::from_be_bytes([high, low])))
}

/// The type of the query that a reply of this type answers.
fn query_of(reply: u8) -> u8 {
    if reply == icmp_type::ECHO_REPLY { icmp_type::ECHO_REQUEST } else { reply - 1 }
}

fn query_ends(packet: &Packet<'_>, side: Side, id: u16) -> Ends {
    // Both IP versions use the number of ICMP: their addresses tell them apart.
    Ends::new(side == Side::Inside, (packet.src_ip(), id), (packet.dst_ip(), id), protocol::ICMP)
}
