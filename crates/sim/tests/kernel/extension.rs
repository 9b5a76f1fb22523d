//! Slice extensions: when a slice is extended, for how long, and what takes the extension back.

use std::time::Duration;

use coreline_sim::{Faults, Machine, Replay, Sim};
use coreline_topology::CpuId;
use coreline_world::{
    Clock, Extended, Fences, Integer, JoinHandle, Kick, Ordering, Parked, Place, Placement,
    Signals, Sleep, SliceExtension, Threads, Time, Word, Work,
};

use crate::common::{U32, machine, on};

/// Two threads of one CPU run sections of this length for `rounds`; the outcomes of both, by
/// [`Extended`].
fn sections(section: Duration, rounds: u32, in_section: fn()) -> [u32; 4] {
    let part = move || {
        Sim::enable_extension().unwrap();
        let mut outcomes = [0; 4];
        for _ in 0..rounds {
            assert!(Sim::request_extension());
            Sim::work(section);
            in_section();
            outcomes[Sim::end_extension() as usize] += 1;
        }
        outcomes
    };
    let [one, other] = [on(1, part), on(1, part)].map(JoinHandle::join);
    core::array::from_fn(|outcome| one[outcome] + other[outcome])
}

fn outcomes(section: Duration, rounds: u32, in_section: fn()) -> [u32; 4] {
    machine("host-2c", 1).run(move || sections(section, rounds, in_section)).unwrap().value
}

#[test]
fn a_short_section_is_never_preempted_by_the_end_of_its_slice() {
    let [off, unused, yielded, lost] = outcomes(Duration::from_micros(2), 20_000, || ());
    assert_eq!((off, lost), (0, 0));
    assert!(yielded > 5 && unused > 30 * yielded, "{unused} unused, {yielded} yielded");
}

#[test]
fn an_extension_ends_before_a_long_section_does() {
    let [_, unused, yielded, lost] = outcomes(Duration::from_millis(1), 100, || ());
    assert!(lost > 5 && unused > lost, "{unused} unused, {lost} lost");
    assert!(yielded <= 2, "{yielded} sections ended within 5 us of the end of their slice");
}

#[test]
fn a_system_call_takes_the_extension_back() {
    // The call comes at the end of the section, so it meets all extensions. A slice that ends
    // during the call is not extended.
    let wakes = || {
        Sim::wake(&raw const *Box::new(U32::new_in(0)), 1);
    };
    // The word has another value, so the thread does not sleep.
    let parks = || assert_eq!(Sim::park(&U32::new_in(0), 1, None), Parked::Changed);
    let holds_signals = || drop(Sim::hold());
    for (call, in_section) in
        [("wake", wakes as fn()), ("park", parks), ("hold_signals", holds_signals)]
    {
        let [_, _, yielded, lost] = outcomes(Duration::from_micros(2), 20_000, in_section);
        assert!(lost > 5 && yielded == 0, "{call}: {yielded} yielded, {lost} lost");
    }
}

#[test]
fn an_extension_lasts_five_microseconds() {
    // The other thread sees when this one is preempted at last.
    let longest = machine("host-2c", 1).run(|| {
        let part = |requests: bool| {
            move || {
                Sim::enable_extension().unwrap();
                let (start, mut spans) = (Sim::now(), Vec::new());
                let mut ran_since = start;
                let mut last = start;
                while last < start + Duration::from_millis(60) {
                    if requests {
                        // Most find the request of the one before.
                        Sim::request_extension();
                    }
                    Sim::work(Duration::from_nanos(200));
                    let now = Sim::now();
                    if now - last > Duration::from_micros(500) {
                        spans.push(last - ran_since);
                        ran_since = now;
                    }
                    last = now;
                }
                spans
            }
        };
        let run = |requests| {
            let threads = [on(1, part(requests)), on(1, part(requests))];
            threads.map(JoinHandle::join).into_iter().flatten().max().unwrap()
        };
        [run(false), run(true)]
    });
    let [without, with] = longest.unwrap().value;
    let more = with.saturating_sub(without);
    assert!((4..9).contains(&more.as_micros()), "{without:?} and {with:?}");
}

