//! Single steps: what a migration, a scan, an exec and a use do to rows.
//!
//! # Which test fails without what
//!
//! Each of these was removed by hand once, to check that the tests in this file, or `policies` and
//! `steps` of `tests/laws/memory/cid`, fail. The table names one of the failing tests. `steps`
//! means the tests of that module.
//!
//! | without | fails |
//! |---|---|
//! | the recent ID | `a_cpu_gets_its_recent_id_however_long_ago` |
//! | expansion | `ids_expand_up_to_the_users_before_a_free_one_is_taken_again` |
//! | its bound: users | `ids_expand_no_further_than_users` |
//! | its bound: allowed CPUs | `steps` |
//! | a migration: has one, users not fewer: alone | `a_migration_does_what_the_table_says` |
//! | the same, users fewer: released | `a_migration_does_what_the_table_says` |
//! | has none: moved | `a_migration_does_what_the_table_says` |
//! | a recent ID counts as one | `a_migration_does_what_the_table_says` |
//! | a steal forgets the recent ID | `a_migration_does_what_the_table_says` |
//! | the union of allowed CPUs | `users_are_compared_with_what_the_space_or_*` |
//! | another's reference left alone | `a_migration_leaves_alone_what_is_not_the_tasks` |
//! | moves within a cache only | `a_thread_leaves_its_id_to_the_cache_that_it_leaves` |
//! | the expiry | `a_scan_drops_what_is_old_and_then_what_is_high` |
//! | its length | `a_scan_finds_nothing_before_it_is_old` |
//! | what is high goes; at once, or put | `a_scan_drops_what_is_old_and_then_what_is_high` |
//! | exec forgets: recent IDs, expansion, CPUs | `an_exec_forgets_all_but_the_ids_in_use` |
//! | leaving frees; high IDs are not used; expansion is lowered | `after_threads_have_ended_*` |
//! | an idle ID is taken at the bound | `steps` |
//! | use: the mark, the fence | `an_unused_row_goes_at_the_second_scan_after_one_fence` |
//! | owned: hysteresis; CPUs give up their IDs; the expiry | `the_mode_changes_back_*` |
//! | owned: tasks give up IDs; marks; the hand-off | `cpus_own_ids_where_tasks_are_many` |
//! | owned: a quarter more | `a_quarter_more_tasks_than_allowed_cpus_own_ids` |
//! | owned: IDs above the bound are given back | `an_id_above_a_bound_that_fell_is_given_back` |
//! | owned: idle CPUs' IDs are taken | `steps` |

use coreline_topology::{CpuId, CpuSet, Shape, Topology};
use coreline_world::{Lacking, Native, Time, Why};

use super::hooked::Hooked;
use super::policy::{Engine, References};
use super::row::{Row, State};
use super::*;

const AT: Time = Time::from_nanos(7_000_000);

const SOURCE: CpuId = CpuId::new(2);
const DESTINATION: CpuId = CpuId::new(3);

fn ms(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn cpus(cpus: u32) -> CpuSet {
    (0..cpus).map(CpuId::new).collect()
}

/// A machine of one cache for each four CPUs.
fn machine(caches: u32) -> Topology {
    let shape = Shape { caches_per_node: caches, cores_per_cache: 4, ..Shape::default() };
    Topology::uniform(shape).unwrap()
}

/// The state machine of a space on four CPUs.
fn referring<P: References>() -> (CidLayout<P>, Hooked<P, Native>) {
    let layout = CidLayout::new(&machine(1)).unwrap();
    let engine = Engine::<Native>::new_in(layout.parts());
    (layout, engine)
}

/// The effect of a migration.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing.
    Alone,
    /// The source's reference is gone, and its ID free.
    Dropped,
    /// The source's reference is the destination's.
    Moved,
}

