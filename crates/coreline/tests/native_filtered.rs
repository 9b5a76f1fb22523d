//! The native world in a sandbox that refuses system calls it would like to make, or answers in the
//! kernel's place.
#![cfg(all(target_os = "linux", not(feature = "portable")))]

#[path = "native/filter.rs"]
mod filter;
#[path = "native/os.rs"]
mod os;

use core::alloc::Layout;
use core::convert::Infallible;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering};
use std::panic;
use std::sync::Barrier;

use coreline::cid::{CidError, CidLayout, CidSpace, Clustered, FirstFit, Owned, Policy, Recent};
use coreline::counter::{Max, PerCpuFold};
use coreline::object::ObjectCache;
use coreline::percpu::{PerCpuPool, PoolOptions, Word64};
use coreline::{CounterSet, IndexBy, PerCpu, PerCpuCounter};
use coreline_topology::{CpuId, CpuSet, NodeId, Shape, Topology};
use coreline_world::native::{self, NoSections, SelfTestError};
use coreline_world::{
    Extended, Fences, Kick, Memory, Native, Place, Placement, Signals, Sleep, SliceExtension,
    SpawnError, Threads, Time,
};
use filter::{answer, in_a_child, in_a_child_with, limit, refuse};
use os::run_on;

fn add_from_threads(words: &PerCpu<Word64>) {
    add_from_threads_to(words, 40_000);
}

fn add_from_threads_to(words: &PerCpu<Word64>, sum: u64) {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|_| words.add(1)));
        }
    });
    assert_eq!(words.sum(), sum);
}

#[test]
fn without_membarrier_both_fences_are_full() {
    in_a_child("without_membarrier_both_fences_are_full", || {
        refuse(libc::SYS_membarrier);
        let machine = native::probe();
        assert!(machine.membarrier.is_empty());
        assert!(!machine.asymmetric_fences && !machine.restartable_fence);
        Native::fence_light();
        Native::fence_all();
        match (machine.sections, Native::fence_restartable()) {
            (Ok(()), Err(lacking)) => assert!(lacking.to_string().contains("membarrier")),
            (Err(_), Ok(())) => {}
            (sections, fenced) => panic!("{sections:?} and yet {fenced:?}"),
        }
    });
}

/// No CPU keeps memory that a fence would have to take back.
#[test]
fn without_membarrier_the_memory_of_discarded_objects_is_freed() {
    in_a_child("without_membarrier_the_memory_of_discarded_objects_is_freed", || {
        refuse(libc::SYS_membarrier);
        let cache =
            ObjectCache::<u64>::builder("unfenced").build(|| Ok::<_, Infallible>(7)).unwrap();
        let before = cache.stats().bytes;
        cache.get().unwrap().discard();
        assert!(cache.stats().bytes > before + 4096);
        cache.shrink();
        // The parts of CPUs stay.
        assert!(cache.stats().bytes < before + 4096, "{}", cache.stats());
    });
}

/// A filter that has every `membarrier` succeed, and fences nothing.
#[test]
fn membarrier_that_only_says_yes_is_not_believed() {
    in_a_child("membarrier_that_only_says_yes_is_not_believed", || {
        answer(libc::SYS_membarrier, None, 0);
        let machine = native::probe();
        assert!(!machine.asymmetric_fences && !machine.restartable_fence, "{machine:?}");
        assert_eq!(Native::try_fence_all(), Ok(()), "both fences are full");
        assert_eq!(Native::fence_restartable().is_ok(), machine.sections.is_err());
    });
}

/// The names of threads tell lock holders apart, so no source that may refuse or lie gives them.
#[test]
fn threads_have_names_of_their_own_whatever_the_kernel_says() {
    in_a_child("threads_have_names_of_their_own_whatever_the_kernel_says", || {
        let mine = Native::thread_id();
        for error in [0, libc::EPERM] {
            answer(libc::SYS_gettid, None, error);
            let all_named = Barrier::new(4);
            let name = || {
                let name = Native::thread_id();
                // Of threads that all live.
                all_named.wait();
                assert_eq!(Native::thread_id(), name);
                name
            };
            let mut names: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(name)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(Native::thread_id(), mine, "a thread keeps its name");
            names.push(mine);
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), 5, "threads share a name: {names:?}");
        }
    });
}

