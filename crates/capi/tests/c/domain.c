/* Domains: words by concurrency ID, leases, members; and misuse. */
#include "check.h"

enum { TIMES = 20000, LEASES = 2, WORDS = 11 };

static coreline_domains_t *few;
static coreline_domain_t *domain;
static coreline_local_t *words;
static coreline_lease_t held = CORELINE_LEASE_INIT;
static int leased;

/* Adds in a domain, and in the memory of a lease, of which there are fewer than threads. */
static void *use(void *number)
{
    coreline_member_t *member = NULL;
    int must_refresh = 7;
    OK(coreline_domain_join(domain, &member));
    for (int time = 0; time < TIMES; time++) {
        coreline_lease_t lease = CORELINE_LEASE_INIT;
        uint64_t *word = NULL;
        OK(coreline_member_enter(member, &must_refresh));
        /* The domain has no presence. */
        CHECK(must_refresh == 0);
        OK(coreline_local_add(words, 0, 1));
        OK(coreline_local_add(words, WORDS - 1, 2));
        OK(coreline_member_leave(member));
        if (time % 4 == (int)(size_t)number) {
            coreline_code_t code = CORELINE_OK;
            if (time % 3 == 0) {
                OK(coreline_domain_lease(domain, &lease));
            } else if (time % 3 == 1) {
                OK(coreline_domain_lease_by(domain, &lease, late()));
            } else {
                code = coreline_domain_try_lease(domain, &lease);
                CHECK(code == CORELINE_OK || code == CORELINE_BUSY);
            }
            if (code == CORELINE_OK) {
                CHECK(__atomic_fetch_add(&leased, 1, __ATOMIC_RELAXED) < LEASES);
                OK(coreline_local_leased(words, &lease, 1, &word));
                /* No other thread has the ID, so no addition is lost. */
                *word = *word + 1;
                OK(coreline_local_add(words, 2, 1));
                __atomic_fetch_sub(&leased, 1, __ATOMIC_RELAXED);
                OK(coreline_domain_return(domain, &lease));
                RETURNS(CORELINE_ERROR_NOT_HELD, coreline_domain_return(domain, &lease));
            }
        }
    }
    OK(coreline_member_destroy(member));
    return NULL;
}

static void *returns_it(void *number)
{
    (void)number;
    OK(coreline_domain_return(domain, &held));
    return NULL;
}

static void leases(void)
{
    coreline_lease_t all[LEASES], more = CORELINE_LEASE_INIT;
    coreline_domain_t *other = NULL;
    coreline_usage_t usage;
    uint64_t *word = NULL, value = 7;
    memset(all, 0, sizeof(all));
    for (int which = 0; which < LEASES; which++) {
        OK(coreline_domain_try_lease(domain, &all[which]));
    }
    CHECK(all[0].id != all[1].id);
    RETURNS(CORELINE_BUSY, coreline_domain_try_lease(domain, &more));
    RETURNS(CORELINE_TIMED_OUT, coreline_domain_lease_by(domain, &more, soon()));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_domain_return(domain, &more));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_local_leased(words, &more, 0, &word));
    OK(coreline_domain_usage(domain, &usage));
    CHECK(usage.leased == LEASES && usage.bytes > 0 && usage.users == 0);

    /* The words of a lease are adjacent in groups of eight, and others can read them. */
    OK(coreline_local_leased(words, &all[0], 3, &word));
    word[0] = 3;
    word[4] = 7;
    OK(coreline_local_peek(words, 3, (size_t)all[0].id, &value));
    CHECK(value == 3);
    OK(coreline_local_peek(words, 7, (size_t)all[0].id, &value));
    CHECK(value == 7);
    OK(coreline_local_sum(words, 7, &value));
    CHECK(value == 7);
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_local_leased(words, &all[0], WORDS, &word));

    /* A lease of another domain, and one that is not there any more. */
    OK(coreline_domain_create(few, CORELINE_DOMAIN_DEFAULT, &other));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_domain_return(other, &all[0]));
    OK(coreline_domain_try_lease(other, &more));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_local_leased(words, &more, 0, &word));
    RETURNS(CORELINE_ERROR_FAULTS, coreline_domain_destroy(other));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_domain_return(other, &more));
    OK(coreline_domain_create(few, CORELINE_DOMAIN_DEFAULT, &other));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_domain_return(other, &more));
    OK(coreline_domain_destroy(other));

    OK(coreline_domain_return(domain, &all[0]));
    /* Another thread may return it. */
    held = all[1];
    elsewhere(returns_it);
    OK(coreline_domain_usage(domain, &usage));
    CHECK(usage.leased == 0);
}

