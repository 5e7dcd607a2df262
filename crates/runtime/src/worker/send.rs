//! Sending: packets leave by their port, are copied to all ports or are counted as dropped; and the packets that functions made.

use braid_nf::{Leg, Reason, Verdict};
use braid_packet::{Batch, Flags, FrameInfo, Link, Port, Record, parse, protocol};

use super::Worker;
use crate::observe::counters::PortCounters;

/// Drop reason: no buffer was free for a packet that a function made.
pub(super) const NO_BUFFER: Reason = Reason("no_buffer");
/// Drop reason: in a mirrored chain, a function between the packet's maker and its port translates addresses. Untranslated, the packet
/// would reveal the addresses of the inside.
const NOT_TRANSLATED: Reason = Reason("made_before_translator");

impl Worker {
    /// Sends the packets made by handlers that have no packet.
    pub(super) fn send_made(&mut self) {
        if !self.logs.emitted.is_empty() {
            self.send_own();
            self.go_on();
        }
    }

    /// Sends the remaining packets, copies made by flooding and the packets that functions made.
    #[inline(never)]
    pub(super) fn send(&mut self) {
        let horizon = self.note_next();
        self.send_batch();
        self.go_on();
        self.promise(horizon);
    }

    /// Sends the current batch; packets for further functions are queued (`put_aside`).
    #[inline(always)]
    pub(super) fn send_batch(&mut self) {
        self.witness.finished(&self.batch, &self.verdicts, &self.logs.emitted);
        if let Some(tracer) = &mut self.tracer {
            tracer.finish(&self.batch, &self.verdicts);
        }
        self.out.clear();
        let all_once = self.verdicts.ports_of(&self.todo, self.parts.ports, &mut self.out);
        if !all_once {
            self.decide_each();
        }
        let whole = all_once && self.out.len() == self.batch.len();
        self.counters.bytes_out += if whole { self.batch.present_bytes() } else { self.batch.total_len(&self.out) };
        self.counters.packets_out += self.out.len() as u64;
        if !self.counters.ports.is_empty() {
            count_departures(&mut self.counters.ports, &self.batch, &self.out);
        }
        self.parts.send.send_owned(&mut self.batch, &mut self.buffers, &self.out);
        if !self.logs.emitted.is_empty() {
            self.send_own();
        }
        self.batch.release(&mut self.buffers);
    }

    /// Decides each packet's ports when some packets are flooded or were forwarded to a port that does not exist.
    #[inline(never)]
    fn decide_each(&mut self) {
        self.out.clear();
        for at in 0..self.todo.len() {
            let i = self.todo[at];
            match self.verdicts.get(i as usize) {
                Verdict::Forward(port) if port < self.parts.ports => self.out.push((i, port)),
                Verdict::Forward(_) => self.counters.drops.add("runtime", Reason::NO_SUCH_PORT, 1),
                Verdict::Flood => self.flood(i),
                Verdict::Drop(_) | Verdict::Onward => unreachable!("dropped packets leave `todo`; onward is not kept"),
            }
        }
    }

    /// Counts the packets of a new batch by the port on which they arrived.
    #[cold]
    pub(super) fn count_arrivals(&mut self) {
        for (i, record) in self.batch.records().iter().enumerate() {
            if let Some(port) = self.counters.ports.get_mut(usize::from(record.port)) {
                port.packets_in += 1;
                port.bytes_in += u64::from(self.batch.wire_len(i));
            }
        }
    }

    fn flood(&mut self, i: u16) {
        let from = self.batch.records()[i as usize].port;
        let before = self.out.len();
        self.out.extend((0..self.parts.ports).filter(|&port| port != from).map(|port| (i, port)));
        match self.out.len() - before {
            0 => self.counters.drops.add("runtime", Reason::NOWHERE_TO_FLOOD, 1),
            copies => self.counters.packets_copied += copies as u64 - 1,
        }
    }

