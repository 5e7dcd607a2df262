//! Hands a packet over to its next hop: which neighbour that is where there are several, its Ethernet address, and what happens
//! to the packet until the address is known.

use braid_nf::packet::{IpAddress, MacAddress};
use braid_nf::prelude::*;
use braid_nf::{Cx, Handled, Port};

use super::complain::Complaint;
use super::interface::Interface;
use super::links::Link;
use super::neighbours::{Hop, Resolved, Says, Station, Whom};
use super::waiting::WaitingPacket;
use super::{
    ABSENT, ASKED_FOR_TOO_MANY, BY_PORTS, COUNTS, Known, NEIGHBOURS_FULL, NO_INTERFACE, Router, TOO_LONG, WAITING_FULL,
    WAITS, fragment, objections,
};
use crate::parts::answers::discovery::Message;

impl Router {
    /// Finds the neighbour and sends it the packet, or lets the packet wait.
    pub(super) fn hand_over(
        &self,
        cx: &mut Cx<'_>,
        packet: &mut Packet<'_>,
        known: &mut Known,
        (from, to): (Link, Link),
        neighbour: IpAddress,
    ) -> Handled {
        let (Some(out), Some(came)) = (self.links.get(to), self.links.get(from)) else {
            return Ok(Verdict::Drop(NO_INTERFACE));
        };
        let hop = Hop::new(neighbour, out.place());
        match self.resolve(cx, hop, Some(packet.src_ip()))? {
            Resolved::At(station, until) | Resolved::Doubtful(station, until, _) => {
                let at = Station { port: out.port_of(station), ..station };
                if self.redirects && to == from && !objections::has_source_route(packet) {
                    self.errors.redirect(cx, packet, came, hop.address)?;
                }
                let counts = known.marks & COUNTS != 0;
                if known.marks & BY_PORTS == 0 || !packet.is_fragment() {
                    let (era, came_by) = (self.era(cx)?, packet.port() as u8);
                    *known = Known { era, due_ns: until, at, from, to, mtu: out.mtu, came_by, ..*known };
                }
                let verdict = self.forward(packet, (to, at), counts);
                if !matches!(verdict, Verdict::Forward(_)) {
                    return Ok(verdict);
                }
                let fits = objections::ip_len(packet) <= usize::from(out.mtu);
                Ok(if fits || fragment::cut(cx, packet, at.port, out.mtu) { verdict } else { Verdict::Drop(TOO_LONG) })
            }
            Resolved::Waits { .. } => {
                let held = WaitingPacket::new(packet, came, cx.now());
                let verdict = self.forward(packet, (to, Station::default()), known.marks & COUNTS != 0);
                if !matches!(verdict, Verdict::Forward(_)) {
                    return Ok(verdict);
                }
                let held = match held.with(packet) {
                    Some(held) => self.neighbours.hold(cx, hop, &held)?,
                    None => false,
                };
                Ok(Verdict::Drop(if held { WAITS } else { WAITING_FULL }))
            }
            Resolved::Absent => self.errors.send(cx, packet, came, Complaint::HostAbsent, ABSENT),
            Resolved::Full => Ok(Verdict::Drop(NEIGHBOURS_FULL)),
            Resolved::TooMany => Ok(Verdict::Drop(ASKED_FOR_TOO_MANY)),
        }
    }

    /// Learns where a neighbour is, and sends it the packets that have waited for it, through the functions behind
    /// this one first.
    pub(super) fn hear(
        &self,
        cx: &mut Cx<'_>,
        interface: &Interface,
        (neighbour, mac, port): (IpAddress, Option<MacAddress>, Port),
        says: Says,
    ) -> Result<(), Conflict> {
        let hop = Hop::new(neighbour, interface.place());
        // Who gives no Ethernet address has the one that is known (RFC 4861 section 7.2.4), if any is.
        let Some(mac) = mac.map_or_else(|| self.neighbours.mac(cx, hop), |mac| Ok(Some(mac.0)))? else { return Ok(()) };
        let station = Station { mac, port };
        let learnt = self.neighbours.learn(cx, hop, station, says)?;
        for mut held in learnt.waited {
            held.send(cx, station, interface.mtu);
        }
        if learnt.ask {
            self.ask(cx, hop, Whom::Station(station));
        }
        Ok(())
    }

    /// Follows a neighbour that now sends by another port of a link with several: a station need not announce that it has moved. Only its port
    /// is learnt so, and only from its own Ethernet address.
    pub(super) fn follow(&self, cx: &mut Cx<'_>, packet: &Packet<'_>, interface: &Interface) -> Result<(), Conflict> {
        let Some(frame) = packet.ethernet().filter(|_| !interface.joined.is_empty()) else { return Ok(()) };
        let station = Station { mac: frame.source().0, port: packet.port() };
        self.neighbours.follow(cx, Hop::new(packet.src_ip(), interface.place()), station)
    }

    /// Looks up a neighbour, and asks for it if that is due.
    pub(super) fn resolve(&self, cx: &mut Cx<'_>, hop: Hop, source: Option<IpAddress>) -> Result<Resolved, Conflict> {
        let resolved = self.neighbours.resolve(cx, hop, source)?;
        let whom = match resolved {
            Resolved::Waits { ask: true } | Resolved::Doubtful(_, _, Whom::Everybody) => Whom::Everybody,
            Resolved::Doubtful(_, _, whom) => whom,
            _ => return Ok(resolved),
        };
        self.ask(cx, hop, whom);
        Ok(resolved)
    }

    /// Asks for a neighbour.
    fn ask(&self, cx: &mut Cx<'_>, hop: Hop, whom: Whom) {
        let Some(out) = self.links.get(self.links.at(hop.port, hop.vlan)) else { return };
        let Some(own) = out.address_towards(hop.address) else { return };
        match whom {
            Whom::Everybody => {
                Message::ask(out.mac, own, hop.address).iter().for_each(|question| out.ask(cx, question.bytes()));
            }
            Whom::Station(station) => {
                let question = Message::ask_station(out.mac, own, hop.address, MacAddress(station.mac));
                question.iter().for_each(|question| out.say(cx, out.port_of(station), question.bytes()));
            }
        }
    }

    /// Chooses one of several next hops: the one in whose share the packet's hash lies, or the next one whose neighbour
    /// answers.
    #[cold]
    pub(super) fn one_of(
        &self,
        cx: &mut Cx<'_>,
        packet: &Packet<'_>,
        number: u32,
    ) -> Result<(Link, Option<IpAddress>), Conflict> {
        let Some(spread) = self.spreads.get(number as usize) else { unreachable!("ways are made with their spreads") };
        let mut chosen = None;
        for hop in spread.from(self.hash.of(packet, self.seed)) {
            if !self.neighbours.is_out(cx, hop)? {
                chosen = Some(hop);
                break;
            }
            chosen = chosen.or(Some(hop));
        }
        let Some(hop) = chosen else { unreachable!("a spread has hops") };
        Ok((self.links.at(hop.port, hop.vlan), Some(hop.address)))
    }
}
