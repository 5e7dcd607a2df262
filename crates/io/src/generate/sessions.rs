//! Decides which flow the next packet belongs to.
//!
//! Flows start at an even rate in virtual time, whose unit is one packet. A flow's packets come in trains;
//! between trains the flow waits in a heap. The largest flows of a cycle (one in [`LONG`]) start at even
//! intervals in the part of the cycle that leaves them time to end within it; the others start in a fixed
//! shuffled order. So a run over a whole cycle has exactly the sizes of the distribution.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::config::Order;
use super::sizes::SizeTable;
use crate::random::Random;

/// One flow in this many counts as large.
const LONG: u64 = 200;
/// The fraction of a cycle that a flow may last.
const CYCLE_PART: f64 = 0.9;

/// A flow in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    /// When its next packet is due, in virtual time.
    due: f64,
    /// Mean time between its trains.
    gap: f64,
    /// Its number over all cycles.
    pub(crate) flow: u64,
    /// Number of packets that it has sent.
    pub(crate) sent: u64,
    /// Number of packets that it sends in total; 0 for no end.
    pub(crate) size: u64,
    /// Next sequence numbers of the client and of the server.
    pub(crate) sequence: [u32; 2],
}

impl Ord for Session {
    fn cmp(&self, other: &Session) -> Ordering {
        // Reversed, because the heap yields the largest. The flow's number makes the order total.
        other.due.total_cmp(&self.due).then(other.flow.cmp(&self.flow))
    }
}
impl PartialOrd for Session {
    fn partial_cmp(&self, other: &Session) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Session {
    fn eq(&self, other: &Session) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Session {}

/// All flows in progress and those still to start.
#[derive(Debug)]
pub(crate) struct Sessions {
    order: Order,
    flows: u64,
    sizes: SizeTable,
    random: Random,
    waiting: BinaryHeap<Session>,
    /// The flow whose train continues.
    current: Option<Session>,
    now: f64,
    cycle: u64,
    /// Number of flows in this cycle that count as large.
    long: u64,
    /// Number of other flows of this cycle that have been started.
    started: u64,
    /// Rank of the next flow, relative to the large ones, and the step to the following rank.
    rank: u64,
    step: u64,
    /// Number of packets sent in round-robin order.
    turn: u64,
}

impl Sessions {
    pub(crate) fn new(order: Order, flows: u64, sizes: SizeTable, seed: u64) -> Sessions {
        let long = if flows >= 2 { (flows / LONG).max(1) } else { 0 };
        let mut sessions = Sessions {
            order,
            flows,
            sizes,
            random: Random::new(seed),
            waiting: BinaryHeap::new(),
            current: None,
            now: 0.0,
            cycle: 0,
            long,
            started: 0,
            rank: 0,
            step: coprime_step(flows - long),
            turn: 0,
        };
        if order != Order::RoundRobin {
            sessions.begin_cycle();
        }
        sessions
    }

    /// Number of packets in a cycle, which is also its duration.
    fn cycle_time(&self) -> f64 {
        self.flows as f64 * self.sizes.mean
    }

    fn begin_cycle(&mut self) {
        self.started = 0;
        self.rank = self.random.bits() % (self.flows - self.long).max(1);
        let begin = self.cycle as f64 * self.cycle_time();
        for rank in 0..self.long {
            let mut session = self.session(rank);
            let trains = session.size as f64 * (1.0 - self.burst());
            let room = (self.cycle_time() - trains * session.gap).max(0.0);
            session.due = begin + room * self.random.unit();
            self.waiting.push(session);
        }
    }

    fn burst(&self) -> f64 {
        match self.order {
            Order::Sessions { burst, .. } => burst,
            Order::RoundRobin => 0.0,
        }
    }

    /// The flow with this rank in the current cycle, at its beginning.
    fn session(&self, rank: u64) -> Session {
        let size = u64::from(self.sizes.size(rank));
        let gap = match self.order {
            Order::Sessions { burst, gap } => {
                gap.min(CYCLE_PART * self.cycle_time() / (size as f64 * (1.0 - burst)).max(1.0))
            }
            Order::RoundRobin => 0.0,
        };
        let flow = self.cycle * self.flows + rank;
        Session { due: 0.0, gap, flow, sent: 0, size, sequence: initial(flow) }
    }

    /// The flow of the next packet; return it with [`Sessions::sent`].
    pub(crate) fn next(&mut self) -> Session {
        if self.order == Order::RoundRobin {
            return self.next_in_turn();
        }
        if let Some(session) = self.current.take() {
            return session;
        }
        let rest = self.flows - self.long;
        if self.started == rest && (self.waiting.is_empty() || self.now >= (self.cycle + 1) as f64 * self.cycle_time())
        {
            self.cycle += 1;
            self.begin_cycle();
        }
        let start = (self.cycle as f64 + (self.started as f64 + 0.5) / rest.max(1) as f64) * self.cycle_time();
        let due = self.waiting.peek().map_or(f64::INFINITY, |session| session.due);
        if self.started < rest && start <= due {
            self.now = start;
            let session = self.session(self.long + self.rank);
            self.started += 1;
            self.rank = (self.rank + self.step) % rest;
            return session;
        }
        // Every cycle has flows that are not large, so a flow was started or is waiting.
        let session = self.waiting.pop().expect("a flow starts or waits");
        self.now = self.now.max(session.due);
        session
    }

    fn next_in_turn(&mut self) -> Session {
        let (flow, sent) = (self.turn % self.flows, self.turn / self.flows);
        self.turn += 1;
        Session { due: 0.0, gap: 0.0, flow, sent, size: 0, sequence: initial(flow) }
    }

    /// Takes back a flow whose packet was sent.
    pub(crate) fn sent(&mut self, mut session: Session) {
        session.sent += 1;
        if session.size == 0 || session.sent >= session.size {
            return;
        }
        if self.random.chance(self.burst()) {
            self.current = Some(session);
        } else {
            session.due = self.now + 1.0 + session.gap * self.random.exponential();
            self.waiting.push(session);
        }
    }
}

/// Initial sequence numbers of a flow.
fn initial(flow: u64) -> [u32; 2] {
    let bits = crate::random::scramble(flow ^ 0x5e_ed0f_15f1);
    [bits as u32, (bits >> 32) as u32]
}

/// A step through 0..n that visits every number once: coprime to n, and near the golden ratio so that neighbours are far apart.
fn coprime_step(n: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = (n as f64 * 0.618_033_988_75) as u64;
    (first.max(1)..).find(|&step| gcd(step, n.max(1)) == 1).unwrap_or(1)
}
