/*
 * Forks while other threads are in all kinds of calls. The child uses copies of the objects that these
 * threads use, creates and destroys others, and uses locks that only its own thread used.
 */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 200, COUNTERS = 40, SECONDS = 60 };

static coreline_pool_t *pool;
static coreline_counter_t *counter;
static coreline_counters_t *counters;
static coreline_percpu_t *percpu;
static coreline_mask_t *mask;
static coreline_cache_t *cache;
static coreline_domains_t *domains;
static coreline_domain_t *domain;
static coreline_local_t *local;
static coreline_presence_t *presence;
static coreline_versioned_t *versioned;
static coreline_limiter_t *limiter;
static int over;

/* For a shootdown that reaches no member. */
static void never(void *unused)
{
    (void)unused;
    abort();
}

/* Uses objects that all threads share. */
static void use(void)
{
    coreline_lease_t lease = CORELINE_LEASE_INIT;
    coreline_reading_t reading;
    coreline_usage_t usage;
    int64_t sums[COUNTERS], sum = 0;
    uint64_t value = 0, *word = NULL;
    uint32_t cpus[4];
    size_t count = 0;
    int is_set = 0;
    void *object = NULL;
    coreline_code_t code;
    OK(coreline_counter_add(counter, 1));
    OK(coreline_counter_read(counter, &reading));
    OK(coreline_counter_sum(counter, &sum));
    OK(coreline_counter_drain(counter, &sum));
    OK(coreline_counter_set(counter, 3, &sum));
    OK(coreline_counters_add(counters, COUNTERS - 1, 1));
    OK(coreline_counters_sum(counters, 0, &sum));
    OK(coreline_counters_drain(counters, sums, COUNTERS));
    OK(coreline_percpu_add(percpu, 0, 1));
    OK(coreline_percpu_exchange(percpu, 1, 7, &value));
    OK(coreline_percpu_load(percpu, 1, &value));
    code = coreline_percpu_store_if_equal(percpu, 1, &value, 8);
    CHECK(code == CORELINE_OK || code == CORELINE_UNEQUAL);
    OK(coreline_percpu_sum(percpu, 0, &value));
    OK(coreline_percpu_peek(percpu, 0, 0, &value));
    CHECK(coreline_mask_set(mask, coreline_current_cpu()) >= 0);
    OK(coreline_mask_test(mask, 0, &is_set));
    OK(coreline_mask_weight(mask, &count));
    OK(coreline_mask_list(mask, cpus, 4, &count));
    CHECK(coreline_mask_clear(mask, coreline_current_cpu()) >= 0);
    OK(coreline_mask_trim(mask));
    OK(coreline_cache_get(cache, &object));
    OK(coreline_cache_put(cache, object));
    OK(coreline_cache_get(cache, &object));
    OK(coreline_cache_discard(cache, object));
    OK(coreline_cache_shrink(cache, &count));
    code = coreline_limiter_try_acquire(limiter, 1, &value);
    CHECK(code == CORELINE_OK || code == CORELINE_BUSY);
    OK(coreline_pool_live(pool, &count));
    OK(coreline_pool_mapped(pool, &count));
    OK(coreline_pool_trim(pool, &count));
    OK(coreline_local_add(local, 0, 1));
    OK(coreline_local_sum(local, 0, &value));
    code = coreline_domain_try_lease(domain, &lease);
    CHECK(code == CORELINE_OK || code == CORELINE_BUSY);
    if (code == CORELINE_OK) {
        OK(coreline_local_leased(local, &lease, 1, &word));
        *word += 1;
        OK(coreline_domain_return(domain, &lease));
    }
    OK(coreline_domain_usage(domain, &usage));
    OK(coreline_domain_expire(domain));
}

