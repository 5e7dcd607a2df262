//! Detects port scanners by the low share of services that answer them: the threshold random walk of Jung, Paxson, Berger
//! and Balakrishnan (IEEE Symposium on Security and Privacy 2004).

mod config;
mod walk;

pub use config::{Action, Config};
pub use walk::{Thresholds, Walk};

use braid_nf::packet::IpAddress;
use braid_nf::packet::headers::tcp_flags;
use braid_nf::packet::parse::protocol::TCP;
use braid_nf::prelude::*;

use crate::parts::{Alerts, NS_PER_MS, seconds};
use crate::{ConfigError, FromConfig};

/// A connection that a known scanner opens.
const SCANNER: Reason = Reason("scanner");

/// The evidence against a scanner.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Evidence {
    at_ns: u64,
    contacts: u32,
    failures: u32,
}

network_function! {
    /// Detects scans; see the README beside this file.
    #[derive(Debug)]
    pub struct PortScan {
        thresholds: Thresholds,
        action: Action,
        forget_ns: u64,
        alerts: Alerts<IpAddress, Evidence>,
    }
}

impl FromConfig for PortScan {
    type Config = Config;

    fn from_config(config: Config, builder: &mut StateBuilder, _: u16) -> Result<PortScan, ConfigError> {
        let thresholds = config.thresholds()?;
        Ok(PortScan {
            thresholds,
            action: config.action,
            forget_ns: u64::from(thresholds.scanner_ms) * NS_PER_MS,
            alerts: Alerts::new(builder, config.alerts_max).map_err(|e| ConfigError::state("alerts_max", &e))?,
        })
    }
}

impl NetworkFunction for PortScan {
    type Set = Walk;
    const NAME: &'static str = "port_scan";

    /// The height of a walk depends on the shares with which it was computed.
    fn inherits(&self, older: &Self) -> Result<(), String> {
        let Thresholds { answer_ms, scanner_ms, honest_ms, .. } = self.thresholds;
        if self.thresholds != (Thresholds { answer_ms, scanner_ms, honest_ms, ..older.thresholds }) {
            let shares = "`honest_success`, `scanner_success`, `false_alarms` and `misses`";
            return Err(format!("walks have come where they are by the shares: {shares} stay"));
        }
        Ok(())
    }

    fn packet_set(&self) -> Option<SetDef> {
        Some(SetDef::src_ip().only(&[TCP]))
    }

    fn timeout_ns(&self, _: &Walk) -> u64 {
        self.forget_ns
    }

    /// Watches only hosts that open connections.
    fn first(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, set: &mut NewSet<'_, Walk>) -> Handled {
        let mut walk = Walk::default();
        let verdict = self.packet(cx, packet, &mut walk)?;
        let is_watched = walk.contacts() == 0 || set.register(cx, walk);
        match self.action {
            // An unwatched host could scan.
            Action::Drop if !is_watched => Ok(Verdict::Drop(Reason::SET_TABLE_FULL)),
            _ => Ok(verdict),
        }
    }

    fn packet(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, walk: &mut Walk) -> Handled {
        let (Some(flags), Some((_, port))) = (packet.tcp_flags(), packet.ports()) else { return Ok(cx.pass()) };
        let now_ms = (cx.now() / NS_PER_MS) as u32;
        let was_scanner = walk.is_scanner();
        walk.reopen(&self.thresholds, now_ms);
        walk.give_up(&self.thresholds, now_ms);
        let service = walk::service(packet.dst_ip(), port);
        // Not `parts::is_opening`: scans use SYNs with a FIN too, which some hosts answer.
        let kind = flags & (tcp_flags::SYN | tcp_flags::ACK | tcp_flags::RST);
        match kind {
            tcp_flags::SYN => walk.ask(service, now_ms),
            // Only a SYN and a reset may lack an ACK (RFC 9293 section 3.10.7.4): a NULL, FIN or Xmas scan.
            0 => walk.probe(&self.thresholds, service, now_ms),
            _ => walk.hear(&self.thresholds, (service, kind & tcp_flags::RST == 0), now_ms),
        }
        if walk.is_scanner() && !was_scanner {
            self.alerts.raise(cx, &packet.src_ip(), &evidence(walk, cx.now()))?;
        }
        match self.action {
            Action::Drop if kind & !tcp_flags::SYN == 0 && walk.is_scanner() => Ok(Verdict::Drop(SCANNER)),
            _ => Ok(cx.pass()),
        }
    }

    fn orphan(&self, cx: &mut Cx<'_>, _: &mut Packet<'_>) -> Handled {
        Ok(cx.pass())
    }

    fn expired(&self, cx: &mut Cx<'_>, key: &SetKey, walk: &Walk) -> Result<(), Conflict> {
        match (key.parts().ips, self.convicted_at_last(walk)) {
            ([Some(host), _], Some(walk)) => self.alerts.raise(cx, &host, &evidence(&walk, cx.now())).map(drop),
            _ => Ok(()),
        }
    }

    fn report(&self, cx: &mut Cx<'_>, into: &mut Findings) -> Result<(), Conflict> {
        self.alerts.report(cx, into, |host, evidence, into| {
            let Evidence { at_ns, contacts, failures } = evidence;
            let detail = format!("{failures} of {contacts} first contacts failed, at {}", seconds(*at_ns));
            into.find("scanner", host, detail);
        })
    }

    /// Contacts that are unanswered at the end of the traffic count as failed.
    fn report_set(&self, key: &SetKey, walk: &Walk, into: &mut Findings) {
        into.add("hosts that open connections", 1);
        if let ([Some(host), _], Some(walk)) = (key.parts().ips, self.convicted_at_last(walk)) {
            let Evidence { contacts, failures, .. } = evidence(&walk, 0);
            into.find("scanner", host, format!("{failures} of {contacts} first contacts failed, by the end"));
        }
    }
}

impl PortScan {
    /// The walk of a host that turns out to be a scanner once its pending contacts have failed.
    fn convicted_at_last(&self, walk: &Walk) -> Option<Walk> {
        let mut last = *walk;
        last.give_up_all(&self.thresholds);
        (last.is_scanner() && !walk.is_scanner()).then_some(last)
    }
}

fn evidence(walk: &Walk, at_ns: u64) -> Evidence {
    Evidence { at_ns, contacts: walk.contacts(), failures: walk.failures() }
}

#[cfg(test)]
mod tests;
