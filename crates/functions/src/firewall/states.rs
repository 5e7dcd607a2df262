//! What a packet is of a connection, as conntrack has it: `ct state` and `ct direction` of nftables.

use crate::parts::Side;

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    /// It would open a connection, or nobody has answered yet.
    New = 0,
    /// Of a connection that has been answered, from who opened it.
    Original = 1,
    /// From who was asked.
    Reply = 2,
    /// An ICMP error about a connection, about what was sent to its opener.
    RelatedOriginal = 3,
    /// About what the opener has sent: like an answer to that it goes to it.
    RelatedReply = 4,
    /// Of no connection, and it may open none; or it does not fit into its connection.
    Invalid = 5,
    /// A rule has said that nobody follows it (`notrack`): it is of no connection and opens none.
    Untracked = 6,
}

impl State {
    pub(super) const COUNT: usize = 7;
    pub(super) const ALL: [State; State::COUNT] = [
        State::New,
        State::Original,
        State::Reply,
        State::RelatedOriginal,
        State::RelatedReply,
        State::Invalid,
        State::Untracked,
    ];

    /// Of what is part of a connection.
    pub(super) const OF_CONNECTIONS: [State; 3] = [State::New, State::Original, State::Reply];

    /// Of connections that are known.
    pub(super) const KNOWN: [State; 4] = [State::Original, State::Reply, State::RelatedOriginal, State::RelatedReply];

    /// Of ICMP errors about a connection.
    pub(super) const RELATED: [State; 2] = [State::RelatedOriginal, State::RelatedReply];

    /// Of a connection that has been answered.
    pub(super) fn established(from_opener: bool) -> State {
        if from_opener { State::Original } else { State::Reply }
    }

    /// Whether a packet of a connection comes from who opened it; none if it is only about one, or of none.
    pub(super) fn is_from_opener(self) -> Option<bool> {
        match self {
            State::New | State::Original => Some(true),
            State::Reply => Some(false),
            State::RelatedOriginal | State::RelatedReply | State::Invalid | State::Untracked => None,
        }
    }

    /// The side from which a connection was opened about which an error comes from `side`: errors go to who has sent what they are about.
    pub(super) fn opener_of_related(self, side: Side) -> Option<Side> {
        match self {
            State::RelatedOriginal => Some(side),
            State::RelatedReply => Some(side.other()),
            _ => None,
        }
    }

    /// The same of a packet of a connection, once that has been answered.
    pub(super) fn answered(self) -> State {
        State::established(self.is_from_opener().unwrap_or(true))
    }

    /// The same of a packet that goes the other way.
    pub(super) fn turned(self) -> State {
        match self {
            State::Original => State::Reply,
            State::Reply => State::Original,
            other => other,
        }
    }
}

/// Several of them, as bits.
pub(super) type States = u8;

pub(super) const NEW: States = 1;
pub(super) const ORIGINAL: States = 2;
pub(super) const REPLY: States = 4;
pub(super) const RELATED_ORIGINAL: States = 8;
pub(super) const RELATED_REPLY: States = 16;
pub(super) const INVALID: States = 32;
pub(super) const UNTRACKED: States = 64;
pub(super) const ESTABLISHED: States = ORIGINAL | REPLY;
pub(super) const RELATED: States = RELATED_ORIGINAL | RELATED_REPLY;
pub(super) const ALL: States = NEW | ESTABLISHED | RELATED | INVALID | UNTRACKED;

/// The bits of a state.
pub(super) fn bits(state: State) -> States {
    [NEW, ORIGINAL, REPLY, RELATED_ORIGINAL, RELATED_REPLY, INVALID, UNTRACKED][state as usize]
}