/* Creates and destroys objects of each type, in a pool and in the process's own. */
static void make(void)
{
    const coreline_pool_t *pools[] = { NULL, pool };
    coreline_cache_options_t options;
    coreline_shot_t shot;
    memset(&options, 0, sizeof(options));
    options.size = 40;
    for (size_t which = 0; which < 2; which++) {
        coreline_counter_t *one = NULL;
        coreline_counters_t *many = NULL;
        coreline_percpu_t *words = NULL;
        OK(coreline_counter_create(pools[which], 0, &one));
        for (int time = 0; time < 100; time++) {
            OK(coreline_counter_add(one, 1));
        }
        OK(coreline_counter_destroy(one));
        OK(coreline_counters_create(pools[which], COUNTERS, &many));
        OK(coreline_counters_add(many, 1, 1));
        OK(coreline_counters_destroy(many));
        OK(coreline_percpu_create(pools[which], 9, &words));
        OK(coreline_percpu_add(words, 8, 1));
        OK(coreline_percpu_destroy(words));
    }
    coreline_pool_t *own_pool = NULL;
    coreline_mask_t *own_mask = NULL;
    coreline_cache_t *own_cache = NULL;
    coreline_limiter_t *own_limiter = NULL;
    coreline_read_mostly_t *lock = NULL;
    coreline_domains_t *own_domains = NULL;
    coreline_domain_t *own_domain = NULL;
    coreline_local_t *own_local = NULL;
    coreline_presence_t *own_presence = NULL;
    coreline_member_t *member = NULL;
    coreline_versioned_t *own_versioned = NULL;
    coreline_reader_t *reader = NULL;
    coreline_lease_t lease = CORELINE_LEASE_INIT;
    uint64_t *word = NULL;
    void *value = NULL;
    int must_refresh = 0;
    OK(coreline_pool_create(CORELINE_POOL_DEFAULT, &own_pool));
    OK(coreline_pool_destroy(own_pool));
    OK(coreline_mask_create(&own_mask));
    OK(coreline_mask_destroy(own_mask));
    OK(coreline_cache_create(&options, &own_cache));
    OK(coreline_cache_get(own_cache, &value));
    OK(coreline_cache_put(own_cache, value));
    OK(coreline_cache_destroy(own_cache));
    OK(coreline_limiter_create(1000000, 1000000000, 1024, &own_limiter));
    OK(coreline_limiter_try_acquire(own_limiter, 1, NULL));
    OK(coreline_limiter_destroy(own_limiter));
    OK(coreline_read_mostly_create(&lock));
    OK(coreline_read_mostly_read(lock));
    OK(coreline_read_mostly_read_unlock(lock));
    OK(coreline_read_mostly_write(lock));
    OK(coreline_read_mostly_write_unlock(lock));
    OK(coreline_read_mostly_destroy(lock));
    OK(coreline_domains_create(3, &own_domains));
    OK(coreline_domain_create(own_domains, CORELINE_DOMAIN_PRESENCE, &own_domain));
    OK(coreline_domains_destroy(own_domains));
    OK(coreline_domain_join(own_domain, &member));
    OK(coreline_local_create(own_domain, 2, &own_local));
    OK(coreline_member_enter(member, &must_refresh));
    OK(coreline_local_add(own_local, 1, 1));
    OK(coreline_member_leave(member));
    OK(coreline_domain_lease(own_domain, &lease));
    OK(coreline_local_leased(own_local, &lease, 0, &word));
    OK(coreline_domain_return(own_domain, &lease));
    OK(coreline_member_destroy(member));
    OK(coreline_local_destroy(own_local));
    OK(coreline_domain_destroy(own_domain));
    OK(coreline_presence_create(0, 0, &own_presence));
    OK(coreline_presence_join(own_presence, &member));
    OK(coreline_presence_shootdown(own_presence, never, NULL, &shot));
    OK(coreline_member_destroy(member));
    OK(coreline_presence_destroy(own_presence));
    OK(coreline_versioned_create(&over, NULL, NULL, &own_versioned));
    OK(coreline_reader_create(own_versioned, &reader));
    OK(coreline_reader_enter(reader, &value));
    OK(coreline_versioned_update(own_versioned, &pool));
    OK(coreline_reader_leave(reader));
    OK(coreline_versioned_synchronize(own_versioned));
    OK(coreline_reader_destroy(reader));
    OK(coreline_versioned_destroy(own_versioned));
    /* Registers with objects that other threads use. */
    OK(coreline_presence_join(presence, &member));
    OK(coreline_member_enter(member, &must_refresh));
    OK(coreline_member_leave(member));
    OK(coreline_member_destroy(member));
    OK(coreline_reader_create(versioned, &reader));
    OK(coreline_reader_enter(reader, &value));
    CHECK(value != NULL);
    OK(coreline_reader_leave(reader));
    OK(coreline_reader_destroy(reader));
    OK(coreline_domain_join(domain, &member));
    OK(coreline_member_destroy(member));
    OK(coreline_local_create(domain, 2, &own_local));
    OK(coreline_local_destroy(own_local));
}

/* Locks that no other thread uses. Each is held at the fork. */
static struct {
    coreline_mutex_t mutex;
    coreline_checked_mutex_t checked;
    coreline_rwlock_t rwlock;
    coreline_biased_rwlock_t biased;
    coreline_ticket_lock_t ticket;
    coreline_osq_near_t near_lock;
    coreline_osq_fifo_t fifo_lock;
    coreline_turn_t turns[2];
    coreline_read_mostly_t *mostly;
} own;

static void lock(void)
{
    OK(coreline_mutex_lock(&own.mutex));
    OK(coreline_checked_mutex_lock(&own.checked));
    OK(coreline_rwlock_write(&own.rwlock));
    OK(coreline_biased_rwlock_read(&own.biased));
    OK(coreline_ticket_lock_lock(&own.ticket));
    OK(coreline_osq_near_lock(&own.near_lock, &own.turns[0]));
    OK(coreline_osq_fifo_lock(&own.fifo_lock, &own.turns[1]));
    OK(coreline_read_mostly_read(own.mostly));
}

