//! The functions of the operating system that the native world lacks: rivals, and clocks.

use std::cell::UnsafeCell;
use std::fs;
use std::ptr;
use std::sync::atomic::AtomicU32;

use coreline_topology::CpuId;
use coreline_world::native;

/// The CPU that runs the caller, as the C library says.
#[inline]
pub(crate) fn sched_getcpu() -> u32 {
    // SAFETY: it takes no pointer, and only returns a number.
    unsafe { libc::sched_getcpu() }.cast_unsigned()
}

/// The time for which the calling thread has run, in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The time for which all threads of this process have run together, in nanoseconds.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is live; the call writes nothing else. It cannot fail: every kernel has
    // these clocks, for the caller in any case.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The time for which each of these CPUs has been busy, in nanoseconds, rounded to ticks.
///
/// `None` where the kernel does not say.
pub(crate) fn busy_ns(cpus: &[CpuId]) -> Option<Vec<u64>> {
    busy(&fs::read_to_string("/proc/stat").ok()?, cpus)
}

fn busy(stat: &str, cpus: &[CpuId]) -> Option<Vec<u64>> {
    let of = |cpu: &CpuId| {
        let name = format!("cpu{}", cpu.get());
        let mut lines = stat.lines().map(str::split_ascii_whitespace);
        let figures = lines.find_map(|mut line| (line.next()? == name).then_some(line))?;
        let figures: Vec<u64> = figures.map(str::parse).collect::<Result<_, _>>().ok()?;
        // User, nice, system, idle, waiting for disks, interrupts twice, stolen; the rest, guests',
        // is in the first two.
        let [user, nice, system, _, _, hard, soft, stolen, ..] = figures[..] else { return None };
        // Of 10 ms, whatever the kernel's own ticks are: these are for programs.
        Some((user + nice + system + hard + soft + stolen) * 10_000_000)
    };
    cpus.iter().map(of).collect()
}

/// This many bytes of the C library, aligned for a word; null if there are none.
#[inline(always)]
pub(crate) fn malloc(size: usize) -> *mut u8 {
    // SAFETY: it takes any size.
    unsafe { libc::malloc(size) }.cast()
}

/// The same, all 0.
#[inline(always)]
pub(crate) fn calloc(size: usize) -> *mut u8 {
    // SAFETY: it takes any size.
    unsafe { libc::calloc(1, size) }.cast()
}

/// Gives back what `malloc` or `calloc` gave.
///
/// # Safety
///
/// It came from one of them, and is no longer used.
#[inline(always)]
pub(crate) unsafe fn free(at: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { libc::free(at.cast()) }
}

/// Sleeps until the word is [rung](futex_wake), if it holds this; returns now and then without.
pub(crate) fn futex_wait(word: &AtomicU32, holds: u32) {
    let forever = ptr::null::<libc::timespec>();
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is live while it is borrowed, and the call only reads it. A caller looks at
    // the word again in any case, so no result matters.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, holds, forever) };
}

/// Wakes one thread that sleeps on the word.
pub(crate) fn futex_wake(word: &AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the call takes the address for a name, and touches no memory.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
}

/// A word for each index, to which a section by hand adds: the index, the arming, the comparison
/// and the addition, and no more. It loses additions of threads that the C library has not
/// registered for rseq, and cannot be given words later: a floor, and no counter to use. It is
/// written for x86-64 and glibc.
#[derive(Debug)]
pub(crate) struct BareWords {
    limit: u32,
    /// The slot of index 0. Each next slot lies one stride later.
    first: *mut u64,
}

// SAFETY: the words are shared by sections, each of which writes to that of its own index.
unsafe impl Send for BareWords {}
// SAFETY: the words are shared by sections, each of which writes to that of its own index.
unsafe impl Sync for BareWords {}

impl BareWords {
    /// The distance between the words of one counter: an index shifted by 16 bits.
    const STRIDE: usize = 1 << 16;

    /// Counters side by side, each with a word for this many indexes. The memory is never given
    /// back.
    pub(crate) fn several<const N: usize>(limit: u32) -> [BareWords; N] {
        let words = vec![0_u64; limit as usize * Self::STRIDE / size_of::<u64>() + N].leak();
        let first = words.as_mut_ptr();
        // SAFETY: `N` words, and a stride for each index.
        std::array::from_fn(|number| unsafe { BareWords { limit, first: first.add(number) } })
    }

