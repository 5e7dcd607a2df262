//! Packets that functions made and that have yet to meet further functions: fragments (cut from a packet, or held until the first one
//! arrived), packets that a shaper held, hairpins, and answers on their way back. They pass through the remaining functions as one more batch before
//! anything else is received, on the worker that handled the packet that caused them or the tick that released them.

use braid_nf::{Came, EVERY_PORT, Leg};
use braid_packet::{BATCH_MAX, FrameInfo, Port};

use super::Worker;
use super::send::NO_BUFFER;
use crate::chain::Chain;
use crate::chain::course::Direction;

/// A packet that waits until the batch of its cause has been sent.
pub(super) struct Onward {
    /// The position of the function that made it.
    maker: usize,
    route: Route,
    /// The port by which it leaves unless a function decides otherwise.
    port: Port,
    info: FrameInfo,
    bytes: Vec<u8>,
}

/// The functions that a packet meets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Those after its maker, in this direction.
    Behind(Direction),
    /// Those after its maker that turn packets back.
    Past,
    /// Those before its maker that undo their changes on answers to a packet that came by this port.
    Back(Port),
}

impl Worker {
    /// Queues a packet that `maker` made because of packet `cause` of the batch; returns false if no function remains for it.
    pub(super) fn put_aside(
        &mut self,
        (cause, maker, leg): (u16, usize, Leg),
        port: Port,
        bytes: &[u8],
        info: FrameInfo,
    ) -> bool {
        let chain = &self.parts.chain;
        let cause = self.batch.records().get(usize::from(cause)).map(|record| (record.port, usize::from(cause)));
        let (came_by, route) = match (leg, cause) {
            (Leg::Onward(Some(Came { by, .. })), _) | (Leg::Onward(None), Some((by, _))) => {
                (by, Route::Behind(chain.side_of(by)))
            }
            (Leg::Past(Came { by, .. }), _) => (by, Route::Past),
            (Leg::Back(Some(was_going)), _) => (was_going, Route::Back(port)),
            (Leg::Back(None), Some((_, cause))) => (self.was_going(cause, port), Route::Back(port)),
            (Leg::Straight | Leg::Lost(..), _) | (_, None) => return false,
        };
        // A packet for every port is always queued, because only the sending of a batch makes copies.
        let meets_any = port == EVERY_PORT || !route.functions(chain, maker).is_empty();
        if meets_any {
            let info = FrameInfo { port: came_by, ..info };
            self.onward.push(Onward { maker, route, port, info, bytes: bytes.to_vec() });
        }
        meets_any
    }

    /// The port by which a packet of the batch, received on port `came_by`, leaves or would have left.
    fn was_going(&self, packet: usize, came_by: Port) -> Port {
        match self.verdicts.port(packet) {
            port if port < self.parts.ports => port,
            _ => Chain::default_port(came_by, self.parts.ports),
        }
    }

    /// Runs the queued packets through their remaining functions and sends them, including packets that are queued meanwhile.
    #[inline(always)]
    pub(super) fn go_on(&mut self) {
        while !self.onward.is_empty() {
            self.go_on_once();
        }
    }

    /// Handles the first queued packet together with those right after it that have the same maker and route.
    #[cold]
    fn go_on_once(&mut self) {
        let Some((maker, route)) = self.onward.first().map(|own| (own.maker, own.route)) else { return };
        let alike = self.onward.iter().take_while(|own| (own.maker, own.route) == (maker, route));
        let those: Vec<Onward> = self.onward.drain(..alike.take(BATCH_MAX).count()).collect();
        let (batch, buffers) = (&mut self.batch, &mut self.buffers);
        let (taken, lost): (Vec<_>, Vec<_>) =
            those.iter().partition(|own| batch.copy_in(buffers, &own.bytes, &own.info));
        if !lost.is_empty() {
            self.counters.drops.add("runtime", NO_BUFFER, lost.len() as u64);
        }
        self.sets.iter_mut().for_each(super::Sets::forget);
        self.batch.parse_all();
        self.last_ns = self.parts.clock.stamp(&self.batch, self.last_ns, &mut self.now_ns);
        self.verdicts.expect(taken.iter().map(|own| own.port));
        self.take_up();
        let functions = route.functions(&self.parts.chain, maker);
        match route {
            Route::Behind(_) | Route::Past => self.through(functions.into_iter()),
            Route::Back(_) => self.back_through(&functions),
        }
        self.send_batch();
        self.evict();
    }

    /// Runs answers back through some functions, one after another.
    fn back_through(&mut self, positions: &[usize]) {
        self.witness.goes_back();
        self.goes_back = true;
        for &position in positions {
            if !self.todo.is_empty() {
                self.pass(position);
            }
        }
        self.goes_back = false;
    }
}

impl Route {
    /// The positions of the functions that remain for a packet made by `maker`, in the order in which the packet meets them.
    fn functions(self, chain: &Chain, maker: usize) -> Vec<usize> {
        match self {
            Route::Behind(direction) => chain.positions(direction).skip_while(|&at| at != maker).skip(1).collect(),
            Route::Past => chain.past(maker).collect(),
            Route::Back(port) => chain.back_from(maker, port),
        }
    }
}
