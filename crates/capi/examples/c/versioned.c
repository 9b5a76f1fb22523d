/* A routing table that many threads read, and one replaces. */
#include <coreline.h>
#include <stdio.h>
#include <stdlib.h>

struct routes {
    int count;
};

static void *make(int count)
{
    struct routes *routes = (struct routes *)malloc(sizeof(*routes));
    if (routes == NULL) {
        abort();
    }
    routes->count = count;
    return routes;
}

static void destroy(void *routes, void *unused)
{
    (void)unused;
    free(routes);
}

int main(void)
{
    coreline_versioned_t *versioned = NULL;
    coreline_reader_t *reader = NULL;
    void *routes = NULL;
    int before, after;
    if (coreline_versioned_create(make(1), destroy, NULL, &versioned) != CORELINE_OK
        || coreline_reader_create(versioned, &reader) != CORELINE_OK) {
        return 1;
    }
    coreline_reader_enter(reader, &routes);
    before = ((struct routes *)routes)->count;
    /* It waits for no reader: the old table stays until this one leaves or reads again. */
    coreline_versioned_update(versioned, make(2));
    coreline_reader_get(reader, &routes);
    after = ((struct routes *)routes)->count;
    coreline_reader_leave(reader);
    coreline_reader_destroy(reader);
    coreline_versioned_destroy(versioned);
    printf("%d route, then %d\n", before, after);
    return before == 1 && after == 2 ? 0 : 1;
}
