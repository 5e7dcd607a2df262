//! The context of a handler, [`Cx`]: the transaction, the time, the ports, and ways to send packets that the handler
//! makes.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use braid_packet::Link;
use braid_state::Tx;

use crate::{EVERY_PORT, Packet, Port, Reason, Verdict, Verdicts};

/// Packets that handlers made themselves (a reset, an ICMP error), which wait for the commit.
#[derive(Debug, Default)]
pub struct Emitted {
    bytes: Vec<u8>,
    list: Vec<Own>,
    /// Position in the chain of the function whose handlers are running.
    maker: u16,
    /// What hairpins of that function meet.
    round: Round,
    /// Output port of each packet as decided by earlier functions; filled only for functions that ask.
    decided: Vec<Port>,
}

/// How a packet arrived that a function holds and sends later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// Arrival port.
    pub by: Port,
    /// Link type of its frame: the header that it begins with.
    pub link: Link,
    /// Whether bytes that its headers promise may be missing because a capture cut it: `false` of a packet that was
    /// [truncated](crate::Packet::is_truncated), which it stays for the functions that it meets.
    pub may_be_cut: bool,
}

impl Came {
    /// How a packet arrived, if it came by this port.
    pub fn of(packet: &Packet<'_>, by: Port) -> Came {
        Came { by, link: packet.link(), may_be_cut: !packet.is_truncated() }
    }
}

/// What a packet meets that a function sends back to the inside, a hairpin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Round {
    /// What any other packet meets: the functions after this one.
    #[default]
    Onward,
    /// The functions before this one, from the last to the first, as packets from outside do.
    Return,
    /// Of the functions after this one only those that turn packets back: translators, which pass it on, and a router,
    /// which knows its station. The others of a mirrored chain stand outside, where it never goes.
    Past,
}

/// Which functions a packet made by a handler passes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// None: the packet is sent directly.
    Straight,
    /// The functions after its maker, as if the packet had arrived this way; `None`: in the same way as the packet that
    /// caused it.
    Onward(Option<Came>),
    /// Those after its maker that turn packets back, as if the packet had arrived this way.
    Past(Came),
    /// The functions before its maker that turn packets back, from the last to the first, as if the packet had arrived
    /// by this port; `None`: the port by which its cause would have left.
    Back(Option<Port>),
    /// None: a packet that waited is not sent after all, for this reason.
    Lost(Reason, u32),
}

#[derive(Debug)]
struct Own {
    cause: u16,
    maker: u16,
    port: Port,
    end: usize,
    leg: Leg,
}

impl Emitted {
    /// Returns the number of packets, which also serves as a mark for [`truncate`](Self::truncate).
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns where the packets caused by `packet` begin: the start of the trailing run of its packets, searched back
    /// to index `from`.
    #[inline]
    pub(crate) fn first_of(&self, packet: usize, from: usize) -> usize {
        let others = self.list[from.min(self.list.len())..].iter().rposition(|own| usize::from(own.cause) != packet);
        others.map_or(from, |last| from + last + 1)
    }

    /// Discards the packets after `mark`, because the attempt that made them was aborted.
    #[inline]
    pub fn truncate(&mut self, mark: usize) {
        self.list.truncate(mark);
        self.bytes.truncate(self.list.last().map_or(0, |own| own.end));
    }

    /// Sets the position in the chain of the function that makes the following packets, and what its
    /// [hairpins](Cx::hairpins) meet.
    #[inline(always)]
    pub fn begin(&mut self, position: usize, round: Round) {
        (self.maker, self.round) = (position as u16, round);
    }

    /// Saves the decisions so far about the packets of a batch, for a function that asks for them.
    #[inline(never)]
    pub(crate) fn keep_decided(&mut self, verdicts: &Verdicts, packets: usize) {
        self.decided.clear();
        verdicts.copy_ports(packets, &mut self.decided);
    }

    /// Returns, in order of creation, the chain position of each packet's maker and the functions that the packet
    /// passes through.
    pub fn legs(&self) -> impl Iterator<Item = (usize, Leg)> {
        self.list.iter().map(|own| (usize::from(own.maker), own.leg))
    }

    fn push(&mut self, cause: u16, port: Port, bytes: &[u8], leg: Leg) {
        self.bytes.extend_from_slice(bytes);
        self.list.push(Own { cause, maker: self.maker, port, end: self.bytes.len(), leg });
    }

    /// Like [`iter`](Self::iter), from number `from` on, without those that are [lost](Leg::Lost).
    pub fn sent_from(&self, from: usize) -> impl Iterator<Item = (u16, Port, &[u8])> {
        let all = self.iter().zip(&self.list).skip(from);
        all.filter(|(_, own)| !matches!(own.leg, Leg::Lost(..))).map(|(packet, _)| packet)
    }

