//! Laws of slice extensions.

use core::time::Duration;
use std::sync::Arc;

use super::{rounds, spawn};
use crate::{Extended, Integer, JoinHandle, Ordering, Placement, Testbed, Word};

/// Checks that requests are made exactly if the thread can have extensions, even if its first
/// request comes before [`enable_extension`](crate::SliceExtension::enable_extension).
pub fn requests_are_made_where_there_are_extensions<W: Testbed>() {
    let section = || {
        let asked = W::request_extension();
        assert_eq!(W::end_extension() != Extended::Off, asked);
        asked
    };
    let other = spawn::<W, _>(section);
    let enabled = W::enable_extension();
    if let Err(lacking) = &enabled {
        assert_eq!(lacking.world, W::NAME);
    }
    assert_eq!(section(), enabled.is_ok());
    assert_eq!(other.join(), enabled.is_ok());
}

/// Checks that only the outermost section makes a request, and that the request ends once. A second
/// end must find no extension, and must not give up the CPU.
pub fn only_the_outermost_section_asks<W: Testbed>() {
    let is_enabled = W::enable_extension().is_ok();
    let mut inner = 0;
    for _ in 0..rounds::<W>() {
        assert_eq!(W::request_extension(), is_enabled);
        // A section that has lost its request is not the outermost one.
        inner += u32::from(W::request_extension());
        assert_eq!(W::end_extension() == Extended::Off, !is_enabled);
        assert!(matches!(W::end_extension(), Extended::Off | Extended::Lost));
    }
    assert!(inner <= rounds::<W>() / 2, "{inner} of {} inner sections asked", rounds::<W>());
}

/// Checks that threads with extensions on one CPU all end their sections, that each section has one
/// outcome, and that no update of the data that they guard is lost.
pub fn sections_end_on_a_crowded_cpu<W: Testbed>() {
    let sections = if W::RUNS { 300 } else { 1 };
    let cpu = W::cpu();
    let turns = Arc::new(W::U32::new_in(0));
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let turns = Arc::clone(&turns);
            let part = move || {
                let is_enabled = W::enable_extension().is_ok();
                let mut outcomes = [0; 4];
                for _ in 0..sections {
                    W::request_extension();
                    W::work(Duration::from_micros(10));
                    // Relaxed: a count.
                    turns.fetch_add(1, Ordering::Relaxed);
                    outcomes[W::end_extension() as usize] += 1;
                }
                let off = outcomes[Extended::Off as usize];
                assert_eq!(off, if is_enabled { 0 } else { sections }, "{outcomes:?}");
                outcomes.iter().sum::<u32>()
            };
            W::spawn(Placement::On(cpu), part).expect("a world has room for two threads")
        })
        .collect();
    let ended: u32 = threads.into_iter().map(JoinHandle::join).sum();
    // Relaxed: all threads have been joined.
    assert_eq!((ended, turns.load(Ordering::Relaxed)), (2 * sections, 2 * sections));
}
