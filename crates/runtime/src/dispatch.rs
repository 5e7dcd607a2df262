//! Software distribution: one thread receives and steers packets, and workers take them from rings.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use braid_io::capture::Damage;
use braid_io::{Ahead, Bell, FirstQueue, OpenError, Received, RxCounters, RxQueue, Source, Waited};
use braid_packet::{BATCH_MAX, Batch, Buffers, Layout, Pool};
use braid_steer::Steering;
use braid_steer::ring::{DispatchCounters, Dispatcher, Inlet, RING_FRAMES_DEFAULT, WhenFull, rings};

use crate::balance::{Balance, Balanced, Balancer};
use crate::launch::Control;
use crate::live::Live;
use crate::pacing::idle::{Ending, Patience};
use crate::plan::Plan;

/// Longest wait for a worker of a live run whose ring is full. A worker that is stopped while the plan changes, or that gets no processor time,
/// usually goes on within this time; one that hangs does not keep the others from their packets.
const RING_WAIT_MAX: Duration = Duration::from_millis(100);

/// What the dispatcher did.
#[derive(Debug)]
pub struct Dispatched {
    /// The counters of its receive queue.
    pub received: RxCounters,
    /// How many packets went to each worker.
    pub counters: DispatchCounters,
    /// Damage found in the source.
    pub damages: Vec<Damage>,
    /// What was moved between workers, if load is balanced.
    pub balanced: Option<Balanced>,
}

/// The dispatcher, not yet running.
pub(crate) struct Dispatching {
    source: Box<dyn RxQueue>,
    dispatcher: Dispatcher,
    steering: Arc<Steering>,
    balancer: Option<Balancer>,
    batch: Batch,
    buffers: Buffers,
    horizon: Arc<AtomicU64>,
    /// The bell of each worker; none if workers do not sleep.
    bells: Vec<Arc<Bell>>,
    stop: Arc<AtomicBool>,
}

/// A worker's end of its ring.
struct RingQueue {
    inlet: Inlet,
    horizon: Arc<AtomicU64>,
    /// What the dispatcher rings when it has put packets into the ring; none if it does not.
    bell: Option<Arc<Bell>>,
    next: u64,
    counters: RxCounters,
}

/// Opens the source with one queue, and one ring per worker.
pub(crate) fn open(
    plan: &Plan,
    source: Box<dyn Source>,
    pool: &Arc<Pool>,
    layout: &Arc<Layout>,
    control: &Control,
    live: Option<Arc<Live>>,
) -> Result<(Dispatching, Vec<Box<dyn RxQueue>>), OpenError> {
    let mut queues = source.open(1, Arc::new(FirstQueue))?;
    let Some(source) = queues.pop() else { return Err(OpenError::Nothing { what: "the source has no queue" }) };
    // Packets of interfaces come whether or not somebody takes them.
    let when_full = source.bell().map_or(WhenFull::Wait, |_| WhenFull::WaitAtMost(RING_WAIT_MAX));
    let (dispatcher, inlets) = rings(plan.workers, RING_FRAMES_DEFAULT, when_full);
    let horizon = Arc::new(AtomicU64::new(0));
    // Only where the dispatcher itself waits for packets is it worthwhile that workers sleep: otherwise packets come without a break.
    let bells: Option<Vec<Arc<Bell>>> =
        source.bell().and_then(|_| (0..plan.workers).map(|_| Bell::new().ok().map(Arc::new)).collect());
    let bells = bells.unwrap_or_default();
    let queue = |(worker, inlet): (usize, Inlet)| {
        let (horizon, bell) = (Arc::clone(&horizon), bells.get(worker).cloned());
        Box::new(RingQueue { inlet, horizon, bell, next: 0, counters: RxCounters::default() }) as Box<dyn RxQueue>
    };
    let queues = inlets.into_iter().enumerate().map(queue).collect();
    let balance = plan.balance.filter(|_| plan.workers > 1).zip(live);
    let balancer = balance.map(|(balance, live)| {
        // A recorded run is meant to exercise moves, so their share of time is not limited.
        let held_share = if control.record { 1.0 } else { balance.held_share };
        Balancer::new(Balance { held_share, ..balance }, live, Steering::clone(&plan.steering))
    });
    let dispatching = Dispatching {
        source,
        dispatcher,
        steering: Arc::clone(&plan.steering),
        balancer,
        batch: Batch::new(pool, layout),
        buffers: Buffers::new(pool),
        horizon,
        bells,
        stop: Arc::clone(&control.stop),
    };
    Ok((dispatching, queues))
}

