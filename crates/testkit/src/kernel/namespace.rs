//! Network namespaces for tests: programs that run in them, veth pairs between them, TAP devices.
//!
//! Nothing here touches an interface of the machine: a thread leaves its namespace, keeps a handle to the new one and ends. The
//! kernel removes the namespace with its devices, rules and connections when the last handle is closed.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::thread;

use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::Unavailable;
use super::sys;

/// A network namespace that lives as long as this handle.
#[derive(Debug)]
pub struct Namespace {
    handle: File,
}

impl Namespace {
    /// Makes a new namespace that contains only the loopback interface.
    ///
    /// # Errors
    /// What this machine lacks.
    pub fn new() -> Result<Namespace, Unavailable> {
        let made = on_a_thread(|| {
            sys::leave_network()?;
            File::open("/proc/thread-self/ns/net")
        });
        made.map(|handle| Namespace { handle }).map_err(Unavailable::Namespace)
    }

    /// Runs `work` on a thread inside the namespace; sockets that it opens and programs that it starts stay inside.
    ///
    /// # Errors
    /// Those of `work`, and of entering the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        on_a_thread(|| {
            move_into_link_name_space(self.handle.as_fd(), Some(LinkNameSpaceType::Network))?;
            work()
        })
    }

    /// Runs a program inside, with arguments separated by spaces; returns its standard output.
    ///
    /// # Errors
    /// If it fails: its standard error.
    pub fn run(&self, program: &'static str, arguments: &str) -> Result<String, Unavailable> {
        self.run_with_input(program, arguments, "")
    }

    /// Like [`Namespace::run`], with `input` on standard input.
    ///
    /// # Errors
    /// As for [`Namespace::run`].
    pub fn run_with_input(&self, program: &'static str, arguments: &str, input: &str) -> Result<String, Unavailable> {
        let output = self.inside(|| {
            let mut child = Command::new(program)
                .args(arguments.split_whitespace())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                stdin.write_all(input.as_bytes())?;
            }
            child.wait_with_output()
        });
        let output = output.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Unavailable::Program(program),
            _ => Unavailable::Namespace(error),
        })?;
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Unavailable::Kernel { command: format!("{program} {arguments}{input}"), complaint });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Sets a kernel parameter below `/proc/sys/net`.
    ///
    /// # Errors
    /// If there is no such parameter.
    pub fn set(&self, parameter: &str, value: u64) -> Result<(), Unavailable> {
        let path = format!("/proc/sys/net/{parameter}");
        let written = self.inside(|| std::fs::write(&path, value.to_string()));
        written
            .map_err(|error| Unavailable::Kernel { command: format!("{path} = {value}"), complaint: error.to_string() })
    }

    /// Reads a number below `/proc/sys/net`.
    pub(super) fn read(&self, parameter: &str) -> io::Result<u64> {
        let path = format!("/proc/sys/net/{parameter}");
        let text = self.inside(|| std::fs::read_to_string(&path))?;
        text.trim().parse().map_err(|error| io::Error::new(ErrorKind::InvalidData, format!("{path}: {error}")))
    }

    /// Connects an interface of this namespace with one of another namespace by a veth pair; both ends are up and have no addresses.
    ///
    /// # Errors
    /// If the kernel does not support veth.
    pub fn cable(&self, name: &str, other: &Namespace, other_name: &str) -> Result<(), Unavailable> {
        self.cable_of(name, other, other_name, "")
    }

    /// Like [`cable`](Self::cable), with properties for both ends, such as `numrxqueues 2`.
    ///
    /// # Errors
    /// As for [`cable`](Self::cable).
    pub fn cable_of(&self, name: &str, other: &Namespace, other_name: &str, ends: &str) -> Result<(), Unavailable> {
        // Hosts in a test must send only on request, so there must be no neighbour discovery.
        for namespace in [self, other] {
            namespace.set("ipv6/conf/default/disable_ipv6", 1)?;
        }
        // The other namespace has no name, but a descriptor of this process refers to it.
        let far = format!("/proc/{}/fd/{}", std::process::id(), other.handle.as_raw_fd());
        self.run("ip", &format!("link add {name} {ends} type veth peer name {other_name} {ends} netns {far}"))?;
        self.run("ip", &format!("link set {name} up"))?;
        other.run("ip", &format!("link set {other_name} up"))?;
        Ok(())
    }

    /// Ethernet address of an interface.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn link_address(&self, name: &str) -> Result<String, Unavailable> {
        let text = self.run("ip", &format!("-brief link show {name}"))?;
        Ok(text.split_whitespace().nth(2).unwrap_or_default().to_owned())
    }

    /// A socket that sends complete frames through an interface, one per `write`.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn frame_sender(&self, interface: &str) -> io::Result<File> {
        self.inside(|| sys::frame_sender(interface)).map(File::from)
    }

    /// A socket that receives complete frames from an interface, one per `read`, and waits at most a tenth of a second.
    ///
    /// # Errors
    /// If there is no such interface.
    pub fn frame_receiver(&self, interface: &str) -> io::Result<File> {
        self.inside(|| sys::frame_receiver(interface)).map(File::from)
    }

    /// A socket that receives complete IP packets of a protocol (IP in IP, GRE, …) for this namespace, as [`frame_receiver`] does
    /// frames: IPv4 packets with their header, IPv6 packets without it.
    ///
    /// # Errors
    /// If the kernel does not support such sockets.
    ///
    /// [`frame_receiver`]: Self::frame_receiver
    pub fn packet_receiver(&self, protocol: u8, is_v6: bool) -> io::Result<File> {
        self.inside(|| sys::packet_receiver(protocol, is_v6)).map(File::from)
    }

    /// Makes a TAP device with this name and Ethernet address, and brings it up.
    pub(super) fn tap(&self, name: &str, address: &str) -> Result<Tap, Unavailable> {
        let device = self.inside(|| {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            let device = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/net/tun")?;
            sys::name_tap(&device, name)?;
            Ok(device)
        });
        let device = device.map_err(Unavailable::Tun)?;
        self.run("ip", &format!("link set {name} address {address} up"))?;
        Ok(Tap { device })
    }
}

fn on_a_thread<T: Send>(work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    thread::scope(|scope| scope.spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked"))))
}

/// The user-space end of a TAP device.
#[derive(Debug)]
pub(super) struct Tap {
    device: File,
}

impl Tap {
    /// Passes a frame to the kernel, which has processed it when this returns.
    pub(super) fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.device.write_all(frame)
    }

    /// Reads every frame that the kernel has sent.
    pub(super) fn drain(&mut self) -> io::Result<Vec<Vec<u8>>> {
        let mut frames = Vec::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.device.read(&mut buffer) {
                Ok(len) => frames.push(buffer[..len].to_vec()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(frames),
                Err(error) => return Err(error),
            }
        }
    }
}
