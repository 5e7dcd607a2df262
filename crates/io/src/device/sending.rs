//! The sink over all ports of a plan: each worker sorts its outgoing packets by port.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use braid_packet::{Batch, Buffers, Port};

use super::live::{Left, Sent, TxPort};
use super::ports::{DeviceCounters, Ports};
use crate::sink::{Sink, SinkError, TxCounters, TxQueue};
use crate::source::OpenError;

/// Sends to all ports.
pub struct LiveSink {
    pub(super) ports: Ports,
}

impl Sink for LiveSink {
    fn name(&self) -> String {
        self.ports.name()
    }

    fn open(self: Box<Self>, queues: usize) -> Result<Vec<Box<dyn TxQueue>>, OpenError> {
        let sending = std::mem::take(&mut *self.ports.sending());
        if sending.len() != queues {
            return Err(OpenError::Nothing { what: "ports are prepared before they are opened, for as many queues" });
        }
        let queue = |ports: Vec<Box<dyn TxPort>>| {
            let lists = ports.iter().map(|_| Vec::new()).collect();
            let counters = self.ports.counters();
            Box::new(LiveTx { ports, lists, counters, total: TxCounters::default(), seen: [0; 4] }) as Box<dyn TxQueue>
        };
        Ok(sending.into_iter().map(queue).collect())
    }
}

/// One worker's send side of all ports.
struct LiveTx {
    ports: Vec<Box<dyn TxPort>>,
    /// For each port, the packets of the batch to send.
    lists: Vec<Vec<u16>>,
    counters: Arc<[DeviceCounters]>,
    total: TxCounters,
    /// One bit for each packet of a batch, to detect duplicates.
    seen: [u64; 4],
}

impl LiveTx {
    /// Sorts packets by port. Returns whether any packet is to be sent more than once.
    fn sort(&mut self, out: &[(u16, Port)]) -> bool {
        self.lists.iter_mut().for_each(Vec::clear);
        self.seen = [0; 4];
        let mut any_twice = false;
        for &(i, port) in out {
            let Some(list) = self.lists.get_mut(usize::from(port)) else {
                self.total.no_such_port += 1;
                continue;
            };
            list.push(i);
            let (word, bit) = ((usize::from(i) / 64) & 3, 1u64 << (i % 64));
            any_twice |= self.seen[word] & bit != 0;
            self.seen[word] |= bit;
        }
        any_twice
    }

    fn note(&mut self, port: usize, sent: Sent) {
        let counters = &self.counters[port];
        self.total.packets += sent.packets;
        self.total.bytes += sent.bytes;
        self.total.device_full += sent.device_full;
        self.total.too_long += sent.too_long;
        counters.tx_packets.fetch_add(sent.packets, Ordering::Relaxed);
        counters.tx_bytes.fetch_add(sent.bytes, Ordering::Relaxed);
        counters.tx_dropped.fetch_add(sent.device_full + sent.too_long, Ordering::Relaxed);
    }

    /// Counts packets that were sent and that the device has not taken, since it is down or too slow, as those for which it had no room. One of
    /// several workers does so for a queue that they share, so its own counts may be lower.
    fn take_back(&mut self, port: usize, left: Left) {
        let counters = &self.counters[port];
        self.total.packets = self.total.packets.saturating_sub(left.packets);
        self.total.bytes = self.total.bytes.saturating_sub(left.bytes);
        self.total.device_full += left.packets;
        counters.tx_packets.fetch_sub(left.packets, Ordering::Relaxed);
        counters.tx_bytes.fetch_sub(left.bytes, Ordering::Relaxed);
        counters.tx_dropped.fetch_add(left.packets, Ordering::Relaxed);
    }
}

impl TxQueue for LiveTx {
    fn send(&mut self, _: &Batch, _: &[(u16, Port)]) {
        unreachable!("workers send by send_owned");
    }

    fn send_owned(&mut self, batch: &mut Batch, buffers: &mut Buffers, out: &[(u16, Port)]) {
        let any_twice = self.sort(out);
        for port in 0..self.ports.len() {
            let list = std::mem::take(&mut self.lists[port]);
            // A packet that leaves by two ports cannot be given to either, so all packets are copied, which keeps their order.
            let sent = match (list.is_empty(), any_twice) {
                (true, _) => Sent::default(),
                (false, true) => self.ports[port].send(batch, buffers, &list),
                (false, false) => self.ports[port].send_owned(batch, buffers, &list),
            };
            self.lists[port] = list;
            if sent != Sent::default() {
                self.note(port, sent);
            }
        }
    }

    fn progress(&mut self, _: u64) {
        self.ports.iter_mut().for_each(|port| port.push());
    }

    fn counters(&self) -> TxCounters {
        self.total
    }

    fn finish(&mut self) -> Result<TxCounters, SinkError> {
        for port in 0..self.ports.len() {
            let left = self.ports[port].left();
            self.take_back(port, left);
        }
        Ok(self.total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that takes everything, and has not sent this much of it in the end.
    struct Slow(Left);

    impl TxPort for Slow {
        fn send(&mut self, _: &Batch, _: &mut Buffers, _: &[u16]) -> Sent {
            unreachable!("nothing is sent here")
        }

        fn left(&mut self) -> Left {
            std::mem::take(&mut self.0)
        }
    }

    #[test]
    fn what_the_device_has_not_taken_in_the_end_was_not_sent() {
        let ports: Vec<Box<dyn TxPort>> =
            vec![Box::new(Slow(Left::default())), Box::new(Slow(Left { packets: 20, bytes: 1200 }))];
        let counters: Arc<[DeviceCounters]> = (0..2).map(|_| DeviceCounters::default()).collect();
        let lists = vec![Vec::new(); 2];
        let mut queue = LiveTx { ports, lists, counters, total: TxCounters::default(), seen: [0; 4] };
        for port in 0..2 {
            queue.note(port, Sent { packets: 50, bytes: 3000, ..Sent::default() });
        }
        let sent = queue.finish().expect("it ends");
        assert_eq!((sent.packets, sent.bytes, sent.device_full), (80, 4800, 20));
        let port = |port: usize| {
            let counters = &queue.counters[port];
            [&counters.tx_packets, &counters.tx_bytes, &counters.tx_dropped].map(|count| count.load(Ordering::Relaxed))
        };
        assert_eq!((port(0), port(1)), ([50, 3000, 0], [30, 1800, 20]));
    }
}
