//! What the bridge's table holds.

use braid_nf::packet::MacAddress;
use braid_nf::state::Handle;
use braid_nf::{Port, Reason, Verdict};
use serde::{Deserialize, Deserializer, de};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The destination is where the frame comes from: it has had it.
const SAME_PORT: Reason = Reason("same_port");

/// An Ethernet address in a VLAN; VLAN 0 is that of untagged frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Station {
    mac: [u8; 6],
    vlan: u16,
}

impl Station {
    /// A station.
    #[inline(always)]
    pub fn new(mac: MacAddress, vlan: u16) -> Station {
        Station { mac: mac.0, vlan }
    }

    /// Its VLAN.
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

/// Where a station is and when it was last seen there: twelve bytes, with its [`Station`] half a cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Entry {
    /// When, in nanoseconds, lower half first; never, for a station that the configuration put there.
    seen: [u32; 2],
    /// Where.
    pub port: Port,
    unused: u16,
}

/// Later than any time.
const FIXED: u64 = u64::MAX;

impl Entry {
    /// Learnt from a frame.
    #[inline(always)]
    pub fn seen(port: Port, seen_ns: u64) -> Entry {
        Entry { seen: [seen_ns as u32, (seen_ns >> 32) as u32], port, unused: 0 }
    }

    /// When the station was last seen, in nanoseconds.
    #[inline(always)]
    pub fn seen_ns(&self) -> u64 {
        u64::from(self.seen[0]) | u64::from(self.seen[1]) << 32
    }

    /// From the configuration: it neither ages nor moves.
    pub fn fixed(port: Port) -> Entry {
        Entry::seen(port, FIXED)
    }

    /// Whether the configuration put it there.
    #[inline(always)]
    pub fn is_fixed(&self) -> bool {
        self.seen_ns() == FIXED
    }

    /// Time since the station was seen; 0 if another worker saw it later than `now`.
    #[inline(always)]
    pub fn age_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.seen_ns())
    }
}

/// What a packet set remembers: where the entries of its two stations lie, and what was decided from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Known {
    /// Entry of the station that sends.
    pub source: Handle,
    /// Entry of the one that receives.
    pub destination: Handle,
    /// Changes there had been when it was decided.
    pub changes: u64,
    /// When to decide anew in any case.
    due_ns: u64,
    from: Port,
    to: Port,
    /// The form in which frames came.
    form: u16,
    /// The VLAN of the tag with which they leave; 0: none.
    vlan: u16,
}

/// No map has as many entries.
const NOWHERE: Handle = Handle { index: u32::MAX, generation: 0 };
/// As a destination port: to all others.
pub const FLOOD: Port = Port::MAX;

impl Known {
    /// Nothing yet.
    pub const NOTHING: Known =
        Known { source: NOWHERE, destination: NOWHERE, changes: 0, due_ns: 0, from: 0, to: FLOOD, form: 0, vlan: 0 };

    /// Whether a frame that comes by `port` needs a new decision, whatever has changed.
    #[inline(always)]
    pub fn is_due(&self, port: Port, now: u64) -> bool {
        (port != self.from) | self.is_late(now)
    }

    /// Whether any frame does.
    #[inline(always)]
    pub fn is_late(&self, now: u64) -> bool {
        now >= self.due_ns
    }

    /// Remembers where frames that come by `from` go, until `due_ns`.
    #[inline(always)]
    pub fn decide(&mut self, from: Port, to: Port, due_ns: u64) -> Verdict {
        (self.from, self.to, self.due_ns) = (from, to, due_ns);
        self.verdict()
    }

    /// Remembers besides in which form (`vlans`) frames came, and with the tag of which VLAN they leave.
    pub fn decide_tag(&mut self, form: u16, vlan: u16) {
        (self.form, self.vlan) = (form, vlan);
    }

    /// Whether that was another form.
    #[inline(always)]
    pub fn is_other_form(&self, form: u16) -> bool {
        self.form != form
    }

    /// The VLAN of the tag with which frames leave; 0: none.
    #[inline(always)]
    pub fn vlan(&self) -> u16 {
        self.vlan
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

/// Addresses that no bridge forwards.
#[inline(always)]
pub fn is_reserved(to: MacAddress) -> bool {
    to.0[..5] == [0x01, 0x80, 0xc2, 0x00, 0x00] && to.0[5] <= 0x0f
}

/// An address as people write it in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenMac(pub MacAddress);

impl<'de> Deserialize<'de> for WrittenMac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WrittenMac, D::Error> {
        String::deserialize(deserializer)?.parse().map(WrittenMac).map_err(de::Error::custom)
    }
}
