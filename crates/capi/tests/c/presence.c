/* Presence: each member that is inside runs the function of a shootdown, or leaves; and misuse. */
#include "check.h"

enum { ROUNDS = 300 };

static coreline_presence_t *presence;
static coreline_member_t *shared;
/* What members copy, up to which of its values a shootdown has ended, and whether all has. */
static int64_t current, announced;
static int over, started;
/* The copy of the member of this thread. */
static __thread int64_t copy;

static void count(void *counter)
{
    __atomic_fetch_add((int64_t *)counter, 1, __ATOMIC_RELAXED);
}

/* Runs in the thread of each member that is inside. */
static void renew(void *counter)
{
    copy = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
    count(counter);
}

/* After a shootdown, no member uses an earlier copy. */
static void look(void)
{
    const int64_t least = __atomic_load_n(&announced, __ATOMIC_ACQUIRE);
    CHECK(copy >= least);
}

static void *use(void *unused)
{
    coreline_member_t *member = NULL;
    int64_t refreshed = 0;
    int must_refresh = 7;
    copy = -1;
    OK(coreline_presence_join(presence, &member));
    __atomic_fetch_add(&started, 1, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) {
        OK(coreline_member_enter(member, &must_refresh));
        if (must_refresh) {
            renew(&refreshed);
        }
        look();
        OK(coreline_member_poll(member, &must_refresh));
        if (must_refresh) {
            renew(&refreshed);
        }
        look();
        OK(coreline_member_leave(member));
    }
    (void)unused;
    OK(coreline_member_destroy(member));
    return NULL;
}

static void shoot(void)
{
    int64_t calls = 0;
    size_t reached = 0;
    while (__atomic_load_n(&started, __ATOMIC_RELAXED) < THREADS - 1) {
        sched_yield();
    }
    for (int64_t round = 1; round <= ROUNDS; round++) {
        coreline_shot_t shot;
        __atomic_store_n(&current, round, __ATOMIC_RELEASE);
        if (round % 2) {
            OK(coreline_presence_shootdown(presence, renew, &calls, &shot));
        } else {
            OK(coreline_presence_shootdown_by(presence, renew, &calls, late(), &shot));
        }
        CHECK(shot.late == 0);
        reached += shot.reached;
        __atomic_store_n(&announced, round, __ATOMIC_RELEASE);
    }
    /* Some members may have been told that their copy is out of date instead. */
    CHECK((size_t)calls <= reached);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
}

static void *either(void *number)
{
    if (number != NULL) {
        return use(number);
    }
    shoot();
    return NULL;
}

/* Two members that shoot at each other while both are inside. */
static void *cross(void *counter)
{
    coreline_member_t *member = NULL;
    coreline_shot_t shot;
    int must_refresh;
    OK(coreline_presence_join(presence, &member));
    for (int round = 0; round < ROUNDS; round++) {
        OK(coreline_member_enter(member, &must_refresh));
        OK(coreline_member_shootdown(member, count, &current, &shot, &must_refresh));
        CHECK(shot.reached >= 1 && shot.late == 0);
        OK(coreline_member_leave(member));
    }
    OK(coreline_member_destroy(member));
    return counter;
}

static void *finds_it_used(void *number)
{
    int must_refresh = 7;
    coreline_shot_t shot;
    (void)number;
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_member_enter(shared, &must_refresh));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_member_poll(shared, &must_refresh));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_member_leave(shared));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_member_destroy(shared));
    RETURNS(CORELINE_ERROR_NOT_OWNER,
            coreline_member_shootdown(shared, count, &current, &shot, &must_refresh));
    CHECK(must_refresh == 7);
    /* The member is inside and does not poll. */
    RETURNS(CORELINE_TIMED_OUT,
            coreline_presence_shootdown_by(presence, count, &current, soon(), &shot));
    CHECK(shot.reached == 0 && shot.late == 1);
    return NULL;
}

