/* Per-CPU words, and pools. */
#include "check.h"

enum { TIMES = 50000, WORDS = 11 };

static coreline_percpu_t *words;

static void *use(void *number)
{
    (void)number;
    for (int time = 0; time < TIMES; time++) {
        uint64_t found = 0;
        OK(coreline_percpu_add(words, 0, 1));
        /* An addition by hand: the CPU may be another one after the load. */
        OK(coreline_percpu_load(words, WORDS - 1, &found));
        while (coreline_percpu_store_if_equal(words, WORDS - 1, &found, found + 1) ==
               CORELINE_UNEQUAL) {
        }
    }
    return NULL;
}

static void all(coreline_percpu_t *of, size_t word, uint64_t *sum)
{
    uint64_t value = 0;
    size_t index = 0;
    *sum = 0;
    for (; coreline_percpu_peek(of, word, index, &value) == CORELINE_OK; index++) {
        *sum += value;
    }
    CHECK(index > 1);
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_peek(of, word, index, &value));
}

static void operations(void)
{
    uint64_t value = 7, expected = 0;
    OK(coreline_percpu_create(NULL, WORDS, &words));
    in_threads(use);
    OK(coreline_percpu_sum(words, 0, &value));
    CHECK(value == THREADS * TIMES);
    OK(coreline_percpu_sum(words, WORDS - 1, &value));
    CHECK(value == THREADS * TIMES);
    all(words, 0, &value);
    CHECK(value == THREADS * TIMES);
    OK(coreline_percpu_sum(words, 5, &value));
    CHECK(value == 0);

    OK(coreline_percpu_exchange(words, 5, 9, &value));
    CHECK(value == 0);
    OK(coreline_percpu_sum(words, 5, &value));
    CHECK(value == 9);
    /* No word is 8, on whatever CPU the thread is. */
    expected = 8;
    RETURNS(CORELINE_UNEQUAL, coreline_percpu_store_if_equal(words, 5, &expected, 1));
    CHECK(expected == 9 || expected == 0);

    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_add(words, WORDS, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_load(words, WORDS, &value));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_exchange(words, WORDS, 1, &value));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_store_if_equal(words, WORDS, &expected, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_sum(words, WORDS, &value));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_peek(words, WORDS, 0, &value));
    OK(coreline_percpu_destroy(words));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_percpu_add(words, 0, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_create(NULL, 0, &words));
    RETURNS(CORELINE_ERROR_NO_MEMORY, coreline_percpu_create(NULL, SIZE_MAX, &words));
}

static void pools(void)
{
    coreline_pool_t *pool = NULL;
    coreline_percpu_t *leaked = NULL;
    coreline_code_t by_cid = coreline_pool_create(CORELINE_POOL_BY_KERNEL_CID, &pool);
    size_t number = 7;
    uint64_t value = 0;
    /* Not every kernel has concurrency IDs. */
    CHECK(by_cid == CORELINE_OK || by_cid == CORELINE_ERROR_LACKING);
    if (by_cid == CORELINE_OK) {
        OK(coreline_percpu_create(pool, 1, &words));
        OK(coreline_percpu_add(words, 0, 3));
        OK(coreline_percpu_sum(words, 0, &value));
        CHECK(value == 3);
        OK(coreline_percpu_destroy(words));
        OK(coreline_pool_destroy(pool));
    }

    OK(coreline_pool_create(CORELINE_POOL_CHECKED, &pool));
    OK(coreline_percpu_create(pool, WORDS, &words));
    OK(coreline_pool_live(pool, &number));
    CHECK(number == 2);
    OK(coreline_percpu_destroy(words));
    OK(coreline_pool_live(pool, &number));
    CHECK(number == 0);
    OK(coreline_percpu_create(pool, 1, &leaked));
    OK(coreline_pool_mapped(pool, &number));
    CHECK(number > 0);
    OK(coreline_pool_trim(pool, &number));
    /* Its object is not destroyed: the pool says so, and the object works. */
    RETURNS(CORELINE_ERROR_FAULTS, coreline_pool_destroy(pool));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_pool_live(pool, &number));
    OK(coreline_percpu_add(leaked, 0, 4));
    OK(coreline_percpu_sum(leaked, 0, &value));
    CHECK(value == 4);
    OK(coreline_percpu_destroy(leaked));

    OK(coreline_pool_live(NULL, &number));
    OK(coreline_pool_mapped(NULL, &number));
    OK(coreline_pool_trim(NULL, &number));
    RETURNS(CORELINE_ERROR_NULL, coreline_pool_live(NULL, NULL));
}

int main(void)
{
    CHECK(coreline_current_cpu() < 65536);
    operations();
    pools();
    return 0;
}
