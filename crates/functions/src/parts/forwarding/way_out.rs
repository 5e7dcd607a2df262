//! The ports by which a translator or balancer lets packets leave that cross it: those of the other side, unless a router or
//! bridge before it has decided otherwise, or a translator before it has sent them back to where they came from.

use braid_nf::state::{Decided, StateBuilder};
use braid_nf::{Cx, EVERY_PORT, Port, Verdict};

use crate::parts::{Across, Side, Sides};

/// Where packets leave, by the port on which they arrive.
#[derive(Clone, Copy, Debug)]
pub struct WayOut {
    sides: Sides,
    across: Across,
    /// Whether an earlier function has decided, of packets from each side.
    is_decided: [bool; 2],
    /// Whether the port by which a packet arrives alone says by which one it leaves.
    is_fixed: bool,
}

braid_nf::plain!(WayOut);

impl WayOut {
    /// The ways of a function that is being built, in a plan with so many ports.
    pub fn new(sides: Sides, ports: u16, builder: &StateBuilder) -> WayOut {
        // A port on both sides is its own way out.
        let is_decided = builder.decided().map(|decided| decided == Decided::Before && !sides.are_shared());
        let many = |side: Side| (0..ports).filter(|port| sides.of(*port) == Some(side)).count() > 1;
        let may_differ = |side: Side| is_decided[side as usize] && many(side.other());
        let is_fixed = !may_differ(Side::Inside) && !may_differ(Side::Outside);
        WayOut { sides, across: sides.across_all(ports), is_decided, is_fixed }
    }

    /// Whether [`fixed`](Self::fixed) is right for what crosses.
    pub fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// Whether a router or bridge before this function decides about packets from a side: it alone knows the stations there.
    pub fn is_decided(&self, side: Side) -> bool {
        self.is_decided[side as usize]
    }

    /// The port by which packets from a port leave if no earlier function has decided.
    #[inline(always)]
    pub fn fixed(&self, port: Port) -> Port {
        self.across.of(port)
    }

    /// The port by which a packet from a port leaves for the other side; where an earlier function has decided, by its port.
    pub fn of(&self, cx: &Cx<'_>, port: Port) -> Port {
        self.chosen(cx, port).unwrap_or_else(|| self.fixed(port))
    }

    /// The port by which a packet leaves that stays on its side: that of an earlier function, else its own.
    pub fn of_local(&self, cx: &Cx<'_>, port: Port) -> Port {
        self.chosen(cx, port).unwrap_or(port)
    }

    /// The port by which an earlier function sends a packet back to the side that it came from: a router to another link there, or a
    /// translator a hairpin, which goes no further (RFC 4787 REQ-9, RFC 6296 section 4.3).
    pub fn back(&self, cx: &Cx<'_>, port: Port) -> Option<Port> {
        let side = self.sides.of(port).filter(|_| !self.sides.are_shared())?;
        let by = self.chosen(cx, port)?;
        (self.sides.of(by) == Some(side)).then_some(by)
    }

    /// The port by which a translator sends a packet. Until a function decides, one is expected to leave by the opposite port, on
    /// whichever side that is.
    fn sent_back(&self, cx: &Cx<'_>, port: Port) -> Option<Port> {
        let (by, side) = (cx.leaves_by(), self.sides.of(port));
        (by != cx.opposite(port) && !self.sides.are_shared() && side.is_some() && self.sides.of(by) == side)
            .then_some(by)
    }

    fn chosen(&self, cx: &Cx<'_>, port: Port) -> Option<Port> {
        self.decided(cx, port).or_else(|| self.sent_back(cx, port))
    }

    /// The verdict about a packet from a port that crosses, given as for one about which nothing has been decided.
    pub fn verdict(&self, cx: &Cx<'_>, port: Port, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Forward(to) if !self.is_fixed && to == self.fixed(port) => Verdict::Forward(self.of(cx, port)),
            verdict => verdict,
        }
    }

    fn decided(&self, cx: &Cx<'_>, port: Port) -> Option<Port> {
        self.sides.of(port).filter(|side| self.is_decided[*side as usize])?;
        // What is flooded goes to no port in particular.
        Some(cx.leaves_by()).filter(|by| *by != EVERY_PORT)
    }
}
