//! A receive queue over real interfaces that waits: a frame ends the wait, and without one it lasts its time.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use braid_io::device::{CardHash, Ports};
use braid_io::{FirstQueue, OpenError, QueueSelect, Received, RxQueue, Sink, Source, Waited};
use braid_packet::{Batch, Buffers, Layout, Link, Pool, PoolConfig, Port};
use braid_testkit::kernel::{Namespace, Unavailable};
use braid_testkit::skip::skip;

/// So long that a test which has to wait for it would be noticed.
const LONG: Duration = Duration::from_secs(60);
/// So short that it passes without a frame, since the kernel says nothing by itself here.
const SHORT: Duration = Duration::from_millis(20);
/// A frame to all, with an EtherType for experiments (IEEE 802.1Q).
const FRAME: [u8; 60] = {
    let mut frame = [0xff; 60];
    (frame[6], frame[12], frame[13]) = (2, 0x88, 0xb5);
    frame
};

/// A namespace with a veth pair, `near` and `far`, in which the kernel sends nothing by itself.
fn cable() -> Result<Namespace, Unavailable> {
    let namespace = Namespace::new()?;
    namespace.set("ipv6/conf/all/disable_ipv6", 1)?;
    namespace.set("ipv6/conf/default/disable_ipv6", 1)?;
    for arguments in ["link add near type veth peer name far", "link set near up", "link set far up"] {
        namespace.run("ip", arguments)?;
    }
    Ok(namespace)
}

/// Opened receive queues, with what must live as long as they do.
struct Open {
    queues: Vec<Box<dyn RxQueue>>,
    pool: Arc<Pool>,
    _senders: Vec<Box<dyn braid_io::TxQueue>>,
}

fn open(port: &str, receivers: usize, select: Arc<dyn QueueSelect>) -> Result<Open, OpenError> {
    let ports = Ports::new(vec![port.parse().expect(port)], |_| ()).received_by(receivers, CardHash::default());
    let (mut source, sink) = ports.ends();
    let buffers = 1024 + source.buffers() as u32;
    let pool = source.pool(&PoolConfig { buffers, ..PoolConfig::default() })?;
    source.prepare(&pool, 1)?;
    let _senders = Box::new(sink).open(1)?;
    Ok(Open { queues: Box::new(source).open(receivers, select)?, pool, _senders })
}

/// Opens `port` inside a namespace; `None`, having said so, where this machine cannot.
fn opened(test: &str, port: &str, receivers: usize, select: Arc<dyn QueueSelect>) -> Option<(Namespace, Open)> {
    let namespace = cable().map_err(|reason| skip(test, &reason)).ok()?;
    let opened = namespace.inside(|| open(port, receivers, select).map_err(io::Error::other));
    let opened = opened.map_err(|reason| skip(test, &reason)).ok()?;
    Some((namespace, opened))
}

/// Sends one frame through the interface of this name, from its kernel's side.
fn send(namespace: &Namespace, name: &str) {
    namespace.frame_sender(name).and_then(|mut sender| sender.write_all(&FRAME)).expect("a frame leaves");
}

/// Receives until nothing more comes; returns the number of packets.
fn receive(queue: &mut dyn RxQueue, pool: &Arc<Pool>) -> usize {
    let (mut batch, mut buffers) = (Batch::new(pool, &Arc::new(Layout::bare())), Buffers::new(pool));
    while queue.receive(&mut batch, &mut buffers, 64) == Received::Packets {}
    let packets = batch.len();
    batch.release(&mut buffers);
    packets
}

/// Opens `port` inside a namespace and checks that a wait ends by time, and by a frame that leaves through `far`.
fn check(test: &str, port: &str, far: &str) {
    let Some((namespace, Open { mut queues, pool, _senders })) = opened(test, port, 1, Arc::new(FirstQueue)) else {
        return;
    };
    let queue = &mut *queues[0];
    receive(queue, &pool);
    assert_eq!(queue.wait(SHORT), Waited::TimedOut, "{port}: nothing has arrived");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| (queue.wait(LONG), receive(queue, &pool)));
        send(&namespace, far);
        assert_eq!(waiting.join().expect("no panic"), (Waited::Woken, 1), "{port}");
    });
    send(&namespace, far);
    assert_eq!(queue.wait(LONG), Waited::Woken, "{port}: what has arrived before the wait ends it, too");
    assert_eq!(receive(queue, &pool), 1);
    assert_eq!(queue.wait(SHORT), Waited::TimedOut);
    queue.bell().expect("it can wait, so it has a bell").ring();
    assert_eq!(queue.wait(LONG), Waited::Woken);
    assert!(queue.close());
    assert_eq!(queue.wait(LONG), Waited::Cannot, "a run that ends does not wait");
}

#[test]
fn a_frame_ends_the_wait_of_af_packet() {
    check("a_frame_ends_the_wait_of_af_packet", "af_packet:near", "far");
}

#[test]
fn a_frame_ends_the_wait_of_af_xdp() {
    check("a_frame_ends_the_wait_of_af_xdp", "af_xdp:near", "far");
}

#[test]
fn a_frame_ends_the_wait_of_tap() {
    check("a_frame_ends_the_wait_of_tap", "tap:wire", "wire");
}

#[test]
fn a_ring_of_any_size_goes_round() {
    let test = "a_ring_of_any_size_goes_round";
    for (port, frames) in [("af_xdp:near?ring=64", 64), ("af_packet:near?ring=128", 128), ("af_xdp:near?ring=8192", 64)]
    {
        let Some((namespace, Open { mut queues, pool, _senders })) = opened(test, port, 1, Arc::new(FirstQueue)) else {
            continue;
        };
        let queue = &mut *queues[0];
        receive(queue, &pool);
        let mut sender = namespace.frame_sender("far").expect("far is there");
        // Half of the smallest ring at a time, three times its size in all.
        for round in 0..6 {
            (0..frames / 2).for_each(|_| sender.write_all(&FRAME).expect("a frame leaves"));
            let mut packets = receive(queue, &pool);
            while packets < frames / 2 {
                assert_eq!(queue.wait(LONG), Waited::Woken, "{port}, round {round}: {packets} came");
                packets += receive(queue, &pool);
            }
            assert_eq!(packets, frames / 2, "{port}, round {round}");
        }
        assert_eq!(queue.wait(SHORT), Waited::TimedOut);
        assert_eq!(queue.counters().missed, 0, "{port}");
    }
}

/// Selects the last queue.
struct Last;

impl QueueSelect for Last {
    fn queue(&self, _: &[u8], _: Link, _: Port) -> usize {
        1
    }
}

#[test]
fn a_frame_for_another_receiver_ends_that_ones_wait() {
    let test = "a_frame_for_another_receiver_ends_that_ones_wait";
    // One queue and two receivers: the first one has the device, the second one gets the packet.
    let Some((namespace, Open { mut queues, pool, _senders })) = opened(test, "tap:wire", 2, Arc::new(Last)) else {
        return;
    };
    let [first, second] = &mut queues[..] else { unreachable!("two receivers") };
    assert_eq!(second.wait(SHORT), Waited::TimedOut);
    std::thread::scope(|scope| {
        let owner = scope.spawn(|| (second.wait(LONG), receive(&mut **second, &pool)));
        send(&namespace, "wire");
        assert_eq!(first.wait(LONG), Waited::Woken);
        assert_eq!(receive(&mut **first, &pool), 0, "it is handed over");
        assert_eq!(owner.join().expect("no panic"), (Waited::Woken, 1));
    });
}
