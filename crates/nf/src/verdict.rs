//! What becomes of a packet.

use crate::Port;

/// Why a packet was dropped; counted per function and reason. Constants of the function, in words joined by `_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(pub &'static str);

impl Reason {
    /// The packet belongs to no packet set, and the function has no orphan handler.
    pub const ORPHAN: Reason = Reason("orphan");
    /// The table of packet sets has no room for a new one.
    pub const SET_TABLE_FULL: Reason = Reason("set_table_full");
    /// A header is cut short or contradicts itself.
    pub const MALFORMED: Reason = Reason("malformed");
    /// The time to live or hop limit ended here.
    pub const TTL_EXCEEDED: Reason = Reason("ttl_exceeded");
    /// The handler panicked on this packet: an error in the function, not in the packet.
    pub const HANDLER_PANIC: Reason = Reason("handler_panic");
    /// The verdict names a port that the plan does not have.
    pub const NO_SUCH_PORT: Reason = Reason("no_such_port");
    /// Flooded with no other port to go to.
    pub const NOWHERE_TO_FLOOD: Reason = Reason("nowhere_to_flood");
}

/// What a handler decides. In a chain, `Forward` and `Flood` let the packet go on to the next function; the last decision
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Out by this port.
    Forward(Port),
    /// A copy out by every port but the one by which it came.
    Flood,
    /// No further.
    Drop(Reason),
    /// Wherever an earlier function of the chain sent it, else out by the opposite of the port by which it came: what a
    /// function says that only looks.
    Onward,
}

/// What has been decided for each packet of a batch: two bytes each, and a reason only for those that are dropped.
#[derive(Clone, Debug)]
pub struct Verdicts {
    codes: [u16; 256],
    reasons: [Reason; 256],
    /// What had been decided for each packet that is dropped.
    earlier: [u16; 256],
    /// Since the batch came, some packet was dropped.
    dropped: bool,
}

/// The decision for a packet that goes on, to put back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VerdictCode(u16);

const DROP: u16 = u16::MAX;
const FLOOD: u16 = u16::MAX - 1;

/// Most ports of a plan: the numbers above mean flooding and dropping.
pub const PORTS_MAX: u16 = FLOOD;
/// In the place of a port: every one but that by which the packet came.
pub const EVERY_PORT: Port = FLOOD;

impl Default for Verdicts {
    fn default() -> Self {
        Verdicts { codes: [0; 256], reasons: [Reason(""); 256], earlier: [0; 256], dropped: false }
    }
}

impl Verdicts {
    /// The decision for packet `i`; never [`Verdict::Onward`].
    #[inline(always)]
    pub fn get(&self, i: usize) -> Verdict {
        match self.codes[i] {
            DROP => Verdict::Drop(self.reasons[i]),
            FLOOD => Verdict::Flood,
            port => Verdict::Forward(port),
        }
    }

    /// By which port packet `i` leaves, or would have left if it were not dropped; [`EVERY_PORT`] if it is flooded.
    pub fn port(&self, i: usize) -> Port {
        if self.is_drop(i) { self.earlier[i] } else { self.codes[i] }
    }

    /// Begins a batch whose packets go out by these ports, or by [`EVERY_PORT`], if nobody decides otherwise.
    #[inline]
    pub fn expect(&mut self, ports: impl Iterator<Item = Port>) {
        self.dropped = false;
        self.codes.iter_mut().zip(ports).for_each(|(code, port)| *code = port.min(EVERY_PORT));
    }

    /// Decides for packet `i`.
    #[inline(always)]
    pub fn set(&mut self, i: usize, verdict: Verdict) {
        match verdict {
            Verdict::Forward(port) => self.codes[i] = port.min(PORTS_MAX - 1),
            Verdict::Onward => {}
            // Out of line together: of four ways the compiler makes a table of jumps.
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

    /// Whether some packet of the batch may have been dropped: false only if none was.
    #[inline(always)]
    pub fn any_dropped(&self) -> bool {
        self.dropped
    }

    /// Adds the packets in `of` and their ports to `out`, if all of them go out by one port each below `ports`: if not, says
    /// so, and what was added means nothing.
    #[inline(always)]
    pub fn ports_of(&self, of: &[u16], ports: u16, out: &mut Vec<(u16, Port)>) -> bool {
        // Nearly always all packets of a batch as they came: then loops without branches look at many at once.
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

    /// The decision for packet `i`, which is not dropped.
    #[inline(always)]
    pub(crate) fn code(&self, i: usize) -> VerdictCode {
        VerdictCode(self.codes[i])
    }

    /// Puts an earlier decision back.
    pub(crate) fn restore(&mut self, i: usize, earlier: VerdictCode) {
        self.codes[i] = earlier.0;
    }

    /// Whether packet `i` goes no further.
    #[inline(always)]
    pub fn is_drop(&self, i: usize) -> bool {
        self.codes[i] == DROP
    }
}
