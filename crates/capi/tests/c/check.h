/* What the test programs share. Each program is compiled as C11 and as C++17. */
#ifndef CHECK_H
#define CHECK_H

#include <coreline.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program if a condition does not hold. */
#define CHECK(condition)                                                        \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

/* Ends the program if a call does not return this code. */
#define RETURNS(code, call)                                                     \
    do {                                                                        \
        coreline_code_t returned_ = (call);                                     \
        if (returned_ != (code)) {                                              \
            fprintf(stderr, "%s:%d: %s returned %d (%s)\n", __FILE__, __LINE__, #call, \
                    (int)returned_, coreline_strerror((int)returned_));         \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

#define OK(call) RETURNS(CORELINE_OK, call)

enum { THREADS = 4 };

/* Runs a function in several threads at the same time, with the threads' numbers. */
static inline void in_threads(void *(*function)(void *))
{
    pthread_t threads[THREADS];
    for (size_t number = 0; number < THREADS; number++) {
        CHECK(pthread_create(&threads[number], NULL, function, (void *)number) == 0);
    }
    for (size_t number = 0; number < THREADS; number++) {
        CHECK(pthread_join(threads[number], NULL) == 0);
    }
}

/* Runs a function in another thread, and waits for its end. */
static inline void elsewhere(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

/* A deadline that has passed when a thread waits for it, and one that does not come in a test. */
static inline uint64_t soon(void)
{
    return coreline_now() + 1000000;
}

static inline uint64_t late(void)
{
    return UINT64_MAX;
}

#endif
