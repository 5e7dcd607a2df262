//! Which backends are up, from three sources: backends' announcements, monitors' reports, and silence.
//!
//! All input arrives in packets, so a certificate covers it and a capture replays it.

use std::sync::Arc;

use braid_nf::packet::IpAddress;
use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;
use braid_nf::state::{StateBuilder, StateError, StateObject};
use braid_nf::{Findings, Part};

use super::LoadBalancer;
use super::ports::Ports;
use super::settings::Server;
use crate::parts::headers::lengths;
use crate::parts::{Side, Unkept};

/// A backend's announcement or a monitor's report, consumed here.
pub const HEARTBEAT: Reason = Reason("heartbeat");

/// In place of a time: a monitor reports on this backend, so silence does not count.
const WATCHED: u64 = u64::MAX;

/// In place of a state (0: down, 1: up): nothing has been reported yet.
pub(super) const AS_CONFIGURED: u64 = 2;

/// Counts the lines of monitors' reports that change nothing.
#[derive(Debug)]
pub(super) struct Unheeded {
    /// Those that say nothing.
    unread: Unkept,
    /// Those about an address at which there is no backend.
    nobodys: Unkept,
}

/// A monitor's report about a backend: `up 10.0.0.1`, `down 10.0.0.1:8080`.
struct Word {
    is_up: bool,
    address: IpAddress,
    /// `None`: all ports.
    port: Option<u16>,
}

impl LoadBalancer {
    pub(super) fn is_up(&self, cx: &mut Cx<'_>, backend: u32) -> Result<bool, Conflict> {
        let Some(server) = self.settings.servers.get(backend as usize) else { return Ok(false) };
        if self.settings.heartbeat_port.is_none() || server.has_left {
            return Ok(server.up);
        }
        Ok(match self.up.get(cx, backend)? {
            Some(AS_CONFIGURED) => server.up,
            up => up == Some(1),
        })
    }

    /// Whether a packet is a backend's announcement or a monitor's report. What comes from the port of a service is an answer to a client,
    /// whichever port the client has.
    pub(super) fn is_heartbeat(&self, packet: &Packet<'_>) -> bool {
        self.settings.heartbeat_port.is_some()
            && packet.protocol() == protocol::UDP
            && packet.ports().map(|(_, to)| to) == self.settings.heartbeat_port
            && self.settings.sides.of(packet.port()) == Some(Side::Inside)
            && (self.settings.knows(packet.src_ip()) || self.settings.monitors.contains(&packet.src_ip()))
            && !self.is_from_service(packet)
    }

    /// Whether a datagram comes from a port at which its sender serves, which says nothing where it serves at every port.
    fn is_from_service(&self, packet: &Packet<'_>) -> bool {
        let Some((from, _)) = packet.ports() else { return false };
        let number = self.settings.server_number((packet.src_ip(), from, protocol::UDP));
        let server = number.and_then(|number| self.settings.servers.get(usize::from(number)));
        server.is_some_and(|server| server.port != 0 || server.service_ports != Ports::ALL)
    }

    /// Processes a heartbeat.
    pub(super) fn hear(&self, cx: &mut Cx<'_>, packet: &Packet<'_>) -> Handled {
        // A flipped bit would be another backend (RFC 1122 section 4.1.3.4).
        if !lengths::hold_the_headers(packet) || !packet.checksums_ok() {
            return Ok(Verdict::Drop(Reason::MALFORMED));
        }
        if self.settings.monitors.contains(&packet.src_ip()) {
            for line in packet.payload().split(|byte| *byte == b'\n') {
                match Word::read(line) {
                    Some(word) => self.believe(cx, &word)?,
                    None if line.trim_ascii().is_empty() => {}
                    None => self.unheeded.unread.count(cx)?,
                }
            }
        }
        // A monitor may be a backend as well.
        let now = cx.now().max(1);
        for (backend, _) in self.present_at(packet.src_ip()) {
            if self.heard.get(cx, backend)? != Some(WATCHED) {
                self.heard.set(cx, backend, now)?;
                self.note(cx, backend, true)?;
            }
        }
        Ok(Verdict::Drop(HEARTBEAT))
    }

    fn believe(&self, cx: &mut Cx<'_>, word: &Word) -> Result<(), Conflict> {
        let mut is_known = false;
        for (backend, server) in self.present_at(word.address) {
            if word.port.is_none_or(|port| self.settings.is_asked_at(server, port)) {
                is_known = true;
                if self.heard.get(cx, backend)? != Some(WATCHED) {
                    self.heard.set(cx, backend, WATCHED)?;
                }
                self.note(cx, backend, word.is_up)?;
            }
        }
        if is_known { Ok(()) } else { self.unheeded.nobodys.count(cx) }
    }

    /// Writes the state only if it changes, because every flow reads it. It replaces the configured state.
    fn note(&self, cx: &mut Cx<'_>, backend: u32, is_up: bool) -> Result<(), Conflict> {
        if self.up.get(cx, backend)? != Some(is_up.into()) {
            self.up.set(cx, backend, is_up.into())?;
        }
        Ok(())
    }

    /// The backends at an address, without those that have left.
    fn present_at(&self, address: IpAddress) -> impl Iterator<Item = (u32, &Server)> {
        self.settings.servers_at(address).filter(|(_, server)| !server.has_left)
    }

    /// Marks backends as down that have been silent for too long. For a backend never heard, the time starts at the first
    /// call.
    pub(super) fn notice_silence(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        if self.settings.heartbeat_port.is_none() {
            return Ok(());
        }
        let now = cx.now();
        for (backend, server) in (0u32..).zip(&self.settings.servers) {
            match self.heard.get(cx, backend)? {
                // If it returns, it starts with its configured state.
                Some(0) if server.has_left => {}
                Some(_) if server.has_left => {
                    self.heard.set(cx, backend, 0)?;
                    self.up.set(cx, backend, AS_CONFIGURED)?;
                }
                Some(0) => {
                    self.heard.set(cx, backend, now.max(1))?;
                }
                Some(heard) if heard != WATCHED && now.saturating_sub(heard) > self.settings.heartbeat_ns => {
                    self.note(cx, backend, false)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Unheeded {
    pub(super) fn new(builder: &mut StateBuilder) -> Result<Unheeded, StateError> {
        Ok(Unheeded {
            unread: Unkept::new(builder, "unread_reports", "lines of monitors that say nothing")?,
            nobodys: Unkept::new(builder, "nobodys_reports", "lines of monitors about no backend")?,
        })
    }

    pub(super) fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.unread.report(cx, into)?;
        self.nobodys.report(cx, into)
    }
}

impl Part for Unheeded {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.unread.objects(into);
        self.nobodys.objects(into);
    }
}

impl Word {
    /// Reads a line: a state and a backend, with any blanks around them.
    fn read(line: &[u8]) -> Option<Word> {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let (state, backend, None) = (words.next()?, words.next()?, words.next()) else { return None };
        let is_up = match state {
            up if up.eq_ignore_ascii_case("up") => true,
            down if down.eq_ignore_ascii_case("down") => false,
            _ => return None,
        };
        let backend = backend.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(backend);
        match (backend.parse::<std::net::SocketAddr>(), backend.parse()) {
            (Ok(end), _) => Some(Word { is_up, address: end.ip().into(), port: Some(end.port()) }),
            (_, Ok(address)) => Some(Word { is_up, address, port: None }),
            _ => None,
        }
    }
}
