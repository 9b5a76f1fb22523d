//! The series that a thread used lately.
//!
//! `counter!("requests").increment(1)` looks its key up each time. A look-up in the registry takes
//! its lock, and a clone of the series' `Arc` writes to a line that all threads share. So each
//! thread keeps handles of its own: a clone of one writes only to the thread's own line.
//!
//! A thread has room for 256 series of each kind. Two of them may need the same place, and the
//! later one gets it. A series that was looked up once has no handle yet, so programs that look
//! each key up once and keep the result, as bound handles, use no memory here.

use std::cell::RefCell;
use std::sync::Arc;

use metrics::Key;

use crate::registry::{Series, Values};
use crate::series::{CounterSeries, GaugeSeries, HistogramSeries};

/// A handle of a thread's own.
pub(crate) struct Own<S>(pub(crate) Arc<Series<S>>);

/// A series as a look-up finds it.
pub(crate) enum Found<S> {
    Shared(Arc<Series<S>>),
    Own(Arc<Own<S>>),
}

enum Place<S> {
    Empty,
    /// The series at this address was looked up once. If it is gone, and another one there, that
    /// one gets its handle one look-up earlier.
    Once(usize),
    Held(Arc<Own<S>>),
}

const PLACES: usize = 256;

/// The places of a kind; none until the first look-up.
pub(crate) struct Places<S>(Vec<Place<S>>);

struct Cache {
    counters: RefCell<Places<CounterSeries>>,
    gauges: RefCell<Places<GaugeSeries>>,
    histograms: RefCell<Places<HistogramSeries>>,
}

thread_local! {
    static CACHE: Cache = const {
        Cache {
            counters: RefCell::new(Places(Vec::new())),
            gauges: RefCell::new(Places(Vec::new())),
            histograms: RefCell::new(Places(Vec::new())),
        }
    };
}

/// Values whose series threads remember.
pub(crate) trait Cached: Values {
    /// Runs `f` on the calling thread's places; `None` if it has none any more, or uses them
    /// already: in a signal handler, or in an allocator that counts.
    fn with<R>(f: impl FnOnce(&mut Places<Self>) -> R) -> Option<R>;
}

macro_rules! cached {
    ($($Values:ident: $field:ident;)+) => {$(
        impl Cached for $Values {
            fn with<R>(f: impl FnOnce(&mut Places<Self>) -> R) -> Option<R> {
                let with = |cache: &Cache| Some(f(&mut *cache.$field.try_borrow_mut().ok()?));
                CACHE.try_with(with).ok().flatten()
            }
        }
    )+};
}

cached! {
    CounterSeries: counters;
    GaugeSeries: gauges;
    HistogramSeries: histograms;
}

/// The place of a key.
fn place(hash: u64) -> usize {
    /// Any odd number with many ones: it moves all bits of the hash to the top.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    (hash.wrapping_mul(FACTOR) >> 56) as usize
}

/// Looks a key up: among the thread's own, else by `find`.
pub(crate) fn look_up<S: Cached>(
    recorder: u32,
    key: &Key,
    find: impl FnOnce() -> Option<Arc<Series<S>>>,
) -> Option<Found<S>> {
    let at = place(key.get_hash());
    let own = S::with(|places| match places.0.get(at) {
        Some(Place::Held(own)) if own.0.recorder == recorder && own.0.key == *key => {
            Ok(Arc::clone(own))
        }
        Some(Place::Once(address)) => Err(*address),
        _ => Err(0),
    });
    let once = match own {
        Some(Ok(own)) => return Some(Found::Own(own)),
        Some(Err(address)) => address,
        None => 0,
    };
    // Outside of the thread's places: it may allocate.
    let series = find()?;
    let address = Arc::as_ptr(&series).addr();
    let made = (once == address).then(|| Arc::new(Own(Arc::clone(&series))));
    let empty = || (0..PLACES).map(|_| Place::Empty).collect::<Vec<_>>();
    let replaced = S::with(|places| {
        if places.0.is_empty() {
            places.0 = empty();
        }
        let new = made.as_ref().map_or(Place::Once(address), |own| Place::Held(Arc::clone(own)));
        std::mem::replace(&mut places.0[at], new)
    });
    drop(replaced);
    Some(made.map_or(Found::Shared(series), Found::Own))
}
