//! The trait that every network function implements: its declaration, the seven handlers of NFOS, and what is optional.
//!
//! [`NetworkFunction`] lists its items in the order in which an author needs them:
//!
//! 1. **Declaration**: the packet set, its state and timeout, ticks, and what the framework has to know of the
//!    function.
//! 2. **Handlers**: `start`, `first`, `packet`, `orphan`, `expired`, `tick`, `stop`; `back` and `holds` for functions
//!    that declare a need for them.
//! 3. **Configuration change**: `inherits`.
//! 4. **Fast path and prefetching**: the same results with fewer cache misses and less bookkeeping.
//! 5. **Operation**: what operators see, and link changes.
//!
//! Only `Set` and `NAME` must be given; everything else has a default. Some constants announce a method, as `STEADY`
//! announces `steady`: set the constant wherever the method is implemented, because the method is not called otherwise.

use std::time::Duration;

use braid_packet::key::{FieldId, SetDef, SetKey};
use braid_state::{Alone, Conflict, Plain, Share};

use crate::{Cx, Declare, EntryRange, Fate, Findings, NewSet, Packet, Port, Reason, TableEntry, Verdict};

/// Result of a packet handler: the verdict about the packet, or the conflict that an operation of a state object
/// returned. Pass conflicts on with `?`: the framework undoes what the handler did to this packet and runs it again.
/// A handler that swallows a conflict instead, or panics over it, is rolled back and run again all the same.
pub type Handled = Result<Verdict, Conflict>;

/// A metadata field that a function reads or writes: a few bytes that travel with each packet from function to
/// function, outside of its frame ([`NetworkFunction::fields`], `packet/fields`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldUse {
    /// Name of the field; functions that use the same name share the field.
    pub name: &'static str,
    /// Size in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether this function reads the field.
    pub reads: bool,
    /// Whether this function writes the field.
    pub writes: bool,
}

/// A way to trade exactness for fewer conflicts between workers: a configuration key, and values that relax the
/// function increasingly. `braid profile` recommends it, `braid tune` tries its values
/// ([`NetworkFunction::relaxations`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relaxation {
    /// Configuration key.
    pub key: &'static str,
    /// Name of the state object affected, as the function gave it to the builder.
    pub object: &'static str,
    /// Operations of the object that become rarer, by the names in reports of conflicts.
    pub against: &'static [&'static str],
    /// Candidate values from the mildest to the most relaxed one allowed; empty if the key is not numeric.
    pub candidates: &'static [i64],
    /// What users of the function will notice, in a sentence.
    pub meaning: &'static str,
}

/// Header fields that a function changes, for packets from either side ([`NetworkFunction::rewrites`]).
///
/// Functions after it see the packet under different keys. They therefore do not share records with the functions
/// before it, and steering does not hash the changed fields on their behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    /// Fields changed in packets that come from inside.
    pub from_inside: &'static [FieldId],
    /// Fields changed in packets that come from outside.
    pub from_outside: &'static [FieldId],
}

impl Rewrites {
    /// Returns a declaration of the same fields for packets from both sides.
    pub const fn of(fields: &'static [FieldId]) -> Rewrites {
        Rewrites { from_inside: fields, from_outside: fields }
    }

    /// Returns whether IP addresses are changed: in packets from inside, and in packets from outside.
    pub fn addresses(&self) -> [bool; 2] {
        let any = |fields: &[FieldId]| fields.iter().any(|field| matches!(field, FieldId::IpSrc | FieldId::IpDst));
        [any(self.from_inside), any(self.from_outside)]
    }
}

/// Which hairpins a function makes: packets from one inside host to another that it sends back inside as if they came
/// from outside, because they were addressed to an external address ([`NetworkFunction::hairpins`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpins {
    /// None, or none that meet the functions before this one.
    #[default]
    None,
    /// Hairpins whose destination on arrival is their source on return, as with a translator that has one external
    /// address. If the plan steers by sides, they are on the same worker as packets from outside with the same
    /// addresses.
    OneAddress,
    /// Hairpins with any addresses.
    Any,
}

/// What a call of [`NetworkFunction::tick`] is for: a period that has elapsed, and the share of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Index of the period in the list returned by [`NetworkFunction::ticks`].
    pub period: usize,
    /// Share of the work to do in this call: all of it, unless the work is [divided](NetworkFunction::divides).
    pub share: Share,
}

