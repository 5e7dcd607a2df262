//! The turns in which a batch passes through a mirrored chain.
//!
//! Within a turn all packets go in one direction. Packets that may belong to one connection have the same *mark* and keep their order: a packet
//! has a later turn than packets of its mark that came before it in the other direction. Packets of different marks may be reordered within
//! a batch, because no set has packets of both. A packet without a mark (an ICMP error or a later fragment, which depends on packets with other
//! headers) comes after all packets before it. So a batch of one direction takes one turn, and one of requests and answers about as many
//! as the longest exchange in it.

use braid_packet::BATCH_MAX;

use super::course::Direction;

/// The first turn of a direction that is no earlier than turn `last - 1`; `last` is 0 if there is no such turn.
#[inline]
fn after(last: u16, direction: Direction) -> u16 {
    match last {
        0 => direction as u16,
        last => last - 1 + u16::from((last - 1) % 2 != direction as u16),
    }
}

/// Number of slots for marks; two marks in the same slot wait for each other unnecessarily.
const MARKS: usize = 512;

/// A batch divided into turns.
#[derive(Debug)]
pub(crate) struct Turns {
    /// By mark: the last turn plus one, or 0 if there is none yet.
    last: Box<[u16; MARKS]>,
    /// By packet: its turn.
    turn: Box<[u16; BATCH_MAX]>,
    /// Where each turn ends in `order`.
    ends: Vec<u16>,
    order: Vec<u16>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            last: Box::new([0; MARKS]),
            turn: Box::new([0; BATCH_MAX]),
            ends: Vec::with_capacity(BATCH_MAX + 1),
            order: Vec::with_capacity(BATCH_MAX),
        }
    }
}

impl Turns {
    /// Divides the packets in `todo` into turns, given the direction and mark of each; returns the number of turns. Even turns go
    /// forward, odd ones in reverse; a turn may be empty.
    pub(crate) fn arrange(&mut self, todo: &[u16], of: impl Fn(usize) -> (Direction, Option<u32>)) -> usize {
        self.last.fill(0);
        let mut turns = 0;
        for &i in todo {
            let (direction, mark) = of(i as usize);
            let latest = turns as u16;
            let turn = match mark.map(|mark| &mut self.last[mark as usize % MARKS]) {
                Some(last) => {
                    let turn = after(*last, direction);
                    *last = turn + 1;
                    turn
                }
                None => after(latest, direction),
            };
            self.turn[i as usize & (BATCH_MAX - 1)] = turn;
            turns = turns.max(usize::from(turn) + 1);
        }
        self.sort(todo, turns);
        turns
    }

    /// A counting sort by turn; packets of one turn keep their order.
    fn sort(&mut self, todo: &[u16], turns: usize) {
        self.ends.clear();
        self.ends.resize(turns + 1, 0);
        for &i in todo {
            self.ends[usize::from(self.turn[i as usize & (BATCH_MAX - 1)]) + 1] += 1;
        }
        for turn in 0..turns {
            self.ends[turn + 1] += self.ends[turn];
        }
        // While a turn is filled, its entry in `ends` moves from its start to its end.
        self.order.clear();
        self.order.resize(todo.len(), 0);
        for &i in todo {
            let place = &mut self.ends[usize::from(self.turn[i as usize & (BATCH_MAX - 1)])];
            self.order[usize::from(*place)] = i;
            *place += 1;
        }
    }

    /// The direction and the packets of a turn.
    pub(crate) fn packets(&self, turn: usize) -> (Direction, &[u16]) {
        let from = if turn == 0 { 0 } else { usize::from(self.ends[turn - 1]) };
        let direction = if turn.is_multiple_of(2) { Direction::Forward } else { Direction::Reverse };
        (direction, &self.order[from..usize::from(self.ends[turn])])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arranged(packets: &[(Direction, Option<u32>)]) -> Vec<(Direction, Vec<u16>)> {
        let todo: Vec<u16> = (0..packets.len() as u16).collect();
        let mut turns = Turns::default();
        let count = turns.arrange(&todo, |i| packets[i]);
        (0..count).map(|turn| turns.packets(turn)).map(|(direction, packets)| (direction, packets.to_vec())).collect()
    }

    #[test]
    fn one_direction_is_one_turn() {
        let turns = arranged(&[1, 2, 1].map(|mark| (Direction::Forward, Some(mark))));
        assert_eq!(turns, [(Direction::Forward, vec![0, 1, 2])]);
    }

    #[test]
    fn a_handshake_takes_three_turns_however_many_there_are() {
        use Direction::{Forward, Reverse};
        let packets = [(Forward, 1), (Reverse, 1), (Forward, 2), (Forward, 1), (Reverse, 2), (Forward, 2)];
        let turns = arranged(&packets.map(|(direction, mark)| (direction, Some(mark))));
        assert_eq!(turns, [(Forward, vec![0, 2]), (Reverse, vec![1, 4]), (Forward, vec![3, 5])]);
    }

    #[test]
    fn an_error_comes_after_all_that_came_before_it() {
        use Direction::{Forward, Reverse};
        let turns = arranged(&[(Reverse, Some(1)), (Forward, Some(1)), (Reverse, None), (Forward, Some(2))]);
        assert_eq!(turns, [(Forward, vec![3]), (Reverse, vec![0]), (Forward, vec![1]), (Reverse, vec![2])]);
    }

    proptest! {
        #[test]
        fn packets_of_a_mark_keep_their_order_and_none_is_lost(
            packets in prop::collection::vec((any::<bool>(), prop::option::weighted(0.9, 0u32..12)), 0..BATCH_MAX),
        ) {
            let way = |reverse: bool| if reverse { Direction::Reverse } else { Direction::Forward };
            let packets: Vec<_> = packets.into_iter().map(|(reverse, mark)| (way(reverse), mark)).collect();
            let turns = arranged(&packets);
            let order: Vec<u16> = turns.iter().flat_map(|(_, packets)| packets.clone()).collect();
            for (direction, members) in &turns {
                prop_assert!(members.iter().all(|&i| packets[i as usize].0 == *direction));
            }
            for mark in 0..12 {
                let of_mark = |i: &u16| packets[*i as usize].1 == Some(mark);
                prop_assert!(order.iter().copied().filter(of_mark).is_sorted());
            }
            for (place, &i) in order.iter().enumerate().filter(|&(_, &i)| packets[i as usize].1.is_none()) {
                prop_assert!(order[place..].iter().all(|&later| later >= i || packets[later as usize].0 == packets[i as usize].0));
            }
            let mut all = order;
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..packets.len() as u16));
        }
    }
}
