/* Mutexes: with and without an owner that is known. */
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 50000 };

static coreline_mutex_t mutex = CORELINE_MUTEX_INIT;
static coreline_checked_mutex_t checked = CORELINE_CHECKED_MUTEX_INIT;
static int64_t shared, counted;

static void *count(void *number)
{
    (void)number;
    for (int time = 0; time < TIMES; time++) {
        switch (time % 4) {
        case 0: OK(coreline_mutex_lock(&mutex)); break;
        case 1: OK(coreline_mutex_lock_inline(&mutex)); break;
        case 2: OK(coreline_mutex_lock_by(&mutex, late())); break;
        default:
            while (coreline_mutex_try_lock_inline(&mutex) == CORELINE_BUSY) {
            }
        }
        shared++;
        OK(coreline_mutex_unlock(&mutex));
        OK(coreline_checked_mutex_lock(&checked));
        counted++;
        OK(coreline_checked_mutex_unlock(&checked));
    }
    return NULL;
}

static void *finds_it_held(void *number)
{
    (void)number;
    RETURNS(CORELINE_BUSY, coreline_mutex_try_lock(&mutex));
    RETURNS(CORELINE_BUSY, coreline_mutex_try_lock_inline(&mutex));
    RETURNS(CORELINE_TIMED_OUT, coreline_mutex_lock_by(&mutex, 0));
    RETURNS(CORELINE_TIMED_OUT, coreline_mutex_lock_by(&mutex, soon()));
    RETURNS(CORELINE_BUSY, coreline_checked_mutex_try_lock(&checked));
    RETURNS(CORELINE_TIMED_OUT, coreline_checked_mutex_lock_by(&checked, soon()));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_checked_mutex_unlock(&checked));
    return NULL;
}

static void misuse(void)
{
    void *odd = (char *)&checked + 1;
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_mutex_unlock(&mutex));
    RETURNS(CORELINE_ERROR_NULL, coreline_mutex_lock(NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_mutex_lock((coreline_mutex_t *)odd));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_checked_mutex_unlock(&checked));
    OK(coreline_checked_mutex_try_lock(&checked));
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_checked_mutex_lock(&checked));
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_checked_mutex_try_lock(&checked));
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_checked_mutex_lock_by(&checked, late()));
    OK(coreline_checked_mutex_unlock(&checked));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_checked_mutex_unlock(&checked));
}

/* A child unlocks what its parent's thread held, and the parent does, too. */
static void forks(void)
{
    int status = 0;
    pid_t child;
    OK(coreline_checked_mutex_lock(&checked));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(coreline_checked_mutex_unlock(&checked));
        OK(coreline_checked_mutex_lock(&checked));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(coreline_checked_mutex_unlock(&checked));
}

int main(void)
{
    struct timespec now;
    uint64_t before = coreline_now(), converted;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    converted = coreline_from_timespec(now);
    CHECK(before <= converted && converted <= coreline_now());
    now.tv_sec = -1;
    CHECK(coreline_from_timespec(now) == 0);
    now.tv_sec = (time_t)INT64_MAX;
    CHECK(coreline_from_timespec(now) == UINT64_MAX);

    OK(coreline_prepare());
    in_threads(count);
    CHECK(shared == THREADS * TIMES && counted == THREADS * TIMES);
    OK(coreline_mutex_lock_by(&mutex, 0));
    OK(coreline_checked_mutex_lock_by(&checked, 0));
    elsewhere(finds_it_held);
    OK(coreline_mutex_unlock(&mutex));
    OK(coreline_checked_mutex_unlock(&checked));
    misuse();
    forks();
    return 0;
}
