//! TAP: an interface of the kernel whose wire is this program. What the machine sends by it is received here.
//!
//! One system call a packet, on any machine that has `/dev/net/tun`. The kernel completes checksums and cuts segments itself,
//! since nothing else is agreed with it. An interface that did not exist is made, brought up, and gone with the run; one that
//! was made before (`ip tuntap add mode tap user …`) stays, and needs no privilege.
//!
//! When the process becomes another program (`braid upgrade`), wires are left open for it: interfaces keep their addresses and
//! routes, and the kernel holds what they send meanwhile.

mod sys;

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;

use braid_packet::{Batch, Buffers};

use crate::device::Interface;
use crate::device::live::{Arrivals, RxPort, Sent, TxPort};
use crate::device::sys::set_outlives_exec;

/// Longest frame: an interface's MTU is at most 65,521, and Ethernet with two tags takes 22 bytes.
const FRAME_MAX: usize = 65_536 + 22;

/// Where the program before this one in the process names the descriptors of wires that it left open.
pub(crate) const INHERITED: &str = "BRAID_TAP_WIRES";

/// Wires of interfaces, by name, that the program before left open. Those that nobody takes are closed.
#[derive(Default)]
pub(crate) struct Inherited(Vec<(String, File)>);

impl Inherited {
    /// What this process was left.
    pub(crate) fn of_process() -> Inherited {
        let numbers = std::env::var(INHERITED).unwrap_or_default();
        Inherited(numbers.split(',').filter_map(|number| sys::adopt(number.parse().ok()?)).collect())
    }

    fn take(&mut self, name: &str) -> Option<File> {
        let at = self.0.iter().position(|(interface, _)| interface == name)?;
        Some(self.0.swap_remove(at).1)
    }
}

/// Leaves wires open for the program that this process becomes: what it is to find under [`INHERITED`].
pub(crate) fn leave(wires: &[File]) -> io::Result<String> {
    wires.iter().try_for_each(|wire| set_outlives_exec(wire.as_raw_fd(), true))?;
    Ok(wires.iter().map(|wire| wire.as_raw_fd().to_string()).collect::<Vec<_>>().join(","))
}

/// An open interface: its way in, its ways out, its wire.
pub(crate) type Open = (Receiver, Vec<Transmitter>, File);

/// Opens the interface to receive by one queue and to send by `senders`.
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

/// The way in.
pub(crate) struct Receiver {
    device: File,
    frame: Vec<u8>,
    /// Length of a frame that was read and not taken yet.
    held: usize,
}

impl RxPort for Receiver {
    fn receive(&mut self, into: &mut Arrivals<'_>) {
        while into.has_room() {
            if self.held == 0 {
                // A frame is read whole, or there is none; whatever else is wrong with the device, nothing comes.
                let Ok(len) = self.device.read(&mut self.frame) else { return };
                self.held = len;
            }
            if !into.put(&self.frame[..self.held]) {
                return;
            }
            self.held = 0;
        }
    }

    fn missed(&mut self) -> u64 {
        0 // The kernel counts them as the interface's own: `ip -s link`.
    }
}

/// The way out of one worker.
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
