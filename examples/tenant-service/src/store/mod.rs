//! Where a service keeps what its tenants have.

mod domains;
mod map;
mod pool;
mod shards;

use std::future::Future;
use std::ops::Range;

use coreline::domain::{DomainsError, LeaseError, LocalError};

pub use domains::OnDomains;
pub use map::OnMap;
pub use shards::OnShards;

/// Counters and buffers by tenant. Tenants are numbered from 0.
pub trait Store: Sized + Send + Sync + 'static {
    /// What the command line calls it.
    const NAME: &'static str;

    /// A buffer of a tenant, which goes back when it is dropped.
    type Buffer: Buffer;

    /// This many tenants, with at most this many buffers each.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if this machine cannot have it.
    fn new(tenants: usize, buffers: usize) -> Result<Self, StoreError>;

    /// Adds a request to a tenant's counters.
    ///
    /// # Panics
    ///
    /// If there is no such tenant, as everything here.
    fn count(&self, tenant: usize, served: Served);

    /// The same for a request that has one of the tenant's buffers, where that makes it cheaper.
    fn count_with(&self, tenant: usize, _buffer: &mut Self::Buffer, served: Served) {
        self.count(tenant, served);
    }

    /// The sums of a tenant's counters. They are read one after the other, so requests that are
    /// counted meanwhile may be in some of them.
    fn totals(&self, tenant: usize) -> Totals;

    /// A buffer of a tenant, in order of arrival once all are taken.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if there is no memory for it.
    fn lease(&self, tenant: usize)
    -> impl Future<Output = Result<Self::Buffer, StoreError>> + Send;

    /// How many buffers of a tenant are taken now.
    fn leased(&self, tenant: usize) -> usize;

    /// Bytes that a tenant has for itself beside what is in its buffers, if the store knows.
    fn bytes(&self, _tenant: usize) -> Option<usize> {
        None
    }
}

/// What a [`Store`] gives to one request at a time.
pub trait Buffer: Send + Unpin + 'static {
    /// What is in it: whatever the last request left there.
    fn lines(&mut self) -> &mut Lines;
}

/// A store cannot be had, or gives no buffer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// No domains on this machine.
    #[error(transparent)]
    Domains(#[from] DomainsError),
    /// No memory for a tenant's counters or buffers.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// No lease.
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With an answer.
    Answered,
    /// It was refused, or the client went away.
    Failed,
}

/// The counted properties of a request.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes of its body.
    pub received: u64,
    /// Bytes of its answer.
    pub sent: u64,
    /// Nanoseconds from its head to its answer's.
    pub busy: u64,
}

impl Served {
    /// Which counters it adds to, and how much: four, in most requests.
    fn additions(self) -> impl Iterator<Item = (usize, u64)> {
        let failed = u64::from(self.outcome == Outcome::Failed);
        let all = [(REQUESTS, 1), (RECEIVED, self.received), (SENT, self.sent), (BUSY, self.busy)];
        all.into_iter().chain([(FAILED, failed)]).filter(|(_, delta)| *delta != 0)
    }
}

const REQUESTS: usize = 0;
const RECEIVED: usize = 1;
const SENT: usize = 2;
const BUSY: usize = 3;
const FAILED: usize = 4;
const COUNTERS: usize = 5;

/// The sums of a tenant's counters.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// Requests that ended.
    pub requests: u64,
    /// How many of them failed.
    pub failed: u64,
    /// Bytes of their bodies.
    pub received: u64,
    /// Bytes of their answers.
    pub sent: u64,
    /// Nanoseconds that they took.
    pub busy: u64,
}

impl From<[u64; COUNTERS]> for Totals {
    fn from(sums: [u64; COUNTERS]) -> Self {
        Totals {
            requests: sums[REQUESTS],
            failed: sums[FAILED],
            received: sums[RECEIVED],
            sent: sums[SENT],
            busy: sums[BUSY],
        }
    }
}

/// Bytes that an idle buffer keeps of its text, and of the order of its lines.
const KEPT: usize = 8 * 1024;

/// The body of a request, and its lines in order. What it has allocated stays from one request to
/// the next, up to a bound.
#[derive(Debug, Default)]
pub struct Lines {
    text: Vec<u8>,
    order: Vec<Range<u32>>,
}

impl Lines {
    /// Forgets the last request.
    pub fn clear(&mut self) {
        self.text.clear();
        self.order.clear();
    }

    /// Forgets the last request, and what it took beyond `KEPT` bytes: idle buffers are many, and
    /// one large request for each must not stay in memory for ever.
    pub fn rest(&mut self) {
        self.clear();
        self.text.shrink_to(KEPT);
        self.order.shrink_to(KEPT / size_of::<Range<u32>>());
    }

    /// Puts more of the body behind what is there: below 4 GiB in all.
    pub fn push(&mut self, part: &[u8]) {
        self.text.extend_from_slice(part);
    }

    /// Bytes of the body.
    pub fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether there is no body.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Ends the last line, and sorts all of them.
    pub fn sort(&mut self) {
        let Lines { text, order } = self;
        if text.last().is_some_and(|last| *last != b'\n') {
            text.push(b'\n');
        }
        order.clear();
        let mut start = 0;
        order.extend(text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            let range = start..start + line.len() as u32;
            start = range.end;
            range
        }));
        order.sort_unstable_by(|a, b| line_of(text, a).cmp(line_of(text, b)));
    }

    /// The line of this number, in order, with its end.
    pub fn line(&self, number: usize) -> Option<&[u8]> {
        self.order.get(number).map(|line| line_of(&self.text, line))
    }
}

fn line_of<'a>(text: &'a [u8], line: &Range<u32>) -> &'a [u8] {
    &text[line.start as usize..line.end as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_and_the_last_one_ends() {
        let mut lines = Lines::default();
        for (text, sorted) in [("b\na\nc", "a\nb\nc\n"), ("", ""), ("\nx\n", "\nx\n")] {
            lines.clear();
            lines.push(text.as_bytes());
            lines.sort();
            let all: Vec<u8> =
                (0..).map_while(|number| lines.line(number)).flatten().copied().collect();
            assert_eq!(String::from_utf8(all).unwrap(), sorted);
        }
    }

    #[test]
    fn an_idle_buffer_keeps_little() {
        let mut lines = Lines::default();
        for (size, keeps) in [(512, true), (64 * 1024, false)] {
            lines.push(&vec![b'\n'; size]);
            lines.sort();
            let before = [lines.text.capacity(), lines.order.capacity()];
            lines.rest();
            let after = [lines.text.capacity(), lines.order.capacity()];
            assert_eq!(before == after, keeps, "{before:?} {after:?}");
            assert!(after[0] <= KEPT && after[1] * size_of::<Range<u32>>() <= KEPT, "{after:?}");
            assert!(lines.is_empty() && lines.line(0).is_none());
        }
    }

    #[test]
    fn what_is_zero_is_not_added() {
        let served = |outcome, sent| Served { outcome, received: 2, sent, busy: 3 };
        let added = |served: Served| served.additions().map(|(which, _)| which).collect::<Vec<_>>();
        assert_eq!(added(served(Outcome::Answered, 2)), [REQUESTS, RECEIVED, SENT, BUSY]);
        assert_eq!(added(served(Outcome::Failed, 0)), [REQUESTS, RECEIVED, BUSY, FAILED]);
    }
}
