//! Chains in which not every packet meets every function in the same order: mirrored chains and conditions.

use braid_packet::PortSet;

use super::Worker;
use crate::chain::course::Direction;

impl Worker {
    /// Runs the batch through a mirrored chain in turns. The remaining packets are sent in the order of their arrival.
    pub(super) fn by_turns(&mut self, outside: PortSet) {
        let records = self.batch.records();
        let outside = |i: usize| outside.has(records[i].port);
        // A batch with packets from one side only needs no marks.
        let from_outside = self.todo.iter().filter(|&&i| outside(i as usize)).count();
        if from_outside == 0 {
            return self.along(Direction::Forward);
        }
        if from_outside == self.todo.len() {
            return self.along(Direction::Reverse);
        }
        let (chain, batch) = (&self.parts.chain, &self.batch);
        let turns = self.turns.arrange(&self.todo, |i| {
            let direction = if outside(i) { Direction::Reverse } else { Direction::Forward };
            (direction, chain.mark(batch, i))
        });
        let mut left = std::mem::take(&mut self.todo);
        left.clear();
        for turn in 0..turns {
            let (direction, packets) = self.turns.packets(turn);
            self.todo.clear();
            self.todo.extend_from_slice(packets);
            for sets in &mut self.sets {
                sets.ready = false;
            }
            self.along(direction);
            left.append(&mut self.todo);
        }
        left.sort_unstable();
        self.todo = left;
    }

    /// Runs one function's handlers over the packets that satisfy its condition; the others bypass it.
    pub(super) fn pass_some(&mut self, position: usize) {
        let when = self.parts.chain.course().when(position);
        let (records, verdicts, aside) = (self.batch.records(), &self.verdicts, &mut self.aside);
        aside.clear();
        self.todo.retain(|&i| {
            let met = when.admits(records[i as usize].port, verdicts.get(i as usize));
            if !met {
                aside.push(i);
            }
            met
        });
        if !self.todo.is_empty() {
            self.pass(position);
        }
        if !self.aside.is_empty() {
            self.todo.append(&mut self.aside);
            self.todo.sort_unstable();
        }
    }
}
