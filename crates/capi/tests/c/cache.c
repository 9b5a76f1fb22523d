/* Caches of objects: constructed once, found again, and misused. */
#include "check.h"

enum { TIMES = 20000 };

struct session {
    char *buffer;
    int holders;
};

struct counts {
    int constructed, destroyed, fails;
};

static coreline_cache_t *sessions;

static int construct(void *object, void *context)
{
    struct session *session = (struct session *)object;
    struct counts *counts = (struct counts *)context;
    if (__atomic_load_n(&counts->fails, __ATOMIC_RELAXED)) {
        return 1;
    }
    CHECK(session->buffer == NULL && session->holders == 0);
    session->buffer = (char *)malloc(64);
    CHECK(session->buffer != NULL);
    __atomic_fetch_add(&counts->constructed, 1, __ATOMIC_RELAXED);
    return 0;
}

static void destroy(void *object, void *context)
{
    struct counts *counts = (struct counts *)context;
    free(((struct session *)object)->buffer);
    __atomic_fetch_add(&counts->destroyed, 1, __ATOMIC_RELAXED);
}

/* No object has two holders. */
static void *use(void *number)
{
    for (int time = 0; time < TIMES; time++) {
        void *objects[2];
        for (int which = 0; which < 2; which++) {
            struct session *session;
            OK(coreline_cache_get(sessions, &objects[which]));
            session = (struct session *)objects[which];
            CHECK(__atomic_fetch_add(&session->holders, 1, __ATOMIC_RELAXED) == 0);
            session->buffer[0] = (char)(size_t)number;
        }
        for (int which = 0; which < 2; which++) {
            struct session *session = (struct session *)objects[which];
            CHECK(session->buffer[0] == (char)(size_t)number);
            CHECK(__atomic_fetch_sub(&session->holders, 1, __ATOMIC_RELAXED) == 1);
            OK(coreline_cache_put(sessions, objects[which]));
        }
    }
    return NULL;
}

static void misuse(struct counts *counts)
{
    /* Never freed, and reachable: a sanitizer sees no leak. */
    static void *lost;
    void *object = NULL, *found = NULL;
    coreline_cache_options_t options;
    coreline_cache_t *other = NULL;
    memset(&options, 0, sizeof(options));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_cache_create(&options, &other));
    options.size = 24;
    options.alignment = 3;
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_cache_create(&options, &other));
    options.alignment = 256;
    RETURNS(CORELINE_ERROR_NULL, coreline_cache_create(NULL, &other));
    RETURNS(CORELINE_ERROR_NULL, coreline_cache_create(&options, NULL));
    OK(coreline_cache_create(&options, &other));

    OK(coreline_cache_get(sessions, &object));
    RETURNS(CORELINE_ERROR_NULL, coreline_cache_put(sessions, NULL));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_cache_put(other, object));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_cache_discard(other, object));
    OK(coreline_cache_put(sessions, object));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_cache_put(sessions, object));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_cache_discard(sessions, object));

    /* An object that is out when its cache is destroyed. */
    OK(coreline_cache_get(other, &found));
    CHECK((uintptr_t)found % 256 == 0);
    lost = found;
    RETURNS(CORELINE_ERROR_FAULTS, coreline_cache_destroy(other));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_cache_put(other, lost));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_cache_destroy(other));

    /* A constructor that fails leaves nothing behind. */
    size_t idle = 0;
    OK(coreline_cache_shrink(sessions, &idle));
    CHECK(idle > 0);
    counts->fails = 1;
    found = NULL;
    RETURNS(CORELINE_ERROR_CONSTRUCTOR, coreline_cache_get(sessions, &found));
    CHECK(found == NULL);
    counts->fails = 0;
}

/* An object that was put back is found again. */
static void reuse(struct counts *counts)
{
    void *object = NULL, *again = NULL;
    int constructed, destroyed;
    OK(coreline_cache_get(sessions, &object));
    strcpy(((struct session *)object)->buffer, "kept");
    constructed = counts->constructed;
    OK(coreline_cache_put(sessions, object));
    /* The thread may have moved to a CPU without an idle object. */
    OK(coreline_cache_get(sessions, &again));
    CHECK(again == object ? counts->constructed == constructed : counts->constructed > constructed);
    CHECK(again != object || strcmp(((struct session *)again)->buffer, "kept") == 0);
    destroyed = counts->destroyed;
    OK(coreline_cache_discard(sessions, again));
    CHECK(counts->destroyed == destroyed + 1);
}

int main(void)
{
    struct counts counts = { 0, 0, 0 };
    coreline_cache_options_t options;
    memset(&options, 0, sizeof(options));
    options.size = sizeof(struct session);
    options.construct = construct;
    options.destroy = destroy;
    options.context = &counts;
    OK(coreline_cache_create(&options, &sessions));
    in_threads(use);
    CHECK(counts.constructed >= 2 && counts.constructed < THREADS * TIMES);
    misuse(&counts);
    reuse(&counts);
    OK(coreline_cache_destroy(sessions));
    CHECK(counts.constructed == counts.destroyed);

    options.idle_limit = 1;
    OK(coreline_cache_create(&options, &sessions));
    void *objects[3];
    size_t idle = 0;
    for (int which = 0; which < 3; which++) {
        OK(coreline_cache_get(sessions, &objects[which]));
    }
    for (int which = 0; which < 3; which++) {
        OK(coreline_cache_put(sessions, objects[which]));
    }
    OK(coreline_cache_shrink(sessions, &idle));
    CHECK(idle <= 1);
    OK(coreline_cache_destroy(sessions));
    CHECK(counts.constructed == counts.destroyed);
    return 0;
}
