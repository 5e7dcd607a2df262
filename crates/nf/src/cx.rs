//! What a handler is given besides the packet: the transaction, the time, the ports, and a way to send packets of its own.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use braid_packet::{BATCH_MAX, Link};
use braid_state::Tx;

use crate::{EVERY_PORT, Port, Verdict, Verdicts};

/// Packets that handlers made themselves (a reset, an ICMP error), waiting for the commit.
#[derive(Debug, Default)]
pub struct Emitted {
    bytes: Vec<u8>,
    list: Vec<Own>,
    /// Position in the chain of the function whose handlers run.
    maker: u16,
    /// By which port packets leave as functions before it decided, if it asks.
    decided: Vec<Port>,
}

/// How a packet came that a function holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// By which port.
    pub by: Port,
    /// What its frame begins with.
    pub link: Link,
}

/// Which functions a packet meets that a handler made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// None.
    Straight,
    /// Those behind its maker, as a packet does that came so; none: as its cause.
    Onward(Option<Came>),
    /// Those before its maker that turn packets back, the last one first, as a packet does that comes by this port; none: by that by
    /// which its cause would have left.
    Back(Option<Port>),
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
    /// How many there are; a place to return to.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Where those that packet `packet` caused begin, among those from `from` on that nobody else added to since.
    #[inline]
    pub(crate) fn first_of(&self, packet: usize, from: usize) -> usize {
        let others = self.list[from.min(self.list.len())..].iter().rposition(|own| usize::from(own.cause) != packet);
        others.map_or(from, |last| from + last + 1)
    }

    /// Forgets those after `mark`: the attempt that made them aborted.
    #[inline]
    pub fn truncate(&mut self, mark: usize) {
        self.list.truncate(mark);
        self.bytes.truncate(self.list.last().map_or(0, |own| own.end));
    }

    /// What is made from now on is made by the function at that position of the chain.
    #[inline(always)]
    pub fn begin(&mut self, position: usize) {
        self.maker = position as u16;
    }

    /// Keeps what has been decided so far: the function whose handlers run may ask.
    #[inline(never)]
    pub(crate) fn keep_decided(&mut self, verdicts: &Verdicts) {
        self.decided.clear();
        self.decided.extend((0..BATCH_MAX).map(|i| verdicts.port(i)));
    }

    /// By which function each was made, as its position in the chain, and which functions it meets, in the order made.
    pub fn legs(&self) -> impl Iterator<Item = (usize, Leg)> {
        self.list.iter().map(|own| (usize::from(own.maker), own.leg))
    }

    fn push(&mut self, cause: u16, port: Port, bytes: &[u8], leg: Leg) {
        self.bytes.extend_from_slice(bytes);
        self.list.push(Own { cause, maker: self.maker, port, end: self.bytes.len(), leg });
    }

    /// Each with the index in the batch of the packet that caused it, its port and its bytes, in the order made.
    pub fn iter(&self) -> impl Iterator<Item = (u16, Port, &[u8])> {
        let starts = std::iter::once(0).chain(self.list.iter().map(|own| own.end));
        self.list.iter().zip(starts).map(|(own, start)| (own.cause, own.port, &self.bytes[start..own.end]))
    }
}

/// A handler's context. It dereferences to the transaction, so every operation of a state object takes it as it is:
/// `self.table.get(cx, &key)?`. It stays on the worker's thread: moving it to another one does not compile.
#[derive(Debug)]
pub struct Cx<'a> {
    tx: &'a mut Tx,
    /// Told to the transaction by whoever reaches for it: a function without aggregate state never does.
    now_ns: u64,
    emitted: &'a mut Emitted,
    ports: u16,
    index: u16,
    reversed: bool,
    thread: PhantomData<*const ()>,
}

