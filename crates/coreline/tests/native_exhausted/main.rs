//! Memory that runs out. In run `n` of a program its `n`-th request of memory fails, and no other,
//! until a run makes fewer requests.
//!
//! | law | for which requests |
//! |---|---|
//! | what is made is made, or an error says why not | mappings |
//! | the same | also those of the global allocator, if a constructor promises an error |
//! | what is there works, or goes on without | all |
//! | what is dropped needs no memory | all |
//!
//! A process that ends breaks these laws, too. After each run all memory is given back, and what is
//! there works as if no request had failed.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "../native/filter.rs"]
#[allow(dead_code, reason = "no system call is refused here")]
mod filter;
mod kinds;
#[path = "../native/os.rs"]
mod os;
mod rounds;
mod supply;

use filter::in_a_child;
use kinds::{Kind, Sources};
use supply::Requests;

/// More requests than a run makes.
const MOST: u64 = 10_000;

/// Runs `run` until it makes fewer requests than are to fail; returns how many it makes.
fn each_fails(kind: &str, mut run: impl FnMut(u64) -> bool) -> u64 {
    // A panic whose own memory is refused may wait for itself: a signal ends it with a failure.
    // SAFETY: sets a timer of this process, which has this one test.
    unsafe { libc::alarm(120) };
    // What a process has from its first use of a kind stays.
    (0..2).for_each(|_| assert!(!run(MOST)));
    let before = supply::bytes();
    for number in 1..MOST {
        let failed = run(number);
        assert_eq!(supply::bytes(), before, "{kind}, without request {number}: bytes in use");
        if !failed {
            return number - 1;
        }
    }
    panic!("{kind}: no run ends");
}

/// Makes an object and works with it, while mappings fail.
fn made_without<K: Kind>() -> u64 {
    each_fails(K::NAME, |number| {
        let sources = Sources::new();
        supply::fail(Requests::Mappings, number);
        let object = K::make(&sources);
        if let Some(object) = &object {
            object.work();
        }
        let failed = supply::restore() >= number;
        if let Some(object) = &object {
            object.works();
        }
        assert!(failed || object.is_some(), "{}: not made, though all was there", K::NAME);
        drop(object);
        sources.check();
        failed
    })
}

/// Works with an object that is there, while all requests fail.
fn used_without<K: Kind>() -> u64 {
    each_fails(K::NAME, |number| {
        let sources = Sources::new();
        let object = K::make(&sources).unwrap();
        supply::fail(Requests::All, number);
        object.work();
        let failed = supply::restore() >= number;
        object.works();
        supply::fail(Requests::All, u64::MAX);
        drop(object);
        assert_eq!(supply::restore(), 0, "{}: requests to drop", K::NAME);
        sources.check();
        failed
    })
}

/// Makes what promises an error, while all requests fail.
fn promised_without<K: Kind>() -> u64 {
    each_fails(K::NAME, |number| {
        let sources = Sources::new();
        supply::fail(Requests::All, number);
        let object = K::make(&sources);
        let failed = supply::restore() >= number;
        assert_eq!(object.is_none(), failed, "{}: an error for each failure", K::NAME);
        drop(object);
        K::make(&sources).unwrap().works();
        sources.check();
        failed
    })
}

/// In a process for each: one that ends says in which. Where no request is a right number, only a
/// thread that moves to another CPU asks for memory.
macro_rules! without {
    ($($test:ident: $without:ident($kind:ident) => $requests:expr;)*) => {$(
        #[test]
        fn $test() {
            in_a_child(stringify!($test), || {
                let requests = $without::<kinds::$kind>();
                assert!(($requests).contains(&requests), "{requests} requests");
            });
        }
    )*};
}

without! {
    counters_are_made_without: made_without(Counter) => 1..;
    sets_are_made_without: made_without(Set) => 1..;
    vectors_are_made_without: made_without(Vector) => 1..;
    histograms_are_made_without: made_without(Latencies) => 1..;
    words_are_made_without: made_without(Words) => 1..;
    domains_are_made_without: made_without(Tenant) => 1..;
    caches_are_made_without: made_without(Cache) => 1..;
    counters_are_used_without: used_without(Counter) => 1..;
    sets_are_used_without: used_without(Set) => 1..;
    vectors_are_used_without: used_without(Vector) => 1..;
    histograms_are_used_without: used_without(Latencies) => 1..;
    words_are_used_without: used_without(Words) => 0..;
    domains_are_used_without: used_without(Tenant) => 1..;
    caches_are_used_without: used_without(Cache) => 1..;
    budgets_are_used_without: used_without(Account) => 0..;
    limiters_are_used_without: used_without(Limiter) => 0..;
    bags_are_used_without: used_without(Bag) => 1..;
    buffers_are_used_without: used_without(Buffer) => 0..;
    biased_locks_are_made_without: made_without(Biased) => 0..;
    biased_locks_are_used_without: used_without(Biased) => 1..;
    words_that_cannot_be_made_are_an_error: promised_without(Words) => 1..;
    bags_that_cannot_be_made_are_an_error: promised_without(Bag) => 1..;
    buffers_that_cannot_be_made_are_an_error: promised_without(Buffer) => 1..;
}
