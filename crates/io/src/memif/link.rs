//! The control channel, from the first message to the last: how two programs establish shared memory.
//!
//! ```text
//!  server                           client
//!  HELLO (what it can do)      ──▶
//!                              ◀──  INIT (which interface)
//!                              ◀──  ADD_REGION, ADD_RING … (memory, events)
//!  ACK to each of these        ──▶
//!                              ◀──  CONNECT
//!  CONNECTED                   ──▶       packets go both ways until one of them closes
//! ```
//!
//! For each port, a thread repeats this whenever a connection ends: either side may come and go while Braid runs.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::message::{Message, SECRET, VERSION};
use super::sys::{self, Channel, Descriptor, Region, Ring};
use crate::device::sys as device;
use crate::secret::is_same;
use crate::stale_socket::{BoundPath, Occupied, make_room};

/// Number of descriptors in a ring that we create, as a power of two.
const LOG2_RING: u8 = 10;
/// Number of descriptors in the largest ring that we accept, as a power of two.
const LOG2_RING_MAX: u8 = 15;
/// Size in bytes of a buffer that we create.
pub(super) const BUFFER: usize = 2048;
/// Maximum numbers of regions and of rings that a client may announce.
const REGIONS_MAX: u16 = 16;
const RINGS_MAX: u16 = 16;
/// Time limit of a single wait, which bounds how late the thread notices that it must end.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time limit for the other side's part of the handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(3);

/// The two sides of a connection; the client allocates the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Server,
    Client,
}

/// What a port requests.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) path: PathBuf,
    pub(super) side: Side,
    pub(super) id: u32,
    pub(super) secret: [u8; SECRET],
}

/// A ring, its region, and the event descriptor on which its consumer sleeps.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) ring: Ring,
    pub(super) region: u16,
    pub(super) events: OwnedFd,
}

/// Shared memory with its rings: the state of one connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) side: Side,
    regions: Vec<Region>,
    /// Rings from which we receive.
    pub(super) inward: Vec<Lane>,
    /// Rings to which we send.
    pub(super) outward: Vec<Lane>,
}

impl Link {
    pub(super) fn region(&self, index: u16) -> Option<&Region> {
        self.regions.get(usize::from(index))
    }

    /// Whether the other side has taken all that was sent to it.
    fn is_taken(&self) -> bool {
        self.outward.iter().all(|Lane { ring, region, .. }| {
            let Some(region) = self.region(*region) else { return true };
            let given = ring.head(region).wrapping_sub(ring.tail(region));
            // The client fills empty rings; the server's rings are full of empty buffers when all have come back.
            given == if self.side == Side::Client { 0 } else { ring.size() }
        })
    }
}

/// The connection of a port, which may be lost and re-established.
#[derive(Debug, Default)]
pub(super) struct Shared {
    link: Mutex<Option<Arc<Link>>>,
    /// Incremented with each change of the link, under its lock.
    generation: AtomicU32,
    ended: AtomicBool,
}

impl Shared {
    /// Number of the current connection. Relaxed: a thread that notices a change late continues with memory that is still mapped.
    pub(super) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The connection and its number, read together so that nobody takes the same connection twice and restarts its rings.
    pub(super) fn link(&self) -> (u32, Option<Arc<Link>>) {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        (self.generation(), link.clone())
    }