static void unlock(void)
{
    OK(coreline_mutex_unlock(&own.mutex));
    OK(coreline_checked_mutex_unlock(&own.checked));
    OK(coreline_rwlock_downgrade(&own.rwlock));
    OK(coreline_rwlock_read_unlock(&own.rwlock));
    OK(coreline_biased_rwlock_read_unlock(&own.biased));
    OK(coreline_biased_rwlock_write(&own.biased));
    OK(coreline_biased_rwlock_write_unlock(&own.biased));
    OK(coreline_ticket_lock_unlock(&own.ticket));
    OK(coreline_osq_near_unlock(&own.near_lock, &own.turns[0]));
    OK(coreline_osq_fifo_unlock(&own.fifo_lock, &own.turns[1]));
    OK(coreline_read_mostly_read_unlock(own.mostly));
    OK(coreline_read_mostly_write(own.mostly));
    OK(coreline_read_mostly_write_unlock(own.mostly));
}

/* Locks that other threads use, of which the child uses none. */
static coreline_mutex_t others = CORELINE_MUTEX_INIT;

static void *work(void *number)
{
    coreline_member_t *member = NULL;
    coreline_reader_t *reader = NULL;
    OK(coreline_presence_join(presence, &member));
    OK(coreline_reader_create(versioned, &reader));
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        void *value = NULL;
        int must_refresh = 0;
        OK(coreline_member_enter(member, &must_refresh));
        OK(coreline_reader_enter(reader, &value));
        OK(coreline_reader_leave(reader));
        OK(coreline_member_leave(member));
        if ((size_t)number % 2) {
            use();
        } else {
            make();
        }
        OK(coreline_mutex_lock(&others));
        OK(coreline_mutex_unlock(&others));
    }
    OK(coreline_reader_destroy(reader));
    OK(coreline_member_destroy(member));
    return NULL;
}

static void *child_thread(void *number)
{
    (void)number;
    use();
    make();
    return NULL;
}

/* What a child does. */
static void child(int number)
{
    /* If it waits forever, a signal ends it. */
    alarm(SECONDS);
    unlock();
    lock();
    unlock();
    for (int time = 0; time < 3; time++) {
        use();
        make();
    }
    if (number % 4 == 0) {
        elsewhere(child_thread);
    }
    _exit(0);
}

static void *fork_often(void *number)
{
    (void)number;
    for (int time = 0; time < FORKS; time++) {
        int status = -1;
        lock();
        pid_t process = fork();
        CHECK(process >= 0);
        if (process == 0) {
            child(time);
        }
        unlock();
        CHECK(waitpid(process, &status, 0) == process);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fprintf(stderr, "child %d: status %x\n", time, (unsigned)status);
            exit(1);
        }
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    return NULL;
}

static void *either(void *number)
{
    return number == NULL ? fork_often(number) : work(number);
}

/* Whether `malloc` works in a child of a process with more threads: not that of AddressSanitizer. */
static int can_fork(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 0;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
    return 0;
#endif
#endif
    return 1;
}

int main(void)
{
    coreline_cache_options_t options;
    if (!can_fork()) {
        return 0;
    }
    memset(&options, 0, sizeof(options));
    options.size = 24;
    OK(coreline_pool_create(CORELINE_POOL_DEFAULT, &pool));
    OK(coreline_counter_create(pool, 0, &counter));
    OK(coreline_counters_create(pool, COUNTERS, &counters));
    OK(coreline_percpu_create(pool, 2, &percpu));
    OK(coreline_mask_create(&mask));
    OK(coreline_cache_create(&options, &cache));
    OK(coreline_domains_create(8, &domains));
    OK(coreline_domain_create(domains, CORELINE_DOMAIN_DEFAULT, &domain));
    OK(coreline_local_create(domain, 2, &local));
    OK(coreline_presence_create(0, 0, &presence));
    OK(coreline_versioned_create(&over, NULL, NULL, &versioned));
    OK(coreline_limiter_create(1000000, 1000000000, 1024, &limiter));
    OK(coreline_read_mostly_create(&own.mostly));
    in_threads(either);

    OK(coreline_limiter_destroy(limiter));
    OK(coreline_versioned_destroy(versioned));
    OK(coreline_presence_destroy(presence));
    OK(coreline_local_destroy(local));
    OK(coreline_domain_destroy(domain));
    OK(coreline_domains_destroy(domains));
    OK(coreline_cache_destroy(cache));
    OK(coreline_mask_destroy(mask));
    OK(coreline_percpu_destroy(percpu));
    OK(coreline_counters_destroy(counters));
    OK(coreline_counter_destroy(counter));
    OK(coreline_pool_destroy(pool));
    OK(coreline_biased_rwlock_destroy(&own.biased));
    OK(coreline_read_mostly_destroy(own.mostly));
    return 0;
}