impl Dispatching {
    /// Receives packets and distributes them until the source ends or the run is to stop. Dropping the dispatcher lets the workers end once
    /// their rings are empty.
    pub(crate) fn run(mut self, deadline: Option<Instant>) -> Dispatched {
        let (mut rounds, mut patience, mut ending) = (0u32, Patience::default(), Ending::default());
        loop {
            let mut has_waited = false;
            match self.source.receive(&mut self.batch, &mut self.buffers, BATCH_MAX) {
                Received::Packets => {
                    patience = Patience::default();
                    self.batch.parse_all();
                    self.hand_out();
                    // Release, pairs with the Acquire loads in `RingQueue`: a worker that sees this horizon sees the frames before it in the
                    // rings.
                    self.horizon.store(self.source.horizon(), Ordering::Release);
                }
                Received::Idle => has_waited = patience.wait(|at_most| self.source.wait(at_most)),
                Received::End => break,
            }
            rounds = rounds.wrapping_add(1);
            let late = (has_waited || rounds.is_multiple_of(64))
                && deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if (late || self.stop.load(Ordering::Relaxed)) && ending.is_over(|| self.source.close()) {
                break;
            }
        }
        self.horizon.store(u64::MAX, Ordering::Release);
        Dispatched {
            received: self.source.counters(),
            counters: self.dispatcher.counters().clone(),
            damages: self.source.damages(),
            balanced: self.balancer.as_ref().map(Balancer::balanced),
        }
    }

    fn hand_out(&mut self) {
        let (dispatcher, batch, buffers) = (&mut self.dispatcher, &mut self.batch, &mut self.buffers);
        let wake = |dispatcher: &Dispatcher| {
            let awaited = dispatcher.handed().filter_map(|worker| self.bells.get(worker));
            awaited.for_each(|bell| bell.ring());
        };
        match &mut self.balancer {
            None => {
                dispatcher.dispatch(batch, &self.steering, buffers);
                wake(dispatcher);
            }
            Some(balancer) => balancer.dispatch(dispatcher, batch, buffers, wake),
        }
    }
}

impl RxQueue for RingQueue {
    fn receive(&mut self, batch: &mut Batch, _: &mut Buffers, limit: usize) -> Received {
        // Acquire, pairs with the Release in `Dispatching::run`. Loaded before the ring is checked: if the ring is empty then, no packet below
        // this horizon will arrive.
        let horizon = self.horizon.load(Ordering::Acquire);
        let before = batch.len();
        if self.inlet.receive(batch, limit) == 0 {
            self.next = self.next.max(horizon);
            return if self.inlet.is_finished() { Received::End } else { Received::Idle };
        }
        for i in before..batch.len() {
            self.counters.packets += 1;
            self.counters.bytes += batch.wire_len(i) as u64;
        }
        self.next = self.next.max(batch.sequence(batch.len() - 1) + 1);
        Received::Packets
    }

    fn horizon(&self) -> u64 {
        self.next
    }

    fn ahead(&mut self) -> Ahead {
        // Loaded before the ring is checked, as in `receive`.
        let horizon = self.horizon.load(Ordering::Acquire);
        match self.inlet.next_frame() {
            Some(frame) => Ahead::Packet { sequence: frame.sequence(), timestamp_ns: frame.timestamp_ns() },
            None if self.inlet.is_finished() => Ahead::End,
            None => {
                self.next = self.next.max(horizon);
                Ahead::Nothing
            }
        }
    }

    fn wait(&mut self, at_most: Duration) -> Waited {
        self.bell.as_ref().map_or(Waited::Cannot, |bell| bell.wait(at_most))
    }

    fn bell(&self) -> Option<Arc<Bell>> {
        self.bell.clone()
    }

    fn counters(&self) -> RxCounters {
        RxCounters { ring_full: self.inlet.lost(), ..self.counters }
    }

    fn has_parsed(&self) -> bool {
        true
    }
}
