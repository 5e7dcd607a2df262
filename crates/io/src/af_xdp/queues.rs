//! The receiving and sending ends of a queue, with the buffers that the kernel fills, the frames received, and the frames to send.

use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use braid_packet::{Buffers, Lent, Loans};

use super::program::Program;
use super::sys::{Descriptor, Ring, SEND_RING, Socket};
use crate::device::lending::{LendingQueue, lend_each};
use crate::device::live::{Arrivals, Left, RxPort, Sent};
use crate::device::offload::complete_if_partial;

/// Maximum number of buffers that one send queue holds: those in its ring, and those whose transmission is not complete.
const LENT_MAX: usize = 2 * SEND_RING as usize;
/// Number of requests to the kernel to send before packets are dropped.
const RETRIES: usize = 64;

/// What the receivers of one queue share: the buffers for the kernel to fill.
pub(super) struct Filling {
    pub(super) fill: Ring<u64>,
    pub(super) loans: Loans,
}

/// One receiver's end of a receive queue.
pub(super) struct QueueIn {
    pub(super) socket: Arc<Socket>,
    pub(super) receive: Ring<Descriptor>,
    pub(super) filling: Arc<Mutex<Filling>>,
    pub(super) missed: Arc<Missed>,
}

/// Counts of frames that a socket has missed: those that previous programs reported, and the latest value.
#[derive(Debug, Default)]
pub(super) struct Missed {
    before: u64,
    last: AtomicU64,
}

impl Missed {
    /// Starts for a socket of which previous programs have already reported `before` missed frames.
    pub(super) fn after(before: u64) -> Missed {
        Missed { before, last: before.into() }
    }

    /// The latest count.
    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    /// Records the current count; returns it without those that were reported before.
    fn told(&self, now: u64) -> u64 {
        // Relaxed: it is read after the receiving thread has been joined.
        self.last.store(now, Ordering::Relaxed);
        now.saturating_sub(self.before)
    }
}

/// One receiver's side of some queues of an interface.
pub(crate) struct Receiver {
    /// Keeps the program attached.
    _program: Arc<Program>,
    queues: Vec<QueueIn>,
    /// The queue that is polled first.
    first: usize,
    checksums_may_lack: bool,
    is_polling: bool,
    /// Received descriptors that were invalid.
    senseless: u64,
}

impl Receiver {
    /// Receives from these queues. `checksums_may_lack` means that the other end is on this machine.
    pub(super) fn new(
        program: &Arc<Program>,
        queues: Vec<QueueIn>,
        checksums_may_lack: bool,
        is_polling: bool,
    ) -> Receiver {
        Receiver { _program: Arc::clone(program), queues, first: 0, checksums_may_lack, is_polling, senseless: 0 }
    }
}

impl Filling {
    /// Gives the kernel as many buffers as it has room for, unless there is too little room to be worth it.
    fn refill(&mut self, buffers: &mut Buffers) {
        if self.fill.room() >= self.fill.size() / 8 {
            self.fill_up(buffers);
        }
    }

    /// Gives the kernel as many buffers as it has room for.
    pub(super) fn fill_up(&mut self, buffers: &mut Buffers) {
        for _ in 0..self.fill.room() {
            let Some(at) = self.loans.lend(buffers) else { break };
            self.fill.put(at);
        }
        self.fill.publish();
    }
}

