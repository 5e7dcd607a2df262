//! How many bytes of each address wait for the link, where addresses may send faster than the link lets them: their own rate
//! then says nothing about their queue.
//!
//! An address has an account as long as a packet of it waits, so there are never more accounts than packets can wait. Each
//! waiting packet knows its account, and the address knows it by a lease, which is over once nothing of it waits.

use std::sync::Arc;

use braid_nf::Part;
use braid_nf::prelude::*;
use braid_nf::state::{AllocatorConfig, StateBuilder, StateError, StateObject, VectorConfig};

/// An account as its address remembers it, or as a packet does; `number` 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Account {
    pub number: u32,
    generation: u32,
}

impl Account {
    fn of(lease: Lease) -> Account {
        Account { number: lease.index + 1, generation: lease.generation }
    }

    fn lease(self) -> Option<Lease> {
        Some(Lease { index: self.number.checked_sub(1)?, generation: self.generation })
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Balance {
    bytes: u64,
    account: Account,
}

/// The accounts of all addresses.
#[derive(Debug)]
pub struct Accounts {
    leases: Allocator,
    balances: Vector<Balance>,
}

impl Accounts {
    /// Creates accounts for as many packets as can wait.
    pub fn new(builder: &mut StateBuilder, packets: u32) -> Result<Accounts, StateError> {
        let leases = AllocatorConfig { name: "accounts".into(), resources: packets, ..AllocatorConfig::default() };
        let balances = VectorConfig { name: "balances".into(), len: packets };
        Ok(Accounts {
            leases: Allocator::new(builder, &leases)?,
            balances: Vector::new(builder, &balances, Balance::default())?,
        })
    }

    /// How many bytes of an address wait.
    pub fn bytes(&self, cx: &mut Cx<'_>, account: Account) -> Result<u64, Conflict> {
        let Some(lease) = account.lease() else { return Ok(0) };
        match self.leases.is_live(cx, lease)? {
            true => Ok(self.balances.get(cx, lease.index)?.unwrap_or_default().bytes),
            false => Ok(0),
        }
    }

    /// Adds a packet that waits, and returns its account: the address's, or a new one.
    pub fn add(&self, cx: &mut Cx<'_>, account: Account, cost: u32) -> Result<Account, Conflict> {
        let known = account.lease();
        let live = match known {
            Some(lease) => self.leases.is_live(cx, lease)?,
            None => false,
        };
        let (account, before) = match known.filter(|_| live) {
            Some(lease) => (account, self.balances.get(cx, lease.index)?.unwrap_or_default().bytes),
            None => match self.leases.allocate(cx)? {
                Some(lease) => (Account::of(lease), 0),
                // There are as many accounts as packets.
                None => return Ok(Account::default()),
            },
        };
        if let Some(lease) = account.lease() {
            self.balances.set(cx, lease.index, Balance { bytes: before + u64::from(cost), account })?;
        }
        Ok(account)
    }

    /// Takes off a packet that waits no longer; the account ends with the last one.
    pub fn take_off(&self, cx: &mut Cx<'_>, number: u32, cost: u32) -> Result<(), Conflict> {
        let Some(index) = number.checked_sub(1) else { return Ok(()) };
        let Some(mut balance) = self.balances.get(cx, index)? else { return Ok(()) };
        balance.bytes = balance.bytes.saturating_sub(cost.into());
        self.balances.set(cx, index, balance)?;
        match balance.account.lease().filter(|_| balance.bytes == 0) {
            Some(lease) => self.leases.free(cx, lease).map(drop),
            None => Ok(()),
        }
    }
}

impl Part for Accounts {
    fn objects(&self, into: &mut Vec<Arc<dyn StateObject>>) {
        self.leases.objects(into);
        self.balances.objects(into);
    }
}
