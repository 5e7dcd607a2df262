//! Whether the packet sets that are live find room under another plan, and who goes if not all do.

use std::sync::Arc;

use super::{ExchangeError, Exchanged};
use crate::chain::Chain;
use crate::course::Full;
use crate::live::{Live, Unanswered};
use crate::plan::Plan;
use crate::worker::{SetsInUse, Worker};

/// Sets that a worker lets go between two batches where there is to be less room for them.
const EVICTED_MAX: usize = 256;

/// Whether sets may still be let go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    Some,
    None,
}

/// Whether the sets that workers have will find room, those left out that are still to be let go.
pub(super) fn check_room(
    (now, next): (&Chain, &Chain),
    used: &[(usize, SetsInUse)],
    plan: &Plan,
    some_may_go: Going,
) -> Result<(), ExchangeError> {
    let room = plan.sets_per_worker();
    let stays = |group: &usize| some_may_go == Going::None || !evicts(now, *group, next);
    let of_worker = |(worker, (_, lens)): &(usize, SetsInUse)| {
        let lens = lens.iter().copied().enumerate().filter(|(group, _)| stays(group));
        lens.map(|(group, live)| (live, *worker, group)).max()
    };
    let Some((live, worker, group)) = used.iter().filter_map(of_worker).max().filter(|(live, ..)| *live > room) else {
        return Ok(());
    };
    let first = now.groups()[group].stages.first();
    let function = first.map_or_else(String::new, |at| now.stages()[*at].name().to_owned());
    Err(ExchangeError::Sets { worker, function, live, room, needed: plan.sets_for(live) })
}

/// Whether the sets of a group go where they are too many: its full table lets the oldest one go, and will.
pub(super) fn evicts(now: &Chain, group: usize, next: &Chain) -> bool {
    let will = |at: &usize| {
        let after = next.stages().iter().position(|stage| stage.name() == now.stages()[*at].name());
        let group = after.and_then(|after| next.group_of(after));
        group.is_none_or(|group| next.groups()[group].full == Full::EvictOldest)
    };
    let group = &now.groups()[group];
    group.full == Full::EvictOldest && group.stages.iter().all(will)
}

/// Has workers let sets go, some between two batches each time, where they are more than will find room.
pub(super) fn evict(
    live: &Live,
    (now, next): (&Arc<Chain>, &Arc<Chain>),
    plan: &Plan,
    exchanged: &mut Exchanged,
) -> Result<(), ExchangeError> {
    let room = plan.sets_per_worker();
    for worker in 0..live.workers() {
        loop {
            let (now, next) = (Arc::clone(now), Arc::clone(next));
            let some =
                move |worker: &mut Worker| worker.evict_down(room, EVICTED_MAX, &|group| evicts(&now, group, &next));
            match live.ask(worker, some) {
                Ok(0) | Err(Unanswered::Ended(_)) => break,
                Ok(evicted) => exchanged.evicted += evicted,
                Err(other) => return Err(other.into()),
            }
        }
    }
    Ok(())
}
