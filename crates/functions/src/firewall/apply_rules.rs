//! Decides when rules are asked, and applies their decisions.

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::conditions::extensions;
use super::conditions::facts::{Context, Facts, Observed, Quoted};
use super::connection::Connection;
use super::connection::counts::Counts;
use super::connection::ends::{About, Ends};
use super::connection::states::{Sender, State};
use super::effects::Outcome;
use super::effects::dynamic_sets::Met;
use super::effects::marks::Marks;
use super::rules::{Action, Reply};
use super::{DENIED, Firewall, REJECTED, ends_of};
use crate::parts::Side;
use crate::parts::answers::answer;

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
        observed: Observed,
        is_believed: bool,
        connection: &mut Connection,
    ) -> Result<Heard, Conflict> {
        let policy = &self.settings.policy;
        let Observed { side, state } = observed;
        let is_new = state == State::New;
        let is_stale = !connection.permit().is_of(policy.permit);
        // Whoever may open a connection by packets with an authentication header may not go on by ones without it.
        let is_bare = connection.protocol == protocol::AH && extensions::protocol_of(packet) != protocol::AH;
        let is_asked = !is_new || is_stale || is_bare || policy.tells_packets_apart;
        let end = connection.known_as(state.sender().unwrap_or(Sender::Opener));
        let ends = ends_of(packet, end);
        let counts = match self.effects.counted.is_on() {
            true => self.count(cx, packet, observed, is_believed, &ends, is_stale)?,
            false => None,
        };
        let heard = match is_asked {
            true => self.judge_with(cx, packet, observed, Some(&About { ends, end }), counts)?,
            false => Heard::nothing(Ok(())),
        };
        // What other rules would have refused stays so until these let it pass.
        if is_stale && !heard.is_untracked && (heard.answer.is_ok() || !is_new) {
            if is_new && policy.tells_packets_apart {
                connection.stay_new();
            }
            // What is asked about packets in the other direction takes them for ones from the other side.
            let goes_on = (connection.is_across() || !policy.asks_established())
                && extensions::authentication_of(packet).is_none()
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
        Observed { side, state }: Observed,
        is_believed: bool,
        ends: &Ends,
        is_stale: bool,
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
        if reason == Reason::MALFORMED
            || self.judge(cx, packet, Observed { side, state: State::Invalid }, None)?.is_err()
        {
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
        let context = Context { counts: opening.counts, ..Context::default() };
        let outcome = Outcome { met: Some(&mut opening.met), marks: &mut opening.marks };
        let answer = self.decide(cx, packet, Observed { side, state: State::New }, context, outcome)?;
        Ok(answer.map(|()| opening))
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

    /// Asks the rules about any other packet; if they have nothing to say about its state, the default applies. `about`:
    /// the connection or query that it belongs to, or that an error is about.
    pub(super) fn judge(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        observed: Observed,
        about: Option<&About>,
    ) -> Result<Result<(), Reason>, Conflict> {
        let counts = match about.filter(|_| self.effects.counted.is_on()) {
            Some(about) => self.effects.counted.with(cx, &about.ends, (packet, Some(observed.state)))?,
            None => None,
        };
        Ok(self.judge_with(cx, packet, observed, about, counts)?.answer)
    }

    fn judge_with(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        observed: Observed,
        about: Option<&About>,
        counts: Option<Counts>,
    ) -> Result<Heard, Conflict> {
        let state = observed.state;
        if !self.settings.policy.asks(state) {
            return Ok(Heard::nothing(if state == State::Invalid { Err(DENIED) } else { Ok(()) }));
        }
        let ends = about.map(|about| &about.ends);
        let before = self.effects.marks.begin(cx, ends)?;
        let mut after = before;
        let quoted = about.and_then(|about| Some(Quoted::of(&about.ends, state.opener_of_related(about.end)?)));
        let context = Context { counts, quoted, ..Context::default() };
        let outcome = Outcome { met: None, marks: &mut after };
        let answer = self.decide(cx, packet, observed, context, outcome)?;
        self.effects.marks.keep(cx, ends, [before, after])?;
        Ok(Heard { answer, is_untracked: after.is_untracked() })
    }

    /// Applies the rules to a packet, and adds to the context when it comes and where it may leave.
    fn decide(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        observed: Observed,
        mut context: Context,
        mut outcome: Outcome<'_>,
    ) -> Result<Result<(), Reason>, Conflict> {
        let (policy, Observed { side, state }) = (&self.settings.policy, observed);
        let (deciding, action) = match policy.without_rules(side, state) {
            Some(action) => (None, action),
            None => {
                let (mut fields, seen) = (None, &*packet);
                context.wall_ns = cx.wall();
                if policy.asks_exits() {
                    context.exits = self.settings.exits.of(cx.leaves_by(), seen, side);
                }
                let facts = policy.facts(seen, observed, &context, &mut fields);
                policy.decide(&facts, |number| self.effects.meet(cx, (seen, &facts), number, &mut outcome))?
            }
        };
        Ok(match action {
            Action::Allow => {
                outcome.marks.edits.write(packet, self.settings.hops());
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
