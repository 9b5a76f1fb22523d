//! The laws of domains: what is done under a domain's IDs is done once, though CPUs get IDs and
//! lose them meanwhile; leases are exclusive; and slots are made before they are met.
//!
//! IDs are what moves here: scans come every few operations, so a CPU seldom keeps its ID for long.

use std::sync::Arc;
use std::time::Duration;

use coreline::cid::{CidLayout, Clustered, FirstFit, Recent, References};
use coreline::domain::{
    Domain, DomainLocal, DomainOptions, Domains, DomainsError, DomainsOptions, Exclusive,
    ForeignLocal, Lease, LeaseError, LocalError, NoPresence,
};
use coreline::percpu::Slot;
use coreline_sim::{Faults, Machine, Schedule, Sim};
use coreline_topology::{CpuId, Shape, Topology};
use coreline_world::model::Model;
use coreline_world::{
    Cell, Integer, JoinHandle, Native, Ordering, Place, Placement, Testbed, Threads, Time, Word,
    Words,
};

use crate::worlds::{self, Effort, FEW, MODEL, NATIVE, TORN};

/// What a slot holds that was made.
const MADE: u64 = 0x600d;

/// A domain and a clock of its own, so that scans are due when a test says so.
struct Scene<P: References, W: Testbed> {
    domain: Domain<P, W>,
    /// When it began.
    begin: Time,
    /// How many scans there were.
    scans: W::U32,
}

impl<P: References, W: Testbed> Scene<P, W> {
    fn new_in(leases: usize) -> Arc<Self> {
        let domains = Domains::new_in(DomainsOptions::new().leases(leases)).unwrap();
        let domain = domains.domain(DomainOptions::new());
        let (begin, scans) = (W::now(), W::U32::new_in(1));
        Arc::new(Scene { domain, begin, scans })
    }

    /// Takes back the IDs that no CPU has asked for since the scan before.
    fn scan(&self) {
        // Relaxed: a time.
        let scan = self.scans.fetch_add(1, Ordering::Relaxed);
        self.domain.expire(self.begin + scan * Duration::from_millis(200)).unwrap();
    }

