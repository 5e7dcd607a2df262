//! Backends and their numbers.
//!
//! Flows, persistent clients and counts refer to a backend by its number, which survives configuration changes: a backend
//! that joins gets a new number; one that is removed keeps its own, and has it again if it returns. A number is never
//! reused for another backend, because an old flow may still refer to it. The roster also keeps the rest of a backend's
//! configuration, so that the connections of a backend that has left still work until they move or end.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{Numbering, StateBuilder, StateError, StateObject};
use foldhash::HashMap;

use super::config::{Backend, Mode, Service, Transport};
use super::pieces::PASSES;
use super::ports::Ports;

/// The name of the state object.
const NAME: &str = "backends";

/// One backend, as stored for the function that takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Line {
    pub(super) name: Name,
    /// Its Ethernet address; a new one does not make it another backend.
    pub(super) mac: [u8; 6],
}

/// What identifies a backend. If any of it changes, connections choose a backend again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Name {
    pub(super) address: IpAddress,
    pub(super) service_address: IpAddress,
    /// 0: the port that the client used.
    pub(super) port: u16,
    /// The service's ports, as [`Ports::words`].
    service_ports: [u16; 2],
    /// 0: TCP and UDP.
    pub(super) protocol: u8,
    /// The [`Mode`].
    mode: u8,
}

impl Line {
    /// The line for a backend of a service.
    pub(super) fn of(service: &Service, backend: &Backend) -> Line {
        let protocol = match service.protocol {
            Some(Transport::Tcp) => protocol::TCP,
            Some(Transport::Udp) => protocol::UDP,
            None => 0,
        };
        let name = Name {
            address: backend.address.into(),
            service_address: service.address.into(),
            port: backend.port.unwrap_or(service.ports().number()),
            service_ports: service.ports().words(),
            protocol,
            mode: service.mode as u8,
        };
        Line { name, mac: backend.mac.map(|written| written.0.0).unwrap_or_default() }
    }
}

impl Name {
    /// The ports that clients may use.
    pub(super) fn service_ports(&self) -> Ports {
        Ports::of_words(self.service_ports)
    }

    /// How packets reach the backend.
    pub(super) fn mode(&self) -> Mode {
        Mode::ALL.into_iter().find(|mode| *mode as u8 == self.mode).unwrap_or_default()
    }
}

/// The state object that passes the numbers on to the function that takes over.
pub(super) struct Names(Numbering);

impl Names {
    /// Reads the numbers that the former function left.
    pub(super) fn left(builder: &StateBuilder) -> Roster {
        Numbering::left(builder, NAME).map(Roster::of).unwrap_or_default()
    }

    /// Leaves these numbers for the next function.
    pub(super) fn new(builder: &mut StateBuilder, roster: &Roster) -> Result<Names, StateError> {
        Numbering::new(builder, NAME, &roster.lines).map(Names)
    }
}

impl Part for Names {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.0.object());
    }
}

/// The numbers of all present and former backends.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    lines: Vec<Line>,
    numbers: HashMap<Name, u16>,
}

impl Roster {
    /// Takes what a former function left; empty if it is inconsistent, that is if a backend has two numbers.
    fn of(lines: Vec<Line>) -> Roster {
        let numbers: HashMap<Name, u16> = lines.iter().map(|line| line.name).zip(0..=u16::MAX).collect();
        if numbers.len() == lines.len() { Roster { lines, numbers } } else { Roster::default() }
    }

    /// The lines, indexed by backend number.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The number of a backend: its former one, else the next free one; `None` if there is none left.
    pub(super) fn number(&mut self, line: Line) -> Option<u16> {
        if let Some(&number) = self.numbers.get(&line.name) {
            self.lines[usize::from(number)].mac = line.mac;
            return Some(number);
        }
        let next = u16::try_from(self.lines.len()).ok().filter(|next| *next < PASSES)?;
        self.lines.push(line);
        self.numbers.insert(line.name, next);
        Some(next)
    }
}