    /// Returns, in order of creation, the batch index of the packet that caused each packet, its port and its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Port, &[u8])> {
        let starts = std::iter::once(0).chain(self.list.iter().map(|own| own.end));
        self.list.iter().zip(starts).map(|(own, start)| (own.cause, own.port, &self.bytes[start..own.end]))
    }
}

/// The context of a handler: one packet (or tick) in one transaction.
///
/// It dereferences to the transaction, so it can be passed to every operation of a state object:
/// `self.table.get(cx, &key)?`. It stays on the worker's thread; moving it to another thread does not compile.
///
/// A packet that a handler makes leaves when the attempt commits, and never if it does not. Which functions it meets:
///
/// | method | functions that the packet meets | for |
/// |---|---|---|
/// | [`emit`](Self::emit) | no function | announcements |
/// | [`emit_onward`](Self::emit_onward), [`emit_held`](Self::emit_held) | those after this one | fragments, … |
/// | [`emit_back`](Self::emit_back), [`emit_held_back`](Self::emit_held_back) | those before this one | answers |
/// | [`emit_hairpin`](Self::emit_hairpin) | what [`hairpins`](Self::hairpins) says | hairpins |
///
/// The bytes given are always a whole frame, with its link header. Ports are numbered from 0, as in the plan.
#[derive(Debug)]
pub struct Cx<'a> {
    tx: &'a mut Tx,
    /// Copied into the transaction by `deref_mut`; a function without aggregate state never needs it there.
    now_ns: u64,
    emitted: &'a mut Emitted,
    ports: u16,
    index: u16,
    reversed: bool,
    thread: PhantomData<*const ()>,
}

impl<'a> Cx<'a> {
    /// Creates the context for the packet at `index` of the batch.
    #[inline(always)]
    pub(crate) fn new(tx: &'a mut Tx, emitted: &'a mut Emitted, ports: u16, index: usize, reversed: bool) -> Cx<'a> {
        let now_ns = tx.now();
        Cx { tx, now_ns, emitted, ports, index: index as u16, reversed, thread: PhantomData }
    }

    /// Switches to another packet of the batch, whose time is `now_ns`.
    #[inline(always)]
    pub(crate) fn turn_to(&mut self, index: usize, reversed: bool, now_ns: u64) {
        (self.now_ns, self.index, self.reversed) = (now_ns, index as u16, reversed);
    }

    /// Creates the context for a handler that has no packet.
    pub(crate) fn without_packet(tx: &'a mut Tx, emitted: &'a mut Emitted, ports: u16) -> Cx<'a> {
        Cx::new(tx, emitted, ports, usize::from(u16::MAX), false)
    }

    /// Returns the time of this packet (or tick) in nanoseconds since 1970: the capture time for captures; on live
    /// ports a clock that is read once per batch and that setting the machine's clock does not move. It never goes back
    /// on one worker.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now_ns
    }

    /// Returns the wall-clock time of this packet in nanoseconds since 1970, for rules by hour and day and for logs.
    /// The clock of a machine may be set while packets go through, also back. Compute ages and timeouts with
    /// [`now`](Self::now) instead.
    #[inline]
    pub fn wall(&self) -> u64 {
        self.now_ns.saturating_add_signed(self.tx.wall_ahead_ns())
    }

    /// Returns the number of ports of the plan; ports are numbered from 0.
    #[inline(always)]
    pub fn ports(&self) -> u16 {
        self.ports
    }

    /// Returns [`Verdict::Onward`], the verdict of a function that only observes: earlier decisions stay.
    #[inline(always)]
    pub fn pass(&self) -> Verdict {
        Verdict::Onward
    }

    /// Returns the other port of a pair (0 and 1, 2 and 3, …); a port without a partner is its own opposite.
    #[inline(always)]
    pub fn opposite(&self, port: Port) -> Port {
        opposite(port, self.ports)
    }

    /// Returns whether this packet runs against the direction in which the key of its symmetric set is written (by
    /// address, not by who sent first). Both directions share the set's state. To tell a connection's two directions
    /// apart, store the value of its first packet and compare.
    #[inline(always)]
    pub fn reversed(&self) -> bool {
        self.reversed
    }

    /// Sends a new packet out by `port` once this attempt commits. It skips the rest of the chain. In a mirrored chain,
    /// an IP packet is dropped and counted if a function between here and that port would have changed its addresses.
    pub fn emit(&mut self, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Straight);
    }

    /// Sends a new packet onward once this attempt commits, as [`Verdict::Forward`] would send the current packet: with
    /// the same arrival port, through the functions after this one. Use it for fragments of the current packet, and for
    /// packets that waited for it. If the handler has no packet, this acts like [`emit`](Self::emit).
    pub fn emit_onward(&mut self, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Onward(None));
    }

    /// Sends a held packet onward, like [`emit_onward`](Self::emit_onward), for a function that
    /// [`HOLDS`](crate::NetworkFunction::HOLDS) packets. `came` says how the packet had arrived. Unless a function
    /// after this one decides otherwise, it leaves by `port`, or is flooded if that is [`EVERY_PORT`]: pass the value
    /// of [`leaves_by`](Self::leaves_by) from when the packet arrived.
    pub fn emit_held(&mut self, came: Came, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Onward(Some(came)));
    }

    /// Says, once this attempt commits, that a packet that waited in this function is not sent after all. It was dropped for a reason that the
    /// function [`CONSUMES`](crate::NetworkFunction::CONSUMES). Like one that is sent on it counts as a copy, and that is dropped for
    /// this reason: so it is lost once.
    pub fn lose(&mut self, reason: Reason) {
        self.lose_many(reason, 1);
    }

    /// Like [`lose`](Self::lose), of so many packets.
    pub fn lose_many(&mut self, reason: Reason, packets: u32) {
        self.emitted.push(self.index, 0, &[], Leg::Lost(reason, packets));
    }

    /// Returns what a hairpin of this function meets: a packet that it sends back inside. For [`Round::Onward`] the
    /// function forwards the packet like any other. Otherwise it sends it by [`emit_hairpin`](Self::emit_hairpin) and
    /// drops the original.
    pub fn hairpins(&self) -> Round {
        self.emitted.round
    }

    /// Returns whether hairpins of this function return through the functions before it. They do if the chain is
    /// mirrored, there are functions before it, and it declares [`hairpins`](crate::NetworkFunction::hairpins).
    pub fn hairpins_return(&self) -> bool {
        self.emitted.round == Round::Return
    }

    /// Sends a hairpin back inside by `port`, through the functions that [`hairpins`](Self::hairpins) names. `came` is
    /// a port outside if these are the functions before this one, else the port by which the packet came.
    pub fn emit_hairpin(&mut self, came: Came, port: Port, bytes: &[u8]) {
        let leg = if self.hairpins_return() { Leg::Onward(Some(came)) } else { Leg::Past(came) };
        self.emitted.push(self.index, port, bytes, leg);
    }

    /// Sends an answer to the current packet, as this function saw it, back by `port`, the port by which the packet
    /// arrived. The functions before this one, from the last to the first, undo their changes on the answer
    /// ([`NetworkFunction::back`](crate::NetworkFunction::back)), as for a packet that arrives from where the current
    /// one was going. Other functions do not see it.
    pub fn emit_back(&mut self, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Back(None));
    }

    /// Sends an answer to a held packet back by `port`, like [`emit_back`](Self::emit_back). `was_going` is the port by
    /// which the held packet would have left.
    pub fn emit_held_back(&mut self, was_going: Port, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Back(Some(was_going)));
    }

    /// Returns the port by which the packet leaves unless this function decides: the decision of the functions before
    /// it, or [`EVERY_PORT`] if the packet is flooded. Only for a function that sets
    /// [`ASKS_PORT`](crate::NetworkFunction::ASKS_PORT), and for answers that go back; otherwise it is always
    /// [`EVERY_PORT`].
    pub fn leaves_by(&self) -> Port {
        self.emitted.decided.get(usize::from(self.index)).copied().unwrap_or(EVERY_PORT)
    }
}