static void count(void *counter)
{
    ++*(int *)counter;
}

static void *shoot(void *counter)
{
    coreline_shot_t shot;
    OK(coreline_domain_shootdown(domain, count, &leased, &shot));
    return counter;
}

static void members(void)
{
    coreline_member_t *member = NULL;
    coreline_shot_t shot;
    coreline_usage_t usage;
    pthread_t thread;
    int must_refresh = 7;
    OK(coreline_domain_join(domain, &member));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_domain_shootdown(domain, count, &leased, &shot));
    OK(coreline_member_enter(member, &must_refresh));
    RETURNS(CORELINE_ERROR_ARGUMENT,
            coreline_member_shootdown(member, count, &leased, &shot, &must_refresh));
    OK(coreline_member_leave(member));
    OK(coreline_member_destroy(member));
    OK(coreline_local_destroy(words));
    OK(coreline_domain_destroy(domain));

    OK(coreline_domain_create(NULL, CORELINE_DOMAIN_PRESENCE, &domain));
    OK(coreline_domain_join(domain, &member));
    leased = 0;
    OK(coreline_member_enter(member, &must_refresh));
    CHECK(must_refresh == 1);
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_domain_shootdown(domain, count, &leased, &shot));
    CHECK(pthread_create(&thread, NULL, shoot, NULL) == 0);
    while (!leased) {
        OK(coreline_member_poll(member, &must_refresh));
        sched_yield();
    }
    CHECK(pthread_join(thread, NULL) == 0);
    OK(coreline_member_shootdown(member, count, &leased, &shot, &must_refresh));
    CHECK(leased == 2 && shot.reached == 1);
    OK(coreline_domain_usage(domain, &usage));
    CHECK(usage.users == 1);
    /* In use, and destroyed all the same; the member goes on. */
    RETURNS(CORELINE_ERROR_FAULTS, coreline_domain_destroy(domain));
    OK(coreline_member_leave(member));
    OK(coreline_member_destroy(member));
}

static void misuse(void)
{
    coreline_domains_t *many = NULL;
    coreline_lease_t lease = CORELINE_LEASE_INIT;
    coreline_lease_t *odd = (coreline_lease_t *)(void *)((char *)&held + 4);
    uint64_t value = 7;
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_domains_create(1 << 20, &many));
    RETURNS(CORELINE_ERROR_NULL, coreline_domains_create(1, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_domain_create(NULL, 0, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_domain_create(NULL, 2, &domain));
    RETURNS(CORELINE_ERROR_NULL, coreline_domain_lease(NULL, &lease));
    RETURNS(CORELINE_ERROR_NULL, coreline_domain_lease(domain, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_domain_lease(domain, odd));
    RETURNS(CORELINE_ERROR_NULL, coreline_domain_join(domain, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_local_create(domain, 0, &words));
    RETURNS(CORELINE_ERROR_NULL, coreline_local_create(NULL, 1, &words));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_local_add(words, WORDS, 1));
    RETURNS(CORELINE_ERROR_NULL, coreline_local_sum(words, 0, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_local_peek(words, 0, 1u << 20, &value));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_local_add((coreline_local_t *)(void *)domain, 0, 1));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_domain_expire((coreline_domain_t *)(void *)words));
    CHECK(value == 7);
}

int main(void)
{
    uint64_t value = 0, expected = 1;
    coreline_code_t code;
    int64_t turns = 0;
    OK(coreline_domains_create(LEASES, &few));
    OK(coreline_domain_create(few, CORELINE_DOMAIN_DEFAULT, &domain));
    OK(coreline_local_create(domain, WORDS, &words));
    in_threads(use);
    OK(coreline_local_sum(words, 0, &value));
    CHECK(value == THREADS * TIMES);
    OK(coreline_local_sum(words, WORDS - 1, &value));
    CHECK(value == 2 * THREADS * TIMES);
    OK(coreline_local_sum(words, 1, &value));
    turns = (int64_t)value;
    OK(coreline_local_sum(words, 2, &value));
    CHECK(turns == (int64_t)value && turns > 0);
    OK(coreline_domain_expire(domain));

    OK(coreline_local_exchange(words, 8, 5, &value));
    OK(coreline_local_load(words, 8, &value));
    do {
        code = coreline_local_store_if_equal(words, 8, &expected, 9);
    } while (code == CORELINE_UNEQUAL);
    CHECK(code == CORELINE_OK);
    misuse();
    leases();
    members();
    OK(coreline_domains_destroy(few));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_domain_create(few, 0, &domain));
    return 0;
}
