//! Packets that functions made and that go on behind them: pieces of a datagram that had waited for its first one, or into which a packet
//! was cut. They meet the functions that are left as one more batch, before anything else is received: on this worker, where the packet was
//! handled that caused them.

use braid_packet::{BATCH_MAX, FrameInfo, Port};

use super::Worker;
use super::send::NO_BUFFER;
use crate::course::Direction;

/// A packet that waits for the batch of its cause to be sent.
pub(super) struct Onward {
    /// The function that made it.
    maker: usize,
    direction: Direction,
    /// By which port it leaves if nobody decides otherwise.
    port: Port,
    info: FrameInfo,
    bytes: Vec<u8>,
}

impl Worker {
    /// Puts a packet aside that `maker` made because of packet `cause` of the batch, to go on. False if that was no packet of it, or if no
    /// function is left for it.
    pub(super) fn put_onward(
        &mut self,
        (cause, maker): (u16, usize),
        port: Port,
        bytes: &[u8],
        info: FrameInfo,
    ) -> bool {
        let Some(came_by) = self.batch.records().get(usize::from(cause)).map(|record| record.port) else {
            return false;
        };
        let chain = &self.parts.chain;
        let from_outside = chain.course().outside().is_some_and(|outside| outside.has(came_by));
        let direction = if from_outside { Direction::Reverse } else { Direction::Forward };
        let is_last = chain.positions(direction).last() == Some(maker);
        if !is_last {
            let info = FrameInfo { port: came_by, ..info };
            self.onward.push(Onward { maker, direction, port, info, bytes: bytes.to_vec() });
        }
        !is_last
    }

    /// Takes those that one function made one after another through the functions behind it, and sends them.
    #[cold]
    pub(super) fn go_on(&mut self) {
        let Some((maker, direction)) = self.onward.first().map(|own| (own.maker, own.direction)) else { return };
        let alike = self.onward.iter().take_while(|own| (own.maker, own.direction) == (maker, direction));
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
        self.through(self.parts.chain.positions(direction).skip_while(|&at| at != maker).skip(1));
        self.send_batch();
    }
}
