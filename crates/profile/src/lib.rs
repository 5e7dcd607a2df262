//! What runs reveal about a chain: certificates of sequential equivalence, profiles, scaling models.
//!
//! This crate holds plain data and its rendering; `control` performs the runs and comparisons.
#![forbid(unsafe_code)]

pub mod certificate;
pub mod html;
pub mod model;
pub mod plot;
pub mod report;
pub mod words;

pub use certificate::{Certificate, Outcome, PacketDifference, Run, Schedule, Violation};
pub use model::{Measured, ModelReport, ModelRow};
pub use report::{Balance, CauseAborts, HotElement, LineAborts, OverTime, Profile, Setting, TimePart, Tried};
pub use words::{counted, noun_of};
