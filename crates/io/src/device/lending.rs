//! The way out by devices that work on Braid's own buffers: a packet that is sent stays where it lies and leaves another buffer in
//! the batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_packet::{Batch, Buffers, Lent, Loans};

use super::live::{Sent, TxPort};

/// A send queue of such a device.
pub(crate) trait LendingQueue: Send {
    /// Sends packets, each lent as `lend` does it.
    fn send(
        &mut self,
        buffers: &mut Buffers,
        out: &[u16],
        lend: impl FnMut(&mut Loans, &mut Buffers, usize) -> Option<Lent>,
    ) -> Sent;

    /// Sends what waits, as far as the device takes it.
    fn push(&mut self) {}
}

/// Lends each of these packets to a device that takes frames up to `longest`: `take` gets what is lent; what was too long is given back, and
/// what found no buffer counts as if the device were full.
#[inline(always)]
pub(crate) fn lend_each(
    (loans, buffers): (&mut Loans, &mut Buffers),
    (out, longest): (&[u16], usize),
    mut lend: impl FnMut(&mut Loans, &mut Buffers, usize) -> Option<Lent>,
    mut take: impl FnMut(Lent),
) -> Sent {
    let mut sent = Sent::default();
    for &i in out {
        match lend(loans, buffers, i.into()) {
            Some(lent) if lent.len <= longest => take(lent),
            Some(lent) => {
                loans.give_back(buffers, lent.at);
                sent.too_long += 1;
            }
            None => sent.device_full += 1,
        }
    }
    sent
}

/// The way out of one worker. Workers that send by one queue take turns, once per batch.
pub(crate) struct Transmitter<Q> {
    queue: Arc<Mutex<Q>>,
}

impl<Q> Transmitter<Q> {
    /// One for each sender, over the queues in turn.
    pub(crate) fn over(queues: &[Arc<Mutex<Q>>], senders: usize) -> Vec<Transmitter<Q>> {
        (0..senders).map(|sender| Transmitter { queue: Arc::clone(&queues[sender % queues.len()]) }).collect()
    }

    fn queue(&self) -> MutexGuard<'_, Q> {
        // What a panic leaves behind are buffers that are lent and not sent: they are missing, and nothing else is wrong.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: LendingQueue> TxPort for Transmitter<Q> {
    fn send(&mut self, batch: &Batch, buffers: &mut Buffers, out: &[u16]) -> Sent {
        self.queue().send(buffers, out, |loans, buffers, i| loans.lend_copy(buffers, batch.bytes(i)))
    }

    fn send_owned(&mut self, batch: &mut Batch, buffers: &mut Buffers, out: &[u16]) -> Sent {
        self.queue().send(buffers, out, |loans, buffers, i| {
            let lent = loans.lend_packet(batch, buffers, i);
            lent.or_else(|| loans.lend_copy(buffers, batch.bytes(i)))
        })
    }

    fn push(&mut self) {
        self.queue().push();
    }
}
