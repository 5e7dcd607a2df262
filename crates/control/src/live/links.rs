//! Tells the functions of a run when the link of a port goes down or comes up.

use std::sync::Arc;

use braid_runtime::nf::Port;
use braid_runtime::{Live, Worker};

/// The link of a port is down: all functions forget what they have learnt there, a portion at a time. Returns false if they have not, because a worker
/// was late or other functions have taken their place meanwhile.
pub fn down(live: &Live, port: Port) -> bool {
    // A run that has not begun has nothing to forget.
    let Some(running) = live.running() else { return true };
    for position in 0..running.chain.stages().len() {
        let (chain, mut cursor) = (Arc::clone(&running.chain), Some(0));
        let forget = move |worker: &mut Worker| {
            cursor = worker.link_down(&chain, (position, cursor?), port);
            Some(())
        };
        let Ok(mut portions) = live.ask_in_portions(0, forget) else { return false };
        if portions.any(|portion| portion.is_err()) {
            return false;
        }
    }
    live.running().is_some_and(|now| Arc::ptr_eq(&now.chain, &running.chain))
}

/// The link of a port is up: functions say there what others should know. Returns false if the run has not begun.
pub fn up(live: &Live, port: Port) -> bool {
    live.running().is_some() && live.ask(0, move |worker| worker.link_up(port)).is_ok()
}
