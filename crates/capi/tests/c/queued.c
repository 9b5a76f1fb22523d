/* The ticket lock, and the queued locks in both orders. Their waiters spin: the sections are few. */
#include "check.h"

enum { TIMES = 200 };

static coreline_ticket_lock_t ticket = CORELINE_TICKET_LOCK_INIT;
static coreline_osq_near_t near_lock = CORELINE_OSQ_INIT;
static coreline_osq_fifo_t fifo_lock = CORELINE_OSQ_INIT;
static coreline_turn_t near_turn = CORELINE_TURN_INIT, fifo_turn = CORELINE_TURN_INIT;
static int64_t counts[3];

static void *count(void *number)
{
    (void)number;
    for (int time = 0; time < TIMES; time++) {
        coreline_turn_t turn = CORELINE_TURN_INIT;
        OK(coreline_ticket_lock_lock(&ticket));
        counts[0]++;
        OK(coreline_ticket_lock_unlock(&ticket));
        OK(time % 2 ? coreline_osq_near_lock(&near_lock, &turn)
                    : coreline_osq_near_lock_by(&near_lock, &turn, late()));
        counts[1]++;
        OK(coreline_osq_near_unlock(&near_lock, &turn));
        OK(time % 2 ? coreline_osq_fifo_lock(&fifo_lock, &turn)
                    : coreline_osq_fifo_lock_by(&fifo_lock, &turn, late()));
        counts[2]++;
        OK(coreline_osq_fifo_unlock(&fifo_lock, &turn));
    }
    return NULL;
}

static void *finds_them_held(void *number)
{
    coreline_turn_t turn = CORELINE_TURN_INIT;
    (void)number;
    RETURNS(CORELINE_BUSY, coreline_ticket_lock_try_lock(&ticket));
    RETURNS(CORELINE_BUSY, coreline_osq_near_try_lock(&near_lock, &turn));
    RETURNS(CORELINE_BUSY, coreline_osq_fifo_try_lock(&fifo_lock, &turn));
    RETURNS(CORELINE_TIMED_OUT, coreline_osq_near_lock_by(&near_lock, &turn, soon()));
    RETURNS(CORELINE_TIMED_OUT, coreline_osq_fifo_lock_by(&fifo_lock, &turn, soon()));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_osq_near_unlock(&near_lock, &turn));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_osq_near_unlock(&near_lock, &near_turn));
    RETURNS(CORELINE_ERROR_NOT_OWNER, coreline_osq_fifo_unlock(&fifo_lock, &fifo_turn));
    return NULL;
}

int main(void)
{
    coreline_osq_near_t other = CORELINE_OSQ_INIT;
    in_threads(count);
    for (size_t lock = 0; lock < 3; lock++) {
        CHECK(counts[lock] == THREADS * TIMES);
    }
    OK(coreline_ticket_lock_try_lock(&ticket));
    OK(coreline_osq_near_try_lock(&near_lock, &near_turn));
    OK(coreline_osq_fifo_try_lock(&fifo_lock, &fifo_turn));
    elsewhere(finds_them_held);
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_osq_near_unlock(&other, &near_turn));
    OK(coreline_ticket_lock_unlock(&ticket));
    OK(coreline_osq_near_unlock(&near_lock, &near_turn));
    OK(coreline_osq_fifo_unlock(&fifo_lock, &fifo_turn));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_ticket_lock_unlock(&ticket));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_osq_near_unlock(&near_lock, &near_turn));
    RETURNS(CORELINE_ERROR_NOT_HELD, coreline_osq_fifo_unlock(&fifo_lock, &fifo_turn));
    RETURNS(CORELINE_ERROR_NULL, coreline_ticket_lock_lock(NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_osq_near_lock(&near_lock, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_osq_fifo_lock(NULL, &fifo_turn));
    return 0;
}
