//! The packet-set state: which mapping the flow uses, and the phase of its connection.
//!
//! With its key and its age it takes half a cache line. The mapping tells how to rewrite packets.

use braid_nf::packet::headers::tcp_flags::{ACK, FIN, RST, SYN};
use braid_nf::packet::parse::protocol;
use braid_nf::state::Handle;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::config::Config;
use super::endpoint::{protocol_of, slot};
use crate::config::{ConfigError, idle_ns};

/// One direction of a translated flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Session {
    /// The number of the mapping's entry.
    index: u32,
    /// From the lowest bit on: the entry's generation, as far as it fits; the [`Phase`] except [`Phase::Asked`]; the direction; the protocol's number
    /// among those that are translated; whether the phase is [`Phase::Asked`]; [`HAIRPIN`]; and [`BETWEEN`]. An entry lives for a second at least, so
    /// half a year passes before a generation comes again, and no set waits so long for a packet.
    rest: u32,
}

const GENERATION_BITS: u32 = 24;
const GENERATION: u32 = (1 << GENERATION_BITS) - 1;
/// The number of distinguishable kinds of sessions.
const KINDS: usize = 1 << (u32::BITS - GENERATION_BITS);
/// The bits of a kind that hold the phase, and those that hold the protocol's slot.
const PHASE: u8 = 0x23;
const SLOT_BIT: u32 = 3;
/// The bit of a kind that says that the other end is inside too, so each packet looks for the translation of both ends.
const HAIRPIN: u8 = 0x40;
/// The bit of a kind that says that the sender has a mapping too, which the set's key leads to: half of its generation stands above half of the other's.
const BETWEEN: u8 = 0x80;
const HALF_BITS: u32 = GENERATION_BITS / 2;
const HALF: u32 = (1 << HALF_BITS) - 1;
const SLOT: usize = 3;

impl Session {
    pub(crate) fn new(handle: Handle, number: u8, way: Heading, phase: Phase) -> Session {
        let kind = phase as u32 | (way as u32) << 2 | slot(number) << SLOT_BIT;
        Session { index: handle.index, rest: handle.generation & GENERATION | kind << GENERATION_BITS }
    }

    /// The same of a hairpin.
    pub(crate) fn of_hairpin(self) -> Session {
        Session { rest: self.rest | u32::from(HAIRPIN) << GENERATION_BITS, ..self }
    }

    /// Of a TCP hairpin from the owner of a mapping to that of another.
    pub(crate) fn between(sender: Handle, receiver: Handle, phase: Phase) -> Session {
        let generation = (sender.generation & HALF) << HALF_BITS | receiver.generation & HALF;
        let between = u32::from(BETWEEN) << GENERATION_BITS;
        let session =
            Session::new(Handle { generation, ..receiver }, protocol::TCP, Heading::Inward, phase).of_hairpin();
        Session { rest: session.rest | between, ..session }
    }

    pub(crate) fn is_hairpin(&self) -> bool {
        self.kind() & usize::from(HAIRPIN) != 0
    }

    /// Whether the sender of a hairpin has this mapping.
    pub(crate) fn is_from(&self, sender: Handle) -> bool {
        self.is_between() && (self.rest >> HALF_BITS ^ sender.generation) & HALF == 0
    }

    /// Whether it is a hairpin whose sender has a mapping of its own to hold.
    pub(crate) fn is_between(&self) -> bool {
        self.kind() & usize::from(BETWEEN) != 0
    }

    /// Whether it uses the mapping that this handle refers to, be it a hairpin or not.
    pub(crate) fn uses(&self, handle: Handle) -> bool {
        match self.is_between() {
            true => self.index == handle.index && (self.rest ^ handle.generation) & HALF == 0,
            false => self.is_over(handle),
        }
    }

    /// The number of the mapping's entry.
    #[inline(always)]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Whether it uses the mapping that this handle refers to.
    #[inline(always)]
    pub(crate) fn is_over(&self, handle: Handle) -> bool {
        self.index == handle.index && (self.rest ^ handle.generation) & GENERATION == 0
    }

    /// Whether both use the same mapping.
    pub(crate) fn is_beside(&self, other: &Session) -> bool {
        self.index == other.index && (self.rest ^ other.rest) & GENERATION == 0
    }

    /// Phase, way and protocol as a number below [`KINDS`].
    #[inline(always)]
    fn kind(&self) -> usize {
        (self.rest >> GENERATION_BITS) as usize
    }

    /// The [`Phase`].
    #[inline(always)]
    pub(crate) fn phase(&self) -> u8 {
        (self.rest >> GENERATION_BITS) as u8 & PHASE
    }

    pub(crate) fn set_phase(&mut self, phase: u8) {
        self.rest = self.rest & !(u32::from(PHASE) << GENERATION_BITS) | u32::from(phase & PHASE) << GENERATION_BITS;
    }

