//! Tests with two of our ports on one socket, and with a peer that lies.

use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use braid_memory::HugePages;
use braid_packet::{BATCH_MAX, Batch, FrameInfo, Layout, Pool, PoolConfig};

use super::message::{Message, VERSION};
use super::sys::{Channel, Ring};
use super::*;

struct Place {
    batch: Batch,
    buffers: Buffers,
}

impl Place {
    fn new() -> Place {
        let pool = Pool::new(&PoolConfig { buffers: 1024, jumbos: 2, pages: HugePages::Never }).unwrap();
        Place { batch: Batch::new(&pool, &Arc::new(Layout::bare())), buffers: Buffers::new(&pool) }
    }

    /// Everything that has arrived.
    fn receive(&mut self, port: &mut Receiver) -> Vec<Vec<u8>> {
        let mut into = Arrivals {
            batch: &mut self.batch,
            buffers: &mut self.buffers,
            wanted: BATCH_MAX,
            port: 0,
            sequence: &mut 0,
            now_ns: &mut None,
            tally: Default::default(),
        };
        port.receive(&mut into);
        let frames = self.batch.frames().map(|(_, bytes)| bytes.to_vec()).collect();
        self.batch.release(&mut self.buffers);
        frames
    }

    fn send(&mut self, port: &mut Transmitter, frames: &[Vec<u8>]) -> Sent {
        for frame in frames {
            assert!(self.batch.copy_in(&mut self.buffers, frame, &FrameInfo::default()));
        }
        let all: Vec<u16> = (0..frames.len() as u16).collect();
        let sent = port.send(&self.batch, &mut self.buffers, &all);
        self.batch.release(&mut self.buffers);
        sent
    }
}

fn eventually(mut attempt: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !attempt() {
        assert!(Instant::now() < give_up, "not within 20 s");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn pair(path: &str, secrets: [&str; 2]) -> [(Receiver, Transmitter); 2] {
    [true, false].map(|is_server| {
        let secret = secrets[usize::from(!is_server)].to_owned();
        let keys = MemifKeys { is_server, id: 3, secret };
        let (receiver, mut senders) = open(path, &keys, 1).unwrap();
        (receiver, senders.remove(0))
    })
}

fn frames(count: usize, seed: usize) -> Vec<Vec<u8>> {
    (0..count).map(|i| vec![(i + seed) as u8; 14 + (i * 37 + seed) % 1500]).collect()
}

#[test]
fn frames_go_both_ways_in_order_and_more_than_a_ring_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let [mut server, mut client] = pair(&path, ["", ""]);
    let mut place = Place::new();
    eventually(|| place.send(&mut client.1, &frames(1, 0)).packets == 1);
    eventually(|| place.receive(&mut server.0).len() == 1);
    for round in 0..30 {
        let some = frames(100, round);
        for (from, to) in [(&mut client.1, &mut server.0), (&mut server.1, &mut client.0)] {
            assert_eq!(place.send(from, &some).packets, 100);
            let mut arrived = Vec::new();
            eventually(|| {
                arrived.extend(place.receive(to));
                arrived.len() == some.len()
            });
            assert_eq!(arrived, some);
        }
    }
}

#[test]
fn what_a_side_sent_before_it_left_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let [mut server, mut client] = pair(&path, ["", ""]);
    let mut place = Place::new();
    eventually(|| place.send(&mut client.1, &frames(1, 0)).packets == 1);
    eventually(|| place.receive(&mut server.0).len() == 1);
    let some = frames(100, 7);
    assert_eq!(place.send(&mut client.1, &some).packets, 100);
    drop(client);
    eventually(|| server.0.connection.is_old());
    let mut arrived = Vec::new();
    eventually(|| {
        arrived.extend(place.receive(&mut server.0));
        arrived.len() == some.len()
    });
    assert_eq!(arrived, some);
}

#[test]
fn a_frame_without_a_whole_ethernet_header_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let [mut server, mut client] = pair(&path, ["", ""]);
    let mut place = Place::new();
    eventually(|| place.send(&mut client.1, &[vec![0; 13], vec![0; 14]]).packets == 2);
    eventually(|| place.receive(&mut server.0).len() == 1);
    assert_eq!(server.0.missed(), 1);
}

