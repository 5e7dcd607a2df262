//! Packets that pass through the whole chain in one transaction each (`atomic = "chain"`).

use braid_nf::packet::key::Keys;
use braid_nf::{Found, Reason, SetTables, Verdict};

use super::Worker;
use super::sets::Sets;
use crate::attempt::note_abort;
use crate::chain::course::Direction;
use crate::chain::whole::followed::Steps;
use crate::chain::whole::{Groups, Way, Whole};
use crate::observe::probe::Span;

impl Groups for Vec<Sets> {
    fn group(&mut self, number: usize) -> (&mut SetTables, &mut Keys, &mut Found) {
        let sets = &mut self[number];
        (&mut sets.tables, &mut sets.keys, &mut sets.found)
    }
}

impl Worker {
    /// Runs the remaining packets through the chain, one packet after another.
    pub(super) fn one_by_one(&mut self, direction: Direction) {
        let mut todo = std::mem::take(&mut self.todo);
        todo.retain(|&i| {
            self.go_through(i, direction);
            !self.verdicts.is_drop(i.into())
        });
        self.todo = todo;
    }

    /// Retries until the packet has passed through the chain and its transaction has committed, or a handler has panicked.
    fn go_through(&mut self, i: u16, direction: Direction) {
        let mut steps = self.tracer.as_ref().filter(|tracer| tracer.follows(i)).map(|_| Steps::default());
        let beginning = self.logs.set_out(i.into(), &self.verdicts);
        let mut whole = Whole {
            chain: &self.parts.chain,
            tx: &mut self.parts.tx,
            batch: &mut self.batch,
            verdicts: &mut self.verdicts,
            now_ns: &self.now_ns,
            ports: self.parts.ports,
            logs: &mut self.logs,
            progress: &mut self.progress,
            steps: steps.as_mut(),
        };
        loop {
            let way = whole.attempt(i, direction, &mut self.sets);
            let last = whole.progress.met.last().copied().unwrap_or(0);
            self.probe.executed(last, 1, whole.tx);
            if way == Way::Panic {
                whole.take_back(&beginning, &mut self.sets);
                self.counters.panics += 1;
                whole.verdicts.set(i.into(), Verdict::Drop(Reason::HANDLER_PANIC));
                break;
            }
            if way == Way::Through
                && let Ok(committed) = whole.tx.commit()
            {
                whole.stands();
                self.probe.passed(Span::Commit(last), 1);
                self.witness.went_through(whole.tx, i, direction, self.now_ns[usize::from(i)], committed.sequence);
                self.counters.commits += 1;
                break;
            }
            whole.take_back(&beginning, &mut self.sets);
            if let Some(steps) = &mut whole.steps {
                steps.take_back(last);
            }
            self.probe.aborted(last, 1);
            note_abort(&mut self.counters, whole.tx);
        }
        if let (Some(steps), Some(tracer)) = (steps, &mut self.tracer) {
            steps.finish().into_iter().for_each(|step| tracer.note(i, step));
        }
        for &position in &self.progress.met {
            self.counters.reached[position] += 1;
        }
        if let (Verdict::Drop(reason), Some(&last)) = (self.verdicts.get(i.into()), self.progress.met.last()) {
            self.counters.drops.add(self.parts.chain.stages()[last].name(), reason, 1);
        }
    }
}
