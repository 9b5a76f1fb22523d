/*
 * What inline functions cost beside the calls that they replace, in ns per operation.
 *
 * cc -O2 cost.c -o cost $(pkg-config --cflags --libs coreline) && ./cost
 *
 * The two sides of a row are measured in turn, and the medians of 201 samples of each are printed.
 */
#include <coreline.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SAMPLES = 201, TIMES = 100000 };

static coreline_counter_t *counter;
static coreline_counters_t *counters;
static coreline_percpu_t *percpu;
static coreline_mutex_t mutex = CORELINE_MUTEX_INIT;
static coreline_ticket_lock_t ticket = CORELINE_TICKET_LOCK_INIT;
static volatile uint32_t cpu;
static volatile size_t number = 3;

/* A function that does an operation many times. */
#define LOOP(name, operation)                    \
    static void name(void)                       \
    {                                            \
        for (int time = 0; time < TIMES; time++) { \
            operation;                           \
            __asm__ volatile("" : : : "memory"); \
        }                                        \
    }

LOOP(add_by_call, coreline_counter_add(counter, 1))
LOOP(add_inline, coreline_counter_add_inline(counter, 1))
LOOP(add_in_set_by_call, coreline_counters_add(counters, number, 1))
LOOP(add_in_set_inline, coreline_counters_add_inline(counters, number, 1))
LOOP(add_word_by_call, coreline_percpu_add(percpu, number, 1))
LOOP(add_word_inline, coreline_percpu_add_inline(percpu, number, 1))
LOOP(cpu_by_call, cpu = coreline_current_cpu())
LOOP(cpu_inline, cpu = coreline_current_cpu_inline())
LOOP(mutex_by_call, coreline_mutex_lock(&mutex); coreline_mutex_unlock(&mutex))
LOOP(mutex_inline, coreline_mutex_lock_inline(&mutex); coreline_mutex_unlock(&mutex))
LOOP(ticket_by_call, coreline_ticket_lock_try_lock(&ticket); coreline_ticket_lock_unlock(&ticket))
LOOP(ticket_inline, coreline_ticket_lock_try_lock_inline(&ticket); coreline_ticket_lock_unlock(&ticket))

static double sample(void (*loop)(void))
{
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    loop();
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / TIMES;
}

static int ascending(const void *one, const void *other)
{
    const double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static void row(const char *name, void (*by_call)(void), void (*in_line)(void))
{
    static double calls[SAMPLES], inlines[SAMPLES];
    for (int time = 0; time < SAMPLES; time++) {
        calls[time] = sample(by_call);
        inlines[time] = sample(in_line);
    }
    qsort(calls, SAMPLES, sizeof(double), ascending);
    qsort(inlines, SAMPLES, sizeof(double), ascending);
    printf("%-28s%8.2f%8.2f\n", name, calls[SAMPLES / 2], inlines[SAMPLES / 2]);
}

int main(void)
{
    if (coreline_counter_create(NULL, 0, &counter) != CORELINE_OK
        || coreline_counters_create(NULL, 8, &counters) != CORELINE_OK
        || coreline_percpu_create(NULL, 8, &percpu) != CORELINE_OK) {
        return 1;
    }
    printf("%-28s%8s%8s\n", "ns per operation", "call", "inline");
    row("counter: add", add_by_call, add_inline);
    row("set: add", add_in_set_by_call, add_in_set_inline);
    row("per-CPU words: add", add_word_by_call, add_word_inline);
    row("CPU of the thread", cpu_by_call, cpu_inline);
    row("mutex: lock and unlock", mutex_by_call, mutex_inline);
    row("ticket lock: try and unlock", ticket_by_call, ticket_inline);
    return 0;
}
