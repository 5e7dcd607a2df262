//! What is printed when a handler panics. Workers catch it, drop the packet and count it (`handler_panic`); packets that make a handler
//! panic may come by the million, so each line of code says it once.

use std::collections::HashSet;
use std::panic;
use std::sync::{Mutex, PoisonError};

/// From now on the first panic at a place in the code is printed as ever, and no other one there.
pub fn say_each_once() {
    let (usual, said) = (panic::take_hook(), Mutex::new(HashSet::new()));
    panic::set_hook(Box::new(move |info| {
        let place = info.location().map(|place| (place.file().to_owned(), place.line(), place.column()));
        let is_new = said.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
        if is_new {
            usual(info);
        }
    }));
}