#[test]
fn a_file_at_its_path_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious.txt");
    std::fs::write(&path, "precious").unwrap();
    let keys = MemifKeys { is_server: true, ..MemifKeys::default() };
    assert!(open(&path.display().to_string(), &keys, 1).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_full_ring_and_a_long_frame_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let [_server, mut client] = pair(&path, ["", ""]);
    let mut place = Place::new();
    assert_eq!(
        Sent { device_full: 1, ..Sent::default() },
        place.send(&mut Transmitter { out: lonely() }, &frames(1, 0))
    );
    eventually(|| place.send(&mut client.1, &frames(1, 0)).packets == 1);
    let long = place.send(&mut client.1, &[vec![0; link::BUFFER + 1]]);
    assert_eq!(long, Sent { too_long: 1, ..Sent::default() });
    let mut full = 0;
    for _ in 0..11 {
        full += place.send(&mut client.1, &frames(100, 0)).device_full;
    }
    assert_eq!(full, 1 + 1100 - 1024);
}

/// The send side of a port without a connection.
fn lonely() -> Arc<Mutex<Out>> {
    Arc::new(Mutex::new(Out { connection: Connection::new(&Arc::default()), next: 0 }))
}

#[test]
fn a_side_that_comes_back_is_connected_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let [server, mut client] = pair(&path, ["s", "s"]);
    let mut place = Place::new();
    eventually(|| place.send(&mut client.1, &frames(1, 0)).packets == 1);
    drop(server);
    assert!(!std::path::Path::new(&path).exists(), "the socket goes with its server");
    let keys = MemifKeys { is_server: true, id: 3, secret: "s".into() };
    let (mut receiver, _senders) = open(&path, &keys, 1).unwrap();
    eventually(|| {
        place.send(&mut client.1, &frames(1, 5));
        !place.receive(&mut receiver).is_empty()
    });
}

#[test]
fn a_wrong_secret_a_taken_path_and_a_dead_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let [server, mut client] = pair(&path, ["right", "wrong"]);
    let taken = open(&path, &MemifKeys { is_server: true, ..MemifKeys::default() }, 1);
    assert!(taken.is_err_and(|error| error.to_string().contains("somebody answers there")));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(Place::new().send(&mut client.1, &frames(1, 0)).device_full, 1);
    drop(server);
    // A killed server leaves its socket like this: bound, but with nobody behind it.
    drop(Channel::listen(path.as_ref()).unwrap());
    assert!(open(&path, &MemifKeys { is_server: true, ..MemifKeys::default() }, 1).is_ok());
}

#[test]
fn a_client_that_lies_is_turned_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let keys = MemifKeys { is_server: true, ..MemifKeys::default() };
    let _server = open(&path, &keys, 1).unwrap();
    let init = Message::Init { version: VERSION, id: 0, mode: 0, secret: [0; SECRET] };
    let check = |messages: &[(Message, bool)]| {
        let channel = Channel::connect(path.as_ref()).unwrap();
        channel.patience(Duration::from_secs(5)).unwrap();
        let memory = sys::memory(Ring::bytes(4)).unwrap();
        assert!(matches!(channel.receive().unwrap().0, Message::Hello { .. }));
        let mut answer = Message::Ack;
        for (message, with_memory) in messages {
            assert_eq!(answer, Message::Ack);
            channel.send(message, with_memory.then_some(&memory)).unwrap();
            answer = channel.receive().unwrap().0;
        }
        assert!(matches!(&answer, Message::Disconnect { reason } if !reason.is_empty()), "{answer:?}");
    };
    let region = |index, size| Message::AddRegion { index, size };
    let ring = |region, offset| Message::AddRing { to_server: true, index: 0, region, offset, log2_ring: 4 };
    let size = Ring::bytes(4) as u64;
    check(&[(Message::Init { version: 1, id: 0, mode: 0, secret: [0; SECRET] }, false)]);
    check(&[(Message::Init { version: VERSION, id: 9, mode: 0, secret: [0; SECRET] }, false)]);
    check(&[(Message::Init { version: VERSION, id: 0, mode: 1, secret: [0; SECRET] }, false)]);
    check(&[(init.clone(), false), (region(0, size + 1), true)]);
    check(&[(init.clone(), false), (region(0, u64::MAX), true)]);
    check(&[(init.clone(), false), (region(1, size), true)]);
    check(&[(init.clone(), false), (region(0, size), false)]);
    check(&[(init.clone(), false), (region(0, size), true), (ring(1, 0), true)]);
    check(&[(init.clone(), false), (region(0, size), true), (ring(0, 64), true)]);
    check(&[(init.clone(), false), (region(0, size), true), (ring(0, 4), true)]);
    // Memory is no event descriptor.
    check(&[(init.clone(), false), (region(0, size), true), (ring(0, 0), true)]);
    check(&[(init, false), (Message::Connect, false)]);
}

