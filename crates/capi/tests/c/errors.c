/* Mistakes that functions find: the documented code, and nothing changed. */
#include "check.h"

#include <sys/mman.h>
#include <unistd.h>

CORELINE_CHECK_AT_LOAD;

static void handles(void)
{
    coreline_counter_t *counter = NULL;
    coreline_pool_t *pool = NULL;
    int64_t sum = 7;
    RETURNS(CORELINE_ERROR_NULL, coreline_counter_create(NULL, 0, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT,
            coreline_counter_create(NULL, 0, (coreline_counter_t **)(void *)((char *)&counter + 1)));
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_pool_create(CORELINE_POOL_DEFAULT, &pool));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_pool_create(1u << 31, &pool));

    RETURNS(CORELINE_ERROR_NULL, coreline_counter_add(NULL, 1));
    RETURNS(CORELINE_ERROR_NULL, coreline_counter_sum(counter, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_counter_destroy(NULL));
    /* A handle of another type, and one that is not aligned. */
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_add((coreline_counter_t *)(void *)pool, 1));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_destroy((coreline_counter_t *)(void *)pool));
    RETURNS(CORELINE_ERROR_HANDLE,
            coreline_counter_add((coreline_counter_t *)(void *)((char *)counter + 8), 1));
    RETURNS(CORELINE_ERROR_HANDLE,
            coreline_counter_create((coreline_pool_t *)(void *)counter, 0, &counter));
    OK(coreline_counter_sum(counter, &sum));
    CHECK(sum == 0);

    /* Destroyed twice, and used after that. */
    OK(coreline_counter_destroy(counter));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_destroy(counter));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_add(counter, 1));
    sum = 7;
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_sum(counter, &sum));
    CHECK(sum == 7);
    OK(coreline_pool_destroy(pool));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_pool_destroy(pool));
}

/* A header of an earlier patch version has fewer members. No byte behind them is read. */
static void older_layouts(coreline_layout_t own)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = (char *)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                               -1, 0);
    CHECK(pages != (char *)MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    for (uint32_t size = 4; size <= sizeof(own); size += 4) {
        void *theirs = pages + page - size;
        own.size = size;
        memcpy(theirs, &own, size);
        RETURNS(size < 8 ? CORELINE_ERROR_LAYOUT : CORELINE_OK,
                coreline_check_layout((coreline_layout_t *)theirs));
    }
    CHECK(munmap(pages, 2 * page) == 0);
}

static void layout(void)
{
    coreline_layout_t own = coreline_layout(), other = own;
    OK(coreline_check());
    CHECK(coreline_version() == CORELINE_VERSION);
    RETURNS(CORELINE_ERROR_NULL, coreline_check_layout(NULL));
    other.version += 100;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other = own;
    other.size += 4;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other.size = own.size - 1;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other = own;
    other.mutex = 16 * 256 + 8;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other = own;
    other.mutex_held += 1;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other = own;
    other.biased_rwlock = 56 * 256 + 8;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other = own;
    other.lease += 256;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    other = own;
    other.gate += 1;
    RETURNS(CORELINE_ERROR_LAYOUT, coreline_check_layout(&other));
    older_layouts(own);
}

int main(void)
{
    CHECK(strcmp(coreline_strerror(CORELINE_OK), "success") == 0);
    CHECK(strstr(coreline_strerror(CORELINE_ERROR_HANDLE), "destroyed") != NULL);
    CHECK(strcmp(coreline_strerror(1000), "not a code of coreline") == 0);
    handles();
    layout();
    return 0;
}
