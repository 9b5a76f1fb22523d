/* CPU masks. */
#include "check.h"

enum { TIMES = 5000, MANY = 8192 };

static coreline_mask_t *mask;

/* Sets and clears the bit of the CPU on which the thread runs, as the first user of a CPU does. */
static void *use(void *number)
{
    (void)number;
    for (int time = 0; time < TIMES; time++) {
        uint32_t cpu = coreline_current_cpu();
        coreline_code_t code = coreline_mask_set(mask, cpu);
        CHECK(code == CORELINE_OK || code == CORELINE_UNCHANGED);
        if (time % 2) {
            code = coreline_mask_clear(mask, cpu);
            CHECK(code == CORELINE_OK || code == CORELINE_UNCHANGED);
        }
        if (time % 64 == 0) {
            OK(coreline_mask_trim(mask));
        }
    }
    CHECK(coreline_mask_set(mask, 0) >= 0);
    return NULL;
}

int main(void)
{
    static uint32_t cpus[MANY];
    size_t count = 7;
    int is_set = 7;
    OK(coreline_mask_create(&mask));
    OK(coreline_mask_weight(mask, &count));
    CHECK(count == 0);
    OK(coreline_mask_set(mask, 0));
    RETURNS(CORELINE_UNCHANGED, coreline_mask_set(mask, 0));
    OK(coreline_mask_test(mask, 0, &is_set));
    CHECK(is_set == 1);
    cpus[0] = 9;
    OK(coreline_mask_list(mask, cpus, MANY, &count));
    CHECK(count == 1 && cpus[0] == 0);
    OK(coreline_mask_clear(mask, 0));
    RETURNS(CORELINE_UNCHANGED, coreline_mask_clear(mask, 0));
    OK(coreline_mask_test(mask, 0, &is_set));
    CHECK(is_set == 0);

    in_threads(use);
    OK(coreline_mask_weight(mask, &count));
    CHECK(count > 0);
    cpus[0] = 9;
    OK(coreline_mask_list(mask, cpus, 0, &count));
    CHECK(count > 0 && cpus[0] == 9);
    OK(coreline_mask_list(mask, cpus, MANY, &count));
    CHECK(cpus[0] == 0);

    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_mask_set(mask, 1u << 20));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_mask_clear(mask, 1u << 20));
    OK(coreline_mask_test(mask, 1u << 20, &is_set));
    CHECK(is_set == 0);
    RETURNS(CORELINE_ERROR_NULL, coreline_mask_list(mask, NULL, 0, &count));
    RETURNS(CORELINE_ERROR_NULL, coreline_mask_create(NULL));
    OK(coreline_mask_destroy(mask));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_mask_destroy(mask));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_mask_set(mask, 0));
    return 0;
}