/// Returns the other port of a pair (0 and 1, 2 and 3, …); a port without a partner is its own opposite.
#[inline(always)]
pub fn opposite(port: Port, ports: u16) -> Port {
    if port ^ 1 < ports { port ^ 1 } else { port }
}

/// Has the compiler refuse, in handlers, what only the runtime may ask of a transaction. State objects are given the transaction through `Cx`; what a
/// handler decides by its worker's number, or by whether it is replayed, would depend on who runs it, and no certificate could tell.
#[diagnostic::on_unimplemented(
    message = "a handler cannot call this: it is for the runtime",
    label = "not for handlers",
    note = "handlers read and change state by the methods of state objects, and say what happens to a packet by what they return"
)]
pub trait ForTheRuntime {}

macro_rules! keep_from_handlers {
    ($($method:ident)*) => {
        impl Cx<'_> {
            $(
                #[doc(hidden)]
                pub fn $method(&mut self)
                where
                    Self: ForTheRuntime,
                {
                }
            )*
        }
    };
}

keep_from_handlers! {
    abandon abort begin_holding begin_now choice commit commit_holding defer domain is_recording is_replaying leave_turn let_go need_turn
    note_changes read_unlogged record refuse replay retract rollback savepoint serialise set_now set_wall_ahead set_worker settle_alone
    take_changes violate violations wait_until_alone wall_ahead_ns worker yield_with
}

impl Deref for Cx<'_> {
    type Target = Tx;
    #[inline(always)]
    fn deref(&self) -> &Tx {
        self.tx
    }
}

impl DerefMut for Cx<'_> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Tx {
        self.tx.set_now(self.now_ns);
        self.tx
    }
}
