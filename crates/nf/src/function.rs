//! The one trait that a network function implements: NFOS's seven handlers, and one for answers that go back.

use std::time::Duration;

use braid_packet::key::{FieldId, SetDef, SetKey};
use braid_state::{Alone, Conflict, Plain, Share};

use crate::{Cx, Declare, Findings, NewSet, Packet, Reason, Verdict};

/// A handler's answer: a verdict, or the conflict that a state operation met. Pass conflicts on with `?`.
pub type Handled = Result<Verdict, Conflict>;

/// A metadata field that a function declares (packet/fields).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldUse {
    /// Its name; functions that name the same field share it.
    pub name: &'static str,
    /// Its size: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether this function reads it.
    pub reads: bool,
    /// Whether this function writes it.
    pub writes: bool,
}

/// What a function allows to be relaxed: a key of its configuration, and values that relax it more and more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relaxation {
    /// The key.
    pub key: &'static str,
    /// The state object that it concerns, by its name within the function.
    pub object: &'static str,
    /// Operations of the object that it makes rarer.
    pub against: &'static [&'static str],
    /// Values worth trying, from the mildest to the furthest that may be chosen; none if the key is no number.
    pub candidates: &'static [i64],
    /// What users of the function will notice.
    pub meaning: &'static str,
}

/// Header fields that a function changes. Functions after it meet the packet under other keys: they share no record with those
/// before it, and steering does not hash, for their sake, what is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrites {
    /// Of packets that come from inside.
    pub from_inside: &'static [FieldId],
    /// Of packets that come from outside.
    pub from_outside: &'static [FieldId],
}

impl Rewrites {
    /// The same fields whatever the side.
    pub const fn of(fields: &'static [FieldId]) -> Rewrites {
        Rewrites { from_inside: fields, from_outside: fields }
    }
}

/// A period has come round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// Which of those that [`NetworkFunction::ticks`] returned.
    pub period: usize,
    /// What is to be done of its work: all, unless it is [divided](NetworkFunction::divides).
    pub share: Share,
}

/// When and how a packet comes, and what may be read for it without a context.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// [`Cx::now`].
    pub now_ns: u64,
    /// [`Cx::reversed`].
    pub reversed: bool,
    /// One element of one state object may be read ([`Map::entry_alone`](braid_state::Map::entry_alone),
    /// [`Vector::read_alone`](braid_state::Vector::read_alone)); none where a transaction has begun or somebody watches.
    pub alone: Option<Alone<'a>>,
    /// [`NetworkFunction::era`]; none where `alone` is none, or the era changes while it is read.
    pub era: Option<u64>,
}

