//! The order in which packets of a batch are handled.
//!
//! Invariant: every number in an [`Order`] or a [`Lineup`] is below its `end`. A walk compares only `end` with the batch,
//! rather than each number.

use std::ops::{Deref, Range};

use crate::batch::BATCH_MAX;
use crate::flagged::Flagged;

/// Number of entries written at once.
const RUN: usize = 16;

/// Numbers of packets in the order in which they are handled, with a known upper bound, so that walks over parts of it need
/// not check each number.
#[derive(Clone, Copy, Debug, Default)]
pub struct Order<'a> {
    pub(super) numbers: &'a [u16],
    /// Upper bound: all numbers are smaller.
    pub(super) end: u32,
}

impl<'a> Order<'a> {
    /// Creates an order of these numbers.
    #[inline(always)]
    pub fn new(numbers: &'a [u16]) -> Order<'a> {
        Order { numbers, end: numbers.iter().fold(0, |end, &i| end.max(u32::from(i) + 1)) }
    }

    /// Returns a part of the order. Panics if the range is out of bounds.
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

/// An order that can be changed by moving packets behind others.
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
    /// Creates a lineup of these numbers, in this order. Panics if there are more than [`BATCH_MAX`].
    #[inline(always)]
    pub fn new(numbers: &[u16]) -> Lineup {
        let mut lineup = Lineup::default();
        lineup.set(numbers);
        lineup
    }

    /// Replaces the contents by these numbers, in this order. Panics if there are more than [`BATCH_MAX`].
    #[inline(always)]
    pub fn set(&mut self, numbers: &[u16]) {
        self.numbers[..numbers.len()].copy_from_slice(numbers);
        (self.len, self.end) = (numbers.len(), Order::new(numbers).end);
    }

    /// Returns a part as an order. Panics if the range is out of bounds.
    #[inline(always)]
    pub fn part(&self, range: Range<usize>) -> Order<'_> {
        Order { numbers: &self[range], end: self.end }
    }

    /// Moves those numbers in `range` that satisfy `steps_back` behind the others, keeping the order within both groups, and
    /// returns the position of the first one moved. Panics if the range is out of bounds.
    #[inline]
    pub fn put_behind(&mut self, range: Range<usize>, steps_back: impl Fn(u16) -> bool) -> usize {
        let from = range.start;
        let (numbers, mut behind) = (&mut self.numbers[..self.len][range], [0; BATCH_MAX]);
        let (mut stay, mut go) = (0, 0);
        for at in 0..numbers.len() {
            // Both are written and one index advances; this is cheaper than a branch.
            let number = numbers[at];
            (numbers[stay], behind[go % BATCH_MAX]) = (number, number);
            let goes = steps_back(number);
            (stay, go) = (stay + usize::from(!goes), go + usize::from(goes));
        }
        numbers[stay..].copy_from_slice(&behind[..go]);
        from + stay
    }

    /// Like [`put_behind`](Self::put_behind), for the flagged numbers. If the numbers are consecutive, as they nearly always
    /// are, only the flagged ones are visited.
    #[inline]
    pub fn put_flagged_behind(&mut self, range: Range<usize>, flagged: &Flagged) -> usize {
        let numbers = &mut self.numbers[..self.len][range.clone()];
        match row_of(numbers) {
            Some(row) => range.start + part_row(numbers, row, flagged),
            None => self.put_behind(range, |i| flagged.has(i.into())),
        }
    }

    /// Sorts the numbers in `range` in ascending order. Panics if the range is out of bounds.
    #[cold]
    pub fn put_in_order(&mut self, range: Range<usize>) {
        // The sort merges two ascending runs in one pass.
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

/// Returns the range of the numbers if they are consecutive.
#[inline(always)]
fn row_of(numbers: &[u16]) -> Option<Range<usize>> {
    let first = *numbers.first()?;
    // No branch in the loop, so that it can be vectorised.
    let others = numbers.iter().zip(first..).fold(0, |others, (number, in_row)| others | (number ^ in_row));
    (others == 0).then(|| usize::from(first)..usize::from(first) + numbers.len())
}

/// Writes consecutive numbers with the flagged ones behind the others, and returns the position of the first flagged one.
#[inline(always)]
fn part_row(numbers: &mut [u16], row: Range<usize>, flagged: &Flagged) -> usize {
    const COUNT: [u16; RUN] = {
        let (mut count, mut i) = ([0; RUN], 0);
        while i < RUN {
            count[i] = i as u16;
            i += 1;
        }
        count
    };
    let (mut ahead, mut behind) = ([0; BATCH_MAX + RUN], [0; BATCH_MAX]);
    let (mut stay, mut go, mut next) = (0, 0, row.start);
    let mut keep_to = |end: usize| {
        while next < end {
            // Write a whole run; excess entries are overwritten later.
            if let Some(run) = ahead[stay..].first_chunk_mut::<RUN>() {
                *run = COUNT.map(|i| next as u16 + i);
            }
            let kept = RUN.min(end - next);
            (stay, next) = (stay + kept, next + kept);
        }
        next = end + 1;
    };
    flagged.each(row.clone(), |i| {
        keep_to(i);
        behind[go % BATCH_MAX] = i as u16;
        go += 1;
    });
    keep_to(row.end);
    numbers[..stay].copy_from_slice(&ahead[..stay]);
    numbers[stay..].copy_from_slice(&behind[..go]);
    stay
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
    fn those_that_are_flagged_step_back_as_any_others() {
        let (row, gaps): (Vec<u16>, Vec<u16>) = ((0..256).collect(), (0..256).filter(|i| i % 9 != 4).collect());
        let chosen: [fn(u16) -> bool; 6] =
            [|_| false, |_| true, |i| i % 11 == 3, |i| i % 40 == 0, |i| i < 70, |i| i > 66 && i % 2 == 0];
        for (numbers, steps_back) in [&row, &gaps].into_iter().flat_map(|numbers| chosen.map(|which| (numbers, which)))
        {
            let mut flagged = Flagged::default();
            (0..256).filter(|&i| steps_back(i)).for_each(|i| flagged.set(i.into()));
            for range in [0..numbers.len(), 5..200, 64..128, 17..18, 9..9] {
                let (mut one, mut other) = (Lineup::new(numbers), Lineup::new(numbers));
                let to = one.put_behind(range.clone(), steps_back);
                assert_eq!(
                    (other.put_flagged_behind(range.clone(), &flagged), &other[..]),
                    (to, &one[..]),
                    "{range:?}"
                );
            }
        }
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
