//! Workers, which run functions for other threads.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::time::Duration;

use coreline::call::{CallError, Refused, StartError};
use coreline::world::SpawnError;
use coreline::{CpuId, CpuSet, Workers};

use crate::boundary::{self, boundary};
use crate::code::coreline_code_t as Code;
use crate::handle::{self, create, opaque};
use crate::mask::coreline_mask_t;
use crate::reply::{coreline_reply_t, give};
use crate::with::with;

/// Threads, one pinned to each CPU, that run calls and tasks for other threads.
pub struct coreline_workers_t {
    _opaque: MaybeUninit<u8>,
}

opaque!(coreline_workers_t, Workers, b"-workers");

/// A function that a worker runs, with the argument that its sender passes.
///
/// It must return. It must not leave by `longjmp`, by `pthread_exit`, by cancellation or by a C++
/// exception: the last three end the process, and `longjmp` breaks the worker.
pub type coreline_function_t = Option<unsafe extern "C-unwind" fn(argument: *mut c_void)>;

/// The options of workers. All members must be set. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct coreline_workers_options_t {
    /// The CPUs that have a worker. Null means all CPUs that the calling thread may use.
    pub cpus: *const coreline_mask_t,
    /// The maximum number of nanoseconds for which a worker without work polls before it sleeps. 0
    /// means 200000. Use `CORELINE_WORKERS_NEVER_POLL` for CPUs that other threads need.
    pub polling: u64,
    /// The prefix of the threads' names, to which `-` and the CPU are added. Null means `coreline`.
    /// Linux keeps 15 bytes of a name, so a longer prefix is cut.
    pub name: *const c_char,
}

/// As `polling` of `coreline_workers_options_t`: workers sleep as soon as they have no work.
pub const CORELINE_WORKERS_NEVER_POLL: u64 = u64::MAX;

/// The counts of a worker. Each number is exact, but together they are not a snapshot.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct coreline_worker_stats_t {
    /// The number of calls that the worker ran.
    pub calls: u64,
    /// The number of these calls that found a message in the mailbox and queued behind it.
    pub queued: u64,
    /// The number of tasks that the worker ran.
    pub tasks: u64,
    /// The number of times that the worker looked for tasks of other workers.
    pub searches: u64,
    /// The number of tasks that the worker took from other workers.
    pub steals: u64,
    /// The number of times that the worker slept because it had nothing to do.
    pub sleeps: u64,
    /// The number of times that the worker woke and found no message.
    pub spurious: u64,
    /// The number of messages that the worker found while it was awake. This is the number of saved
    /// wake-ups.
    pub spared: u64,
}

/// A function with its argument.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    function: unsafe extern "C-unwind" fn(*mut c_void),
    argument: *mut c_void,
}

// SAFETY: an address, which the C program has agreed to have on other threads.
unsafe impl Send for Job {}
// SAFETY: as for `Send`.
unsafe impl Sync for Job {}

impl Job {
    fn new(function: coreline_function_t, argument: *mut c_void) -> Result<Self, Code> {
        let function = function.ok_or(Code::CORELINE_ERROR_NULL)?;
        Ok(Job { function, argument })
    }

    fn run(self) {
        // SAFETY: the C program's promise: the function can be called with this argument on any
        // thread.
        unsafe { (self.function)(self.argument) };
    }
}

impl From<CallError> for Code {
    fn from(error: CallError) -> Self {
        match error {
            CallError::NoWorker(_) => Code::CORELINE_ERROR_NO_WORKER,
            CallError::Busy => Code::CORELINE_BUSY,
            CallError::Forked => Code::CORELINE_ERROR_FORKED,
            _ => Code::CORELINE_ERROR_CLOSED,
        }
    }
}

impl<F> From<Refused<F>> for Code {
    fn from(refused: Refused<F>) -> Self {
        refused.why.into()
    }
}

impl From<StartError> for Code {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Spawn(SpawnError::Exhausted(_)) => Code::CORELINE_ERROR_NO_MEMORY,
            _ => Code::CORELINE_ERROR_ARGUMENT,
        }
    }
}

