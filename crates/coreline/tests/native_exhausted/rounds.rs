//! Objects that are made and dropped in rounds: each round takes as much as the one before.

use std::fs::{self, File};
use std::{alloc, env, io};

use coreline::object::ObjectCache;
use coreline::percpu::{PerCpuPool, PoolOptions};

use crate::filter::{in_a_child, limit};
use crate::kinds::{self, Kind, Made, Sources};
use crate::os::run_on;
use crate::supply::{self, Requests};

const ROUNDS: usize = 5;

/// So many objects of each kind in a round; or as many as `CORELINE_OBJECTS` asks for.
fn objects() -> usize {
    let set = env::var("CORELINE_OBJECTS").ok();
    set.map_or(200, |set| set.parse().expect("CORELINE_OBJECTS is a number"))
}

/// Makes many, works with each, and drops them all.
fn round<K: Kind>(sources: &Sources) {
    let all: Vec<K> = (0..objects()).map(|_| K::make(sources).unwrap()).collect();
    all.iter().for_each(Made::works);
    drop(all);
    sources.check();
}

/// The rounds of a kind: each but the first makes as many requests as the one before, and leaves as
/// many bytes in use.
fn rounds<K: Kind>() {
    // On one CPU, so that no round has slots of one more.
    assert!((0..1024).any(run_on));
    let sources = Sources::new();
    let rounds: [_; ROUNDS] = std::array::from_fn(|_| {
        supply::fail(Requests::All, u64::MAX);
        round::<K>(&sources);
        (supply::restore(), supply::bytes())
    });
    let [_, second, rest @ ..] = rounds;
    assert_eq!(rest, [second; ROUNDS - 2], "{}: requests, and bytes in use", K::NAME);
}

macro_rules! in_rounds {
    ($($test:ident: $kind:ident;)*) => {$(
        #[test]
        fn $test() {
            in_a_child(concat!("rounds::", stringify!($test)), rounds::<kinds::$kind>);
        }
    )*};
}

in_rounds! {
    counters_come_and_go_in_rounds: Counter;
    sets_come_and_go_in_rounds: Set;
    vectors_come_and_go_in_rounds: Vector;
    histograms_come_and_go_in_rounds: Latencies;
    words_come_and_go_in_rounds: Words;
    domains_come_and_go_in_rounds: Tenant;
    caches_come_and_go_in_rounds: Cache;
    budgets_come_and_go_in_rounds: Account;
    limiters_come_and_go_in_rounds: Limiter;
    bags_come_and_go_in_rounds: Bag;
    buffers_come_and_go_in_rounds: Buffer;
    biased_locks_come_and_go_in_rounds: Biased;
}

/// The address space that this process has, in bytes.
fn address_space() -> u64 {
    let pages: u64 = {
        let sizes = fs::read_to_string("/proc/self/statm").unwrap();
        sizes.split(' ').next().unwrap().parse().unwrap()
    };
    // SAFETY: asks for a number.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.cast_unsigned()
}

/// A pool fills the address space that a process may have. All that is there goes on without, and
/// each round finds as much room as the one before.
#[test]
fn a_full_address_space_is_usable_again_in_rounds() {
    in_a_child("rounds::a_full_address_space_is_usable_again_in_rounds", || {
        const LAYOUT: alloc::Layout = match alloc::Layout::from_size_align(1 << 15, 8) {
            Ok(layout) => layout,
            Err(_) => panic!("a power of two"),
        };
        assert!((0..1024).any(run_on));
        let full = PerCpuPool::new(PoolOptions::new()).unwrap();
        let mut items = Vec::with_capacity(1 << 16);
        let mut round = |before: Option<u64>| {
            let sources = Sources::new();
            let tenant = kinds::Tenant::make(&sources).unwrap();
            let counter = kinds::Counter::make(&sources).unwrap();
            let cache = kinds::Cache::make(&sources).unwrap();
            if let Some(before) = before {
                limit(libc::RLIMIT_AS, before);
                items.extend((0..1 << 16).map_while(|_| full.allocate(LAYOUT).ok()));
            }
            let count = items.len();
            tenant.work();
            counter.work();
            cache.work();
            for item in items.drain(..) {
                // SAFETY: allocated above, and used by nothing.
                unsafe { full.free(item, LAYOUT, 0).unwrap() };
            }
            full.trim();
            tenant.works();
            counter.works();
            cache.works();
            count
        };
        round(None);
        let most = address_space() + (64 << 20);
        let rounds: [_; ROUNDS] = std::array::from_fn(|_| round(Some(most)));
        let [first, rest @ ..] = rounds;
        assert!((1..1 << 16).contains(&first), "{first} items");
        assert_eq!(rest, [first; ROUNDS - 1]);
    });
}

/// A cache of files meets the limit of open files, and gives all of them back.
#[test]
fn a_limit_of_open_files_is_met_again_in_rounds() {
    in_a_child("rounds::a_limit_of_open_files_is_met_again_in_rounds", || {
        let files = ObjectCache::<File>::builder("files")
            .check(|file| file.metadata().map(drop).map_err(Into::into))
            .build(|| File::open("/dev/null"))
            .unwrap();
        limit(libc::RLIMIT_NOFILE, 64);
        let rounds: [_; ROUNDS] = std::array::from_fn(|_| {
            let open: Vec<_> = std::iter::from_fn(|| files.get().ok()).collect();
            let refused = files.get().unwrap_err().to_string();
            let why = io::Error::from_raw_os_error(libc::EMFILE).to_string();
            assert!(refused.contains(&why), "{refused}");
            let count = open.len();
            drop(open);
            assert_eq!(files.shrink(), count);
            count
        });
        assert!((1..64).contains(&rounds[0]));
        assert_eq!(rounds, [rounds[0]; ROUNDS]);
    });
}
