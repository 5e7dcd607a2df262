//! Whether the live packet sets fit into the tables of another plan, and which sets end if not all do.

use std::sync::Arc;

use super::{ExchangeError, Exchanged};
use crate::chain::Chain;
use crate::chain::course::Full;
use crate::live::{Live, Unanswered};
use crate::plan::Plan;
use crate::worker::{SetsInUse, Worker};

/// Number of sets that a worker evicts between two batches when its capacity shrinks.
const EVICTED_MAX: usize = 256;

/// Whether sets may still be evicted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Going {
    Some,
    None,
}

/// Whether the workers' sets will fit, not counting groups whose sets may still be evicted.
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

/// Whether surplus sets of a group are evicted: its full table evicts the oldest ones now, and will do so in the new chain.
pub(super) fn evicts(now: &Chain, group: usize, next: &Chain) -> bool {
    let will = |at: &usize| {
        let after = next.stages().iter().position(|stage| stage.name() == now.stages()[*at].name());
        let group = after.and_then(|after| next.group_of(after));
        group.is_none_or(|group| next.groups()[group].full == Full::EvictOldest)
    };
    let group = &now.groups()[group];
    group.full == Full::EvictOldest && group.stages.iter().all(will)
}

/// Has workers evict the sets that will not fit, some between two batches each time.
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