/// This many users on four CPUs, the first of which had ID 0 on the source CPU, and moves to the
/// destination, where there is this. `bound`: it is allowed on one CPU.
fn migration<P: References>(
    users: usize,
    bound: bool,
    there: Row,
    spoil: impl FnOnce(&Hooked<P, Native>, &<Hooked<P, Native> as Engine<Native>>::Task),
) -> Outcome {
    let (layout, engine) = referring::<P>();
    let [from, to] = [SOURCE, DESTINATION].map(|cpu| layout.parts().place(cpu).unwrap());
    let task = engine.enter(&if bound { CpuSet::from_iter([SOURCE]) } else { cpus(4) });
    let _others: Vec<_> = (1..users).map(|_| engine.enter(&cpus(4))).collect();
    assert_eq!(engine.switch_in(AT, from, &task), Ok(Some(0)));
    engine.switch_out(AT, from, &task);
    let base = engine.base();
    there.store::<Native>(base.row(to.position).unwrap());
    if there.current().is_some() {
        assert!(base.ids.insert(there.cid()));
    }
    spoil(&engine, &task);
    let row = |place: places::Place| Row::load::<Native>(base.row(place.position).unwrap());
    let before = (row(from), row(to));
    engine.migrate(AT, &task, from, to);
    if before == (row(from), row(to)) {
        assert!(base.ids.contains(0));
        return Outcome::Alone;
    }
    assert_eq!(row(from), Row::NONE, "both its reference and its recent ID are taken");
    if row(to) == Row::kept(0, AT) {
        assert!(base.ids.contains(0));
        return Outcome::Moved;
    }
    assert!(!base.ids.contains(0) && row(to) == there);
    Outcome::Dropped
}

#[test]
fn a_migration_does_what_the_table_says() {
    let referring = Row::kept(1, ms(0));
    let remembering = Row::held(1).become_(State::Recent);
    for (users, there, recent, first_fit) in [
        (4, referring, Outcome::Alone, Outcome::Alone),
        (5, referring, Outcome::Alone, Outcome::Alone),
        (3, referring, Outcome::Dropped, Outcome::Dropped),
        (4, remembering, Outcome::Alone, Outcome::Moved),
        (3, remembering, Outcome::Dropped, Outcome::Moved),
        (4, Row::NONE, Outcome::Moved, Outcome::Moved),
        (3, Row::NONE, Outcome::Moved, Outcome::Moved),
    ] {
        assert_eq!(
            migration::<Recent>(users, false, there, |_, _| ()),
            recent,
            "{users} {there:?}"
        );
        let first = migration::<FirstFit>(users, false, there, |_, _| ());
        assert_eq!(first, first_fit, "first fit: {users} {there:?}");
    }
}

#[test]
fn users_are_compared_with_what_the_space_or_the_task_is_allowed_on() {
    // Two users of a space that is allowed on four CPUs; the one that moves is bound.
    let there = Row::kept(1, ms(0));
    assert_eq!(migration::<Recent>(2, true, there, |_, _| ()), Outcome::Dropped);
    assert_eq!(migration::<FirstFit>(2, true, there, |_, _| ()), Outcome::Alone);
}

#[test]
fn a_migration_leaves_alone_what_is_not_the_tasks() {
    let source = |engine: &Hooked<Recent, Native>, row: Row| {
        row.store::<Native>(engine.base().row(SOURCE.get() as u16).unwrap());
    };
    let moved = |row| migration::<Recent>(2, false, Row::NONE, |engine, _| source(engine, row));
    assert_eq!(moved(Row::held(0)), Outcome::Alone, "another task uses it");
    assert_eq!(moved(Row::held(0).become_(State::Put)), Outcome::Alone, "wanted back");
    assert_eq!(moved(Row::kept(3, AT)), Outcome::Alone, "another ID");
}

#[test]
fn a_scan_drops_what_is_old_and_then_what_is_high() {
    let layout = CidLayout::<FirstFit>::new(&machine(1)).unwrap();
    let space: CidSpace<FirstFit> = CidSpace::new(&layout);
    let all = [0, 1, 2, 3].map(CpuId::new);
    let tasks = all.map(|cpu| space.user_enter(&CpuSet::from_iter([cpu])).unwrap());
    for (cpu, task) in all.into_iter().zip(&tasks) {
        assert_eq!(space.switch_in(ms(0), cpu, task).unwrap().get(), cpu.get());
    }
    // IDs 0 and 1 are old by 101 ms; 2 is in use until a moment ago, 3 still is.
    for (cpu, at) in [(0, 0), (1, 1), (2, 90)] {
        space.switch_out(ms(at), all[cpu], &tasks[cpu]);
    }
    let states = || {
        all.map(|cpu| {
            Row::load::<Native>(space.engine.base().row(cpu.get() as u16).unwrap()).state()
        })
    };
    space.expire(ms(99));
    assert_eq!(states(), [State::Kept, State::Kept, State::Kept, State::Held], "too early");
    space.expire(ms(101));
    // Two are left, so 2 and 3 are too high; 3 goes when its task does.
    assert_eq!(states(), [State::Recent, State::Recent, State::Recent, State::Put]);
    space.switch_out(ms(102), all[3], &tasks[3]);
    assert_eq!((states()[3], space.taken().count()), (State::Recent, 0));
    assert_eq!(space.switch_in(ms(103), all[3], &tasks[3]).unwrap().get(), 0);
    space.switch_out(ms(103), all[3], &tasks[3]);
    space.expire(ms(200));
    assert_eq!(states()[3], State::Kept, "the next may run 100 ms after the last");
    space.expire(ms(203));
    assert_eq!(states()[3], State::Recent);
}

