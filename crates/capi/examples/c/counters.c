/* Counts requests by route: a set of counters takes less memory than as many separate ones. */
#include <coreline.h>
#include <inttypes.h>
#include <stdio.h>

enum { HOME, SEARCH, HEALTH, ROUTES };

int main(void)
{
    static const char *const names[ROUTES] = { "/", "/search", "/health" };
    coreline_counters_t *requests = NULL;
    int64_t sums[ROUTES];
    if (coreline_counters_create(NULL, ROUTES, &requests) != CORELINE_OK) {
        return 1;
    }
    coreline_counters_add(requests, HOME, 1);
    coreline_counters_add(requests, SEARCH, 3);
    coreline_counters_drain(requests, sums, ROUTES);
    for (int route = 0; route < ROUTES; route++) {
        printf("%-8s %" PRId64 "\n", names[route], sums[route]);
    }
    return coreline_counters_destroy(requests) == CORELINE_OK && sums[SEARCH] == 3 ? 0 : 1;
}
