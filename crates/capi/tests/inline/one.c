/* The program of two files: the other one is compiled in another way, and adds to the same words. */
#include "two.h"

coreline_counter_t *counter;
coreline_counters_t *counters;
coreline_percpu_t *percpu;

static void add_here(size_t time)
{
    OK(coreline_counter_add_inline(counter, 1));
    OK(coreline_counters_add_inline(counters, time % COUNTERS, 1));
    OK(coreline_percpu_add_inline(percpu, time % COUNTERS, 1));
}

static void *add(void *number)
{
    for (size_t time = 0; time < TIMES; time++) {
        if ((time + (size_t)number) % 2) {
            add_here(time);
        } else {
            add_there(time);
        }
    }
    return NULL;
}

int main(void)
{
    int64_t value = 0, sum = 0;
    uint64_t word = 0, words = 0;
    OK(coreline_check());
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_counters_create(NULL, COUNTERS, &counters));
    OK(coreline_percpu_create(NULL, COUNTERS, &percpu));
    in_threads(add);
    for (size_t index = 0; index < COUNTERS; index++) {
        OK(coreline_counters_sum(counters, index, &value));
        sum += value;
        OK(coreline_percpu_sum(percpu, index, &word));
        words += word;
    }
    OK(coreline_counter_sum(counter, &value));
    CHECK(value == THREADS * TIMES && sum == value && (int64_t)words == value);
    CHECK(coreline_current_cpu_inline() < 4096);
    OK(coreline_counter_destroy(counter));
    OK(coreline_counters_destroy(counters));
    OK(coreline_percpu_destroy(percpu));
    puts("ok");
    return 0;
}