#[test]
fn a_scan_finds_nothing_before_it_is_old() {
    let layout = CidLayout::<Recent>::new(&machine(1)).unwrap();
    let space: CidSpace<Recent> = CidSpace::new(&layout);
    let task = space.user_enter(&cpus(4)).unwrap();
    space.switch_in(ms(300), SOURCE, &task).unwrap();
    space.switch_out(ms(301), SOURCE, &task);
    space.expire(ms(400));
    assert_eq!(space.taken().count(), 1, "99 ms");
    space.expire(ms(501));
    assert_eq!(space.taken().count(), 0);
}

#[test]
fn an_exec_forgets_all_but_the_ids_in_use() {
    let layout = CidLayout::<Recent>::new(&machine(1)).unwrap();
    let space: CidSpace<Recent> = CidSpace::new(&layout);
    let tasks = [0, 1, 2].map(|_| space.user_enter(&cpus(4)).unwrap());
    for (cpu, task) in (0..).map(CpuId::new).zip(&tasks) {
        assert_eq!(space.switch_in(ms(0), cpu, task).unwrap().get(), cpu.get());
    }
    space.switch_out(ms(1), CpuId::new(0), &tasks[0]);
    Row::held(3).become_(State::Recent).store::<Native>(space.engine.base().row(3).unwrap());
    space.exec(ms(2), &tasks[2], &CpuSet::from_iter([SOURCE])).unwrap();
    let base = space.engine.base();
    let states = [0, 1, 2, 3].map(|at| Row::load::<Native>(base.row(at).unwrap()).state());
    assert_eq!(states, [State::None, State::Drop, State::Drop, State::None]);
    // The CPU of the task that called it, and that of the other, which still runs.
    assert_eq!((base.weight(0), space.taken().count()), (2, 2));
    space.switch_out(ms(3), SOURCE, &tasks[2]);
    space.switch_out(ms(3), CpuId::new(1), &tasks[1]);
    assert_eq!((space.taken().count(), Row::load::<Native>(base.row(2).unwrap())), (0, Row::NONE));
    // IDs expand again, beginning with the first.
    for (cpu, cid, at) in [(DESTINATION, 0, 300), (SOURCE, 1, 600)] {
        space.expire(ms(at));
        assert_eq!(space.switch_in(ms(at), cpu, &tasks[0]).unwrap().get(), cid);
        space.switch_out(ms(at), cpu, &tasks[0]);
    }
}

/// A space that is driven by use, on four CPUs.
fn used() -> CidSpace<Recent> {
    let space = CidSpace::new(&CidLayout::new(&machine(1)).unwrap());
    space.user_enter(&cpus(4)).unwrap();
    space.user_enter(&cpus(4)).unwrap();
    space
}

#[test]
fn an_unused_row_goes_at_the_second_scan_after_one_fence() {
    let space = used();
    let [one, two] = [1, 2].map(CpuId::new);
    let place = |cpu| places::Place { position: CpuId::index(cpu) as u16, group: 0 };
    assert_eq!([one, two].map(|cpu| space.engine.use_at(place(cpu))), [Ok(0), Ok(1)]);
    assert_eq!((space.used_at(one), space.used_at(SOURCE)), (Some(Cid::new(0)), Some(Cid::new(1))));
    // The first marks both, so that sections ask once; only one does.
    space.engine.expire_unused(ms(100), || unreachable!("nothing must be freed")).unwrap();
    assert_eq!((space.used_at(one), space.used_at(two)), (None, None));
    assert_eq!(space.engine.use_at(place(two)), Ok(1));
    // Before the fence nothing is free, and after it what was marked.
    let mut fences = 0;
    let fence = || {
        fences += 1;
        assert_eq!(space.taken().count(), 2);
        Ok(())
    };
    space.engine.expire_unused(ms(200), fence).unwrap();
    assert_eq!(
        (fences, space.taken().collect::<Vec<_>>()),
        (1, vec![Cid::new(1)]),
        "and what was asked for stays"
    );
    assert_eq!(space.engine.use_at(place(one)), Ok(0), "its recent one");
}

#[test]
fn an_unused_row_goes_at_the_next_scan_however_late_that_is() {
    for later in [100, 7500, 8191, 8192, 8250, 100_000] {
        let space = used();
        space.engine.use_at(places::Place { position: 1, group: 0 }).unwrap();
        space.expire_unused(ms(100)).unwrap();
        space.engine.expire_unused(ms(100 + later), || Ok(())).unwrap();
        assert_eq!(space.taken().count(), 0, "after {later} ms");
    }
}

