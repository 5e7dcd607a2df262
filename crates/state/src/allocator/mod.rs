//! Resources handed out as leases: ports of an address translator, slots of a table, back ends.
//!
//! Allocating, freeing and refreshing commute and do not conflict: a resource comes from the worker's own pool and is given back when
//! the transaction commits, and a refresh moves a time stamp forward. A lease that looks expired is revoked only if it still does while its
//! line is locked. A resource is never leased twice and never lost; `None` is as exact as on a single core.
//!
//! The remaining conflicts are the rows for `Allocator` in [`causes`](crate::causes).

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use braid_stm::{Arena, Boosted, Conflict, Tx};
use crossbeam_utils::CachePadded;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::causes::{AllocatorOp, LEASES};
use crate::object::{Named, StateBuilder, StateError, StateObject};
use crate::pool::{GIVEN, Giving, Pool, RETAKEN, TAKEN};

mod image;
mod outside;
mod succession;

/// Deferred action: a lease is freed. Argument: the resource.
const FREED: u32 = GIVEN;
/// Deferred action: a lease is revoked. Argument: the resource and, in the upper half, the lower half of the stamp that was too old.
const EXPIRED: u32 = 3;
/// Number of leases per cache line.
const PER_LINE: u32 = 7;
/// End of the recorded list of expired resources.
const END: u64 = u64::MAX;

/// The configuration of an allocator.
#[derive(Clone, Debug)]
pub struct AllocatorConfig {
    /// Its name within the function.
    pub name: String,
    /// Number of resources, which are numbered from 0.
    pub resources: u32,
    /// How long a lease lives after its allocation or last refresh, in nanoseconds; `None`: forever.
    pub validity_ns: Option<u64>,
    /// Precision of refreshes in nanoseconds, rounded down to a power of two. A lease expires between `validity_ns` and
    /// `validity_ns + precision_ns` after its last use, never earlier.
    pub precision_ns: u64,
}

impl Default for AllocatorConfig {
    fn default() -> Self {
        AllocatorConfig { name: "allocator".into(), resources: 1024, validity_ns: None, precision_ns: 1_000_000 }
    }
}

/// An allocated resource. It is plain data and may be stored in flow entries and maps. The generation distinguishes it from later leases
/// of the same resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Lease {
    /// The resource.
    pub index: u32,
    /// How often the resource has been given back before.
    pub generation: u32,
}

/// A transactional allocator. A clone refers to the same allocator.
#[derive(Clone)]
pub struct Allocator {
    shared: Arc<Shared>,
}

struct Shared {
    named: Named,
    pool: Pool,
    /// Per resource: generation << 1 | leased; seven per object.
    leases: Arena,
    /// Per resource: the tick of its last use, or 0 if it is not leased.
    stamps: Box<[AtomicU64]>,
    /// Where the next search for expired leases begins.
    cursor: AtomicU32,
    workers: Box<[CachePadded<WorkerCell>]>,
    validity_ns: Option<u64>,
    tick_shift: u32,
}

/// State written by one worker only.
#[derive(Default)]
struct WorkerCell {
    /// Where the worker's next search in a range begins.
    hint: AtomicU32,
    /// The worker's time at its latest allocation, which becomes the stamp when it commits.
    now_ns: AtomicU64,
}

impl Allocator {
    /// Creates an allocator with all resources free.
    pub fn new(builder: &mut StateBuilder, config: &AllocatorConfig) -> Result<Allocator, StateError> {
        let name = &config.name;
        let resources = builder.check_capacity(name, config.resources.into(), u64::from(u32::MAX - 1))?;
        let tick_shift = config.precision_ns.max(1).ilog2();
        let is_like = |shared: &Shared| {
            let times = (shared.validity_ns, shared.tick_shift) == (config.validity_ns, tick_shift);
            times && shared.pool.numbers() == resources
        };
        if let Some(shared) = builder.inherited(name, is_like) {
            return Ok(Allocator { shared });
        }
        let named = builder.register(name, "Allocator");
        let leases = builder.arena(Arena::new, &named, LEASES, resources.div_ceil(PER_LINE), PER_LINE as usize)?;
        let workers = builder.domain().workers();
        let shared = Arc::new(Shared {
            pool: Pool::new(builder, &named, AllocatorOp::Allocate.op(), resources)?,
            named,
            leases,
            stamps: (0..resources).map(|_| AtomicU64::new(0)).collect(),
            cursor: AtomicU32::new(0),
            workers: (0..workers).map(|_| CachePadded::default()).collect(),
            validity_ns: config.validity_ns,
            tick_shift,
        });
        builder.attach(shared.named.id, Arc::clone(&shared) as Arc<dyn Boosted>);
        builder.list(Arc::clone(&shared) as Arc<dyn StateObject>);
        Ok(Allocator { shared })
    }

    /// The number of resources.
    pub fn resources(&self) -> u32 {
        self.shared.pool.numbers()
    }