    /// The offset of each thread's area of the C library from the thread pointer; `None` if the C
    /// library registers no thread, or if [`add`](BareWords::add) is not written for this machine.
    pub(crate) fn area() -> Option<isize> {
        if !cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
            return None;
        }
        // One that was told to register none still says where an area would lie, and that it has
        // no bytes.
        native::probe().registration.filter(|area| area.size > 0).map(|area| area.offset)
    }

    /// Adds 1 to the word of this index. `area` is [`area`](BareWords::area).
    #[inline(always)]
    pub(crate) fn add<const INDEX: usize>(&self, area: isize) {
        #[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
        unreachable!("there is no area {area} for index {INDEX} here");
        #[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
        // SAFETY: the area lies there in every thread, and the index is below the limit, so in the
        // memory of `several`. The kernel restarts the section if the thread is preempted in it.
        unsafe {
            std::arch::asm!(
                "2:",
                "lea {slot}, [rip + 5f]",
                "mov qword ptr fs:[{area} + 8], {slot}",
                "3:",
                "mov {slot:e}, dword ptr fs:[{area} + {index}]",
                "cmp {slot:e}, dword ptr [{limit}]",
                "jae 8f",
                "shl {slot}, 16",
                "add qword ptr [{first} + {slot}], 1",
                "4:",
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "5:",
                ".long 0, 0",
                ".quad 3b, 4b - 3b, 6f",
                ".popsection",
                ".pushsection __rseq_failure, \"ax\"",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "6:",
                "jmp 2b",
                ".popsection",
                "8:",
                slot = out(reg) _,
                area = in(reg) area,
                index = const INDEX,
                limit = in(reg) &raw const self.limit,
                first = in(reg) self.first,
                options(nostack),
            );
        }
    }

    /// The sum of the words.
    pub(crate) fn sum(&self) -> u64 {
        let word = |index: u32| {
            // SAFETY: in the memory of `several`. Threads may add meanwhile, in one instruction.
            unsafe { self.first.byte_add(index as usize * Self::STRIDE).read_volatile() }
        };
        (0..self.limit).map(word).fold(0, u64::wrapping_add)
    }
}

/// The C library's mutex around a count.
pub(crate) struct PthreadMutex {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    data: UnsafeCell<u64>,
}

// SAFETY: the data is touched by the holder of the mutex alone; the mutex is for threads.
unsafe impl Sync for PthreadMutex {}
// SAFETY: a mutex that no thread uses is plain memory.
unsafe impl Send for PthreadMutex {}

impl PthreadMutex {
    /// A mutex that is as the C library makes it if it is asked for nothing.
    pub(crate) fn new() -> PthreadMutex {
        PthreadMutex { raw: libc::PTHREAD_MUTEX_INITIALIZER.into(), data: 0.into() }
    }

    /// One that spins for a while before it sleeps: glibc's alone.
    pub(crate) fn adaptive() -> PthreadMutex {
        PthreadMutex { raw: libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP.into(), data: 0.into() }
    }

    #[inline(always)]
    pub(crate) fn lock_and(&self, section: impl FnOnce(&mut u64)) {
        // SAFETY: the mutex was initialised by its initialiser, and does not move while it is
        // borrowed. Between the two calls this thread holds it, so no other one has the data. A
        // section that panics leaves it locked for good, and the data to no thread.
        unsafe {
            libc::pthread_mutex_lock(self.raw.get());
            section(&mut *self.data.get());
            libc::pthread_mutex_unlock(self.raw.get());
        }
    }
}

/// The C library's read-write lock around a count.
pub(crate) struct PthreadRwLock {
    raw: UnsafeCell<libc::pthread_rwlock_t>,
    data: UnsafeCell<u64>,
}

// SAFETY: the data is changed by a writer alone, and read by readers; the lock is for threads.
unsafe impl Sync for PthreadRwLock {}
// SAFETY: a lock that no thread uses is plain memory.
unsafe impl Send for PthreadRwLock {}

impl PthreadRwLock {
    pub(crate) fn new() -> PthreadRwLock {
        PthreadRwLock { raw: libc::PTHREAD_RWLOCK_INITIALIZER.into(), data: 0.into() }
    }

    #[inline(always)]
    pub(crate) fn read_and(&self, section: impl FnOnce(&u64)) {
        // SAFETY: the lock was initialised by its initialiser, and does not move while it is
        // borrowed. Between the two calls it is read-locked, so no thread changes the data. (It
        // fails for too many readers only, and there are few threads.)
        unsafe {
            libc::pthread_rwlock_rdlock(self.raw.get());
            section(&*self.data.get());
            libc::pthread_rwlock_unlock(self.raw.get());
        }
    }

    #[inline(always)]
    pub(crate) fn write_and(&self, section: impl FnOnce(&mut u64)) {
        // SAFETY: the lock was initialised by its initialiser, and does not move while it is
        // borrowed. Between the two calls it is write-locked, so no other thread has the data.
        unsafe {
            libc::pthread_rwlock_wrlock(self.raw.get());
            section(&mut *self.data.get());
            libc::pthread_rwlock_unlock(self.raw.get());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_uses_its_time() {
        let before = thread_cpu_ns();
        let used = (0..1_000_000).map(|_| thread_cpu_ns()).find(|&now| now > before);
        assert!(used.is_some());
    }

    #[test]
    fn busy_is_all_that_is_not_idle() {
        let stat =
            "cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 1 2 4 100 200 8 16 32 7 0\ncpu11 1 0 0 0 0 0 0 0\n";
        let busy =
            |cpus: &[u32]| busy(stat, &cpus.iter().map(|&it| CpuId::new(it)).collect::<Vec<_>>());
        assert_eq!(busy(&[11, 0]), Some(vec![10_000_000, 630_000_000]));
        assert_eq!(busy(&[1]), None, "no such CPU");
        assert_eq!(busy_ns(&[CpuId::new(60_000)]), None);
    }
}
