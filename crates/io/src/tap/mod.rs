//! The TAP back end: a kernel interface of which this program is the other end. What the machine sends through it is received here.
//!
//! It takes one system call per packet, on any machine with `/dev/net/tun`. The kernel completes checksums and segmentation itself,
//! since no offloads are negotiated. An interface that did not exist is created, brought up, and removed at the end of the run; one
//! that existed before (`ip tuntap add mode tap user …`) stays, and needs no privileges.
//!
//! When the process executes another program (`braid upgrade`), the descriptors stay open for it: interfaces keep their addresses
//! and routes, and the kernel queues what they send meanwhile.

mod sys;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};

use braid_packet::{Batch, Buffers};

use crate::device::Interface;
use crate::device::live::{Arrivals, RxPort, Sent, TxPort};
use crate::device::sys::leave_open;

/// Length of the longest frame: the MTU is at most 65,521, and Ethernet with two tags takes 22 bytes.
const FRAME_MAX: usize = 65_536 + 22;

/// Environment variable that lists the descriptors which the previous program in this process left open.
pub(crate) const INHERITED: &str = "BRAID_TAP_WIRES";

/// Descriptors that the previous program left open, with the names of their interfaces. Those that nobody takes are closed.
#[derive(Default)]
pub(crate) struct Inherited(Vec<(String, File)>);

impl Inherited {
    /// The descriptors that this process inherited.
    pub(crate) fn of_process() -> Inherited {
        let numbers = std::env::var(INHERITED).unwrap_or_default();
        Inherited(numbers.split(',').filter_map(|number| sys::adopt(number.parse().ok()?)).collect())
    }

    fn take(&mut self, name: &str) -> Option<File> {
        let at = self.0.iter().position(|(interface, _)| interface == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Leaves descriptors open for the program that this process will execute. Returns the value of [`INHERITED`] for that program.
pub(crate) fn leave(wires: &[File]) -> io::Result<String> {
    wires.iter().try_for_each(|wire| leave_open(wire.as_raw_fd()))?;
    Ok(wires.iter().map(|wire| wire.as_raw_fd().to_string()).collect::<Vec<_>>().join(","))
}

/// An open interface: its receive side, its send sides, and its descriptor.
pub(crate) type Open = (Receiver, Vec<Transmitter>, File);

/// Opens the interface with one receiver and `senders` senders.
pub(crate) fn open(name: &str, senders: usize, inherited: &mut Inherited) -> io::Result<Open> {
    let device = inherited.take(name).map_or_else(|| sys::open(name), Ok)?;
    match Interface::ask(name) {
        Ok(interface) if interface.is_up => {}
        _ => Interface::bring_up(name)?,
    }
    let sender = |_| device.try_clone().map(|device| Transmitter { device });
    let senders = (0..senders).map(sender).collect::<io::Result<_>>()?;
    let wire = device.try_clone()?;
    Ok((Receiver { device, frame: vec![0; FRAME_MAX], held: 0 }, senders, wire))
}

/// The receive side.
pub(crate) struct Receiver {
    device: File,
    frame: Vec<u8>,
    /// Length of a frame that has been read but not taken yet; 0 if there is none.
    held: usize,
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        while into.has_room() {
            if self.held == 0 {
                // A read returns a complete frame or an error. Whatever the error, there is nothing to receive.
                let Ok(len) = self.device.read(&mut self.frame) else { return };
                self.held = len;
            }
            if !into.put(&self.frame[..self.held]) {
                return;
            }
            self.held = 0;
        }
    }

    fn awaits(&self, readable: &mut Vec<RawFd>) -> bool {
        readable.push(self.device.as_raw_fd());
        // A frame that found no buffer is announced by nothing.
        self.held == 0
    }

    fn missed(&mut self) -> u64 {
        0 // The kernel counts drops for the interface itself: `ip -s link`.
    }
}

/// One worker's send side.
pub(crate) struct Transmitter {
    device: File,
}

impl TxPort for Transmitter {
    fn send(&mut self, batch: &Batch, _: &mut Buffers, out: &[u16]) -> Sent {
        let mut sent = Sent::default();
        for &i in out {
            let frame = batch.bytes(i.into());
            match self.device.write(frame) {
                Ok(_) => {
                    sent.packets += 1;
                    sent.bytes += frame.len() as u64;
                }
                Err(error) if error.kind() == ErrorKind::InvalidInput => sent.too_long += 1,
                Err(_) => sent.device_full += 1,
            }
        }
        sent
    }
}
