//! Transmission for devices that work on Braid's own buffers: a sent packet stays in place, and another buffer replaces it in the batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_packet::{Batch, Buffers, Lent, Loans};

use super::live::{Left, Sent, TxPort};

/// A send queue of such a device.
pub(crate) trait LendingQueue: Send {
    /// Sends the packets `out`, each of which `lend` lends to the device.
    fn send(
        &mut self,
        buffers: &mut Buffers,
        out: &[u16],
        lend: impl FnMut(&mut Loans, &mut Buffers, usize) -> Option<Lent>,
    ) -> Sent;

    /// Transmits pending packets, as far as the device accepts them.
    fn push(&mut self) {}

    /// Packets that the device has not taken and that have not been told before.
    fn left(&mut self) -> Left {
        Left::default()
    }
}

/// Lends each of the packets `out` to a device that accepts frames of up to `longest` bytes, and passes what is lent to `take`.
/// Frames that are too long are given back; a frame for which no buffer is free counts as if the device were full.
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

/// One worker's access to a send queue. Workers that share a queue take turns, once per batch.
pub(crate) struct Transmitter<Q> {
    queue: Arc<Mutex<Q>>,
}

impl<Q> Transmitter<Q> {
    /// Makes one transmitter for each sender and assigns the queues round-robin.
    pub(crate) fn over(queues: &[Arc<Mutex<Q>>], senders: usize) -> Vec<Transmitter<Q>> {
        (0..senders).map(|sender| Transmitter { queue: Arc::clone(&queues[sender % queues.len()]) }).collect()
    }

    fn queue(&self) -> MutexGuard<'_, Q> {
        // Ignore poisoning: after a panic some buffers may be lent but not sent. They are missing, and nothing else is wrong.
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

    fn left(&mut self) -> Left {
        self.queue().left()
    }
}
