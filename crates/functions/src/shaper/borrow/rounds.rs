//! What a tick sends: packets within the rate of their address first, then those that borrow from a group, then those that
//! borrow from the link. Within each of these the higher priority goes first, and equals take turns.

use braid_nf::prelude::*;

use super::Borrower;
use super::class::{Branch, Charge, Lacks, Line};
use super::queues::{Queue, Ring};

/// The most packets sent in one tick.
const SENT_MAX: u32 = 1024;
/// The most queues examined in one tick; each waiting queue is examined at least once for each [`Charge`].
const LOOKS_MAX: u32 = 16_384;

/// How the turn of a queue ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// It may not send any more now.
    Done,
    /// It may send more: its quantum is used up, or it made others wait.
    More,
    /// The link has no credit; the queue stays the first of the ring.
    LinkBusy,
    /// Its group has no credit; the queue stays the first of its group.
    GroupBusy,
}

/// The progress of one tick.
struct Work {
    line: Line,
    /// The time as of which credit is given.
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
    /// Goes round the rings for each millisecond that has passed, with the credit as of that time, except those in which no
    /// packet can leave.
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

    /// The earliest time at which a waiting packet may leave, given the time up to which the queues have been served: no packet
    /// may exceed a ceiling or the link. A packet that has no rate of its own left may have to wait longer.
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

    /// Sends everything that may be sent at one moment.
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

    /// Goes round a ring until none of its queues may send any more. Returns false if the link has no credit or the tick has
    /// done enough.
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

    /// Lets the first queue of the ring send what it may, and moves it to the end or removes it.
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
                // Those that had to wait for it have been skipped in this round.
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
        // In a ring of one, the queue follows itself. This overwrites what `leave` wrote to it, which nothing reads.
        self.queues.set(cx, at, queue)?;
        self.put_branch(cx, &branch)?;
        Ok(turn)
    }

    /// Sends packets of a queue as long as it has quantum left and credit suffices.
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

    /// Records that a queue has become empty.
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
