//! One measurement: a sender, the forwarder, a far end, each where its wire wants it.

use std::time::{Duration, Instant};

use braid_testkit::kernel::{Namespace, Unavailable};

use crate::programs::{Running, braid, in_folder, testpmd};
use crate::{Failure, Forwarder};

/// How long a program may take to start.
const STARTING_MAX: Duration = Duration::from_secs(30);

/// What the frames come and go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Two veth cables; sender and far end have network namespaces of their own.
    Cable,
    /// Two TAP interfaces, written to and counted by the kernel of the same namespace.
    Tap,
    /// Memory shared by two sockets; another testpmd counts at the far end.
    Memif,
}

/// Of one measurement, by second but for the processor time, which is the forwarder's per second too.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Packets that came to the forwarder.
    pub offered: f64,
    /// Packets that came to the far end.
    pub forwarded: f64,
    /// Seconds of processor time in each second.
    pub cpu_seconds: f64,
}

/// Sends for so long.
pub fn measure(medium: Medium, forwarder: &Forwarder, sending: Duration) -> Result<Figures, Failure> {
    let middle = Namespace::new()?;
    match medium {
        Medium::Cable => {
            let (near, far) = (Namespace::new()?, Namespace::new()?);
            near.cable("c0", &middle, "m0")?;
            far.cable("s0", &middle, "m1")?;
            let between = start(&middle, forwarder, None)?;
            by_interfaces(between, (&near, "c0"), (&middle, "m0"), (&far, "s0"), sending)
        }
        Medium::Tap => {
            middle.set("ipv6/conf/default/disable_ipv6", 1)?;
            let between = start(&middle, forwarder, None)?;
            for name in ["m0", "m1"] {
                eventually("the TAP interfaces come up", || middle.run("ip", &format!("link set {name} up")).is_ok())?;
            }
            by_interfaces(between, (&middle, "m0"), (&middle, "m0"), (&middle, "m1"), sending)
        }
        Medium::Memif => by_memory(&middle, forwarder, sending),
    }
}

/// The forwarder, once it has had time to start.
fn start(middle: &Namespace, forwarder: &Forwarder, folder: Option<&std::path::Path>) -> Result<Running, Failure> {
    let placed = |texts: &[&str; 2]| texts.map(|text| folder.map_or(text.to_owned(), |at| in_folder(text, at)));
    let mut running = match forwarder {
        Forwarder::Testpmd(devices) => testpmd(middle, &placed(devices), "io", false)?,
        Forwarder::Braid(ports, chain) => braid(middle, &placed(ports), chain)?,
    };
    std::thread::sleep(Duration::from_secs(3));
    if running.has_ended() { Err("it ended at once".into()) } else { Ok(running) }
}

/// Counted by the kernel: frames sent by one interface, received by another.
fn by_interfaces(
    between: Running,
    sender: (&Namespace, &str),
    (first, offered): (&Namespace, &str),
    (last, arrived): (&Namespace, &str),
    sending: Duration,
) -> Result<Figures, Failure> {
    // What the sender hands to a TAP interface is sent by it; what it hands to a cable is received at the other end.
    let is_same = std::ptr::eq(sender.0, first);
    let count = || Ok::<_, Failure>((packets(first, offered, !is_same)?, packets(last, arrived, true)?));
    let before = count()?.0;
    let _sender = testpmd(sender.0, &[format!("net_af_packet0,iface={}", sender.1)], "txonly", false)?;
    // It begins in its own time, and what comes before it runs steadily does not count.
    eventually("testpmd sends", || count().is_ok_and(|(offered, _)| offered > before + 10_000))?;
    let (begun, cpu, from) = (Instant::now(), between.cpu_seconds(), count()?);
    std::thread::sleep(sending);
    let (to, cpu, seconds) = (count()?, between.cpu_seconds() - cpu, begun.elapsed().as_secs_f64());
    let rate = |from: u64, to: u64| (to - from) as f64 / seconds;
    Ok(Figures { offered: rate(from.0, to.0), forwarded: rate(from.1, to.1), cpu_seconds: cpu / seconds })
}

/// Counted by testpmd at the far end; what the sender could not put into the memory was never offered.
fn by_memory(middle: &Namespace, forwarder: &Forwarder, sending: Duration) -> Result<Figures, Failure> {
    let folder = tempfile::tempdir()?;
    let between = start(middle, forwarder, Some(folder.path()))?;
    // A client of testpmd asks once.
    eventually("the sockets are there", || ["a", "b"].iter().all(|name| folder.path().join(name).exists()))?;
    let device =
        |name: &str| in_folder(&format!("net_memif0,role=client,socket={name},socket-abstract=no"), folder.path());
    let mut far = testpmd(middle, &[device("B")], "rxonly", true)?;
    let mut near = testpmd(middle, &[device("A")], "txonly", true)?;
    std::thread::sleep(Duration::from_secs(4));
    let both = |near: &mut Running, far: &mut Running, order: &str| near.tell(order).and_then(|()| far.tell(order));
    both(&mut near, &mut far, "show port stats 0")?;
    let (begun, cpu) = (Instant::now(), between.cpu_seconds());
    std::thread::sleep(sending);
    both(&mut near, &mut far, "show port stats 0")?;
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), between.cpu_seconds() - cpu);
    both(&mut near, &mut far, "stop\nquit")?;
    let rate = |said: &str, key: &str| {
        let counts: Vec<f64> =
            said.split(key).skip(1).filter_map(|rest| rest.split_whitespace().next()?.parse().ok()).collect();
        counts
            .get(1)
            .zip(counts.first())
            .map(|(to, from)| (to - from) / seconds)
            .ok_or(format!("testpmd tells no {key}"))
    };
    let (offered, forwarded) = (rate(&near.said()?, "TX-packets:")?, rate(&far.said()?, "RX-packets:")?);
    Ok(Figures { offered, forwarded, cpu_seconds: cpu / seconds })
}

/// Packets that an interface has received, or sent, as the kernel counts them.
fn packets(namespace: &Namespace, name: &str, received: bool) -> Result<u64, Unavailable> {
    let text = namespace.run("ip", &format!("-s -o link show {name}"))?;
    let counts = text.split(if received { "RX:" } else { "TX:" }).nth(1).and_then(|rest| rest.split('\\').nth(1));
    Ok(counts.and_then(|counts| counts.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0))
}

fn eventually(what: &str, mut attempt: impl FnMut() -> bool) -> Result<(), Failure> {
    let give_up = Instant::now() + STARTING_MAX;
    while !attempt() {
        if Instant::now() > give_up {
            return Err(format!("{what}: not within {STARTING_MAX:?}").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
