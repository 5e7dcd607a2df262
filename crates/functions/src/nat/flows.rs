//! What every translator with mappings does with them: makes them for packets that go out, finds them for those that come in, keeps
//! them while flows live, and says when a flow that caches its translation has to look at its mapping again.

use std::sync::Arc;

use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Handle, StateObject};
use braid_nf::{Part, Reason};

use super::config::Filtering;
use super::endpoint::{Endpoint, Inside, Kept};
use super::filter::{Filter, Hold};
use super::find::{FILTERED, NO_MAPPING};
use super::fixed::Fixed;
use super::hosts::MAPPING_TABLE_FULL;
use super::mappings::{Mapping, Mappings, Use};
use super::pool::Pool;
use super::session::{INWARD, Needs, OUTWARD, Phase, Timeouts};
use crate::config::ConfigError;
use crate::parts::SECOND;

/// How much later the other end's answer to a TCP segment may come, from which on the connection is silent.
const ANSWER_NS: u64 = 4 * SECOND;

/// Mappings, who may send to them, and how long they live.
pub(crate) struct Flows<K> {
    pub(crate) mappings: Mappings<K>,
    pub(crate) filter: Filter,
    pub(crate) timeouts: Timeouts,
    /// Whether inbound packets of UDP and ICMP keep mappings alive as well.
    pub(crate) inbound_refresh: bool,
    pub(crate) refresh_ns: u64,
}

/// Says which keys have changed under which mappings stand for endpoints, if any have.
pub(crate) fn kept_under(same: &[(&str, bool)]) -> Result<(), String> {
    match same.iter().find(|(_, same)| !same) {
        Some((keys, _)) => {
            Err(format!("mappings stand for endpoints under {keys}, which cannot change while they are kept"))
        }
        None => Ok(()),
    }
}

impl<K: Kept> Flows<K> {
    /// No mapping yet, and room for so many.
    pub(crate) fn new(
        builder: &mut StateBuilder,
        (pool, fixed): (&Pool, &[Fixed]),
        timeouts: Timeouts,
        filtering: Filtering,
        inbound_refresh: bool,
        mappings_max: u32,
    ) -> Result<Flows<K>, ConfigError> {
        let mappings = Mappings::new(builder, pool, fixed)?;
        let filter = Filter::new(builder, filtering, mappings_max)?;
        Ok(Flows { mappings, filter, timeouts, inbound_refresh, refresh_ns: pool.refresh_ns })
    }

    /// The mapping of an inside endpoint that sends by `home`, made if there is none.
    pub(crate) fn outward(
        &self,
        cx: &mut Cx<'_>,
        source: Inside,
        home: Port,
        flags: u8,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        if flags & tcp_flags::RST != 0 {
            // It answers something, or ends it: it begins no mapping and prolongs none (RFC 7857 section 7.1).
            return Ok(self.mappings.holding(cx, source)?.ok_or(NO_MAPPING));
        }
        let lives_ns = self.outward_ns(source.protocol, Phase::after(0, flags));
        let claim = self.mappings.expect(source);
        let vacancy = match self.mappings.outward(cx, source, home, lives_ns)? {
            Ok(mapping) => return Ok(Ok(mapping)),
            Err(vacancy) => vacancy,
        };
        // The end of a connection that nobody knows begins none.
        if flags & tcp_flags::FIN != 0 {
            return Ok(Err(NO_MAPPING));
        }
        self.mappings.create(cx, (claim, vacancy), home, lives_ns)
    }

    /// The mapping to which a packet for an external endpoint goes. What comes from inside `is_free` from filters.
    pub(crate) fn inward(
        &self,
        cx: &mut Cx<'_>,
        (source, destination): (Endpoint, Endpoint),
        flags: u8,
        is_free: bool,
    ) -> Result<Result<Mapping, Reason>, Conflict> {
        let Some(mapping) = self.mappings.inward(cx, destination)? else { return Ok(Err(NO_MAPPING)) };
        // Identifiers of queries are no ports: replies are not filtered. Neither is what is meant to be reached by everybody.
        let is_free = is_free || source.protocol == protocol::ICMP || mapping.is_static();
        if !is_free && !self.filter.admits(cx, mapping.inside, source, self.hold(source.protocol))? {
            return Ok(Err(FILTERED));
        }
        if let Use::Refresh(lives_ns) = self.use_of(source.protocol, INWARD, Phase::after(0, flags)) {
            self.mappings.renew(cx, mapping.handle, Use::Refresh(lives_ns))?;
        }
        Ok(Ok(mapping))
    }

    /// For how long inbound packets hold whom they come from: for as long as they do the mapping.
    pub(crate) fn hold(&self, number: u8) -> Hold {
        match self.use_of(number, INWARD, Phase::Established) {
            Use::Refresh(lives_ns) => Hold { lives_ns, spare_ns: self.refresh_ns },
            _ => Hold::default(),
        }
    }

    /// When a new flow over a mapping has to look at it first.
    pub(crate) fn look_first_ns(&self, now: u64, mapping: &Mapping, number: u8, way: u8, phase: Phase) -> u64 {
        let lives_ns = match self.use_of(number, way, phase) {
            Use::Refresh(lives_ns) | Use::Reset(lives_ns) => lives_ns,
            Use::Look => 0,
        };
        mapping.ends_ns.saturating_sub(lives_ns).min(now + self.refresh_ns)
    }

