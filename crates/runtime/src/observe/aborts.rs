//! The aborts of a worker, aggregated as they happen: which operations conflicted, in which line, on what. Always on, because an abort costs
//! far more than counting it; bounded, because the number of aborts is not.

use std::panic::Location;

use braid_stm::{ConflictKind, ConflictReport, ObjectId, Op, Part};

/// Maximum number of different rows; further aborts are only counted.
const ROWS_MAX: usize = 256;
/// Maximum number of elements that a row remembers.
const HOT_MAX: usize = 16;
/// Maximum number of buckets in a [`Series`].
const BUCKETS: usize = 128;

/// The aborts of one worker, or of several merged.
#[derive(Clone, Debug, Default)]
pub struct Aborts {
    /// By line, object and operations, in the order of first occurrence.
    pub rows: Vec<AbortRow>,
    /// Aborts without a row.
    pub beyond: u64,
    /// Conflicts of a worker with itself: always 0 unless the transactions have a bug.
    pub with_itself: u64,
    /// Aborts over time.
    pub over_time: Series,
}

/// Aborts of one kind.
#[derive(Clone, Debug)]
pub struct AbortRow {
    /// Why the attempts failed.
    pub kind: ConflictKind,
    /// The object, if the conflict was about one.
    pub object: Option<ObjectId>,
    /// Which arena of the object.
    pub part: Part,
    /// The operation that has to be repeated.
    pub mine: Op,
    /// The operation of the other worker.
    pub theirs: Op,
    /// The source line in the function.
    pub location: &'static Location<'static>,
    /// The number of aborts.
    pub count: u64,
    /// The elements of the object with the most conflicts.
    pub hot: Hot,
}

impl AbortRow {
    fn is_for(&self, report: &ConflictReport) -> bool {
        // `Location`s are static but not unique, so compare by value.
        self.object == report.object
            && self.mine == report.mine
            && self.theirs == report.theirs
            && self.kind == report.kind
            && self.part == report.part
            && self.location == report.location
    }

    fn is_like(&self, other: &AbortRow) -> bool {
        (self.kind, self.object, self.part, self.mine, self.theirs, self.location)
            == (other.kind, other.object, other.part, other.mine, other.theirs, other.location)
    }
}

impl Aborts {
    /// Counts an attempt of `worker` that was rolled back at `now_ns` of the worker's time.
    #[cold]
    pub fn note(&mut self, worker: usize, report: Option<&ConflictReport>, now_ns: u64) {
        self.over_time.add(now_ns, 1);
        let Some(report) = report else {
            self.beyond += 1;
            return;
        };
        let over_an_object = matches!(report.kind, ConflictKind::Locked | ConflictKind::Changed);
        self.with_itself += u64::from(over_an_object && report.other == worker);
        if let Some(row) = self.rows.iter_mut().find(|row| row.is_for(report)) {
            row.count += 1;
            row.hot.add(report.index, 1);
        } else if self.rows.len() < ROWS_MAX {
            let mut hot = Hot::default();
            hot.add(report.index, 1);
            let &ConflictReport { kind, object, part, mine, theirs, location, .. } = report;
            self.rows.push(AbortRow { kind, object, part, mine, theirs, location, count: 1, hot });
        } else {
            self.beyond += 1;
        }
    }

    /// Forgets the elements of objects for which `is_gone` is true, because their numbers will be reused by other objects.
    pub fn forget_elements(&mut self, is_gone: impl Fn(ObjectId) -> bool) {
        for row in self.rows.iter_mut().filter(|row| row.object.is_some_and(&is_gone)) {
            row.hot = Hot::default();
        }
    }

    /// Adds the aborts of another worker.
    pub fn merge(&mut self, other: &Aborts) {
        self.beyond += other.beyond;
        self.with_itself += other.with_itself;
        self.over_time.merge(&other.over_time);
        for row in &other.rows {
            match self.rows.iter_mut().find(|known| known.is_like(row)) {
                Some(known) => {
                    known.count += row.count;
                    row.hot.iter().for_each(|(index, count)| known.hot.add(index, count));
                }
                None => self.rows.push(row.clone()),
            }
        }
    }
}

