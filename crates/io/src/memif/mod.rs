//! The memif back end: packets through memory shared with another program, such as VPP, DPDK or another Braid (protocol version 2.0).
//!
//! It needs no privileges, and the kernel takes no part in the transfer of packets. A packet is copied into the shared buffer and
//! copied out again, because the other side may change shared memory at any time. The client allocates the memory. Server and
//! client may come and go; without a connection nothing is received, and packets to be sent are counted as `device_full`. Braid
//! sends through one ring and receives from all. Frames longer than a buffer are received as chains of buffers, but not sent.

mod link;
mod message;
mod sys;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use braid_packet::pool::JUMBO_FRAME_MAX;
use braid_packet::{Batch, Buffers};

use self::link::{Lane, Link, Listener, Shared, Side, Wish, keep};
use self::message::SECRET;
use self::sys::Descriptor;
use crate::device::MemifKeys;
use crate::device::live::{Arrivals, RxPort, Sent, TxPort};
use crate::device::sys as device_sys;

/// Descriptor flag: the frame continues in the next descriptor.
const NEXT: u16 = 1;
/// Length of the shortest frame that is received: an Ethernet header.
const FRAME_MIN: usize = 14;
/// Maximum number of buffers in one frame.
const CHAIN_MAX: usize = 64;

/// Opens the port with one receiver and `senders` senders; the other side may connect later.
pub(crate) fn open(path: &str, keys: &MemifKeys, senders: usize) -> io::Result<(Receiver, Vec<Transmitter>)> {
    let mut secret = [0; SECRET];
    let given = keys.secret.as_bytes();
    secret[..given.len().min(SECRET)].copy_from_slice(&given[..given.len().min(SECRET)]);
    let side = if keys.is_server { Side::Server } else { Side::Client };
    let wish = Wish { path: PathBuf::from(path), side, id: keys.id, secret };
    let listener = if keys.is_server { Some(Listener::open(&wish.path).map_err(io::Error::other)?) } else { None };
    let shared = Arc::new(Shared::default());
    let keeping = Arc::clone(&shared);
    let thread = std::thread::Builder::new().name("braid-memif".to_owned());
    let thread = thread.spawn(move || keep(&wish, listener.as_ref(), &keeping))?;
    let out = Arc::new(Mutex::new(Out { connection: Connection::new(&shared), next: 0 }));
    let senders = (0..senders).map(|_| Transmitter { out: Arc::clone(&out) }).collect();
    let connection = Connection::new(&shared);
    Ok((
        Receiver {
            connection,
            positions: Vec::new(),
            frame: Vec::new(),
            held: false,
            farewell: 0,
            senseless: 0,
            thread: Some(thread),
            shared,
        },
        senders,
    ))
}

/// The current link, fetched again when it has changed.
struct Connection {
    shared: Arc<Shared>,
    generation: u32,
    link: Option<Arc<Link>>,
}

impl Connection {
    fn new(shared: &Arc<Shared>) -> Connection {
        Connection { shared: Arc::clone(shared), generation: 0, link: None }
    }

    /// Whether the link has changed.
    fn is_old(&self) -> bool {
        self.shared.generation() != self.generation
    }

    /// Updates the link; returns whether it has changed.
    fn refresh(&mut self) -> bool {
        let is_new = self.is_old();
        if is_new {
            (self.generation, self.link) = self.shared.link();
        }
        is_new
    }
}