    /// A known flow looks at its mapping: when it has to do so again; none if it must not go on as it is.
    pub(crate) fn look(
        &self,
        cx: &mut Cx<'_>,
        handle: Handle,
        number: u8,
        way: u8,
        phase: u8,
    ) -> Result<Option<u64>, Conflict> {
        if way != OUTWARD && self.filter.is_strict() {
            // Whether it is still let in is asked anew.
            return Ok(None);
        }
        self.mappings.renew(cx, handle, self.use_of(number, way, Phase::from_bits(phase)))
    }

    /// Caches a translation by `register`, of a flow from `peer.0` to `peer.1` if it goes out; only a strict filter asks for them. Without room for it the packet goes
    /// its way all the same and so will the next, unless filtering needs to know when the flow ends.
    pub(crate) fn keep(
        &self,
        cx: &mut Cx<'_>,
        peer: impl FnOnce() -> Option<(Inside, Endpoint)>,
        (number, handle): (u8, Handle),
        register: impl FnOnce(&mut Cx<'_>) -> bool,
    ) -> Result<Result<(), Reason>, Conflict> {
        let peer = if self.filter.is_strict() { peer() } else { None };
        if let Some((inside, remote)) = peer
            && !self.filter.enter(cx, inside, remote, self.hold(number))?
        {
            return Ok(Err(MAPPING_TABLE_FULL));
        }
        if register(cx) {
            self.mappings.attach(cx, number, handle)?;
        } else if let Some((inside, remote)) = peer {
            self.filter.leave(cx, inside, remote)?;
            return Ok(Err(Reason::SET_TABLE_FULL));
        } else {
            self.mappings.use_without_set(cx, number, handle)?;
        }
        Ok(Ok(()))
    }

    /// A packet goes over mappings at its ends, which no set remembers: a hairpin.
    pub(crate) fn use_without_set(&self, cx: &mut Cx<'_>, mappings: &[&Mapping]) -> Result<(), Conflict> {
        for mapping in mappings {
            self.mappings.use_without_set(cx, mapping.inside.protocol, mapping.handle)?;
        }
        Ok(())
    }

    /// A flow that was kept is gone; `peer` is as [`keep`](Self::keep) got it. Its mapping may be gone as well.
    pub(crate) fn forget(
        &self,
        cx: &mut Cx<'_>,
        peer: impl FnOnce() -> Option<(Inside, Endpoint)>,
        (number, handle): (u8, Option<Handle>),
    ) -> Result<(), Conflict> {
        if self.filter.is_strict()
            && let Some((inside, remote)) = peer()
        {
            self.filter.leave(cx, inside, remote)?;
        }
        handle.map_or(Ok(()), |handle| self.mappings.detach(cx, number, handle))
    }

    /// A flow goes on over another mapping.
    pub(crate) fn exchange(
        &self,
        cx: &mut Cx<'_>,
        number: u8,
        (before, now): (Handle, Handle),
    ) -> Result<(), Conflict> {
        if before != now {
            self.mappings.detach(cx, number, before)?;
            self.mappings.attach(cx, number, now)?;
        }
        Ok(())
    }

    /// For each kind of session how much longer than now its mapping must live, in nanoseconds, so that a packet need not
    /// do more than read it.
    pub(crate) fn needs(&self) -> Needs {
        Needs::new(|number, way, phase| {
            match self.use_of(number, way, phase) {
                // The second packet is noted.
                _ if number != protocol::TCP && phase == Phase::Opening => u64::MAX,
                // Whether it is still let in is asked each time.
                _ if way == INWARD && self.filter.is_strict() => u64::MAX,
                Use::Refresh(lives_ns) => lives_ns,
                Use::Look => 0,
                Use::Reset(_) => u64::MAX,
            }
        })
    }

    /// What a packet of a flow does to its mapping's life. Of TCP only the owner's packets prolong it: what comes in and matters is answered, and
    /// anybody may send what does not.
    pub(crate) fn use_of(&self, number: u8, way: u8, phase: Phase) -> Use {
        match (number, phase) {
            (protocol::TCP, Phase::Reset) => Use::Reset(self.timeouts.after(number, phase)),
            _ if way == OUTWARD => Use::Refresh(self.outward_ns(number, phase)),
            _ if number != protocol::TCP && self.inbound_refresh => Use::Refresh(self.timeouts.after(number, phase)),
            _ => Use::Look,
        }
    }

    /// For how long an owner's packet keeps its mapping. Behind its answer to a SYN the other end's acknowledgement may be the last packet for long; if
    /// there is none, the mapping goes with its sets.
    fn outward_ns(&self, number: u8, phase: Phase) -> u64 {
        match (number, phase) {
            (protocol::TCP, Phase::Opening) => self.timeouts.after(number, Phase::Established) + ANSWER_NS,
            (protocol::TCP, _) => self.timeouts.after(number, phase) + ANSWER_NS,
            _ => self.timeouts.after(number, phase),
        }
    }
}

impl<K: Kept> Part for Flows<K> {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.mappings.objects(into);
        self.filter.objects(into);
    }
}
