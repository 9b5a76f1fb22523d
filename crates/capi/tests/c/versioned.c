/* Published values: no reader finds a destroyed one, and each is destroyed once; and misuse. */
#include "check.h"

enum { UPDATES = 3000, ALIVE = 0x600d, DEAD = 0xdead };

struct value {
    int state;
    int64_t number;
};

static coreline_versioned_t *versioned;
static coreline_reader_t *shared;
static int made, destroyed, over;

static void *make(int64_t number)
{
    struct value *value = (struct value *)malloc(sizeof(*value));
    CHECK(value != NULL);
    value->state = ALIVE;
    value->number = number;
    __atomic_fetch_add(&made, 1, __ATOMIC_RELAXED);
    return value;
}

static void destroy(void *object, void *context)
{
    struct value *value = (struct value *)object;
    CHECK(context == &destroyed && value->state == ALIVE);
    value->state = DEAD;
    free(value);
    __atomic_fetch_add(&destroyed, 1, __ATOMIC_RELAXED);
}

static const struct value *get(coreline_reader_t *reader)
{
    void *value = NULL;
    OK(coreline_reader_get(reader, &value));
    CHECK(((struct value *)value)->state == ALIVE);
    return (struct value *)value;
}

static const struct value *enter(coreline_reader_t *reader)
{
    void *value = NULL;
    OK(coreline_reader_enter(reader, &value));
    CHECK(((struct value *)value)->state == ALIVE);
    return (struct value *)value;
}

static void *either(void *number)
{
    coreline_reader_t *reader = NULL;
    int64_t last = 0;
    if (number == 0) {
        for (int64_t next = 1; next <= UPDATES; next++) {
            OK(coreline_versioned_update(versioned, make(next)));
            if (next % 256 == 0) {
                OK(next % 512 ? coreline_versioned_synchronize(versioned)
                              : coreline_versioned_synchronize_by(versioned, late()));
            }
        }
        __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
        return NULL;
    }
    OK(coreline_reader_create(versioned, &reader));
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        const struct value *outer = enter(reader);
        CHECK(outer->number >= last);
        outer = get(reader);
        /* While it has entered twice or more, all that it has read stays. */
        const struct value *inner = enter(reader);
        const struct value *deepest = enter(reader);
        CHECK(get(reader)->number >= deepest->number);
        OK(coreline_reader_leave(reader));
        CHECK(get(reader)->number >= inner->number);
        CHECK(outer->state == ALIVE && inner->state == ALIVE && deepest->state == ALIVE);
        CHECK(inner->number >= outer->number);
        OK(coreline_reader_leave(reader));
        last = get(reader)->number;
        OK(coreline_reader_leave(reader));
    }
    OK(coreline_reader_destroy(reader));
    return NULL;
}

static void *finds_it_used(void *number)
{
    void *value = NULL;
    size_t retired = 7;
    (void)number;
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_reader_enter(shared, &value));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_reader_get(shared, &value));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_reader_leave(shared));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_reader_destroy(shared));
    CHECK(value == NULL);
    /* The reader keeps what it has read. */
    OK(coreline_versioned_update(versioned, make(1)));
    RETURNS(CORELINE_TIMED_OUT, coreline_versioned_synchronize_by(versioned, soon()));
    OK(coreline_versioned_retired(versioned, &retired));
    CHECK(retired == 1);
    return NULL;
}

static void misuse(void)
{
    const struct value *value;
    void *unread = NULL;
    size_t retired = 7;
    RETURNS(CORELINE_ERROR_NULL, coreline_versioned_create(NULL, destroy, NULL, &versioned));
    RETURNS(CORELINE_ERROR_NULL, coreline_versioned_create(&made, destroy, NULL, NULL));
    OK(coreline_versioned_create(make(0), destroy, &destroyed, &versioned));
    RETURNS(CORELINE_ERROR_NULL, coreline_versioned_update(versioned, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_versioned_update(NULL, &made));
    RETURNS(CORELINE_ERROR_NULL, coreline_reader_create(versioned, NULL));
    OK(coreline_reader_create(versioned, &shared));
    RETURNS(CORELINE_ERROR_OUTSIDE, coreline_reader_get(shared, &unread));
    RETURNS(CORELINE_ERROR_OUTSIDE, coreline_reader_leave(shared));
    RETURNS(CORELINE_ERROR_NULL, coreline_reader_enter(shared, NULL));
    value = enter(shared);
    RETURNS(CORELINE_ERROR_INSIDE, coreline_reader_destroy(shared));
    elsewhere(finds_it_used);
    CHECK(value->state == ALIVE && value->number == 0);
    OK(coreline_reader_leave(shared));
    RETURNS(CORELINE_ERROR_OUTSIDE, coreline_reader_leave(shared));
    OK(coreline_versioned_synchronize(versioned));
    OK(coreline_versioned_retired(versioned, &retired));
    CHECK(retired == 0 && destroyed == made - 1);

    /* A reader outlives the handle, and then destroys the last value. */
    OK(coreline_versioned_destroy(versioned));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_versioned_destroy(versioned));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_versioned_update(versioned, &made));
    CHECK(enter(shared)->number == 1);
    OK(coreline_reader_leave(shared));
    OK(coreline_reader_destroy(shared));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_reader_destroy(shared));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_reader_enter(shared, &unread));
    CHECK(destroyed == made);
}

/* A reclaimer destroys a value after its reader has left, without another update. */
static void reclaim(void)
{
    coreline_reclaimer_t *reclaimer = NULL;
    OK(coreline_versioned_create(make(0), destroy, &destroyed, &versioned));
    RETURNS(CORELINE_ERROR_NULL, coreline_reclaimer_create(versioned, NULL));
    OK(coreline_reclaimer_create(versioned, &reclaimer));
    OK(coreline_reader_create(versioned, &shared));
    enter(shared);
    OK(coreline_versioned_update(versioned, make(1)));
    CHECK(__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) == made - 2);
    OK(coreline_reader_leave(shared));
    while (__atomic_load_n(&destroyed, __ATOMIC_ACQUIRE) != made - 1) {
        sched_yield();
    }
    OK(coreline_reclaimer_destroy(reclaimer));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_reclaimer_destroy(reclaimer));
    OK(coreline_reader_destroy(shared));
    OK(coreline_versioned_destroy(versioned));
    CHECK(destroyed == made);
}

int main(void)
{
    OK(coreline_versioned_create(make(0), destroy, &destroyed, &versioned));
    in_threads(either);
    CHECK(made == UPDATES + 1 && destroyed < made);
    OK(coreline_versioned_destroy(versioned));
    CHECK(destroyed == made);
    misuse();
    reclaim();
    return 0;
}