/// Starts workers.
///
/// `options` may be null, which means the default of each option. The structure is copied. If there
/// is no memory for the workers' own structures, the process aborts.
///
/// A *call* is a function that runs on the worker of one CPU, between other functions of that
/// worker. A *task* is queued, and any worker may run it. A call to a worker that polls makes no
/// system call. Calls should be short, because other calls to the same worker wait for them.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there are no CPUs, or a CPU is not
/// among those that the process may use, or an address is not aligned), `CORELINE_ERROR_HANDLE`
/// (`cpus` is not a live mask), `CORELINE_ERROR_NO_MEMORY` (a thread could not be started).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has none of its parent's workers, and may start its own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_create(
    options: *const coreline_workers_options_t,
    out: *mut *mut coreline_workers_t,
) -> Code {
    with!([out out] {
        let mut builder = Workers::builder();
        if !options.is_null() {
            // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
            let options = unsafe { boundary::shared(options) }?;
            if !options.cpus.is_null() {
                // SAFETY: the same.
                builder = builder.cpus(unsafe { handle::get(options.cpus) }?.snapshot());
            }
            match options.polling {
                0 => {}
                CORELINE_WORKERS_NEVER_POLL => builder = builder.polling(Duration::ZERO),
                most => builder = builder.polling(Duration::from_nanos(most)),
            }
            if !options.name.is_null() {
                // SAFETY: a string that ends in a zero, as the caller promises.
                builder = builder.name(unsafe { CStr::from_ptr(options.name) }.to_string_lossy());
            }
        }
        create(builder.start()?, out)
    })
}

/// Closes workers, waits until all calls and tasks have run, and destroys the workers.
///
/// Functions that still run may use the workers meanwhile, as after `coreline_workers_close`.
/// Replies that no thread waited for stay, and are ready.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_DEADLOCK` (the calling
/// thread is one of these workers, which would wait for its own end: the workers stay open).
///
/// Threads: apart from functions that workers run, no other thread may use the workers during the
/// call or after it. Signals: no signal handler may call it. Fork: in a child, it destroys the
/// child's copy, and does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_destroy(workers: *mut coreline_workers_t) -> Code {
    boundary(|| {
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        if !unsafe { handle::get(workers) }?.close_and_wait() {
            return Err(Code::CORELINE_ERROR_DEADLOCK);
        }
        // No function runs any more, so none uses the workers.
        //
        // SAFETY: the same.
        unsafe { handle::take(workers) }.map(drop)
    })
}

/// Closes workers to new calls and tasks, and does not wait.
///
/// Calls and tasks that were accepted still run, and may send calls and tasks to workers that still
/// run. The threads end when all have run. `coreline_workers_destroy` waits for that.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and the call has no effect there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_close(workers: *const coreline_workers_t) -> Code {
    with!([handle workers] { workers.close(); })
}

/// Lists the CPUs that have a worker, and so counts the workers.
///
/// The call writes the numbers of the CPUs to the array `cpus`, which has `capacity` elements,
/// ordered by node and cache. It writes the number of workers to `count`. If that is more than
/// `capacity`, the array has the first ones. `cpus` may be null if `capacity` is 0.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (an address is
/// not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
/// child gets the CPUs of its parent's workers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_cpus(
    workers: *const coreline_workers_t,
    cpus: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> Code {
    with!([handle workers, out count] {
        if capacity > 0 {
            // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
            unsafe { boundary::out(cpus) }?;
        }
        for (number, cpu) in workers.cpus().take(capacity).enumerate() {
            // SAFETY: the array has `capacity` elements, as the caller promises.
            unsafe { cpus.add(number).write(cpu.get()) };
        }
        count.write(workers.cpus().count());
    })
}