/// A network function, written as if one core ran it.
///
/// Handlers take `&self`: the function's own fields are configuration and handles of state objects. They may run again after
/// a conflict, so they keep no other memory and do nothing but what the context and the packet offer.
pub trait NetworkFunction: Declare + Sized + Send + Sync + 'static {
    /// What the function keeps per packet set: plain data, held side by side with the key and with the state of the chain's
    /// other functions on the same set. `()` if there is nothing to keep.
    type Set: Plain;

    /// Its name in plans and reports, in lower case with `_`.
    const NAME: &'static str;

    /// Which packets belong together. Packets of one set are handled in order on one core; a packet in no set is an orphan.
    /// `None`: every packet is an orphan.
    fn packet_set(&self) -> Option<SetDef> {
        None
    }

    /// Whether what is kept of a set means the same whatever the set is, as a count or a bucket does: then a plan may give the function
    /// any other packet set. Else only one whose packets all belong to one set of its own too.
    const ANY_SET: bool = false;

    /// Keys of its configuration that say what its packet sets are. Where the plan gives it sets of other fields they would say nothing, and are
    /// refused.
    const SET_KEYS: &'static [&'static str] = &[];

    /// How long a set lives without a packet, in nanoseconds; may depend on its state. `u64::MAX`: for ever.
    fn timeout_ns(&self, _set: &Self::Set) -> u64 {
        u64::MAX
    }

    /// Whether a set has been answered or confirmed, as conntrack says of a connection: where a full table has to let sets go
    /// (`full = "evict_oldest"`), those of which nobody is assured go first, so that a flood of packets that nobody answers
    /// leaves alone what is established but idle. Sets past their timeout are not asked about. A function that never is
    /// assured leaves it to the others in whose record its state lies; if none of them is, idle time alone counts.
    #[inline(always)]
    fn is_assured(&self, _set: &Self::Set) -> bool {
        false
    }

    /// What no answer of [`timeout_ns`](Self::timeout_ns) is below: packets that come closer together need not be asked about
    /// one by one. Where it is below eight seconds, sets that live no longer end within some 16 ms of their time; others wait for a scan of the table.
    fn shortest_timeout_ns(&self) -> u64 {
        0
    }

    /// Periods after which [`tick`](Self::tick) is called, each its own.
    fn ticks(&self) -> Vec<Duration> {
        Vec::new()
    }

    /// Whether what is done in a period is divided, as the sweep of a table may be: each round is one [`tick`](Self::tick) for each share of it,
    /// all at once and in any order. Else one call does it all, and no round comes before an earlier one. There may be any number of shares, and when a
    /// capture has ended one more round has as many as the largest of its maps has rows.
    fn divides(&self, _period: usize) -> bool {
        false
    }

    /// Whether this function, built anew while it runs because its configuration changed, goes on with the packet sets and
    /// state objects of `older`. The answer is the author's: only they know what the state stands for. An error says which
    /// change the state does not survive; then nothing changes. State objects of another size than before get what the former ones hold;
    /// what is in use keeps its number.
    fn inherits(&self, _older: &Self) -> Result<(), String> {
        Err("the function does not say which changes its state survives".to_owned())
    }

    /// Metadata fields that it reads or writes.
    fn fields(&self) -> Vec<FieldUse> {
        Vec::new()
    }

    /// Header fields of packet-set keys that it changes. Of one that is changed and not named here functions behind it would go on with the former
    /// value, or find their sets torn apart among workers; `braid certify` looks at each packet before and behind the function, and refuses.
    fn rewrites(&self) -> Rewrites {
        Rewrites::default()
    }

    /// What may be relaxed where workers conflict, and how far.
    fn relaxations(&self) -> Vec<Relaxation> {
        Vec::new()
    }

    /// Whether [`prefetch`](Self::prefetch) is worth being called for the packets of a batch; asked once for all of them.
    #[inline(always)]
    fn prefetches(&self) -> bool {
        false
    }

    /// Asks the processor for shared state, or for much else that lies far away, which [`packet`](Self::packet) will touch at `now_ns`, for all packets of a batch
    /// beforehand, so that it does not wait for one after another. With it goes [`prefetches`](Self::prefetches).
    #[inline(always)]
    fn prefetch(&self, _set: &Self::Set, _now_ns: u64) {}

    /// Whether [`prefetch_first`](Self::prefetch_first) does anything.
    const PREFETCHES_FIRST: bool = false;

    /// The same for what [`first`](Self::first) will touch, by a packet whose set is not live; a few packets before its turn. Set
    /// [`PREFETCHES_FIRST`](Self::PREFETCHES_FIRST) with it.
    #[inline(always)]
    fn prefetch_first(&self, _packet: &Packet<'_>, _now_ns: u64) {}

    /// Whether [`prefetch_expired`](Self::prefetch_expired) does anything.
    const PREFETCHES_EXPIRED: bool = false;

    /// Asks the processor for shared state that [`expired`](Self::expired) will touch a few sets later. Set
    /// [`PREFETCHES_EXPIRED`](Self::PREFETCHES_EXPIRED) with it.
    #[inline(always)]
    fn prefetch_expired(&self, _key: &SetKey, _set: &Self::Set) {}

    /// Before the first packet: fill the state objects.
    fn start(&self, _cx: &mut Cx<'_>) -> Result<(), Conflict> {
        Ok(())
    }

    /// A packet whose set is not live. The set becomes live if the handler calls [`NewSet::register`]; else the next packet
    /// is a first one again.
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _set: &mut NewSet<'_, Self::Set>) -> Handled {
        self.orphan(cx, packet)
    }

    /// Whether [`steady`](Self::steady) ever decides.
    const STEADY: bool = false;

    /// A packet of a live set for which the function needs nothing but the packet, the set and at most one look at shared state; asked first.
    /// Without a context no conflict can come between, so nothing is saved that a conflict would take back, which is a third of what such
    /// a packet costs.
    /// `None` leaves packet and set as they were, and sends both to [`packet`](Self::packet).
    #[inline(always)]
    fn steady(&self, _arrival: Arrival<'_>, _packet: &mut Packet<'_>, _set: &mut Self::Set) -> Option<Verdict> {
        None
    }

    /// Whether the function has an [`era`](Self::era). Its steady packets have no `alone` then: they are as of one instant already, and they
    /// need nothing that [`prefetch`](Self::prefetch) asks for.
    const ERAS: bool = false;

    /// A number in shared state that changes as soon as what sets remember may no longer hold: [`steady`](Self::steady) compares it with the
    /// one under which its set was decided. Read once for a stretch of packets that are steady one after another. All of
    /// them had come by then, and none needs anything else that is shared: it is as if they all were handled at that instant.
    #[inline(always)]
    fn era(&self, _alone: Alone<'_>) -> Option<u64> {
        None
    }

    /// A packet of a live set.
    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, _set: &mut Self::Set) -> Handled {
        self.orphan(cx, packet)
    }

    /// A packet in no set.
    fn orphan(&self, _cx: &mut Cx<'_>, _packet: &mut Packet<'_>) -> Handled {
        Ok(Verdict::Drop(Reason::ORPHAN))
    }

    /// Whether it changes packets so that an answer to one has to be changed too: with it [`back`](Self::back).
    const TURNS_BACK: bool = false;

    /// An answer to a packet that went on from here: a function behind made it ([`Cx::emit_back`]), and it came by the port by which that packet
    /// would have left. Undoes on it what was done to that packet, and says by which port it goes on; `Onward`: by that by which that packet
    /// came. It belongs to no set, whoever handles it.
    fn back(&self, cx: &mut Cx<'_>, _packet: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    /// A set that has seen no packet for its timeout and is gone when this returns.
    fn expired(&self, _cx: &mut Cx<'_>, _key: &SetKey, _set: &Self::Set) -> Result<(), Conflict> {
        Ok(())
    }

    /// A period has passed. Called between two batches, so several missed rounds are one call, and packets of one batch all come before it: 128 packets
    /// of a quiet capture may be minutes. What has to be exact to the packet compares [`Cx::now`] with a time in its state instead.
    fn tick(&self, _cx: &mut Cx<'_>, _tick: Tick) -> Result<(), Conflict> {
        Ok(())
    }

    /// Whether it lets packets wait that it sends on later with [`Cx::emit_held`]: when a period has passed, or for a packet that they waited
    /// for. That happens on another worker than theirs: the sets of functions behind it are shared by the workers.
    const HOLDS: bool = false;

    /// Whether its handlers ask by which port a packet leaves ([`Cx::leaves_by`]). One that holds packets does, unless it decides that itself.
    const ASKS_PORT: bool = Self::HOLDS;

    /// When the next of the packets is due that it holds back for a [`tick`](Self::tick) to send, in nanoseconds; none if it holds none.
    /// When a run ends time passes from one such moment to the next until it holds none, so ticks have to get there. A time may be too early,
    /// even past, for one more look; never too late. Changes nothing.
    fn holds(&self, _cx: &mut Cx<'_>) -> Result<Option<u64>, Conflict> {
        Ok(None)
    }

    /// After the last packet.
    fn stop(&self, _cx: &mut Cx<'_>) -> Result<(), Conflict> {
        Ok(())
    }

    /// After [`stop`](Self::stop): what its state objects tell, for the report of the run. Changes nothing.
    fn report(&self, _cx: &mut Cx<'_>, _into: &mut Findings) -> Result<(), Conflict> {
        Ok(())
    }

    /// What a set that is still live at the end adds to the report.
    fn report_set(&self, _key: &SetKey, _set: &Self::Set, _into: &mut Findings) {}
}
