//! The conntrack state of a packet, as in nftables' `ct state` and `ct direction`.

use crate::parts::Side;

/// How a packet relates to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::firewall) enum State {
    /// It would open a connection, or its connection has not been answered yet.
    New = 0,
    /// From the opener of a connection that has been answered.
    Original = 1,
    /// From the other end.
    Reply = 2,
    /// An ICMP error about what was sent to the connection's opener.
    RelatedOriginal = 3,
    /// An ICMP error about what the opener has sent; it goes to the opener, as a reply would.
    RelatedReply = 4,
    /// It belongs to no connection and may open none, or it does not fit into its connection.
    Invalid = 5,
    /// A rule exempts it from tracking (`notrack`): it belongs to no connection and opens none.
    Untracked = 6,
    /// It is no IP packet, but one of ARP, and the rule file has rules for those.
    Arp = 7,
}

impl State {
    pub(in crate::firewall) const COUNT: usize = 8;
    pub(in crate::firewall) const ALL: [State; State::COUNT] = [
        State::New,
        State::Original,
        State::Reply,
        State::RelatedOriginal,
        State::RelatedReply,
        State::Invalid,
        State::Untracked,
        State::Arp,
    ];

    /// The states of packets that belong to a connection.
    pub(in crate::firewall) const OF_CONNECTIONS: [State; 3] = [State::New, State::Original, State::Reply];

    /// The states of packets that concern a known connection.
    pub(in crate::firewall) const KNOWN: [State; 4] =
        [State::Original, State::Reply, State::RelatedOriginal, State::RelatedReply];

    /// The states of ICMP errors about a connection.
    pub(in crate::firewall) const RELATED: [State; 2] = [State::RelatedOriginal, State::RelatedReply];

    /// The state of a packet in a connection that has been answered.
    pub(in crate::firewall) fn established(sender: Sender) -> State {
        match sender {
            Sender::Opener => State::Original,
            Sender::Answerer => State::Reply,
        }
    }

    /// Which end of its connection has sent a packet; `None` if it is only about a connection, or belongs to none.
    pub(in crate::firewall) fn sender(self) -> Option<Sender> {
        match self {
            State::New | State::Original => Some(Sender::Opener),
            State::Reply => Some(Sender::Answerer),
            State::RelatedOriginal | State::RelatedReply | State::Invalid | State::Untracked | State::Arp => None,
        }
    }

    /// The side that opened the connection that an error from `side` is about: an error goes to the sender of the quoted
    /// packet.
    pub(in crate::firewall) fn opener_of_related(self, side: Side) -> Option<Side> {
        match self {
            State::RelatedOriginal => Some(side),
            State::RelatedReply => Some(side.other()),
            _ => None,
        }
    }

    /// The state that the packet would have in a connection that has been answered.
    pub(in crate::firewall) fn answered(self) -> State {
        State::established(self.sender().unwrap_or(Sender::Opener))
    }

    /// The state of a packet in the other direction.
    pub(in crate::firewall) fn turned(self) -> State {
        match self {
            State::Original => State::Reply,
            State::Reply => State::Original,
            other => other,
        }
    }
}

/// Which end of a connection has sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(in crate::firewall) enum Sender {
    /// The end that sent the first packet.
    Opener = 0,
    /// The other end.
    Answerer = 1,
}

impl Sender {
    #[inline(always)]
    pub(in crate::firewall) fn opener_if(is_opener: bool) -> Sender {
        if is_opener { Sender::Opener } else { Sender::Answerer }
    }
}

/// A set of states, as bits.
pub(in crate::firewall) type States = u8;

pub(in crate::firewall) const NEW: States = 1;
pub(in crate::firewall) const ORIGINAL: States = 2;
pub(in crate::firewall) const REPLY: States = 4;
pub(in crate::firewall) const RELATED_ORIGINAL: States = 8;
pub(in crate::firewall) const RELATED_REPLY: States = 16;
pub(in crate::firewall) const INVALID: States = 32;
pub(in crate::firewall) const UNTRACKED: States = 64;
pub(in crate::firewall) const ARP: States = 128;
pub(in crate::firewall) const ESTABLISHED: States = ORIGINAL | REPLY;
pub(in crate::firewall) const RELATED: States = RELATED_ORIGINAL | RELATED_REPLY;
/// All states of IP packets.
pub(in crate::firewall) const ALL: States = NEW | ESTABLISHED | RELATED | INVALID | UNTRACKED;

/// The bit of a state.
pub(in crate::firewall) fn bits(state: State) -> States {
    [NEW, ORIGINAL, REPLY, RELATED_ORIGINAL, RELATED_REPLY, INVALID, UNTRACKED, ARP][state as usize]
}