#[test]
fn what_cannot_be_fenced_stays() {
    let space = used();
    let place = places::Place { position: 1, group: 0 };
    assert_eq!(space.engine.use_at(place), Ok(0));
    space.expire_unused(ms(100)).unwrap();
    let lacking = || {
        let why = Why::new("planted");
        Err(Lacking { world: "native", capability: "fence", why, remedy: "none" })
    };
    assert!(space.engine.expire_unused(ms(200), lacking).is_err());
    assert_eq!((space.taken().count(), space.engine.use_at(place)), (1, Ok(0)));
}

#[test]
fn sections_of_a_machine_share_no_id() {
    let space = used();
    let ids: Vec<_> = (0..4).map(|cpu| space.use_at(CpuId::new(cpu)).unwrap().get()).collect();
    assert_eq!(ids, [0, 1, 2, 3], "two users, and still one for each CPU");
}

#[test]
fn bad_input_is_an_error() {
    let layout = CidLayout::<Clustered>::new(&machine(2)).unwrap();
    let space: CidSpace<Clustered> = CidSpace::new(&layout);
    let beyond = CpuId::new(8);
    let error = CidError::NoSuchCpu { cpu: beyond, limit: 8 };
    assert_eq!(space.user_enter(&cpus(9)).unwrap_err(), error);
    assert_eq!(space.users(), 0);
    let task = space.user_enter(&cpus(8)).unwrap();
    assert_eq!(space.switch_in(AT, beyond, &task), Err(error));
    assert_eq!(space.migrate(AT, &task, SOURCE, beyond), Err(error));
    assert_eq!(space.allow(&task, &cpus(9)), Err(error));
    assert_eq!(space.exec(AT, &task, &cpus(9)), Err(error));
    assert_eq!(space.use_at(beyond), Err(error));
    assert_eq!((space.used_at(beyond), space.bounds(beyond)), (None, Err(error)));
    space.switch_out(AT, beyond, &task);
    // Switched out twice, and with no task there.
    space.switch_out(AT, SOURCE, &task);
    space.switch_in(AT, SOURCE, &task).unwrap();
    let busy = space.switch_in(AT, SOURCE, &task).unwrap_err();
    assert!(matches!(busy, CidError::Busy { cpu: SOURCE }) && busy.to_string().contains("cpu 2"));
    let wide = machine(2).with_limit_at_least(1 << 16);
    let error = CidLayout::<Clustered>::new(&wide).unwrap_err();
    assert_eq!(error, CidError::TooWide { width: (1 << 16) + 56, most: 1 << 16 });
}

#[test]
fn a_task_of_another_space_is_refused() {
    fn law<P: Policy>() {
        let layout = CidLayout::new(&machine(1)).unwrap();
        let [ours, theirs]: [CidSpace<P>; 2] = [(); 2].map(|()| CidSpace::new(&layout));
        let task = ours.user_enter(&cpus(4)).unwrap();
        let foreign = theirs.user_enter(&cpus(4)).unwrap();
        let cid = ours.switch_in(AT, SOURCE, &task).unwrap();
        let destination = CpuId::new(3);
        let refused = Err(CidError::ForeignTask);
        assert_eq!(ours.switch_in(AT, destination, &foreign), Err(CidError::ForeignTask));
        ours.switch_out(AT, SOURCE, &foreign);
        assert_eq!(ours.migrate(AT, &foreign, SOURCE, destination), refused);
        assert_eq!(ours.migrate(AT, &foreign, SOURCE, SOURCE), refused);
        assert_eq!(ours.allow(&foreign, &cpus(4)), refused);
        assert_eq!(ours.exec(AT, &foreign, &cpus(4)), refused);
        let ForeignTask(foreign) = ours.user_leave(foreign).unwrap_err();
        assert_eq!((ours.users(), theirs.users()), (1, 1));
        assert_eq!(ours.taken().collect::<Vec<_>>(), [cid]);
        let busy = ours.switch_in(AT, SOURCE, &task);
        assert_eq!(busy, Err(CidError::Busy { cpu: SOURCE }), "no task was switched out");
        theirs.user_leave(foreign).unwrap();
        assert_eq!((ours.users(), theirs.users()), (1, 0));
    }
    law::<FirstFit>();
    law::<Recent>();
    law::<Owned>();
    law::<Clustered>();
}

