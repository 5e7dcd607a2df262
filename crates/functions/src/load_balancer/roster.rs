//! Backends and their numbers. Flows, clients that stay, and counts speak of a backend by its number, which it keeps when the configuration
//! changes: one that joins gets a new number, one that is taken out keeps its own, and has it again when it returns.
//!
//! No number is ever another backend's: a flow of long ago may still speak of it. What the configuration names besides is written down with it,
//! so the connections of a backend that has left are known until they have moved or ended.

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

/// Of the object.
const NAME: &str = "backends";

/// One number, as it is kept for whoever takes over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Line {
    pub(super) name: Name,
    /// Its Ethernet address: another one makes no other backend of it.
    pub(super) mac: [u8; 6],
}

/// What tells a backend from others. A connection of one that is named otherwise asks for a backend again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Name {
    pub(super) address: IpAddress,
    pub(super) service_address: IpAddress,
    /// 0: as the client asked.
    pub(super) port: u16,
    /// [`Ports::words`].
    service_ports: [u16; 2],
    /// 0: TCP and UDP.
    protocol: u8,
    /// A [`Mode`].
    mode: u8,
}

impl Line {
    /// That of a backend of a service.
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
    /// What clients may ask for.
    pub(super) fn service_ports(&self) -> Ports {
        Ports::of_words(self.service_ports)
    }

    /// How its packets reach it.
    pub(super) fn mode(&self) -> Mode {
        Mode::ALL.into_iter().find(|mode| *mode as u8 == self.mode).unwrap_or_default()
    }
}

/// The numbers, left to whoever takes over.
pub(super) struct Names(Numbering);

impl Names {
    /// The numbers that the former function gave.
    pub(super) fn left(builder: &StateBuilder) -> Roster {
        Numbering::left(builder, NAME).map(Roster::of).unwrap_or_default()
    }

    /// Leaves these.
    pub(super) fn new(builder: &mut StateBuilder, roster: &Roster) -> Result<Names, StateError> {
        Numbering::new(builder, NAME, &roster.lines).map(Names)
    }
}

impl Part for Names {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        into.push(self.0.object());
    }
}

/// The numbers of all backends that there are or were.
#[derive(Clone, Debug, Default)]
pub(super) struct Roster {
    lines: Vec<Line>,
    numbers: HashMap<Name, u16>,
}

impl Roster {
    /// What a former function left; nothing if somebody has touched it: each backend has one number.
    fn of(lines: Vec<Line>) -> Roster {
        let numbers: HashMap<Name, u16> = lines.iter().map(|line| line.name).zip(0..=u16::MAX).collect();
        if numbers.len() == lines.len() { Roster { lines, numbers } } else { Roster::default() }
    }

    /// By number.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The number of a backend: its former one, or the next; none if there are no more.
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