    fn set(&self, link: Option<Arc<Link>>) {
        let mut place = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        *place = link;
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Tells the thread to end soon.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// The listening socket of a server; dropping it removes its path.
#[derive(Debug)]
pub(super) struct Listener {
    channel: Channel,
    _path: BoundPath,
}

impl Listener {
    /// Opens a listening socket; takes over a path at which nobody answers any more.
    pub(super) fn open(path: &Path) -> Result<Listener, Occupied> {
        make_room(path, |path| Channel::connect(path).map(drop))?;
        let channel = Channel::listen(path)?;
        let bound = BoundPath::of(path);
        channel.patience(PATIENCE)?;
        Ok(Listener { channel, _path: bound })
    }
}

/// Establishes the connection and re-establishes it whenever it is lost, until the port ends.
pub(super) fn keep(wish: &Wish, listener: Option<&Listener>, shared: &Shared) {
    while !shared.has_ended() {
        let connection = match listener {
            Some(listener) => listener.channel.accept(),
            None => Channel::connect(&wish.path),
        };
        match connection.and_then(|channel| establish(wish, channel)) {
            Ok((channel, link)) => {
                let link = Arc::new(link);
                shared.set(Some(Arc::clone(&link)));
                watch(&channel, &link, shared);
                shared.set(None);
            }
            // Nobody is there, or the other side is incompatible: try again a little later.
            Err(_) => std::thread::sleep(PATIENCE),
        }
    }
}

/// Waits until the connection ends or the port is to end.
fn watch(channel: &Channel, link: &Link, shared: &Shared) {
    while !shared.has_ended() {
        match channel.receive() {
            Ok((Message::Disconnect { .. }, _)) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
    // The other side may give up its rings as soon as it hears of it.
    let until = Instant::now() + PATIENCE;
    while !link.is_taken() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = channel.send(&Message::Disconnect { reason: "braid ends".to_owned() }, None);
}

fn establish(wish: &Wish, channel: Channel) -> io::Result<(Channel, Link)> {
    channel.patience(PATIENCE)?;
    let conversation = Conversation { channel, give_up: Instant::now() + HANDSHAKE_MAX };
    let link = match wish.side {
        Side::Server => conversation.serve(wish),
        Side::Client => conversation.ask(wish),
    };
    match link {
        Ok(link) => Ok((conversation.channel, link)),
        Err(error) => {
            let reason = error.to_string();
            // It does not matter if the other side has already gone.
            let _ = conversation.channel.send(&Message::Disconnect { reason }, None);
            Err(error)
        }
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.to_owned())
}

struct Conversation {
    channel: Channel,
    give_up: Instant,
}

/// What a client has announced so far.
#[derive(Default)]
struct Told {
    regions: Vec<Region>,
    to_server: Vec<Lane>,
    to_client: Vec<Lane>,
}

impl Conversation {
    fn receive(&self) -> io::Result<(Message, Option<OwnedFd>)> {
        loop {
            match self.channel.receive() {
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < self.give_up => {}
                Ok((Message::Disconnect { reason }, _)) => return Err(refused(&reason)),
                result => return result,
            }
        }
    }

    fn serve(&self, wish: &Wish) -> io::Result<Link> {
        let hello = Message::Hello {
            versions: (VERSION, VERSION),
            regions: REGIONS_MAX - 1,
            rings_to_client: RINGS_MAX - 1,
            rings_to_server: RINGS_MAX - 1,
            log2_ring: LOG2_RING_MAX,
        };
        self.channel.send(&hello, None)?;
        match self.receive()?.0 {
            Message::Init { version, .. } if version != VERSION => return Err(refused("incompatible version")),
            Message::Init { mode, .. } if mode != 0 => return Err(refused("only Ethernet is spoken")),
            Message::Init { id, .. } if id != wish.id => return Err(refused("no such interface")),
            Message::Init { secret, .. } if !is_same(&wish.secret, &secret) => return Err(refused("wrong secret")),
            Message::Init { .. } => self.channel.send(&Message::Ack, None)?,
            _ => return Err(refused("INIT was expected")),
        }
        let mut told = Told::default();
        loop {
            let (message, descriptor) = self.receive()?;
            if message == Message::Connect {
                break;
            }
            told.take(message, descriptor)?;
            self.channel.send(&Message::Ack, None)?;
        }
        let Told { regions, to_server, to_client } = told;
        if to_server.is_empty() || to_client.is_empty() {
            return Err(refused("a ring each way is needed"));
        }
        self.channel.send(&Message::Connected, None)?;
        Ok(Link { side: Side::Server, regions, inward: to_server, outward: to_client }.begin())
    }

    fn ask(&self, wish: &Wish) -> io::Result<Link> {
        let log2 = match self.receive()?.0 {
            Message::Hello { versions: (min, max), log2_ring, .. } if (min..=max).contains(&VERSION) => {
                log2_ring.min(LOG2_RING)
            }
            Message::Hello { .. } => return Err(refused("incompatible version")),
            _ => return Err(refused("HELLO was expected")),
        };
        self.tell(&Message::Init { version: VERSION, id: wish.id, mode: 0, secret: wish.secret }, None)?;
        let (ring, buffers) = (Ring::bytes(log2).next_multiple_of(64), BUFFER << log2);
        let size = 2 * (ring + buffers);
        let memory = sys::memory(size)?;
        let region = Region::own(&memory, size)?;
        self.tell(&Message::AddRegion { index: 0, size: size as u64 }, Some(&memory))?;
        let mut lanes = Vec::new();
        for (number, to_server) in [(0, true), (1, false)] {
            let lane = lay_out(&region, number * ring, log2, 2 * ring + number * buffers)?;
            let offset = (number * ring) as u32;
            let message = Message::AddRing { to_server, index: 0, region: 0, offset, log2_ring: log2 };
            self.tell(&message, Some(&lane.events))?;
            lanes.push(lane);
        }
        self.channel.send(&Message::Connect, None)?;
        if self.receive()?.0 != Message::Connected {
            return Err(refused("CONNECTED was expected"));
        }
        let inward: Vec<Lane> = lanes.pop().into_iter().collect();
        // Only now, because DPDK's server resets all counters to zero when it connects.
        inward.iter().for_each(|lane| lane.ring.set_head(&region, lane.ring.size()));
        Ok(Link { side: Side::Client, regions: vec![region], inward, outward: lanes }.begin())
    }

    /// Sends a message and waits for the server's acknowledgement.
    fn tell(&self, message: &Message, descriptor: Option<&OwnedFd>) -> io::Result<()> {
        self.channel.send(message, descriptor)?;
        match self.receive()?.0 {
            Message::Ack => Ok(()),
            _ => Err(refused("ACK was expected")),
        }
    }
}

impl Link {
    /// Declares on every ring from which we receive that we poll it.
    fn begin(self) -> Link {
        for lane in &self.inward {
            if let Some(region) = self.region(lane.region) {
                lane.ring.want_no_events(region);
            }
        }
        self
    }
}

/// Initialises a new ring with a buffer for each descriptor.
fn lay_out(region: &Region, offset: usize, log2: u8, buffers: usize) -> io::Result<Lane> {
    let ring = Ring::at(region, offset, log2).ok_or_else(|| refused("a ring outside its region"))?;
    ring.begin(region);
    for slot in 0..ring.size() {
        let offset = (buffers + usize::from(slot) * BUFFER) as u32;
        let descriptor = Descriptor { len: BUFFER as u32, offset, ..Descriptor::default() };
        ring.set_descriptor(region, slot, descriptor);
    }
    Ok(Lane { ring, region: 0, events: device::events()? })
}

impl Told {
    fn take(&mut self, message: Message, descriptor: Option<OwnedFd>) -> io::Result<()> {
        match (message, descriptor) {
            (Message::AddRegion { index, size }, Some(memory)) => {
                if usize::from(index) != self.regions.len() || index >= REGIONS_MAX {
                    return Err(refused("regions are numbered in order"));
                }
                self.regions.push(Region::map(&memory, size)?);
            }
            (Message::AddRing { to_server, index, region, offset, log2_ring }, Some(events)) => {
                let lanes = if to_server { &mut self.to_server } else { &mut self.to_client };
                if usize::from(index) != lanes.len() || index >= RINGS_MAX {
                    return Err(refused("rings are numbered in order"));
                }
                let memory = self.regions.get(usize::from(region)).ok_or_else(|| refused("no such region"))?;
                let ring = Ring::at(memory, offset as usize, log2_ring).filter(|ring| ring.has_begun(memory));
                let ring = ring.ok_or_else(|| refused("no ring there"))?;
                device::take_events(&events)?;
                lanes.push(Lane { ring, region, events });
            }
            (_, None) => return Err(refused("a descriptor is missing")),
            _ => return Err(refused("ADD_REGION, ADD_RING or CONNECT was expected")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Connection;
    use super::*;

    #[test]
    fn a_connection_is_taken_up_once_however_quickly_it_changes() {
        let shared = Arc::new(Shared::default());
        let changing = Arc::clone(&shared);
        let link = || Link { side: Side::Server, regions: Vec::new(), inward: Vec::new(), outward: Vec::new() };
        let changes = std::thread::spawn(move || (0..200_000).for_each(|_| changing.set(Some(Arc::new(link())))));
        let mut connection = Connection::new(&shared);
        while !changes.is_finished() {
            let before = connection.link.clone();
            if connection.refresh() {
                let is_same = before.zip(connection.link.clone()).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
                assert!(!is_same, "its rings would begin anew");
            }
        }
    }
}
