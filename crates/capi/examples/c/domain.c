/* Requests and a buffer for each tenant: memory for the CPUs that serve it, not for all. */
#include <coreline.h>
#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS, BUFFER, WORDS };

int main(void)
{
    coreline_domain_t *tenant = NULL;
    coreline_local_t *words = NULL;
    uint64_t requests = 0, buffer = 0;
    size_t freed = 0;
    if (coreline_domain_create(NULL, CORELINE_DOMAIN_DEFAULT, &tenant) != CORELINE_OK
        || coreline_local_create(tenant, WORDS, &words) != CORELINE_OK) {
        return 1;
    }
    for (int request = 0; request < 100; request++) {
        coreline_lease_t lease = CORELINE_LEASE_INIT;
        uint64_t *own = NULL;
        coreline_local_add(words, REQUESTS, 1);
        /* For longer than one operation: the ID, and so the buffer, is this thread's alone. */
        if (coreline_domain_lease(tenant, &lease) != CORELINE_OK
            || coreline_local_leased(words, &lease, BUFFER, &own) != CORELINE_OK) {
            return 1;
        }
        if (*own == 0) {
            *own = (uintptr_t)malloc(4096);
        }
        snprintf((char *)(uintptr_t)*own, 4096, "request %d", request);
        coreline_domain_return(tenant, &lease);
    }
    coreline_local_sum(words, REQUESTS, &requests);
    for (size_t id = 0; coreline_local_peek(words, BUFFER, id, &buffer) == CORELINE_OK; id++) {
        freed += buffer != 0;
        free((void *)(uintptr_t)buffer);
    }
    printf("%d requests, %zu buffers\n", (int)requests, freed);
    coreline_local_destroy(words);
    return coreline_domain_destroy(tenant) == CORELINE_OK && requests == 100 && freed > 0 ? 0 : 1;
}