    /// Runs `live` in threads that are users of the domain, each with a number, round by round.
    fn inhabit<R: Send + 'static>(
        self: &Arc<Self>,
        effort: Effort,
        live: impl Fn(&Self, u32, u32) -> R + Send + Sync + 'static,
    ) -> Vec<R> {
        let live = Arc::new(live);
        let place = effort.places::<W>();
        let threads = (0..effort.threads).map(|number| {
            let (scene, live) = (Arc::clone(self), Arc::clone(&live));
            let roams = W::RUNS && number % 4 != 3;
            let place = if roams { Placement::Anywhere } else { place(number) };
            let thread = move || {
                let mut member = scene.domain.join();
                let round = |round| {
                    let (inside, _) = member.enter();
                    let result = live(&scene, number, round);
                    assert!(inside.domain().usage().users > 0);
                    result
                };
                (0..effort.rounds).map(round).collect::<Vec<_>>()
            };
            W::spawn(place, thread).unwrap()
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().flat_map(JoinHandle::join).collect()
    }
}

/// A slot with a mark that it was made.
struct Marked<W: Testbed> {
    mark: W::U64,
    count: W::U64,
}

// SAFETY: a struct: every value has the same live fields in the same places.
unsafe impl<W: Testbed> Slot for Marked<W> {}

type Local<T, P, W> = Arc<DomainLocal<T, P, W>>;

fn marked<P: References, W: Testbed>(domain: &Domain<P, W>) -> Local<Marked<W>, P, W> {
    let init = || Marked { mark: W::U64::new_in(MADE), count: W::U64::new_in(0) };
    Arc::new(domain.local(init).unwrap())
}

/// Adds once to a local that is looked at before.
fn visit<P: References, W: Testbed>(local: &DomainLocal<Marked<W>, P, W>) {
    assert_eq!(local.field(|slot| &slot.mark).load(), MADE, "a slot was met before it was made");
    local.field(|slot| &slot.count).add(1);
}

/// Threads that move add to one local, scan every few additions, and make others meanwhile.
fn sums_are_exact<P: References, W: Testbed>(effort: Effort) {
    let scene = Scene::<P, W>::new_in(0);
    let local = marked(&scene.domain);
    let theirs = Arc::clone(&local);
    scene.inhabit(effort, move |scene, number, round| {
        visit(&theirs);
        if (round + number) % 3 == 0 {
            scene.scan();
        }
        if (round + number) % 8 == 1 {
            let fresh = marked(&scene.domain);
            (0..2).for_each(|_| visit(&fresh));
            assert_eq!(fresh.field(|slot| &slot.count).sum(), 2);
        }
        visit(&theirs);
    });
    let expected = 2 * u64::from(effort.threads * effort.rounds);
    assert_eq!(local.field(|slot| &slot.count).sum(), expected, "two sections lost a count");
    // No user is left, and no CPU asks for an ID.
    assert_eq!(scene.domain.usage().users, 0);
    (0..2).for_each(|_| scene.scan());
    assert_eq!(scene.domain.usage().ids, 0, "IDs came back");
    // As do their slots, with what is in them, when IDs are asked for again.
    visit(&local);
    assert_eq!(local.field(|slot| &slot.count).sum(), expected + 1);
}

#[test]
fn sums_are_exact_natively() {
    let effort = Effort { rounds: NATIVE.rounds / 20, ..NATIVE };
    sums_are_exact::<FirstFit, Native>(effort);
    sums_are_exact::<Recent, Native>(effort);
    sums_are_exact::<Clustered, Native>(effort);
}

#[test]
fn sums_are_exact_under_preemption_and_moves_between_any_two_steps() {
    const CROWD: Effort = Effort { threads: 16, rounds: 12, cpus: 12 };
    let law = || sums_are_exact::<Recent, Sim>(FEW);
    worlds::simulate("domain::sums_recent", "host-2c", TORN, law).unwrap();
    let law = || sums_are_exact::<FirstFit, Sim>(CROWD);
    worlds::simulate("domain::sums_first_fit", "desktop-12c", TORN, law).unwrap();
    let law = || sums_are_exact::<Clustered, Sim>(CROWD);
    worlds::simulate("domain::sums_clustered", "desktop-12c", TORN, law).unwrap();
}

#[test]
fn sums_are_exact_in_every_interleaving() {
    worlds::check(|| {
        let scene = Scene::<FirstFit, Model>::new_in(0);
        let local = marked(&scene.domain);
        visit(&local);
        let theirs = Arc::clone(&local);
        scene.inhabit(Effort { threads: 1, ..MODEL }, move |_, _, _| visit(&theirs));
        scene.scan();
        visit(&local);
        assert_eq!(local.field(|slot| &slot.count).sum(), 3);
    });
}

/// One CPU adds all the time; the other takes its ID away as soon as it can, and uses it.
fn an_id_is_taken_away<P: References, W: Testbed>() {
    const ADDS: u64 = 200;
    const TAKES: u64 = 40;
    let scene = Scene::<P, W>::new_in(0);
    let local = marked(&scene.domain);
    let theirs = Arc::clone(&local);
    let place = FEW.places::<W>();
    let adds = W::spawn(place(0), move || {
        (0..ADDS).for_each(|_| theirs.field(|slot| &slot.count).add(1));
    });
    let theirs = Arc::clone(&local);
    let takes = W::spawn(place(1), move || {
        for _ in 0..TAKES {
            // Twice, so that the other CPU may have the lowest ID; twice more to take that.
            (0..4).for_each(|_| scene.scan());
            visit(&theirs);
        }
    });
    adds.unwrap().join();
    takes.unwrap().join();
    let sum = local.field(|slot| &slot.count).sum();
    assert_eq!(sum, ADDS + TAKES, "two sections lost a count");
}

/// Machines whose schedules look for mistakes, and that take threads off their CPUs in sections.
fn machines(seeds: u64, faults: Faults) -> impl Iterator<Item = Machine> {
    (0..seeds).map(move |seed| {
        let depth = 1 + seed as u32 / 2 % 4;
        let schedule = match seed % 2 {
            0 => Schedule::Random,
            _ => Schedule::Pct { depth, steps: 3000 },
        };
        let machine = Machine::preset("host-2c").unwrap().seed(seed).faults(faults);
        machine.schedule(schedule).step_limit(1_000_000)
    })
}

#[test]
fn sections_share_no_id_under_schedules_that_look_for_mistakes() {
    let seldom = Faults { preempt: 20, migrate: 15, preempt_access: 50, ..Faults::NONE };
    let share = worlds::schedules(300).div_ceil(3);
    let law = an_id_is_taken_away::<FirstFit, Sim>;
    coreline_sim::search(machines(share, seldom), law).unwrap();
    let law = || sums_are_exact::<Recent, Sim>(Effort { threads: 3, rounds: 4, cpus: 2 });
    coreline_sim::search(machines(share, seldom), law).unwrap();
    let law = || tokens_and_leases::<Sim>(Effort { threads: 3, rounds: 3, cpus: 2 });
    coreline_sim::search(machines(share, seldom), law).unwrap();
}

/// IDs that are taken away without a fence are used twice, where a CPU stands still in a section.
#[test]
fn an_expiry_without_a_fence_is_caught() {
    let delayed = Faults { delay: 100, ..Faults::NONE };
    let law = an_id_is_taken_away::<FirstFit, Sim>;
    worlds::simulate_seeds("domain::fenced", "host-2c", delayed, 100, law).unwrap();
    let unfenced = Faults { missed_fences: true, ..delayed };
    let failure = worlds::simulate_seeds("domain::unfenced", "host-2c", unfenced, 100, law);
    let text = failure.unwrap_err().to_string();
    assert!(text.contains("lost a count"), "{text}");
}

/// What is leased: its holder, and how often it was leased.
struct Held<W: Testbed> {
    holder: Cell<u32, W>,
    uses: Cell<u64, W>,
}

fn held<P: References, W: Testbed>(
    domain: &Domain<P, W>,
) -> Arc<DomainLocal<Exclusive<Held<W>>, P, W>> {
    let init = || Exclusive::new(Held { holder: Cell::new_in(0), uses: Cell::new_in(0) });
    Arc::new(domain.local(init).unwrap())
}

/// How often leased values were used, and what the last holder left in each.
fn uses<P: References, W: Testbed>(local: Arc<DomainLocal<Exclusive<Held<W>>, P, W>>) -> u64 {
    let mut local = Arc::into_inner(local).expect("no other thread has it");
    let values = local.iter_mut().map(Exclusive::get_mut);
    // SAFETY: this thread alone has the local.
    values.map(|held| held.uses.with(|uses| unsafe { *uses })).sum()
}

/// Uses a lease, with others running meanwhile.
fn lease<P: References, W: Testbed>(
    domain: &Domain<P, W>,
    local: &DomainLocal<Exclusive<Held<W>>, P, W>,
    me: u32,
    meanwhile: impl FnOnce(),
) {
    let mut lease = domain.lease().unwrap();
    let held = lease.get_mut(local).unwrap();
    // SAFETY: a lease is exclusive: that is what is tested.
    held.holder.with_mut(|holder| unsafe { *holder = me });
    // SAFETY: a lease is exclusive: that is what is tested.
    held.uses.with_mut(|uses| unsafe { *uses += 1 });
    meanwhile();
    // SAFETY: a lease is exclusive: that is what is tested.
    let holder = held.holder.with(|holder| unsafe { *holder });
    assert_eq!(holder, me, "a lease has two holders");
}

/// Threads that move lease, add under the lease, scan and lease again.
fn tokens_and_leases<W: Testbed>(effort: Effort) {
    let scene = Scene::<Recent, W>::new_in(effort.threads as usize * 2);
    let (local, leased) = (marked(&scene.domain), held(&scene.domain));
    let (adds, values) = (Arc::clone(&local), Arc::clone(&leased));
    scene.inhabit(effort, move |scene, number, round| {
        lease(&scene.domain, &values, number, || {
            visit(&adds);
            if (round + number) % 3 == 0 {
                scene.scan();
            }
            lease(&scene.domain, &values, effort.threads + number, || visit(&adds));
        });
    });
    let rounds = u64::from(effort.threads * effort.rounds);
    assert_eq!(local.field(|slot| &slot.count).sum(), 2 * rounds);
    assert_eq!(scene.domain.usage().leased, 0);
    assert_eq!(uses(leased), 2 * rounds, "what was done under a lease is lost");
}

/// Under `Clustered` a lease is of the node where it was asked for, also after it was returned
/// elsewhere.
fn leases_are_near() {
    let domains = Domains::<Clustered, Sim>::new_in(DomainsOptions::new().leases(8)).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let width = domains.layout().width() as u32;
    let [near, far] = [0, 100].map(CpuId::new);
    let nodes = [near, far].map(|cpu| Sim::topology().cpu(cpu).unwrap().node);
    assert_ne!(nodes[0], nodes[1]);
    let domain: &'static Domain<Clustered, Sim> = Box::leak(Box::new(domain));
    let lease_at = |cpu| {
        let lease = Sim::spawn(Placement::On(cpu), || domain.lease().unwrap()).unwrap();
        lease.join()
    };
    let part = |lease: &Lease<'_, Clustered, Sim>| (lease.cid().get() - width) / 4;
    for _ in 0..2 {
        let leases = [near, far, near, far].map(lease_at);
        assert_eq!(leases.each_ref().map(part), [0, 1, 0, 1]);
        // Returned by a thread of the other node: they wait where they were leased.
        Sim::spawn(Placement::On(far), || drop(leases)).unwrap().join();
    }
    // Where a node's are all out, there are the others'.
    let leases: Vec<_> = (0..8).map(|_| lease_at(near)).collect();
    let parts: Vec<_> = leases.iter().map(part).collect();
    assert_eq!(parts, [0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(domains.pool().lacking(), None);
}

#[test]
fn leases_are_of_the_node_where_they_are_asked_for() {
    worlds::simulate("domain::near", "epyc-9654-2s", Faults::NONE, leases_are_near).unwrap();
}

#[test]
fn leases_are_exclusive_natively() {
    tokens_and_leases::<Native>(Effort { rounds: NATIVE.rounds / 20, ..NATIVE });
}

#[test]
fn thirty_two_leases_are_exclusive_on_two_cpus() {
    let crowd = Effort { threads: 32, rounds: 3, cpus: 2 };
    let torn = Faults { preempt_access: 50, ..TORN };
    let law = move || tokens_and_leases::<Sim>(crowd);
    worlds::simulate("domain::leases", "host-2c", torn, law).unwrap();
}

/// What cannot be had, and what it leaves.
fn refusals<W: Testbed>() {
    let asked = (1 << 16) + 1;
    let error = Domains::<Recent, W>::new_in(DomainsOptions::new().leases(asked)).unwrap_err();
    assert_eq!(error, DomainsError::TooManyLeases { asked, most: 1 << 16 });

    let scene = Scene::<Recent, W>::new_in(2);
    let domain = &scene.domain;
    assert_eq!(domain.shootdown(|| ()), Err(NoPresence));
    let local = marked(domain);
    let foreign = marked(&Scene::<Recent, W>::new_in(2).domain);
    let first = domain.lease().unwrap();
    assert!(first.get(&local).is_ok_and(|slot| slot.count.load(Ordering::Relaxed) == 0));
    assert_eq!(first.get(&foreign).err(), Some(ForeignLocal));
    std::mem::forget(domain.lease().unwrap());
    let exhausted = LeaseError::Exhausted { most: 2 };
    assert_eq!(domain.lease().err(), Some(exhausted));
    let cid = first.cid();
    drop(first);
    assert_eq!((domain.usage().leased, domain.lease().unwrap().cid()), (1, cid));

    // In what makes a slot nothing else of the domain is made; all else goes on.
    let _held = domain.lease().unwrap();
    let (inner, theirs) = (Arc::clone(&local), domain.clone());
    let outer = domain.local(move || {
        visit(&inner);
        let (made, leased) = (theirs.local(|| W::U64::new_in(0)), theirs.lease());
        let refused = made.err() == Some(LocalError::Nested)
            && leased.err() == Some(LeaseError::Nested)
            && theirs.usage().leased == 2;
        W::U64::new_in(u64::from(refused))
    });
    visit(&local);
    let outer = outer.unwrap();
    outer.add(0);
    // All but the shared one were made under the domain's lock.
    let refused = outer.iter().filter(|slot| slot.load(Ordering::Relaxed) == 1).count();
    assert!(refused > 0);
    assert_eq!(refused + 1, outer.iter().count());
}

#[test]
fn what_cannot_be_had_is_said_in_every_world() {
    refusals::<Native>();
    worlds::simulate("domain::refusals", "host-2c", Faults::NONE, refusals::<Sim>).unwrap();
}

/// The second CPU and those behind it have no place in the layout.
fn few_have_a_place() {
    let shape = Shape::default();
    let layout = CidLayout::<Recent>::new(&Topology::uniform(shape).unwrap()).unwrap();
    let domains = Domains::<Recent, Sim>::with_layout_in(layout, DomainsOptions::new()).unwrap();
    let domain = domains.domain(DomainOptions::new());
    let local = marked(&domain);
    let threads = (0..12).map(|cpu| {
        let local = Arc::clone(&local);
        Sim::spawn(Placement::On(CpuId::new(cpu)), move || (0..5).for_each(|_| visit(&local)))
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.unwrap().join());
    assert_eq!(local.field(|slot| &slot.count).sum(), 60);
    assert_eq!((domain.usage().ids, local.iter().count()), (1, 2));
    assert!(local.shared().count.load(Ordering::Relaxed) >= 55);
    assert!(domain.lease().is_ok());
}

#[test]
fn cpus_without_a_place_share_a_slot() {
    worlds::simulate("domain::placeless", "desktop-12c", TORN, few_have_a_place).unwrap();
}

/// A tenant with two tasks and one line by ID, on a machine of 384 CPUs.
fn a_tenant_is_small() {
    let domains = Domains::<Recent, Sim>::global_in().unwrap();
    let empty = domains.domain(DomainOptions::new()).usage();
    let domain = domains.domain(DomainOptions::new());
    let local = domain.local(|| [0; 8].map(<Sim as Words>::U64::new_in)).unwrap();
    let local = Arc::new(local);
    let poll = |cpu| {
        let local = Arc::clone(&local);
        let work = move || local.field(|line| &line[0]).add(1);
        // One after the other: a CPU that finds the lock held takes the shared slot, and no ID.
        Sim::spawn(Placement::On(CpuId::new(cpu)), work).unwrap().join();
    };
    let members = [7, 230].map(|cpu| {
        let member = domain.join();
        poll(cpu);
        member
    });
    let usage = domain.usage();
    assert_eq!((usage.users, usage.ids, usage.leased), (2, 2, 0));
    // Two lines of rows, three slots, and the local's own.
    let more = usage.bytes - empty.bytes;
    assert!((2 * 64 + 3 * 64 + 1..=2 * 64 + 3 * 64 + 200).contains(&more), "{more} bytes");
    assert!(usage.bytes <= 980, "{usage:?}, of which {empty:?}");
    // A task moves: to a CPU of a line that is there, and to one of another. Until the first's ID
    // is taken back, the second takes a new one.
    poll(239);
    assert_eq!(domain.usage().bytes, usage.bytes + 64, "a slot");
    poll(240);
    assert_eq!(domain.usage().bytes, usage.bytes + 3 * 64, "a slot and a line of rows");
    let usage = domain.usage();
    assert!(usage.bytes <= 1200, "{usage:?}");
    drop(members);
    let _first = domain.lease().unwrap();
    assert!(domain.usage().bytes > usage.bytes);
    assert_eq!(domain.usage().leased, 1);
}

#[test]
fn a_tenant_costs_at_most_1200_bytes() {
    worlds::simulate("domain::small", "epyc-9654-2s", Faults::NONE, a_tenant_is_small).unwrap();
}
