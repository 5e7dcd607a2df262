//! Hairpins: packets from one inside host to the external address of another, which a translator sends back inside.
//!
//! Functions before the translator have seen such a packet going out. In a mirrored chain it returns through them as packets
//! from outside do, so a firewall sees both hosts' connections whole, and a router finds the host. Functions behind the translator stand outside,
//! where it never goes: it meets none of them but a router, and translators.

use braid_nf::{Came, Cx, Hairpins, Packet, Port, Reason, Round, Verdict};
use serde::Deserialize;

use crate::parts::{Side, WayOut};

/// A hairpin goes back inside as a packet that the function makes: through the functions before this one, or past those behind it.
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
    /// As any packet: it is no hairpin, or there is nobody to return through or to go past.
    Direct,
    /// Back inside as a packet that the translator makes: through the functions before it, as if it had come by a port outside, or past those behind.
    Round(Came),
}

impl Way {
    /// The way of a hairpin that would leave by `across` if it went out.
    pub fn of(cx: &Cx<'_>, packet: &Packet<'_>, across: Port) -> Way {
        let came = |by| Way::Round(Came::of(packet, by));
        match cx.hairpins() {
            Round::Onward => Way::Direct,
            Round::Return => came(across),
            Round::Past => came(packet.port()),
        }
    }

    /// Sends a translated packet, about which `verdict` was decided.
    pub fn send(self, cx: &mut Cx<'_>, packet: &Packet<'_>, verdict: Verdict) -> Verdict {
        match (self, verdict) {
            (Way::Round(came), Verdict::Forward(to)) => {
                cx.emit_hairpin(came, to, packet.bytes());
                Verdict::Drop(RETURNS)
            }
            (_, verdict) => verdict,
        }
    }

    /// Sends a fragment that has waited for the first one of its datagram.
    pub fn send_piece(self, cx: &mut Cx<'_>, to: Port, frame: &[u8]) {
        match self {
            Way::Round(came) => cx.emit_hairpin(came, to, frame),
            Way::Direct => cx.emit_onward(to, frame),
        }
    }
}