    #[cold]
    pub(super) fn send_own(&mut self) {
        let emitted = std::mem::take(&mut self.logs.emitted);
        for ((cause, port, bytes), (maker, leg)) in emitted.iter().zip(emitted.legs()) {
            let i = if (cause as usize) < self.batch.len() { cause as usize } else { 0 };
            if let Leg::Lost(reason, packets) = leg {
                self.counters.packets_copied += u64::from(packets);
                self.counters.drops.add(self.parts.chain.stages()[maker].name(), reason, packets.into());
                continue;
            }
            let record = self.batch.records().get(i);
            let (link, may_be_cut) = match leg {
                Leg::Onward(Some(came)) | Leg::Past(came) => (came.link, came.may_be_cut),
                _ => {
                    record.map_or((Link::default(), false), |record| (record.flags.link(), self.may_be_cut(i, record)))
                }
            };
            let info = FrameInfo {
                port,
                link,
                timestamp_ns: if self.batch.is_empty() { self.last_ns } else { self.batch.timestamp_ns(i) },
                wire_len: if may_be_cut { promised_len(bytes, link) } else { bytes.len() } as u32,
                sequence: if self.batch.is_empty() { self.made_next } else { self.batch.sequence(i) },
            };
            // What goes on or back has passed all functions on its way if none is left.
            let goes_straight = match leg {
                Leg::Straight => true,
                Leg::Onward(None) | Leg::Back(None) => usize::from(cause) >= self.batch.len(),
                Leg::Onward(Some(_)) | Leg::Past(_) | Leg::Back(Some(_)) | Leg::Lost(..) => false,
            };
            self.counters.packets_copied += 1;
            if leg != Leg::Straight && self.put_aside((cause, maker, leg), port, bytes, info) {
                continue;
            }
            if self.own.room() == 0 {
                self.send_batch_of_own();
            }
            if port >= self.parts.ports {
                self.counters.drops.add("runtime", Reason::NO_SUCH_PORT, 1);
            } else if goes_straight && self.parts.chain.translates_between(maker, port) && is_routed(bytes, info.link) {
                self.counters.drops.add(self.parts.chain.stages()[maker].name(), NOT_TRANSLATED, 1);
            } else if self.own.copy_in(&mut self.buffers, bytes, &info) {
                self.counters.packets_out += 1;
                self.counters.bytes_out += bytes.len() as u64;
            } else {
                self.counters.drops.add("runtime", NO_BUFFER, 1);
            }
        }
        self.send_batch_of_own();
        self.logs.emitted = emitted;
        self.logs.emitted.truncate(0);
    }

    /// Whether bytes of what was made of packet `i` may be missing because a capture cut that packet.
    fn may_be_cut(&self, i: usize, record: &Record) -> bool {
        !record.flags.has(Flags::SHORT) || self.batch.wire_len(i) as usize > record.len()
    }

    fn send_batch_of_own(&mut self) {
        self.out.clear();
        self.out.extend(self.own.records().iter().enumerate().map(|(i, record)| (i as u16, record.port)));
        if !self.counters.ports.is_empty() {
            count_departures(&mut self.counters.ports, &self.own, &self.out);
        }
        self.parts.send.send_owned(&mut self.own, &mut self.buffers, &self.out);
        self.own.release(&mut self.buffers);
    }
}

/// The length of a frame with the bytes that its IP header promises, but that are missing.
fn promised_len(frame: &[u8], link: Link) -> usize {
    let found = parse(frame, link);
    let header = frame.get(usize::from(found.l3)..).unwrap_or_default();
    let (at, fixed) = if found.flags.has(Flags::V6) { (4, 40) } else { (2, 0) };
    match header.get(at..at + 2) {
        Some(&[high, low]) if found.flags.has(Flags::IP) && found.flags.has(Flags::SHORT) => {
            frame.len().max(usize::from(found.l3) + fixed + usize::from(u16::from_be_bytes([high, low])))
        }
        _ => frame.len(),
    }
}

/// Whether a frame is an IP packet that may leave its link. Neighbour discovery does not (hop limit 255, RFC 4861 section 7.1), nor do packets to
/// groups of the link, such as reports of groups (RFC 3810 section 5, RFC 3376 section 4).
fn is_routed(frame: &[u8], link: Link) -> bool {
    let found = parse(frame, link);
    let header = frame.get(usize::from(found.l3)..).unwrap_or_default();
    let stays = if found.flags.has(Flags::V6) {
        let is_discovery = found.proto == protocol::ICMPV6 && header.get(7) == Some(&255);
        is_discovery || header.get(24) == Some(&0xff) && header.get(25).is_some_and(|scope| scope & 0xf <= 2)
    } else {
        header.get(16..19) == Some(&[224, 0, 0])
    };
    found.flags.has(Flags::IP) && !stays
}

/// Counts packets by the port on which they leave.
#[cold]
fn count_departures(ports: &mut [PortCounters], batch: &Batch, out: &[(u16, Port)]) {
    for &(i, port) in out {
        if let Some(port) = ports.get_mut(usize::from(port)) {
            port.packets_out += 1;
            port.bytes_out += batch.records()[usize::from(i)].len() as u64;
        }
    }
}
