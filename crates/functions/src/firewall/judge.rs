//! Decides when rules are asked, and applies their decisions.

use braid_nf::prelude::*;

use super::connection::Connection;
use super::counts::Counts;
use super::ends::Ends;
use super::facts::{Facts, Quoted};
use super::keyed::Met;
use super::marks::Marks;
use super::rules::{Action, Reply};
use super::states::State;
use super::{DENIED, Firewall, REJECTED, ends_of};
use crate::parts::{Side, answer};

/// The result of the rules for a first packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    /// The sets with connection counts that it has met.
    met: Met,
    marks: Marks,
    /// Its counters, if a rule may ask what the connection has sent.
    counts: Option<Counts>,
}

impl Opening {
    /// Whether it opens no connection although it passes.
    pub(super) fn is_untracked(&self) -> bool {
        self.marks.is_untracked()
    }
}

impl Default for Opening {
    fn default() -> Opening {
        Opening { met: 0, marks: Marks::NEW, counts: None }
    }
}

/// What rules have said about a packet of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) answer: Result<(), Reason>,
    /// Whether nobody follows it: then it moves nothing.
    pub(super) is_untracked: bool,
}

impl Heard {
    /// No rule had to be asked.
    fn nothing(answer: Result<(), Reason>) -> Heard {
        Heard { answer, is_untracked: false }
    }
}

