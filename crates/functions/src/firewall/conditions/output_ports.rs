//! By which port a packet leaves, and from which side its answer comes, as far as that is known while rules are asked.
//!
//! A firewall decides neither. A router or a bridge does: where packets meet it before, the port is known, and where they meet
//! it later, only what the plan says of the networks behind each port.

use std::sync::Arc;

use braid_nf::EVERY_PORT;
use braid_nf::prelude::*;
use braid_nf::state::Decided;

use super::fields::{Field, Within};
use super::values::{Addresses, number};
use crate::firewall::rule_file::{Note, Ports};
use crate::firewall::rules::{Action, Rule};
use crate::parts::{Many, Side, Sides};

/// From which side the answers to a packet come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::firewall) enum Answers {
    /// From the other side.
    Across,
    /// From the side from which it came: both ends are on that side.
    Within,
    /// That is not known before the first one.
    Either,
}

/// What is known of the ways out.
#[derive(Clone, Debug)]
pub(in crate::firewall) struct Exits {
    sides: Sides,
    /// The number of ports on each side.
    counts: [usize; 2],
    /// The ports of the plan, as bits.
    all: u64,
    decided: [Decided; 2],
    /// The networks behind the ports, the smallest first.
    networks: Arc<[(Addresses, Port)]>,
}

impl Exits {
    pub(in crate::firewall) fn new(ports: Ports, networks: &[Vec<Addresses>]) -> Exits {
        let of_port = |(port, list): (usize, &Vec<Addresses>)| -> Vec<(Addresses, Port)> {
            list.iter().map(|range| (*range, port as Port)).collect()
        };
        let mut networks: Vec<_> = networks.iter().enumerate().flat_map(of_port).collect();
        networks.sort_by_key(|(range, _)| range.last - range.first);
        Exits {
            sides: ports.sides,
            counts: [Side::Inside, Side::Outside].map(|side| bits(&ports.on(side)).count_ones() as usize),
            all: bits(&(0..ports.count).collect::<Vec<_>>()),
            decided: ports.decided,
            networks: networks.into(),
        }
    }

    /// From which side answers to an opening packet come.
    pub(in crate::firewall) fn answers(&self, cx: &Cx<'_>, side: Side) -> Answers {
        match (self.decided[side as usize], cx.leaves_by()) {
            // With one port a packet leaves by the port it came by.
            _ if self.all.count_ones() == 1 => Answers::Within,
            (Decided::Nowhere, _) => Answers::Across,
            // With one port there, who answers from that side is the opener's own.
            (Decided::Behind, _) if self.counts[side as usize] == 1 => Answers::Across,
            (Decided::Behind, _) | (Decided::Before, EVERY_PORT) => Answers::Either,
            (Decided::Before, port) if self.sides.of(port) == Some(side) => Answers::Within,
            (Decided::Before, _) => Answers::Across,
        }
    }

    /// The ports by which a packet from a side may leave, as bits; all of them if it may be one without a bit. `decided`: by
    /// functions before this one.
    pub(in crate::firewall) fn of(&self, decided: Port, packet: &Packet<'_>, side: Side) -> u64 {
        match self.known(decided, packet, side) {
            0 => u64::MAX,
            bits => bits,
        }
    }

    fn known(&self, decided: Port, packet: &Packet<'_>, side: Side) -> u64 {
        if self.decided[side as usize] == Decided::Before {
            return match decided {
                EVERY_PORT => self.all & !bits(&[packet.port()]),
                port => bits(&[port]),
            };
        }
        let to = number(packet.dst_ip());
        match self.networks.iter().find(|(range, _)| range.contains(to)) {
            Some((_, port)) => bits(&[*port]),
            // None leaves by the port by which it came.
            None if self.decided[side as usize] == Decided::Behind => self.all & !bits(&[packet.port()]),
            None => self.all & self.sides.bits(side.other()),
        }
    }
}

/// The condition that a packet leaves by one of these ports: all that it may leave by are among them.
pub(in crate::firewall) fn leaves_by(ports: &[Port]) -> Within {
    Within::under(Field::LeavesBy, !bits(ports), vec![(0, 0)])
}

/// Takes what rules in the plan say of the ports by which packets leave. A rule that refuses does so if a packet may leave by one
/// of its ports, and one that lets pass only if it cannot leave by any other.
pub(in crate::firewall) fn settle(rules: &mut [Rule]) {
    for rule in rules {
        let Many(ports) = std::mem::take(&mut rule.out_ports);
        if !ports.is_empty() {
            rule.fields.push(leaves_by(&ports));
        }
        if matches!(rule.action, Action::Allow | Action::Continue) {
            continue;
        }
        let asked = rule.fields.iter().filter(|within| within.field == Field::LeavesBy);
        let Some(wanted) = asked.map(|within| !within.mask).reduce(|one, other| one & other) else { continue };
        rule.fields.retain(|within| within.field != Field::LeavesBy);
        rule.fields.push(Within::under(Field::LeavesBy, wanted, vec![(1, u64::MAX)]));
    }
}

/// Says that rules ask for what is decided later, if the plan does not say which networks are behind the ports.
pub(in crate::firewall) fn note(rules: &[Rule], ports: Ports, networks: &[Vec<Addresses>]) -> Option<Note> {
    let asks = |rule: &&Rule| rule.fields.iter().any(|within| within.field == Field::LeavesBy);
    // With two ports it leaves by the other.
    let rule = rules.iter().find(asks).filter(|_| networks.is_empty() && ports.count > 2)?;
    let from = match ports.decided {
        [Decided::Before, Decided::Before] => return None,
        [Decided::Before, _] => "of packets from outside",
        [_, Decided::Before] => "of packets from inside",
        _ => "of packets",
    };
    let text = format!(
        "by which port they leave is not known here {from}: what lets them pass fits if all ports by which they may leave are \
         asked for, and what refuses them if one is. Write networks = [[…], […]] for the port behind which each network is, or let a \
         router or bridge stand before the firewall (order = \"same\" for both directions)"
    );
    Some(Note { line: rule.line, file: rule.file.clone(), text })
}

fn bits(ports: &[Port]) -> u64 {
    ports.iter().fold(0, |bits, port| bits | 1u64.checked_shl((*port).into()).unwrap_or(0))
}