    /// Allocates any free resource; returns `None` only if all are leased.
    #[track_caller]
    pub fn allocate(&self, tx: &mut Tx) -> Result<Option<Lease>, Conflict> {
        let taken = self.shared.pool.take(tx)?;
        self.lease(tx, taken)
    }

    /// Allocates resource `wanted` if it is free, otherwise any free one (port preservation). While another worker holds `wanted` in an
    /// attempt that will not commit, another resource is allocated.
    #[track_caller]
    pub fn allocate_preferring(&self, tx: &mut Tx, wanted: u32) -> Result<Option<Lease>, Conflict> {
        let taken = match wanted < self.resources() {
            true => self.shared.pool.take_preferring(tx, wanted)?,
            false => self.shared.pool.take(tx)?,
        };
        self.lease(tx, taken)
    }

    /// Allocates a free resource of a range; returns `None` only if the whole range is leased. When the range is nearly exhausted, this takes
    /// time proportional to its length.
    #[track_caller]
    pub fn allocate_where(&self, tx: &mut Tx, range: std::ops::Range<u32>) -> Result<Option<Lease>, Conflict> {
        let hint = &self.shared.workers[tx.worker()].hint;
        let taken = self.shared.pool.take_within(tx, range, None, hint.load(Ordering::Relaxed))?;
        if let Some(index) = taken {
            hint.store(index.wrapping_add(1), Ordering::Relaxed);
        }
        self.lease(tx, taken)
    }

    /// Allocates a free resource of a range: `wanted` if it is free at this instant, otherwise the first found from `from` on; returns `None` only
    /// if the whole range is leased. If `from` is a hash of what the resource is for, the search is short as long as a good part of the range is
    /// free.
    #[track_caller]
    pub fn allocate_near(
        &self,
        tx: &mut Tx,
        range: std::ops::Range<u32>,
        wanted: Option<u32>,
        from: u32,
    ) -> Result<Option<Lease>, Conflict> {
        let taken = self.shared.pool.take_within(tx, range, wanted, from)?;
        self.lease(tx, taken)
    }

    #[track_caller]
    fn lease(&self, tx: &mut Tx, taken: Option<u32>) -> Result<Option<Lease>, Conflict> {
        let Some(index) = taken else { return Ok(None) };
        self.shared.workers[tx.worker()].now_ns.store(tx.now(), Ordering::Relaxed);
        let word = self.shared.lease_mut(tx, index, AllocatorOp::Allocate)?;
        *word |= 1;
        let generation = (*word >> 1) as u32;
        Ok(Some(Lease { index, generation }))
    }

    /// Whether exactly this lease is still live.
    #[track_caller]
    pub fn is_live(&self, tx: &mut Tx, lease: Lease) -> Result<bool, Conflict> {
        self.shared.is_live(tx, lease, AllocatorOp::IsLive)
    }

    /// Renews a lease for its full validity; returns false if it is gone. Costs one read; the stamp is written at most once per
    /// precision interval.
    #[track_caller]
    pub fn refresh(&self, tx: &mut Tx, lease: Lease) -> Result<bool, Conflict> {
        let Some(stamp) = self.shared.stamps.get(lease.index as usize) else { return Ok(false) };
        // SeqCst, and before the read of the lease: pairs with `check`, which reads the stamp after it has locked the lease. If the lease is
        // seen unlocked here, a worker that revokes it later sees at least this stamp.
        let seen = stamp.load(Ordering::SeqCst);
        if !self.shared.is_live(tx, lease, AllocatorOp::Refresh)? {
            return Ok(false);
        }
        let now = self.shared.tick(tx.now());
        if seen < now && !self.shared.is_new(tx, lease.index) {
            stamp.fetch_max(now, Ordering::SeqCst);
            tx.note_change(&self.shared.leases, lease.index / PER_LINE);
            // Still not locked after the stamp has moved, so the same argument holds for the new stamp.
            tx.confirm(&self.shared.leases, lease.index / PER_LINE, AllocatorOp::Refresh.op())?;
        }
        Ok(true)
    }

    /// Gives a lease back; returns false if it is already gone.
    #[track_caller]
    pub fn free(&self, tx: &mut Tx, lease: Lease) -> Result<bool, Conflict> {
        if !self.shared.is_live(tx, lease, AllocatorOp::Free)? {
            return Ok(false);
        }
        self.shared.end(tx, lease.index, AllocatorOp::Free)?;
        let giving = Giving { op: AllocatorOp::Free.op(), action: FREED, argument: u64::from(lease.index) };
        self.shared.pool.give(tx, lease.index, giving)?;
        Ok(true)
    }