/* Runs in a shootdown, where each use of the member would wait for itself. */
static void misuse_inside(void *done)
{
    int must_refresh;
    coreline_shot_t shot;
    RETURNS(CORELINE_ERROR_INSIDE, coreline_member_enter(shared, &must_refresh));
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_member_poll(shared, &must_refresh));
    RETURNS(CORELINE_ERROR_DEADLOCK, coreline_member_leave(shared));
    RETURNS(CORELINE_ERROR_INSIDE, coreline_member_destroy(shared));
    RETURNS(CORELINE_ERROR_DEADLOCK,
            coreline_member_shootdown(shared, count, &current, &shot, &must_refresh));
    RETURNS(CORELINE_ERROR_DEADLOCK,
            coreline_presence_shootdown(presence, count, &current, &shot));
    *(int *)done = 1;
}

static void misuse(void)
{
    coreline_member_t *other = NULL;
    coreline_presence_t *another = NULL;
    coreline_shot_t shot;
    int must_refresh = 7, done = 0;
    OK(coreline_presence_join(presence, &shared));
    OK(coreline_presence_join(presence, &other));
    RETURNS(CORELINE_ERROR_OUTSIDE, coreline_member_leave(shared));
    RETURNS(CORELINE_ERROR_OUTSIDE, coreline_member_poll(shared, &must_refresh));
    CHECK(must_refresh == 7);
    OK(coreline_member_enter(shared, &must_refresh));
    CHECK(must_refresh == 1);
    RETURNS(CORELINE_ERROR_INSIDE, coreline_member_enter(shared, &must_refresh));
    RETURNS(CORELINE_ERROR_INSIDE, coreline_member_destroy(shared));
    elsewhere(finds_it_used);
    OK(coreline_member_poll(shared, &must_refresh));
    CHECK(must_refresh == 1);

    /* A shootdown that would wait for its own thread; and one of another presence, which does not. */
    RETURNS(CORELINE_ERROR_DEADLOCK,
            coreline_presence_shootdown(presence, count, &current, &shot));
    RETURNS(CORELINE_ERROR_DEADLOCK,
            coreline_presence_shootdown_by(presence, count, &current, late(), &shot));
    OK(coreline_presence_create(3, 1, &another));
    OK(coreline_presence_shootdown(another, count, &current, &shot));
    CHECK(shot.reached == 0 && shot.away == 0 && shot.late == 0);
    OK(coreline_presence_destroy(another));
    OK(coreline_member_shootdown(shared, misuse_inside, &done, &shot, &must_refresh));
    CHECK(done && shot.reached == 1);
    OK(coreline_member_enter(other, &must_refresh));
    RETURNS(CORELINE_ERROR_DEADLOCK,
            coreline_member_shootdown(shared, count, &current, &shot, &must_refresh));
    /* Members are left in any order. */
    OK(coreline_member_leave(shared));
    RETURNS(CORELINE_ERROR_DEADLOCK,
            coreline_presence_shootdown(presence, count, &current, &shot));
    OK(coreline_member_shootdown(other, count, &current, &shot, &must_refresh));
    OK(coreline_member_leave(other));
    OK(coreline_presence_shootdown(presence, count, &current, &shot));

    RETURNS(CORELINE_ERROR_NULL, coreline_presence_create(0, 0, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_presence_join(NULL, &other));
    RETURNS(CORELINE_ERROR_NULL, coreline_presence_join(presence, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_presence_shootdown(presence, NULL, NULL, &shot));
    RETURNS(CORELINE_ERROR_NULL, coreline_presence_shootdown(presence, count, &current, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_member_enter(NULL, &must_refresh));
    RETURNS(CORELINE_ERROR_NULL, coreline_member_enter(shared, NULL));
    RETURNS(CORELINE_ERROR_HANDLE,
            coreline_member_enter((coreline_member_t *)(void *)presence, &must_refresh));
    OK(coreline_member_destroy(shared));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_member_destroy(shared));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_member_enter(shared, &must_refresh));

    /* A member outlives its presence. */
    OK(coreline_presence_destroy(presence));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_presence_destroy(presence));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_presence_join(presence, &shared));
    OK(coreline_member_enter(other, &must_refresh));
    OK(coreline_member_leave(other));
    OK(coreline_member_destroy(other));
}

int main(void)
{
    OK(coreline_presence_create(0, 0, &presence));
    in_threads(either);
    in_threads(cross);
    misuse();
    return 0;
}