    /// Notes a further packet, which is all that matters for protocols other than TCP.
    pub(crate) fn go_on(&mut self) {
        if !self.is_tcp() {
            self.set_phase(Phase::Established as u8);
        }
    }

    /// Whether the connection is established, as far as this direction shows.
    pub(crate) fn is_assured(&self) -> bool {
        self.phase() == Phase::Established as u8
    }

    /// Where its packets go.
    #[inline(always)]
    pub(crate) fn heading(&self) -> Heading {
        Heading::from_bits((self.rest >> (GENERATION_BITS + 2)) as u8)
    }

    #[inline(always)]
    pub(crate) fn is_tcp(&self) -> bool {
        self.rest & (SLOT as u32) << (GENERATION_BITS + SLOT_BIT) == 0
    }

    /// Its protocol, way and phase.
    pub(crate) fn what(&self) -> (u8, Heading, Phase) {
        (self.protocol(), self.heading(), Phase::from_bits(self.phase()))
    }

    #[inline(always)]
    pub(crate) fn protocol(&self) -> u8 {
        protocol_of(self.kind() >> SLOT_BIT & SLOT)
    }
}

/// A time in nanoseconds for each kind of session.
#[derive(Clone, Debug)]
pub(crate) struct Needs([u64; KINDS]);

braid_nf::plain!(Needs);

impl Needs {
    /// Computes the table from a time for each protocol, way and phase. No mapping lives long enough for a hairpin.
    pub(crate) fn new(need: impl Fn(u8, Heading, Phase) -> u64) -> Needs {
        Needs(std::array::from_fn(|kind| {
            if kind & usize::from(HAIRPIN) != 0 {
                return u64::MAX;
            }
            let (way, phase) = (Heading::from_bits((kind >> 2) as u8), Phase::from_bits(kind as u8));
            need(protocol_of(kind >> SLOT_BIT & SLOT), way, phase)
        }))
    }

    #[inline(always)]
    pub(crate) fn ns(&self, session: &Session) -> u64 {
        self.0[session.kind() & (KINDS - 1)]
    }
}

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Heading {
    /// From inside: the source is rewritten.
    Outward = 0,
    /// From outside: the destination is rewritten.
    Inward = 1,
}

impl Heading {
    /// From its lowest bit.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u8) -> Heading {
        if bits & 1 == 0 { Heading::Outward } else { Heading::Inward }
    }
}

/// The stage of one direction of a TCP connection, as far as timeouts depend on it (RFC 5382 section 5, RFC 7857 section
/// 2). Other protocols are in the first phase until a second packet comes, and then in the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// Nothing but answers to SYNs so far.
    Opening = 0,
    /// A segment without SYN has passed; or, after a SYN, the answer to a SYN that crossed it: then both ends have opened
    /// the connection.
    Established = 1,
    /// A FIN has passed; acknowledgements may follow.
    Finished = 2,
    /// A RST has passed. If it was forged, the next other segment shows that the connection is alive (RFC 7857 section
    /// 2.2).
    Reset = 3,
    /// A SYN has passed that answers none.
    Asked = 0x20,
}

impl Phase {
    #[inline(always)]
    pub(crate) fn from_bits(bits: u8) -> Phase {
        const ASKED: u8 = Phase::Asked as u8;
        match bits & PHASE {
            1 => Phase::Established,
            2 => Phase::Finished,
            3 => Phase::Reset,
            ASKED => Phase::Asked,
            _ => Phase::Opening,
        }
    }

    /// The phase after a segment with these control bits.
    #[inline(always)]
    pub(crate) fn after(bits: u8, flags: u8) -> Phase {
        match flags & (RST | SYN | FIN) {
            0 if bits & PHASE == Phase::Finished as u8 => Phase::Finished,
            0 if flags & ACK != 0 => Phase::Established,
            0 => Phase::from_bits(bits),
            _ => Phase::turned(bits, flags),
        }
    }

    /// Whether a segment leaves a direction in its phase, and is none that opens: what that announces may be lowered, each time that it comes.
    #[inline(always)]
    pub(crate) fn is_kept(bits: u8, flags: u8) -> bool {
        match flags & (RST | SYN | FIN) {
            0 => Phase::after(bits, flags) as u8 == bits & PHASE,
            _ => flags & SYN == 0 && Phase::turned(bits, flags) as u8 == bits & PHASE,
        }
    }

    /// The same as [`Phase::after`] of one that opens or ends a connection.
    fn turned(bits: u8, flags: u8) -> Phase {
        match Phase::from_bits(bits) {
            _ if flags & RST != 0 => Phase::Reset,
            _ if flags & SYN == 0 => Phase::Finished,
            _ if flags & ACK == 0 => Phase::Asked,
            Phase::Asked | Phase::Established => Phase::Established,
            _ => Phase::Opening,
        }
    }
}

/// Idle timeouts of sets, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    /// TCP, by [`Phase`]; [`Phase::Asked`] has the timeout of an opening connection.
    pub(crate) tcp_ns: [u64; 4],
    pub(crate) udp_ns: u64,
    pub(crate) icmp_ns: u64,
}

