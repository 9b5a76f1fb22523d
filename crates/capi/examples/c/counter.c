/* Counts requests of four threads, and reports the increase since the last report. */
#include <coreline.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

CORELINE_CHECK_AT_LOAD;

static coreline_counter_t *requests;

static void *serve(void *unused)
{
    (void)unused;
    for (int request = 0; request < 1000; request++) {
        coreline_counter_add(requests, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    int64_t since = 0;
    coreline_code_t code = coreline_counter_create(NULL, 0, &requests);
    if (code != CORELINE_OK) {
        fprintf(stderr, "no counter: %s\n", coreline_strerror(code));
        return 1;
    }
    for (int number = 0; number < 4; number++) {
        pthread_create(&threads[number], NULL, serve, NULL);
    }
    for (int number = 0; number < 4; number++) {
        pthread_join(threads[number], NULL);
    }
    coreline_counter_drain(requests, &since);
    printf("%" PRId64 " requests\n", since);
    return coreline_counter_destroy(requests) == CORELINE_OK && since == 4000 ? 0 : 1;
}
