//! What a tick sends: those within their rate first, then those who borrow of their group, then those who borrow of the link; in each of
//! these, the higher priority first; among equals, in turns.

use braid_nf::prelude::*;

use super::Borrower;
use super::class::{Branch, Charge, Lacks, Line};
use super::queues::{Queue, Ring};

/// Most packets of one tick.
const SENT_MAX: u32 = 1024;
/// Most looks at queues: who waits is looked at for each [`Charge`] once at least.
const LOOKS_MAX: u32 = 16_384;

/// How the turn of a queue ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It has nothing more that it may send now.
    Done,
    /// It has, and the credit is there: its quantum is used up, or it had others wait.
    More,
    /// The link has no credit: it stays the first of the ring.
    LinkBusy,
    /// Its group has none: it stays the first of its group.
    GroupBusy,
}

/// What one tick has before it.
struct Work {
    line: Line,
    /// As of when credit is given.
    at_ns: u64,
    sent: u32,
    looks: u32,
}

impl Work {
    fn may_go_on(&self) -> bool {
        self.sent < SENT_MAX && self.looks < LOOKS_MAX
    }
}

impl Borrower {
    /// Goes round the rings for each millisecond that has passed, as of then, but for those in which nothing can leave.
    pub(super) fn catch_up(&self, cx: &mut Cx<'_>) -> Result<(), Conflict> {
        let (now, line) = (cx.now(), self.line(cx)?);
        let mut work = Work { line, at_ns: 0, sent: 0, looks: 0 };
        while work.line.waiting > 0 && work.line.reached_ns < now && work.may_go_on() {
            work.at_ns = work.line.next_round_ns().min(now);
            if work.at_ns >= work.line.due_ns {
                self.link.fill(&mut work.line.credit, work.at_ns);
                let before = work.sent;
                self.round(cx, &mut work)?;
                let is_idle = work.sent == before && work.may_go_on();
                let due_ns = if is_idle { self.next_due(cx, &work.line, work.at_ns)? } else { None };
                work.line.due_ns = due_ns.unwrap_or(0);
            }
            work.line.reached_ns = work.at_ns;
        }
        if work.line != line {
            self.line.set(cx, 0, work.line)?;
        }
        Ok(())
    }

    /// When a packet that waits may leave at the earliest, as of a moment up to which the line has been served: nobody goes above a ceiling
    /// or the link. Who has no right of its own left may have to wait for longer.
    pub(super) fn next_due(&self, cx: &mut Cx<'_>, line: &Line, at_ns: u64) -> Result<Option<u64>, Conflict> {
        let mut first = None::<u64>;
        for band in 0..self.queues.bands {
            let ring = self.queues.ring(cx, band)?;
            let (_, mut at) = self.queues.turn(cx, &ring, Charge::Own)?;
            for _ in 0..ring.len {
                let queue = self.queues.get(cx, at)?;
                let cost = self.queues.first(cx, &queue)?.cost;
                let branch = self.branch(cx, at / self.queues.bands, at_ns)?;
                let ready_ns = branch.ready_ns(self.terms_of(&branch.class), cost);
                let due_ns = ready_ns.max(self.link.ready_ns(&line.credit, cost));
                first = Some(first.map_or(due_ns, |first| first.min(due_ns)));
                at = queue.next();
            }
        }
        Ok(first)
    }

