/*
 * Threads with the smallest stack, threads that end with locks, and functions that run while a thread
 * ends.
 */
#include "check.h"

#include <limits.h>

enum { ROUNDS = 4 };

static coreline_counter_t *counter;
static coreline_percpu_t *percpu;
static coreline_cache_t *cache;
static coreline_mask_t *mask;
static coreline_versioned_t *versioned;
static coreline_workers_t *workers;
static int value;

static void set(void *called)
{
    *(int *)called = 1;
}

/* Uses objects that all threads share, and a lock of each kind. */
static void use(void)
{
    static coreline_mutex_t mutex;
    static coreline_rwlock_t rwlock;
    static coreline_biased_rwlock_t biased;
    coreline_reader_t *reader = NULL;
    void *object = NULL;
    int64_t sum = 0;
    uint64_t words = 0;
    int called = 0;
    OK(coreline_counter_add(counter, 1));
    OK(coreline_counter_sum(counter, &sum));
    OK(coreline_percpu_add(percpu, 0, 1));
    OK(coreline_percpu_sum(percpu, 0, &words));
    OK(coreline_cache_get(cache, &object));
    OK(coreline_cache_put(cache, object));
    CHECK(coreline_mask_set(mask, coreline_current_cpu()) >= 0);
    OK(coreline_reader_create(versioned, &reader));
    OK(coreline_reader_enter(reader, &object));
    OK(coreline_reader_leave(reader));
    OK(coreline_reader_destroy(reader));
    OK(coreline_mutex_lock(&mutex));
    OK(coreline_mutex_unlock(&mutex));
    OK(coreline_rwlock_write(&rwlock));
    OK(coreline_rwlock_write_unlock(&rwlock));
    OK(coreline_biased_rwlock_read(&biased));
    OK(coreline_biased_rwlock_read_unlock(&biased));
    coreline_code_t code = coreline_workers_call(workers, coreline_current_cpu(), set, &called);
    CHECK(code == CORELINE_OK ? called : code == CORELINE_ERROR_NO_WORKER);
}

static void *make(void *unused)
{
    coreline_cache_options_t options;
    memset(&options, 0, sizeof(options));
    options.size = 24;
    OK(coreline_prepare());
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_percpu_create(NULL, 1, &percpu));
    OK(coreline_cache_create(&options, &cache));
    OK(coreline_mask_create(&mask));
    OK(coreline_versioned_create(&value, NULL, NULL, &versioned));
    OK(coreline_workers_create(NULL, &workers));
    return unused;
}

static void *use_once(void *unused)
{
    use();
    return unused;
}

static void with_stack(size_t size, void *(*function)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, size) == 0);
    CHECK(pthread_create(&thread, &attributes, function, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_attr_destroy(&attributes) == 0);
}

static pthread_key_t key;
static int ends;

/* Runs up to four times at the end of a thread, after thread-local variables of C++ are gone. */
static void at_end(void *left)
{
    size_t number = (size_t)left;
    use();
    __atomic_add_fetch(&ends, 1, __ATOMIC_RELAXED);
    if (number > 1) {
        pthread_setspecific(key, (void *)(number - 1));
    }
}

static void *ends_later(void *unused)
{
    CHECK(pthread_setspecific(key, (void *)(size_t)ROUNDS) == 0);
    return unused;
}

static coreline_mutex_t mutex;
static coreline_checked_mutex_t checked;
static coreline_rwlock_t rwlock;
static coreline_biased_rwlock_t biased;

static void *ends_with_locks(void *unused)
{
    OK(coreline_mutex_lock(&mutex));
    OK(coreline_checked_mutex_lock(&checked));
    OK(coreline_rwlock_read(&rwlock));
    OK(coreline_biased_rwlock_read(&biased));
    return unused;
}

/* The locks stay locked, and no later thread is taken for their holder. */
static void *finds_them(void *unused)
{
    RETURNS(CORELINE_TIMED_OUT, coreline_mutex_lock_by(&mutex, soon()));
    RETURNS(CORELINE_TIMED_OUT, coreline_checked_mutex_lock_by(&checked, soon()));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_checked_mutex_unlock(&checked));
    RETURNS(CORELINE_TIMED_OUT, coreline_rwlock_write_by(&rwlock, soon()));
    RETURNS(CORELINE_TIMED_OUT, coreline_biased_rwlock_write_by(&biased, soon()));
    return unused;
}

/* Sanitizers need more stack than these threads have, and see what a thread leaves that calls functions at its end. */
static int is_sanitized(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 1;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return 1;
#endif
#endif
    return 0;
}

int main(void)
{
    if (is_sanitized()) {
        make(NULL);
    } else {
        with_stack(128 << 10, make);
        with_stack((size_t)PTHREAD_STACK_MIN, use_once);
    }
    if (!is_sanitized()) {
        CHECK(pthread_key_create(&key, at_end) == 0);
        in_threads(ends_later);
        CHECK(ends == THREADS * ROUNDS);
    }

    elsewhere(ends_with_locks);
    for (int time = 0; time < 20; time++) {
        elsewhere(finds_them);
    }
    RETURNS(CORELINE_BUSY, coreline_biased_rwlock_destroy(&biased));
    OK(coreline_biased_rwlock_read_unlock(&biased));
    OK(coreline_biased_rwlock_destroy(&biased));

    OK(coreline_workers_destroy(workers));
    OK(coreline_versioned_destroy(versioned));
    OK(coreline_mask_destroy(mask));
    OK(coreline_cache_destroy(cache));
    OK(coreline_percpu_destroy(percpu));
    OK(coreline_counter_destroy(counter));
    return 0;
}
