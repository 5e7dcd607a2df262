//! The programs of a scene: testpmd in several roles, Braid, and what each has used of the processors.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use braid_testkit::kernel::Namespace;
use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;

/// A program that ends with its handle.
pub struct Running(Option<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended by itself.
            let _ = kill_process(Pid::from_child(&child), Signal::INT);
            let _ = child.wait();
        }
    }
}

impl Running {
    fn start(inside: &Namespace, command: &mut Command) -> io::Result<Running> {
        inside.inside(|| command.spawn()).map(|child| Running(Some(child)))
    }

    /// Whether it is there no more.
    pub fn has_ended(&mut self) -> bool {
        self.0.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    /// Seconds of processor time that it has used, of all its threads (proc(5)).
    pub fn cpu_seconds(&self) -> f64 {
        let id = self.0.as_ref().map_or(0, Child::id);
        let text = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // Behind the name in brackets: state is field 3, utime and stime are fields 14 and 15, in hundredths of a second.
        let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
    }

    /// Tells testpmd something on its prompt.
    pub fn tell(&mut self, order: &str) -> io::Result<()> {
        let input = self.0.as_mut().and_then(|child| child.stdin.as_mut());
        input.map_or(Ok(()), |input| writeln!(input, "{order}"))
    }

    /// All that it has said, when it has ended.
    pub fn said(mut self) -> io::Result<String> {
        let mut text = String::new();
        if let Some(mut child) = self.0.take() {
            child.stdout.take().map(|mut output| output.read_to_string(&mut text)).transpose()?;
            child.wait()?;
        }
        Ok(text)
    }
}

/// testpmd with these devices; `-i` waits for orders.
pub fn testpmd(inside: &Namespace, devices: &[String], mode: &str, is_asked: bool) -> Result<Running, Failure> {
    static STARTED: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = STARTED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let mut command = Command::new("dpdk-testpmd");
    let prefix = format!("wire-{}-{number}", std::process::id());
    command.args(["--no-huge", "-m", "512", "--no-pci", "--file-prefix", &prefix]);
    devices.iter().for_each(|device| {
        command.arg(format!("--vdev={device}"));
    });
    command.args(["--", "--total-num-mbufs=16384", "--txpkts=64", "--stats-period=3600"]);
    command.arg(format!("--forward-mode={mode}"));
    if is_asked {
        command.arg("-i").stdin(Stdio::piped()).stdout(Stdio::piped());
    } else {
        command.stdin(Stdio::null()).stdout(Stdio::null());
    }
    let mut running = Running::start(inside, command.stderr(Stdio::null()))?;
    if is_asked {
        running.tell("start")?;
    }
    Ok(running)
}

/// `braid run` with one worker.
pub fn braid(inside: &Namespace, ports: &[String], chain: &str) -> Result<Running, Failure> {
    let folder: PathBuf = std::env::current_exe()?.ancestors().nth(2).ok_or("no folder")?.to_owned();
    let mut command = Command::new(folder.join("braid"));
    command.arg("run").args(chain.split_whitespace()).args(["--workers", "1"]);
    command.args(ports.iter().flat_map(|port| ["--port", port]));
    Ok(Running::start(inside, command.stdout(Stdio::null()).stderr(Stdio::null()))?)
}

/// A device or port with the sockets of this folder in it.
pub fn in_folder(text: &str, folder: &Path) -> String {
    let socket = |name: &str| folder.join(name).display().to_string();
    text.replace("socket=A", &format!("socket={}", socket("a")))
        .replace("socket=B", &format!("socket={}", socket("b")))
        .replace("memif:A", &format!("memif:{}", socket("a")))
        .replace("memif:B", &format!("memif:{}", socket("b")))
}