#[test]
fn more_users_than_cpus_have_as_many_ids_as_there_are_cpus() {
    fn law<P: Policy>() {
        let space: CidSpace<P> = CidSpace::new(&CidLayout::new(&machine(1)).unwrap());
        let tasks: Vec<_> = (0..32).map(|_| space.user_enter(&cpus(4)).unwrap()).collect();
        for turn in tasks.chunks(4).cycle().take(20) {
            for (cpu, task) in (0..4).map(CpuId::new).zip(turn) {
                assert!(space.switch_in(AT, cpu, task).unwrap().get() < 4);
            }
            for (cpu, task) in (0..4).map(CpuId::new).zip(turn) {
                space.switch_out(AT, cpu, task);
            }
        }
        tasks.into_iter().for_each(|task| space.user_leave(task).unwrap());
        for at in [1000, 2000] {
            space.expire(ms(at));
        }
        assert_eq!((space.users(), space.taken().count()), (0, 0));
    }
    law::<FirstFit>();
    law::<Recent>();
    law::<Owned>();
    law::<Clustered>();
}

#[test]
fn a_page_of_any_number_of_slots_is_laid_out_or_refused() {
    let node = |sockets| Shape { sockets, cores_per_cache: 4, ..Shape::default() };
    let most = 1 << 16;
    for slots in [most - 3, 1 << 20, 1 << 31, u32::MAX - 1, u32::MAX] {
        for sockets in [2, 3, 5] {
            let topology = Topology::uniform(node(sockets)).unwrap();
            let refused = CidLayout::<Clustered>::with_slots_per_page(&topology, slots);
            assert!(matches!(refused, Err(CidError::TooWide { .. })), "{slots} {sockets}");
        }
        let topology = Topology::uniform(node(1)).unwrap();
        let alone = CidLayout::<Clustered>::with_slots_per_page(&topology, slots).unwrap();
        assert_eq!(alone.width(), 4);
    }
    let topology = Topology::uniform(node(2)).unwrap();
    let widest = CidLayout::<Clustered>::with_slots_per_page(&topology, most - 4).unwrap();
    assert_eq!(widest.range(CpuId::new(7)), Ok(most - 4..most));
    let space: CidSpace<Clustered> = CidSpace::new(&widest);
    let task = space.user_enter(&cpus(8)).unwrap();
    assert_eq!(space.switch_in(AT, CpuId::new(7), &task).unwrap().get(), most - 4);
}

#[test]
fn an_id_that_was_asked_for_may_be_used() {
    // A scan has been due since the machine started.
    let space = used();
    let cid = space.use_at(SOURCE).unwrap();
    assert_eq!(space.used_at(SOURCE), Some(cid));
}

#[test]
fn a_scan_whose_clock_was_read_too_early_finds_nothing_old() {
    let space: CidSpace<FirstFit> = CidSpace::new(&CidLayout::new(&machine(1)).unwrap());
    let task = space.user_enter(&cpus(4)).unwrap();
    space.switch_in(ms(300), SOURCE, &task).unwrap();
    space.switch_out(ms(300), SOURCE, &task);
    space.expire(ms(299));
    assert_eq!(space.taken().count(), 1);
}

#[test]
fn a_task_that_is_refused_changes_no_bound() {
    let space: CidSpace<Owned> = CidSpace::new(&CidLayout::new(&machine(2)).unwrap());
    let tasks: Vec<_> = (0..5).map(|_| space.user_enter(&cpus(4)).unwrap()).collect();
    space.switch_in(AT, SOURCE, &tasks[0]).unwrap();
    let (bounds, cpu) = (space.bounds(SOURCE), CpuId::new(7));
    assert_eq!(space.switch_in(AT, cpu, &tasks[0]), Err(CidError::Busy { cpu }));
    assert_eq!(space.bounds(SOURCE), bounds);
}

#[test]
fn a_task_that_finds_all_ids_in_use_is_refused() {
    // Tasks that run when they leave, or all at one CPU: there are not IDs for so many.
    let space: CidSpace<Owned> = CidSpace::new(&CidLayout::new(&machine(1)).unwrap());
    let busy = Err(CidError::Busy { cpu: SOURCE });
    for cid in 0..4 {
        let task = space.user_enter(&cpus(4)).unwrap();
        assert_eq!(space.switch_in(AT, SOURCE, &task), Ok(Cid::new(cid)));
        space.user_leave(task).unwrap();
    }
    let task = space.user_enter(&cpus(4)).unwrap();
    assert_eq!(space.switch_in(AT, SOURCE, &task), busy);
    assert_eq!((space.users(), space.taken().count()), (1, 4));
}
