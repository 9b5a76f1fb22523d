//! Mistakes that cannot be planted from outside.

use std::sync::Arc;
use std::time::Duration;

use coreline_sim::{Failure, Machine, Schedule, Sim};
use coreline_topology::CpuId;
use coreline_world::{Clock, Integer, JoinHandle, Placement, Slot, Threads, Word, Words, Work};

use super::core::Core;
use super::*;
use crate::cid::{FirstFit, Place};
use crate::percpu::Word64;

const MADE: u64 = 0x600d;

/// Gives a CPU an ID, as the domain does.
fn slots_first(core: &Core<FirstFit, Sim>, place: Place) {
    let guard = core.lock().unwrap();
    let make = |cid| core.make(usize::from(place.group), cid, &guard);
    core.engine.try_use_at(place, make).unwrap();
}

/// The same in the other order.
fn row_first(core: &Core<FirstFit, Sim>, place: Place) {
    let guard = core.lock().unwrap();
    let cid = core.engine.try_use_at(place, |_| ()).unwrap();
    core.make(usize::from(place.group), cid, &guard);
}

/// One CPU looks at its slot while another gives it an ID.
fn looks(give: fn(&Core<FirstFit, Sim>, Place)) -> Result<u64, Box<Failure>> {
    let law = move || {
        let domains = Domains::<FirstFit, Sim>::new_in(DomainsOptions::new()).unwrap();
        let domain = domains.domain(DomainOptions::new());
        let local = || domain.local(|| <Sim as Words>::U64::new_in(MADE)).unwrap();
        // Has the line of rows made, which the local below then knows of.
        local().add(1);
        let local = Arc::new(local());
        let [zero, one] = [0, 1].map(CpuId::new);
        let looks = move || {
            for _ in 0..20 {
                let seen = local.field(|word| word).load();
                assert_eq!(seen, MADE, "a slot was met before it was made");
            }
        };
        let looks = Sim::spawn(Placement::On(one), looks).unwrap();
        let core = Arc::clone(domain.core());
        let gives = move || give(&core, core.place(one.index()).unwrap());
        Sim::spawn(Placement::On(zero), gives).unwrap().join();
        looks.join();
    };
    let machine = |seed| {
        let machine = Machine::preset("host-2c").unwrap().seed(seed);
        machine.schedule(Schedule::Random).step_limit(1_000_000)
    };
    coreline_sim::search((0..200).map(machine), law)
}

#[test]
fn a_row_that_shows_an_id_before_its_slots_are_made_is_caught() {
    assert_eq!(looks(slots_first).unwrap(), 200);
    let failure = looks(row_first).unwrap_err();
    assert!(failure.to_string().contains("before it was made"), "{failure}");
}

