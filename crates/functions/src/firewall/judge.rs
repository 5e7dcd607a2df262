//! When rules are asked, and what follows from what they say.

use braid_nf::prelude::*;

use super::connection::Connection;
use super::keyed::Met;
use super::rules::{Action, Reply};
use super::states::State;
use super::{DENIED, Firewall, REJECTED};
use crate::parts::{Side, answer};

impl Firewall {
    /// What the rules say about a packet of a live connection, if they have to be asked about it.
    pub(super) fn ask(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (side, from_opener, is_new): (Side, bool, bool),
        connection: &mut Connection,
    ) -> Result<Result<(), Reason>, Conflict> {
        let policy = &self.settings.policy;
        let state = if is_new { State::New } else { State::established(from_opener) };
        let is_stale = !connection.mark().is_of(policy.mark);
        let is_asked = !is_new || is_stale || policy.tells_packets_apart;
        let answer = if is_asked { self.judge(cx, packet, side, state)? } else { Ok(()) };
        // What other rules would have refused stays so until these let it pass.
        if is_stale && (answer.is_ok() || !is_new) {
            if is_new && policy.tells_packets_apart {
                connection.stay_new();
            }
            let goes_on = policy.lets_go_on(&policy.facts(packet, side, State::established(from_opener)));
            connection.set_mark(if goes_on { policy.mark } else { policy.mark.asked() });
        }
        Ok(answer)
    }

    /// A packet that is of no connection and may open none, or does not fit into its own: dropped, unless a table of the rule file lets it
    /// pass, as in nftables. It changes nothing.
    #[cold]
    pub(super) fn invalid(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, side: Side, reason: Reason) -> Handled {
        if reason == Reason::MALFORMED || self.judge(cx, packet, side, State::Invalid)?.is_err() {
            return Ok(Verdict::Drop(reason));
        }
        self.pass(cx, packet)
    }

    /// What the rules say about a packet that would open a connection; if it may, which counts of connections it has met.
    pub(super) fn admit(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        side: Side,
    ) -> Result<Result<Met, Reason>, Conflict> {
        let mut met = 0;
        Ok(self.decide(cx, packet, (side, State::New), Some(&mut met))?.map(|()| met))
    }

    /// What the rules say about any other packet; what happens without them if they say nothing else about its state.
    pub(super) fn judge(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        side: Side,
        state: State,
    ) -> Result<Result<(), Reason>, Conflict> {
        match self.settings.policy.asks(state) {
            true => self.decide(cx, packet, (side, state), None),
            false if state == State::Invalid => Ok(Err(DENIED)),
            false => Ok(Ok(())),
        }
    }

    /// `met`: where the counts of connections are noted that a first packet meets.
    fn decide(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        (side, state): (Side, State),
        mut met: Option<&mut Met>,
    ) -> Result<Result<(), Reason>, Conflict> {
        let policy = &self.settings.policy;
        let facts = policy.facts(packet, side, state);
        let (deciding, action) =
            policy.decide(&facts, |number, rule| self.effects.meet(cx, &facts, (number, rule), met.as_deref_mut()))?;
        Ok(match action {
            Action::Allow => Ok(()),
            Action::Deny | Action::Continue => Err(DENIED),
            Action::Reject => {
                if self.answers.admits(cx, packet)? {
                    match deciding.and_then(|number| policy.rules.get(number)).map(|rule| rule.reply) {
                        Some(Reply::Unreachable(v4, v6)) => answer::unreachable(cx, packet, [v4, v6]),
                        _ => answer::refuse(cx, packet),
                    }
                }
                Err(REJECTED)
            }
        })
    }
}
