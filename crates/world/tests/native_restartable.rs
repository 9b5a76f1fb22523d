//! Restartable operations on the real machine, disturbed in every way that a program can arrange.
#![cfg(target_os = "linux")]

use core::ffi::c_int;
use core::mem;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use coreline_world::{IndexBy, Native, PerCpuWords, native};

const WORKERS: usize = 8;
const ADDS_MIN: u64 = 200_000;
const ROUNDS: usize = 200;

/// What the signal handler adds to.
static WORDS: AtomicPtr<PerCpuWords<Native>> = AtomicPtr::new(core::ptr::null_mut());
/// How often the signal handler added.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// The handler is the process's: one test at a time.
static HANDLER: Mutex<()> = Mutex::new(());

/// Adds to the memory that the interrupted thread adds to, as a profiler's handler would.
extern "C" fn on_signal(_signal: c_int) {
    // Acquire pairs with the release that published the memory.
    let words = WORDS.load(Ordering::Acquire);
    // SAFETY: the memory outlives the threads that signals are sent to.
    unsafe { &*words }.add(1);
    // Relaxed: joining the threads orders this before the count is read.
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn handle_signals() {
    // SAFETY: the handler is async-signal-safe: a restartable operation and relaxed atomics.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, core::ptr::null_mut()), 0);
    }
}

/// A thread to disturb, by its number.
struct Victim(libc::pid_t);

impl Victim {
    fn me() -> Self {
        // SAFETY: asks for a number.
        Victim(unsafe { libc::gettid() })
    }

    fn signal(&self) {
        // SAFETY: the thread runs until it is told to stop, so its number is its own.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGUSR1) };
    }

    /// Moves the thread to this CPU, wherever it stands.
    fn migrate(&self, cpu: usize) {
        // SAFETY: the set is live, and zeros are the empty one. The kernel checks the rest.
        unsafe {
            let mut set: libc::cpu_set_t = mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(self.0, mem::size_of_val(&set), &raw const set);
        }
    }
}

fn nothing_is_lost(by: IndexBy) {
    let _one_at_a_time = HANDLER.lock().unwrap();
    let Ok(mut words) = PerCpuWords::<Native>::new_in(by) else {
        return;
    };
    let allowed: Vec<usize> =
        native::probe().allowed.unwrap().iter().map(coreline_topology::CpuId::index).collect();
    // Release pairs with the handler's acquire.
    WORDS.store(&raw mut words, Ordering::Release);
    HANDLED.store(0, Ordering::Relaxed);
    handle_signals();
    let (over, (register, victims)) = (AtomicBool::new(false), mpsc::channel());
    let added: u64 = thread::scope(|scope| {
        let words = &words;
        let over = &over;
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let register = register.clone();
                scope.spawn(move || {
                    register.send(Victim::me()).unwrap();
                    let mut added = 0;
                    // Relaxed: carries nothing but itself.
                    while added < ADDS_MIN || !over.load(Ordering::Relaxed) {
                        for _ in 0..1_000 {
                            words.add(2);
                        }
                        added += 1_000;
                    }
                    2 * added
                })
            })
            .collect();
        let victims: Vec<Victim> = victims.iter().take(WORKERS).collect();
        for round in 0..ROUNDS {
            for (number, victim) in victims.iter().enumerate() {
                victim.signal();
                victim.migrate(allowed[(round + number) % allowed.len()]);
            }
            thread::sleep(Duration::from_micros(50));
        }
        over.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let handled = HANDLED.load(Ordering::Relaxed);
    assert!(handled > 0, "no signal was handled");
    assert_eq!(words.sum(), added + handled, "{by}: {handled} of them in handlers");
}

#[test]
fn signals_and_migrations_lose_nothing_by_cpu() {
    nothing_is_lost(IndexBy::Cpu);
}

#[test]
fn signals_and_migrations_lose_nothing_by_cid() {
    nothing_is_lost(IndexBy::KernelCid);
}
