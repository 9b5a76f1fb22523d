//! The native world in a sandbox that refuses system calls it would like to make.
//!
//! A filter stays with its process, so each case is a process: this program again, with one test
//! asked for and [`CHILD`] set.
#![cfg(target_os = "linux")]

use core::sync::atomic::Ordering;
use std::env;
use std::panic;
use std::process::Command;

use coreline::percpu::Word64;
use coreline::{IndexBy, PerCpu};
use coreline_world::native::{self, NoSections, SelfTestError};
use coreline_world::{Fences, Native, Place, Placement, Signals, SpawnError, Threads};

const CHILD: &str = "CORELINE_TEST_CHILD";

/// Runs the test of this name again as a child, unless this is the child.
fn in_a_child(test: &str, body: fn()) {
    in_a_child_with(test, None, body);
}

/// Runs the test of this name again as a child, with `GLIBC_TUNABLES` set, unless this is the
/// child.
fn in_a_child_with(test: &str, tunables: Option<&str>, body: fn()) {
    if env::var_os(CHILD).is_some() {
        return body();
    }
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test])
        .env(CHILD, "1")
        .envs(tunables.map(|value| ("GLIBC_TUNABLES", value)))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("1 passed"), "{text}");
}

/// From here on, the kernel refuses this call to the calling thread and the threads that it starts.
fn refuse(call: libc::c_long) {
    let statement =
        |code: u32, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let is_call = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        // The call's number is the first word of what a filter is shown.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        statement(is_call, 1, u32::try_from(call).unwrap()),
        statement(answer, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
        statement(answer, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its statements are live, and the kernel copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program, 0, 0), 0);
    }
}

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

/// A filter that comes after the choice: threads that register later are refused, and use the
/// shared word; those that are registered go on.
#[test]
fn a_thread_that_is_refused_later_is_not_lost() {
    let tunables = Some("glibc.pthread.rseq=0");
    in_a_child_with("a_thread_that_is_refused_later_is_not_lost", tunables, || {
        let words = PerCpu::<Word64>::words(IndexBy::Cpu).unwrap();
        words.add(1);
        if !words.section().is_rseq() {
            return;
        }
        refuse(libc::SYS_rseq);
        words.add(1);
        assert_eq!(words.shared().load(Ordering::Relaxed), 0);
        add_from_threads_to(&words, 40_002);
        assert_eq!(words.shared().load(Ordering::Relaxed), 40_000);
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

/// The kernel wipes no pages at a fork, so processes are told apart by their numbers; and a handler
/// in which the first operation of a process runs does not change the error that was about to be
/// read.
#[test]
fn without_wiped_pages_a_child_has_another_generation() {
    in_a_child("without_wiped_pages_a_child_has_another_generation", || {
        refuse(libc::SYS_madvise);
        // SAFETY: the word is the thread's own; the child leaves without unwinding.
        unsafe {
            *libc::__errno_location() = libc::EXDEV;
            let ours = Native::generation();
            assert_eq!(*libc::__errno_location(), libc::EXDEV);
            assert_eq!(ours.get(), libc::getpid().cast_unsigned());
            assert_eq!(Native::generation(), ours);
            let child = libc::fork();
            if child == 0 {
                libc::_exit(i32::from(Native::generation() == ours));
            }
            let mut status = -1;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(status, 0, "the child has its parent's generation");
        }
    });
}

/// Has the calling thread run on this CPU; false if it may not.
fn run_on(cpu: usize) -> bool {
    // SAFETY: the set is live and of the size given, and zeros are the empty one.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
    }
}

/// What the first caller may use is no measure of the machine: each CPU on which a thread runs
/// later has a number below the limit, and a slot.
#[test]
fn without_sysfs_every_cpu_is_below_the_limit() {
    in_a_child("without_sysfs_every_cpu_is_below_the_limit", || {
        // The CPU of the lowest number, so that no smaller limit could be guessed.
        assert!((0..1024).any(run_on));
        refuse(libc::SYS_openat);
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
