//! A run as it would be on other machines or in another order: workers in virtual time, and a seeded scheduler.

pub mod schedule;
pub mod virtual_time;
