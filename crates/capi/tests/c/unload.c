/*
 * Loads the library whose path is the argument, uses it in a thread, and closes it, many times. The
 * program itself calls no function of the library, so it is not linked to it.
 */
#include "check.h"

#include <dlfcn.h>

static void *library;

static void *use(void *number)
{
    coreline_code_t (*create)(const coreline_pool_t *, uint32_t, coreline_counter_t **);
    coreline_code_t (*add)(const coreline_counter_t *, int64_t);
    coreline_code_t (*sum)(const coreline_counter_t *, int64_t *);
    coreline_code_t (*destroy)(coreline_counter_t *);
    void *found[4];
    coreline_counter_t *counter = NULL;
    int64_t value = 0;
    (void)number;
    found[0] = dlsym(library, "coreline_counter_create");
    found[1] = dlsym(library, "coreline_counter_add");
    found[2] = dlsym(library, "coreline_counter_sum");
    found[3] = dlsym(library, "coreline_counter_destroy");
    CHECK(found[0] && found[1] && found[2] && found[3]);
    memcpy(&create, &found[0], sizeof(create));
    memcpy(&add, &found[1], sizeof(add));
    memcpy(&sum, &found[2], sizeof(sum));
    memcpy(&destroy, &found[3], sizeof(destroy));
    CHECK(create(NULL, 0, &counter) == CORELINE_OK);
    for (int time = 0; time < 1000; time++) {
        CHECK(add(counter, 1) == CORELINE_OK);
    }
    CHECK(sum(counter, &value) == CORELINE_OK && value == 1000);
    CHECK(destroy(counter) == CORELINE_OK);
    return NULL;
}

/* A function of a queued lock, by its name. */
typedef coreline_code_t (*queued_t)(coreline_osq_near_t *, coreline_turn_t *);

static queued_t queued(const char *name)
{
    queued_t function;
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    memcpy(&function, &found, sizeof(function));
    return function;
}

/* A lock that is held refers to memory of the library: nothing else keeps that loaded. */
static void hold(const char *path)
{
    static coreline_osq_near_t lock = CORELINE_OSQ_INIT;
    static coreline_turn_t turn = CORELINE_TURN_INIT;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    CHECK(queued("coreline_osq_near_lock")(&lock, &turn) == CORELINE_OK);
    CHECK(dlclose(library) == 0);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    CHECK(library != NULL);
    CHECK(queued("coreline_osq_near_unlock")(&lock, &turn) == CORELINE_OK);
    CHECK(queued("coreline_osq_near_try_lock")(&lock, &turn) == CORELINE_OK);
    CHECK(queued("coreline_osq_near_unlock")(&lock, &turn) == CORELINE_OK);
    CHECK(dlclose(library) == 0);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    CHECK(dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) == NULL);
    hold(arguments[1]);
    for (int time = 0; time < 20; time++) {
        library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        elsewhere(use);
        CHECK(dlclose(library) == 0);
    }
    return 0;
}