/// What [`NetworkFunction::steady`] gets instead of a context: the arrival of the packet, and permission for one read
/// of shared state.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Time of the packet in nanoseconds ([`Cx::now`]).
    pub now_ns: u64,
    /// Whether the packet runs against the direction of the key ([`Cx::reversed`]).
    pub reversed: bool,
    /// Permission to read one element of one state object ([`Map::entry_alone`](braid_state::Map::entry_alone),
    /// [`Vector::read_alone`](braid_state::Vector::read_alone)). `None` if a transaction has begun, directly after a
    /// conflict, or if the run is recorded, replayed or scheduled.
    pub alone: Option<Alone<'a>>,
    /// Value of [`NetworkFunction::era`]. `None` if the function has no era, if the era could not be read alone, or if
    /// it changed while it was read.
    pub era: Option<u64>,
}

/// A network function, written as if one core ran it.
///
/// Handlers take `&self`: the fields of the function are configuration and handles of state objects. A handler may run
/// again after a conflict, so it must keep no other state, and act only through the context and the packet. What an
/// attempt did that ended in a conflict never happened: packet, set state, state objects and packets sent are as
/// before.
///
/// Each packet goes to one of three handlers:
///
/// ```text
///  belongs to no set ───────────────────────▶ orphan
///  its set is not live ─────────────────────▶ first ── NewSet::register ──▶ the set is live
///  its set is live ──▶ steady ── None ──────▶ packet
///  no packet for timeout_ns ────────────────▶ expired ────────────────────▶ the set is not live
/// ```
pub trait NetworkFunction: Declare + Sized + Send + Sync + 'static {
    // Declaration

    /// State kept for each packet set: plain data of fixed size. It is stored next to the set's key and to the states
    /// of the chain's other functions with the same packet set. Use `()` if there is nothing to keep.
    type Set: Plain;

    /// Name of the function in plans and reports, in lower case with `_`: `load_balancer`.
    const NAME: &'static str;

    /// Returns which packets belong together: the header fields that their set has in common. Packets of one set are
    /// handled in order on one core. A packet that lacks a field belongs to no set and is an [orphan](Self::orphan).
    /// `None`: every packet is an orphan.
    ///
    /// Called when a plan is checked and when a chain is built, never per packet.
    fn packet_set(&self) -> Option<SetDef> {
        None
    }

    /// Whether the set state is meaningful for any packet set, as a counter or a token bucket is. If `true`, a plan may
    /// give the function any other packet set. If `false`, the plan's packet set must be at least as fine as the
    /// function's own: all packets of one of its sets must belong to one set of the function's own.
    const ANY_SET: bool = false;

    /// Configuration keys that define the function's packet sets. They are refused if the plan gives the function a
    /// packet set of other fields, since they would then have no effect.
    const SET_KEYS: &'static [&'static str] = &[];

    /// Returns how long a set in this state lives without a packet, in nanoseconds; `u64::MAX` means for ever.
    ///
    /// Called whenever it is to be compared with the time since the set's last packet. Must depend on nothing but
    /// configuration and state. It is no handler: if it panics, the run ends.
    fn timeout_ns(&self, _set: &Self::Set) -> u64 {
        u64::MAX
    }

    /// Returns a lower bound of all values of [`timeout_ns`](Self::timeout_ns), in nanoseconds. Sets whose packets
    /// arrive closer together than this are not checked one by one. If the bound is below eight seconds, sets with a
    /// timeout that short end within about 16 ms of it; all others end when a scan of the table reaches them.
    fn shortest_timeout_ns(&self) -> u64 {
        0
    }

    /// Returns whether a set in this state is assured: answered or confirmed, as conntrack's ASSURED connections are.
    ///
    /// Called when a full table has to evict sets (`full = "evict_oldest"`), for sets within their timeout. Sets that
    /// no function calls assured are evicted first, so that a flood of unanswered packets does not displace established
    /// but idle sets. A function that never returns `true` leaves the decision to the other functions that share its
    /// record; if none of them does, idle time alone decides. It is no handler: if it panics, the run ends.
    #[inline(always)]
    fn is_assured(&self, _set: &Self::Set) -> bool {
        false
    }

    /// Returns the periods after which [`tick`](Self::tick) is called, each period independently. A tick is told the
    /// index of its period in this list. Empty: no ticks.
    fn ticks(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// Returns whether the work of period number `_period` can be divided among workers, as the sweep of a table can.
    ///
    /// If so, each round is one [`tick`](Self::tick) per share, called concurrently and in any order. Otherwise one
    /// call does all the work, and rounds run in order. The number of shares is arbitrary. At the end of a capture
    /// there is one more round, with as many shares as the function's largest map has rows.
    fn divides(&self, _period: usize) -> bool {
        false
    }

    /// Returns the metadata fields that the function reads or writes. Called when a chain is built, which computes the
    /// layout of the metadata; a field that is read but written by nobody before is an error there.
    fn fields(&self) -> Vec<FieldUse> {
        Vec::new()
    }

    /// Returns the fields of packet-set keys that the function changes in packets.
    ///
    /// If a changed field is missing here, functions after it continue with the old value, or their sets are split
    /// among workers. `braid certify` compares each packet before and after the function and refuses it in that case.
    fn rewrites(&self) -> Rewrites {
        Rewrites::default()
    }

    /// Reasons for [`Verdict::Drop`] under which a packet that ends here is not lost: the function has answered it,
    /// learnt from it, or sends it on later or in another way. Reports count these packets among those dropped, and say
    /// how many they are. Of one that waits in vain say so with [`Cx::lose`].
    const CONSUMES: &'static [Reason] = &[];

    /// Whether the function changes packets such that an answer to one has to be changed back. Set it together with
    /// [`back`](Self::back).
    const TURNS_BACK: bool = false;

    /// Returns which packets the function sends back inside through the functions before it ([`Cx::emit_hairpin`]).
    ///
    /// The planner asks. Where hairpins may come to another worker than packets from outside with the same addresses
    /// would, the packet sets of the functions before this one are shared by the workers.
    fn hairpins(&self) -> Hairpins {
        Hairpins::None
    }

    /// Whether the function treats later fragments of a datagram as it did the first one, which alone carries ports.
    ///
    /// Steering then sends all fragments of a UDP datagram to one worker where the chain's packet sets allow it, so
    /// that later ones need not wait for the first one on another worker. Fragments of other protocols may still arrive
    /// on several workers, in any order.
    const FOLLOWS_FRAGMENTS: bool = false;

    /// Whether the function delays packets and sends them later with [`Cx::emit_held`], in a tick or when another
    /// packet arrives. That may happen on a different worker, so the sets of the functions after it are shared by the
    /// workers. Set it together with [`holds`](Self::holds).
    const HOLDS: bool = false;

    /// Whether the handlers call [`Cx::leaves_by`] to learn a packet's output port. A function that holds packets does,
    /// unless it chooses the port itself.
    const ASKS_PORT: bool = Self::HOLDS;

    /// Returns what may be relaxed to reduce conflicts between workers, and how far. Called by `braid profile` and
    /// `braid tune`, never while packets are handled.
    fn relaxations(&self) -> Vec<Relaxation> {
        Vec::new()
    }

    // Handlers

    /// Fills the state objects. Called once, before the first packet; for a function that is added to a running chain,
    /// before its first packet. Not called if the state of an earlier run is restored.
    fn start(&self, _cx: &mut Cx<'_>) -> Result<(), Conflict> {
        Ok(())
    }

    /// Handles a packet whose set is not live: the set has no state yet, or its last packet is longer ago than its
    /// timeout. In the latter case [`expired`](Self::expired) has just been called for it.
    ///
    /// `_set` makes the set live with [`NewSet::register`]. If the handler does not call it, the set's next packet
    /// comes here again. Returns the verdict, or the conflict of a state operation.
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _set: &mut NewSet<'_, Self::Set>) -> Handled {
        self.orphan(cx, packet)
    }

    /// Handles a packet of a live set. `_set` is the state of the set, which the handler may change. Returns the
    /// verdict, or the conflict of a state operation.
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _set: &mut Self::Set) -> Handled {
        self.orphan(cx, packet)
    }

    /// Handles a packet that belongs to no set, because it lacks a field of the set or because the function has none.
    /// Returns the verdict, or the conflict of a state operation. Orphans may come to any worker, in any order.
    fn orphan(&self, _cx: &mut Cx<'_>, _packet: &mut Packet<'_>) -> Handled {
        Ok(Verdict::Drop(Reason::ORPHAN))
    }

    /// Cleans up after a set that has had no packet for its timeout, was evicted, or was ended by an operator; frees
    /// what belongs to it in state objects. `_key` and `_set` are the key and the last state of the set. The set ends
    /// for this function when this returns.
    ///
    /// Called between two batches, or directly before [`first`](Self::first) if a packet comes after the timeout.
    fn expired(&self, _cx: &mut Cx<'_>, _key: &SetKey, _set: &Self::Set) -> Result<(), Conflict> {
        Ok(())
    }

    /// Does periodic work: called when a period of [`ticks`](Self::ticks) has elapsed for every worker. [`Cx::now`] is
    /// the time that all have reached. `_tick` says which period it is, and which share of the work to do.
    ///
    /// Calls happen between two batches. Several missed rounds become one call, and all packets of a batch are handled
    /// before it: in a quiet capture, 128 packets may span minutes. Code that must be exact to the packet has to
    /// compare [`Cx::now`] with a time in its state instead.
    fn tick(&self, _cx: &mut Cx<'_>, _tick: Tick) -> Result<(), Conflict> {
        Ok(())
    }

    /// Does the last work, such as closing an interval. Called once, after the last packet.
    fn stop(&self, _cx: &mut Cx<'_>) -> Result<(), Conflict> {
        Ok(())
    }

    /// Handles an answer to a packet that this function has passed on; a later function made the answer
    /// ([`Cx::emit_back`]). Called if [`TURNS_BACK`](Self::TURNS_BACK) is set.
    ///
    /// The answer arrives by the port by which the original packet would have left. The handler undoes on it what the
    /// function did to that packet, and returns the port by which the answer continues. [`Verdict::Onward`] means the
    /// port by which the original packet arrived. An answer belongs to no set, whichever function handles it.
    fn back(&self, cx: &mut Cx<'_>, _packet: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    /// Returns when the next packet is due that the function holds for a [`tick`](Self::tick) to send, in nanoseconds
    /// on the clock of [`Cx::now`]; `None` if it holds none. Called at the end of a run, and between the packets of a
    /// capture. This must not change any state.
    ///
    /// At the end of a run, time advances from one such moment to the next until no packet is held, so ticks must
    /// release them. The time may be too early, even in the past, which costs one more check; it must never be too
    /// late.
    fn holds(&self, _cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        Ok(None)
    }

    /// Returns how many packets wait in the function, by the reason for which they are lost if nothing happens any
    /// more. Called after the end of a run whose state is not kept: those that are dropped for a reason that the
    /// function [`CONSUMES`](Self::CONSUMES) and are still here will never be sent.
    fn held_in_vain(&self) -> Vec<(Reason, u64)> {
        Vec::new()
    }

    // Configuration change

    /// Returns whether this instance, built because the configuration changed during a run, can take over the packet
    /// sets and state objects of `_older`. Only the author knows what the state means and can decide this.
    ///
    /// An error names the change that the state does not survive, as a part of a sentence for the operator; the running
    /// function then stays unchanged. A state object whose size changes is filled from the old object; entries in use
    /// keep their numbers.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Err("the function does not say which changes its state survives".to_owned())
    }

    // Fast path and prefetching

    /// Whether [`steady`](Self::steady) is implemented.
    const STEADY: bool = false;

    /// Handles a packet of a live set for which the function needs only the packet, the set and at most one read of
    /// shared state. Called before [`packet`](Self::packet), if [`STEADY`](Self::STEADY) is set.
    ///
    /// There is no context, so no conflict is possible and nothing has to be saved for a rollback; saving is a third of
    /// the cost of such a packet. `None`: the packet needs more. The handler must then have left packet and set
    /// unchanged, and both go to [`packet`](Self::packet).
    #[inline(always)]
    fn steady(&self, _arrival: Arrival<'_>, _packet: &mut Packet<'_>, _set: &mut Self::Set) -> Option<Verdict> {
        None
    }

    /// Whether [`era`](Self::era) is implemented. Packets for which the era is read get no [`alone`](Arrival::alone):
    /// the era already ties them to one instant, and they need nothing that [`prefetch`](Self::prefetch) fetches.
    const ERAS: bool = false;

    /// Reads a number in shared state that changes whenever decisions remembered in sets may have become invalid (an
    /// epoch). [`steady`](Self::steady) compares it with the era in which its set was decided. `None` if it cannot be
    /// read now. Called if [`ERAS`](Self::ERAS) is set.
    ///
    /// It is read once for a run of consecutive steady packets. All of them had arrived by then and none needs other
    /// shared state, so the result is as if all were handled at that instant.
    #[inline(always)]
    fn era(&self, _alone: Alone<'_>) -> Option<u64> {
        None
    }

    /// Returns whether [`prefetch`](Self::prefetch) is worth calling for the packets of a batch. Called once per batch.
    #[inline(always)]
    fn prefetches(&self) -> bool {
        false
    }

    /// Prefetches shared state, or other distant memory, that [`packet`](Self::packet) will access for a set in this
    /// state at `_now_ns`, in nanoseconds. Called for all packets of a batch in advance, so that their cache misses
    /// overlap, if [`prefetches`](Self::prefetches) returns `true`.
    #[inline(always)]
    fn prefetch(&self, _set: &Self::Set, _now_ns: u64) {}

    /// Whether [`prefetch_first`](Self::prefetch_first) is implemented.
    const PREFETCHES_FIRST: bool = false;

    /// Prefetches what [`first`](Self::first) will access for a packet whose set is not live, at `_now_ns`, in
    /// nanoseconds. Called a few packets ahead, if [`PREFETCHES_FIRST`](Self::PREFETCHES_FIRST) is set.
    #[inline(always)]
    fn prefetch_first(&self, _packet: &Packet<'_>, _now_ns: u64) {}

    /// Whether [`prefetch_expired`](Self::prefetch_expired) is implemented.
    const PREFETCHES_EXPIRED: bool = false;

    /// Prefetches shared state that [`expired`](Self::expired) will access for this set. Called a few sets ahead, if
    /// [`PREFETCHES_EXPIRED`](Self::PREFETCHES_EXPIRED) is set.
    #[inline(always)]
    fn prefetch_expired(&self, _key: &SetKey, _set: &Self::Set) {}

    // Operation

    /// Adds the findings of the state objects to a report. Called after [`stop`](Self::stop), and during a live run
    /// whenever somebody asks for findings or metrics. This must not change any state.
    fn report(&self, _cx: &mut Cx<'_>, _into: &mut Findings) -> Result<(), Conflict> {
        Ok(())
    }

    /// Adds the findings of a set to the report at the end of a run: called after [`stop`](Self::stop), for each set
    /// that is still live then. It is no handler: if it panics, the run ends.
    fn report_set(&self, _key: &SetKey, _set: &Self::Set, _into: &mut Findings) {}

    /// Describes the state of a set in a short line, for an operator who lists packet sets; leave out how long it
    /// lives, which is shown beside it. `None`: its bytes are shown. Called between two batches, only for listed sets.
    /// This must not change any state.
    fn describe(&self, _cx: &mut Cx<'_>, _key: &SetKey, _set: &Self::Set) -> Result<Option<String>, Conflict> {
        Ok(None)
    }

    /// Forgets what was learnt at a port whose link has gone down, as far as it is in this part of the table. Called on
    /// one worker of a live run, between two batches.
    ///
    /// Returns the number of the entry at which to continue, `None` at the end, as
    /// [`list_entries`](Self::list_entries) does.
    fn link_down(&self, _cx: &mut Cx<'_>, _port: Port, _range: EntryRange) -> Result<Option<u32>, Conflict> {
        Ok(None)
    }

    /// Announces on a port's link, with [`Cx::emit`], what its neighbours should know now that the link is up. Called
    /// at the start of a live run and whenever the link comes up again, on one worker, between two batches.
    fn link_up(&self, _cx: &mut Cx<'_>, _port: Port) -> Result<(), Conflict> {
        Ok(())
    }

    /// Whether [`list_entries`](Self::list_entries) is implemented.
    const LISTS_ENTRIES: bool = false;

    /// Lists entries of the function's tables that an operator may look for, as a NAT's mappings and a bridge's
    /// stations. Called between two batches, while somebody lists or ends entries, if
    /// [`LISTS_ENTRIES`](Self::LISTS_ENTRIES) is set.
    ///
    /// Visits one part of the table. Returns the number of the entry at which to continue, `None` at the end, as
    /// [`Map::for_each`](braid_state::Map::for_each) does ([`in_tables`](crate::in_tables) numbers the entries of
    /// several tables).
    ///
    /// `_tell` takes an entry and returns its [`Fate`]. An entry whose fate is to end must end as it would at the end
    /// of its lifetime: counters and whatever packet sets remember of it must agree. Nothing else may change.
    fn list_entries(
        &self,
        _cx: &mut Cx<'_>,
        _range: EntryRange,
        _tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        Ok(None)
    }
}
