/* At most 50 requests an hour of one user, and up to 3 at once. */
#include <coreline.h>
#include <stdio.h>

int main(void)
{
    const uint64_t hour = 3600u * 1000000000ull;
    coreline_limiter_t *limiter = NULL;
    uint64_t after = 0;
    int passed = 0;
    if (coreline_limiter_create(50, hour, 3, &limiter) != CORELINE_OK) {
        return 1;
    }
    while (coreline_limiter_try_acquire(limiter, 1, &after) == CORELINE_OK) {
        passed++;
    }
    printf("%d requests passed, the next one in %.0f s\n", passed, (double)after / 1e9);
    return coreline_limiter_destroy(limiter) == CORELINE_OK && passed == 3 && after <= hour / 50 ? 0 : 1;
}
