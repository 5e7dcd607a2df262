//! Shares of the table, and how many places change.

use crate::load_balancer::maglev::{Candidate, Maglev, SIZE_DEFAULT, is_prime};

fn candidates(count: usize) -> Vec<Candidate> {
    (0..count).map(|n| Candidate { name: format!("10.0.{}.{}:80", n / 256, n % 256), weight: 1 }).collect()
}

/// The candidates' shares of a table, each divided by its fair share.
fn shares(table: &Maglev, count: usize) -> Vec<f64> {
    let mut places = vec![0u32; count];
    table.places().iter().for_each(|place| places[usize::from(*place)] += 1);
    places.iter().map(|share| f64::from(*share) * count as f64 / table.places().len() as f64).collect()
}

#[test]
fn every_backend_has_its_share_of_the_table() {
    for count in [1, 3, 10, 100, 600] {
        let table = Maglev::new(SIZE_DEFAULT, &candidates(count));
        assert!(shares(&table, count).iter().all(|share| (0.99..=1.01).contains(share)), "{count} backends");
    }
}

#[test]
fn shares_follow_the_weights() {
    let mut weighted = candidates(4);
    for (candidate, weight) in weighted.iter_mut().zip([1, 2, 3, 4]) {
        candidate.weight = weight;
    }
    let shares = shares(&Maglev::new(SIZE_DEFAULT, &weighted), 4);
    for (share, weight) in shares.iter().zip([1.0, 2.0, 3.0, 4.0]) {
        assert!((share / (weight * 0.4) - 1.0).abs() < 0.01, "{shares:?}");
    }
}

#[test]
fn the_table_does_not_depend_on_the_order_of_backends() {
    let (forward, mut backward) = (candidates(20), candidates(20));
    backward.reverse();
    let (a, b) = (Maglev::new(SIZE_DEFAULT, &forward), Maglev::new(SIZE_DEFAULT, &backward));
    assert!(a.places().iter().zip(b.places()).all(|(a, b)| *a == 19 - *b));
}

/// The share of places that change although their backend stays, when the last `gone` of `count` backends leave.
fn disruption(count: usize, gone: usize) -> f64 {
    let left = count - gone;
    let (before, after) = (Maglev::new(SIZE_DEFAULT, &candidates(count)), Maglev::new(SIZE_DEFAULT, &candidates(left)));
    let places = || before.places().iter().zip(after.places());
    let surviving = places().filter(|(before, _)| usize::from(**before) < left).count();
    let moved = places().filter(|(before, after)| usize::from(**before) < left && before != after).count();
    moved as f64 / surviving as f64
}

#[test]
fn few_places_change_when_backends_are_taken_out_of_the_configuration() {
    for (count, gone, bound) in [(10, 1, 0.01), (100, 1, 0.01), (100, 10, 0.015), (1000, 100, 0.05)] {
        let moved = disruption(count, gone);
        assert!(moved <= bound, "{gone} of {count}: {:.2} % moved", moved * 100.0);
    }
}

#[test]
fn the_size_of_a_table_is_prime() {
    assert!(is_prime(65_537) && is_prime(655_373) && is_prime(2) && is_prime(101));
    assert!(!is_prime(0) && !is_prime(1) && !is_prime(65_536) && !is_prime(65_535));
}

#[test]
fn a_table_that_is_in_use_is_not_made_again() {
    let [a, b] = [30, 30].map(|count| Maglev::new(SIZE_DEFAULT, &candidates(count)));
    assert!(std::ptr::eq(a.places(), b.places()));
    let mut heavier = candidates(30);
    heavier[3].weight += 1;
    assert_ne!(Maglev::new(SIZE_DEFAULT, &heavier).places(), a.places());
    assert_ne!(Maglev::new(251, &candidates(30)).places().len(), a.places().len());
}
