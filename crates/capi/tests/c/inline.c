/* Inline functions: the same results, codes and totals as the functions that they replace. */
#include "check.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 100000, COUNTERS = 70, WORDS = 20 };

static coreline_counter_t *counter, *batched, *by_cid;
static coreline_counters_t *set;
static coreline_percpu_t *percpu;
static int64_t handled;

/* Moves the thread to another CPU, if there is one. */
static void move(int time)
{
    cpu_set_t all, one;
    int found = 0;
    CPU_ZERO(&one);
    CHECK(sched_getaffinity(getpid(), sizeof(all), &all) == 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET((unsigned)cpu, &all) && (!found || time-- > 0)) {
            CPU_ZERO(&one);
            CPU_SET((unsigned)cpu, &one);
            found = 1;
        }
    }
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
}

/* The library's sections and those of this program add to the same words. */
static void *add(void *number)
{
    for (int time = 0; time < TIMES; time++) {
        const size_t index = (size_t)(time % COUNTERS), word = (size_t)(time % WORDS);
        if (time % 1000 == 0) {
            move((time / 1000 + (int)(size_t)number) % 2);
        }
        if ((time + (int)(size_t)number) % 2) {
            OK(coreline_counter_add_inline(counter, 1));
            OK(coreline_counter_add_inline(by_cid, 1));
            OK(coreline_counters_add_inline(set, index, 1));
            OK(coreline_percpu_add_inline(percpu, word, 1));
        } else {
            OK(coreline_counter_add(counter, 1));
            OK(coreline_counter_add(by_cid, 1));
            OK(coreline_counters_add(set, index, 1));
            OK(coreline_percpu_add(percpu, word, 1));
        }
        OK(coreline_counter_add_inline(batched, -1));
    }
    return NULL;
}

static void handle(int signal)
{
    (void)signal;
    handled++;
    OK(coreline_counter_add_inline(counter, 1));
    OK(coreline_percpu_add_inline(percpu, 0, 1));
}

static void totals(void)
{
    int64_t value = 0, sum = 0;
    uint64_t word = 0, words = 0;
    struct sigaction action;
    pid_t child, parent = getpid();
    memset(&action, 0, sizeof(action));
    action.sa_handler = handle;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int time = 0; time < 200; time++) {
            kill(parent, SIGUSR1);
            usleep(100);
        }
        _exit(0);
    }
    /* All signals are the main thread's: it is the one that adds here, too. */
    {
        sigset_t signals;
        sigemptyset(&signals);
        sigaddset(&signals, SIGUSR1);
        CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
        in_threads(add);
        CHECK(pthread_sigmask(SIG_UNBLOCK, &signals, NULL) == 0);
        for (size_t number = 0; number < 2; number++) {
            add((void *)number);
        }
        while (waitpid(child, NULL, WNOHANG) == 0) {
            usleep(100);
        }
        CHECK(pthread_sigmask(SIG_BLOCK, &signals, NULL) == 0);
    }
    CHECK(handled > 0);
    OK(coreline_counter_sum(counter, &value));
    CHECK(value == (THREADS + 2) * TIMES + handled);
    OK(coreline_counter_sum(by_cid, &value));
    CHECK(value == (THREADS + 2) * TIMES);
    OK(coreline_counter_sum(batched, &value));
    CHECK(value == -(THREADS + 2) * TIMES);
    for (size_t index = 0; index < COUNTERS; index++) {
        OK(coreline_counters_sum(set, index, &value));
        sum += value;
    }
    CHECK(sum == (THREADS + 2) * TIMES);
    for (size_t index = 0; index < WORDS; index++) {
        OK(coreline_percpu_sum(percpu, index, &word));
        words += word;
    }
    CHECK((int64_t)words == (THREADS + 2) * TIMES + handled);
    OK(coreline_counter_drain(counter, &value));
    OK(coreline_counter_add_inline(counter, INT64_MAX));
    OK(coreline_counter_add_inline(counter, 2));
    OK(coreline_counter_drain(counter, &value));
    CHECK(value == INT64_MIN + 1);
}

