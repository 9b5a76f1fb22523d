/* A worker that caches a setting, and is told when the setting changes. */
#include <coreline.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static coreline_presence_t *presence;
static _Atomic int setting = 1, ready;
static int copy;

static void refresh(void *unused)
{
    (void)unused;
    copy = atomic_load(&setting);
}

static void *work(void *unused)
{
    coreline_member_t *member = NULL;
    int must_refresh;
    if (coreline_presence_join(presence, &member) != CORELINE_OK) {
        return NULL;
    }
    while (copy != 2) {
        coreline_member_enter(member, &must_refresh);
        if (must_refresh) {
            refresh(NULL);
        }
        atomic_store(&ready, 1);
        /* Here it would use the copy. While inside, it polls. */
        coreline_member_poll(member, &must_refresh);
        if (must_refresh) {
            refresh(NULL);
        }
        coreline_member_leave(member);
    }
    coreline_member_destroy(member);
    return unused;
}

int main(void)
{
    pthread_t worker;
    coreline_shot_t shot;
    if (coreline_presence_create(0, 0, &presence) != CORELINE_OK
        || pthread_create(&worker, NULL, work, NULL) != 0) {
        return 1;
    }
    while (!atomic_load(&ready)) {
    }
    atomic_store(&setting, 2);
    /* From here on, the worker does not use the old setting. */
    if (coreline_presence_shootdown(presence, refresh, NULL, &shot) != CORELINE_OK) {
        return 1;
    }
    pthread_join(worker, NULL);
    printf("the worker's copy is %d\n", copy);
    return coreline_presence_destroy(presence) == CORELINE_OK && copy == 2 ? 0 : 1;
}
