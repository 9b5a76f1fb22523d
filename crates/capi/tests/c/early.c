/* Use before main and after it: in a constructor, in a destructor, and as a thread ends. */
#include "check.h"

static coreline_counter_t *counter;
static pthread_key_t key;

__attribute__((constructor)) static void before(void)
{
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_counter_add(counter, 1));
}

__attribute__((destructor)) static void after(void)
{
    int64_t sum = 0;
    OK(coreline_counter_add(counter, 1));
    OK(coreline_counter_sum(counter, &sum));
    if (sum != 4) {
        abort();
    }
    OK(coreline_counter_destroy(counter));
}

/* A destructor of thread-specific data: most of the thread is gone. */
static void at_the_end(void *value)
{
    static coreline_checked_mutex_t mutex = CORELINE_CHECKED_MUTEX_INIT;
    OK(coreline_checked_mutex_lock(&mutex));
    OK(coreline_counter_add((coreline_counter_t *)value, 1));
    OK(coreline_checked_mutex_unlock(&mutex));
}

static void *use(void *number)
{
    (void)number;
    CHECK(pthread_setspecific(key, counter) == 0);
    return NULL;
}

int main(void)
{
    OK(coreline_counter_add(counter, 1));
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    elsewhere(use);
    return 0;
}
