//! The C interface of coreline: per-CPU counters and memory, locks, caches, limiters, domains and
//! workers.
//!
//! # Results
//!
//! Functions that can fail return a `coreline_code_t`, and write other results to the places that
//! the caller passes. `CORELINE_OK` is 0. Positive codes are expected outcomes without success,
//! such as `CORELINE_BUSY`. Negative codes are mistakes of the caller, or failures.
//! `coreline_strerror` describes a code. A function that returns a negative code has changed
//! nothing, unless its page says otherwise, or the code is `CORELINE_ERROR_PANIC`.
//!
//! No function unwinds into its caller. A check inside of coreline fails because of a bug in
//! coreline, or because of a misuse after which it cannot continue. Then its message is on standard
//! error, and the function returns `CORELINE_ERROR_PANIC`.
//!
//! # Memory
//!
//! If per-CPU memory cannot be allocated, functions return `CORELINE_ERROR_NO_MEMORY` or continue
//! more slowly. Small structures come from `malloc`. If there is no memory for them, the process
//! aborts where the function's page says so. It also aborts when a thread waits for a lock for the
//! first time.
//!
//! # Pointers
//!
//! An object that the library allocates is known by a handle, a pointer to an incomplete type. A
//! function returns an error if it detects that a handle is null, has another type, or was
//! destroyed. It cannot detect that the object was destroyed if a later object of the same type
//! reuses its handle. The handle that was destroyed first is reused first. It cannot detect that a
//! pointer never was a handle. The memory of destroyed handles, without the objects that they refer
//! to, stays in the library for later objects.
//!
//! A member and a reader are used by one thread at a time. A function detects that another thread
//! is inside. It cannot detect that two threads enter at the same moment.
//!
//! An object of a cache is the address of its memory. A function detects that the object was put
//! back before, or belongs to another cache. It cannot detect that the object was destroyed.
//!
//! A lock is a structure in its user's memory. A function detects that its address is null or not
//! aligned. Structures are initialised by their macro, such as `CORELINE_MUTEX_INIT`, or are zero.
//! Their members are private. The same holds for turns and leases.
//!
//! The caller promises that a pointer is one of these, that no other thread destroys an object
//! during a call, and that only the call uses the memory for its results.
//!
//! # Inline functions
//!
//! A function whose name ends in `_inline` does the same as the function without this suffix, and
//! calls that function if it has no fast path. On x86-64, additions to per-CPU memory are
//! restartable sections of the program itself. They detect the same misuse of handles. Define
//! `CORELINE_NO_INLINE` before the header is included to make each such function a call. Inline
//! functions of locks do not check the address.
//!
//! # Functions that workers run
//!
//! A function that a worker runs must return. If it leaves by a C++ exception, by `pthread_exit` or
//! by cancellation, the process ends. If it leaves by `longjmp`, the worker breaks. It runs on the
//! stack of a thread of the library, and may use all functions of this library.
//!
//! # Time
//!
//! Deadlines are times of `coreline_now`: nanoseconds of `CLOCK_MONOTONIC`.
//!
//! # The header and the library
//!
//! `coreline_check` compares the header with the library. Call it once at the start of a program,
//! or write `CORELINE_CHECK_AT_LOAD;` once at file scope. Then a program whose header does not
//! match ends with a message when it is loaded.
//!
//! # Threads, signals and forks
//!
//! Each function's page has a section for each of these. Functions need no registration of threads.
//! A thread may end at any time, but locks that it holds stay locked. A destructor of a key of
//! `pthread_key_create` may call functions, but some hundred bytes then stay allocated for each
//! thread that ended in this way. Constructors and destructors
//! of programs and libraries may call functions. The first use of per-CPU memory in a process
//! starts two threads for some milliseconds, to test restartable sequences. It also waits for the
//! dynamic loader, so a thread must not hold there a mutex that a constructor takes. That use, the
//! first wait for a lock, and functions that create objects need 128 KiB of stack. All other
//! functions work on the smallest stack of a thread, which has 16 KiB.
//!
//! A thread must not be cancelled by `pthread_cancel` during a call. A signal handler that
//! interrupts a call must return, and not leave by `longjmp`.
//!
//! # Forks
//!
//! A forked child has its own copy of all objects. It may use them, and create and destroy objects,
//! even if the process had other threads at the time of the fork. Of these, the child has only the
//! one that forked. The page of each function says what follows from that. These are the rules:
//!
//! A function that a worker runs may fork. The child must not return from the function.
//! A lock that another thread held or waited for at the time of the fork stays locked in the child.
//! So the child uses only locks that no other thread used at that time, or initialises them again.
//! Members and readers of other threads that were inside stay inside. Objects of caches and leases
//! that other threads held are never put back. Functions that would wait for one of these wait
//! forever. Functions that do not wait for other threads never do. Workers are threads, so the
//! child has none, and functions of workers return an error.
//!
//! This needs a `malloc` that works in such a child, like that of glibc.
//!
//! # Unloading
//!
//! The shared library stays in memory after `dlclose`, until the process ends. A later `dlopen`
//! finds the same objects and locks.
//!
//! A plugin that contains the static library also stays from its first use of per-CPU memory on,
//! because the kernel knows addresses in it. Before that, and on machines without restartable
//! sequences, `dlclose` unloads the plugin. Then no thread may be in a function, no lock may be
//! held or waited for, and all objects must be destroyed. The tables of locks stay allocated. To
//! keep the plugin in memory in all cases, link it with `-Wl,-z,nodelete`.
//!
//! Two copies of coreline in one process, such as a static one in a plugin and the shared one, must
//! not share locks, handles, leases or objects of caches. A function cannot detect that a handle or
//! a lease belongs to the other copy. A plugin that contains the static library exports its
//! functions, and its calls go to the copy that the program has loaded first. Link it with
//! `-Wl,--exclude-libs,libcoreline.a` to make them call its own copy.

#![allow(non_camel_case_types, reason = "the names are those of C")]
#![allow(unreachable_pub, reason = "cbindgen takes what is `pub`, and Rust programs use coreline")]

mod boundary;
mod cache;
mod code;
mod counter;
mod domain;
mod handle;
mod inside;
mod layout;
mod limiter;
mod local;
mod lock;
mod machine;
mod mask;
mod percpu;
mod pool;
mod presence;
mod reply;
mod versioned;
mod with;
mod workers;