    /// Checks the next `budget` resources, revokes leases that are too old at `now` (nanoseconds) and calls `expired` for each. Returns how many.
    /// The order is unspecified.
    #[track_caller]
    pub fn expire(
        &self,
        tx: &mut Tx,
        now: u64,
        budget: u32,
        mut expired: impl FnMut(&mut Tx, Lease) -> Result<(), Conflict>,
    ) -> Result<u32, Conflict> {
        let Some(deadline) = self.shared.deadline(now) else { return Ok(0) };
        if tx.is_replaying() {
            return self.expire_recorded(tx, deadline, expired);
        }
        let resources = self.resources();
        let budget = budget.min(resources);
        // Relaxed: a hint that spreads the search over workers and calls.
        let start = self.shared.cursor.fetch_add(budget, Ordering::Relaxed) % resources;
        let mut count = 0;
        for index in (start..resources).chain(0..start).take(budget as usize) {
            let stamp = self.shared.stamps[index as usize].load(Ordering::SeqCst);
            if stamp == 0 || stamp > deadline {
                continue;
            }
            if let Some(lease) = self.take_away(tx, index, stamp)? {
                tx.choice(|| u64::from(index));
                count += 1;
                expired(tx, lease)?;
            }
        }
        tx.choice(|| END);
        Ok(count)
    }

    #[track_caller]
    fn expire_recorded(
        &self,
        tx: &mut Tx,
        deadline: u64,
        mut expired: impl FnMut(&mut Tx, Lease) -> Result<(), Conflict>,
    ) -> Result<u32, Conflict> {
        let mut count = 0;
        loop {
            let choice = tx.choice(|| END);
            if choice == END {
                return Ok(count);
            }
            let index = choice as u32;
            let stamp = self.shared.stamps[index as usize].load(Ordering::SeqCst);
            if stamp > deadline {
                let what = format!("{index} expired, but it was used in tick {stamp}, after tick {deadline}");
                tx.violate(self.shared.named.id, what);
            }
            match self.take_away(tx, index, stamp)? {
                Some(lease) => expired(tx, lease)?,
                None => tx.violate(self.shared.named.id, format!("{index} expired, but it is not leased")),
            }
            count += 1;
        }
    }

    #[track_caller]
    fn take_away(&self, tx: &mut Tx, index: u32, stamp: u64) -> Result<Option<Lease>, Conflict> {
        let word = self.shared.lease_word(tx, index, AllocatorOp::Expire)?;
        if word & 1 == 0 {
            return Ok(None);
        }
        self.shared.end(tx, index, AllocatorOp::Expire)?;
        let argument = u64::from(index) | stamp << 32;
        self.shared.pool.give(tx, index, Giving { op: AllocatorOp::Expire.op(), action: EXPIRED, argument })?;
        Ok(Some(Lease { index, generation: (word >> 1) as u32 }))
    }

    /// Current number of leases; exact while no transaction runs.
    pub fn leased(&self) -> usize {
        self.shared.len()
    }

    /// The structure as seen from outside.
    pub fn object(&self) -> Arc<dyn StateObject> {
        Arc::clone(&self.shared) as Arc<dyn StateObject>
    }
}

impl Shared {
    /// The tick that contains a time; the first tick is 1.
    #[inline(always)]
    fn tick(&self, ns: u64) -> u64 {
        (ns >> self.tick_shift) + 1
    }

    /// The latest tick of last use that is too old at `now`; `None` if there is none.
    fn deadline(&self, now: u64) -> Option<u64> {
        // The last moment of the tick must be at least the validity ago.
        let validity = self.validity_ns?;
        (now.checked_sub(validity)? >> self.tick_shift).checked_sub(1).map(|tick| tick + 1)
    }

    /// Whether this attempt allocated the resource; then its commit will stamp it.
    #[cold]
    fn is_new(&self, tx: &Tx, index: u32) -> bool {
        tx.has_deferred(self.named.id, |action, argument| matches!(action, TAKEN | RETAKEN) && argument as u32 == index)
    }

    #[inline]
    #[track_caller]
    fn lease_word(&self, tx: &mut Tx, index: u32, op: AllocatorOp) -> Result<u64, Conflict> {
        let line = tx.read_ref(&self.leases, index / PER_LINE, op.op())?;
        Ok(line[(index % PER_LINE) as usize])
    }

    #[inline]
    #[track_caller]
    fn lease_mut<'a>(&self, tx: &'a mut Tx, index: u32, op: AllocatorOp) -> Result<&'a mut u64, Conflict> {
        let line = tx.update_ref(&self.leases, index / PER_LINE, op.op())?;
        Ok(&mut line[(index % PER_LINE) as usize])
    }

    #[inline]
    #[track_caller]
    fn is_live(&self, tx: &mut Tx, lease: Lease, op: AllocatorOp) -> Result<bool, Conflict> {
        if lease.index >= self.pool.numbers() {
            return Ok(false);
        }
        Ok(self.lease_word(tx, lease.index, op)? == u64::from(lease.generation) << 1 | 1)
    }

    /// Ends a lease; the next lease of the resource has the next generation.
    #[track_caller]
    fn end(&self, tx: &mut Tx, index: u32, op: AllocatorOp) -> Result<(), Conflict> {
        let word = self.lease_mut(tx, index, op)?;
        let generation = (*word >> 1) as u32;
        *word = u64::from(generation.wrapping_add(1)) << 1;
        Ok(())
    }
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Allocator({}, {} of {})", self.shared.named.name, self.leased(), self.resources())
    }
}
