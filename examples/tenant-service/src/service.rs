//! What requests share: the store, and what is counted of all tenants together.

use std::time::Duration;

use coreline::CounterSet;

use crate::store::{Store, StoreError, Totals};

/// Upper bounds of the buckets of latencies, in microseconds; one bucket more has what is above.
pub const LATENCIES: [u64; 12] =
    [50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 1_000_000];

/// How long clients have for a body if nothing is said.
const HURRY: Duration = Duration::from_secs(30);

/// The buckets, and behind them the sum of all.
const HOT: usize = LATENCIES.len() + 2;

/// Where the sum of latencies is among the hot counters.
const SUM: usize = HOT - 1;

/// A service with this store.
#[derive(Debug)]
pub struct Service<S> {
    store: S,
    tenants: usize,
    patience: Duration,
    hurry: Duration,
    /// Every request of every tenant adds to it: on all CPUs at the same time, so it must not be
    /// one word.
    latencies: CounterSet<HOT>,
}

impl<S: Store> Service<S> {
    /// A service for this many tenants, of which each has this many buffers. A request that has
    /// waited for one for as long as `patience` is refused.
    ///
    /// # Errors
    ///
    /// As [`Store::new`].
    pub fn new(tenants: usize, buffers: usize, patience: Duration) -> Result<Self, StoreError> {
        let store = S::new(tenants, buffers)?;
        Ok(Service { store, tenants, patience, hurry: HURRY, latencies: CounterSet::default() })
    }

    /// The same, whose clients have so long to send a request's body, instead of 30 seconds. What
    /// is late is refused, and its buffer goes back.
    #[must_use]
    pub fn with_hurry(self, hurry: Duration) -> Self {
        Service { hurry, ..self }
    }

    /// How long a client may take to begin a body, and once it has a buffer, to end it.
    pub(crate) fn hurry(&self) -> Duration {
        self.hurry
    }

    /// How long a request waits for a buffer.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    /// How many tenants there are, numbered from 0.
    pub fn tenants(&self) -> usize {
        self.tenants
    }

    /// What tenants have.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The sums of all tenants.
    pub fn totals(&self) -> Totals {
        (0..self.tenants).map(|tenant| self.store.totals(tenant)).fold(Totals::default(), |a, b| {
            Totals {
                requests: a.requests + b.requests,
                failed: a.failed + b.failed,
                received: a.received + b.received,
                sent: a.sent + b.sent,
                busy: a.busy + b.busy,
            }
        })
    }

    /// How many buffers of all tenants are taken now.
    pub fn leased(&self) -> usize {
        (0..self.tenants).map(|tenant| self.store.leased(tenant)).sum()
    }

    /// How many requests took at most as long as each bound of [`LATENCIES`] and longer than the
    /// one before, how many took longer than all, and the nanoseconds of all of them.
    pub(crate) fn latencies(&self) -> ([u64; HOT - 1], u64) {
        let all = self.latencies.read_exact().map(i64::cast_unsigned);
        (std::array::from_fn(|bucket| all[bucket]), all[SUM])
    }

    /// Counts a request, which took this many nanoseconds, for all tenants together.
    pub(crate) fn count(&self, busy: u64) {
        let bucket = LATENCIES.partition_point(|bound| bound * 1000 < busy);
        self.latencies.add(bucket, 1);
        self.latencies.add(SUM, busy.cast_signed());
    }
}
