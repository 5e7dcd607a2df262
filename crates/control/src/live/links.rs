//! Tells the functions of a run when the link of a port goes down or comes up.

use std::sync::Arc;

use braid_runtime::Live;
use braid_runtime::nf::Port;

/// The link of a port is down: all functions forget what they have learnt there, a portion at a time.
pub fn down(live: &Live, port: Port) {
    // A run that has not begun, or ends meanwhile, has nothing to forget.
    let Some(running) = live.running() else { return };
    for position in 0..running.chain.stages().len() {
        let mut cursor = Some(0);
        while let Some(at) = cursor {
            let chain = Arc::clone(&running.chain);
            cursor = live.ask(0, move |worker| worker.link_down(&chain, (position, at), port)).ok().flatten();
        }
    }
}

/// The link of a port is up: functions say there what others should know. Returns false if the run has not begun.
pub fn up(live: &Live, port: Port) -> bool {
    live.running().is_some() && live.ask(0, move |worker| worker.link_up(port)).is_ok()
}
