//! One load through one shaper: sent by schedule, counted at the far end.

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use braid_functions::find;
use braid_testkit::kernel::Namespace;
use braid_testkit::{Bench, Frame};
use rustix::process::{Pid, Signal, kill_process};

use crate::loads::{FRAME, Load};
use crate::{Failure, WARMING};

/// How long a forwarder may take until it forwards.
const STARTING_MAX: Duration = Duration::from_secs(20);
/// What is counted as the burst.
const BURST: Duration = Duration::from_millis(20);
/// A host that is asked for nothing but whether the way is open.
const PROBE: u8 = 9;

/// What came out.
pub struct Counted {
    /// Thousands of bytes a second for each host, without the beginning.
    pub rates: [f64; 4],
    /// Bytes in the first moments.
    pub burst: u64,
}

/// A program that ends with its handle.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.0), Signal::INT);
        let _ = self.0.wait();
    }
}

/// A bridge of the kernel with HTB on its way out.
pub fn by_htb(load: &Load, lasting: Duration) -> Result<Counted, Failure> {
    through(load, lasting, |middle| {
        middle.run("ip", "link add name switch type bridge mcast_snooping 0 stp_state 0")?;
        for device in ["m0", "m1", "switch"] {
            let master = if device == "switch" { "" } else { "master switch" };
            middle.run("ip", &format!("link set {device} {master} up"))?;
        }
        for command in load.commands("m1") {
            middle.run("tc", &command)?;
        }
        Ok(None)
    })
}

/// `braid run --nf shaper`, one worker, AF_PACKET.
pub fn by_shaper(load: &Load, lasting: Duration) -> Result<Counted, Failure> {
    let folder = tempfile::tempdir()?;
    let ports = "[[port]]\ndevice = 'af_packet:m0'\n[[port]]\ndevice = 'af_packet:m1'\n";
    let plan = format!("{ports}[[nf]]\nfunction = 'shaper'\n[nf.config]\n{}", load.config());
    std::fs::write(folder.path().join("plan.toml"), plan)?;
    let program = std::env::current_exe()?.ancestors().nth(2).ok_or("no folder")?.join("braid");
    through(load, lasting, |middle| {
        let mut command = Command::new(&program);
        command.arg("run").arg(folder.path().join("plan.toml")).args(["--workers", "1"]);
        let child = middle.inside(|| command.stdout(Stdio::null()).stderr(Stdio::null()).spawn())?;
        Ok(Some(Running(child)))
    })
}

/// The same function in this process; time is what the schedule says.
pub fn in_capture_time(load: &Load, lasting: Duration) -> Result<Counted, Failure> {
    let build = find("shaper")?.build;
    let config = load.config().parse()?;
    let mut bench = Bench::with_sets(2, 64, |builder| build("shaper", config, builder, 2).expect("a configuration"));
    let mut came = Vec::new();
    for (at, host) in schedule(load, lasting) {
        let sent = bench.send_at(0, at.as_nanos() as u64, &frame(host)).sent;
        came.extend(sent.iter().map(|(_, frame)| (at, frame[33], frame.len())));
    }
    Ok(count(load, lasting, &came))
}

/// When which host is sent a frame.
fn schedule(load: &Load, lasting: Duration) -> Vec<(Duration, u8)> {
    let begin = idle(load);
    let mut all = Vec::new();
    for (host, offered) in load.offered.iter().enumerate().filter(|(_, offered)| **offered > 0) {
        let every = Duration::from_nanos(FRAME as u64 * 1_000_000 / offered);
        let times = (0..).map(|n| begin + every * n).take_while(|at| *at < begin + lasting);
        all.extend(times.map(|at| (at, host as u8)));
    }
    all.sort_unstable();
    all
}

fn idle(load: &Load) -> Duration {
    Duration::from_secs(u64::from(load.is_idle_first))
}

fn frame(host: u8) -> Vec<u8> {
    Frame::udp("10.9.9.9:1", &format!("10.0.0.{host}:2")).len(FRAME).bytes()
}

fn through(
    load: &Load,
    lasting: Duration,
    prepare: impl FnOnce(&Namespace) -> Result<Option<Running>, Failure>,
) -> Result<Counted, Failure> {
    let (near, middle, far) = (Namespace::new()?, Namespace::new()?, Namespace::new()?);
    near.cable("c0", &middle, "m0")?;
    far.cable("s0", &middle, "m1")?;
    let _running = prepare(&middle)?;
    let (mut sender, mut receiver) = (near.frame_sender("c0")?, far.frame_receiver("s0")?);
    open(&mut sender, &mut receiver)?;
    let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
    let came = std::thread::scope(|scope| {
        let counting = scope.spawn(|| {
            let (mut came, mut bytes) = (Vec::new(), [0; 2048]);
            while !is_over.load(Ordering::Relaxed) {
                if let Some(len) = receive(&mut receiver, &mut bytes)? {
                    came.push((begun.elapsed(), bytes[33], len));
                }
            }
            Ok::<_, std::io::Error>(came)
        });
        let frames: Vec<_> = (0..4).map(frame).collect();
        for (at, host) in schedule(load, lasting) {
            std::thread::sleep(at.saturating_sub(begun.elapsed()));
            sender.write_all(&frames[usize::from(host)])?;
        }
        // Relaxed: it tells when to end and nothing else.
        is_over.store(true, Ordering::Relaxed);
        counting.join().unwrap_or_else(|_| Err(std::io::Error::other("the counting thread panicked")))
    })?;
    Ok(count(load, lasting, &came))
}

/// Waits until frames come through.
fn open(sender: &mut impl Write, receiver: &mut impl Read) -> Result<(), Failure> {
    let give_up = Instant::now() + STARTING_MAX;
    let mut bytes = [0; 2048];
    while Instant::now() < give_up {
        sender.write_all(&frame(PROBE))?;
        if receive(receiver, &mut bytes)?.is_some() {
            return Ok(());
        }
    }
    Err(format!("nothing comes through within {STARTING_MAX:?}").into())
}

/// A frame, if one comes in time.
fn receive(receiver: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<Option<usize>> {
    match receiver.read(bytes) {
        Ok(len) if len > 33 => Ok(Some(len)),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(error) => Err(error),
    }
}

fn count(load: &Load, lasting: Duration, came: &[(Duration, u8, usize)]) -> Counted {
    let (from, to) = (idle(load) + WARMING, idle(load) + lasting);
    let (mut rates, mut burst) = ([0.0; 4], 0);
    let ours = || came.iter().filter(|(_, host, _)| *host != PROBE);
    let first = ours().map(|(at, ..)| *at).next().unwrap_or_default();
    for (at, host, len) in ours() {
        if *at < first + BURST {
            burst += *len as u64;
        }
        if (from..to).contains(at) {
            rates[usize::from(*host)] += *len as f64 / 1000.0 / (to - from).as_secs_f64();
        }
    }
    Counted { rates, burst }
}
