//! AF_PACKET rings that outlive their program. When the process executes another program (`braid upgrade`), the sockets stay open
//! and the kernel keeps filling the rings. The next program receives what waits there, from the slot at which the previous one
//! stopped. So nothing is lost unless more frames arrive meanwhile than a ring has slots; the kernel counts those as usual.
//!
//! Rings that do not fit the next program (other workers, another `ring=`, other slot size) are closed by it and opened anew.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::sys::{self, Kept, Ring, SLOT};
use crate::device::sys::leave_open;

/// Environment variable that describes the rings which the previous program in this process left open.
pub(crate) const INHERITED: &str = "BRAID_PACKET_RINGS";

/// Keeps a ring of an interface open.
#[derive(Debug)]
pub(crate) struct Wire {
    interface: u32,
    /// Number of slots.
    slots: usize,
    ring: Kept,
}

impl Wire {
    pub(super) fn of(interface: u32, ring: &Ring) -> io::Result<Wire> {
        Ok(Wire { interface, slots: ring.slots(), ring: ring.keep_open()? })
    }
}

/// Leaves rings open for the program that this process will execute, except those from which somebody still receives. Returns the
/// value of [`INHERITED`] for that program.
pub(crate) fn leave(wires: &[Wire]) -> io::Result<String> {
    let mut rings = Vec::new();
    for Wire { interface, slots, ring } in wires {
        if let Some(next) = ring.left_at() {
            let socket = ring.socket.as_raw_fd();
            leave_open(socket)?;
            rings.push(Left { socket, shape: (SLOT, *slots), interface: *interface, next }.to_string());
        }
    }
    Ok(rings.join(","))
}

/// A ring as described to the next program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Left {
    socket: i32,
    /// Bytes per slot, and number of slots.
    shape: (usize, usize),
    interface: u32,
    next: usize,
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Left { socket, shape: (slot, slots), interface, next } = self;
        write!(f, "{socket}:{slot}:{slots}:{interface}:{next}")
    }
}

impl Left {
    fn parse(text: &str) -> Option<Left> {
        let mut numbers = text.split(':');
        let left = Left {
            socket: numbers.next()?.parse().ok()?,
            shape: (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?),
            interface: numbers.next()?.parse().ok()?,
            next: numbers.next()?.parse().ok()?,
        };
        numbers.next().is_none().then_some(left)
    }
}

/// Rings that the previous program left open. Rings that nobody takes are closed.
#[derive(Debug, Default)]
pub(crate) struct Inherited(Vec<(Left, OwnedFd)>);

impl Inherited {
    /// The rings that this process inherited.
    pub(crate) fn of_process() -> Inherited {
        let rings = std::env::var(INHERITED).unwrap_or_default();
        let rings = rings.split(',').filter_map(Left::parse);
        Inherited(rings.filter_map(|left| Some((left, sys::adopt(left.socket)?))).collect())
    }

    /// Number of inherited rings of an interface.
    pub(crate) fn left(&self, interface: u32) -> usize {
        self.0.iter().filter(|(left, _)| left.interface == interface).count()
    }

    /// Takes the rings of an interface, if there are exactly `count` of `slots` slots that fit.
    pub(super) fn take(&mut self, interface: u32, slots: usize, count: usize) -> Option<Vec<Ring>> {
        let is_own = |(left, _): &mut (Left, OwnedFd)| left.interface == interface;
        let own: Vec<_> = self.0.extract_if(.., is_own).collect();
        let fit = own.len() == count && own.iter().all(|(left, _)| left.shape == (SLOT, slots));
        let rings = own.into_iter().map(|(left, socket)| Ring::continued(socket, slots, left.next));
        if fit { rings.collect::<io::Result<_>>().ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_program_says_of_a_ring_is_what_the_next_one_reads() {
        let left = Left { socket: 7, shape: (SLOT, 4096), interface: 3, next: 4095 };
        assert_eq!(Left::parse(&left.to_string()), Some(left));
        for wrong in ["", "7", "7:2048:4096:3", "7:2048:4096:3:1:2", "7:2048:4096:3:-1", "x:2048:4096:3:1"] {
            assert_eq!(Left::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_descriptor_that_is_no_ring_is_left_alone() {
        let file = std::fs::File::open("/dev/null").expect("every Linux has it");
        let number = crate::device::sys::give_up(file).expect("it is open");
        assert!(sys::adopt(number).is_none());
        assert!(crate::device::sys::outlives_exec(number));
    }
}
