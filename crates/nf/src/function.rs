//! The trait that every network function implements: the seven handlers of NFOS, and one for answers sent back.

use std::time::Duration;

use braid_packet::key::{FieldId, SetDef, SetKey};
use braid_state::{Alone, Conflict, Plain, Share};

use crate::{Cx, Declare, Fate, Findings, NewSet, Packet, Port, Reason, TableEntry, Verdict};

/// Result of a handler: a verdict, or the conflict returned by a state operation. Propagate conflicts with `?`.
pub type Handled = Result<Verdict, Conflict>;

/// A metadata field that a function declares (see `packet/fields`).
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

/// A way to relax a function: a configuration key and values that relax it increasingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relaxation {
    /// Configuration key.
    pub key: &'static str,
    /// Name, within the function, of the state object affected.
    pub object: &'static str,
    /// Operations of the object that become rarer.
    pub against: &'static [&'static str],
    /// Candidate values from the mildest to the most relaxed one allowed; empty if the key is not numeric.
    pub candidates: &'static [i64],
    /// What users of the function will notice.
    pub meaning: &'static str,
}

/// Header fields that a function changes. Functions after it see the packet under different keys: they do not share records
/// with the functions before it, and steering does not hash the changed fields on their behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    /// Fields changed in packets that come from inside.
    pub from_inside: &'static [FieldId],
    /// Fields changed in packets that come from outside.
    pub from_outside: &'static [FieldId],
}

impl Rewrites {
    /// Declares the same fields for both directions.
    pub const fn of(fields: &'static [FieldId]) -> Rewrites {
        Rewrites { from_inside: fields, from_outside: fields }
    }

    /// Whether IP addresses are changed in packets that come from inside, and in those from outside.
    pub fn addresses(&self) -> [bool; 2] {
        let any = |fields: &[FieldId]| fields.iter().any(|field| matches!(field, FieldId::IpSrc | FieldId::IpDst));
        [any(self.from_inside), any(self.from_outside)]
    }
}

/// Hairpins: packets that a function sends back to the side from which they came, as packets from the other side
/// ([`NetworkFunction::hairpins`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hairpins {
    /// There are none, or they do not meet the functions before this one.
    #[default]
    None,
    /// The destination with which they came is the source with which they return: a translator's only external address.
    /// Steered by sides, they are on the worker of packets from outside that look like them.
    OneAddress,
    /// Any.
    Any,
}

/// A period that has elapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Index of the period in the list returned by [`NetworkFunction::ticks`].
    pub period: usize,
    /// Share of the work to do in this call: all of it, unless the work is [divided](NetworkFunction::divides).
    pub share: Share,
}

/// Arrival of a packet, and the shared state that may be read for it without a context.
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
    /// Value of [`NetworkFunction::era`]. `None` if the function has no era, if the era could not be read alone, or if it
    /// changed while it was read.
    pub era: Option<u64>,
}

