/* Which CPUs hold a cached value? Most calls find the bit set, and write nothing. */
#include <coreline.h>
#include <stdio.h>

int main(void)
{
    coreline_mask_t *holders = NULL;
    int written = 0;
    size_t count = 0;
    if (coreline_mask_create(&holders) != CORELINE_OK) {
        return 1;
    }
    for (int request = 0; request < 1000; request++) {
        written += coreline_mask_set(holders, coreline_current_cpu()) == CORELINE_OK;
    }
    coreline_mask_weight(holders, &count);
    printf("%zu CPUs, %d of 1000 calls wrote\n", count, written);
    return coreline_mask_destroy(holders) == CORELINE_OK && count == (size_t)written ? 0 : 1;
}
