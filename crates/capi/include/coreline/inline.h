/*
 * The part of coreline.h that is written by hand: initialisers, the layout check, and fast paths.
 *
 * Include coreline.h, which includes this file. It works in C11 and C++17, with GCC and Clang.
 *
 * With `CORELINE_NO_INLINE` defined, each function whose name ends in `_inline` is a call of the function without that
 * end. Files with and without it can be linked together.
 */
#ifndef CORELINE_INLINE_H
#define CORELINE_INLINE_H

#include <stddef.h>
#include <time.h>

#include "sections.h"

/** The version of this header, as coreline_version() returns that of the library. */
#define CORELINE_VERSION \
    (CORELINE_VERSION_MAJOR * 10000 + CORELINE_VERSION_MINOR * 100 + CORELINE_VERSION_PATCH)

/** A free coreline_mutex_t. */
#define CORELINE_MUTEX_INIT { 0, 0 }
/** A free coreline_checked_mutex_t. */
#define CORELINE_CHECKED_MUTEX_INIT { 0, 0, 0 }
/** A free coreline_rwlock_t. */
#define CORELINE_RWLOCK_INIT { 0, 0 }
/** A free coreline_biased_rwlock_t. */
#define CORELINE_BIASED_RWLOCK_INIT { { 0, 0, 0, 0, 0, 0 } }
/** A free coreline_ticket_lock_t. */
#define CORELINE_TICKET_LOCK_INIT { 0, 0 }
/** A free coreline_osq_near_t or coreline_osq_fifo_t. */
#define CORELINE_OSQ_INIT { 0 }
/** An empty coreline_turn_t. */
#define CORELINE_TURN_INIT { NULL, 0, { 0, 0 } }
/** An empty coreline_lease_t. */
#define CORELINE_LEASE_INIT { 0, 0, { 0, 0, 0 } }

