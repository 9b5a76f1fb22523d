//! The auto traits of every public type: a type that loses one breaks the programs that have it in
//! a type of their own, so each is asserted when this is compiled.
//!
//! Unwind safety is that of what a type replaces: locks, counters and pools keep what they promise
//! when a thread panics, as `std`'s atomics, mutexes and channels do. What holds a boxed closure or
//! a boxed error has it no more than the box.

use std::future::Ready;
use std::panic::{RefUnwindSafe, UnwindSafe};

use coreline::call::{self, Reply, Workers};
use coreline::cid::{self, CidLayout, CidSpace, Recent};
use coreline::counter::{self, CounterSet, Max, Nonzero, PerCpuCounter, PerCpuFold};
use coreline::domain::{self, Domain, DomainFuture, DomainLocal, Domains};
use coreline::limit::{self, RateLimiter};
use coreline::lock::{self, Mutex, ReadMostly, RwLock, TicketLock};
use coreline::mask::{self, CpuMask, Presence, Versioned};
use coreline::object::{self, Budget, ObjectCache};
use coreline::percpu::{self, PerCpu, PerCpuPool, Word32, Word64, WordPtr, WordSize};
use coreline::rcu::{self, Collector, Rcu};
use coreline_world::{Native, implements};

/// Asserts that each of these types has just these of the five auto traits: `+` at the place of one
/// that it has, in the order `Send`, `Sync`, `Unpin`, `UnwindSafe`, `RefUnwindSafe`.
macro_rules! table {
    ($have:literal: $($type:ty,)+) => {
        $(const _: () = {
            assert!(implements!($type: Send) == has($have, 0), stringify!($type));
            assert!(implements!($type: Sync) == has($have, 1), stringify!($type));
            assert!(implements!($type: Unpin) == has($have, 2), stringify!($type));
            assert!(implements!($type: UnwindSafe) == has($have, 3), stringify!($type));
            assert!(implements!($type: RefUnwindSafe) == has($have, 4), stringify!($type));
        };)+
    };
}

const fn has(have: &str, at: usize) -> bool {
    have.as_bytes()[at] == b'+'
}

type Slots = percpu::Slots<Word64, Native>;
type Field = percpu::Field<'static, Word64, Word64, Native>;
type Stopped = percpu::Stopped<'static, Word64, Native>;
type StoppedField = percpu::StoppedField<'static, Word64, Word64, Native>;

// Per-CPU memory and counters.
table! { "+++++":
    PerCpu<Word64>, Slots, Field, Stopped, PerCpuPool, percpu::PoolOptions, percpu::PoolError,
    percpu::StopError, percpu::Fault, percpu::Faults, percpu::Full, percpu::OwnIndex<Native>,
    percpu::Lines<Native>, percpu::ResizableStack<u64, 4>, Word64,
    Word32, percpu::PerCpuBag<u64>, percpu::LossyBuffer<u64>, percpu::Draining,
    WordSize, WordPtr<u64>, PerCpuCounter, CounterSet<4>, counter::Reading, Nonzero, counter::Total,
    counter::CounterVec, counter::Buckets, counter::BucketsError, counter::Histogram,
    counter::HistogramSnapshot, counter::DifferentBuckets, PerCpuFold<Max<u64>>, Max<u64>,
    counter::Min<u64>, counter::Sum<f64>,
}
table! { "--+++": StoppedField, }
table! { "+++--": percpu::Init<u64>, }

// Read-copy update.
table! { "+++++":
    Collector, rcu::CollectorOptions, rcu::Guard<'static>, rcu::OwnedGuard, Rcu<u64>,
    rcu::RcuRef<'static, u64>,
}

// Limits.
table! { "+++++": RateLimiter, limit::LimitError, limit::NotYet, limit::Refused, }