static void misuse(void)
{
    coreline_counter_t *gone = NULL;
    coreline_counters_t *empty = NULL;
    int64_t sum = 7;
    RETURNS(CORELINE_ERROR_NULL, coreline_counter_add_inline(NULL, 1));
    RETURNS(CORELINE_ERROR_NULL, coreline_counters_add_inline(NULL, 0, 1));
    RETURNS(CORELINE_ERROR_NULL, coreline_percpu_add_inline(NULL, 0, 1));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_add_inline((coreline_counter_t *)(void *)set, 1));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counters_add_inline((coreline_counters_t *)(void *)counter, 0, 1));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_percpu_add_inline((coreline_percpu_t *)(void *)counter, 0, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_add_inline(set, COUNTERS, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_add_inline(set, SIZE_MAX, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_add_inline(percpu, WORDS, 1));
    OK(coreline_counters_create(NULL, 0, &empty));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_counters_add_inline(empty, 0, 1));
    OK(coreline_counters_destroy(empty));
    /* A counter that had words for each CPU, and its place. */
    OK(coreline_counter_create(NULL, 0, &gone));
    for (int time = 0; time < 1000; time++) {
        OK(coreline_counter_add_inline(gone, 1));
    }
    OK(coreline_counter_destroy(gone));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_counter_add_inline(gone, 1));
    OK(coreline_counter_create(NULL, 0, &gone));
    OK(coreline_counter_add_inline(gone, 2));
    OK(coreline_counter_sum(gone, &sum));
    CHECK(sum == 2);
    OK(coreline_counter_destroy(gone));
}

static void *busy(void *lock)
{
    RETURNS(CORELINE_BUSY, coreline_ticket_lock_try_lock_inline((coreline_ticket_lock_t *)lock));
    return NULL;
}