#[test]
fn a_thread_that_is_preempted_otherwise_has_no_request_left() {
    let line = Replay {
        faults: Faults { preempt_access: 3, ..Faults::NONE },
        ..Replay::new("host-2c", "a request that a preemption ends")
    };
    let program = || {
        Sim::enable_extension().unwrap();
        let word = U32::new_in(0);
        let outcome = |_| {
            assert!(Sim::request_extension());
            // Relaxed: no other thread knows the word.
            word.fetch_add(1, Ordering::Relaxed);
            Sim::end_extension()
        };
        let outcomes: Vec<Extended> = (0..200).map(outcome).collect();
        outcomes.iter().filter(|&&it| it == Extended::Lost).count()
    };
    let lost = Machine::replay(&line).unwrap().run(program).unwrap().value;
    assert!((10..150).contains(&lost), "{lost} of 200");
}

/// An interrupt for the sections of a CPU takes requests, and the thread there keeps its CPU.
#[test]
fn a_fence_of_sections_and_a_kick_take_requests_away() {
    let outcome = |interrupts: fn()| {
        let program = move || {
            let holder = on(1, || {
                Sim::enable_extension().unwrap();
                assert!(Sim::request_extension());
                Sim::work(Duration::from_micros(200));
                Sim::end_extension()
            });
            on(0, move || {
                Sim::work(Duration::from_micros(100));
                interrupts();
            })
            .join();
            holder.join()
        };
        let run = machine("host-2c", 1).run(program).unwrap();
        assert_eq!(run.report.preemptions, 0);
        run.value
    };
    assert_eq!(outcome(|| ()), Extended::Unused);
    assert_eq!(outcome(|| Sim::kick(CpuId::new(0)).unwrap()), Extended::Unused);
    assert_eq!(outcome(|| Sim::try_fence_all().unwrap()), Extended::Unused);
    assert_eq!(outcome(|| Sim::fence_restartable().unwrap()), Extended::Lost);
    assert_eq!(outcome(|| Sim::kick(CpuId::new(1)).unwrap()), Extended::Lost);
}

#[test]
fn a_thread_that_blocks_keeps_its_request() {
    let outcomes = machine("host-2c", 1).run(|| {
        let asks_and = |blocks: fn()| {
            Sim::enable_extension().unwrap();
            assert!(Sim::request_extension());
            blocks();
            Sim::end_extension()
        };
        let sleeps = || Sim::sleep(Duration::from_micros(50));
        let yields = || Sim::yield_now();
        // Another thread waits for the CPU, and runs meanwhile.
        let other = on(1, || (0..50).for_each(|_| Sim::yield_now()));
        let threads = [on(1, move || asks_and(sleeps)), on(1, move || asks_and(yields))];
        other.join();
        threads.map(JoinHandle::join)
    });
    assert_eq!(outcomes.unwrap().value, [Extended::Unused; 2]);
}

#[test]
fn a_thread_that_moves_to_another_cpu_has_no_request_left() {
    let program = || {
        // One has this CPU when this thread wakes. The other CPU becomes idle again and again, and
        // takes this thread over.
        let here = on(0, || Sim::work(Duration::from_millis(1)));
        let there = on(1, || (0..50).for_each(|_| Sim::sleep(Duration::from_micros(10))));
        Sim::enable_extension().unwrap();
        assert!(Sim::request_extension());
        let from = Sim::cpu();
        Sim::sleep(Duration::from_micros(50));
        let moved = (from, Sim::cpu());
        let outcome = Sim::end_extension();
        [here, there].into_iter().for_each(JoinHandle::join);
        (moved, outcome)
    };
    let ((from, to), outcome) = machine("host-2c", 1).run(program).unwrap().value;
    assert_ne!(from, to, "the thread did not move");
    assert_eq!(outcome, Extended::Lost);
}

/// Computes until a time.
fn work_until(end: Time) {
    while Sim::now() < end {
        Sim::work(Duration::from_nanos(100));
    }
}

/// Later than the other CPU needs to take a thread over, and before the end of an extension.
const LATER: Duration = Duration::from_micros(4);
const END_OF_SECTION: Time = Time::from_nanos(6_000_000);

/// What happened around a section that ends long after its slice.
struct Long {
    outcome: Extended,
    /// Where and when the thread ran that waited for the CPU when the slice ended.
    waiter: (CpuId, Time),
    /// How long a thread waited that came later.
    late: Duration,
}