// Locks, and their guards, which stay with their threads.
table! { "+++++":
    lock::RawTicketLock, TicketLock<u64>, lock::RawMutex, Mutex<u64>, lock::RawRwLock,
    RwLock<u64>, lock::RawReadMostly, ReadMostly<u64>, lock::RawBiasedRwLock,
    lock::BiasedRwLock<u64>, lock::Condvar, lock::TimedOut, lock::Osq, lock::Fifo, lock::Near,
    lock::SpinningReaders, lock::SleepingReaders,
}
table! { "-++++":
    lock::TicketGuard<'static, u64>, lock::MutexGuard<'static, u64>,
    lock::RwLockReadGuard<'static, u64>, lock::RwLockWriteGuard<'static, u64>,
    lock::BiasedRwLockReadGuard<'static, u64>, lock::BiasedRwLockWriteGuard<'static, u64>,
    lock::ReadMostlyReadGuard<'static, u64>, lock::ReadMostlyWriteGuard<'static, u64>,
}
table! { "--+++": lock::Turn<'static, lock::Near>, }

// Objects.
table! { "+++++":
    ObjectCache<u64>, object::Object<'static, u64>, object::OwnedObject<u64>, Budget,
    object::OverBudget, object::ChargeError, object::ChargeFuture<'static>,
    object::CacheStats, object::Leaked,
}
table! { "+++--": object::Builder<u64>, object::Pressure<'static>, object::GetError, }
table! { "+-+--": object::Quarantined<'static, u64>, }
table! { "--+++": object::Vacant<'static, u64>, object::Built<'static, u64>, }

// Concurrency IDs and domains.
table! { "+++++":
    CidSpace<Recent>, cid::Task<Recent>, cid::ForeignTask<Recent>, CidLayout<Recent>,
    cid::CidError, cid::FirstFit, cid::Recent, cid::Owned, cid::Clustered, Domain, Domains,
    domain::DomainsError, domain::DomainsOptions, domain::DomainOptions, domain::Usage,
    domain::NoPresence, DomainLocal<Word64>, domain::Exclusive<u64>, domain::LocalError,
    domain::Lease<'static>, domain::OwnedLease, domain::LeaseFuture<'static>,
    domain::LeaseError, domain::ForeignLocal, domain::InUse,
    domain::Member, DomainFuture<Ready<()>>, domain::ByDomain<Recent, Native>,
}
table! { "--+++": domain::Inside<'static>, domain::Entered, }

// Masks.
table! { "+++++":
    CpuMask, mask::MaskLayout, mask::MaskError, Presence, mask::PresenceOptions, mask::Member,
    mask::Entry, mask::Late, mask::Shot, Versioned<u64>,
}
table! { "+-+++": mask::Reader<u64>, }
table! { "--+++": mask::Inside<'static>, mask::Reading<'static, u64>, }

// Calls.
table! { "+++++":
    Workers, Reply<u64>, call::Users, call::NotAWorker, call::StartError, call::Replies<u64>,
    call::FutureReply<u64>, call::Cancelled, call::Scope<'static>, call::Policy,
    call::WorkerStats, call::CallError, call::Refused<fn()>,
}
table! { "--+++": call::Using<'static>, }
table! { "+++--": call::Builder, }

// What the rest speaks of.
table! { "+++++": coreline::IndexBy, coreline::Lacking, coreline::Why, }

/// What is in a value counts as it does in an array, a box or a mutex.
#[test]
fn contents_count_as_in_what_is_replaced() {
    type Unshared = std::cell::Cell<u8>;
    type Unmoved = std::rc::Rc<u8>;
    assert!(implements!(Mutex<Unshared>: Sync) && !implements!(Mutex<Unmoved>: Send));
    assert!(implements!(Mutex<Unshared>: RefUnwindSafe));
    assert!(!implements!(object::Object<'static, Unshared>: RefUnwindSafe));
    assert!(implements!(object::Object<'static, Unshared>: UnwindSafe));
    assert!(implements!(domain::Exclusive<Unshared>: RefUnwindSafe));
    assert!(implements!(percpu::PerCpuBag<Unshared>: Sync));
    assert!(!implements!(percpu::PerCpuBag<Unmoved>: Send));
    assert!(!implements!(percpu::PerCpuBag<Unmoved>: Sync));
    assert!(implements!(percpu::LossyBuffer<Unshared>: Sync));
    assert!(!implements!(percpu::LossyBuffer<Unmoved>: Sync));
}