#[test]
fn membarrier_that_goes_away_is_not_ignored() {
    in_a_child("membarrier_that_goes_away_is_not_ignored", || {
        Native::fence_light();
        if !native::probe().asymmetric_fences {
            return;
        }
        refuse(libc::SYS_membarrier);
        let lacking = Native::try_fence_all().unwrap_err().to_string();
        assert!(lacking.contains("membarrier") && lacking.contains("filter"), "{lacking}");
        let fenced = panic::catch_unwind(Native::fence_all);
        let message = fenced.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("membarrier"), "{message}");
    });
}

/// The kernel has no interrupt for one CPU, and then none for any.
#[test]
fn a_kick_that_is_refused_is_a_fence_of_all_cpus() {
    in_a_child("a_kick_that_is_refused_is_a_fence_of_all_cpus", || {
        let cpu = Native::cpu();
        let kicks_as_it_fences = || match (Native::kick(cpu), Native::fence_restartable()) {
            (Ok(()), Ok(())) => true,
            (Err(kick), Err(fence)) => {
                assert_eq!(kick, fence);
                false
            }
            (kicked, fenced) => panic!("{kicked:?} and yet {fenced:?}"),
        };
        let before = kicks_as_it_fences();
        // The second argument is the flags.
        answer(libc::SYS_membarrier, Some(1), libc::EPERM);
        assert_eq!(kicks_as_it_fences(), before);
        refuse(libc::SYS_membarrier);
        let machine = native::probe();
        let by_membarrier = machine.asymmetric_fences || machine.sections.is_ok();
        assert_eq!(kicks_as_it_fences(), !by_membarrier);
    });
}

/// A thread asks for slice extensions only if it can make both calls. (On a kernel without them,
/// nothing changes here. The unit tests of `extension` have such threads.)
#[test]
fn without_a_call_that_they_need_there_are_no_slice_extensions() {
    in_a_child("without_a_call_that_they_need_there_are_no_slice_extensions", || {
        const SLICE_YIELD: libc::c_long = 471;
        // A thread that asks first, and one that enables first.
        let lacking = || {
            let asked =
                std::thread::spawn(|| (Native::request_extension(), Native::end_extension()));
            let enabled = std::thread::spawn(Native::enable_extension).join().unwrap();
            let (asked, outcome) = asked.join().unwrap();
            assert_eq!((asked, outcome != Extended::Off), (enabled.is_ok(), enabled.is_ok()));
            enabled.err().map(|lacking| lacking.to_string())
        };
        let before = lacking();
        answer(SLICE_YIELD, None, libc::ENOSYS);
        let after = lacking().expect("a thread that could not give way");
        assert!(before.is_some() || after.contains("rseq_slice_yield is refused"), "{after}");
        refuse(libc::SYS_prctl);
        let after = lacking().expect("a thread whose prctl is refused");
        assert!(before.is_some() || after.contains("prctl refused them"), "{after}");
    });
}