/// A thread asks for an extension, and a second thread waits for its CPU. From `leaves` on another
/// CPU is idle, and takes the second thread over. A third thread comes [`LATER`] if
/// `arrives`, else after the section.
fn a_long_section(leaves: Time, arrives: bool) -> Long {
    let program = move || {
        let wakes = if arrives { leaves } else { END_OF_SECTION } + LATER;
        let late = on(1, move || {
            Sim::sleep(wakes - Sim::now());
            Sim::now() - wakes
        });
        // That thread sleeps, and then the holder has the CPU alone.
        Sim::sleep(Duration::from_micros(100));
        let holder = on(1, || {
            Sim::enable_extension().unwrap();
            assert!(Sim::request_extension());
            work_until(END_OF_SECTION);
            Sim::end_extension()
        });
        Sim::sleep(Duration::from_micros(100));
        // Two threads are here, so the next one goes to the holder's CPU.
        let other = on(0, move || work_until(leaves));
        let waiter = Sim::spawn(Placement::Anywhere, || (Sim::cpu(), Sim::now())).unwrap();
        other.join();
        Long { outcome: holder.join(), waiter: waiter.join(), late: late.join() }
    };
    machine("host-2c", 1).run(program).unwrap().value
}

/// Times at which the waiter leaves before the extension, in it, and when it is over.
fn around_an_extension() -> impl Iterator<Item = Time> {
    let Long { outcome, waiter: (cpu, began), .. } = a_long_section(END_OF_SECTION, false);
    assert_eq!((outcome, cpu), (Extended::Lost, CpuId::new(1)));
    (0..20_000).step_by(250).map(move |nanos| Time::from_nanos(began.as_nanos() - nanos))
}

#[test]
fn an_extension_ends_even_if_no_thread_waits_any_more() {
    let mut outcomes = [0; 4];
    for leaves in around_an_extension() {
        outcomes[a_long_section(leaves, false).outcome as usize] += 1;
    }
    let [off, unused, yielded, lost] = outcomes;
    assert_eq!((off, yielded), (0, 0), "an extension lasted to the end of its section");
    assert!(unused > 5 && lost > 5, "{unused} unused, {lost} lost");
}

#[test]
fn a_thread_that_arrives_in_an_extension_does_not_prolong_it() {
    let mut soon = 0;
    for leaves in around_an_extension() {
        let Long { waiter: (cpu, _), late, .. } = a_long_section(leaves, true);
        // Either a slice began when it arrived, or it waited for an extension and for switches.
        let waited_for_extension = late < Duration::from_micros(50);
        assert!(waited_for_extension || late > Duration::from_millis(1), "{late:?}");
        soon += u32::from(cpu == CpuId::new(0) && waited_for_extension);
    }
    assert!(soon > 3, "{soon}");
}

/// A thread is on its way to the CPU when a grant ends, and no thread waits there: none is
/// preempted for it.
#[test]
fn a_grant_that_ends_before_a_thread_arrives_costs_no_switch() {
    let switches = |leaves: Time| {
        let program = move || {
            let holder = on(1, || {
                Sim::enable_extension().unwrap();
                assert!(Sim::request_extension());
                work_until(END_OF_SECTION);
            });
            Sim::sleep(Duration::from_micros(100));
            let other = on(0, move || {
                work_until(leaves);
                on(1, || ())
            });
            let waiter = Sim::spawn(Placement::Anywhere, || (Sim::cpu(), Sim::now())).unwrap();
            let newcomer = other.join();
            holder.join();
            newcomer.join();
            waiter.join()
        };
        let run = machine("host-2c", 1).run(program).unwrap();
        (run.value, run.report.preemptions)
    };
    let ((cpu, began), preemptions) = switches(END_OF_SECTION);
    assert_eq!((cpu, preemptions), (CpuId::new(1), 1));
    let mut left = 0;
    for nanos in (0..20_000).step_by(250) {
        let leaves = Time::from_nanos(began.as_nanos() - nanos);
        let ((cpu, _), preemptions) = switches(leaves);
        let is_elsewhere = cpu == CpuId::new(0);
        left += u32::from(is_elsewhere);
        assert!(!is_elsewhere || preemptions == 0, "{preemptions} at {leaves:?}");
    }
    assert!(left > 3, "{left}");
}