#ifdef __cplusplus
extern "C" {
#endif

#define CORELINE_SHAPE(type) ((uint32_t)(sizeof(type) * 256 + __alignof__(type)))

/* Adds a member to the shape of a structure, as coreline_layout_t says. */
#define CORELINE_AND_MEMBER(shape, type, member)                                                 \
    ((shape) = (shape) * 31u                                                                     \
         + (uint32_t)(offsetof(type, member) * 256 + sizeof(((const type *)0)->member)))

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
    CORELINE_AND_MEMBER(layout.reading, coreline_reading_t, value);
    CORELINE_AND_MEMBER(layout.reading, coreline_reading_t, error);
    layout.cache_options = CORELINE_SHAPE(coreline_cache_options_t);
    CORELINE_AND_MEMBER(layout.cache_options, coreline_cache_options_t, size);
    CORELINE_AND_MEMBER(layout.cache_options, coreline_cache_options_t, alignment);
    CORELINE_AND_MEMBER(layout.cache_options, coreline_cache_options_t, construct);
    CORELINE_AND_MEMBER(layout.cache_options, coreline_cache_options_t, destroy);
    CORELINE_AND_MEMBER(layout.cache_options, coreline_cache_options_t, context);
    CORELINE_AND_MEMBER(layout.cache_options, coreline_cache_options_t, idle_limit);
    layout.workers_options = CORELINE_SHAPE(coreline_workers_options_t);
    CORELINE_AND_MEMBER(layout.workers_options, coreline_workers_options_t, cpus);
    CORELINE_AND_MEMBER(layout.workers_options, coreline_workers_options_t, polling);
    CORELINE_AND_MEMBER(layout.workers_options, coreline_workers_options_t, name);
    layout.worker_stats = CORELINE_SHAPE(coreline_worker_stats_t);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, calls);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, queued);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, tasks);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, searches);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, steals);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, sleeps);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, spurious);
    CORELINE_AND_MEMBER(layout.worker_stats, coreline_worker_stats_t, spared);
    layout.mutex = CORELINE_SHAPE(coreline_mutex_t);
    CORELINE_AND_MEMBER(layout.mutex, coreline_mutex_t, state);
    CORELINE_AND_MEMBER(layout.mutex, coreline_mutex_t, queue);
    layout.mutex_held = CORELINE_MUTEX_HELD;
    layout.checked_mutex = CORELINE_SHAPE(coreline_checked_mutex_t);
    CORELINE_AND_MEMBER(layout.checked_mutex, coreline_checked_mutex_t, owner);
    CORELINE_AND_MEMBER(layout.checked_mutex, coreline_checked_mutex_t, state);
    CORELINE_AND_MEMBER(layout.checked_mutex, coreline_checked_mutex_t, queue);
    layout.rwlock = CORELINE_SHAPE(coreline_rwlock_t);
    CORELINE_AND_MEMBER(layout.rwlock, coreline_rwlock_t, state);
    CORELINE_AND_MEMBER(layout.rwlock, coreline_rwlock_t, queue);
    layout.ticket_lock = CORELINE_SHAPE(coreline_ticket_lock_t);
    CORELINE_AND_MEMBER(layout.ticket_lock, coreline_ticket_lock_t, next);
    CORELINE_AND_MEMBER(layout.ticket_lock, coreline_ticket_lock_t, serving);
    layout.osq_near = CORELINE_SHAPE(coreline_osq_near_t);
    CORELINE_AND_MEMBER(layout.osq_near, coreline_osq_near_t, tail);
    layout.osq_fifo = CORELINE_SHAPE(coreline_osq_fifo_t);
    CORELINE_AND_MEMBER(layout.osq_fifo, coreline_osq_fifo_t, tail);
    layout.turn = CORELINE_SHAPE(coreline_turn_t);
    CORELINE_AND_MEMBER(layout.turn, coreline_turn_t, lock);
    CORELINE_AND_MEMBER(layout.turn, coreline_turn_t, owner);
    CORELINE_AND_MEMBER(layout.turn, coreline_turn_t, place);
    layout.ticket_lock_next = 1;
    layout.stride = 1u << CORELINE_STRIDE_SHIFT;
    layout.area = CORELINE_AREA;
    layout.counter_mark = CORELINE_COUNTER_MARK;
    layout.counter_gate = CORELINE_COUNTER_GATE;
    layout.counters_mark = CORELINE_COUNTERS_MARK;
    layout.counters_length = CORELINE_COUNTERS_LENGTH;
    layout.counters_gates = CORELINE_COUNTERS_GATES;
    layout.counters_group = CORELINE_COUNTERS_GATE_SIZE * 256 + CORELINE_COUNTERS_OF_GATE;
    layout.percpu_mark = CORELINE_PERCPU_MARK;
    layout.percpu_words = CORELINE_PERCPU_WORDS;
    layout.percpu_lines = CORELINE_PERCPU_LINES;
    layout.percpu_line = CORELINE_PERCPU_LINE_SIZE * 256 + CORELINE_PERCPU_OF_LINE;
    layout.biased_rwlock = CORELINE_SHAPE(coreline_biased_rwlock_t);
    CORELINE_AND_MEMBER(layout.biased_rwlock, coreline_biased_rwlock_t, words);
    layout.shot = CORELINE_SHAPE(coreline_shot_t);
    CORELINE_AND_MEMBER(layout.shot, coreline_shot_t, reached);
    CORELINE_AND_MEMBER(layout.shot, coreline_shot_t, away);
    CORELINE_AND_MEMBER(layout.shot, coreline_shot_t, late);
    layout.usage = CORELINE_SHAPE(coreline_usage_t);
    CORELINE_AND_MEMBER(layout.usage, coreline_usage_t, users);
    CORELINE_AND_MEMBER(layout.usage, coreline_usage_t, ids);
    CORELINE_AND_MEMBER(layout.usage, coreline_usage_t, leased);
    CORELINE_AND_MEMBER(layout.usage, coreline_usage_t, bytes);
    layout.lease = CORELINE_SHAPE(coreline_lease_t);
    CORELINE_AND_MEMBER(layout.lease, coreline_lease_t, domain);
    CORELINE_AND_MEMBER(layout.lease, coreline_lease_t, id);
    CORELINE_AND_MEMBER(layout.lease, coreline_lease_t, place);
    layout.gate = CORELINE_GATE_FIRST * 256 + CORELINE_LIMIT_OF_CIDS;
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
 * Converts a time of `CLOCK_MONOTONIC` to the unit of deadlines.
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
 * It does what `coreline_mutex_try_lock` does. The address is not checked. With `CORELINE_NO_INLINE`
 * defined, it is that call.
 *
 * Errors: none. The call returns `CORELINE_BUSY` if a thread holds the mutex.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
 * mutex that another thread held or waited for at the time of the fork stays locked in the child.
 */
static inline coreline_code_t coreline_mutex_try_lock_inline(coreline_mutex_t *mutex)
{
#ifdef CORELINE_NO_INLINE
    return coreline_mutex_try_lock(mutex);
#else
    uint32_t is_free = 0;
    return __atomic_compare_exchange_n(&mutex->state, &is_free, CORELINE_MUTEX_HELD, 0,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)
        ? CORELINE_OK
        : CORELINE_BUSY;
#endif
}

