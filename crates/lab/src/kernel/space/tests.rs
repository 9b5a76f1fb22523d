//! What all policies share, case by case.

use super::super::{FirstFit, Recent};
use super::*;

const AT: Time = Time::from_nanos(7_000_000);

const SOURCE: CpuId = CpuId::new(2);
const DESTINATION: CpuId = CpuId::new(3);

/// What a migration did.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Nothing.
    Alone,
    /// The source's reference is gone, and its ID free.
    Dropped,
    /// The source's reference is the destination's.
    Moved,
}

fn kept(cid: u32) -> Reference {
    Reference::Kept { cid: Cid::new(cid), since: Time::from_nanos(0) }
}

/// A process with this many users on four CPUs, whose first thread had ID 0 on the source CPU, and
/// on whose destination CPU there is this.
fn process<P: Policy>(users: usize, bound: bool, destination: Record) -> Space<P> {
    let mut space = Space::<P>::new(4, Scan::Tick);
    space.spawned(0, SOURCE, bound);
    (1..users).for_each(|thread| space.spawned(thread, CpuId::new(0), false));
    assert_eq!(space.switch_in(AT, SOURCE, 0), Cid::new(0));
    space.switch_out(AT, SOURCE, 0);
    if let Reference::Kept { cid, .. } = destination.reference {
        space.ids.take(cid).unwrap();
    }
    space.records[DESTINATION.index()] = destination;
    space
}

fn outcome<P: Policy>(mut space: Space<P>) -> Outcome {
    let before = format!("{:?}", space.records);
    space.migrated(AT, 0, SOURCE, DESTINATION);
    if before == format!("{:?}", space.records) {
        assert!(space.ids.taken[0]);
        return Outcome::Alone;
    }
    let [source, destination] = [SOURCE, DESTINATION].map(|cpu| space.records[cpu.index()]);
    assert_eq!((source.reference, source.recent), (Reference::None, None), "both are taken");
    if destination.reference == (Reference::Kept { cid: Cid::new(0), since: AT }) {
        assert!(space.ids.taken[0]);
        assert_eq!(destination.recent, Some(Cid::new(0)));
        return Outcome::Moved;
    }
    assert!(!space.ids.taken[0]);
    Outcome::Dropped
}

#[test]
fn a_migration_does_what_the_table_says() {
    let with = |reference, recent| Record { reference, recent };
    let referring = with(kept(1), Some(Cid::new(1)));
    let remembering = with(Reference::None, Some(Cid::new(1)));
    for (users, destination, recent, first_fit) in [
        (4, referring, Outcome::Alone, Outcome::Alone),
        (5, referring, Outcome::Alone, Outcome::Alone),
        (3, referring, Outcome::Dropped, Outcome::Dropped),
        (4, remembering, Outcome::Alone, Outcome::Moved),
        (3, remembering, Outcome::Dropped, Outcome::Moved),
        (4, NOTHING, Outcome::Moved, Outcome::Moved),
        (3, NOTHING, Outcome::Moved, Outcome::Moved),
    ] {
        let space = process::<Recent>(users, false, destination);
        assert_eq!(outcome(space), recent, "recent, {users} users, {destination:?}");
        let space = process::<FirstFit>(users, false, destination);
        assert_eq!(outcome(space), first_fit, "first fit, {users} users, {destination:?}");
    }
}

#[test]
fn users_are_compared_with_what_the_process_or_the_thread_is_allowed_on() {
    // Two users of a process that is allowed on four CPUs; the one that moves is bound.
    let referring = Record { reference: kept(1), recent: Some(Cid::new(1)) };
    assert_eq!(outcome(process::<Recent>(2, true, referring)), Outcome::Dropped);
    assert_eq!(outcome(process::<FirstFit>(2, true, referring)), Outcome::Alone);
}

#[test]
fn a_migration_leaves_alone_what_is_not_the_threads() {
    type Spoil = fn(&mut Space<Recent>);
    let spoils: [(&str, Spoil); 4] = [
        ("has another ID", |space| {
            space.threads[0].last = Some(Cid::new(1));
        }),
        ("had none yet", |space| space.threads[0].last = None),
        ("another thread has it", |space| {
            let reference = Reference::Held { cid: Cid::new(0), put: false };
            space.records[SOURCE.index()].reference = reference;
        }),
        ("already wanted back", |space| {
            let reference = Reference::Held { cid: Cid::new(0), put: true };
            space.records[SOURCE.index()].reference = reference;
        }),
    ];
    for (why, spoil) in spoils {
        let mut space = process::<Recent>(2, false, NOTHING);
        spoil(&mut space);
        assert_eq!(outcome(space), Outcome::Alone, "{why}");
    }
}