/// The receive side.
pub(crate) struct Receiver {
    connection: Connection,
    /// Next descriptor of each ring.
    positions: Vec<u16>,
    frame: Vec<u8>,
    /// Whether `frame` has been read but not taken yet.
    held: bool,
    /// How many more descriptors of a link that has ended are looked at; its peer may still write to the rings.
    farewell: usize,
    /// Number of invalid descriptors.
    senseless: u64,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Receiver {
    /// Reads the frame that begins at `position`, with all of its pieces. Returns whether it is valid, and how many descriptors it takes.
    fn read(frame: &mut Vec<u8>, link: &Link, lane: &Lane, position: u16, filled: u16) -> (bool, u16) {
        frame.clear();
        let Some(ring_region) = link.region(lane.region) else { return (false, filled) };
        for piece in 0..filled.min(CHAIN_MAX as u16) {
            let descriptor = lane.ring.descriptor(ring_region, position.wrapping_add(piece));
            let (offset, len) = (descriptor.offset as usize, descriptor.len as usize);
            let region = link.region(descriptor.region).filter(|_| frame.len() + len <= JUMBO_FRAME_MAX);
            let is_read = region.is_some_and(|region| region.copy_out(offset, len, frame));
            if !is_read || descriptor.flags & NEXT == 0 {
                return (is_read, piece + 1);
            }
        }
        (false, filled.min(CHAIN_MAX as u16))
    }

    /// Receives from all rings of a link; returns how many descriptors it has taken.
    fn drain_all(&mut self, link: &Link, into: &mut Arrivals<'_>) -> usize {
        let mut taken = 0;
        for number in 0..link.inward.len() {
            if !self.held {
                taken += self.drain(link, number, into);
            }
        }
        taken
    }

    /// Takes what a peer has put into the rings before it left; returns whether that is done. Its descriptors are still mapped.
    fn take_leave(&mut self, into: &mut Arrivals<'_>) -> bool {
        let Some(link) = self.connection.link.clone() else { return true };
        let taken = self.drain_all(&link, into);
        self.farewell = self.farewell.saturating_sub(taken);
        let is_over = self.farewell == 0 || taken == 0 && into.has_room();
        !self.held && is_over
    }

    /// Receives from one ring; returns how many descriptors it has taken.
    fn drain(&mut self, link: &Link, number: usize, into: &mut Arrivals<'_>) -> usize {
        let lane = &link.inward[number];
        let Some(region) = link.region(lane.region) else { return 0 };
        let (ring, begun) = (lane.ring, self.positions[number]);
        let so_far = |position: u16| usize::from(position.wrapping_sub(begun));
        // This bounds the delay by a peer that offers only invalid descriptors as fast as it can.
        for _ in 0..ring.size() {
            if !into.has_room() {
                break;
            }
            let position = self.positions[number];
            let end = if link.side == Side::Server { ring.head(region) } else { ring.tail(region) };
            // The other side controls this counter: values beyond the size of the ring are invalid.
            let filled = end.wrapping_sub(position).min(ring.size());
            if filled == 0 {
                break;
            }
            let (is_read, taken) = Receiver::read(&mut self.frame, link, lane, position, filled);
            self.positions[number] = position.wrapping_add(taken);
            give_back(link, lane, position, taken);
            if !is_read || self.frame.len() < FRAME_MIN {
                self.senseless += 1;
            } else if !into.put(&self.frame) {
                self.held = true;
                break;
            }
        }
        so_far(self.positions[number])
    }
}

/// Returns descriptors to the other side: on the server unchanged, on the client as empty buffers.
fn give_back(link: &Link, lane: &Lane, position: u16, taken: u16) {
    let Some(region) = link.region(lane.region) else { return };
    if link.side == Side::Server {
        lane.ring.set_tail(region, position.wrapping_add(taken));
        return;
    }
    for piece in 0..taken {
        let slot = position.wrapping_add(piece);
        let offset = lane.ring.descriptor(region, slot).offset;
        lane.ring.set_descriptor(
            region,
            slot,
            Descriptor { len: link::BUFFER as u32, offset, ..Descriptor::default() },
        );
    }
    let head = lane.ring.head(region).wrapping_add(taken);
    lane.ring.set_head(region, head);
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        if self.held {
            if !into.put(&self.frame) {
                return;
            }
            self.held = false;
        }
        if self.connection.is_old() && !self.take_leave(into) {
            return;
        }
        if self.connection.refresh() {
            let inward = self.connection.link.as_ref().map_or(&[][..], |link| &link.inward);
            self.positions = vec![0; inward.len()];
            self.farewell = inward.iter().map(|lane| usize::from(lane.ring.size())).sum();
        }
        if let Some(link) = self.connection.link.clone() {
            self.drain_all(&link, into);
        }
    }

    fn missed(&mut self) -> u64 {
        self.senseless
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // The thread sends its goodbye message and removes the socket.
            let _ = thread.join();
        }
    }
}

/// The send side, shared by all workers.
struct Out {
    connection: Connection,
    /// The next descriptor to use.
    next: u16,
}

impl Out {
    fn send(&mut self, batch: &Batch, out: &[u16]) -> Sent {
        let mut sent = Sent::default();
        if self.connection.refresh() {
            self.next = 0;
        }
        let lane = self.connection.link.as_ref().and_then(|link| Some((link, link.outward.first()?)));
        let Some((link, lane)) = lane else { return Sent { device_full: out.len() as u64, ..sent } };
        let Some(region) = link.region(lane.region) else { return Sent { device_full: out.len() as u64, ..sent } };
        let ring = lane.ring;
        let free = match link.side {
            Side::Client => ring.size() - self.next.wrapping_sub(ring.tail(region)).min(ring.size()),
            Side::Server => ring.head(region).wrapping_sub(self.next).min(ring.size()),
        };
        let mut taken = 0;
        for &i in out {
            let frame = batch.bytes(i.into());
            if taken == free {
                sent.device_full += 1;
                continue;
            }
            let slot = self.next.wrapping_add(taken);
            if put(link, lane, slot, frame) {
                taken += 1;
                sent.packets += 1;
                sent.bytes += frame.len() as u64;
            } else {
                sent.too_long += 1;
            }
        }
        self.next = self.next.wrapping_add(taken);
        match link.side {
            Side::Client => ring.set_head(region, self.next),
            Side::Server => ring.set_tail(region, self.next),
        }
        if taken > 0 && ring.wants_events(region) {
            device_sys::wake_other(&lane.events);
        }
        sent
    }
}

/// Writes a frame to the buffer of a descriptor; returns false if it does not fit.
fn put(link: &Link, lane: &Lane, slot: u16, frame: &[u8]) -> bool {
    let Some(region) = link.region(lane.region) else { return false };
    let descriptor = lane.ring.descriptor(region, slot);
    // On the client the buffers are our own; on the server their size is what the client offers.
    let room = if link.side == Side::Client { link::BUFFER } else { descriptor.len as usize };
    let fits = frame.len() <= room
        && link.region(descriptor.region).is_some_and(|region| region.copy_in(descriptor.offset as usize, frame));
    if fits {
        let filled = Descriptor { flags: 0, len: frame.len() as u32, ..descriptor };
        lane.ring.set_descriptor(region, slot, filled);
    }
    fits
}

/// One worker's access to the send side.
pub(crate) struct Transmitter {
    out: Arc<Mutex<Out>>,
}

impl TxPort for Transmitter {
    fn send(&mut self, batch: &Batch, _: &mut Buffers, out: &[u16]) -> Sent {
        // Ignore poisoning: after a panic, some descriptors are just not published.
        self.out.lock().unwrap_or_else(PoisonError::into_inner).send(batch, out)
    }
}

#[cfg(test)]
mod tests;