/// The most frequent of many numbers, by the Space-Saving algorithm of Metwally et al. A number that makes up more than a sixteenth of all is
/// certainly included, and no count is too small.
#[derive(Clone, Debug, Default)]
pub struct Hot(Vec<(u32, u64)>);

impl Hot {
    fn add(&mut self, index: u32, count: u64) {
        if let Some(known) = self.0.iter_mut().find(|known| known.0 == index) {
            known.1 += count;
        } else if self.0.len() < HOT_MAX {
            self.0.push((index, count));
        } else if let Some(least) = self.0.iter_mut().min_by_key(|known| known.1) {
            *least = (index, least.1 + count);
        }
    }

    /// The numbers with upper bounds of their counts, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> {
        self.0.iter().copied()
    }
}

/// Events over time in a bounded number of buckets, whose width grows over time.
#[derive(Clone, Debug, Default)]
pub struct Series {
    origin_ns: Option<u64>,
    shift: u32,
    counts: Vec<u64>,
}

impl Series {
    /// Adds `count` events at a time; a time before the first event counts as that of the first event.
    pub fn add(&mut self, now_ns: u64, count: u64) {
        let since = now_ns.saturating_sub(*self.origin_ns.get_or_insert(now_ns));
        while (since >> self.shift) >= BUCKETS as u64 {
            self.shift += 1;
            let folded = self.counts.chunks(2).map(|pair| pair.iter().sum()).collect();
            self.counts = folded;
        }
        let at = (since >> self.shift) as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += count;
    }

    /// Adds another series; events keep their time to within about a bucket's width.
    pub fn merge(&mut self, other: &Series) {
        let Some(origin) = other.origin_ns else { return };
        if self.origin_ns.is_some_and(|own| own > origin) {
            let own = std::mem::take(self);
            self.add(origin, 0);
            self.merge(&own);
        }
        for (at, &count) in other.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(origin + ((at as u64) << other.shift), count);
        }
    }

    /// Time of the first event, in nanoseconds.
    pub fn origin_ns(&self) -> u64 {
        self.origin_ns.unwrap_or(0)
    }

    /// Width of a bucket, in nanoseconds.
    pub fn width_ns(&self) -> u64 {
        1 << self.shift
    }

    /// Number of events by bucket.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_comes_often_is_among_the_hot_ones_whatever_else_comes() {
        let mut hot = Hot::default();
        for round in 0..10_000u32 {
            hot.add(if round % 10 == 0 { 7 } else { 1000 + round }, 1);
        }
        let seven = hot.iter().find(|(index, _)| *index == 7).expect("a tenth of all");
        assert!(seven.1 >= 1000);
    }

    #[test]
    fn a_series_keeps_every_event_and_its_place() {
        let mut series = Series::default();
        for millisecond in 0..1000u64 {
            series.add(5_000_000_000 + millisecond * 1_000_000, 1);
        }
        assert!(series.counts().len() <= BUCKETS);
        assert_eq!(series.counts().iter().sum::<u64>(), 1000);
        let half = series.counts().len() / 2;
        let first: u64 = series.counts()[..half].iter().sum();
        assert!((450..=550).contains(&first), "{first} in the first half");
    }

    #[test]
    fn merged_series_lie_over_each_other_in_time() {
        let (mut late, mut early) = (Series::default(), Series::default());
        late.add(1_000_000, 3);
        early.add(0, 5);
        late.merge(&early);
        assert_eq!((late.origin_ns(), late.counts().iter().sum::<u64>()), (0, 8));
        assert_eq!(late.counts()[0], 5);
        assert_eq!(late.counts().last(), Some(&3));
    }
}