    /// Everything that may be sent at one moment.
    fn round(&self, cx: &mut Cx<'_>, work: &mut Work) -> Result<(), Conflict> {
        for charge in [Charge::Own, Charge::Group, Charge::Loan] {
            if charge == Charge::Group && self.terms.iter().all(|terms| terms.total.is_none()) {
                continue;
            }
            for band in 0..self.queues.bands {
                let mut ring = self.queues.ring(cx, band)?;
                let before = ring;
                let goes_on = self.go_round(cx, work, &mut ring, charge)?;
                if ring != before {
                    self.queues.set_ring(cx, band, ring)?;
                }
                if !goes_on {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Round by round, until nobody in the ring may send any more; false if the link is busy or the tick has done enough.
    fn go_round(&self, cx: &mut Cx<'_>, work: &mut Work, ring: &mut Ring, charge: Charge) -> Result<bool, Conflict> {
        let mut more = true;
        while more && ring.len > 0 {
            more = false;
            for _ in 0..ring.len {
                if !work.may_go_on() {
                    return Ok(false);
                }
                work.looks += 1;
                match self.turn(cx, work, ring, charge)? {
                    Turn::LinkBusy => return Ok(false),
                    turn => more |= turn == Turn::More,
                }
            }
        }
        Ok(true)
    }

    /// The first queue of the ring sends what it may, and goes to the end or leaves.
    fn turn(&self, cx: &mut Cx<'_>, work: &mut Work, ring: &mut Ring, charge: Charge) -> Result<Turn, Conflict> {
        let (before, at) = self.queues.turn(cx, ring, charge)?;
        let bands = self.queues.bands;
        let mut branch = self.branch(cx, at / bands, work.at_ns)?;
        if branch.group.is_some_and(|group| group.is_anothers_turn(charge, at, bands)) {
            ring.pass(charge, at);
            return Ok(Turn::Done);
        }
        let mut queue = self.queues.get(cx, at)?;
        let mut turn = self.serve(cx, work, (&mut branch, &mut queue), charge)?;
        if let Some(group) = &mut branch.group {
            let held = &mut group.turn_of[charge as usize];
            if turn == Turn::GroupBusy {
                *held = at + 1;
            } else if *held == at + 1 && turn != Turn::LinkBusy {
                // Those who had to wait for it have been passed over in this round.
                (*held, turn) = (0, Turn::More);
            }
        }
        if queue.packets == 0 {
            (queue.quantum, queue.is_in_turn) = ([0; 3], [0; 3]);
            self.queues.leave(cx, ring, (before, at), &queue)?;
            self.emptied(cx, work, &mut branch, at)?;
        } else if turn != Turn::LinkBusy {
            ring.pass(charge, at);
        }
        // A ring of one stands behind itself: what `leave` wrote there is written again, and nobody reads it.
        self.queues.set(cx, at, queue)?;
        self.put_branch(cx, &branch)?;
        Ok(turn)
    }

    /// Sends packets of a queue as long as it has its turn and they are paid for.
    fn serve(
        &self,
        cx: &mut Cx<'_>,
        work: &mut Work,
        (branch, queue): (&mut Branch, &mut Queue),
        charge: Charge,
    ) -> Result<Turn, Conflict> {
        let charged = charge as usize;
        let mut packet = self.queues.first(cx, queue)?;
        if queue.is_in_turn[charged] == 0 && queue.quantum[charged] < packet.cost {
            queue.quantum[charged] = queue.quantum[charged].saturating_add(self.quantum);
        }
        let terms = self.terms_of(&branch.class);
        let turn = loop {
            if packet.cost > queue.quantum[charged] {
                break Turn::More;
            }
            match branch.pay(terms, &mut work.line.credit, packet.cost, charge) {
                Err(Lacks::Class) => break Turn::Done,
                Err(Lacks::Group) => break Turn::GroupBusy,
                Err(Lacks::Link) => break Turn::LinkBusy,
                Ok(()) => {}
            }
            queue.quantum[charged] -= packet.cost;
            self.queues.send(cx, queue, &packet)?;
            work.sent += 1;
            if queue.packets == 0 || work.sent == SENT_MAX {
                break Turn::Done;
            }
            packet = self.queues.first(cx, queue)?;
        };
        queue.is_in_turn[charged] = u32::from(matches!(turn, Turn::LinkBusy | Turn::GroupBusy));
        Ok(turn)
    }

    /// Nothing waits in a queue any more.
    fn emptied(&self, cx: &mut Cx<'_>, work: &mut Work, branch: &mut Branch, at: u32) -> Result<(), Conflict> {
        work.line.waiting -= 1;
        branch.class.waiting &= !(1 << (at % self.queues.bands));
        if let Some(group) = &mut branch.group {
            group.turn_of.iter_mut().filter(|held| **held == at + 1).for_each(|held| *held = 0);
        }
        if branch.class.is_forgotten == 1 && branch.class.waiting == 0 {
            self.leases.free(cx, branch.class.lease)?;
        }
        Ok(())
    }
}
