//! The XDP program in front of the sockets (`ebpf/steer.c`, compiled and committed): loads it, configures it for the plan, and attaches it.
//!
//! It is attached by a link, which the kernel removes with the link's last descriptor, even after `kill -9`. A link left by the
//! previous program stays in place if its XDP program was loaded and configured identically, because loading takes long; otherwise
//! the new XDP program replaces the old one.

use std::error::Error;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use aya::maps::{Array, XskMap};
use aya::programs::Xdp;
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};

use super::sys::{Link, Socket};
use crate::device::open::Lanes;
use crate::device::{EndOrder, TupleHash};

/// The compiled program; `cargo xtask ebpf` checks it against its source.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../../../../../ebpf/steer.o");
/// Name of the program that is attached.
const STEER: &str = "steer";

/// The plan's steering in the form that the program needs.
pub(super) struct Steered<'a> {
    hash: &'a TupleHash,
    /// The worker of each entry of the indirection table.
    table: &'a [u16],
    /// The value of `order` in the program.
    order: u32,
}

impl<'a> Steered<'a> {
    /// How the program steers for a port; `None` if it cannot, or if there is no choice.
    pub(super) fn of(lanes: &Lanes<'a>) -> Option<Steered<'a>> {
        let card = lanes.hash.filter(|_| lanes.receivers > 1)?;
        let hash = card.tuple.as_ref()?;
        let order = match hash.order {
            EndOrder::AsTheyStand => 0,
            EndOrder::SmallerFirst => 1,
            EndOrder::ExchangedAt(ports) => 2 * u32::from(ports.has(lanes.port)),
        };
        Some(Steered { hash, table: &card.table, order })
    }

    /// The value of `hashed` in the program.
    fn fields(&self) -> u32 {
        self.hash.fields.iter().enumerate().map(|(i, &is_hashed)| u32::from(is_hashed) << i).sum()
    }
}

/// The program of an interface; dropping it detaches it.
pub(super) struct Program {
    /// Set once it is attached.
    link: Option<Link>,
    /// `None` if the previous program loaded it.
    loaded: Option<Ebpf>,
}

/// A fingerprint of the program and its configuration for this number of queues and of sockets per queue:
/// programs with equal fingerprints behave identically.
pub(super) fn print_of(queues: usize, sockets: usize, lanes: &Lanes<'_>, plan: Option<&Steered<'_>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (OBJECT, copies_from_frames(), queues, sockets, lanes.port).hash(&mut hasher);
    plan.map(|plan| (plan.fields(), plan.hash.udp_ports, plan.order, plan.table, &plan.hash.contributions))
        .hash(&mut hasher);
    hasher.finish()
}

impl Program {
    /// Loads the program for `sockets`, which are grouped by queue and, within a queue, ordered by worker. Without a plan every
    /// queue has one socket, which receives everything.
    pub(super) fn load(sockets: &[Vec<&Socket>], lanes: &Lanes<'_>, plan: Option<&Steered<'_>>) -> io::Result<Program> {
        let workers = sockets.first().map_or(1, Vec::len) as u32;
        let first_worker = u32::from(lanes.port);
        let (hashed, order) = plan.map_or((0, 0), |plan| (plan.fields(), plan.order));
        let entries = plan.map_or(1, |plan| plan.table.len() as u32);
        let entry_mask = entries - 1;
        let mut loader = EbpfLoader::new();
        // The program accesses no kernel structures, so it needs no BTF.
        loader.btf(None);
        loader
            .map_max_entries("sockets", (sockets.len() as u32 * workers).max(1))
            .map_max_entries("indirection", entries);
        loader.override_global("workers", &workers, true).override_global("first_worker", &first_worker, true);
        loader.override_global("hashed", &hashed, true).override_global("order", &order, true);
        let udp_ports = u32::from(plan.is_none_or(|plan| plan.hash.udp_ports));
        loader.override_global("udp_ports", &udp_ports, true).override_global("entry_mask", &entry_mask, true);
        let walks = u32::from(copies_from_frames());
        loader.override_global("walks", &walks, true);
        let mut loaded = loader.load(OBJECT).map_err(as_io)?;
        if let Some(plan) = plan {
            tell(&mut loaded, plan).map_err(as_io)?;
        }
        let mut map = map::<XskMap<_>>(&mut loaded, "sockets").map_err(as_io)?;
        for (i, socket) in sockets.iter().flatten().enumerate() {
            map.set(i as u32, socket.as_raw_fd(), 0).map_err(as_io)?;
        }
        let mut program = Program { link: None, loaded: Some(loaded) };
        program.named(STEER).load().map_err(as_io)?;
        Ok(program)
    }

    /// The program that the previous program left attached.
    pub(super) fn left(link: Link) -> Program {
        Program { link: Some(link), loaded: None }
    }

    /// Attaches it in the driver or in the kernel's network stack.
    pub(super) fn attach(&mut self, interface: u32, is_native: bool) -> io::Result<()> {
        let loaded = self.named(STEER).fd().map_err(as_io)?;
        self.link = Some(Link::new(loaded.as_fd(), interface, is_native)?);
        Ok(())
    }

    /// Replaces the attached program with this one.
    pub(super) fn replace(&mut self, link: Link) -> io::Result<()> {
        link.replace(self.named(STEER).fd().map_err(as_io)?.as_fd())?;
        self.link = Some(link);
        Ok(())
    }

    /// The descriptor that keeps it attached.
    pub(super) fn link(&self) -> Option<RawFd> {
        self.link.as_ref().map(Link::as_raw_fd)
    }

    fn named(&mut self, name: &str) -> &mut Xdp {
        let loaded = self.loaded.as_mut().expect("what was left is attached already");
        let program = loaded.program_mut(name).and_then(|program| program.try_into().ok());
        program.expect("the object has programs of these names, for XDP")
    }
}

/// Whether the kernel has `bpf_xdp_load_bytes`, with which the program reads past options and extension headers.
fn copies_from_frames() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= KernelVersion::new(5, 18, 0))
}

/// Writes the key and the indirection table to the program's maps.
fn tell(loaded: &mut Ebpf, plan: &Steered<'_>) -> Result<(), aya::EbpfError> {
    let mut indirection = map::<Array<_, u32>>(loaded, "indirection")?;
    for (entry, &worker) in plan.table.iter().enumerate() {
        indirection.set(entry as u32, u32::from(worker), 0)?;
    }
    let mut toeplitz = map::<Array<_, u32>>(loaded, "toeplitz")?;
    for (at, contribution) in plan.hash.contributions.iter().enumerate() {
        toeplitz.set(at as u32, contribution, 0)?;
    }
    Ok(())
}

fn map<'a, M: TryFrom<&'a mut aya::maps::Map, Error = aya::maps::MapError>>(
    loaded: &'a mut Ebpf,
    name: &str,
) -> Result<M, aya::EbpfError> {
    let map = loaded.map_mut(name).expect("the object has maps of these names");
    Ok(M::try_from(map)?)
}

/// Extracts the kernel's error code from wherever the library has wrapped it.
fn as_io(error: impl Error + 'static) -> io::Error {
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return io::Error::from_raw_os_error(code);
        }
        cause = error.source();
    }
    io::Error::other(error.to_string())
}

#[cfg(test)]
mod tests;