/**
 * Locks a mutex, without a call if it is free.
 *
 * It does what `coreline_mutex_lock` does. The address is checked only if the mutex is held. With
 * `CORELINE_NO_INLINE` defined, it is that call.
 *
 * Errors: none for a mutex. See `coreline_mutex_lock`.
 *
 * Threads: any number of threads may call it at the same time. Signals: a handler must not call it.
 * Fork: a mutex that another thread held or waited for at the time of the fork stays locked in the
 * child.
 */
static inline coreline_code_t coreline_mutex_lock_inline(coreline_mutex_t *mutex)
{
#ifndef CORELINE_NO_INLINE
    if (coreline_mutex_try_lock_inline(mutex) == CORELINE_OK) {
        return CORELINE_OK;
    }
#endif
    return coreline_mutex_lock(mutex);
}

/**
 * Locks a ticket lock if it is free now, without a call.
 *
 * It does what `coreline_ticket_lock_try_lock` does. The address is not checked. With
 * `CORELINE_NO_INLINE` defined, it is that call.
 *
 * Errors: none. The call returns `CORELINE_BUSY` if a thread holds the lock.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork: a
 * lock that another thread held or waited for at the time of the fork stays locked in the child.
 */
static inline coreline_code_t coreline_ticket_lock_try_lock_inline(coreline_ticket_lock_t *lock)
{
#ifdef CORELINE_NO_INLINE
    return coreline_ticket_lock_try_lock(lock);
#else
    /* Acquire: pairs with the release of the thread that unlocked. The exchange succeeds only if no
     * thread has drawn a ticket since, so this is the load that read its store. */
    uint32_t serving = __atomic_load_n(&lock->serving, __ATOMIC_ACQUIRE);
    return __atomic_compare_exchange_n(&lock->next, &serving, serving + 1, 0, __ATOMIC_RELAXED,
                                       __ATOMIC_RELAXED)
        ? CORELINE_OK
        : CORELINE_BUSY;
#endif
}

/**
 * Returns the number of the CPU that runs the calling thread, without a call.
 *
 * It is a call of `coreline_current_cpu` with `CORELINE_NO_INLINE` defined, on other processors than
 * x86-64, and where the C library registers no thread for rseq, as glibc before 2.35.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe after the
 * first call of `coreline_current_cpu` in the process. Fork: safe in a forked child after such a
 * call.
 */
static inline uint32_t coreline_current_cpu_inline(void)
{
#if CORELINE_HAS_SECTIONS
    if (&coreline_rseq_offset != NULL && &coreline_rseq_size != NULL && coreline_rseq_size != 0) {
        int32_t cpu;
        __asm__ volatile("movl %%fs:4(%[area]), %[cpu]" : [cpu] "=r"(cpu) : [area] "r"(coreline_rseq_offset));
        /* Negative: this thread is not registered. */
        if (cpu >= 0) {
            return (uint32_t)cpu;
        }
    }
#endif
    return coreline_current_cpu();
}

/**
 * Adds to a counter, without a call if the thread's CPU has a word of the counter.
 *
 * It does what `coreline_counter_add` does, and detects the same misuse. It is that call with `CORELINE_NO_INLINE`
 * defined, on other processors than x86-64, on machines without restartable sequences, for counters with a batch, and
 * before the counter has a word for each CPU.
 *
 * Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_HANDLE`.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe; if a
 * handler adds while it interrupts an addition, both count. Fork: the child has its own copy of the
 * counter.
 */
static inline coreline_code_t coreline_counter_add_inline(const coreline_counter_t *counter, int64_t delta)
{
#if CORELINE_HAS_SECTIONS
    if (coreline_is_marked(counter, CORELINE_COUNTER_MARK)
        && coreline_section_add(coreline_area_of(counter), counter, delta)) {
        return CORELINE_OK;
    }
#endif
    return coreline_counter_add(counter, delta);
}

/**
 * Adds to one counter of a set, without a call if the thread's CPU has a word of the counter.
 *
 * It does what `coreline_counters_add` does, and detects the same misuse. It is that call in the same cases as for
 * `coreline_counter_add_inline`.
 *
 * Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such counter),
 * `CORELINE_ERROR_HANDLE`.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * the child has its own copy of the set.
 */
static inline coreline_code_t coreline_counters_add_inline(const coreline_counters_t *counters, size_t index,
                                                           int64_t delta)
{
#if CORELINE_HAS_SECTIONS
    if (coreline_is_marked(counters, CORELINE_COUNTERS_MARK)
        && index < *(const size_t *)coreline_behind(counters, CORELINE_COUNTERS_LENGTH)) {
        const char *gates = *(const char *const *)coreline_behind(counters, CORELINE_COUNTERS_GATES);
        if (coreline_section_add_behind(coreline_area_of(counters),
                                        gates + index / CORELINE_COUNTERS_OF_GATE * CORELINE_COUNTERS_GATE_SIZE,
                                        index % CORELINE_COUNTERS_OF_GATE * sizeof(int64_t), delta)) {
            return CORELINE_OK;
        }
    }
#endif
    return coreline_counters_add(counters, index, delta);
}

