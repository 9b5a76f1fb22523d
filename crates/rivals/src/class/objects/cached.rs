//! Our own: objects that stay constructed.
//!
//! The one with counters has them in one block of per-CPU memory, with a slot for each CPU that the
//! machine can have. Slots that no CPU touched cost nothing, neither when an object is made nor at
//! each life, so that it does not matter that there are fewer than 384 here. A life adds to a
//! counter and takes that away again, as the object must come back with all at zero; the cache sums
//! them up to see that it did.

use std::error::Error;

use coreline::object::{Object, ObjectCache};
use coreline::percpu::{PerCpu, PoolError, Word64};
use coreline::{Lacking, Why};
use coreline_world::{Native, Ordering, World};

use super::Pool;

pub(super) fn lacking(capability: &'static str, why: &PoolError) -> Lacking {
    match why {
        PoolError::Lacking(lacking) => lacking.clone(),
        _ => Lacking {
            world: <Native as World>::NAME,
            capability,
            why: Why::new("there is no memory"),
            remedy: "free some",
        },
    }
}

/// A cache of objects of 64 bytes.
pub(super) struct Cached(ObjectCache<super::Object>);

impl Pool for Cached {
    type Taken = Object<'static, super::Object>;

    fn new() -> Result<Self, Lacking> {
        let cache =
            ObjectCache::builder("rivals").build(|| Ok::<_, Lacking>(super::Object::default()));
        cache.map(Cached).map_err(|why| lacking("object cache", &why))
    }

    #[inline(always)]
    fn take(&'static self, word: u64) -> Self::Taken {
        let mut taken = self.0.get().expect("there is memory for an object");
        taken.write(word);
        taken
    }

    #[inline(always)]
    fn word(&'static self, taken: &Self::Taken) -> u64 {
        (**taken).word()
    }

    #[inline(always)]
    fn give(&'static self, taken: Self::Taken) {
        drop(taken);
    }
}

const COUNTERS: usize = 4;

/// The content of an object with counters.
type Counters = PerCpu<[Word64; COUNTERS]>;

/// A cache of objects that own counters. A life remembers what it added.
pub(super) struct CachedCounters(ObjectCache<Counters, u64>);

fn check(counters: &mut Counters) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut sums = [0_u64; COUNTERS];
    for words in counters.iter() {
        for (sum, word) in sums.iter_mut().zip(words) {
            // Relaxed: the object is one thread's.
            *sum = sum.wrapping_add(word.load(Ordering::Relaxed));
        }
    }
    // Each by itself: they were stored one by one, and a comparison of all at once waits for that.
    let is_zero = sums.iter().all(|sum| *sum == 0);
    if is_zero { Ok(()) } else { Err("counters are not at zero".into()) }
}

impl Pool for CachedCounters {
    type Taken = Object<'static, Counters, u64>;

    fn new() -> Result<Self, Lacking> {
        let cache = ObjectCache::builder("rivals, counters")
            .check(check)
            .build(|| PerCpu::new(|| [const { Word64::new(0) }; COUNTERS]));
        cache.map(CachedCounters).map_err(|why| lacking("object cache", &why))
    }

    #[inline(always)]
    fn take(&'static self, word: u64) -> Self::Taken {
        let taken = self.0.get_with(|| word).expect("there is memory for an object");
        taken.field(|words| &words[0]).add(word);
        taken
    }

    fn word(&'static self, taken: &Self::Taken) -> u64 {
        taken.field(|words| &words[0]).sum()
    }

    #[inline(always)]
    fn give(&'static self, taken: Self::Taken) {
        taken.field(|words| &words[0]).add(taken.life().wrapping_neg());
    }
}