impl Timeouts {
    pub(crate) fn check(config: &Config) -> Result<Timeouts, ConfigError> {
        let closing_ns = idle_ns("tcp_closing_s", config.tcp_closing_s)?;
        Ok(Timeouts {
            tcp_ns: [
                idle_ns("tcp_opening_s", config.tcp_opening_s)?,
                idle_ns("tcp_established_s", config.tcp_established_s)?,
                closing_ns,
                closing_ns,
            ],
            udp_ns: idle_ns("udp_s", config.udp_s)?,
            icmp_ns: idle_ns("icmp_s", config.icmp_s)?,
        })
    }

    /// The shortest of all.
    pub(crate) fn shortest_ns(&self) -> u64 {
        self.tcp_ns.iter().fold(self.udp_ns.min(self.icmp_ns), |least, ns| least.min(*ns))
    }

    /// The timeout of a flow by protocol and phase.
    #[inline]
    pub(crate) fn after(&self, number: u8, phase: Phase) -> u64 {
        match number {
            protocol::TCP => self.tcp_ns[phase as usize & 3],
            protocol::UDP => self.udp_ns,
            _ => self.icmp_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_remembers_its_mapping_and_its_kind_apart() {
        let handle = Handle { index: 7, generation: GENERATION };
        let mut session = Session::new(handle, protocol::UDP, Heading::Inward, Phase::Reset);
        session.set_phase(Phase::Established as u8);
        let kind = (session.protocol(), session.heading(), session.phase(), session.is_tcp());
        assert_eq!(kind, (protocol::UDP, Heading::Inward, Phase::Established as u8, false));
        assert!(session.is_over(handle));
        let others = [Handle { index: 8, ..handle }, Handle { generation: GENERATION - 1, ..handle }];
        assert!(others.iter().all(|other| !session.is_over(*other)));
        assert!(!session.is_beside(&Session::new(others[0], protocol::UDP, Heading::Inward, Phase::Opening)));
        assert!(session.is_beside(&Session::new(handle, protocol::TCP, Heading::Outward, Phase::Opening)));
        let asked = Session::new(handle, protocol::TCP, Heading::Inward, Phase::Asked);
        let kind = (asked.protocol(), asked.heading(), asked.phase(), asked.is_tcp());
        assert_eq!(kind, (protocol::TCP, Heading::Inward, Phase::Asked as u8, true));
    }

    #[test]
    fn a_hairpin_remembers_both_of_its_mappings() {
        let (sender, receiver) = (Handle { index: 5, generation: 0x1abc }, Handle { index: 7, generation: 0x5123 });
        let mut session = Session::between(sender, receiver, Phase::Asked);
        session.set_phase(Phase::Finished as u8);
        let kind = (session.protocol(), session.heading(), session.phase(), session.is_tcp(), session.is_hairpin());
        assert_eq!(kind, (protocol::TCP, Heading::Inward, Phase::Finished as u8, true, true));
        assert!(session.uses(receiver) && session.is_from(sender));
        assert!(!session.uses(Handle { generation: 0x5124, ..receiver }) && !session.uses(sender));
        assert!(!session.is_from(Handle { generation: 0x1abd, ..sender }));
        assert_eq!(Needs::new(|_, _, _| 0).ns(&session), u64::MAX);
        let alone = Session::new(receiver, protocol::TCP, Heading::Outward, Phase::Opening);
        assert!(alone.of_hairpin().uses(receiver) && !alone.of_hairpin().is_from(sender));
        assert_eq!((alone.is_hairpin(), Needs::new(|_, _, _| 0).ns(&alone)), (false, 0));
    }

    /// Checks the phases of a direction after each segment.
    #[track_caller]
    fn check(segments: &[u8], expected: &[Phase]) {
        let phases: Vec<Phase> = segments
            .iter()
            .scan(0, |bits, flags| {
                let phase = Phase::after(*bits, *flags);
                *bits = phase as u8;
                Some(phase)
            })
            .collect();
        assert_eq!(phases, expected);
    }

    #[test]
    fn a_direction_is_established_by_what_is_no_syn_or_by_the_answer_to_one_that_crossed() {
        use Phase::*;
        check(&[SYN, SYN, ACK, ACK], &[Asked, Asked, Established, Established]);
        check(&[SYN | ACK, SYN | ACK, ACK, SYN | ACK], &[Opening, Opening, Established, Established]);
        check(&[SYN, SYN | ACK, SYN | ACK, ACK], &[Asked, Established, Established, Established]);
        check(&[ACK, FIN | ACK, ACK, SYN | ACK, SYN], &[Established, Finished, Finished, Opening, Asked]);
        check(&[SYN, RST, ACK, RST | ACK, SYN | ACK], &[Asked, Reset, Established, Reset, Opening]);
        check(&[0, SYN | RST, SYN | FIN, FIN], &[Opening, Reset, Asked, Finished]);
    }
}
