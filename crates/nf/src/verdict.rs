//! Verdicts: the decisions of functions about packets, and the reasons for drops.

use crate::Port;

/// Why a packet was dropped: a name in lower case with its words joined by `_`, shown in reports and metrics. The
/// runtime counts drops per function and reason. Write each reason of a function as a constant:
/// `const NO_PORT: Reason = Reason("no_port");`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub &'static str);

impl Reason {
    /// The packet belongs to no packet set, and the function has no handler for orphans.
    pub const ORPHAN: Reason = Reason("orphan");
    /// The table of packet sets has no room for a new set.
    pub const SET_TABLE_FULL: Reason = Reason("set_table_full");
    /// A header is truncated or inconsistent.
    pub const MALFORMED: Reason = Reason("malformed");
    /// The time to live or hop limit reached zero at this function.
    pub const TTL_EXCEEDED: Reason = Reason("ttl_exceeded");
    /// The handler panicked on this packet: a bug in the function, not a fault of the packet.
    pub const HANDLER_PANIC: Reason = Reason("handler_panic");
    /// The verdict names a port that the plan does not have.
    pub const NO_SUCH_PORT: Reason = Reason("no_such_port");
    /// The packet was flooded, but there is no other port to send it to.
    pub const NOWHERE_TO_FLOOD: Reason = Reason("nowhere_to_flood");
}

/// The decision of a handler about a packet: what every packet handler returns. In a chain, a packet that is not
/// dropped continues to the next function, and the last decision counts. The packet leaves after the last function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the packet out by this port. If the plan has no such port, it is dropped ([`Reason::NO_SUCH_PORT`]).
    Forward(Port),
    /// Send a copy out by every port except the one by which the packet arrived. Without another port it is dropped
    /// ([`Reason::NOWHERE_TO_FLOOD`]).
    Flood,
    /// Drop the packet and count it under this reason. No later function sees it. What the handler has written to state
    /// stays: to drop is not to roll back.
    Drop(Reason),
    /// Leave the decision of earlier functions in the chain unchanged. If there is none, the packet leaves by the port
    /// opposite its arrival port ([`opposite`](crate::opposite)). Functions that only observe return this.
    Onward,
}

/// The latest decision for each packet of a batch: two bytes per packet, plus a reason for each dropped packet. Packets
/// are numbered from 0 by their position in the batch. For the runtime; a function only returns a [`Verdict`].
#[derive(Clone, Debug)]
pub struct Verdicts {
    codes: [u16; 256],
    reasons: [Reason; 256],
    /// The code of each dropped packet before it was dropped.
    earlier: [u16; 256],
    /// Whether a packet has been dropped since the batch started.
    dropped: bool,
}

/// A saved decision for a packet that is not dropped, used to restore it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerdictCode(u16);

const DROP: u16 = u16::MAX;
const FLOOD: u16 = u16::MAX - 1;

/// Maximum number of ports of a plan; the values from here on stand for flooding and dropping.
pub const PORTS_MAX: u16 = FLOOD;
/// Pseudo port for flooding: every port except the packet's arrival port.
pub const EVERY_PORT: Port = FLOOD;

impl Default for Verdicts {
    fn default() -> Self {
        Verdicts { codes: [0; 256], reasons: [Reason(""); 256], earlier: [0; 256], dropped: false }
    }
}

impl Verdicts {
    /// Returns the decision for packet `i`; never [`Verdict::Onward`].
    #[inline(always)]
    pub fn get(&self, i: usize) -> Verdict {
        match self.codes[i] {
            DROP => Verdict::Drop(self.reasons[i]),
            FLOOD => Verdict::Flood,
            port => Verdict::Forward(port),
        }
    }

    /// Returns the port by which packet `i` leaves, or would have left had it not been dropped; [`EVERY_PORT`] if it is
    /// flooded.
    pub fn port(&self, i: usize) -> Port {
        if self.is_drop(i) { self.earlier[i] } else { self.codes[i] }
    }

    /// Appends to `into`, for each of the first packets, the port by which it leaves or would have left.
    pub(crate) fn copy_ports(&self, packets: usize, into: &mut Vec<Port>) {
        match self.codes.get(..packets) {
            Some(codes) if !self.dropped => into.extend_from_slice(codes),
            _ => into.extend((0..packets.min(self.codes.len())).map(|i| self.port(i))),
        }
    }

    /// Starts a batch with a default output port for each packet, or [`EVERY_PORT`] for flooding.
    #[inline]
    pub fn expect(&mut self, ports: impl Iterator<Item = Port>) {
        self.dropped = false;
        self.codes.iter_mut().zip(ports).for_each(|(code, port)| *code = port.min(EVERY_PORT));
    }

    /// Sets the decision for packet `i`.
    #[inline(always)]
    pub fn set(&mut self, i: usize, verdict: Verdict) {
        match verdict {
            Verdict::Forward(port) => self.codes[i] = port.min(PORTS_MAX - 1),
            Verdict::Onward => {}
            // Rare cases are out of line together; with four match arms the compiler would emit a jump table.
            rare => self.set_rare(i, rare),
        }
    }

    #[inline(never)]
    fn set_rare(&mut self, i: usize, verdict: Verdict) {
        match verdict {
            Verdict::Flood => self.codes[i] = FLOOD,
            Verdict::Drop(reason) => {
                self.reasons[i] = reason;
                if self.codes[i] != DROP {
                    self.earlier[i] = self.codes[i];
                }
                self.codes[i] = DROP;
                self.dropped = true;
            }
            Verdict::Forward(_) | Verdict::Onward => unreachable!("decided where this is called"),
        }
    }

    /// Returns whether a packet of the batch may have been dropped; `false` guarantees that none was.
    #[inline(always)]
    pub fn any_dropped(&self) -> bool {
        self.dropped
    }

    /// Appends the packets in `of` with their output ports to `out`, and returns whether every port is below `ports`.
    /// If not, because a packet is flooded, dropped or has an unknown port, the appended entries are meaningless.
    #[inline(always)]
    pub fn ports_of(&self, of: &[u16], ports: u16, out: &mut Vec<(u16, Port)>) -> bool {
        // `of` nearly always lists all packets of the batch in order; branch-free loops can then be vectorised.
        let others = of.iter().zip(0..).fold(0, |others, (number, in_row): (&u16, u16)| others | (number ^ in_row));
        if others == 0
            && let Some(codes) = self.codes.get(..of.len())
        {
            out.extend((0..of.len() as u16).zip(codes.iter().copied()));
            return codes.iter().fold(0, |greatest, &code| code.max(greatest)) < ports;
        }
        let mut greatest = 0;
        out.extend(of.iter().map(|&i| {
            let code = self.codes[usize::from(i) & 255];
            greatest = greatest.max(code);
            (i, code)
        }));
        greatest < ports
    }

    /// Returns the code for packet `i`, which must not be dropped.
    #[inline(always)]
    pub(crate) fn code(&self, i: usize) -> VerdictCode {
        VerdictCode(self.codes[i])
    }

    /// Restores an earlier decision.
    pub(crate) fn restore(&mut self, i: usize, earlier: VerdictCode) {
        self.codes[i] = earlier.0;
    }

    /// Returns whether packet `i` is dropped.
    #[inline(always)]
    pub fn is_drop(&self, i: usize) -> bool {
        self.codes[i] == DROP
    }
}
