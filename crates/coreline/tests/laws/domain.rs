//! The laws of domains: what is done under a domain's IDs is done once, whoever gives CPUs IDs and
//! takes them away meanwhile; leases are exclusive; and slots are made before they are met.
//!
//! IDs are what moves here: scans come every few operations, so a CPU seldom keeps its ID for long.

use std::sync::Arc;
use std::time::Duration;

use coreline::cid::{Clustered, FirstFit, Recent, References};
use coreline::domain::{
    Domain, DomainLocal, DomainOptions, Domains, DomainsOptions, Exclusive, LeaseError,
};
use coreline::percpu::{Slot, StopError};
use coreline_sim::{Faults, Machine, Schedule, Sim};
use coreline_world::model::Model;
use coreline_world::{
    Cell, Integer, JoinHandle, Native, Ordering, Placement, Time, Word, Words, World,
};

use crate::worlds::{self, Effort, FEW, MODEL, NATIVE, TORN};

/// What a slot holds that was made.
const MADE: u64 = 0x600d;

/// A domain and a clock of its own, so that scans are due when a test says so.
struct Scene<P: References, W: World> {
    domain: Domain<P, W>,
    /// When it began.
    begin: Time,
    /// How many scans there were.
    scans: W::U32,
}

impl<P: References, W: World> Scene<P, W> {
    fn new_in(leases: usize) -> Arc<Self> {
        let domains = Domains::new_in(DomainsOptions::new().leases(leases)).unwrap();
        let domain = domains.domain(DomainOptions::new());
        let (begin, scans) = (W::now(), W::U32::new_in(1));
        Arc::new(Scene { domain, begin, scans })
    }

    /// Takes back the IDs that nobody has asked for since the scan before.
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
                let mut member = scene.domain.join().unwrap();
                let round = |round| {
                    let (inside, _) = member.enter();
                    let result = live(&scene, number, round);
                    assert_eq!(inside.domain().usage().bytes > 0, true);
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
struct Marked<W: World> {
    mark: W::U64,
    count: W::U64,
}

// SAFETY: a struct.
unsafe impl<W: World> Slot for Marked<W> {}

type Local<T, P, W> = Arc<DomainLocal<T, P, W>>;

fn marked<P: References, W: World>(domain: &Domain<P, W>) -> Local<Marked<W>, P, W> {
    let init = || Marked { mark: W::U64::new_in(MADE), count: W::U64::new_in(0) };
    Arc::new(domain.local(init).unwrap())
}

/// Adds once to a local that is looked at before.
fn visit<P: References, W: World>(local: &DomainLocal<Marked<W>, P, W>) {
    assert_eq!(local.field(|slot| &slot.mark).load(), MADE, "a slot was met before it was made");
    local.field(|slot| &slot.count).add(1);
}

/// Threads that move add to one local, scan every few additions, and make others meanwhile.
fn sums_are_exact<P: References, W: World>(effort: Effort) {
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
    // Nobody is left, and nobody asks.
    assert_eq!(scene.domain.usage().users, 0);
    (0..2).for_each(|_| scene.scan());
    assert_eq!(scene.domain.usage().ids, 0, "IDs came back");
    // As do their slots, with what is in them, for who asks for them again.
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

/// One adds all the time; the others take its ID away as soon as they can, and use it.
fn an_id_is_taken_away<P: References, W: World>() {
    let scene = Scene::<P, W>::new_in(0);
    let local = marked(&scene.domain);
    let theirs = Arc::clone(&local);
    let effort = Effort { threads: 3, rounds: 4, cpus: 2 };
    scene.inhabit(effort, move |scene, number, _| {
        if number > 0 {
            (0..2).for_each(|_| scene.scan());
        }
        visit(&theirs);
    });
    assert_eq!(local.field(|slot| &slot.count).sum(), 12, "two sections lost a count");
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

/// What schedules there are in CI; `CORELINE_SCHEDULES` asks for another number.
fn schedules() -> u64 {
    let set = std::env::var("CORELINE_SCHEDULES").ok();
    set.map_or(300, |set| set.parse().expect("CORELINE_SCHEDULES is a number"))
}

#[test]
fn sections_share_no_id_under_schedules_that_look_for_mistakes() {
    let seldom = Faults { preempt: 20, migrate: 15, preempt_access: 50, ..Faults::NONE };
    let share = schedules().div_ceil(3);
    let law = an_id_is_taken_away::<FirstFit, Sim>;
    coreline_sim::search(machines(share, seldom), law).unwrap();
    let law = || sums_are_exact::<Recent, Sim>(Effort { threads: 3, rounds: 4, cpus: 2 });
    coreline_sim::search(machines(share, seldom), law).unwrap();
    let law = || tokens_and_leases::<Sim>(Effort { threads: 3, rounds: 3, cpus: 2 });
    coreline_sim::search(machines(share, seldom), law).unwrap();
}

/// IDs that are taken away without a fence are used twice.
#[test]
fn an_expiry_without_a_fence_is_caught() {
    let unfenced = Faults { missed_fences: true, ..Faults::NONE };
    let law = an_id_is_taken_away::<FirstFit, Sim>;
    let failure = coreline_sim::search(machines(200, unfenced), law).unwrap_err();
    assert!(failure.to_string().contains("lost a count"), "{failure}");
}

/// What is leased: who has it, and how often it was.
struct Held<W: World> {
    holder: Cell<u32, W>,
    uses: Cell<u64, W>,
}

fn held<P: References, W: World>(
    domain: &Domain<P, W>,
) -> Arc<DomainLocal<Exclusive<Held<W>>, P, W>> {
    let init = || Exclusive::new(Held { holder: Cell::new_in(0), uses: Cell::new_in(0) });
    Arc::new(domain.local(init).unwrap())
}

/// How often leased values were used, and what the last holder left in each.
fn uses<P: References, W: World>(local: Arc<DomainLocal<Exclusive<Held<W>>, P, W>>) -> u64 {
    let mut local = Arc::into_inner(local).expect("nobody else has it");
    let values = local.iter_mut().map(Exclusive::get_mut);
    // SAFETY: nobody else has the local.
    values.map(|held| held.uses.with(|uses| unsafe { *uses })).sum()
}

/// Uses a lease, with others running meanwhile.
fn lease<P: References, W: World>(
    domain: &Domain<P, W>,
    local: &DomainLocal<Exclusive<Held<W>>, P, W>,
    me: u32,
    meanwhile: impl FnOnce(),
) {
    let mut lease = domain.lease().unwrap();
    let held = lease.get_mut(local).unwrap();
    // SAFETY, here and below: a lease is exclusive: that is what is tested.
    held.holder.with_mut(|holder| unsafe { *holder = me });
    held.uses.with_mut(|uses| unsafe { *uses += 1 });
    meanwhile();
    let holder = held.holder.with(|holder| unsafe { *holder });
    assert_eq!(holder, me, "a lease has two holders");
}

/// Threads that move lease, add under the lease, scan and lease again.
fn tokens_and_leases<W: World>(effort: Effort) {
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
