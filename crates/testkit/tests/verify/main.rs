//! The promises of the catalogue, shown on real traffic: every function on every capture, against what others have counted,
//! against the Linux kernel, and against itself on one worker. `docs/testing.md` says what each proves and how long it takes.
//!
//! Ordinary tests take a sample, so that all together stay short; those marked `ignore` are the whole, behind
//! `cargo xtask verify` and `cargo xtask certify`.

mod assured;
mod captures;
mod certify;
mod cookies;
mod course;
mod detectors;
mod equivalence;
mod figures;
mod flow_counts;
mod generated;
mod indexed;
mod kernel_compare;
mod kernel_crafted;
mod made;
mod nfos_functions;
mod nfos_transactions;
mod policed;
mod resized;
mod run;
mod shaped;
mod unwatched;