/// Reports the CPU whose worker the calling thread is.
///
/// The call writes the number of the CPU to `cpu`. It stays the same as long as the worker lives.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`cpu` is not
/// aligned), `CORELINE_ERROR_NO_WORKER` (the calling thread is not one of these workers).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_NO_WORKER`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_current(
    workers: *const coreline_workers_t,
    cpu: *mut u32,
) -> Code {
    with!([handle workers, out cpu] {
        cpu.write(workers.current().ok_or(Code::CORELINE_ERROR_NO_WORKER)?.get());
    })
}

/// Runs a function on the worker of a CPU, and waits until it has run.
///
/// `function` gets `argument`. Everything that it writes is visible to the caller afterwards. If
/// the caller is that worker itself, the function runs immediately. A worker that waits here serves
/// calls to it meanwhile, so workers may call each other, even in a cycle. Such calls run on the
/// stack of the function that waits. If four are nested, the worker serves only calls from workers.
/// So keep functions short, and let them hold no lock while they call.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_WORKER` (the CPU has
/// no worker), `CORELINE_ERROR_CLOSED`, `CORELINE_ERROR_FORKED`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_call(
    workers: *const coreline_workers_t,
    cpu: u32,
    function: coreline_function_t,
    argument: *mut c_void,
) -> Code {
    with!([handle workers] {
        let job = Job::new(function, argument)?;
        Ok(workers.call_on(CpuId::new(cpu), move || job.run())?)
    })
}

/// Runs a function on the worker of a CPU, if the worker's mailbox is free, and waits.
///
/// The call returns `CORELINE_BUSY` if another message is in the mailbox, which the worker has not
/// taken yet. Otherwise it does what `coreline_workers_call` does. The mailbox is free as soon as
/// the worker has taken the message, so the call may still wait for other functions.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_WORKER` (the CPU has
/// no worker), `CORELINE_ERROR_CLOSED`, `CORELINE_ERROR_FORKED`.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_try_call(
    workers: *const coreline_workers_t,
    cpu: u32,
    function: coreline_function_t,
    argument: *mut c_void,
) -> Code {
    with!([handle workers] {
        let job = Job::new(function, argument)?;
        Ok(workers.try_call_on(CpuId::new(cpu), move || job.run())?)
    })
}

/// Runs a function on many workers at the same time, and waits until all have run it.
///
/// `mask` selects the CPUs. If it is null, these are the CPUs of all workers. The function is
/// called once on each of these CPUs, with the same argument. `coreline_workers_current` tells it
/// on which one. A function that waits until it has begun on the other CPUs may wait forever.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_NO_WORKER` (a CPU of the
/// mask has no worker), `CORELINE_ERROR_CLOSED` (the function may have run on some of the CPUs),
/// `CORELINE_ERROR_FORKED`. If there is no memory for the messages, the process aborts.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_call_many(
    workers: *const coreline_workers_t,
    mask: *const coreline_mask_t,
    function: coreline_function_t,
    argument: *mut c_void,
) -> Code {
    with!([handle workers] {
        let job = Job::new(function, argument)?;
        let cpus: CpuSet = if mask.is_null() {
            workers.cpus().collect()
        } else {
            // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
            unsafe { handle::get(mask) }?.snapshot()
        };
        workers.call_many(&cpus, |_| job.run())?;
    })
}

/// Sends a function to the worker of a CPU, and does not wait.
///
/// The call writes a reply to `reply`, which the caller must end: by a function of replies that
/// waits, by `coreline_reply_cancel` or by `coreline_reply_detach`. If `reply` is null, there is no
/// reply. `argument`, and what it points to, must stay until the function has run.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`reply` is
/// not aligned), `CORELINE_ERROR_NO_WORKER` (the CPU has no worker), `CORELINE_ERROR_CLOSED`,
/// `CORELINE_ERROR_FORKED`. If there is no memory for the message, the process aborts.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_call_async(
    workers: *const coreline_workers_t,
    cpu: u32,
    function: coreline_function_t,
    argument: *mut c_void,
    reply: *mut *mut coreline_reply_t,
) -> Code {
    with!([handle workers] {
        let job = Job::new(function, argument)?;
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        unsafe {
            give(reply, || Ok(workers.call_async(CpuId::new(cpu), move || job.run())?))
        }
    })
}