/// The C library registers nothing, and we may not.
#[test]
fn without_rseq_operations_are_atomic() {
    let tunables = Some("glibc.pthread.rseq=0");
    in_a_child_with("without_rseq_operations_are_atomic", tunables, || {
        refuse(libc::SYS_rseq);
        let words = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
        assert!(!words.section().is_rseq());
        add_from_threads(&words);
        let machine = native::probe();
        assert_eq!((machine.registered_by, machine.rseq_abi), (None, None));
        match machine.sections {
            Err(NoSections::Refused(error)) => assert_eq!(error, libc::EPERM),
            Err(NoSections::SwitchedOff) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(Native::kernel_cid(), None);
        assert!(PerCpu::<Word64>::words(IndexBy::KernelCid).is_err());
        assert!(Native::cpu().index() < Native::topology().cpu_limit());
    });
}

/// A filter that comes after the choice: threads that register later are refused, or told that they
/// are registered though they are not, and use the shared word; those that are registered go on.
fn add_where_rseq_is_answered(error: libc::c_int) {
    let words = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
    words.add(1);
    if !words.section().is_rseq() {
        return;
    }
    answer(libc::SYS_rseq, None, error);
    words.add(1);
    assert_eq!(words.shared().load(Ordering::Relaxed), 0);
    add_from_threads_to(&words, 40_002);
    assert_eq!(words.shared().load(Ordering::Relaxed), 40_000);
}

#[test]
fn a_thread_that_is_refused_later_is_not_lost() {
    let tunables = Some("glibc.pthread.rseq=0");
    in_a_child_with("a_thread_that_is_refused_later_is_not_lost", tunables, || {
        add_where_rseq_is_answered(libc::EPERM);
    });
}

#[test]
fn a_thread_that_is_deceived_later_is_not_lost() {
    let tunables = Some("glibc.pthread.rseq=0");
    in_a_child_with("a_thread_that_is_deceived_later_is_not_lost", tunables, || {
        add_where_rseq_is_answered(0);
    });
}

/// The self-test cannot be run, so nothing is known, so operations run on atomics; the index that
/// was asked for stays what it is.
#[test]
fn without_affinity_operations_are_atomic() {
    in_a_child("without_affinity_operations_are_atomic", || {
        refuse(libc::SYS_sched_setaffinity);
        let by_cpu = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
        assert!(!by_cpu.section().is_rseq());
        add_from_threads(&by_cpu);
        let sections = native::probe().sections;
        let why = matches!(
            sections,
            Err(NoSections::SelfTest(SelfTestError::NotRun { .. }) | NoSections::SwitchedOff)
        );
        assert!(why, "{sections:?}");
        if Native::kernel_cid().is_some() {
            let by_cid = PerCpu::<Word64>::words(IndexBy::KernelCid).unwrap();
            assert_eq!(by_cid.section().index_by(), IndexBy::KernelCid);
            by_cid.add(1);
            let shared = || by_cid.shared().load(Ordering::Relaxed);
            assert_eq!(shared(), 0, "no other thread makes slots");
            // While one thread makes slots, others do not wait for it but add to the shared one.
            add_from_threads_to(&by_cid, 40_001);
            assert!(shared() < 40_000, "{}", shared());
        }
        let placed = Native::spawn(Placement::On(Native::cpu()), || ());
        assert!(matches!(placed, Err(SpawnError::Cpu { .. })));
    });
}

fn child_has_another_generation() -> bool {
    let ours = Native::generation();
    os::in_a_fork(|| u8::from(Native::generation() != ours)) == 1
}

/// The kernel wipes no pages at a fork, so processes are told apart by their numbers; and a handler
/// in which the first operation of a process runs does not change the error that was about to be
/// read.
#[test]
fn without_wiped_pages_a_child_has_another_generation() {
    in_a_child("without_wiped_pages_a_child_has_another_generation", || {
        refuse(libc::SYS_madvise);
        // SAFETY: the word is the thread's own.
        let ours = unsafe {
            *libc::__errno_location() = libc::EXDEV;
            let ours = Native::generation();
            assert_eq!(*libc::__errno_location(), libc::EXDEV);
            ours
        };
        assert_eq!(ours.get(), std::process::id());
        assert_eq!(Native::generation(), ours);
        assert!(child_has_another_generation(), "the child has its parent's generation");
    });
}

/// Advice that a filter, or an emulator, swallows with a success: what was to be wiped is not, and
/// would give a child its parent's generation, so it would wait for lock holders that it lacks.
#[test]
fn advice_that_only_says_yes_is_not_believed() {
    in_a_child("advice_that_only_says_yes_is_not_believed", || {
        answer(libc::SYS_madvise, None, 0);
        assert!(child_has_another_generation(), "the child has its parent's generation");
    });
}

/// What is async-signal-safe may run between a call that fails and the look at its error.
#[test]
fn what_handlers_may_do_leaves_the_error_number_alone() {
    in_a_child("what_handlers_may_do_leaves_the_error_number_alone", || {
        const PAGE: Layout = Layout::new::<[u8; 4096]>();
        let keeps = |what: &str, f: &mut dyn FnMut()| {
            // SAFETY: the word is the thread's own.
            unsafe {
                *libc::__errno_location() = libc::EXDEV;
                f();
                assert_eq!(*libc::__errno_location(), libc::EXDEV, "{what}");
            }
        };
        let mut page = None;
        keeps("map", &mut || page = Native::map(PAGE).ok());
        let page = page.unwrap();
        let word = AtomicU32::new(0);
        // A sandbox that comes later.
        for call in [libc::SYS_mbind, libc::SYS_madvise, libc::SYS_sched_yield] {
            refuse(call);
        }
        // SAFETY: the memory is a page of `map`, unused.
        unsafe {
            keeps("place", &mut || drop(Native::place(page, PAGE.size(), NodeId::new(0))));
            keeps("advise_huge", &mut || drop(Native::advise_huge(page, PAGE.size())));
        }
        // Not under a filter: the test's runner needs to be woken. The kernel refuses what is not
        // aligned, too.
        let astray = (&raw const word).wrapping_byte_add(1);
        keeps("wake", &mut || assert_eq!(Native::wake(astray, 1), 0));
        keeps("yield_now", &mut Native::yield_now);
        keeps("hold", &mut || drop(Native::hold()));
        refuse(libc::SYS_rt_sigprocmask);
        keeps("hold", &mut || drop(Native::hold()));
        refuse(libc::SYS_munmap);
        // SAFETY: the memory is the page of `map`, unused.
        keeps("unmap", &mut || unsafe { Native::unmap(page, PAGE) });
        let too_much = Layout::from_size_align(1 << 62, 1).unwrap();
        keeps("map", &mut || assert!(Native::map(too_much).is_err()));
    });
}

/// The kernel maps no more memory for this process; returns how much it might map before.
fn limit_memory(most: u64) -> u64 {
    limit(libc::RLIMIT_AS, most)
}

/// What cannot have slots stays compact, says why, and has them when there is memory again.
#[test]
fn counters_get_slots_when_there_is_memory_again() {
    in_a_child("counters_get_slots_when_there_is_memory_again", || {
        // Not the global pool: another one has no memory yet.
        let pool = PerCpuPool::new(PoolOptions::new()).unwrap();
        let counter = PerCpuCounter::from_pool(&pool);
        let batched = PerCpuCounter::from_pool(&pool).batched(16);
        let set = CounterSet::<4>::from_pool(&pool);
        let longest = PerCpuFold::<Max<u64>>::from_pool(&pool);
        let add = |times: u32| {
            for _ in 0..times {
                counter.add(1);
                batched.add(1);
                set.add(3, 1);
                longest.record(u64::from(times));
            }
        };
        let spread =
            || [counter.is_spread(), batched.is_spread(), set.is_spread(), longest.is_spread()];
        let before = limit_memory(1);
        // Two tries each. Nothing here uses the global allocator.
        add(1000);
        let under_the_limit = spread();
        limit_memory(before);
        assert_eq!(under_the_limit, [false; 4]);
        for text in [format!("{counter:?}"), format!("{set:?}"), format!("{longest:?}")] {
            assert!(text.contains("compact: no memory, tries again"), "{text}");
        }
        add(2000);
        assert_eq!(spread(), [true; 4], "{counter:?}");
        assert_eq!((counter.read_exact(), batched.read_exact()), (3000, 3000));
        assert_eq!((set.read_exact(), longest.read()), ([0, 0, 0, 3000], 2000));
    });
}

/// A layout of 384 CPUs, and a line of rows that no space of the process has used.
struct Rows(Topology, Range<u32>);

impl Rows {
    /// CPUs in two such lines.
    fn fresh(&mut self) -> [CpuId; 2] {
        [(); 2].map(|()| CpuId::new(16 * self.1.next().unwrap()))
    }

    /// Switches are refused on a CPU without a row, and tasks move there without an ID.
    fn switch_without<P: Policy>(&mut self, allows_all: bool) {
        let space = CidSpace::<P>::new(&CidLayout::new(&self.0).unwrap());
        let [near, far] = self.fresh();
        let allowed = if allows_all { "0-383".parse().unwrap() } else { CpuSet::from_iter([near]) };
        let tasks = [(); 2].map(|()| space.user_enter(&allowed).unwrap());
        let now = Time::from_nanos(0);
        space.switch_in(now, near, &tasks[0]).unwrap();
        let bounds = space.bounds(far);
        let before = limit_memory(1);
        let refused = space.switch_in(now, far, &tasks[1]);
        let unchanged = space.bounds(far) == bounds;
        space.switch_out(now, near, &tasks[0]);
        let moved = space.migrate(now, &tasks[0], near, far);
        let still = space.switch_in(now, far, &tasks[0]);
        limit_memory(before);
        let no_memory = Err(CidError::NoMemory { cpu: far });
        assert_eq!((refused, moved, still), (no_memory, Ok(()), no_memory), "{}", P::NAME);
        assert!(unchanged, "{}: {bounds:?}", P::NAME);
        // No ID is lost, and none is given to two tasks.
        let again = [(near, &tasks[1]), (far, &tasks[0])];
        let cids = again.map(|(cpu, task)| space.switch_in(now, cpu, task).unwrap());
        assert_ne!(cids[0], cids[1], "{}", P::NAME);
        assert_eq!(space.taken().count(), 2, "{}: {cids:?}", P::NAME);
    }

    /// Uses are refused on a CPU without a row.
    fn use_without(&mut self) {
        let space = CidSpace::<Recent>::new(&CidLayout::new(&self.0).unwrap());
        let [cpu, _] = self.fresh();
        let before = limit_memory(1);
        let refused = space.use_at(cpu);
        limit_memory(before);
        assert_eq!(refused, Err(CidError::NoMemory { cpu }));
        assert_eq!((space.used_at(cpu), space.taken().count()), (None, 0));
        assert_eq!(space.bounds(cpu), Ok(0..0), "the CPU is not allowed by a use that was refused");
        let cid = space.use_at(cpu).unwrap();
        assert_eq!((space.used_at(cpu), space.taken().count()), (Some(cid), 1));
    }
}

#[test]
fn without_memory_for_a_row_no_id_is_lost() {
    in_a_child("without_memory_for_a_row_no_id_is_lost", || {
        let shape = Shape {
            sockets: 2,
            caches_per_node: 12,
            cores_per_cache: 8,
            threads_per_core: 2,
            ..Shape::default()
        };
        let mut rows = Rows(Topology::uniform(shape).unwrap(), 0..24);
        for allows_all in [false, true] {
            rows.switch_without::<FirstFit>(allows_all);
            rows.switch_without::<Recent>(allows_all);
            rows.switch_without::<Owned>(allows_all);
            rows.switch_without::<Clustered>(allows_all);
        }
        rows.use_without();
    });
}

/// C libraries do not agree on the call that opens a file.
fn refuse_files() {
    refuse(libc::SYS_openat);
    #[cfg(target_arch = "x86_64")]
    refuse(libc::SYS_open);
}

/// What the first caller may use is no measure of the machine: each CPU on which a thread runs
/// later has a number below the limit, and a slot.
#[test]
fn without_sysfs_every_cpu_is_below_the_limit() {
    in_a_child("without_sysfs_every_cpu_is_below_the_limit", || {
        // The CPU of the lowest number, so that no smaller limit could be guessed.
        assert!((0..1024).any(run_on));
        refuse_files();
        let words = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
        let limit = Native::topology().cpu_limit();
        for cpu in (0..1024).filter(|&cpu| run_on(cpu)) {
            assert_eq!(Native::cpu().index(), cpu);
            assert!(cpu < limit, "a thread runs on CPU {cpu}, and the limit is {limit}");
            words.add(1);
            assert_eq!(words.shared().load(Ordering::Relaxed), 0, "CPU {cpu} has no slot");
        }
    });
}

/// Nor is what the C library makes of it where the kernel may not say which CPUs there are.
#[test]
fn without_sysfs_and_affinity_every_cpu_is_below_the_limit() {
    in_a_child("without_sysfs_and_affinity_every_cpu_is_below_the_limit", || {
        assert!((0..1024).any(run_on));
        refuse_files();
        answer(libc::SYS_sched_getaffinity, None, 0);
        let limit = Native::topology().cpu_limit();
        for cpu in (0..1024).filter(|&cpu| run_on(cpu)) {
            assert_eq!(Native::cpu().index(), cpu);
            assert!(cpu < limit, "a thread runs on CPU {cpu}, and the limit is {limit}");
        }
    });
}