#[test]
fn what_is_sent_and_shared() {
    use coreline_world::implements;
    assert!(implements!(Lease<'static>: Send) && implements!(Member: Send));
    assert!(implements!(Domain: Send) && implements!(Domain: Sync));
    assert!(implements!(Exclusive<std::cell::Cell<u8>>: Sync));
    assert!(!implements!(Inside<'static>: Send) && !implements!(Entered: Send));
    assert!(!implements!(Exclusive<std::rc::Rc<u8>>: Sync));
}

#[test]
fn a_member_is_told_where_there_is_a_presence() {
    let domains = Domains::new(DomainsOptions::new()).unwrap();
    let options = PresenceOptions::new().seats(2);
    let told = domains.domain(DomainOptions::new().presence(options));
    let (mut entered, entry) = told.enter();
    assert_eq!((entry, told.usage().users), (Entry::MustRefresh, 1));
    assert_eq!(entered.poll(), Entry::Current);
    let shot = entered.shootdown(|| ()).unwrap();
    assert_eq!((shot.0.reached, shot.1), (1, Entry::Current));
    drop(entered);
    assert_eq!(told.usage().users, 0);
    assert_eq!(told.shootdown(|| ()).unwrap().reached, 0);
    let untold = domains.domain(DomainOptions::new());
    assert!(told.usage().bytes > untold.usage().bytes + 2 * 64);
    let (mut entered, entry) = untold.enter();
    assert_eq!((entry, entered.shootdown(|| ()).err()), (Entry::Current, Some(NoPresence)));
}

#[test]
fn a_cpu_number_outside_the_layout_has_no_place() {
    let domain = Domain::new().unwrap();
    let core = domain.core();
    assert_eq!([usize::MAX, 1 << 20].map(|cpu| core.place(cpu)), [None, None]);
    assert!(core.place(0).is_some());
}

/// A value whose initialiser panics where it is told to.
struct Fragile(Word64);

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl Slot for Fragile {}

#[test]
fn an_init_that_panics_leaves_the_domain_as_it_was() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    // Which value panics: the shared one, that of the first ID, that of the first lease.
    for bad in 0..3 {
        let domain = Domains::new(DomainsOptions::new()).unwrap().domain(DomainOptions::new());
        let bytes = domain.usage().bytes;
        let before = domain.local(|| Word64::new(0)).unwrap();
        let values = Arc::new(Word64::new(0));
        let init = {
            let values = Arc::clone(&values);
            move || {
                let value = values.fetch_add(1, Ordering::Relaxed);
                assert_ne!(value, bad, "planted");
                Fragile(Word64::new(0))
            }
        };
        let local = catch_unwind(AssertUnwindSafe(|| domain.local(init).unwrap()));
        assert_eq!(local.is_err(), bad == 0);
        let pool = &domain.core().common.pool;
        assert_eq!(pool.live(), if bad == 0 { 1 } else { 2 });
        if let Ok(local) = local {
            let add = || local.field(|slot| &slot.0).add(1);
            assert_eq!(catch_unwind(AssertUnwindSafe(add)).is_err(), bad == 1);
            assert_eq!(domain.usage().ids == 0, bad == 1);
            let lease = catch_unwind(AssertUnwindSafe(|| domain.lease().map(drop)));
            assert_eq!(lease.is_err(), bad == 2);
            assert_eq!(domain.usage().leased, 0);
            add();
            domain.lease().map(drop).unwrap();
            before.add(1);
            let sum = local.field(|slot| &slot.0).sum();
            assert_eq!((sum, before.sum()), (2 - u64::from(bad == 1), 1));
            // One value was never made.
            assert_eq!(values.load(Ordering::Relaxed), local.iter().count() as u64 + 1);
        }
        drop(before);
        assert!(domain.usage().bytes >= bytes);
    }
}

/// Threads of sixteen CPUs want eight leases, for two milliseconds after they have begun; how long
/// one waited at most.
fn longest_wait_for_a_lease() -> Duration {
    const CPUS: u32 = 16;
    let options = DomainsOptions::new().leases(CPUS as usize / 2);
    let domains = Domains::<Recent, Sim>::new_in(options).unwrap();
    let domain = Arc::new(domains.domain(DomainOptions::new()));
    let arrived = Arc::new(<Sim as Words>::U32::new_in(0));
    let lease = |cpu: u32| {
        let (domain, arrived) = (Arc::clone(&domain), Arc::clone(&arrived));
        let lease = move || {
            // Relaxed, twice: carries nothing but itself.
            arrived.fetch_add(1, Ordering::Relaxed);
            arrived.wait_until(Ordering::Relaxed, |all| all == CPUS);
            let begin = Sim::now() + Duration::from_micros(500);
            let mut longest = Duration::ZERO;
            loop {
                let came = Sim::now();
                if came >= begin + Duration::from_millis(2) {
                    break longest;
                }
                let lease = loop {
                    match domain.lease() {
                        Ok(lease) => break lease,
                        Err(_) => Sim::work(Duration::from_nanos(200)),
                    }
                };
                if came >= begin {
                    longest = longest.max(Sim::now() - came);
                }
                Sim::work(Duration::from_nanos(100));
                drop(lease);
                Sim::work(Duration::from_micros(1));
            }
        };
        // One under each cache.
        Sim::spawn(Placement::On(CpuId::new(24 * cpu)), lease).unwrap()
    };
    let threads: Vec<_> = (0..CPUS).map(lease).collect();
    threads.into_iter().map(JoinHandle::join).max().unwrap()
}

/// Found: 19 us; 2.4 ms where the lock's waiters do not queue.
#[test]
fn threads_that_want_too_few_leases_wait_in_turn() {
    let machine = Machine::preset("epyc-9654-2s").unwrap().step_limit(20_000_000);
    let longest = machine.run(longest_wait_for_a_lease).unwrap().value;
    assert!(longest < Duration::from_micros(200), "{longest:?}");
}

/// Two threads want a domain's lock whose queue does not move, as in a forked child, where the
/// queue belongs to threads that the child does not have.
fn waits_beside_a_queue_that_stands(forked: bool) -> Result<(), Box<Failure>> {
    let law = move || {
        let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new()).unwrap();
        let mut core = Core::new_in(&domains.domain(DomainOptions::new()).core().common);
        core.generation += u32::from(forked);
        std::mem::forget(core.waiters.lock());
        let core = Arc::new(core);
        let held = core.lock().unwrap();
        let theirs = Arc::clone(&core);
        let waits = move || drop(theirs.lock().unwrap());
        let waits = Sim::spawn(Placement::On(CpuId::new(1)), waits).unwrap();
        Sim::work(Duration::from_millis(1));
        drop(held);
        waits.join();
    };
    let machine = Machine::preset("host-2c").unwrap().step_limit(100_000);
    machine.run(law).map(drop)
}

#[test]
fn a_forked_child_does_not_queue_behind_threads_that_it_has_not() {
    waits_beside_a_queue_that_stands(true).unwrap();
    waits_beside_a_queue_that_stands(false).unwrap_err();
}

/// A thread goes from CPU to CPU, and stays for some time on each. It enters no member, so only
/// operations that give an ID out take old ones back. We measured 2 IDs, and 16 if these do not.
#[test]
fn an_id_that_is_given_out_takes_old_ones_back() {
    let program = || {
        let domains = Domains::<Recent, Sim>::new_in(DomainsOptions::new()).unwrap();
        let domain = Arc::new(domains.domain(DomainOptions::new()));
        let local = Arc::new(domain.local(|| <Sim as Words>::U64::new_in(0)).unwrap());
        let ids = (0..16).map(|cpu| {
            let theirs = Arc::clone(&local);
            let add = move || theirs.field(|word| word).add(1);
            Sim::spawn(Placement::On(CpuId::new(cpu)), add).unwrap().join();
            Sim::sleep(Duration::from_millis(120));
            domain.usage().ids
        });
        let ids: Vec<_> = ids.collect();
        ids.into_iter().max()
    };
    let run = Machine::preset("epyc-9654-2s").unwrap().run(program).unwrap();
    assert!(run.value <= Some(3), "{:?} IDs", run.value);
}