/**
 * Adds to a word of the calling thread's CPU, without a call if the CPU has used the words before.
 *
 * It does what `coreline_percpu_add` does, and detects the same misuse. It is that call with `CORELINE_NO_INLINE`
 * defined, on other processors than x86-64, and on machines without restartable sequences.
 *
 * Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word),
 * `CORELINE_ERROR_HANDLE`.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * the child has its own copy of the words.
 */
static inline coreline_code_t coreline_percpu_add_inline(const coreline_percpu_t *percpu, size_t word,
                                                         uint64_t delta)
{
#if CORELINE_HAS_SECTIONS
    coreline_word_t found;
    if (coreline_find_word(percpu, word, &found)
        && coreline_section_add_to(coreline_area_of(percpu), found.limits, found.first, delta)) {
        return CORELINE_OK;
    }
#endif
    return coreline_percpu_add(percpu, word, delta);
}

/**
 * Reads a word of the calling thread's CPU, without a call if the CPU has used the words before.
 *
 * It does what `coreline_percpu_load` does, and detects the same misuse. It is that call in the same cases as for
 * `coreline_percpu_add_inline`.
 *
 * Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `out` is not
 * aligned), `CORELINE_ERROR_HANDLE`.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * the child has its own copy of the words.
 */
static inline coreline_code_t coreline_percpu_load_inline(const coreline_percpu_t *percpu, size_t word,
                                                          uint64_t *out)
{
#if CORELINE_HAS_SECTIONS
    coreline_word_t found;
    if (coreline_is_place(out) && coreline_find_word(percpu, word, &found)
        && coreline_section_load(coreline_area_of(percpu), found.limits, found.first, out)) {
        return CORELINE_OK;
    }
#endif
    return coreline_percpu_load(percpu, word, out);
}

/**
 * Exchanges a word of the calling thread's CPU, without a call if the CPU has used the words before.
 *
 * It does what `coreline_percpu_exchange` does, and detects the same misuse. It is that call in the same cases as for
 * `coreline_percpu_add_inline`.
 *
 * Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `old` is not
 * aligned), `CORELINE_ERROR_HANDLE`.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * the child has its own copy of the words.
 */
static inline coreline_code_t coreline_percpu_exchange_inline(const coreline_percpu_t *percpu, size_t word,
                                                              uint64_t value, uint64_t *old)
{
#if CORELINE_HAS_SECTIONS
    coreline_word_t found;
    if (coreline_is_place(old) && coreline_find_word(percpu, word, &found)
        && coreline_section_exchange(coreline_area_of(percpu), found.limits, found.first, value, old)) {
        return CORELINE_OK;
    }
#endif
    return coreline_percpu_exchange(percpu, word, value, old);
}

/**
 * Writes a word of the calling thread's CPU if the word has the expected value, without a call if
 * the CPU has used the words before.
 *
 * It does what `coreline_percpu_store_if_equal` does, and finds the same misuse. It is that call in
 * the same cases as for `coreline_percpu_add_inline`.
 *
 * Errors: `CORELINE_ERROR_NULL`, `CORELINE_ERROR_ARGUMENT` (there is no such word, or `expected` is
 * not aligned), `CORELINE_ERROR_HANDLE`. The call returns `CORELINE_UNEQUAL` if the word has another
 * value.
 *
 * Threads: any number of threads may call it at the same time. Signals: async-signal-safe. Fork:
 * the child has its own copy of the words.
 */
static inline coreline_code_t coreline_percpu_store_if_equal_inline(const coreline_percpu_t *percpu,
                                                                    size_t word, uint64_t *expected,
                                                                    uint64_t value)
{
#if CORELINE_HAS_SECTIONS
    coreline_word_t at;
    if (coreline_is_place(expected) && coreline_find_word(percpu, word, &at)) {
        const uint64_t asked = *expected;
        uint64_t found;
        if (coreline_section_store_if_equal(coreline_area_of(percpu), at.limits, at.first, asked, value, &found)) {
            if (found == asked) {
                return CORELINE_OK;
            }
            *expected = found;
            return CORELINE_UNEQUAL;
        }
    }
#endif
    return coreline_percpu_store_if_equal(percpu, word, expected, value);
}

#ifdef __cplusplus
}
#endif

#endif /* CORELINE_INLINE_H */