static void locks(void)
{
    coreline_mutex_t mutex = CORELINE_MUTEX_INIT;
    coreline_ticket_lock_t ticket = CORELINE_TICKET_LOCK_INIT;
    pthread_t thread;
    OK(coreline_mutex_lock_inline(&mutex));
    RETURNS(CORELINE_BUSY, coreline_mutex_try_lock_inline(&mutex));
    OK(coreline_mutex_unlock(&mutex));
    OK(coreline_mutex_try_lock_inline(&mutex));
    OK(coreline_mutex_unlock(&mutex));
    /* Tickets wrap. */
    ticket.next = ticket.serving = UINT32_MAX - 1;
    for (int time = 0; time < 4; time++) {
        OK(coreline_ticket_lock_try_lock_inline(&ticket));
        RETURNS(CORELINE_BUSY, coreline_ticket_lock_try_lock(&ticket));
        CHECK(pthread_create(&thread, NULL, busy, &ticket) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        OK(coreline_ticket_lock_unlock(&ticket));
        OK(coreline_ticket_lock_try_lock(&ticket));
        RETURNS(CORELINE_BUSY, coreline_ticket_lock_try_lock_inline(&ticket));
        OK(coreline_ticket_lock_unlock(&ticket));
    }
}

static void *where(void *number)
{
    move((int)(size_t)number % 2);
    CHECK((int)coreline_current_cpu_inline() == sched_getcpu());
    return NULL;
}

/* Tokens in a word, which the library's sections and those of this program take and leave: none is lost. */
static coreline_percpu_t *tokens;

static void *pass(void *number)
{
    uint64_t mine = (uint64_t)(size_t)number + 1, old = 0;
    for (int time = 0; time < TIMES; time++) {
        if (time % 1000 == 0) {
            move((time / 1000 + (int)(size_t)number) % 2);
        }
        if (time % 3 == 0) {
            OK(coreline_percpu_exchange_inline(tokens, 1, mine, &old));
        } else if (time % 3 == 1) {
            coreline_code_t code;
            OK(coreline_percpu_load_inline(tokens, 1, &old));
            do {
                code = coreline_percpu_store_if_equal_inline(tokens, 1, &old, mine);
            } while (code == CORELINE_UNEQUAL);
            OK(code);
        } else {
            OK(coreline_percpu_exchange(tokens, 1, mine, &old));
        }
        mine = old;
        OK(coreline_percpu_load_inline(tokens, 1, &old));
        CHECK(old <= THREADS);
    }
    OK(coreline_percpu_add_inline(tokens, 0, mine == 0 ? 0 : (uint64_t)1 << (8 * (mine - 1))));
    return NULL;
}

static void exchanges(void)
{
    uint64_t seen = 0, word = 0;
    OK(coreline_percpu_create(NULL, 2, &tokens));
    in_threads(pass);
    OK(coreline_percpu_sum(tokens, 0, &seen));
    for (size_t index = 0; coreline_percpu_peek(tokens, 1, index, &word) == CORELINE_OK; index++) {
        seen += word == 0 ? 0 : (uint64_t)1 << (8 * (word - 1));
    }
    CHECK(seen == 0x01010101);
    RETURNS(CORELINE_ERROR_NULL, coreline_percpu_load_inline(tokens, 0, NULL));
    RETURNS(CORELINE_ERROR_NULL, coreline_percpu_exchange_inline(tokens, 0, 1, NULL));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_exchange_inline(tokens, 2, 1, &word));
    RETURNS(CORELINE_ERROR_ARGUMENT,
            coreline_percpu_load_inline(tokens, 0, (uint64_t *)(void *)((char *)&word + 4)));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_percpu_load_inline((coreline_percpu_t *)(void *)counter, 0, &word));
    word = 3;
    RETURNS(CORELINE_ERROR_NULL, coreline_percpu_store_if_equal_inline(tokens, 0, NULL, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT, coreline_percpu_store_if_equal_inline(tokens, 2, &word, 1));
    RETURNS(CORELINE_ERROR_ARGUMENT,
            coreline_percpu_store_if_equal_inline(tokens, 0, (uint64_t *)(void *)((char *)&word + 4), 1));
    RETURNS(CORELINE_ERROR_HANDLE,
            coreline_percpu_store_if_equal_inline((coreline_percpu_t *)(void *)counter, 0, &word, 1));
    OK(coreline_percpu_destroy(tokens));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_percpu_exchange_inline(tokens, 0, 1, &word));
    RETURNS(CORELINE_ERROR_HANDLE, coreline_percpu_store_if_equal_inline(tokens, 0, &word, 1));
    CHECK(word == 3);
}

/* A child has its own copy. */
static void forks(void)
{
    int64_t before = 0, value = 0;
    int status = 0;
    pid_t child;
    OK(coreline_counter_sum(counter, &before));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        OK(coreline_counter_add_inline(counter, 1));
        OK(coreline_counter_sum(counter, &value));
        _exit(value == before + 1 ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    OK(coreline_counter_sum(counter, &value));
    CHECK(value == before);
}

int main(void)
{
    coreline_pool_t *pool = NULL;
    OK(coreline_check());
    OK(coreline_counter_create(NULL, 0, &counter));
    OK(coreline_counter_create(NULL, 64, &batched));
    if (coreline_pool_create(CORELINE_POOL_BY_KERNEL_CID, &pool) != CORELINE_OK) {
        OK(coreline_pool_create(CORELINE_POOL_CHECKED, &pool));
    }
    OK(coreline_counter_create(pool, 0, &by_cid));
    OK(coreline_counters_create(NULL, COUNTERS, &set));
    OK(coreline_percpu_create(NULL, WORDS, &percpu));
    misuse();
    locks();
    in_threads(where);
    totals();
    exchanges();
    forks();
    OK(coreline_counter_destroy(by_cid));
    OK(coreline_pool_destroy(pool));
    OK(coreline_counter_destroy(batched));
    OK(coreline_counter_destroy(counter));
    OK(coreline_counters_destroy(set));
    OK(coreline_percpu_destroy(percpu));
    return 0;
}
