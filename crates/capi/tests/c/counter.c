/* Counters and sets of counters, in threads, in a signal handler and in a forked child. */
#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 100000, COUNTERS = 40 };

static coreline_counter_t *counter;
static coreline_counters_t *counters;
static int64_t handled;

static void *add(void *number)
{
    for (int time = 0; time < TIMES; time++) {
        OK(coreline_counter_add(counter, 1));
        OK(coreline_counters_add(counters, (size_t)number, 2));
    }
    return NULL;
}

static void handle(int signal)
{
    (void)signal;
    handled++;
    OK(coreline_counter_add(counter, 1));
}

static void one(void)
{
    int64_t value = 0;
    coreline_reading_t reading;
    in_threads(add);
    OK(coreline_counter_sum(counter, &value));
    CHECK(value == THREADS * TIMES);
    OK(coreline_counter_read(counter, &reading));
    CHECK(reading.value == value && reading.error == 0);
    OK(coreline_counter_drain(counter, &value));
    CHECK(value == THREADS * TIMES);
    OK(coreline_counter_drain(counter, &value));
    CHECK(value == 0);
    OK(coreline_counter_add(counter, -3));
    OK(coreline_counter_set(counter, 10, &value));
    CHECK(value == -3);
    OK(coreline_counter_sum(counter, &value));
    CHECK(value == 10);
}

static void set(void)
{
    int64_t sums[COUNTERS], value = 7;
    for (size_t number = 0; number < THREADS; number++) {
        OK(coreline_counters_sum(counters, number, &value));
        CHECK(value == 2 * TIMES);
    }
    OK(coreline_counters_add(counters, COUNTERS - 1, -5));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_add(counters, COUNTERS, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_sum(counters, COUNTERS, &value));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_drain(counters, sums, COUNTERS - 1));
    OK(coreline_counters_drain(counters, sums, COUNTERS));
    CHECK(sums[0] == 2 * TIMES && sums[THREADS] == 0 && sums[COUNTERS - 1] == -5);
    OK(coreline_counters_sum(counters, 0, &value));
    CHECK(value == 0);
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_create(NULL, SIZE_MAX, &counters));
}

static void batched(void)
{
    coreline_counter_t *cheap = NULL;
    coreline_reading_t reading;
    OK(coreline_counter_create(NULL, 64, &cheap));
    for (int time = 0; time < TIMES; time++) {
        OK(coreline_counter_add(cheap, 1));
    }
    OK(coreline_counter_read(cheap, &reading));
    CHECK(reading.error > 0);
    CHECK(reading.value - (int64_t)reading.error <= TIMES);
    CHECK(reading.value + (int64_t)reading.error >= TIMES);
    OK(coreline_counter_destroy(cheap));
}

/* Additions of a handler that interrupts additions all count. */
static void signals(void)
{
    int64_t value = 0, own = 0;
    struct sigaction action;
    pid_t child, parent = getpid();
    memset(&action, 0, sizeof(action));
    action.sa_handler = handle;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    OK(coreline_counter_drain(counter, &value));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int time = 0; time < 200; time++) {
            kill(parent, SIGUSR1);
            usleep(10);
        }
        _exit(0);
    }
    while (waitpid(child, NULL, WNOHANG) == 0) {
        for (int time = 0; time < 1000; time++) {
            OK(coreline_counter_add(counter, 1));
            own++;
        }
    }
    OK(coreline_counter_sum(counter, &value));
    CHECK(handled > 0 && value == own + handled);
}

/* A child has its own copy. */
static void forks(void)
{
    int64_t value = 0;
    int status = 0;
    pid_t child;
    OK(coreline_counter_set(counter, 5, &value));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(coreline_counter_add(counter, 1));
        OK(coreline_counter_sum(counter, &value));
        _exit(value == 6 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(coreline_counter_sum(counter, &value));
    CHECK(value == 5);
}

int main(void)
{
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_counters_create(NULL, COUNTERS, &counters));
    one();
    set();
    batched();
    signals();
    forks();
    OK(coreline_counter_destroy(counter));
    OK(coreline_counters_destroy(counters));
    return 0;
}
