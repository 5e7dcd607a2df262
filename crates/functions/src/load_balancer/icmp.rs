//! ICMP errors, sent to the backend that they concern, with the quoted packet translated.
//!
//! An error to a service quotes a reply to a client. Hashing the client's endpoint as for its own packets finds the
//! client's backend. Packet sets of other flows cannot be read, so connections that are elsewhere note where they are
//! (`strays.rs`). Redirects about translated packets are dropped, as in Linux: they would lead a host past the
//! translator.

use braid_nf::packet::Embedded;
use braid_nf::packet::headers::icmp_type;
use braid_nf::prelude::*;

use super::config::Mode;
use super::flow::{FROM_BACKEND, TO_BACKEND};
use super::{LoadBalancer, UNRELATED};
use crate::parts::{Side, Volume};

impl LoadBalancer {
    /// Handles an error that arrives from one side.
    pub(super) fn error(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, from: Option<Side>) -> Handled {
        let Some(quoted) = packet.embedded() else { return Ok(cx.pass()) };
        if let Some(verdict) = self.error_about_tunnel(cx, packet, &quoted)? {
            return Ok(verdict);
        }
        let Some((source, destination)) = quoted.ports else {
            return Ok(self.unrelated(cx, packet, &quoted));
        };
        let Some(service) = self.settings.service((quoted.src_ip, source, quoted.protocol)) else {
            return match from {
                Some(Side::Inside) if self.settings.is_checker(quoted.src_ip) => self.pass_by(cx, packet),
                Some(Side::Inside) => self.error_to_client(cx, packet, &quoted, destination),
                _ => Ok(self.unrelated(cx, packet, &quoted)),
            };
        };
        if packet.dst_ip() != quoted.src_ip || is_redirect(packet) {
            return Ok(Verdict::Drop(UNRELATED));
        }
        let (client, end) = ((quoted.dst_ip, destination), (quoted.src_ip, source, quoted.protocol));
        let Some(backend) = self.backend_of(cx, service, client, end)? else {
            return Ok(Verdict::Drop(UNRELATED));
        };
        let Some(server) = self.settings.servers.get(backend as usize).copied() else {
            return Ok(Verdict::Drop(UNRELATED));
        };
        if !packet.decrement_ttl() {
            return self.expired_on_way(cx, packet);
        }
        let volume = Volume { packets: 1, bytes: packet.wire_len().into() };
        let verdict = match service.mode {
            Mode::Nat => {
                if let Some(mut inner) = packet.embedded_mut() {
                    inner.set_src(server.address, if server.port == 0 { source } else { server.port });
                }
                packet.set_dst_ip(server.address);
                Verdict::Forward(self.settings.across(packet.port()))
            }
            _ => self.send_whole(cx, packet, &server)?,
        };
        if let Verdict::Forward(_) = verdict {
            self.count_traffic(cx, backend as u16, TO_BACKEND, volume)?;
        }
        Ok(verdict)
    }

    /// Handles an error about a client's packet, from a backend or a router ahead of it.
    fn error_to_client(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>, quoted: &Embedded, port: u16) -> Handled {
        let number = self.settings.server_number((quoted.dst_ip, port, quoted.protocol));
        let Some((backend, server)) =
            number.and_then(|number| Some((number, *self.settings.servers.get(usize::from(number))?)))
        else {
            return Ok(self.unrelated(cx, packet, quoted));
        };
        let client = (quoted.src_ip, quoted.ports.map_or(0, |(source, _)| source));
        if !self.is_answer(cx, backend, client, (port, quoted.protocol))? {
            return Ok(self.unrelated(cx, packet, quoted));
        }
        if is_redirect(packet) {
            return Ok(Verdict::Drop(UNRELATED));
        }
        if !packet.decrement_ttl() {
            return self.expired_on_way(cx, packet);
        }
        let volume = Volume { packets: 1, bytes: packet.wire_len().into() };
        self.count_traffic(cx, backend, FROM_BACKEND, volume)?;
        if let Some(mut inner) = packet.embedded_mut() {
            inner.set_dst(server.service_address, server.service_ports.only().unwrap_or(port));
        }
        packet.set_src_ip(server.service_address);
        Ok(Verdict::Forward(self.settings.across(packet.port())))
    }

    /// Passes errors that concern no service, those about a backend's own packets among them. Drops others that are addressed to a
    /// service or backend, where nothing could interpret them.
    fn unrelated(&self, cx: &Cx<'_>, packet: &Packet<'_>, quoted: &Embedded) -> Verdict {
        let to = packet.dst_ip();
        let is_own = to == quoted.src_ip && !self.settings.is_service(to);
        if self.settings.knows(to) && !is_own { Verdict::Drop(UNRELATED) } else { cx.pass() }
    }
}

/// Whether an ICMP error is a redirect (RFC 792). ICMPv6 redirects are link-local and do not get here.
fn is_redirect(packet: &Packet<'_>) -> bool {
    packet.icmp().is_some_and(|icmp| icmp.kind() == icmp_type::REDIRECT)
}
