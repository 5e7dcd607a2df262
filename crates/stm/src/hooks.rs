//! Recording, replaying, scheduling and noting changes: everything that an ordinary run does not pay for.
//!
//! *Recording* draws a global sequence number at each commit, after locking and before validating (read-only transactions
//! validate too), so that the order of the numbers is a serial order of all transactions. It also notes each choice that an
//! operation made where the sequential semantics permit several (which free resource, how stale a value). *Replaying* feeds
//! the choices back, and the structures report a [`Violation`] where a choice was not legal in the sequential state.

use crate::arena::Arena;
use crate::conflict::ObjectId;
use crate::raw::object::ObjectRef;

/// A point at which a scheduler may switch to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YieldPoint {
    /// Before the first access of an attempt.
    Begin,
    /// Before an access.
    Read,
    /// Before the locks of a commit.
    Lock {
        /// Number of reads and writes in the logs of the attempt.
        logged: usize,
    },
    /// With all locks held, before the read log is validated.
    Validate,
    /// With all locks held, before the new values become visible.
    Publish,
    /// An attempt that only read ends without a commit. Nothing shared happens here; for time models.
    Settle,
    /// Nothing to do until another worker makes progress: always switch.
    Wait,
    /// Before a packet of an attempt, at its savepoint, or after the only packet of a fresh attempt. Nothing shared happens
    /// here; for time models rather than schedules.
    Packet {
        /// Number of reads and writes in the logs of the attempt so far.
        logged: usize,
    },
    /// A cache line is about to be read or, at commit, written. For models of the cost of moving lines between caches.
    Touch {
        /// Address of the cache line on which the object begins.
        line: usize,
        /// Whether the commit writes it.
        write: bool,
    },
    /// An object is about to be locked for a [`Holding`](crate::Holding); its cache line was prefetched.
    Hold {
        /// Address of the cache line on which the object begins.
        line: usize,
    },
}

impl YieldPoint {
    /// Returns whether a different order of workers from here on can make a difference.
    pub fn is_switch(self) -> bool {
        !matches!(
            self,
            YieldPoint::Packet { .. } | YieldPoint::Settle | YieldPoint::Touch { .. } | YieldPoint::Hold { .. }
        )
    }
}

/// A recorded choice that the sequential semantics do not permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The recorded transaction made more or fewer choices than its replay: the two took different paths.
    Diverged {
        /// Number of choices recorded.
        recorded: usize,
        /// Number of choices requested by the replay.
        asked: usize,
    },
    /// A structure rejects a recorded choice.
    Illegal {
        /// The structure.
        object: ObjectId,
        /// The violated rule, with the values.
        what: String,
    },
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Violation::Diverged { recorded, asked } => {
                write!(f, "the recorded transaction made {recorded} choices, its replay {asked}")
            }
            Violation::Illegal { object, what } => write!(f, "object {}: {what}", object.0),
        }
    }
}

pub(crate) type Yield = Box<dyn FnMut(YieldPoint) + Send>;

/// How choices are made.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    #[default]
    Free,
    Recording,
    Replaying,
}

#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) mode: Mode,
    /// Choices recorded so far, or to be replayed.
    pub(crate) choices: Vec<u64>,
    /// Number of choices made by the attempt so far.
    pub(crate) made: usize,
    /// The attempt has committed, so the next choice belongs to another one.
    pub(crate) done: bool,
    /// The position in the serial order of the transaction being replayed.
    pub(crate) sequence: u64,
    pub(crate) violations: Vec<Violation>,
    pub(crate) yielding: Option<Yield>,
    /// Arenas whose changes are noted.
    pub(crate) watched: Vec<Arena>,
    /// Changed objects, as index into `watched` and object number; may contain duplicates.
    pub(crate) changed: Vec<(usize, u32)>,
}

impl Hooks {
    pub(crate) fn is_idle(&self) -> bool {
        self.mode == Mode::Free && self.yielding.is_none() && self.watched.is_empty()
    }

    /// Notes an object if it belongs to a watched arena.
    pub(crate) fn note(&mut self, object: ObjectRef) {
        let watched = self.watched.iter().enumerate();
        self.changed.extend(watched.filter_map(|(at, arena)| Some((at, arena.index_of(object)?))));
    }

    /// Starts the record of another attempt if the last one has committed.
    pub(crate) fn renew(&mut self) {
        if std::mem::take(&mut self.done) {
            self.made = 0;
        }
    }

    pub(crate) fn choose(&mut self, choose: impl FnOnce() -> u64) -> u64 {
        self.renew();
        match self.mode {
            Mode::Free => choose(),
            Mode::Recording => {
                let choice = choose();
                self.choices.truncate(self.made);
                self.choices.push(choice);
                self.made += 1;
                choice
            }
            Mode::Replaying => {
                self.made += 1;
                self.choices.get(self.made - 1).copied().unwrap_or_else(choose)
            }
        }
    }

    pub(crate) fn at(&mut self, point: YieldPoint) {
        if let Some(yielding) = &mut self.yielding {
            yielding(point);
        }
    }

    /// Ends the record of an attempt that has committed, and checks that all choices were used.
    pub(crate) fn settle(&mut self) {
        self.renew();
        self.done = true;
        if self.mode == Mode::Replaying && self.made != self.choices.len() {
            self.violations.push(Violation::Diverged { recorded: self.choices.len(), asked: self.made });
        }
    }
}
