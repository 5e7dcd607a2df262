//! Saves the state of a run when it ends, and describes the state with which a run starts.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use braid_control::Plan;
use braid_control::live::Snapshot;
use braid_control::profile::counted;
use braid_control::runtime::saved::{Saved, SavedSet};
use braid_control::runtime::{AtEnd, Control, Live, Worker};

/// Collects the state of a run when its workers end.
pub struct Saving {
    live: Arc<Live>,
    sets: Arc<Mutex<(Vec<SavedSet>, u64)>>,
}

impl Saving {
    /// Makes the workers of a run hand in their packet sets when they end, if `wanted` returns true then.
    pub fn begin(control: &mut Control, workers: usize, wanted: impl Fn() -> bool + Send + Sync + 'static) -> Saving {
        let live = Arc::clone(control.live.get_or_insert_with(|| Live::new(workers)));
        let sets = Arc::new(Mutex::new((Vec::new(), 0)));
        let into = Arc::clone(&sets);
        control.at_end = Some(AtEnd(Arc::new(move |worker: &mut Worker| {
            if !wanted() {
                return;
            }
            worker.keep_held();
            let own = worker.save_sets();
            let mut all = into.lock().unwrap_or_else(PoisonError::into_inner);
            all.0.extend(own);
            all.1 = all.1.max(worker.now_ns());
        })));
        Saving { live, sets }
    }

    /// The collected state; `None` if the run never started.
    pub fn end(self, plan: &Plan) -> Option<Snapshot> {
        let running = self.live.running()?;
        let (sets, now_ns) = std::mem::take(&mut *self.sets.lock().unwrap_or_else(PoisonError::into_inner));
        Some(Snapshot::new(plan, Saved { sets, ..Saved::of_chain(&running.chain, plan.ports, now_ns) }))
    }
}

/// Describes how much of a saved state a plan continues, and which functions' state it leaves out.
pub fn told(path: &Path, saved: &Saved, plan: &Plan) -> Vec<String> {
    let goes_on =
        |at: usize| saved.functions.get(at).is_some_and(|one| plan.chain.iter().any(|link| link.name == one.name));
    let sets = saved.sets.iter().filter(|set| set.states.iter().any(|(at, _)| goes_on(*at))).count();
    let sets = sets + saved.shared_sets(goes_on);
    let restored = format!("restored from {}: {}", path.display(), counted(sets as u64, "packet set"));
    let left_out = saved.functions.iter().enumerate().filter(|(at, _)| !goes_on(*at)).map(|(_, function)| {
        format!("note: the state of `{}` is left out: no function of the plan has this name", function.name)
    });
    std::iter::once(restored).chain(left_out).collect()
}