/// Queues a function as a task, which any worker may run.
///
/// If a worker without work is near the calling thread, that worker runs it. If the caller is a
/// worker, the task is queued on that worker. The call writes a reply to `reply`, as
/// `coreline_workers_call_async` does.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`reply` is
/// not aligned), `CORELINE_ERROR_CLOSED`, `CORELINE_ERROR_FORKED`. If there is no memory for the
/// task, the process aborts.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_spawn(
    workers: *const coreline_workers_t,
    function: coreline_function_t,
    argument: *mut c_void,
    reply: *mut *mut coreline_reply_t,
) -> Code {
    with!([handle workers] {
        let job = Job::new(function, argument)?;
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        unsafe { give(reply, || Ok(workers.spawn(move || job.run())?)) }
    })
}

/// Queues a function as a task for the worker of a CPU.
///
/// No other worker runs it. The call writes a reply to `reply`, as `coreline_workers_call_async`
/// does.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`reply` is
/// not aligned), `CORELINE_ERROR_NO_WORKER` (the CPU has no worker), `CORELINE_ERROR_CLOSED`,
/// `CORELINE_ERROR_FORKED`. If there is no memory for the task, the process aborts.
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets `CORELINE_ERROR_FORKED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_spawn_on(
    workers: *const coreline_workers_t,
    cpu: u32,
    function: coreline_function_t,
    argument: *mut c_void,
    reply: *mut *mut coreline_reply_t,
) -> Code {
    with!([handle workers] {
        let job = Job::new(function, argument)?;
        // SAFETY: the caller's promise: "Pointers" in the crate's documentation.
        unsafe {
            give(reply, || Ok(workers.spawn_on(CpuId::new(cpu), move || job.run())?))
        }
    })
}

/// Runs calls that wait for the calling worker.
///
/// The call writes the number of calls that it ran to `count`. On a thread that is not one of these
/// workers, the number is 0. Use it in a long task when `coreline_workers_need_resched` says so.
/// The calls run on the stack of the function that serves, which must hold no lock that a call
/// takes. Serving ends even if calls arrive without end, and runs no tasks.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`count` is
/// not aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and serves none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_serve(
    workers: *const coreline_workers_t,
    count: *mut u32,
) -> Code {
    with!([handle workers, out count] { count.write(workers.serve()); })
}

/// Reports whether other work waits for the calling worker.
///
/// The call writes 1 to `out` if the calling thread is one of these workers and other work waits
/// for it: a call, a task in its queue, or tasks of other workers. Otherwise it writes 0. A long
/// call should return then, and a long task should call `coreline_workers_serve`.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`out` is not
/// aligned).
///
/// Threads: any number of threads may call it at the same time. Signals: no signal handler may call
/// it. Fork: a child has no workers, and gets 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_need_resched(
    workers: *const coreline_workers_t,
    out: *mut c_int,
) -> Code {
    with!([handle workers, out out] { out.write(c_int::from(workers.need_resched())); })
}

/// Reports the counts of the worker of a CPU.
///
/// Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`, `CORELINE_ERROR_ARGUMENT` (`out` is not
/// aligned), `CORELINE_ERROR_NO_WORKER` (the CPU has no worker).
///
/// Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
/// child gets the counts of its parent's workers at the time of the fork.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn coreline_workers_stats(
    workers: *const coreline_workers_t,
    cpu: u32,
    out: *mut coreline_worker_stats_t,
) -> Code {
    with!([handle workers, out out] {
        let found = workers.stats().find(|(its, _)| its.get() == cpu);
        let (_, stats) = found.ok_or(Code::CORELINE_ERROR_NO_WORKER)?;
        out.write(coreline_worker_stats_t {
            calls: stats.calls,
            queued: stats.queued,
            tasks: stats.tasks,
            searches: stats.searches,
            steals: stats.steals,
            sleeps: stats.sleeps,
            spurious: stats.spurious,
            spared: stats.spared,
        });
    })
}
