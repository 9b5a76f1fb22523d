//! What a core that idled for long lost, and what the first write to a page costs.

use core::alloc::Layout;
use std::time::Duration;

use coreline_sim::{Sim, Spec};
use coreline_world::{Clock, JoinHandle, Line, Memory, Ordering, Threads, Word, Work};

use crate::common::{U64, machine, on};

/// As far apart as pages.
#[repr(align(4096))]
struct Apart(U64);

/// A cost of the machine, in nanoseconds.
fn cost(of: impl Fn(&coreline_sim::Costs) -> u64) -> u64 {
    of(Spec::preset("epyc-9654-2s").unwrap().costs()) / 1000
}

/// The nanoseconds of one load of each word.
fn loads(words: &[U64]) -> u64 {
    let start = Sim::now();
    words.iter().for_each(|word| _ = word.load(Ordering::Relaxed));
    (Sim::now() - start).as_nanos() as u64
}

/// The nanoseconds of a load that follows another one of the same word on the CPU 8, with `between`
/// run between them.
fn load_after(between: impl FnOnce() + Send + 'static) -> u64 {
    let run = machine("epyc-9654-2s", 3).run(|| {
        on(8, move || {
            let word = [U64::new_in(0)];
            loads(&word);
            between();
            loads(&word)
        })
        .join()
    });
    run.unwrap().value
}

#[test]
fn a_core_that_idles_for_long_finds_its_lines_in_the_last_level_cache() {
    let flush = Duration::from_nanos(cost(|costs| costs.idle_flush));
    let [hit, clock] = [cost(|costs| costs.private_hit), cost(|costs| costs.clock)];
    let [walk, cold] = [cost(|costs| costs.page_walk), cost(|costs| costs.cache_hit)];
    // Two looks at the clock, of which one lies between the others.
    let warm = hit + clock + 2;
    assert!(load_after(|| ()) <= warm);
    assert!(load_after(move || Sim::sleep(flush / 2)) <= warm);
    assert!(load_after(move || Sim::work(flush * 2)) <= warm, "computing is no idleness");
    let after = load_after(move || Sim::sleep(flush * 2));
    let expected = walk + cold + clock;
    assert!((expected * 8 / 10..=expected * 12 / 10).contains(&after), "{after}, not {expected}");
}

#[test]
fn a_core_whose_other_thread_runs_loses_nothing() {
    let flush = Duration::from_nanos(cost(|costs| costs.idle_flush));
    let warm = cost(|costs| costs.private_hit + costs.clock) + 2;
    // CPU 200 is the other hardware thread of CPU 8's core.
    let busy = load_after(move || {
        let sibling = on(200, move || Sim::work(flush * 4));
        Sim::sleep(flush * 2);
        // Not joined: that would be a sleep, too.
        drop(sibling);
    });
    assert!(busy <= warm, "{busy}");
}

#[test]
fn a_page_is_walked_once_after_its_core_idled() {
    let flush = Duration::from_nanos(cost(|costs| costs.idle_flush));
    let run = machine("epyc-9654-2s", 3).run(move || {
        on(8, move || {
            let words: Vec<_> = (0..192).map(|_| Line(U64::new_in(0))).collect();
            let pass = || {
                let start = Sim::now();
                words.iter().for_each(|word| _ = word.load(Ordering::Relaxed));
                (Sim::now() - start).as_nanos() as u64
            };
            pass();
            Sim::sleep(flush * 2);
            (pass(), pass())
        })
        .join()
    });
    let (cold, warm) = run.unwrap().value;
    let [walk, line] = [cost(|costs| costs.page_walk), cost(|costs| costs.cache_hit)];
    // 192 lines on three pages or four.
    let least = 192 * line * 9 / 10 + 3 * walk;
    assert!((least..least * 13 / 10).contains(&cold), "{cold}, at least {least}");
    assert!(warm < cold / 5, "{warm} after {cold}");
}

#[test]
fn the_first_write_to_a_page_is_a_fault_and_no_read_is() {
    let [fault, visit] = [cost(|costs| costs.first_write), cost(|costs| costs.first_write_visit)];
    let others = 20;
    let run = machine("epyc-9654-2s", 3).run(move || {
        // They ran, and are idle.
        (40..40 + others).for_each(|cpu| on(cpu, || ()).join());
        on(8, || {
            let layout = Layout::new::<[Apart; 2]>();
            let memory = Sim::map_copy_on_write(layout).unwrap();
            // SAFETY: zeroed and aligned memory of this type, which is unmapped last.
            let words = unsafe { memory.cast::<[Apart; 2]>().as_ref() };
            let timed = |f: &dyn Fn()| {
                let start = Sim::now();
                f();
                (Sim::now() - start).as_nanos() as u64
            };
            let write = |page: usize| timed(&|| _ = words[page].0.swap(1, Ordering::Relaxed));
            let read = timed(&|| _ = words[0].0.load(Ordering::Relaxed));
            // Its line is this core's alone now, and the page is as it was.
            let times = [read, write(0), write(0), write(1), write(1)];
            // SAFETY: mapped so, and no reference is used any more.
            unsafe { Sim::unmap(memory, layout) };
            times
        })
        .join()
    });
    let [read, first, second, elsewhere, again] = run.unwrap().value;
    let memory = cost(|costs| costs.memory_remote) + 50;
    assert!(read < memory, "{read}");
    assert!(second < 100 && again < 100, "{second} {again}");
    let least = fault + u64::from(others) * visit;
    assert!((least..least + memory + 3 * visit).contains(&first), "{first}, at least {least}");
    // No CPU has switched since but those that did nothing.
    assert!((fault..least + memory).contains(&elsewhere), "{elsewhere}, at least {fault}");
}

#[test]
fn what_is_no_whole_page_cannot_be_copied_on_write() {
    let run = machine("host-2c", 3).run(|| {
        let error = Sim::map_copy_on_write(Layout::new::<[u64; 9]>()).unwrap_err();
        error.to_string()
    });
    let error = run.unwrap().value;
    assert!(error.contains("whole pages"), "{error}");
}
