//! Hairpins: packets from one inside host to the external address of another, which a translator sends back inside.
//!
//! Functions before the translator have seen such a packet going out. In a mirrored chain it returns through them as packets
//! from outside do, so a firewall sees both hosts' connections whole, and a router finds the host.

use braid_nf::{Came, Cx, Hairpins, Packet, Port, Reason, Verdict};
use serde::Deserialize;

use super::{Side, WayOut};

/// A hairpin returns through the functions before this one, as a packet that the function makes.
pub const RETURNS: Reason = Reason("hairpin");

/// How packets from one inside host to another's external address go back inside where functions stand before the translator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Return {
    /// Through those functions, as packets from outside.
    Through,
    /// Past them.
    Direct,
}

impl Return {
    /// Which hairpins return through the functions before a translator with this way out. `local`: what they are if packets that
    /// return are on the worker to which packets from outside with their addresses come. Otherwise functions before it would have
    /// to share their packet sets, so they return if that is wanted, or if a router there decides, which alone knows the stations.
    pub fn hairpins(wanted: Option<Return>, way_out: &WayOut, local: Option<Hairpins>) -> Hairpins {
        match (wanted, local) {
            (Some(Return::Direct), _) => Hairpins::None,
            (_, Some(local)) => local,
            (Some(Return::Through), None) => Hairpins::Any,
            (None, None) if way_out.is_decided(Side::Inside) => Hairpins::Any,
            (None, None) => Hairpins::None,
        }
    }
}

/// How a packet goes on.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// It is no hairpin, or there are no functions before the translator.
    Direct,
    /// Back inside through the functions before the translator, as if it had come by a port outside.
    Through(Came),
}

impl Way {
    /// The way of a hairpin that would leave by `across` if it went out.
    pub fn of(cx: &Cx<'_>, packet: &Packet<'_>, across: Port) -> Way {
        match cx.hairpins_return() {
            true => Way::Through(Came { by: across, link: packet.link() }),
            false => Way::Direct,
        }
    }

    /// Sends a translated packet, about which `verdict` was decided.
    pub fn send(self, cx: &mut Cx<'_>, packet: &Packet<'_>, verdict: Verdict) -> Verdict {
        match (self, verdict) {
            (Way::Through(came), Verdict::Forward(to)) => {
                cx.emit_hairpin(came, to, packet.bytes());
                Verdict::Drop(RETURNS)
            }
            (_, verdict) => verdict,
        }
    }

    /// Sends a fragment that has waited for the first one of its datagram.
    pub fn send_piece(self, cx: &mut Cx<'_>, to: Port, frame: &[u8]) {
        match self {
            Way::Through(came) => cx.emit_hairpin(came, to, frame),
            Way::Direct => cx.emit_onward(to, frame),
        }
    }
}