impl QueueIn {
    /// Keeps the kernel going, unless another receiver of the queue is already doing so.
    fn keep_going(&self, buffers: &mut Buffers, is_polling: bool) {
        let mut filling = match self.filling.try_lock() {
            Ok(filling) => filling,
            // As in `take`.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        filling.refill(buffers);
        let is_due = is_polling || filling.fill.needs_wakeup();
        drop(filling);
        if is_due {
            self.socket.wake_receive();
        }
    }

    /// Takes received frames; returns the number of invalid descriptors.
    fn take(&mut self, into: &mut Arrivals<'_>) -> u64 {
        if !self.receive.has_more() {
            return 0;
        }
        let mut senseless = 0;
        // Ignore poisoning: after a panic some buffers may be lent but not filled. They are missing, and nothing else is wrong.
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        while into.has_room() {
            let Some(frame) = self.receive.take() else { break };
            let info = into.info(frame.len());
            if filling.loans.receive(into.batch, Lent { at: frame.at(), len: frame.len() }, &info) {
                into.took(frame.len());
            } else {
                senseless += 1;
            }
        }
        self.receive.release();
        senseless
    }
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        let (count, before) = (self.queues.len(), into.batch.len());
        for step in 0..count {
            let at = if self.first + step < count { self.first + step } else { self.first + step - count };
            let queue = &mut self.queues[at];
            queue.keep_going(into.buffers, self.is_polling);
            self.senseless += queue.take(into);
        }
        if self.checksums_may_lack {
            (before..into.batch.len()).for_each(|i| complete_if_partial(into.batch.packet(i, None).bytes_mut()));
        }
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
    }

    fn awaits(&self, readable: &mut Vec<RawFd>) -> bool {
        readable.extend(self.queues.iter().map(|queue| queue.socket.as_raw_fd()));
        // A device that is to be polled by our system calls raises no interrupts.
        !self.is_polling
    }

    fn missed(&mut self) -> u64 {
        self.queues.iter().map(|queue| queue.missed.told(queue.socket.missed())).sum::<u64>() + self.senseless
    }
}

/// One send queue.
pub(crate) struct QueueOut {
    pub(super) socket: Arc<Socket>,
    pub(super) send: Ring<Descriptor>,
    pub(super) completed: Ring<u64>,
    pub(super) loans: Loans,
    /// Length of the longest frame that may be sent.
    pub(super) longest: usize,
    /// Number of packets that have been told to be left in the ring.
    pub(super) left: u32,
}

impl QueueOut {
    /// Reclaims the buffers of packets that have been sent.
    fn reclaim(&mut self, buffers: &mut Buffers) {
        while let Some(at) = self.completed.take() {
            self.loans.give_back(buffers, Descriptor::new(at, 0).at());
        }
        self.completed.release();
    }

    /// Makes room for `wanted` packets if possible; returns the room, which is smaller if the device accepts nothing.
    fn make_room(&mut self, buffers: &mut Buffers, wanted: usize) -> usize {
        self.reclaim(buffers);
        if (self.send.room() as usize) < wanted || self.loans.count() + wanted > LENT_MAX {
            self.push();
            self.reclaim(buffers);
        }
        (self.send.room() as usize).min(LENT_MAX.saturating_sub(self.loans.count()))
    }
}

impl LendingQueue for QueueOut {
    fn send(
        &mut self,
        buffers: &mut Buffers,
        out: &[u16],
        lend: impl FnMut(&mut Loans, &mut Buffers, usize) -> Option<Lent>,
    ) -> Sent {
        let room = self.make_room(buffers, out.len()).min(out.len());
        let (mut packets, mut bytes) = (0, 0);
        let sent = lend_each((&mut self.loans, buffers), (&out[..room], self.longest), lend, |frame| {
            self.send.put(Descriptor::new(frame.at, frame.len));
            packets += 1;
            bytes += frame.len as u64;
        });
        self.send.publish();
        self.push();
        Sent { packets, bytes, device_full: sent.device_full + (out.len() - room) as u64, ..sent }
    }

    fn left(&mut self) -> Left {
        self.push();
        let waiting = self.send.waiting();
        let untold = std::mem::replace(&mut self.left, waiting).min(waiting)..waiting;
        let bytes = untold.clone().map(|number| self.send.waits_at(number).len() as u64).sum();
        Left { packets: untold.len() as u64, bytes }
    }

    fn push(&mut self) {
        for _ in 0..RETRIES {
            if self.send.waiting() == 0 || !self.send.needs_wakeup() {
                return;
            }
            // EAGAIN: some packets have been sent, ask again. Any other error means that the device has no room now.
            match self.socket.wake_send() {
                Err(error) if !matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EBUSY)) => return,
                _ => {}
            }
        }
    }
}