/// A network function, written as if one core ran it.
///
/// Handlers take `&self`: the fields of the function are configuration and handles of state objects. A handler may run again
/// after a conflict, so it must keep no other state, and act only through the context and the packet.
pub trait NetworkFunction: Declare + Sized + Send + Sync + 'static {
    /// State kept per packet set: plain data, stored next to the key and to the state of the chain's other functions with the
    /// same set. Use `()` if there is nothing to keep.
    type Set: Plain;

    /// Name of the function in plans and reports, in lower case with `_`.
    const NAME: &'static str;

    /// Defines which packets belong together. Packets of one set are handled in order on one core; a packet in no set is an
    /// orphan. If this returns `None`, every packet is an orphan.
    fn packet_set(&self) -> Option<SetDef> {
        None
    }

    /// Whether set state is meaningful for any packet set, as a counter or a token bucket is. If `true`, a plan may give the
    /// function any other packet set. If `false`, the plan's packet set must be at least as fine as the function's own: all
    /// packets of one of its sets must belong to one set of the function's own.
    const ANY_SET: bool = false;

    /// Configuration keys that define the function's packet sets. They are rejected if the plan gives the function a packet
    /// set of other fields, since they would then have no effect.
    const SET_KEYS: &'static [&'static str] = &[];

    /// Returns how long a set lives without a packet, in nanoseconds. The timeout may depend on the set's state. `u64::MAX`
    /// means for ever.
    fn timeout_ns(&self, _set: &Self::Set) -> u64 {
        u64::MAX
    }

    /// Returns whether a set is assured: answered or confirmed, in the sense of conntrack's ASSURED connections. When a full
    /// table has to evict sets (`full = "evict_oldest"`), sets that no function calls assured are evicted first, so that a
    /// flood of unanswered packets does not displace established but idle sets. It is not called for sets past their timeout.
    /// A function that never returns `true` leaves the decision to the other functions that share its record; if none of them
    /// does, idle time alone decides.
    #[inline(always)]
    fn is_assured(&self, _set: &Self::Set) -> bool {
        false
    }

    /// Returns a lower bound of [`timeout_ns`](Self::timeout_ns), in nanoseconds. Sets whose packets arrive closer together
    /// need not be checked one by one. If the bound is below eight seconds, sets with a timeout that short end within about
    /// 16 ms of it; all others wait for a scan of the table.
    fn shortest_timeout_ns(&self) -> u64 {
        0
    }

    /// Returns the periods after which [`tick`](Self::tick) is called, each period independently.
    fn ticks(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// Returns whether the work of a period can be divided, such as the sweep of a table. If so, each round is one
    /// [`tick`](Self::tick) per share, called concurrently and in any order. Otherwise one call does all the work, and rounds
    /// run in order. The number of shares is arbitrary; at the end of a capture there is one more round, with as many shares
    /// as the function's largest map has rows.
    fn divides(&self, _period: usize) -> bool {
        false
    }

    /// Returns whether this instance, built because the configuration changed during a run, can take over the packet sets and
    /// state objects of `older`. Only the author knows what the state means and can decide this. An error names the change
    /// that the state does not survive; the running function then stays unchanged. A state object whose size changes is
    /// filled from the old object; entries in use keep their numbers.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Err("the function does not say which changes its state survives".to_owned())
    }

    /// Returns the metadata fields that the function reads or writes.
    fn fields(&self) -> Vec<FieldUse> {
        Vec::new()
    }

    /// Returns the fields of packet-set keys that the function changes. If a changed field is missing here, functions after
    /// it continue with the old value, or their sets are split among workers. `braid certify` compares each packet before and
    /// after the function and rejects it in that case.
    fn rewrites(&self) -> Rewrites {
        Rewrites::default()
    }

    /// Returns what may be relaxed to reduce conflicts between workers, and how far.
    fn relaxations(&self) -> Vec<Relaxation> {
        Vec::new()
    }

    /// Returns whether [`prefetch`](Self::prefetch) is worth calling for the packets of a batch; called once per batch.
    #[inline(always)]
    fn prefetches(&self) -> bool {
        false
    }

    /// Prefetches shared state, or other distant memory, that [`packet`](Self::packet) will access at `now_ns`. It is called
    /// for all packets of a batch in advance, so that their cache misses overlap. Implement [`prefetches`](Self::prefetches)
    /// with it.
    #[inline(always)]
    fn prefetch(&self, _set: &Self::Set, _now_ns: u64) {}

    /// Whether [`prefetch_first`](Self::prefetch_first) is implemented.
    const PREFETCHES_FIRST: bool = false;

    /// Prefetches what [`first`](Self::first) will access for a packet whose set is not live; called a few packets ahead. Set
    /// [`PREFETCHES_FIRST`](Self::PREFETCHES_FIRST) with it.
    #[inline(always)]
    fn prefetch_first(&self, _packet: &Packet<'_>, _now_ns: u64) {}

    /// Whether [`prefetch_expired`](Self::prefetch_expired) is implemented.
    const PREFETCHES_EXPIRED: bool = false;

    /// Prefetches shared state that [`expired`](Self::expired) will access a few sets later. Set
    /// [`PREFETCHES_EXPIRED`](Self::PREFETCHES_EXPIRED) with it.
    #[inline(always)]
    fn prefetch_expired(&self, _key: &SetKey, _set: &Self::Set) {}

    /// Called before the first packet, to fill the state objects.
    fn start(&self, _cx: &mut Cx<'_>) -> Result<(), Conflict> {
        Ok(())
    }

    /// Handles a packet whose set is not live. The set becomes live if the handler calls [`NewSet::register`]; otherwise the
    /// set's next packet comes here again.
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _set: &mut NewSet<'_, Self::Set>) -> Handled {
        self.orphan(cx, packet)
    }

    /// Whether [`steady`](Self::steady) is implemented.
    const STEADY: bool = false;

    /// Handles a packet of a live set for which the function needs only the packet, the set and at most one read of shared
    /// state; called before [`packet`](Self::packet). There is no context, so no conflict is possible and nothing has to be
    /// saved for a rollback; saving is a third of the cost of such a packet. To return `None`, the handler must leave packet
    /// and set unchanged; both then go to [`packet`](Self::packet).
    #[inline(always)]
    fn steady(&self, _arrival: Arrival<'_>, _packet: &mut Packet<'_>, _set: &mut Self::Set) -> Option<Verdict> {
        None
    }

    /// Whether the function has an [`era`](Self::era). Packets for which the era is read get no `alone`: the era already ties
    /// them to one instant, and they need nothing that [`prefetch`](Self::prefetch) fetches.
    const ERAS: bool = false;

    /// Reads a number in shared state that changes whenever decisions remembered in sets may have become invalid.
    /// [`steady`](Self::steady) compares it with the era in which its set was decided. It is read once for a run of
    /// consecutive steady packets. All of them had arrived by then and none needs other shared state, so the result is as if
    /// all were handled at that instant.
    #[inline(always)]
    fn era(&self, _alone: Alone<'_>) -> Option<u64> {
        None
    }

    /// Handles a packet of a live set.
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _set: &mut Self::Set) -> Handled {
        self.orphan(cx, packet)
    }

    /// Handles a packet in no set.
    fn orphan(&self, _cx: &mut Cx<'_>, _packet: &mut Packet<'_>) -> Handled {
        Ok(Verdict::Drop(Reason::ORPHAN))
    }

    /// Reasons under which a packet that ends here is not lost: the function has answered it, learnt from it, or sends it on later or in another
    /// way. Reports count these packets among those dropped, and say how many they are.
    const CONSUMES: &'static [Reason] = &[];

    /// Whether the function changes packets such that an answer to one has to be changed back; implement [`back`](Self::back)
    /// with it.
    const TURNS_BACK: bool = false;

    /// Handles an answer to a packet that this function has passed on; a later function made the answer
    /// ([`Cx::emit_back`]). The answer arrives by the port by which the original packet would have left. The handler undoes
    /// on it what the function did to that packet and returns the port by which it continues; `Onward` means the port by
    /// which the original packet arrived. An answer belongs to no set, whichever function handles it.
    fn back(&self, cx: &mut Cx<'_>, _packet: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    /// Returns which packets the function sends back to the inside through the functions before it ([`Cx::emit_hairpin`]). The
    /// planner shares the packet sets of those functions among workers where hairpins may come to another worker than packets
    /// from outside with the same addresses would.
    fn hairpins(&self) -> Hairpins {
        Hairpins::None
    }

    /// Whether the function treats later fragments of a datagram as it did the first one, which alone carries ports. Steering then
    /// sends all fragments of a UDP datagram to one worker where the chain's packet sets allow it, so that later ones need not
    /// wait for the first one on another worker. Fragments of other protocols may still arrive on several workers, in any order.
    const FOLLOWS_FRAGMENTS: bool = false;

    /// Called when a set has had no packet for its timeout; the set ends for this function when this returns.
    fn expired(&self, _cx: &mut Cx<'_>, _key: &SetKey, _set: &Self::Set) -> Result<(), Conflict> {
        Ok(())
    }

    /// Called when a period has elapsed. Calls happen between two batches, so several missed rounds become one call, and all
    /// packets of a batch are handled before it: in a quiet capture, 128 packets may span minutes. Code that must be exact to
    /// the packet has to compare [`Cx::now`] with a time in its state instead.
    fn tick(&self, _cx: &mut Cx<'_>, _tick: Tick) -> Result<(), Conflict> {
        Ok(())
    }

    /// Whether the function delays packets and sends them later with [`Cx::emit_held`], in a tick or when another packet
    /// arrives. That may happen on a different worker, so the sets of the functions after it are shared by the workers.
    const HOLDS: bool = false;

    /// Whether the handlers call [`Cx::leaves_by`] to learn a packet's output port. A function that holds packets does,
    /// unless it chooses the port itself.
    const ASKS_PORT: bool = Self::HOLDS;

    /// Returns when the next packet is due that the function holds for a [`tick`](Self::tick) to send, in nanoseconds; `None`
    /// if it holds none. At the end of a run, time advances from one such moment to the next until no packet is held, so
    /// ticks must release them. The time may be too early, even in the past, which costs one more check; it must never be too
    /// late. This must not change any state.
    fn holds(&self, _cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        Ok(None)
    }

    /// Called after the last packet.
    fn stop(&self, _cx: &mut Cx<'_>) -> Result<(), Conflict> {
        Ok(())
    }

    /// Called after [`stop`](Self::stop): adds the findings of the state objects to the report of the run. This must not
    /// change any state.
    fn report(&self, _cx: &mut Cx<'_>, _into: &mut Findings) -> Result<(), Conflict> {
        Ok(())
    }

    /// Adds the findings of a set that is still live at the end to the report.
    fn report_set(&self, _key: &SetKey, _set: &Self::Set, _into: &mut Findings) {}

    /// Describes the state of a set in a short line, for an operator who lists packet sets; omit how long it lives. Returns
    /// `None` to have its bytes shown. Called between two batches, only for listed sets. This must not change any state.
    fn describe(&self, _cx: &mut Cx<'_>, _key: &SetKey, _set: &Self::Set) -> Result<Option<String>, Conflict> {
        Ok(None)
    }

    /// Forgets what was learnt at a port whose link has gone down, of so many (second) entries from a number (first) on; returns where to go on,
    /// as [`list_entries`](Self::list_entries) does. Called on one worker of a live run, between two batches.
    fn link_down(&self, _cx: &mut Cx<'_>, _port: Port, _span: (u32, u32)) -> Result<Option<u32>, Conflict> {
        Ok(None)
    }

    /// Says what the others on a port's link should know now that it is up: at the start of a live run, and whenever the link comes up again.
    /// Called on one worker, between two batches.
    fn link_up(&self, _cx: &mut Cx<'_>, _port: Port) -> Result<(), Conflict> {
        Ok(())
    }

    /// Whether [`list_entries`](Self::list_entries) has anything to list.
    const LISTS_ENTRIES: bool = false;

    /// Tells of those entries that an operator may look for, as a NAT's mappings and a bridge's stations, of so many (second) from a number (first)
    /// on; returns where to go on, none at the end, as [`Map::for_each`](braid_state::Map::for_each) does ([`in_tables`](crate::in_tables) for several tables). Called between two batches, while somebody lists or ends
    /// them. An entry whose [`Fate`] is to end must end as it would at the end of its lifetime: what it counts in, and what packet sets remember
    /// of it, must know. Changes nothing else. Set [`LISTS_ENTRIES`](Self::LISTS_ENTRIES) with it.
    fn list_entries(
        &self,
        _cx: &mut Cx<'_>,
        _span: (u32, u32),
        _tell: &mut dyn FnMut(TableEntry) -> Fate,
    ) -> Result<Option<u32>, Conflict> {
        Ok(None)
    }
}
