//! In which order packets of a batch have their turns.
//!
//! Invariant: no number of an [`Order`] or a [`Lineup`] is as great as its `end`, which walks compare with the batch instead of the numbers.

use std::ops::{Deref, Range};

use crate::batch::BATCH_MAX;

/// Numbers of packets in the order in which they have their turns, of which it is known how far they go: walks over parts of it do
/// not look at each number again.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order<'a> {
    pub(super) numbers: &'a [u16],
    /// All numbers are below.
    pub(super) end: u32,
}

impl<'a> Order<'a> {
    /// The order of these numbers.
    #[inline(always)]
    pub fn new(numbers: &'a [u16]) -> Order<'a> {
        Order { numbers, end: numbers.iter().fold(0, |end, &i| end.max(u32::from(i) + 1)) }
    }

    /// A part of it. Panics if it is none.
    #[inline(always)]
    pub fn part(self, range: Range<usize>) -> Order<'a> {
        Order { numbers: &self.numbers[range], end: self.end }
    }
}

impl Deref for Order<'_> {
    type Target = [u16];

    #[inline(always)]
    fn deref(&self) -> &[u16] {
        self.numbers
    }
}

/// An order that can be changed: of whose packets some step back behind others.
#[derive(Clone, Debug)]
pub struct Lineup {
    numbers: [u16; BATCH_MAX],
    len: usize,
    end: u32,
}

impl Default for Lineup {
    fn default() -> Lineup {
        Lineup { numbers: [0; BATCH_MAX], len: 0, end: 0 }
    }
}

impl Lineup {
    /// These numbers, in this order. Panics if there are more than a batch has packets.
    #[inline(always)]
    pub fn new(numbers: &[u16]) -> Lineup {
        let mut lineup = Lineup::default();
        lineup.set(numbers);
        lineup
    }

    /// Has these numbers from now on, in this order. Panics if there are more than a batch has packets.
    #[inline(always)]
    pub fn set(&mut self, numbers: &[u16]) {
        self.numbers[..numbers.len()].copy_from_slice(numbers);
        (self.len, self.end) = (numbers.len(), Order::new(numbers).end);
    }

    /// The order of a part of it. Panics if it is none.
    #[inline(always)]
    pub fn part(&self, range: Range<usize>) -> Order<'_> {
        Order { numbers: &self[range], end: self.end }
    }

    /// Puts those of the numbers in `range` that `steps_back` names behind the others of it, either in the order in which they were; says where
    /// they begin. Panics if there is no such range.
    #[inline]
    pub fn put_behind(&mut self, range: Range<usize>, steps_back: impl Fn(u16) -> bool) -> usize {
        let from = range.start;
        let (numbers, mut behind) = (&mut self.numbers[..self.len][range], [0; BATCH_MAX]);
        let (mut stay, mut go) = (0, 0);
        for at in 0..numbers.len() {
            // Both are written and one is kept: cheaper than a branch.
            let number = numbers[at];
            (numbers[stay], behind[go % BATCH_MAX]) = (number, number);
            let goes = steps_back(number);
            (stay, go) = (stay + usize::from(!goes), go + usize::from(goes));
        }
        numbers[stay..].copy_from_slice(&behind[..go]);
        from + stay
    }

    /// Lets the numbers in `range` rise again. Panics if there is no such range.
    #[cold]
    pub fn put_in_order(&mut self, range: Range<usize>) {
        // It goes through two rising rows once.
        self.numbers[..self.len][range].sort();
    }
}

impl Deref for Lineup {
    type Target = [u16];

    #[inline(always)]
    fn deref(&self) -> &[u16] {
        &self.numbers[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_step_back_and_return() {
        let mut lineup = Lineup::new(&[1, 2, 4, 5, 8, 9, 200]);
        assert_eq!(lineup.put_behind(1..6, |i| i % 2 == 0), 3);
        assert_eq!(lineup[..], [1, 5, 9, 2, 4, 8, 200]);
        lineup.put_in_order(2..6);
        assert_eq!((&lineup[..], lineup.part(0..2).end), (&[1, 5, 2, 4, 8, 9, 200][..], 201));
        lineup.put_in_order(1..4);
        assert_eq!(lineup[..], [1, 2, 4, 5, 8, 9, 200]);
    }

    #[test]
    fn all_of_a_whole_batch_stay_or_step_back() {
        let all: Vec<u16> = (0..BATCH_MAX as u16).collect();
        let mut lineup = Lineup::new(&all);
        assert_eq!((lineup.put_behind(0..BATCH_MAX, |_| false), &lineup[..]), (BATCH_MAX, &all[..]));
        assert_eq!((lineup.put_behind(0..BATCH_MAX, |_| true), &lineup[..]), (0, &all[..]));
        assert_eq!(lineup.put_behind(7..7, |_| true), 7);
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn nobody_steps_back_beyond_the_end() {
        Lineup::new(&[0, 1]).put_behind(1..3, |_| true);
    }
}
