//! Slice extensions: when a slice is extended, for how long, and what takes the extension back.

use std::time::Duration;

use coreline_sim::{Faults, Machine, Replay, Sim};
use coreline_world::{
    Clock, Extended, Integer, JoinHandle, Ordering, Parked, Signals, Sleep, SliceExtension, Word,
    Work,
};

use crate::common::{U32, machine, on};

/// Two threads of one CPU run sections of this length for `rounds`; the outcomes of both, by
/// [`Extended`].
fn sections(section: Duration, rounds: u32, in_section: fn()) -> [u32; 4] {
    let part = move || {
        Sim::enable_extension().unwrap();
        let mut outcomes = [0; 4];
        for _ in 0..rounds {
            Sim::request_extension();
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
    // The call comes at the end of the section. So it meets all extensions but those of slices that
    // end during the call.
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
        assert!(lost > 5 && lost > 3 * yielded, "{call}: {yielded} yielded, {lost} lost");
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
            Sim::request_extension();
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