impl Firewall {
    /// Asks the rules about a packet of a live connection, if they have to be asked.
    pub(super) fn ask(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, state, is_believed): (Side, State, bool),
        connection: &mut Connection,
    ) -> Result<Heard, Conflict> {
        let policy = &self.settings.policy;
        let is_new = state == State::New;
        let is_stale = !connection.permit().is_of(policy.permit);
        let is_asked = !is_new || is_stale || policy.tells_packets_apart;
        let end = connection.known_as(state.is_from_opener() != Some(false));
        let ends = ends_of(packet, end);
        let counts = match self.effects.counted.is_on() {
            true => self.count(cx, packet, (side, state, is_believed), (&ends, is_stale))?,
            false => None,
        };
        let heard = match is_asked {
            true => self.judge_with(cx, packet, (side, state), (Some((&ends, end)), counts))?,
            false => Heard::nothing(Ok(())),
        };
        // What other rules would have refused stays so until these let it pass.
        if is_stale && !heard.is_untracked && (heard.answer.is_ok() || !is_new) {
            if is_new && policy.tells_packets_apart {
                connection.stay_new();
            }
            // What is asked about packets in the other direction takes them for ones from the other side.
            let goes_on = (connection.is_across() || !policy.asks_established())
                && policy.lets_go_on(&Facts::of(packet, side, state.answered()));
            connection.set_permit(if goes_on { policy.permit } else { policy.permit.asked() });
        }
        Ok(heard)
    }

    /// Counts a packet of a connection whose counters a rule may ask for. `is_stale`: whether these rules may ask is not
    /// known yet.
    #[cold]
    fn count(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (side, state, is_believed): (Side, State, bool),
        (ends, is_stale): (&Ends, bool),
    ) -> Result<Option<Counts>, Conflict> {
        let counted = &self.effects.counted;
        if is_stale && !self.settings.policy.counts(&Facts::of(packet, side, state)) {
            return counted.forget(cx, ends).map(|()| None);
        }
        let known = counted.with(cx, ends, (packet, Some(state).filter(|_| is_believed)))?;
        if known.is_some() || !is_stale {
            return Ok(known);
        }
        // These rules are the first that ask.
        let counts = Counts::of(packet, state);
        counted.begin(cx, ends, &counts).map(|()| Some(counts))
    }

    /// Handles a packet that belongs to no connection and may open none, or does not fit into its own. It is dropped,
    /// unless a table of the rule file lets it pass, as in nftables, and changes nothing.
    #[cold]
    pub(super) fn invalid(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, side: Side, reason: Reason) -> Handled {
        if reason == Reason::MALFORMED || self.judge(cx, packet, (side, State::Invalid), None)?.is_err() {
            return Ok(Verdict::Drop(reason));
        }
        self.pass(cx, packet)
    }

    /// Asks the rules about a packet that would open a connection, and returns their result if it may.
    pub(super) fn admit(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        side: Side,
    ) -> Result<Result<Opening, Reason>, Conflict> {
        let mut opening = Opening::default();
        if self.effects.counted.is_on() && self.settings.policy.counts(&Facts::of(packet, side, State::New)) {
            opening.counts = Some(Counts::of(packet, State::New));
        }
        let (met, counts) = (Some(&mut opening.met), opening.counts);
        Ok(self.decide(cx, packet, (side, State::New), (met, &mut opening.marks), (counts, None))?.map(|()| opening))
    }

    /// Notes the beginning of a connection or query: counts and marks it as the rules have said.
    pub(super) fn note_opening(
        &self,
        cx: &mut Cx<'_>,
        ends: &Ends,
        (side, opening): (Side, &Opening),
    ) -> Result<(), Conflict> {
        if opening.met != 0 {
            self.effects.sets.enter(cx, ends, side, opening.met)?;
        }
        if let Some(counts) = &opening.counts {
            self.effects.counted.begin(cx, ends, counts)?;
        }
        self.effects.marks.keep(cx, Some(ends), [Marks::NEW, opening.marks])
    }

    /// Asks the rules about any other packet; if they have nothing to say about its state, the default applies. `ends`:
    /// the endpoints of its connection or query, and under which side its sender, or who heard of an error's cause, is known there.
    pub(super) fn judge(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, state): (Side, State),
        ends: Option<(&Ends, Side)>,
    ) -> Result<Result<(), Reason>, Conflict> {
        let counts = match ends.filter(|_| self.effects.counted.is_on()) {
            Some((ends, _)) => self.effects.counted.with(cx, ends, (packet, Some(state)))?,
            None => None,
        };
        Ok(self.judge_with(cx, packet, (side, state), (ends, counts))?.answer)
    }

    fn judge_with(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, state): (Side, State),
        (about, counts): (Option<(&Ends, Side)>, Option<Counts>),
    ) -> Result<Heard, Conflict> {
        if !self.settings.policy.asks(state) {
            return Ok(Heard::nothing(if state == State::Invalid { Err(DENIED) } else { Ok(()) }));
        }
        let ends = about.map(|(ends, _)| ends);
        let before = self.effects.marks.begin(cx, ends)?;
        let mut after = before;
        let quoted = about.and_then(|(ends, end)| Some(Quoted::of(ends, state.opener_of_related(end)?)));
        let answer = self.decide(cx, packet, (side, state), (None, &mut after), (counts, quoted))?;
        self.effects.marks.keep(cx, ends, [before, after])?;
        Ok(Heard { answer, is_untracked: after.is_untracked() })
    }

    /// Applies the rules to a packet. `met`: where to note the sets that count connections, for a first packet.
    fn decide(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        (side, state): (Side, State),
        (mut met, marks): (Option<&mut Met>, &mut Marks),
        (counts, quoted): (Option<Counts>, Option<Quoted>),
    ) -> Result<Result<(), Reason>, Conflict> {
        let policy = &self.settings.policy;
        let (deciding, action) = match policy.without_rules(side, state) {
            Some(action) => (None, action),
            None => {
                let (mut fields, seen) = (None, &*packet);
                let exits = if policy.asks_exits() { self.settings.exits.of(cx.leaves_by(), seen, side) } else { 0 };
                let facts = policy.facts(seen, (cx.wall(), exits, counts, quoted), (side, state), &mut fields);
                policy.decide(&facts, |number| {
                    self.effects.meet(cx, (seen, &facts), number, (met.as_deref_mut(), marks))
                })?
            }
        };
        Ok(match action {
            Action::Allow => {
                marks.edits.write(packet, self.settings.hops());
                Ok(())
            }
            Action::Deny | Action::Continue => Err(DENIED),
            Action::Reject => {
                if self.answers.admits(cx, packet)? {
                    let from = self.settings.refuser(packet, side);
                    match deciding.map_or(Reply::Usual, |number| policy.reply(number)) {
                        Reply::Unreachable(v4, v6) => answer::unreachable(cx, packet, from, [v4, v6]),
                        Reply::Usual => answer::refuse(cx, packet, from),
                    }
                }
                Err(REJECTED)
            }
        })
    }
}
