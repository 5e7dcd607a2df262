//! Translation of ICMP errors about open connections. The quoted segment has the other side's sequence numbers, so its
//! sender would discard the error (RFC 5927 section 4.1).

use braid_nf::packet::parse::protocol;
use braid_nf::prelude::*;

use super::SynProxy;
use super::connection::Flow;
use super::cookie::Ends;

/// The endpoints of a flow, from the key of its set.
pub(super) fn ends(key: &SetKey, flow: &Flow) -> Option<Ends> {
    let tuple = key.five_tuple()?;
    let (source, destination) = ((tuple.src_ip, tuple.src_port), (tuple.dst_ip, tuple.dst_port));
    let (client, server) = if flow.is_reversed() { (destination, source) } else { (source, destination) };
    Some(Ends { client: client.0, server: server.0, client_port: client.1, server_port: server.1 })
}

/// The endpoints of a connection, from a segment of the server.
pub(super) fn answered_ends(packet: &Packet<'_>) -> Option<Ends> {
    let (server_port, client_port) = packet.ports()?;
    Some(Ends { client: packet.dst_ip(), server: packet.src_ip(), client_port, server_port })
}

impl SynProxy {
    /// Translates the segment that an ICMP error quotes, if it belongs to an open connection.
    pub(super) fn error(&self, cx: &mut Cx<'_>, packet: &mut Packet<'_>) -> Result<(), Conflict> {
        let Some(quoted) = packet.embedded().filter(|quoted| quoted.protocol == protocol::TCP) else { return Ok(()) };
        let Some((source, destination)) = quoted.ports else { return Ok(()) };
        let from_server =
            Ends { client: quoted.dst_ip, server: quoted.src_ip, client_port: destination, server_port: source };
        if let Some(ahead) = self.ahead.get(cx, &from_server)? {
            if let Some(mut quoted) = packet.embedded_mut() {
                quoted.shift_sequence(ahead);
            }
            return Ok(());
        }
        let from_client =
            Ends { client: quoted.src_ip, server: quoted.dst_ip, client_port: source, server_port: destination };
        if let Some(ahead) = self.ahead.get(cx, &from_client)?
            && let Some(mut quoted) = packet.embedded_mut()
        {
            quoted.shift_acknowledgement(ahead.wrapping_neg());
        }
        Ok(())
    }
}