#[test]
fn descriptors_that_make_no_sense_are_counted_and_the_next_frame_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let keys = MemifKeys { is_server: true, ..MemifKeys::default() };
    let (mut server, _senders) = open(&path, &keys, 1).unwrap();
    let channel = Channel::connect(path.as_ref()).unwrap();
    channel.patience(Duration::from_secs(5)).unwrap();
    let (ring_bytes, size) = (Ring::bytes(4), 8192);
    let memory = sys::memory(size).unwrap();
    let region = sys::Region::map(&memory, size as u64).unwrap();
    let ring = Ring::at(&region, 0, 4).unwrap();
    ring.begin(&region);
    Ring::at(&region, ring_bytes, 4).unwrap().begin(&region);
    let add = |to_server, offset| Message::AddRing { to_server, index: 0, region: 0, offset, log2_ring: 4 };
    let events = device_sys::events().unwrap();
    let messages = [
        (Message::Init { version: VERSION, id: 0, mode: 0, secret: [0; SECRET] }, None),
        (Message::AddRegion { index: 0, size: size as u64 }, Some(&memory)),
        (add(true, 0), Some(&events)),
        (add(false, ring_bytes as u32), Some(&events)),
        (Message::Connect, None),
    ];
    assert!(matches!(channel.receive().unwrap().0, Message::Hello { .. }));
    for (message, descriptor) in &messages {
        channel.send(message, *descriptor).unwrap();
        let expected = if *message == Message::Connect { Message::Connected } else { Message::Ack };
        assert_eq!(channel.receive().unwrap().0, expected);
    }
    assert!(region.copy_in(4096, &[7; 60]));
    let frame = Descriptor { len: 60, offset: 4096, ..Descriptor::default() };
    let nonsense = [
        Descriptor { offset: 8192, ..frame },
        Descriptor { offset: u32::MAX, ..frame },
        Descriptor { len: u32::MAX, ..frame },
        Descriptor { region: 7, ..frame },
    ];
    for (slot, descriptor) in nonsense.into_iter().chain([frame]).enumerate() {
        ring.set_descriptor(&region, slot as u16, descriptor);
    }
    ring.set_head(&region, 5);
    let mut place = Place::new();
    let mut arrived = Vec::new();
    eventually(|| {
        arrived.extend(place.receive(&mut server));
        !arrived.is_empty()
    });
    assert_eq!((arrived, server.missed()), (vec![vec![7; 60]], 4));
    // A frame without end, and a counter that is out of range.
    for slot in 0..16 {
        ring.set_descriptor(&region, slot, Descriptor { flags: NEXT, ..frame });
    }
    ring.set_head(&region, 40_000);
    assert!(place.receive(&mut server).is_empty());
    assert!(server.missed() > 4);
}

#[test]
fn memory_that_a_client_only_announces_is_not_allocated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock").display().to_string();
    let (_server, _senders) = open(&path, &MemifKeys { is_server: true, ..MemifKeys::default() }, 1).unwrap();
    let channel = Channel::connect(path.as_ref()).unwrap();
    channel.patience(Duration::from_secs(5)).unwrap();
    let size = 64 << 20;
    let memory = sys::memory(size).unwrap();
    let messages = [
        (Message::Init { version: VERSION, id: 0, mode: 0, secret: [0; SECRET] }, None),
        (Message::AddRegion { index: 0, size: size as u64 }, Some(&memory)),
    ];
    assert!(matches!(channel.receive().unwrap().0, Message::Hello { .. }));
    for (message, descriptor) in messages {
        channel.send(&message, descriptor).unwrap();
        assert_eq!(channel.receive().unwrap().0, Message::Ack);
    }
    assert_eq!(std::fs::File::from(memory).metadata().unwrap().blocks(), 0);
}
