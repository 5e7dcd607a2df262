//! Handlers that panic do not fill the log. A process of its own, for the hook is the process's.

use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use braid_cli::run::panics::say_each_once;

#[test]
fn each_line_that_panics_says_so_once() {
    let said = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&said);
    set_hook(Box::new(move |_| _ = counter.fetch_add(1, Ordering::Relaxed)));
    say_each_once();
    for _ in 0..1_000 {
        assert!(catch_unwind(|| panic!("a packet")).is_err());
    }
    assert!(catch_unwind(|| panic!("another line")).is_err());
    drop(take_hook());
    assert_eq!(said.load(Ordering::Relaxed), 2);
}
