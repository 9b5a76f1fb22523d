/* Keeps a spare buffer for each CPU: an exchange gives it to one thread. */
#include <coreline.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 4096 };

static coreline_percpu_t *spares;

/* The spare buffer of this CPU, or a new one. */
static void *take(void)
{
    uint64_t spare = 0;
    coreline_percpu_exchange(spares, 0, 0, &spare);
    /* What the thread that put it back has written to it comes first. */
    atomic_thread_fence(memory_order_acquire);
    return spare ? (void *)(uintptr_t)spare : malloc(SIZE);
}

/* Makes a buffer the spare one of this CPU. */
static void put_back(void *buffer)
{
    uint64_t old = 0;
    atomic_thread_fence(memory_order_release);
    coreline_percpu_exchange(spares, 0, (uintptr_t)buffer, &old);
    atomic_thread_fence(memory_order_acquire);
    free((void *)(uintptr_t)old);
}

int main(void)
{
    uint64_t spare = 0;
    size_t freed = 0;
    if (coreline_percpu_create(NULL, 1, &spares) != CORELINE_OK) {
        return 1;
    }
    for (int request = 0; request < 100; request++) {
        char *buffer = take();
        if (buffer == NULL) {
            return 1;
        }
        snprintf(buffer, SIZE, "request %d", request);
        put_back(buffer);
    }
    /* No other thread uses them any more. */
    for (size_t index = 0; coreline_percpu_peek(spares, 0, index, &spare) == CORELINE_OK; index++) {
        freed += spare != 0;
        free((void *)(uintptr_t)spare);
    }
    printf("%zu spare buffers for 100 requests\n", freed);
    return coreline_percpu_destroy(spares) == CORELINE_OK && freed > 0 ? 0 : 1;
}
