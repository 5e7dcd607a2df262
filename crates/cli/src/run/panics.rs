//! Controls what is printed when a handler panics. Workers catch the panic, drop the packet and count it (`handler_panic`).
//! Millions of packets may make a handler panic, so each source line prints only once.

use std::collections::HashSet;
use std::panic;
use std::sync::{Mutex, PoisonError};

/// From now on, only the first panic at each source location is printed.
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