impl<'a> Cx<'a> {
    /// What handlers for the packet at `index` of the batch are given.
    #[inline(always)]
    pub(crate) fn new(tx: &'a mut Tx, emitted: &'a mut Emitted, ports: u16, index: usize, reversed: bool) -> Cx<'a> {
        let now_ns = tx.now();
        Cx { tx, now_ns, emitted, ports, index: index as u16, reversed, thread: PhantomData }
    }

    /// Turns to another packet of the batch, which comes at `now_ns`.
    #[inline(always)]
    pub(crate) fn turn_to(&mut self, index: usize, reversed: bool, now_ns: u64) {
        (self.now_ns, self.index, self.reversed) = (now_ns, index as u16, reversed);
    }

    /// What handlers without a packet are given.
    pub(crate) fn without_packet(tx: &'a mut Tx, emitted: &'a mut Emitted, ports: u16) -> Cx<'a> {
        Cx::new(tx, emitted, ports, usize::from(u16::MAX), false)
    }

    /// The time of this packet (or tick) in nanoseconds: capture time when replaying, a clock read once per batch when live.
    /// It never goes back on one worker.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        self.now_ns
    }

    /// Ports of the plan, numbered from 0.
    #[inline(always)]
    pub fn ports(&self) -> u16 {
        self.ports
    }

    /// [`Verdict::Onward`]: what a function says that only looks.
    #[inline(always)]
    pub fn pass(&self) -> Verdict {
        Verdict::Onward
    }

    /// The other port of a pair (0 and 1, 2 and 3, …); a port without a partner is its own opposite.
    #[inline(always)]
    pub fn opposite(&self, port: Port) -> Port {
        opposite(port, self.ports)
    }

    /// Whether this packet runs against the direction in which its symmetric set's key is written. Both directions share the
    /// set's state; remember the value of the first packet to know which way a later one goes.
    #[inline(always)]
    pub fn reversed(&self) -> bool {
        self.reversed
    }

    /// Sends a packet of the function's own out by `port` once this attempt commits. It skips the rest of the chain; an IP packet whose
    /// addresses a function between here and that port would have changed, in a mirrored chain, is dropped and counted.
    pub fn emit(&mut self, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Straight);
    }

    /// Sends a packet on once this attempt commits, as [`Verdict::Forward`] would the one that is being handled: it came by the same port,
    /// and meets the functions behind this one that that one meets. For pieces of it, and for what has waited for it. What is made without a
    /// packet goes the way of [`emit`](Self::emit).
    pub fn emit_onward(&mut self, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Onward(None));
    }

    /// The same for a packet that has waited since it came, and leaves by `port`, or as a copy by every other one if that is
    /// [`EVERY_PORT`], unless a function behind this one decides otherwise: what [`leaves_by`](Self::leaves_by) said then. For a function that
    /// [`HOLDS`](crate::NetworkFunction::HOLDS) packets.
    pub fn emit_held(&mut self, came: Came, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Onward(Some(came)));
    }

    /// Sends a packet back by `port`, where the one that is being handled came from: an answer to it as this function saw it. What functions
    /// before this one changed they undo ([`NetworkFunction::back`](crate::NetworkFunction::back)), the last one first, as for a packet that
    /// comes from where that one was going. Other functions do not see it.
    pub fn emit_back(&mut self, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Back(None));
    }

    /// The same for a packet that has waited, and would have left by `was_going`.
    pub fn emit_held_back(&mut self, was_going: Port, port: Port, bytes: &[u8]) {
        self.emitted.push(self.index, port, bytes, Leg::Back(Some(was_going)));
    }

    /// By which port the packet leaves if this function does not decide: as functions before it did, [`EVERY_PORT`] if it is flooded. Known to
    /// a function that [asks](crate::NetworkFunction::ASKS_PORT), and of answers that go back.
    pub fn leaves_by(&self) -> Port {
        self.emitted.decided.get(usize::from(self.index)).copied().unwrap_or(EVERY_PORT)
    }
}

/// The other port of a pair (0 and 1, 2 and 3, …); a port without a partner is its own opposite.
#[inline(always)]
pub fn opposite(port: Port, ports: u16) -> Port {
    if port ^ 1 < ports { port ^ 1 } else { port }
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
