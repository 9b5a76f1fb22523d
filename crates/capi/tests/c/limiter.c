/* Limiters: the law over several threads, what a refusal says, and misuse. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

static const uint64_t second = 1000000000u;

/* A high rate, with permits for each CPU. */
enum { RATE = 1000000, BURST = 4096, TAKEN = 20000 };
static coreline_limiter_t *shared;

static void *take(void *number)
{
    for (int time = 0; time < TAKEN; time++) {
        coreline_code_t code;
        uint64_t after = 0;
        /* Some take two. */
        const uint64_t permits = 1 + (uint64_t)((time + (int)(size_t)number) % 2);
        while ((code = coreline_limiter_try_acquire(shared, permits, &after)) == CORELINE_BUSY) {
            CHECK(after > 0 && after <= second);
            after = 0;
        }
        OK(code);
        CHECK(after == 0);
    }
    return NULL;
}

static void the_law(void)
{
    const uint64_t passed = THREADS * (uint64_t)TAKEN * 3 / 2;
    uint64_t begin, end, capacity = 0;
    begin = coreline_now();
    OK(coreline_limiter_create(RATE, second, BURST, &shared));
    OK(coreline_limiter_capacity(shared, &capacity));
    CHECK(capacity <= BURST && capacity >= BURST / 16 * 15);
    in_threads(take);
    end = coreline_now();
    CHECK(passed <= BURST + (end - begin) * RATE / second);
    OK(coreline_limiter_destroy(shared));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_limiter_destroy(shared));
}

static void refusals(void)
{
    coreline_limiter_t *limiter = NULL;
    uint64_t after = 7, capacity = 0;
    /* One permit a day. */
    OK(coreline_limiter_create(1, 86400 * second, 3, &limiter));
    OK(coreline_limiter_capacity(limiter, &capacity));
    CHECK(capacity == 3);
    OK(coreline_limiter_try_acquire(limiter, 0, &after));
    OK(coreline_limiter_try_acquire(limiter, 2, &after));
    CHECK(after == 7);
    RETURNS(CORELINE_BUSY, coreline_limiter_try_acquire(limiter, 2, &after));
    CHECK(after > 86000 * second && after <= 86400 * second);
    RETURNS(CORELINE_BUSY, coreline_limiter_try_acquire(limiter, 3, &after));
    CHECK(after > 2 * 86000 * second && after <= 2 * 86400 * second);
    OK(coreline_limiter_try_acquire(limiter, 1, NULL));
    RETURNS(CORELINE_BUSY, coreline_limiter_try_acquire(limiter, 1, NULL));
    after = 7;
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_limiter_try_acquire(limiter, 4, &after));
    RETURNS(CORELINE_ERROR_ARGUMENT,
            coreline_limiter_try_acquire(limiter, 1, (uint64_t *)(void *)((char *)&after + 4)));
    RETURNS(CORELINE_ERROR_NULL, coreline_limiter_try_acquire(NULL, 1, &after));
    RETURNS(CORELINE_ERROR_NULL, coreline_limiter_capacity(limiter, NULL));
    CHECK(after == 7);
    OK(coreline_limiter_destroy(limiter));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_limiter_try_acquire(limiter, 1, &after));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_limiter_capacity(limiter, &capacity));
    RETURNS(CORELINE_ERROR_NULL, coreline_limiter_destroy(NULL));
}

static void no_limits(void)
{
    coreline_limiter_t *limiter = NULL;
    RETURNS(CORELINE_ERROR_NULL, coreline_limiter_create(1, second, 1, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_limiter_create(0, second, 1, &limiter));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_limiter_create(1, 0, 1, &limiter));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_limiter_create(1, second, 0, &limiter));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_limiter_create(11 * second, second, 1, &limiter));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_limiter_create(1, second, UINT64_MAX, &limiter));
    CHECK(limiter == NULL);
}

/* The child has the same permits once more. */
static void forks(void)
{
    coreline_limiter_t *limiter = NULL;
    int status = 0;
    pid_t child;
    OK(coreline_limiter_create(1, 86400 * second, 2, &limiter));
    OK(coreline_limiter_try_acquire(limiter, 1, NULL));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(coreline_limiter_try_acquire(limiter, 1, NULL));
        RETURNS(CORELINE_BUSY, coreline_limiter_try_acquire(limiter, 1, NULL));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(coreline_limiter_try_acquire(limiter, 1, NULL));
    RETURNS(CORELINE_BUSY, coreline_limiter_try_acquire(limiter, 1, NULL));
    OK(coreline_limiter_destroy(limiter));
}

int main(void)
{
    the_law();
    refusals();
    no_limits();
    forks();
    return 0;
}
