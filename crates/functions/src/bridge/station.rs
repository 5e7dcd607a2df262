//! The entries of the bridge's table, and what a packet set remembers of them.

use braid_nf::packet::MacAddress;
use braid_nf::state::Handle;
use braid_nf::{Port, Reason, Verdict};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The destination is on the port on which the frame arrived, so it has already received the frame.
pub(super) const SAME_PORT: Reason = Reason("same_port");

/// An Ethernet address in a VLAN; VLAN 0 stands for untagged frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Station {
    mac: [u8; 6],
    vlan: u16,
}

impl Station {
    /// Creates a station.
    #[inline(always)]
    pub fn new(mac: MacAddress, vlan: u16) -> Station {
        Station { mac: mac.0, vlan }
    }

    /// Its address.
    pub fn mac(&self) -> MacAddress {
        MacAddress(self.mac)
    }

    /// Its VLAN; 0: untagged.
    pub fn vlan(&self) -> u16 {
        self.vlan
    }
}

impl std::fmt::Debug for Station {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mac = MacAddress(self.mac);
        if self.vlan == 0 { write!(f, "{mac}") } else { write!(f, "{mac} vlan {}", self.vlan) }
    }
}

/// Where a station is and when it was last seen there: twelve bytes, which with its [`Station`] make half a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// When it was last seen, in nanoseconds, lower half first; for a static station, a value later than any time.
    seen: [u32; 2],
    /// Its port.
    pub port: Port,
    unused: u16,
}

/// Later than any time; marks static stations.
const FIXED: u64 = u64::MAX;

impl Entry {
    /// An entry learnt from a frame.
    #[inline(always)]
    pub fn seen(port: Port, seen_ns: u64) -> Entry {
        Entry { seen: [seen_ns as u32, (seen_ns >> 32) as u32], port, unused: 0 }
    }

    /// When the station was last seen, in nanoseconds.
    #[inline(always)]
    pub fn seen_ns(&self) -> u64 {
        u64::from(self.seen[0]) | u64::from(self.seen[1]) << 32
    }

    /// The entry of a static station, which neither ages nor moves.
    pub fn fixed(port: Port) -> Entry {
        Entry::seen(port, FIXED)
    }

    /// Whether this is a static station.
    #[inline(always)]
    pub fn is_fixed(&self) -> bool {
        self.seen_ns() == FIXED
    }

    /// The time since the station was seen; 0 if another worker saw it later than `now`.
    #[inline(always)]
    pub fn age_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.seen_ns())
    }
}

/// What a packet set remembers: where the entries of its two stations are, and what was decided from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Known {
    /// The entry of the station that sends.
    pub source: Handle,
    /// The entry of the station that receives.
    pub destination: Handle,
    /// The number of changes at the time of the decision.
    pub changes: u64,
    /// When a new decision is due even without changes.
    due_ns: u64,
    from: Port,
    to: Port,
    /// The form in which the frames arrived.
    form: u16,
    /// The VLAN of the tag with which they leave; 0: none.
    vlan: u16,
}

/// A handle beyond the entries of any map.
const NOWHERE: Handle = Handle { index: u32::MAX, generation: 0 };
/// As a destination port: all other ports.
pub const FLOOD: Port = Port::MAX;

impl Known {
    /// No decision yet.
    pub const NOTHING: Known =
        Known { source: NOWHERE, destination: NOWHERE, changes: 0, due_ns: 0, from: 0, to: FLOOD, form: 0, vlan: 0 };

    /// Whether a frame that arrives by `port` needs a new decision, even without changes.
    #[inline(always)]
    pub fn is_due(&self, port: Port, now: u64) -> bool {
        (port != self.from) | self.is_late(now)
    }

    /// Whether the decision is out of date for any frame.
    #[inline(always)]
    pub fn is_late(&self, now: u64) -> bool {
        now >= self.due_ns
    }

    /// Remembers where frames that arrive by `from` go, until `due_ns`.
    #[inline(always)]
    pub fn decide(&mut self, from: Port, to: Port, due_ns: u64) -> Verdict {
        (self.from, self.to, self.due_ns) = (from, to, due_ns);
        self.verdict()
    }

    /// Also remembers in which form (`vlans`) frames arrived, and the VLAN of the tag with which they leave.
    pub fn decide_tag(&mut self, form: u16, vlan: u16) {
        (self.form, self.vlan) = (form, vlan);
    }

    /// Whether the decision was made for another form.
    #[inline(always)]
    pub fn is_other_form(&self, form: u16) -> bool {
        self.form != form
    }

    /// The VLAN of the tag with which frames leave; 0: none.
    #[inline(always)]
    pub fn vlan(&self) -> u16 {
        self.vlan
    }

    /// Whether each frame needs a new decision, as where nobody knows the destination.
    pub fn is_for_one_frame(&self) -> bool {
        self.due_ns == 0
    }

    /// What was decided, as people read it.
    pub fn in_words(&self) -> String {
        let tag = if self.vlan == 0 { String::new() } else { format!(" with a tag of VLAN {}", self.vlan) };
        match self.verdict() {
            _ if self.is_for_one_frame() => format!("from port {}, decided frame by frame", self.from),
            Verdict::Forward(to) => format!("from port {} to port {to}{tag}", self.from),
            Verdict::Drop(reason) => format!("from port {}, dropped: {}", self.from, reason.0),
            _ => format!("from port {} to all others", self.from),
        }
    }

    /// What was decided.
    #[inline(always)]
    pub fn verdict(&self) -> Verdict {
        match self.to {
            FLOOD => Verdict::Flood,
            to if to == self.from => Verdict::Drop(SAME_PORT),
            to => Verdict::Forward(to),
        }
    }
}

/// Whether an address is one that no bridge forwards.
#[inline(always)]
pub fn is_reserved(to: MacAddress) -> bool {
    to.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && to.0[5] <= 0x0f
}
