//! Somebody asks for the end: what is being measured ends soon and is left out, what was measured before stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::failure::{Failure, Kind};

/// Set by Ctrl-C. Runs end at the next batch that finds it set.
pub type Stop = Arc<AtomicBool>;

/// Returns an error once the end has been requested.
pub fn unless(stop: &Stop) -> Result<(), Failure> {
    // Relaxed: the flag carries no data.
    match stop.load(Ordering::Relaxed) {
        true => {
            Err(Failure::new(Kind::Failed, "interrupted", "what was complete is kept, what was under way is left out"))
        }
        false => Ok(()),
    }
}