#[test]
fn a_scan_drops_what_is_old_and_then_what_is_high() {
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let mut space = Space::<FirstFit>::new(4, Scan::Tick);
    let cpus = [0, 1, 2, 3].map(CpuId::new);
    for (thread, cpu) in cpus.into_iter().enumerate() {
        space.spawned(thread, cpu, true);
        space.switch_in(ms(0), cpu, thread);
    }
    // IDs 0 and 1 are old by 101 ms; 2 is in use until a moment ago, 3 still is.
    space.switch_out(ms(0), cpus[0], 0);
    space.switch_out(ms(1), cpus[1], 1);
    space.switch_out(ms(90), cpus[2], 2);
    let references = |space: &Space<FirstFit>| -> Vec<Reference> {
        space.records.iter().map(|record| record.reference).collect()
    };
    let before = references(&space);
    space.tick(ms(99), cpus[3], 3);
    assert_eq!(references(&space), before, "too early for a scan");
    space.tick(ms(101), cpus[3], 3);
    // Two are left, so 2 and 3 are too high; 3 goes when its thread does.
    let held = Reference::Held { cid: Cid::new(3), put: true };
    assert_eq!(
        references(&space),
        [Reference::None, Reference::None, Reference::None, held],
        "{space:?}"
    );
    space.switch_out(ms(102), cpus[3], 3);
    assert_eq!(references(&space)[3], Reference::None);
    assert_eq!(space.switch_in(ms(103), cpus[3], 3), Cid::new(0));
    // The next may run 100 ms after the last.
    assert_eq!(space.next_scan, ms(201));
}

#[test]
fn a_scan_runs_at_ticks_or_at_switches() {
    for (scan, after_switch, after_tick) in
        [(Scan::Switch, None, None), (Scan::Tick, Some(0), None::<u32>)]
    {
        let mut space = Space::<FirstFit>::new(2, scan);
        let cpus = [0, 1].map(CpuId::new);
        for (thread, cpu) in cpus.into_iter().enumerate() {
            space.spawned(thread, cpu, true);
        }
        space.switch_in(Time::from_nanos(0), cpus[0], 0);
        space.switch_out(Time::from_nanos(0), cpus[0], 0);
        let at = Time::from_nanos(0) + EXPIRY + SCAN_DELAY;
        let reference = |space: &Space<FirstFit>| match space.records[0].reference {
            Reference::Kept { cid, .. } | Reference::Held { cid, .. } => Some(cid.get()),
            Reference::None => None,
        };
        space.switch_in(at, cpus[1], 1);
        assert_eq!(reference(&space), after_switch, "{scan}");
        space.tick(at, cpus[1], 1);
        assert_eq!(reference(&space), after_tick, "{scan}");
    }
}

#[test]
fn exec_forgets_everything_but_who_runs() {
    let ms = |ms: u64| Time::from_nanos(ms * 1_000_000);
    let mut space = Space::<Recent>::new(4, Scan::Tick);
    let cpus = [0, 1, 2].map(CpuId::new);
    for (thread, cpu) in cpus.into_iter().enumerate() {
        space.spawned(thread, cpu, true);
        assert_eq!(space.switch_in(ms(0), cpu, thread).index(), thread);
    }
    for thread in [0, 1] {
        space.switch_out(ms(1), cpus[thread], thread);
        space.exited(thread);
    }
    space.exec(ms(2), 2);
    assert_eq!((space.ids.highest, space.ids.users, space.ids.allowed), (0, 1, 1));
    assert_eq!(space.ids.taken, [false, false, true, false]);
    assert!(space.records.iter().all(|record| record.recent.is_none()));
    space.switch_out(ms(3), cpus[2], 2);
    assert_eq!(space.ids.weight, 0);
    assert_eq!(space.switch_in(ms(4), cpus[2], 2), Cid::new(0), "as a new process");
}

#[test]
fn a_threads_end_frees_its_id() {
    let mut space = Space::<Recent>::new(2, Scan::Tick);
    space.spawned(0, CpuId::new(1), true);
    space.switch_in(AT, CpuId::new(1), 0);
    space.switch_out(AT, CpuId::new(1), 0);
    space.exited(0);
    assert_eq!((space.ids.users, space.ids.weight), (0, 0));
    assert_eq!(space.records[1].recent, Some(Cid::new(0)), "the CPU remembers it");
}
