/*
 * The part of coreline.h that is written by hand: initialisers, the layout check, and fast paths.
 *
 * Include coreline.h, which includes this file. It works in C11 and C++17, with GCC and Clang.
 */
#ifndef CORELINE_INLINE_H
#define CORELINE_INLINE_H

#include <time.h>

/** The version of this header, as coreline_version() returns that of the library. */
#define CORELINE_VERSION \
    (CORELINE_VERSION_MAJOR * 10000 + CORELINE_VERSION_MINOR * 100 + CORELINE_VERSION_PATCH)

/** A free coreline_mutex_t. */
#define CORELINE_MUTEX_INIT { 0, 0 }
/** A free coreline_checked_mutex_t. */
#define CORELINE_CHECKED_MUTEX_INIT { 0, 0, 0 }
/** A free coreline_rwlock_t. */
#define CORELINE_RWLOCK_INIT { 0, 0 }
/** A free coreline_ticket_lock_t. */
#define CORELINE_TICKET_LOCK_INIT { 0, 0 }
/** A free coreline_osq_near_t or coreline_osq_fifo_t. */
#define CORELINE_OSQ_INIT { 0 }
/** An empty coreline_turn_t. */
#define CORELINE_TURN_INIT { NULL, 0, { 0, 0 } }

#ifdef __cplusplus
extern "C" {
#endif

#define CORELINE_SHAPE(type) ((uint32_t)(sizeof(type) * 256 + __alignof__(type)))

/** What a mutex holds while a thread has it and none waits. */
#define CORELINE_MUTEX_HELD 1u

/* What coreline_check() passes to the library. */
static inline coreline_layout_t coreline_layout(void)
{
    coreline_layout_t layout;
    layout.size = (uint32_t)sizeof(layout);
    layout.version = CORELINE_VERSION;
    layout.code = CORELINE_SHAPE(coreline_code_t);
    layout.reading = CORELINE_SHAPE(coreline_reading_t);
    layout.cache_options = CORELINE_SHAPE(coreline_cache_options_t);
    layout.mutex = CORELINE_SHAPE(coreline_mutex_t);
    layout.mutex_held = CORELINE_MUTEX_HELD;
    layout.checked_mutex = CORELINE_SHAPE(coreline_checked_mutex_t);
    layout.rwlock = CORELINE_SHAPE(coreline_rwlock_t);
    layout.ticket_lock = CORELINE_SHAPE(coreline_ticket_lock_t);
    layout.osq_near = CORELINE_SHAPE(coreline_osq_near_t);
    layout.osq_fifo = CORELINE_SHAPE(coreline_osq_fifo_t);
    layout.turn = CORELINE_SHAPE(coreline_turn_t);
    return layout;
}

/**
 * Checks that this header fits the library.
 *
 * `coreline_version` says which version the library has, and `CORELINE_VERSION` which version the
 * header has. `CORELINE_CHECK_AT_LOAD;` once at file scope makes the check when the program is
 * loaded, and ends the program with a message if the two do not fit.
 *
 * Errors: `CORELINE_ERROR_LAYOUT`.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * safe in a forked child.
 */
static inline coreline_code_t coreline_check(void)
{
    coreline_layout_t layout = coreline_layout();
    return coreline_check_layout(&layout);
}

/** Once at file scope: makes the check of coreline_check() when the program is loaded. */
#define CORELINE_CHECK_AT_LOAD                                             \
    __attribute__((constructor)) static void coreline_check_at_load(void) \
    {                                                                      \
        coreline_layout_t layout = coreline_layout();                      \
        coreline_require_layout(&layout);                                  \
    }                                                                      \
    struct coreline_check_at_load_ends

/**
 * Converts a time of `CLOCK_MONOTONIC` to the time by which deadlines are given.
 *
 * A time before the clock's zero becomes zero, which has passed. A time that is too late becomes
 * `UINT64_MAX`. `tv_nsec` must be below 1,000,000,000.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * safe in a forked child.
 */
static inline uint64_t coreline_from_timespec(struct timespec time)
{
    const uint64_t second = 1000000000u;
    if (time.tv_sec < 0 || time.tv_nsec < 0) {
        return 0;
    }
    if ((uint64_t)time.tv_sec >= UINT64_MAX / second - 1) {
        return UINT64_MAX;
    }
    return (uint64_t)time.tv_sec * second + (uint64_t)time.tv_nsec;
}

/**
 * Locks a mutex if it is free now, without a call.
 *
 * It does what `coreline_mutex_try_lock` does. The address is not checked.
 *
 * Errors: none. The call returns `CORELINE_BUSY` if a thread holds the mutex.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
 * mutex that another thread held or waited for at the time of the fork stays locked in the child.
 */
static inline coreline_code_t coreline_mutex_try_lock_inline(coreline_mutex_t *mutex)
{
    uint32_t is_free = 0;
    return __atomic_compare_exchange_n(&mutex->state, &is_free, CORELINE_MUTEX_HELD, 0,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
        ? CORELINE_OK
        : CORELINE_BUSY;
}

/**
 * Locks a mutex, without a call if it is free.
 *
 * It does what `coreline_mutex_lock` does. The address is checked only if the mutex is held.
 *
 * Errors: none for a mutex. See `coreline_mutex_lock`.
 *
 * Threads: any number of threads may call it at the same time. Signals: a handler must not call it.
 * Fork: a mutex that another thread held or waited for at the time of the fork stays locked in the
 * child.
 */
static inline coreline_code_t coreline_mutex_lock_inline(coreline_mutex_t *mutex)
{
    if (coreline_mutex_try_lock_inline(mutex) == CORELINE_OK) {
        return CORELINE_OK;
    }
    return coreline_mutex_lock(mutex);
}

#ifdef __cplusplus
}
#endif

#endif /* CORELINE_INLINE_H */
