//! Flows in words, for an operator who lists them: which backend they have.

use braid_nf::prelude::*;

use super::LoadBalancer;
use super::config::Mode;
use super::flow::{FROM_BACKEND, Flow, OWN, Phase};
use super::ports::shown;

impl LoadBalancer {
    /// The backend of a flow, how it stands, and how far the flow has come.
    pub(super) fn words(&self, cx: &mut Cx<'_>, flow: &Flow) -> Result<String, Conflict> {
        let Some(server) = self.settings.server_of(flow) else { return Ok("its backend is gone".to_owned()) };
        let backend = shown(server.address, server.ports());
        let way = match (flow.way, server.mode) {
            (OWN, _) => format!("of backend {backend} itself, to no client of service {}", server.service()),
            (FROM_BACKEND, _) => format!("from backend {backend}, of service {}", server.service()),
            (_, Mode::Nat) => format!("to backend {backend}"),
            (_, Mode::Ipip) => format!("to backend {backend} in IP"),
            (_, Mode::Gre) => format!("to backend {backend} in GRE"),
            (_, Mode::Gue) => format!("to backend {backend} in GUE"),
            (_, Mode::Direct) => format!("to backend {backend} by Ethernet address {}", server.mac),
        };
        let stands = match self.is_up(cx, flow.backend.into())? {
            _ if server.has_left => ", which has left",
            false => ", which is down",
            true if server.weight == 0 => ", which drains",
            true => "",
        };
        Ok(format!("{way}{stands}{}", phase_in_words(flow.phase)))
    }
}

fn phase_in_words(phase: u8) -> &'static str {
    const SINGLE: u8 = Phase::Single as u8;
    const OPENING: u8 = Phase::Opening as u8;
    const TCP: u8 = Phase::Tcp as u8;
    const CLOSING: u8 = Phase::Closing as u8;
    match phase {
        SINGLE => ", one packet",
        OPENING => ", opening",
        TCP => ", open",
        CLOSING => ", closing",
        _ => ", several packets",
    }
}
